"""Hugging Face configs as specs: which numbers become dimensions, what is refused, and that the library's own module is built."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from calc.dims import Dim
from calc.errors import ConfigError, DimensionError, MissingExtraError
from calc.load import load
from calc.spec import Sizes, Spec

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 48,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "vocab_size": 97,
    "max_position_embeddings": 64,
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "n_embd": 48,
    "n_head": 6,
    "n_layer": 3,
    "vocab_size": 97,
    "n_positions": 64,
}
OF = {"hidden_size": 47, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 97, "intermediate_size": 80}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama, grouped heads": LLAMA,
    "llama, as many key/value heads": LLAMA | {"num_key_value_heads": 6},
    "llama, one key/value head": LLAMA | {"num_key_value_heads": 1},
    "llama, tied head": LLAMA | {"tie_word_embeddings": True},
    "llama, head width of its own": LLAMA | {"head_dim": 10},
    "llama, padding token beyond a small vocabulary": LLAMA | {"pad_token_id": 96},
    "gpt2": GPT2,
    "gpt2, untied, own feed-forward width": GPT2 | {"tie_word_embeddings": False, "n_inner": 100},
    "mistral": LLAMA | {"model_type": "mistral", "architectures": ["MistralForCausalLM"]},
    "qwen2": LLAMA | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "layer_types": ["full_attention"] * 3},
    "qwen3": LLAMA | OF | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]},
}


def written(folder: Path, config: dict[str, Any] | str) -> str:
    """``config`` as a file; its path."""
    file = folder / "config.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config))
    return str(file)


def spec_of(folder: Path, config: dict[str, Any]) -> Spec:
    return load(f"hf:{written(folder, config)}")


def shapes(spec: Spec, **sizes: int) -> dict[str, tuple[int, ...]]:
    """Parameters by name, built without memory."""
    with torch.device("meta"):
        module = spec.build(Sizes(**spec.sizes(sizes)))
    return {name: tuple(p.shape) for name, p in module.named_parameters()}


def parameters(spec: Spec, **sizes: int) -> int:
    with torch.device("meta"):
        module = spec.build(Sizes(**spec.sizes(sizes)))
    return sum(p.numel() for p in module.parameters())


# -- dimensions --------------------------------------------------------------------------------------------------------------


def test_llama_dimensions_with_grouped_heads(tmp_path: Path) -> None:
    """Rotary positions: the head width is even and no table bounds T, so C is no dimension."""
    assert spec_of(tmp_path, LLAMA).dims == {
        "B": Dim(1),
        "T": Dim(64),
        "d": Dim(48, multiple_of="h"),
        "h": Dim(6, multiple_of="g"),
        "g": Dim(2),
        "k": Dim("d/h", multiple_of=2),
        "f": Dim(80),
        "L": Dim(3),
        "V": Dim(97),
    }


def test_gpt2_dimensions(tmp_path: Path) -> None:
    """Learned positions bound T, the head width is always d/h, and a feed-forward width of null is 4 d."""
    assert spec_of(tmp_path, GPT2).dims == {
        "B": Dim(1),
        "T": Dim(64, at_most="C"),
        "d": Dim(48, multiple_of="h"),
        "h": Dim(6),
        "k": Dim("d/h", tied=True),
        "f": Dim("4*d"),
        "L": Dim(3),
        "V": Dim(97),
        "C": Dim(64),
    }


def test_as_many_key_value_heads_as_heads_ties_them(tmp_path: Path) -> None:
    """The library branches on it, so g cannot be set apart, and the spec says so."""
    spec = spec_of(tmp_path, LLAMA | {"num_key_value_heads": 6})

    assert spec.dimensions["g"] == Dim("h", tied=True)
    assert spec.notes[0].startswith("g = h in this config and cannot be set apart")


def test_missing_key_value_heads_are_as_many_as_heads(tmp_path: Path) -> None:
    """The config class fills them in."""
    without = {name: value for name, value in LLAMA.items() if name != "num_key_value_heads"}

    assert spec_of(tmp_path, without).dimensions["g"] == Dim("h", tied=True)


def test_a_head_width_that_is_not_d_over_h_is_a_number(tmp_path: Path) -> None:
    """10 where 48/6 is 8."""
    assert spec_of(tmp_path, LLAMA | {"head_dim": 10}).dimensions["k"] == Dim(10, multiple_of=2)


def test_a_class_without_a_head_width_of_its_own_ties_it(tmp_path: Path) -> None:
    """Rotary, so d/h is even too."""
    assert spec_of(tmp_path, FAMILIES["qwen2"]).dimensions["k"] == Dim("d/h", tied=True, multiple_of=2)


def test_the_width_need_not_divide_where_the_class_does_not_ask(tmp_path: Path) -> None:
    """A width of 47 with 6 heads of 16: Qwen3 accepts what Llama's config class refuses."""
    spec = spec_of(tmp_path, FAMILIES["qwen3"])

    assert spec.dimensions["d"] == Dim(47)
    assert shapes(spec)["model.layers.0.self_attn.q_proj.weight"] == (96, 47)


def test_the_depth_follows_the_pattern_of_the_layers(tmp_path: Path) -> None:
    """Window and full attention in turn: the depth is even, and a depth of 6 repeats the pattern of 4 layers."""
    turns = ["sliding_attention", "full_attention"] * 2
    gemma = LLAMA | {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "num_hidden_layers": 4, "layer_types": turns}
    spec = spec_of(tmp_path, gemma)

    with torch.device("meta"):
        module = spec.build(Sizes(**spec.sizes({"L": 6})))

    assert spec.dimensions["L"] == Dim(4, multiple_of=2)
    assert module.config.layer_types == turns[:2] * 3
    with pytest.raises(DimensionError, match=r"^L = 5 is not divisible by 2"):
        spec.sizes({"L": 5})


def test_a_pattern_that_does_not_repeat_fixes_the_depth(tmp_path: Path) -> None:
    """Its spec has no L and says why; the depth is the config's."""
    kinds = ["sliding_attention", "full_attention", "full_attention", "sliding_attention", "full_attention"]
    gemma = LLAMA | {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "num_hidden_layers": 5, "layer_types": kinds}
    spec = spec_of(tmp_path, gemma)

    assert "L" not in spec.dims
    assert spec.pinned == ()
    assert "the depth is a number here, no dimension: the layers of this config repeat no pattern" in spec.notes
    assert "model.layers.4.mlp.up_proj.weight" in shapes(spec)


def test_layers_that_stand_apart_are_so_many_more_than_the_pattern(tmp_path: Path) -> None:
    """One sliding layer, then full ones: L = n + 1. Six of a pattern and two of the next: L = 6 n + 2."""
    gemma = LLAMA | {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"]}
    first = spec_of(tmp_path, gemma | {"num_hidden_layers": 5, "layer_types": ["sliding_attention", *["full_attention"] * 4]})
    assert (first.dimensions["L"].multiple_of, first.dimensions["L"].plus) == (1, 1)

    six = [*["sliding_attention"] * 5, "full_attention"]
    cut = spec_of(tmp_path, gemma | {"num_hidden_layers": 14, "layer_types": [*six, *six, *six[:2]]})
    assert (cut.dimensions["L"].multiple_of, cut.dimensions["L"].plus) == (6, 2)
    with pytest.raises(DimensionError, match=r"^L = 12 does not fit: this model needs L to be a multiple of 6 and 2 more, e\.g\. 8$"):
        cut.sizes({"L": 12})


def test_layers_that_are_counted_by_kind_follow_the_depth(tmp_path: Path) -> None:
    """Global and local in turn, said as three times the pair: a depth of 4 is the four kinds, once."""
    neo = {"model_type": "gpt_neo", "architectures": ["GPTNeoForCausalLM"], "hidden_size": 48, "num_heads": 6, "vocab_size": 97}
    spec = spec_of(tmp_path, neo | {"num_layers": 6, "attention_types": [[["global", "local"], 3]]})

    with torch.device("meta"):
        module = spec.build(Sizes(**spec.sizes({"L": 4})))

    assert spec.dimensions["L"].multiple_of == 2
    assert module.config.attention_types == [[["global", "local", "global", "local"], 1]]
    assert [block.attn.attention_type for block in module.transformer.h] == ["global", "local"] * 2


def test_the_length_is_at_most_1024_by_default(tmp_path: Path) -> None:
    """T = min(C, 1024)."""
    assert spec_of(tmp_path, LLAMA | {"max_position_embeddings": 8192}).sizes()["T"] == 1024
    assert spec_of(tmp_path, LLAMA | {"max_position_embeddings": 100}).sizes()["T"] == 100


def test_learned_positions_bound_the_length(tmp_path: Path) -> None:
    """64 positions, 65 tokens."""
    with pytest.raises(DimensionError, match=r"^T = 65 is more than C = 64"):
        spec_of(tmp_path, GPT2).sizes({"T": 65})


# -- the module ----------------------------------------------------------------------------------------------------------------


def test_llama_parameters_by_hand(tmp_path: Path) -> None:
    """2 V d; L layers of q and o 2 d h k, k and v 2 d g k, three projections 3 d f and two norms 2 d; a last norm d."""
    d, h, g, k, f, L, V = 48, 6, 2, 8, 80, 3, 97

    assert parameters(spec_of(tmp_path, LLAMA)) == 2 * V * d + L * (2 * d * h * k + 2 * d * g * k + 3 * d * f + 2 * d) + d


def test_a_head_width_of_its_own_and_a_tied_head_by_hand(tmp_path: Path) -> None:
    """k = 10 in place of d/h = 8, and one table of V d in place of two."""
    d, h, g, k, f, L, V = 48, 6, 2, 10, 80, 3, 97
    spec = spec_of(tmp_path, LLAMA | {"head_dim": 10, "tie_word_embeddings": True})

    assert parameters(spec) == V * d + L * (2 * d * h * k + 2 * d * g * k + 3 * d * f + 2 * d) + d


def test_gpt2_124m_has_the_published_number_of_parameters(tmp_path: Path) -> None:
    """The class's defaults are GPT-2 124M: V d + C d + L (12 d^2 + 13 d) + 2 d."""
    spec = spec_of(tmp_path, {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]})

    assert 50257 * 768 + 1024 * 768 + 12 * (12 * 768**2 + 13 * 768) + 2 * 768 == 124_439_808
    assert parameters(spec) == 124_439_808


def test_the_feed_forward_width_can_be_set_where_the_config_says_null(tmp_path: Path) -> None:
    """It is then given to the class as a number."""
    assert shapes(spec_of(tmp_path, GPT2), f=101)["transformer.h.0.mlp.c_fc.weight"] == (48, 101)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_step_runs_for_real(family: str, tmp_path: Path) -> None:
    """Forward and backward at sizes of its own: one loss, a gradient for each parameter, training mode."""
    spec = spec_of(tmp_path, FAMILIES[family])
    n = Sizes(**spec.sizes({**spec.check_at, "V": 31, "L": 1}))
    torch.manual_seed(0)
    module, inputs = spec.build(n), spec.inputs(n)

    spec.loss(module, *inputs).backward()

    assert module.training
    assert all(p.grad is not None and p.dtype == torch.float32 for p in module.parameters())


class Given(int):
    """An integer that is not of type int, as a symbolic size is not: takes the path that puts sizes into a finished config."""


@pytest.mark.parametrize("family", FAMILIES)
def test_sizes_put_into_a_config_build_what_a_config_made_with_them_builds(family: str, tmp_path: Path) -> None:
    """Traces do the first, real runs the second: the same parameters must come of both."""
    spec = spec_of(tmp_path, FAMILIES[family])
    other = {"h": 4, "d": 40, "f": 37, "V": 29, "L": 2}
    n = spec.sizes(other)
    symbolic = {letter: size if letter in spec.pinned else Given(size) for letter, size in n.items()}
    with torch.device("meta"):
        module = spec.build(Sizes(**symbolic))

    assert {name: tuple(p.shape) for name, p in module.named_parameters()} == shapes(spec, **other)


def test_the_number_format_and_the_caching_of_the_file_are_ignored(tmp_path: Path) -> None:
    """The step is built in fp32, its attention as the class picks it."""
    spec = spec_of(tmp_path, LLAMA | {"dtype": "bfloat16", "use_cache": True, "attn_implementation": "eager"})
    with torch.device("meta"):
        module = spec.build(Sizes(**spec.sizes()))

    assert {p.dtype for p in module.parameters()} == {torch.float32}
    assert module.config._attn_implementation == "sdpa"


def test_nothing_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading and building work without a network."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)

    assert parameters(spec_of(tmp_path, LLAMA)) > 0


def test_a_config_too_large_to_run_is_checked_as_a_narrow_relative(tmp_path: Path) -> None:
    """A 70B shape: heads stay grouped, and the width follows them."""
    large = {"hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256}
    spec = spec_of(tmp_path, LLAMA | large | {"num_hidden_layers": 80})

    assert spec.check_at == {"B": 2, "T": 16, "d": 128, "h": 8, "g": 2, "k": 16, "f": 211, "L": 2, "V": 503}


def test_a_folder_stands_for_its_config(tmp_path: Path) -> None:
    """As in a checkpoint."""
    written(tmp_path, LLAMA)

    assert load(f"hf:{tmp_path}").dims == spec_of(tmp_path, LLAMA).dims


def test_the_key_changes_with_the_config_and_not_with_its_place(tmp_path: Path) -> None:
    """It stands for the content."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    assert spec_of(tmp_path / "a", LLAMA).key == spec_of(tmp_path / "b", LLAMA).key
    assert spec_of(tmp_path / "a", LLAMA).key != spec_of(tmp_path / "a", LLAMA | {"vocab_size": 98}).key


# -- kinds of classes --------------------------------------------------------------------------------------------------------------

CLIP: dict[str, Any] = {
    "model_type": "clip",
    "architectures": ["CLIPModel"],
    "text_config": {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 44, "vocab_size": 97},
    "vision_config": {"hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 3, "image_size": 32, "patch_size": 16},
    "projection_dim": 20,
}


def test_the_text_goes_by_the_letters_and_the_pictures_by_their_own(tmp_path: Path) -> None:
    """A config of two: what reads tokens has the plain letters, the other one's dimensions begin with its name."""
    spec = spec_of(tmp_path, CLIP)

    assert list(spec.dims) == ["B", "T", "d", "h", "k", "f", "L", "V", "C", "vision_d", "vision_h", "vision_k", "vision_f"]
    assert spec.dimensions["vision_d"] == Dim(24, "model width (vision)", multiple_of="vision_h")
    assert spec.dimensions["vision_k"] == Dim("vision_d/vision_h", "head width (vision)", tied=True)
    assert "the depth and the sizes of pictures and sounds of vision_config are numbers here" in spec.notes


def test_sizes_are_set_in_the_config_they_belong_to(tmp_path: Path) -> None:
    """The widths of the two towers move apart; the projections join them at 20."""
    shape = shapes(spec_of(tmp_path, CLIP), d=36, vision_d=26, f=50)

    assert shape["text_projection.weight"] == (20, 36)
    assert shape["visual_projection.weight"] == (20, 26)
    assert shape["text_model.encoder.layers.1.mlp.fc1.weight"] == (50, 36)


KINDS: dict[str, tuple[dict[str, Any], list[tuple[int, ...]]]] = {
    "text and picture": (CLIP, [(3, 7), (3, 3, 32, 32)]),
    "classes of texts": (LLAMA | {"architectures": ["LlamaForSequenceClassification"], "pad_token_id": 0}, [(3, 7), (3,)]),
    "classes of tokens": (LLAMA | {"architectures": ["LlamaForTokenClassification"]}, [(3, 7), (3, 7)]),
    "answers": (LLAMA | {"architectures": ["LlamaForQuestionAnswering"]}, [(3, 7), (3,), (3,)]),
    "encoder": (LLAMA | {"architectures": ["LlamaModel"]}, [(3, 7)]),
    "detection": (
        {
            "model_type": "yolos",
            "architectures": ["YolosForObjectDetection"],
            "image_size": [32, 48],
            "hidden_size": 24,
            "num_attention_heads": 2,
        },
        [(3, 3, 32, 48)],
    ),
    "hidden patches": (
        {
            "model_type": "vit",
            "architectures": ["ViTForMaskedImageModeling"],
            "image_size": 32,
            "hidden_size": 24,
            "num_attention_heads": 2,
        },
        [(3, 3, 32, 32), (3, 4)],
    ),
    "speech": (
        {
            "model_type": "whisper",
            "architectures": ["WhisperForConditionalGeneration"],
            "max_source_positions": 9,
            "num_mel_bins": 5,
            "vocab_size": 97,
            "decoder_start_token_id": 1,
            "pad_token_id": 0,
        },
        [(3, 5, 18), (3, 4)],
    ),
    "sounds": (
        {
            "model_type": "audio-spectrogram-transformer",
            "architectures": ["ASTForAudioClassification"],
            "max_length": 64,
            "num_mel_bins": 32,
            "hidden_size": 24,
            "num_attention_heads": 2,
        },
        [(3, 64, 32), (3,)],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_class_is_fed_what_it_takes(kind: str, tmp_path: Path) -> None:
    """Shapes of the inputs at B = 3, T = 7, S = 4, and a finite loss of a real forward."""
    config, fed = KINDS[kind]
    spec = spec_of(tmp_path, config)
    n = Sizes(**spec.sizes({name: size for name, size in {"B": 3, "T": 7, "S": 4, "L": 2}.items() if name in spec.dims}))
    torch.manual_seed(0)
    inputs = spec.inputs(n)

    assert [tuple(x.shape) for x in inputs] == fed
    assert torch.isfinite(spec.loss(spec.build(n), *inputs))


def test_a_loss_that_is_not_the_librarys_own_is_said_to_be_another(tmp_path: Path) -> None:
    """A class without a head, and boxes that the library would match to objects by the data."""
    assert spec_of(tmp_path, KINDS["encoder"][0]).notes[0].startswith("The class has no head and no loss of its own")
    assert spec_of(tmp_path, KINDS["detection"][0]).notes[0].startswith("The library's loss first matches boxes to objects")


# -- refusals --------------------------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any] | str, str]] = {
    "malformed": ('{"model_type": "llama",\n "hidden_size": }', "{file} is not JSON: Expecting value at line 2, column 17"),
    "empty": ("", "{file} is not JSON: Expecting value at line 1, column 1"),
    "a list": ("[1, 2]", "{file} holds a JSON list, not an object: give the config.json of a model"),
    "remote code": (
        LLAMA | {"auto_map": {"AutoConfig": "configuration_x.XConfig"}},
        "{file} has auto_map: its classes are code beside the config, and no remote code is run; use FILE.py:NAME",
    ),
    "quantised": (
        LLAMA | {"quantization_config": {"bits": 4}},
        "{file} has quantization_config: quantised weights are not trained; take the config without it",
    ),
    "no model type": (
        {name: value for name, value in LLAMA.items() if name != "model_type"},
        "{file} has no model_type: add the one that transformers knows the model by, e.g. 'llama'",
    ),
    "no architecture": (
        LLAMA | {"architectures": []},
        "{file} has no architectures: add e.g. ['LlamaForCausalLM'], the class to build",
    ),
    "an unknown model type": (
        LLAMA | {"model_type": "llamma"},
        "{file}: model_type 'llamma' is not one that the installed transformers knows",
    ),
    "a class of no known kind": (
        LLAMA | {"architectures": ["LlamaForMultipleChoice"]},
        "{file}: architecture 'LlamaForMultipleChoice' is no class of its model_type with a known step: for 'llama' there is"
        " LlamaForCausalLM, LlamaForSequenceClassification, LlamaForTokenClassification, LlamaForQuestionAnswering, LlamaModel",
    ),
    "another model's class": (
        LLAMA | {"architectures": ["GPT2LMHeadModel"]},
        "{file}: architecture 'GPT2LMHeadModel' is no class of its model_type with a known step: for 'llama' there is"
        " LlamaForCausalLM, LlamaForSequenceClassification, LlamaForTokenClassification, LlamaForQuestionAnswering, LlamaModel",
    ),
    "inputs of another kind": (
        {"model_type": "align", "architectures": ["AlignVisionModel"]},
        "{file}: architecture 'AlignVisionModel' is no class of its model_type with a known step: for 'align' there is AlignModel",
    ),
    "a negative size": (LLAMA | {"hidden_size": -48}, "{file}: hidden_size = -48 is not a size: give an integer from 1 to 2**63 - 1"),
    "a size of zero": (LLAMA | {"vocab_size": 0}, "{file}: vocab_size = 0 is not a size: give an integer from 1 to 2**63 - 1"),
    "a fraction": (LLAMA | {"num_hidden_layers": 2.5}, "{file}: num_hidden_layers = 2.5 is not an integer"),
    "a size in words": (LLAMA | {"hidden_size": "48"}, "{file}: hidden_size = 48 is not an integer"),
    "true": (LLAMA | {"hidden_size": True}, "{file}: hidden_size = True is not an integer"),
    "a size beyond 64 bits": (
        LLAMA | {"vocab_size": 10**400},
        "{file}: vocab_size = 100000000000000000000000000000000000000… is not a size: give an integer from 1 to 2**63 - 1",
    ),
    "indivisible heads": (
        GPT2 | {"n_head": 7},
        "{file}: GPT2LMHeadModel cannot be built from it: ValueError: `embed_dim` must be divisible by num_heads"
        " (got `embed_dim`: 48 and `num_heads`: 7).",
    ),
    "indivisible groups": (
        LLAMA | {"num_key_value_heads": 4},
        "{file}: h = 6 is not divisible by g = 4: this model needs h to be a multiple of g (d is hidden_size, h is num_attention_heads,"
        " g is num_key_value_heads, k is head_dim, f is intermediate_size, L is num_hidden_layers, V is vocab_size)",
    ),
    "more groups than heads": (
        LLAMA | {"num_key_value_heads": 12},
        "{file}: h = 6 is not divisible by g = 12: this model needs h to be a multiple of g (d is hidden_size, h is num_attention_heads,"
        " g is num_key_value_heads, k is head_dim, f is intermediate_size, L is num_hidden_layers, V is vocab_size)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_config_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    """The file, the cause, and where there is one the way out."""
    config, message = REFUSED[case]
    file = written(tmp_path, config)

    with pytest.raises(ConfigError, match=f"^{re.escape(message.replace('{file}', file))}$"):
        load(f"hf:{file}")


@pytest.mark.parametrize("change", [{"num_attention_heads": 7, "num_key_value_heads": 7}, {"head_dim": 7}, {"hidden_act": 3}])
def test_what_the_config_class_refuses_becomes_one_line(change: dict[str, Any], tmp_path: Path) -> None:
    """48 is no multiple of 7 heads, 7 is no even head width, 3 is no activation: in the library's words, which vary by version."""
    file = written(tmp_path, LLAMA | change)

    with pytest.raises(ConfigError, match=rf"^{re.escape(file)}: [^\n]+[0-9][^\n]+$"):
        load(f"hf:{file}")


def test_a_missing_config_is_refused(tmp_path: Path) -> None:
    """A name of the hub is no path, and nothing is downloaded."""
    with pytest.raises(ConfigError, match=r"^no config at openai-community/gpt2: give the path of a config.json or of its folder"):
        load("hf:openai-community/gpt2")
    with pytest.raises(ConfigError, match=r"\(nothing is downloaded\)$"):
        load(f"hf:{tmp_path}")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[" * 100_000, b'{"vocab_size": ' + b"9" * 5000 + b"}"])
def test_bytes_that_are_no_config_are_refused(content: bytes, tmp_path: Path) -> None:
    """Another encoding, brackets without end, and a number past what Python reads."""
    file = tmp_path / "config.json"
    file.write_bytes(content)

    with pytest.raises(ConfigError, match=r"^[^\n]*cannot be read as JSON: [^\n]+$"):
        load(f"hf:{file}")


def test_a_missing_extra_is_refused_with_the_command_that_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers is an extra."""
    monkeypatch.setitem(sys.modules, "transformers", None)

    with pytest.raises(MissingExtraError, match=r"^hf: models need transformers, which is not installed: pip install 'napkin\[hf\]'$"):
        load(f"hf:{written(tmp_path, LLAMA)}")


def test_a_malformed_config_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    """Bad input costs no seconds of start-up."""
    file = written(tmp_path, "{")
    code = (
        "import sys, calc\n"
        f"try: calc.load('hf:{file}')\n"
        "except calc.NapkinError: assert 'torch' not in sys.modules\n"
        "else: raise AssertionError('accepted')"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr

"""Hugging Face configs as specs: which numbers become dimensions, and that the library's own module is built."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import torch

import calc
from calc.dimensions import Dim
from calc.errors import DimensionError, NapkinError
from calc.models.hf.source import construct, source_of
from calc.models.load import load
from calc.pipeline import check
from calc.spec import Sizes, Spec
from tests.checks import failures
from tests.models.configs import DINOV2, FAMILIES, GPT2, LLAMA, parameters, shapes, spec_of, written

# -- dimensions --------------------------------------------------------------------------------------------------------------


PAIRS = "rotary positions rotate pairs"


def test_llama_dimensions_with_grouped_heads(tmp_path: Path) -> None:
    """Rotary positions: the head width is even and no table bounds T, so C is not a dimension."""
    assert spec_of(tmp_path, LLAMA).dims == {
        "B": Dim(1),
        "T": Dim(64),
        "d": Dim(48, multiple_of="h", because="each head takes an equal part of the width"),
        "h": Dim(6, multiple_of="g", because="each key/value head serves an equal part of the heads"),
        "g": Dim(2),
        "k": Dim("d/h", multiple_of=2, because=PAIRS),
        "f": Dim(80),
        "L": Dim(3),
        "V": Dim(97),
    }


def test_gpt2_dimensions(tmp_path: Path) -> None:
    """Learned positions bound T, the head width is always d/h, and a feed-forward width of null is 4 d."""
    assert spec_of(tmp_path, GPT2).dims == {
        "B": Dim(1),
        "T": Dim(64, at_most="C"),
        "d": Dim(48, multiple_of="h", because="each head takes an equal part of the width"),
        "h": Dim(6),
        "k": Dim("d/h", tied=True),
        "f": Dim("4*d"),
        "L": Dim(3),
        "V": Dim(97),
        "C": Dim(64),
    }


def test_as_many_key_value_heads_as_heads_ties_them(tmp_path: Path) -> None:
    """The library branches on it, so g cannot be set separately, and the spec says so."""
    spec = spec_of(tmp_path, LLAMA | {"num_key_value_heads": 6})

    assert spec.dimensions["g"] == Dim("h", tied=True)
    assert spec.notes[0].startswith("g = h in this config and cannot be set separately")


def test_missing_key_value_heads_are_as_many_as_heads(tmp_path: Path) -> None:
    """The config class fills them in."""
    without = {name: value for name, value in LLAMA.items() if name != "num_key_value_heads"}

    assert spec_of(tmp_path, without).dimensions["g"] == Dim("h", tied=True)


def test_a_head_width_that_is_not_d_over_h_is_a_number(tmp_path: Path) -> None:
    """10 where 48/6 is 8."""
    assert spec_of(tmp_path, LLAMA | {"head_dim": 10}).dimensions["k"] == Dim(10, multiple_of=2, because=PAIRS)


def test_a_divisor_has_its_reason(tmp_path: Path) -> None:
    """Half of a head's width rotated: 2·2. Rows of experts: 4 elements of fp32, of a width whose pairs alone need 2."""
    glm = LLAMA | {"model_type": "glm", "architectures": ["GlmForCausalLM"], "head_dim": 8, "partial_rotary_factor": 0.5}
    experts = LLAMA | {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 4}
    rows = "rows of the grouped matmul of the experts are multiples of 16 bytes, 4 elements of fp32"

    assert Dim("d/h", multiple_of=4, because=f"{PAIRS} of 1/2 of a head's width") == spec_of(tmp_path, glm).dimensions["k"]
    assert Dim("d/h", tied=True, multiple_of=4, because=f"{PAIRS} and {rows}") == spec_of(tmp_path, experts).dimensions["k"]
    assert rows == spec_of(tmp_path, experts).dimensions["f"].because


def test_only_widths_that_experts_read_or_write_are_aligned(tmp_path: Path) -> None:
    """Ranks and parts of heads belong to the attention."""
    latent = {"kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16, "n_group": 1}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "topk_group": 1, "first_k_dense_replace": 1}
    deepseek = {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "num_key_value_heads": 6}
    dims = spec_of(tmp_path, LLAMA | latent | experts | deepseek).dimensions

    assert ["d", "moe_intermediate_size"] == [name for name, dim in dims.items() if dim.multiple_of == 4 and name != "f"]


def test_a_class_without_a_head_width_of_its_own_ties_it(tmp_path: Path) -> None:
    """Rotary, so d/h is even too."""
    assert spec_of(tmp_path, FAMILIES["qwen2"]).dimensions["k"] == Dim("d/h", tied=True, multiple_of=2, because=PAIRS)


def test_a_head_width_that_the_class_computes_follows_from_the_others(tmp_path: Path) -> None:
    """It sets ``head_dim`` to d/h, whatever the file says, and rotates pairs of it."""
    dims = spec_of(tmp_path, LLAMA | {"model_type": "cohere2", "architectures": ["Cohere2ForCausalLM"]}).dimensions

    assert (dims["d"].default, dims["d"].multiple_of) == (LLAMA["hidden_size"], "h")
    assert dims["k"] == Dim("d/h", tied=True, multiple_of=2, because=PAIRS)


def test_a_head_width_that_the_class_takes_and_does_not_run_with_follows_from_the_others(tmp_path: Path) -> None:
    """Its config has a ``head_dim``, and what projects the heads back is as wide as the model."""
    dims = spec_of(tmp_path, LLAMA | {"model_type": "helium", "architectures": ["HeliumForCausalLM"], "head_dim": 8}).dimensions

    assert Dim("d/h", tied=True, multiple_of=2, because=PAIRS) == dims["k"]
    assert "h" == dims["d"].multiple_of
    assert not spec_of(tmp_path, LLAMA | {"head_dim": 8}).dimensions["k"].tied


MAMBA2 = {
    "model_type": "mamba2",
    "architectures": ["Mamba2ForCausalLM"],
    "hidden_size": 32,
    "expand": 2,
    "num_heads": 16,
    "head_dim": 4,
    "n_groups": 4,
    "state_size": 8,
    "num_hidden_layers": 3,
    "vocab_size": 97,
}


def test_heads_come_in_the_groups_that_a_config_counts(tmp_path: Path) -> None:
    """The class runs with no number of heads that its four groups do not divide; with one group, with any."""
    assert 4 == spec_of(tmp_path, MAMBA2).dimensions["h"].multiple_of
    assert spec_of(tmp_path, MAMBA2 | {"n_groups": 1}).dimensions["h"].multiple_of is None


def test_the_width_need_not_divide_where_the_class_does_not_ask(tmp_path: Path) -> None:
    """A width of 47 with 6 heads of 16: Qwen3 accepts what Llama's config class refuses."""
    spec = spec_of(tmp_path, FAMILIES["qwen3"])

    assert spec.dimensions["d"] == Dim(47)
    assert shapes(spec)["model.layers.0.self_attn.q_proj.weight"] == (96, 47)


XLNET = {"model_type": "xlnet", "architectures": ["XLNetLMHeadModel"], "d_model": 48, "n_head": 6, "d_head": 8, "d_inner": 80, "n_layer": 3}
PROPHET = {"model_type": "prophetnet", "architectures": ["ProphetNetForConditionalGeneration"], "hidden_size": 48, "decoder_ffn_dim": 80}
CTRL = {"model_type": "ctrl", "architectures": ["CTRLLMHeadModel"], "n_embd": 48, "dff": 80, "n_head": 6, "n_layer": 3}
HEADS = {"num_encoder_attention_heads": 6, "num_decoder_attention_heads": 6, "num_encoder_layers": 3, "num_decoder_layers": 3}


@pytest.mark.parametrize(
    "config",
    [XLNET, PROPHET | HEADS | {"encoder_ffn_dim": 80}, CTRL],
    ids=["d_inner and d_head", "heads of encoder and decoder", "dff"],
)
def test_older_names_of_sizes_are_the_same_dimensions(config: dict[str, Any], tmp_path: Path) -> None:
    """The feed-forward is as wide as said, and a head as wide as d/h."""
    spec = spec_of(tmp_path, config | {"vocab_size": 97})
    matrices = [shape for shape in shapes(spec, d=36, h=6, f=56, L=2).values() if len(shape) > 1]

    assert ("h", "d/h", 80) == (spec.dimensions["d"].multiple_of, spec.dimensions["k"].default, spec.dimensions["f"].default)
    assert {(56, 36), (36, 56)} <= {*matrices}
    assert 48 not in {size for shape in matrices for size in shape}


@pytest.mark.slow
def test_no_assumption_is_about_a_token_that_no_size_depends_on(tmp_path: Path) -> None:
    """The library warns of a special token beyond the vocabulary, which is a branch on V that the step does not take."""
    spec = spec_of(tmp_path, GPT2 | {"bos_token_id": 95, "eos_token_id": 96})
    derivation = calc.derive(spec, {"T": 19}, cache=False, mode="infer")

    assert [] == [a for a in derivation.assumptions if a.expr.startswith(("V", "not (V"))]


# -- numbers for each pair of rotary positions --------------------------------------------------------------------------------

# A head of 16, of which 3/4 rotate: 12, or 6 pairs.
_SHORT = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
LONG_ROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": _SHORT, "long_factor": [7.0] * 6}
PHI3 = LLAMA | {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "hidden_size": 96, "pad_token_id": 0}
PHI3 |= {"rope_scaling": LONG_ROPE, "original_max_position_embeddings": 32, "partial_rotary_factor": 0.75}


@pytest.mark.parametrize(("k", "numbers"), [(8, [1.0, 2.0, 3.0]), (16, _SHORT), (24, [*_SHORT, 1.0, 2.0, 3.0])])
def test_a_list_for_each_pair_of_rotary_positions_grows_with_the_width(tmp_path: Path, k: int, numbers: list[float]) -> None:
    spec = spec_of(tmp_path, PHI3)
    parameters = spec.build(Sizes(**spec.sizes({"d": 6 * k}))).config.rope_parameters

    assert (numbers, [7.0] * (3 * k // 8)) == (parameters["short_factor"], parameters["long_factor"])


@pytest.mark.slow
def test_closed_forms_have_the_width_of_such_lists_as_a_symbol(tmp_path: Path) -> None:
    """The forward equals a real run's at another width than the file's."""
    spec = spec_of(tmp_path, PHI3)
    derivation = calc.derive(spec, {"T": 19}, cache=False, mode="infer")

    assert {} == derivation.specialization_reasons
    assert [] == failures(calc.check(derivation, B=2, T=11, L=2, h=4, g=2, d=32))


def test_a_list_of_another_length_is_no_list_for_each_pair(tmp_path: Path) -> None:
    """The library says so itself, of the file."""
    with pytest.raises(NapkinError, match="short_factor field must have length 6, got 5"):
        spec_of(tmp_path, PHI3 | {"rope_scaling": LONG_ROPE | {"short_factor": [1.0] * 5}})


def test_an_odd_head_is_refused_by_the_library_in_a_file_and_by_the_model_at_other_sizes() -> None:
    """A certificate may have odd heads where the model does not rotate them, whatever the library expects of all files."""
    odd = LLAMA | {"head_dim": 41}

    assert source_of("llama", LLAMA).config({"head_dim": 41}).head_dim == 41
    with pytest.raises(NapkinError, match="RoPE requires an even rotary dimension"):
        construct(source_of("odd", odd))


@pytest.mark.slow
def test_what_is_not_to_blame_stays_a_symbol(tmp_path: Path) -> None:
    """A list that names the fourth stage too is of this depth alone, at whatever width."""
    derivation = calc.derive(spec_of(tmp_path, DINOV2 | {"out_features": ["stage4", "stage5"]}), cache=False, mode="infer")

    assert {"L"} == derivation.specialization_reasons.keys()
    assert {"d"} == {str(s) for s in derivation["parameters"].expr.free_symbols}


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
    symbolic = {letter: size if letter in spec.trip_counts else Given(size) for letter, size in n.items()}
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


def test_a_folder_means_its_config(tmp_path: Path) -> None:
    """As in a checkpoint."""
    written(tmp_path, LLAMA)

    assert load(f"hf:{tmp_path}").dims == spec_of(tmp_path, LLAMA).dims


def test_the_key_changes_with_the_config_and_not_with_its_place(tmp_path: Path) -> None:
    """It stands for the content."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    assert spec_of(tmp_path / "a", LLAMA).key == spec_of(tmp_path / "b", LLAMA).key
    assert spec_of(tmp_path / "a", LLAMA).key != spec_of(tmp_path / "a", LLAMA | {"vocab_size": 98}).key


# -- sizes of the checks -----------------------------------------------------------------------------------------------------


LARGE = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000}


@pytest.mark.slow
def test_a_large_model_is_checked_on_a_small_one_which_says_so(tmp_path: Path) -> None:
    """As deep as the usual case takes: two layers of a transformer run other operators than three or more."""
    spec = spec_of(tmp_path, LLAMA | LARGE | {"num_hidden_layers": 32})
    derivation = calc.derive(spec, optimizer="sgd")
    chosen = check.chosen(derivation, spec, {})

    assert {"B": 1, "T": 16, "d": 128, "h": 8, "g": 2, "k": 16, "f": 211, "L": 3, "V": 503} == chosen.sizes
    assert chosen.because == (
        "T, h, g, k, d, V, f small, since this model has 7,241,732,096 parameters: above 200,000,000, a small model of the same kind"
        " is checked; L = 3, the smallest at which the step runs as at the sizes of the derivation; B = 1 as in the derivation, a special"
        " case"
    )
    assert 2 == check.chosen(derivation, spec, {"L": 2}).sizes["L"]
    assert check.chosen(derivation, spec, {"L": 2}).because.startswith("L as given; ")


@pytest.mark.slow
def test_a_small_model_of_many_experts_has_fewer_of_them_in_its_checks(tmp_path: Path) -> None:
    """And narrow sizes of the config's own, as far as it is built with them: 16 experts are twice the 8 that a token meets."""
    deepseek = Path(__file__).parents[1] / "published" / "configs" / "deepseek-v3.json"
    spec = load(f"hf:{deepseek}")

    assert {"E": 16, "moe_intermediate_size": 32} == {name: spec.check_at[name] for name in ("E", "moe_intermediate_size")}
    assert _parameters_at(spec) < 10_000_000


def _parameters_at(spec: Spec) -> int:
    return sum(p.numel() for p in spec.build(Sizes(**spec.sizes(spec.check_at))).parameters())


@pytest.mark.parametrize("fields", [{"n_embed": 48, "num_attention_heads": 6}, {"hidden_size": 48, "n_head": 6}])
def test_a_field_that_the_class_takes_for_another_moves_with_it(fields: dict[str, int], tmp_path: Path) -> None:
    """BLOOM's makers write n_embed, which the class reads in place of hidden_size: setting d sets either."""
    bloom = {"model_type": "bloom", "architectures": ["BloomForCausalLM"], "n_layer": 2, "vocab_size": 97, **fields}
    spec = spec_of(tmp_path, bloom)

    assert (60, 60) == tuple(spec.build(Sizes(**spec.sizes({"d": 60}))).transformer.h[0].self_attention.dense.weight.shape)


def test_a_head_width_that_the_config_leaves_open_is_no_width_of_its_own(tmp_path: Path) -> None:
    """Mixtral's class has a field for it that is null: the width is split among the heads."""
    mixtral = {**LLAMA, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2}

    assert ("h", "d/h") == (spec_of(tmp_path, mixtral).dimensions["d"].multiple_of, spec_of(tmp_path, mixtral).dimensions["k"].default)


def test_code_beside_the_config_and_quantized_weights_are_noted_and_the_library_s_class_is_built(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, LLAMA | {"auto_map": {"AutoModel": "x.X"}, "quantization_config": {"quant_method": "fp8"}})

    assert spec.notes[:2] == (
        "auto_map names code beside the config, which is not run: the model is LlamaForCausalLM of the library",
        "the published weights are quantized (fp8): here all weights are built and trained in the precision of the step",
    )
    assert {torch.float32} == {p.dtype for p in spec.build(Sizes(**spec.sizes())).parameters()}


def test_an_unknown_model_type_is_built_by_the_library_s_class_if_auto_map_has_the_name_of_its_config(tmp_path: Path) -> None:
    """As Kimi K2, whose published code beside the config is a copy of the library's DeepSeek V3 under the same names."""
    spec = spec_of(tmp_path, LLAMA | {"model_type": "llamma", "auto_map": {"AutoConfig": "configuration_llama.LlamaConfig"}})

    assert spec.notes[:2] == (
        "auto_map names code beside the config, which is not run: the model is LlamaForCausalLM of the library",
        "the library has no model_type 'llamma': the config is read as a LlamaConfig of the library, as auto_map names one",
    )
    assert parameters(spec) == parameters(spec_of(tmp_path, LLAMA))


JAMBA = {"model_type": "jamba", "architectures": ["JambaForCausalLM"], "max_position_embeddings": 97, "mamba_d_state": 5}
SWIN = {
    "model_type": "swin", "architectures": ["SwinForImageClassification"], "image_size": 56, "window_size": 7, "embed_dim": 12,
    "depths": [1, 1], "num_heads": [1, 2], "hidden_size": 24,
}  # fmt: skip
QWEN3_MOE = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 8, "moe_intermediate_size": 20}


@pytest.mark.parametrize(
    ("config", "unused", "stated"),
    [
        (LLAMA | QWEN3_MOE, {"f"}, "intermediate_size"),
        (LLAMA | {"state_size": 7}, {"state_size"}, "state_size"),
        (LLAMA | QWEN3_MOE | {"mlp_only_layers": [0, 1, 2]}, {"E", "e", "moe_intermediate_size"}, "num_experts, moe_intermediate_size"),
        (LLAMA | JAMBA, {"C"}, "max_position_embeddings"),
        (LLAMA | QWEN3_MOE | {"mlp_only_layers": [0]}, set(), ""),
        (SWIN, {"d"}, "hidden_size"),
    ],
    ids=[
        "experts in every layer",
        "a field that the class does not know",
        "no layer with experts",
        "no positions",
        "both kinds of layers",
        "a width that the class computes itself",
    ],
)
def test_a_size_that_no_module_is_built_with_is_no_dimension(config: dict[str, Any], unused: set[str], stated: str, tmp_path: Path) -> None:
    """It would be a symbol that is in no closed form, and alignment of experts that there are not would limit other sizes."""
    spec = spec_of(tmp_path, config)
    notes = [note for note in spec.notes if note.startswith("no module")]

    assert unused & spec.dims.keys() == set()
    assert {"f", "E", "e", "moe_intermediate_size"} - unused <= spec.dims.keys() or "num_experts" not in config
    assert notes == ([f"no module of this model is built with {stated}, so that no number here depends on it"] if stated else [])


def test_a_class_name_that_differs_in_case_is_resolved(tmp_path: Path) -> None:
    """MPTForCausalLM is the library's MptForCausalLM."""
    assert "MptForCausalLM" in spec_of(tmp_path, {"model_type": "mpt", "architectures": ["MPTForCausalLM"], "n_layers": 2}).source

"""The depth of a Hugging Face model is a dimension where its lists of layers show how they go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import calc
from calc.dimensions import Dim
from calc.errors import DimensionError
from calc.spec import Sizes
from tests.checks import failures
from tests.models.configs import DINOV2, LLAMA, shapes, spec_of


def test_the_depth_follows_the_pattern_of_the_layers(tmp_path: Path) -> None:
    """Window and full attention alternate: the depth is even, and a depth of 6 repeats the pattern of 4 layers."""
    alternating = ["sliding_attention", "full_attention"] * 2
    gemma = LLAMA | {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "num_hidden_layers": 4, "layer_types": alternating}
    spec = spec_of(tmp_path, gemma)

    with torch.device("meta"):
        module = spec.build(Sizes(**spec.sizes({"L": 6})))

    assert spec.dimensions["L"] == Dim(4, multiple_of=2, because="layers repeat in patterns of 2")
    assert module.config.layer_types == alternating[:2] * 3
    with pytest.raises(DimensionError, match=r"^L = 5 is not divisible by 2"):
        spec.sizes({"L": 5})


def test_the_number_that_a_layer_has_of_itself_does_not_fix_the_depth(tmp_path: Path) -> None:
    """BLIP's layers of text are alike but for their ``layer_num``."""
    width = {"hidden_size": 24, "num_attention_heads": 2, "intermediate_size": 37}
    text = width | {"vocab_size": 53, "encoder_hidden_size": 24, "num_hidden_layers": 4, "bos_token_id": 1, "sep_token_id": 3}
    vision = width | {"image_size": 32, "patch_size": 16, "num_hidden_layers": 2}
    architecture = {"model_type": "blip", "architectures": ["BlipForConditionalGeneration"]}
    spec = spec_of(tmp_path, architecture | {"text_config": text, "vision_config": vision})

    assert spec.dimensions["L"] == Dim(4)


def test_a_pattern_that_does_not_repeat_fixes_the_depth(tmp_path: Path) -> None:
    """Its spec has no L and says why; the depth is the config's."""
    kinds = ["sliding_attention", "full_attention", "full_attention", "sliding_attention", "full_attention"]
    gemma = LLAMA | {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "num_hidden_layers": 5, "layer_types": kinds}
    spec = spec_of(tmp_path, gemma)

    assert "L" not in spec.dims
    assert spec.trip_counts == ()
    assert "the depth is a number here, not a dimension: the layers of this config do not repeat" in spec.notes
    assert "model.layers.4.mlp.up_proj.weight" in shapes(spec)


def test_irregular_layers_are_added_to_the_pattern(tmp_path: Path) -> None:
    """One sliding layer, then full ones: L = n + 1. Six of a pattern and two of the next: L = 6 n + 2."""
    gemma = LLAMA | {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"]}
    first = spec_of(tmp_path, gemma | {"num_hidden_layers": 5, "layer_types": ["sliding_attention", *["full_attention"] * 4]})
    assert (first.dimensions["L"].multiple_of, first.dimensions["L"].plus) == (1, 1)

    six = [*["sliding_attention"] * 5, "full_attention"]
    cut = spec_of(tmp_path, gemma | {"num_hidden_layers": 14, "layer_types": [*six, *six, *six[:2]]})
    assert (cut.dimensions["L"].multiple_of, cut.dimensions["L"].plus) == (6, 2)
    with pytest.raises(DimensionError, match=r"^L = 12 does not fit: this model needs L to be a multiple of 6 and 2 more, e\.g\. 8$"):
        cut.sizes({"L": 12})


@pytest.mark.parametrize("listed", [{}, {"attention_layers": ["global", "local"] * 3}], ids=["", "listed too"])
def test_layers_that_are_counted_by_kind_follow_the_depth(listed: dict[str, Any], tmp_path: Path) -> None:
    """Global and local alternate, written as three times the pair: a depth of 4 is the four kinds, once. A file may have the list of them
    too, as published ones do."""
    neo = {"model_type": "gpt_neo", "architectures": ["GPTNeoForCausalLM"], "hidden_size": 48, "num_heads": 6, "vocab_size": 97}
    spec = spec_of(tmp_path, neo | listed | {"num_layers": 6, "attention_types": [[["global", "local"], 3]]})

    with torch.device("meta"):
        module = spec.build(Sizes(**spec.sizes({"L": 4})))

    assert spec.dimensions["L"].multiple_of == 2
    assert module.config.attention_types == [[["global", "local", "global", "local"], 1]]
    assert [block.attn.attention_type for block in module.transformer.h] == ["global", "local"] * 2


def test_layers_that_are_listed_by_number_follow_the_depth(tmp_path: Path) -> None:
    """Every layer has experts, said as 0, 1, 2, …; three have rotary positions and one has none: eight layers are that pattern twice."""
    llama4 = {"model_type": "llama4_text", "architectures": ["Llama4ForCausalLM"], "hidden_size": 64, "num_attention_heads": 4}
    llama4 |= {"num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 52, "intermediate_size_mlp": 68, "num_local_experts": 4}
    spec = spec_of(tmp_path, llama4 | {"vocab_size": 97, "num_hidden_layers": 12})

    with torch.device("meta"):
        module = spec.build(Sizes(**spec.sizes({"L": 8})))

    assert spec.dimensions["L"].multiple_of == 4
    assert module.config.moe_layers == [*range(8)]
    assert module.config.no_rope_layers == [1, 1, 1, 0] * 2


def test_layers_of_one_kind_that_are_listed_by_number_follow_the_depth(tmp_path: Path) -> None:
    """Every third layer has attention, said as 2 and 5 of six: of nine, it is 2, 5 and 8. A list of numbers that are no layers stays."""
    bamba = {"model_type": "bamba", "architectures": ["BambaForCausalLM"], "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 97}
    bamba |= {"num_key_value_heads": 2, "intermediate_size": 52, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16}
    spec = spec_of(tmp_path, bamba | {"num_hidden_layers": 6, "attn_layer_indices": [2, 5], "time_step_limit": [0.0, 1.0]})

    with torch.device("meta"):
        module = spec.build(Sizes(**spec.sizes({"L": 9})))

    assert spec.dimensions["L"].multiple_of == 3
    assert module.config.attn_layer_indices == [2, 5, 8]
    assert [hasattr(layer, "self_attn") for layer in module.model.layers] == [False, False, True] * 3
    assert tuple(module.config.time_step_limit) == (0, 1)


@pytest.mark.slow
def test_fields_of_single_layers_follow_the_pattern(tmp_path: Path) -> None:
    """As the library saves a config whose layers differ: by the numbers of those that do. A table of other numbers stays."""
    gemma = LLAMA | {"model_type": "gemma4_text", "architectures": ["Gemma4ForCausalLM"], "num_hidden_layers": 4, "head_dim": 8}
    alternating = {"layer_types": ["sliding_attention", "full_attention"] * 2, "id2label": {"0": "no", "1": "yes"}}
    spec = spec_of(tmp_path, gemma | alternating | {"per_layer_config": {"1": {"head_dim": 16}, "3": {"head_dim": 16}}})

    with torch.device("meta"):
        module = spec.build(Sizes(**spec.sizes({"L": 6})))

    assert spec.dimensions["L"].multiple_of == 2
    assert [layer.self_attn.head_dim for layer in module.model.layers] == [8, 16] * 3
    assert module.config.id2label == {0: "no", 1: "yes"}


@pytest.mark.slow
def test_a_layer_that_is_named_by_the_depth_stays_the_last(tmp_path: Path) -> None:
    """``stage5`` of five layers is ``stage7`` of seven; of a list that names others too no depth but its own is known."""
    spec = spec_of(tmp_path, DINOV2 | {"out_features": ["stage5"]})

    assert ["stage7"] == spec.build(Sizes(**spec.sizes({"L": 7}))).config.out_features
    assert {} == calc.derive(spec, cache=False, mode="infer").specialization_reasons


def test_a_layer_that_is_numbered_by_the_depth_stays_the_last(tmp_path: Path) -> None:
    """As a backbone's file has it: names of all stages, and the last one's name and index. Index 0 is the embedding's."""
    stages = {"out_features": ["stage5"], "out_indices": [5], "stage_names": ["stem", *(f"stage{i}" for i in range(1, 6))]}
    spec = spec_of(tmp_path, DINOV2 | stages)
    config = spec.build(Sizes(**spec.sizes({"L": 7}))).config

    assert (["stage7"], [7]) == (config.out_features, config.out_indices)


def test_layers_that_the_library_does_not_build_are_mentioned(tmp_path: Path) -> None:
    """Layers that predict more than one token are in the published size alone; the window's number of layers is a setting of the others."""
    predicting = spec_of(tmp_path, LLAMA | {"num_nextn_predict_layers": 2, "max_window_layers": 3, "num_hidden_layers": 4})

    assert [note for note in predicting.notes if "layers" in note] == [
        "the file has num_nextn_predict_layers = 2, but LlamaForCausalLM of the library builds no such layers: published sizes may include"
        " them"
    ]


PARAKEET = {
    "model_type": "parakeet_ctc",
    "architectures": ["ParakeetForCTC"],
    "vocab_size": 97,
    "encoder_config": {
        "model_type": "parakeet_encoder",
        "hidden_size": 48,
        "num_attention_heads": 6,
        "num_hidden_layers": 5,
        "intermediate_size": 80,
        "num_mel_bins": 16,
        "subsampling_conv_channels": 8,
        "max_position_embeddings": 64,
    },
}


def test_the_depth_of_the_only_part_that_has_one_is_a_dimension(tmp_path: Path) -> None:
    """What recognizes speech is an encoder, described in a config of its own, and a head."""
    spec = spec_of(tmp_path, PARAKEET)

    assert (Dim(5, "layers (encoder)"), ("encoder_L",)) == (spec.dims["encoder_L"], spec.trip_counts)
    assert "the sizes of images and audio of encoder_config are numbers here" in spec.notes


@pytest.mark.slow
def test_closed_forms_have_the_depth_of_a_part(tmp_path: Path) -> None:
    """The width of a head is inferred to be even, and nothing is bounded."""
    derivation = calc.derive(spec_of(tmp_path, PARAKEET), cache=False, mode="infer")

    assert "encoder_L" in {str(symbol) for symbol in derivation["parameters"].expr.free_symbols}
    assert {"N": None, "encoder_h": None} == {d.name: d.at_most for d in derivation.dims if d.name in ("N", "encoder_h")}
    assert [] == failures(calc.check(derivation, encoder_L=2, encoder_d=32, encoder_h=4))

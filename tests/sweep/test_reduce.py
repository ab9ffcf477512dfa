"""The sweep's small relatives: what is cut down, and what stays as the default has it."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

from calc.models.hf.source import source_of
from tests.sweep.reduce import _few_in_a_row, reduced


def test_five_sliding_layers_and_a_full_one_become_one_and_one() -> None:
    """Three iterations of that, and one of the sliding layers that the default ends with."""
    changes = reduced(source_of("gemma3_text", {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"]}), 0)

    assert changes["layer_types"] == ["sliding_attention", "full_attention"] * 3 + ["sliding_attention"]
    assert changes["num_hidden_layers"] == 7


def test_a_pattern_that_a_class_makes_by_itself_stays() -> None:
    """Two recurrent blocks and one of attention, by the number of the layer: no list says so."""
    changes = reduced(source_of("recurrent_gemma", {"model_type": "recurrent_gemma", "architectures": ["RecurrentGemmaForCausalLM"]}), 0)

    assert changes["num_hidden_layers"] == 2 + 3 * 3


def test_a_pattern_with_a_number_of_its_own_keeps_two_in_a_row() -> None:
    """Residual connections over six layers, which a sliding and a full one do not fill with the first one apart."""
    changes = reduced(source_of("inkling2_text", {"model_type": "inkling2_text", "architectures": ["Inkling2ForCausalLM"]}), 0)

    assert changes["layer_types"][1:] == [*["hybrid_sliding"] * 2, "hybrid"] * 6


def test_as_many_in_a_row_are_of_a_kind_as_may_be() -> None:
    """Others keep their places."""
    kinds = [("a",), ("a",), ("a",), ("b",), ("a",), ("a",)]

    assert _few_in_a_row(1, range(6), kinds) == [0, 3, 4]
    assert _few_in_a_row(2, range(6), kinds) == [0, 1, 3, 4, 5]

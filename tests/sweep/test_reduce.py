"""The sweep's small relatives: what is cut down, and what stays as the default has it."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

from calc.models.hf.source import source_of
from tests.sweep.reduce import _in_twos, reduced


def test_five_sliding_layers_and_a_full_one_become_two_and_one() -> None:
    """Three turns of that, and the two sliding layers that the default ends with."""
    changes = reduced(source_of("gemma3_text", {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"]}), 0)

    assert changes["layer_types"] == [*["sliding_attention"] * 2, "full_attention"] * 3 + ["sliding_attention"] * 2
    assert changes["num_hidden_layers"] == 11


def test_a_pattern_that_a_class_makes_by_itself_stays() -> None:
    """Two recurrent blocks and one of attention, by the number of the layer: no list says so."""
    changes = reduced(source_of("recurrent_gemma", {"model_type": "recurrent_gemma", "architectures": ["RecurrentGemmaForCausalLM"]}), 0)

    assert changes["num_hidden_layers"] == 2 + 3 * 3


def test_no_three_in_a_row_are_of_a_kind() -> None:
    """Others keep their places."""
    assert _in_twos(range(6), [("a",), ("a",), ("a",), ("b",), ("a",), ("a",)]) == [0, 1, 3, 4, 5]

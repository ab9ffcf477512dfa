"""The stated formula of 8-bit optimizer state, against counts written out by hand."""

from __future__ import annotations

import pytest

from calc.errors import BadInputError
from calc.memory.eight_bit import BLOCK_OF_THE_PAPER, SOURCE, EightBit
from calc.symbolic.algebra import evaluate_text


@pytest.mark.parametrize(
    ("optimizer", "elements", "expected"),
    [
        (EightBit(), 4096, 2 * (4096 + 4 * 16)),
        (EightBit(), 4097, 2 * (4097 + 4 * 17)),  # a block that is not full has a maximum too
        (EightBit(states=1), 768 * 3072, 2359296 + 4 * 9216),
        (EightBit(block=BLOCK_OF_THE_PAPER), 768 * 3072, 2 * (2359296 + 4 * 1152)),
        (EightBit(), 4095, 2 * 4 * 4095),  # below 4096 elements the state is fp32
        (EightBit(states=1), 768, 4 * 768),
        (EightBit(fewest=0), 768, 2 * (768 + 4 * 3)),
    ],
)
def test_a_tensor_s_state_is_a_byte_an_element_and_a_maximum_a_block(optimizer: EightBit, elements: int, expected: int) -> None:
    """By hand, and by the formula that is shown."""
    assert expected == optimizer.of_tensor(elements)
    shown = optimizer.text if elements >= optimizer.fewest else optimizer.small
    assert expected == evaluate_text(shown, {"n": elements})


def test_tables_are_shared_by_all_tensors() -> None:
    """Two tables of 256 fp32 numbers for Adam, one for momentum; none where every state is fp32."""
    assert 2 * (8192 + 4 * 32) * 3 + 2 * 1024 == EightBit().of_tensors([8192] * 3)
    assert (8192 + 4 * 32) + 4 * 10 + 1024 == EightBit(states=1).of_tensors([8192, 10])
    assert 8 * 10 == EightBit().of_tensors([10])
    assert 0 == EightBit().of_tensors([])


def test_an_error_in_the_formula_would_be_seen() -> None:
    """The old block, the fp32 bound and the number of states each change the count of GPT-2's largest matrix."""
    counts = [o.of_tensor(50257 * 768) for o in (EightBit(), EightBit(states=1), EightBit(block=2048), EightBit(fewest=1 << 30))]
    assert len(set(counts)) == 4


@pytest.mark.parametrize(("name", "value", "least"), [("states", 0, 1), ("block", 0, 1), ("block", True, 1), ("fewest", -1, 0)])
def test_what_is_no_count_is_refused(name: str, value: int, least: int) -> None:
    """In a line that names it."""
    with pytest.raises(BadInputError, match=rf"^{name} = {value!r} of an 8-bit optimizer is no integer from {least}$"):
        EightBit(**{name: value})


def test_the_source_is_named() -> None:
    """Who measured that training bears it."""
    assert "Block-wise Quantization" in SOURCE
    assert "2110.02861" in SOURCE

"""Amounts add up only with their own kind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.errors import NapkinError, UnitError
from calc.symbolic.algebra import Algebra
from calc.units import Amount, QuantityValue, Unit, bytes_of

COUNTS = st.integers(0, 10**30)


@given(COUNTS, COUNTS, st.sampled_from(Unit))
def test_amounts_of_one_unit_add_and_subtract(a: int, b: int, unit: Unit) -> None:
    """As their counts do, and the unit stays."""
    assert Amount(a, unit) + Amount(b, unit) == Amount(a + b, unit)
    assert Amount(a, unit) - Amount(b, unit) == Amount(a - b, unit)


def test_adding_bytes_to_flops_is_refused_with_both_sides_named() -> None:
    """3 bytes and 5 FLOP have no sum."""
    with pytest.raises(UnitError, match=r"^cannot add FLOP and byte: 5 FLOP with 3 byte$"):
        Amount(3, Unit.BYTE) + Amount(5, Unit.FLOP)


def test_subtracting_elements_from_bytes_is_refused_with_both_sides_named() -> None:
    """Nor have 7 bytes and 2 elements a difference."""
    with pytest.raises(UnitError, match=r"^cannot subtract element and byte: 2 element with 7 byte$"):
        Amount(7, Unit.BYTE) - Amount(2, Unit.ELEMENT)


@pytest.mark.parametrize(("one", "other"), [(a, b) for a in Unit for b in Unit if a is not b])
def test_no_two_units_mix(one: Unit, other: Unit) -> None:
    """Not even where one of them is 0."""
    for zero_or_more in (0, 11):
        with pytest.raises(UnitError, match=rf"^cannot add {other} and {one}: {zero_or_more} {other} with 3 {one}$"):
            Amount(3, one) + Amount(zero_or_more, other)


def test_a_number_without_unit_is_refused() -> None:
    """A bare 5 does not say what it counts."""
    with pytest.raises(UnitError, match=r"^cannot add a bare number and byte: give the number a unit, e\.g\. Amount\(n, Unit\.BYTE\)$"):
        Amount(3, Unit.BYTE) + 5


@given(COUNTS, st.sampled_from([1, 2, 4, 8, 16]))
def test_bytes_are_elements_times_their_size(elements: int, size: int) -> None:
    """The one way from elements to bytes."""
    assert bytes_of(Amount(elements, Unit.ELEMENT), size) == Amount(elements * size, Unit.BYTE)


@pytest.mark.parametrize("unit", [Unit.BYTE, Unit.FLOP])
def test_only_elements_have_a_byte_size(unit: Unit) -> None:
    """Four bytes a byte, or four bytes a FLOP, mean nothing."""
    with pytest.raises(UnitError, match=rf"^only elements have a byte size, not {unit}: 7 {unit}$"):
        bytes_of(Amount(7, unit), 4)


def test_polynomials_are_counts_too() -> None:
    """4 bytes times B*d elements, and 8 more bytes: 4*B*d + 8."""
    algebra = Algebra(["B", "d"])
    amount = bytes_of(Amount(algebra.parse("B*d"), Unit.ELEMENT), 4) + Amount(8, Unit.BYTE)

    assert algebra.text(amount.count) == "4*B*d + 8"
    assert amount.unit is Unit.BYTE


def test_a_unit_error_is_a_refusal() -> None:
    """The command line prints its one line."""
    assert issubclass(UnitError, NapkinError)


def test_values_of_one_unit_add_and_subtract_and_keep_it() -> None:
    """Two parameters' bytes are bytes; ``sum`` begins with a plain 0."""
    three, five = QuantityValue(3, Unit.BYTE), QuantityValue(5, Unit.BYTE)

    assert [repr(value) for value in (three + five, five - three, sum([three, five]))] == ["8 bytes", "2 bytes", "8 bytes"]
    assert {type(value) for value in (three + 5, 5 + three, three - 1, 9 - three, three * five, -three, three // 2)} == {int}


@pytest.mark.parametrize("operator", ["__add__", "__sub__", "__radd__"])
def test_values_of_different_units_have_neither_sum_nor_difference(operator: str) -> None:
    """As amounts have none."""
    verb = "subtract" if operator == "__sub__" else "add"
    with pytest.raises(UnitError, match=rf"^cannot {verb} FLOP and byte: 5 FLOP with 3 bytes$"):
        getattr(QuantityValue(3, Unit.BYTE), operator)(QuantityValue(5, Unit.FLOP))


def test_a_value_in_an_f_string_has_its_unit_unless_a_format_is_given() -> None:
    """As ``str`` writes it; ``:,`` and ``:d`` write digits."""
    value = QuantityValue(1234, Unit.BYTE)

    assert (f"{value}", f"{value:,}", f"{value:d}") == (str(value), "1,234", "1234")
    assert str(value) == "1,234 bytes"

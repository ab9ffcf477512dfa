"""A table of several steps: values, parts and shares by column, equal to counts by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

import calc
from calc.derive.side_by_side import PartRow, QuantityTable, SideBySide, document, side_by_side
from calc.errors import BadInputError
from calc.units import Unit

WIDTHS = ((3, 7), (5, 11))  # d and f of each step


@pytest.fixture(scope="module")
def table() -> SideBySide:
    """An MLP of two widths; B = 13 and K = 2 in both."""
    derivations = [calc.derive(calc.load("mlp"), {"B": 13, "K": 2, "d": d, "f": f}, mode="infer") for d, f in WIDTHS]
    return side_by_side(derivations, ("narrow", "wide"), ("parameters", "flops.forward.matmul", "flops.backward.matmul", "memory.peak"))


def test_parts_and_their_shares_are_those_of_each_step(table: SideBySide) -> None:
    """Weights d·f and f·K, biases f and K; a matmul of m by k by n takes 2·m·k·n."""
    parameters, forward, *_ = table.quantities

    assert parameters.values == tuple(d * f + f + f * 2 + 2 for d, f in WIDTHS)
    assert [(row.part, row.expr, row.values) for row in parameters.parts] == [
        ("0", "d*f + f", (28, 66)), ("2", "f*K + K", (16, 24)),
    ]  # fmt: skip
    assert [row.values for row in forward.parts] == [tuple(2 * 13 * d * f for d, f in WIDTHS), tuple(2 * 13 * f * 2 for _, f in WIDTHS)]
    assert forward.share(forward.parts[0], 1) == Fraction(5, 5 + 2)  # d over d + K
    for quantity in table.quantities:
        for step, value in enumerate(quantity.values):
            assert sum(row.values[step] for row in quantity.parts) == (value or 0)


def test_sizes_are_apart_by_whether_they_differ(table: SideBySide) -> None:
    """The optimizer and all other options are the same."""
    assert (table.same, table.sizes, table.options) == ({"B": 13, "K": 2}, {"d": (3, 5), "f": (7, 11)}, {})


def test_an_unknown_quantity_has_its_reason_and_no_parts(table: SideBySide) -> None:
    """What only forwards has no backward."""
    backward = table.quantities[2]

    assert (backward.values, backward.parts) == ((None, None), ())
    assert backward.unknown == ("mode infer runs no backward",) * 2
    assert document(table)["quantities"]["flops.backward.matmul"]["values"] == [None, None]


def test_models_with_other_modules_have_rows_of_their_own() -> None:
    """A part that a step lacks is 0 there, and has no closed form of all."""
    names = ("linear", "mlp")
    derivations = [calc.derive(calc.load(name), mode="infer") for name in names]
    rows = {row.part: row for row in side_by_side(derivations, names, ("parameters",)).quantities[0].parts}

    assert (rows["0"].values[0], rows["0"].expr) == (0, None)


def test_a_quantity_that_no_step_has_is_refused() -> None:
    derivation = calc.derive(calc.load("linear"), mode="infer")
    with pytest.raises(BadInputError, match=r"^no quantity 'speed': see napkin list quantities$"):
        side_by_side([derivation], ("linear",), ("speed",))


def test_small_parts_are_summed_so_that_nothing_is_left_out() -> None:
    """Of three parts two have room: the largest share in any step, and the sum of the others."""
    rows = (PartRow("a", "a", (1, 2)), PartRow("b", "b", (5, 1)), PartRow("c", "c", (4, 7)))
    parts = QuantityTable("q", "", Unit.BYTE, None, (10, 10), ("", ""), rows).largest(2)

    assert parts == (rows[2], PartRow("2 smaller parts", None, (6, 3)))

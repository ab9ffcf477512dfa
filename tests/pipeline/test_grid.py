"""Sizes as somebody writes them for a sweep: what they mean, and what is refused before a point is made."""

from __future__ import annotations

import pytest

from calc.errors import NapkinError
from calc.pipeline import sweep_grid

WRITTEN = {
    "B=8": ("B", [8]),
    "B=1,2,4": ("B", [1, 2, 4]),
    "T=1024:4096:1024": ("T", [1024, 2048, 3072, 4096]),
    "T=3:6": ("T", [3, 4, 5, 6]),
    "T=1:8:3": ("T", [1, 4, 7]),
    "T=1Ki..8Ki×2": ("T", [1024, 2048, 4096, 8192]),
    "T=1k..30kx3": ("T", [1000, 3000, 9000, 27000]),
    "T=5,1..4*2,10:12": ("T", [5, 1, 2, 4, 10, 11, 12]),
    "V=1e3,1.5k,2M": ("V", [1000, 1500, 2_000_000]),
}


@pytest.mark.parametrize("text", WRITTEN)
def test_sizes_are_read(text: str) -> None:
    """Both ends are meant; k is 1,000 and Ki 1,024."""
    assert WRITTEN[text] == sweep_grid.parsed(text)


FORMS = "write 1,2,4 or 1024:8192:1024 (both ends, and the step) or 1Ki..16Ki×2 (both ends, and the factor)"
MALFORMED = {
    "B": "cannot read 'B': write a dimension and its sizes as NAME=SIZES, e.g. B=1,2,4",
    "=4": "cannot read '=4': write a dimension and its sizes as NAME=SIZES, e.g. B=1,2,4",
    "B=": "cannot read 'B=': write a dimension and its sizes as NAME=SIZES, e.g. B=1,2,4",
    "B=1,,2": f"cannot read '1,,2' as sizes of B: {FORMS}",
    "B=1:2:3:4": f"cannot read '1:2:3:4' as sizes of B: {FORMS}",
    "B=x": f"cannot read 'x' as sizes of B: {FORMS}",
    "B=-4": "B = -4 is not positive: sizes are integers from 1 to 2**63 - 1",
    "B=1..8": f"cannot read '1..8' as sizes of B: {FORMS}",
    "B=0": "B = 0 is not positive: sizes are integers from 1 to 2**63 - 1",
    "B=1.5": "B = 1.5 is not an integer: sizes are integers from 1 to 2**63 - 1",
    "B=9e40": "B is too large (about 10**41): sizes are integers from 1 to 2**63 - 1",
    "B=9:1": "B = 9:1 ends before it begins: give the smaller end first",
    "B=1:5:0": "B = 0 is not positive: sizes are integers from 1 to 2**63 - 1",
    "B=1..8×1": "B: a factor is an integer from 2 on, not 1: write 1Ki..16Ki×2",
    "B=1:9000000000": "B = 1:9000000000 are 9,000,000,000 sizes, more than 10,000,000: give a larger step",
}


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_sizes_are_refused(text: str) -> None:
    """In one line that shows how sizes are written; a range without end is counted, not made."""
    with pytest.raises(NapkinError) as caught:
        sweep_grid.parsed(text)
    assert MALFORMED[text] == str(caught.value)


def test_columns_of_a_table_are_read() -> None:
    """A line of names, then lines of integers; empty lines are none."""
    assert {"B": [1, 4], "T": [1024, 2048]} == sweep_grid.read(["B,T\n", "1,1024\n", "\n", "4, 2048\n"], "points.csv", 10)


NINES = "9" * 40
TABLES = {
    "empty": ([], "points.csv is empty: give a line of names such as B,T, then lines of integers"),
    "names alone": (["B,T\n"], "points.csv has names and no sizes: give a line of integers for each point"),
    "a number for a name": (["1,2\n"], "points.csv line 1: '1' cannot name a dimension: begin with a line of names such as B,T"),
    "a hostile name": (["B,=cmd()\n"], "points.csv line 1: '=cmd()' cannot name a dimension: begin with a line of names such as B,T"),
    "a name twice": (["B,B\n"], "points.csv line 1: B appears twice: give each dimension one column"),
    "a cell too few": (["B,T\n", "1\n"], "points.csv line 2 has 1 cells, and there are 2 names: give one integer for each"),
    "no integer": (["B\n", "1.5\n"], "points.csv line 2: B = '1.5' is not a size: sizes are integers from 1 to 2**63 - 1"),
    "zero": (["B\n", "0\n"], "points.csv line 2: B = 0 is not positive: sizes are integers from 1 to 2**63 - 1"),
    "thousands of digits": (["B\n", "9" * 5000], f"points.csv line 2: B = '{NINES}' is not a size: sizes are integers from 1 to 2**63 - 1"),
    "a quote without end": (["B\n", '"1\n'], "points.csv is not CSV: unexpected end of data"),
    "too many": (["B\n", *["1\n"] * 11], "11 points, more than --most 10: give fewer sizes, or --most 11"),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_malformed_table_is_refused(case: str) -> None:
    """With its line and what was found there."""
    lines, message = TABLES[case]

    with pytest.raises(NapkinError) as caught:
        sweep_grid.read(lines, "points.csv", 10)
    assert message == str(caught.value)

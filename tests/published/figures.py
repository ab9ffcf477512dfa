"""Published figures by row, and how near a number has to come to one."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import sympy as sp

from calc.symbolic.algebra import to_sympy

HERE = Path(__file__).parent
FIGURES: dict[str, dict[str, Any]] = tomllib.loads((HERE / "figures.toml").read_text(encoding="utf-8"))
WAITING: dict[str, dict[str, str]] = tomllib.loads((HERE / "waiting.toml").read_text(encoding="utf-8"))

TESTED: set[str] = set()  # rows that some test of this package is about


def reproduces(*rows: str, slow: bool = False) -> Callable[..., Any]:
    """Makes a test of each of the rows, its citation beside its name."""
    TESTED.update(rows)
    marks = [pytest.mark.slow] if slow else []
    return pytest.mark.parametrize("row", [pytest.param(row, id=f"{row}: {FIGURES[row]['source']}", marks=marks) for row in rows])


def assert_reproduced(row: str, derived: Mapping[str, int | Fraction | float]) -> None:
    """Every figure of the row is among ``derived``, and as near as the row says: equal, where it says nothing."""
    printed = {name: figure for name, figure in FIGURES[row].items() if name != "source"}
    assert set(printed) == set(derived)

    assert [] == [f"{name}: derived {derived[name]}" for name, figure in printed.items() if not _near(Fraction(derived[name]), figure)]


def _near(derived: Fraction, figure: Any) -> bool:
    match figure:
        case {"value": value, "rel": share}:
            return abs(derived - Fraction(value)) <= Fraction(share) * Fraction(value)
        case {"value": value, "abs": distance}:
            return abs(derived - Fraction(str(value))) <= Fraction(str(distance))
    return bool(derived == figure)


def printed(row: str, name: str, **letters: str) -> sp.Expr:
    """An expression as printed, with its letters written as ours."""
    ours = {to_sympy(letter): to_sympy(text) for letter, text in letters.items()}
    return to_sympy(FIGURES[row][name]).subs(ours, simultaneous=True)


def assert_same(printed: sp.Expr, derived: sp.Expr) -> None:
    """Equal at all sizes."""
    assert sp.expand(printed - derived) == 0

"""Expressions as one line of text."""

from __future__ import annotations

import pytest

from calc.symbolic.exact import evaluate_text
from calc.symbolic.tree import parse
from reports.typeset.plain import plain

AT = {"B": 3, "T": 17, "d": 29, "f": 71}


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("768*d*floor((255 + floor(2*f/3))/256)", "768·d·floor((255 + floor((2·f)/3))/256)"),
        ("B*ceiling(T/3)**2", "B·ceiling(T/3)²"),
        ("Mod(d*T, 4) - 2*Min(T, 3*d)", "mod(d·T, 4) − 2·min(T, 3·d)"),
        ("4*B*(T//2)", "4·B·(T // 2)"),
    ],
)
def test_sizes_inside_a_function_are_written_as_outside(text: str, written: str) -> None:
    """And the line still has the value of the expression."""
    assert written == plain(parse(text))

    as_python = written.replace("·", "*").replace("−", "-").replace("²", "**2").replace("mod(", "Mod(").replace("min(", "Min(")
    assert evaluate_text(text, AT) == evaluate_text(as_python, AT)

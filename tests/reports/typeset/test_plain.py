"""Expressions as one line of text."""

from __future__ import annotations

import functools

import pytest

from calc.symbolic.exact import evaluate_text
from calc.symbolic.tree import parse
from reports.typeset.plain import plain

AT = {"B": 3, "T": 17, "d": 29, "f": 71}


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("768*d*floor((255 + floor(2*f/3))/256)", "768·d·ceiling(floor((2·f)/3)/256)"),
        ("d*floor((B - 1 + T)/B)", "d·ceiling(T/B)"),
        ("floor((2*d - 1 + 5*B*T)/(2*d))", "ceiling((5·B·T)/(2·d))"),
        ("floor((T - 1)/2) + floor((254 + T)/256)", "floor((T − 1)/2) + floor((254 + T)/256)"),
        ("B*ceiling(log(2*T, 2))", "B·ceiling(log₂(2·T))"),
        ("B*ceiling(T/3)**2", "B·ceiling(T/3)²"),
        ("Mod(d*T, 4) - 2*Min(T, 3*d)", "mod(d·T, 4) − 2·min(T, 3·d)"),
        ("4*B*(T//2)", "4·B·(T // 2)"),
    ],
)
def test_sizes_inside_a_function_are_written_as_outside(text: str, written: str) -> None:
    """And the line still has the value of the expression."""
    assert written == plain(parse(text))

    signs = {"·": "*", "−": "-", "²": "**2", "mod(": "Mod(", "log₂(2*T)": "log(2*T, 2)", "min(": "Min("}
    as_python = functools.reduce(lambda line, sign: line.replace(sign, signs[sign]), signs, written)
    assert evaluate_text(text, AT) == evaluate_text(as_python, AT)

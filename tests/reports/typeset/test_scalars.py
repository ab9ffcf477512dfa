"""Numbers of scalar expressions: exact where they can be, and with a sign that digits are left out where not."""

from __future__ import annotations

import pytest
import sympy as sp

from reports.typeset.scalars import Latex, Text

X = sp.Symbol("x", real=True)


@pytest.mark.parametrize(
    ("number", "text", "latex"),
    [
        (0.1, "0.1·x", "0.1 x"),
        (0.044715, "0.044715·x", "0.044715 x"),
        (1 / (1 - 0.1), "10·x/9", r"\frac{10 x}{9}"),  # the scale of a dropout of 0.1
        (2 / 3, "2·x/3", r"\frac{2 x}{3}"),
        (0.7978845608028654, "0.7978845608…·x", r"0.7978845608\ldots x"),  # √(2/π)
    ],
)
def test_a_number_is_its_shortest_decimals_or_a_fraction_or_says_that_digits_are_left_out(number: float, text: str, latex: str) -> None:
    """Ten digits of 10/9 alone would be another number."""
    expr = sp.Float(number) * X

    assert text == Text().scalar(expr, {}, False)[0].text
    assert latex == Latex().scalar(expr, {}, False)[0].text


@pytest.mark.parametrize(
    ("name", "latex"),
    [
        ("q", "q"),
        ("q1", "q^{(1)}"),
        ("q_1", "q^{(1)}"),
        ("attn.q_1", r"q^{(1)}_{\mathrm{attn}}"),
        ("self_attn.Y", r"Y_{\mathrm{self\_attn}}"),
    ],
)
def test_the_number_of_a_name_is_raised_and_its_owner_lowered(name: str, latex: str) -> None:
    """An underscore before the number is no subscript: LaTeX has two at one letter for an error."""
    assert Latex().name(name) == latex

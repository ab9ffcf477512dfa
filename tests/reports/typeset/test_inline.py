"""Sums of products are ordinary text with italic letters; what is more than that stays MathML."""

from __future__ import annotations

import pytest

from calc.symbolic import latex, marks
from calc.symbolic import tree as display
from calc.symbolic.expression import Labelled, Name, OverLayers
from reports.typeset import inline


@pytest.mark.parametrize(
    ("expression", "written"),
    [
        ("24*B*T*d*L", "24<i>BTdL</i>"),
        ("12288*d**2*f - 4*T", "12,288<i>d</i><sup>2</sup><i>f</i> −\u00a04<i>T</i>"),
        ("3*kv_lora_rank*d", "3\u202fkv_lora_rank\u202f<i>d</i>"),
        ("M_12 + d1", "<i>M</i><sub>12</sub> +\u00a0<i>d</i><sub>1</sub>"),
        ("11*B*T/2", "<sup>11</sup>⁄<sub>2</sub><i>BT</i>"),
        ("4*(B*T + 2)*d", "4(<i>BT</i>\u00a0+\u00a02)<i>d</i>"),
    ],
)
def test_a_polynomial_is_text(expression: str, written: str) -> None:
    """With a place to break a line between its terms, and none in them."""
    assert written == inline.formula(latex.pieces(display.parse(expression)))


def test_a_sum_over_layers_is_text() -> None:
    tree = OverLayers("l", Name("L"), display.parse("2*d + 1"))

    assert "∑<sub>ℓ=1</sub><sup><i>L</i></sup>(2<i>d</i>\u00a0+\u00a01)" == inline.formula(latex.pieces(tree))


def test_a_tall_formula_stays_mathml() -> None:
    """A quotient of letters has a bar, braces have labels under them."""
    assert "<mfrac>" in inline.formula(latex.pieces(display.parse("B/T")))
    assert "<munder>" in inline.formula(latex.pieces(Labelled(Name("B"), "batch")))


@pytest.mark.parametrize("planted", ["<b>", "<script>", "\\href{x}{y}", "a&lt;b"])
def test_nothing_but_the_letters_of_a_name_becomes_markup(planted: str) -> None:
    """A name has letters, digits and underscores in a formula, whatever it was made of."""
    shown = marks.text((marks.word(planted),))

    assert shown == "".join(c for c in planted if c.isalnum()) or shown == f"<i>{planted[1]}</i>"

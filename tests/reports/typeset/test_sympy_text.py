"""SymPy's expressions as text, with other texts in the place of symbols."""

from __future__ import annotations

import pytest
import sympy as sp

from reports.typeset.sympy_text import IndexText, SizeText, SympyText, Written

X, Y, P, D = sp.Symbol("x", real=True), sp.Symbol("y", real=True), sp.Symbol("p"), sp.Symbol("d")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (-2 * X**3 / (3 * Y), "−2·x^3/(3·y)"),
        (X - Y - 1, "−1 + x − y"),
        (-(X + Y) / 2, "−x/2 − y/2"),
        (1 / sp.sqrt(X + Y), "1/√(x + y)"),
        (X**-Y, "x^(−y)"),
        (sp.Float(1e-5) * X, "1e-05·x"),
        (sp.Max(X, Y) * 2**X, "2^x·Max(x, y)"),
    ],
)
def test_signs_are_those_of_mathematics(expr: sp.Expr, text: str) -> None:
    """A double keeps the hyphen of its exponent."""
    assert SympyText().write(expr) == text


def test_tensors_multiply_element_by_element_and_numbers_multiply() -> None:
    """Whatever function of a tensor the factor is."""
    tensors = SympyText({X: Written("A"), Y: Written("B")}, matrix=True)

    assert tensors.write(2 * D * X * sp.tanh(Y) * (1 - X)) == "2·d·A ⊙ (1 − A) ⊙ tanh(B)"


def test_a_part_in_brackets_is_an_argument_without_further_brackets() -> None:
    """√(a + b), but 2·(a + b) and (a + b)·(a + b)."""
    writer = SympyText({X: Written("(a + b)", is_enclosed=True), Y: Written("(a)·(b)")})

    assert writer.write(sp.sqrt(X) + 2 * X + sp.exp(Y)) == "√(a + b) + 2·(a + b) + exp((a)·(b))"


def test_sizes_have_raised_powers_and_indices_no_gaps() -> None:
    """A sum from its highest power down; in an index, the index comes first."""
    assert SizeText().write(1 + P**2 - D ** (P / 2)) == "-d^(p/2) + p² + 1"
    assert IndexText().after(sp.Symbol("i"), P / 2 - 1) == "i+p/2-1"
    assert IndexText().after(sp.Integer(0), sp.Integer(0)) == "0"

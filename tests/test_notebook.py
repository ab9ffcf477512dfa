"""Results show themselves in a notebook: as tables and formulas, with every name escaped."""

from __future__ import annotations

from dataclasses import replace

import pytest

import calc
from calc.contrast import contrast
from calc.derivation import Derivation

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def result() -> Derivation:
    return calc.derive(calc.load("mlp"), {"B": 2, "d": 3, "f": 5, "K": 7})


def test_a_derivation_is_a_table_of_its_quantities(result: Derivation) -> None:
    """3·5 + 5 + 5·7 + 7 = 62 parameters."""
    shown = result._repr_html_()

    assert shown.count("<tr>") == 1 + len(result)
    assert f"<td>parameters</td><td><code>{result['parameters'].text}</code></td><td>62 element</td>" in shown


def test_a_quantity_is_its_terms_and_a_formula(result: Derivation) -> None:
    """In LaTeX, name and closed form."""
    parameters = result["parameters"]

    assert parameters._repr_latex_() == r"$\displaystyle \mathrm{parameters} = K f + K + d f + f$"
    assert "<td>0.weight</td><td><code>d*f</code></td><td>15</td>" in parameters._repr_html_()


def test_what_is_unknown_has_no_formula_and_says_why(result: Derivation) -> None:
    causal = result["flops.forward.causal"]

    assert causal._repr_latex_() is None
    assert f"unknown: {causal.unknown}" in causal._repr_html_()


def test_a_check_an_answer_and_a_comparison_are_tables(result: Derivation) -> None:
    check = calc.check(result)
    answer = calc.ask("training-time", parameters="70e9", tokens="15e12", gpu="h100-sxm", gpus=1024, mfu=0.5)

    assert f"{check.passed} passed, 0 failed" in check._repr_html_()
    assert "training-time: " in answer._repr_html_()
    assert "143.9" in answer._repr_html_()
    assert "<td>parameters</td><td>62</td><td>62</td><td>0</td>" in contrast(result, result)._repr_html_()


def test_no_name_is_markup(result: Derivation) -> None:
    hostile = replace(result, model=HOSTILE, quantities={"parameters": replace(result["parameters"], meaning=HOSTILE, name=HOSTILE)})

    assert "<script>" not in hostile._repr_html_() + hostile["parameters"]._repr_html_()

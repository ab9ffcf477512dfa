"""A notebook shows results as tables and formulas, with every name escaped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import calc
from calc.derive.compare import compare
from calc.derive.result import Derivation
from calc.notebook import formatters as notebook
from calc.symbolic.latex import latex
from calc.symbolic.tree import parse

HOSTILE = "<script>alert(1)</script>"


def _shown(kind: str, actual: object) -> str | None:
    """What IPython would show: the formatter that is registered for the name of the type."""
    formatters = {"text/html": _Formatter(), "text/latex": _Formatter()}
    notebook.register(formatters)
    shown: str | None = formatters[kind].by_name[type(actual).__module__, type(actual).__qualname__](actual)
    return shown


def _html(actual: object) -> str:
    return str(_shown("text/html", actual))


def _latex(actual: object) -> str | None:
    return _shown("text/latex", actual)


class _Formatter:
    """Takes what IPython's own takes."""

    def __init__(self) -> None:
        self.by_name: dict[tuple[str, str], Callable[[Any], str | None]] = {}

    def for_type_by_name(self, module: str, name: str, shown: Callable[[Any], str | None]) -> None:
        self.by_name[module, name] = shown


@pytest.fixture(scope="module")
def result() -> Derivation:
    return calc.derive(calc.load("mlp"), {"B": 2, "d": 3, "f": 5, "K": 7})


def test_a_derivation_is_a_table_of_its_quantities(result: Derivation) -> None:
    """3·5 + 5 + 5·7 + 7 = 62 parameters."""
    shown = _html(result)

    assert shown.count("<tr>") == 1 + len(result) - 3  # no master weights in fp32, no causal FLOPs without attention
    assert "master_weights" not in shown
    assert r"<td>parameters</td><td>62 elements</td><td>$\displaystyle d\,f +f\,K +f +K$</td>" in shown


def test_a_quantity_is_its_terms_and_a_formula(result: Derivation) -> None:
    """In LaTeX, name and closed form, in the order of the reports."""
    parameters = result["parameters"]

    assert _latex(parameters) == r"$\displaystyle \mathrm{parameters} = d\,f +f\,K +f +K$"
    assert r"<td>0.weight</td><td>15</td><td>$\displaystyle d\,f$</td>" in _html(parameters)


def test_of_a_long_maximum_the_largest_candidate_is_shown(result: Derivation) -> None:
    """A maximum of several lines is no line of a table."""
    peak = result["memory.peak"]
    assert peak.largest_candidate is not None
    assert len(peak.text or "") > 240
    shown = latex(parse(peak.largest_candidate.expr))

    among = rf"\quad\text{{(the largest of {len(peak.candidates)} peak candidates here)}}"
    assert f"<td>$\\displaystyle {shown}{among}$</td>" in _html(peak)


def test_a_long_closed_form_is_clipped_text(result: Derivation) -> None:
    """240 characters of it are shown as code."""
    text = " + ".join(f"{number}*d**{number}" for number in range(2, 40))
    parameters = replace(result["parameters"], text=text)

    assert f"<code>{text[:240]} …</code>" in _html(parameters)


def test_what_is_unknown_has_no_formula_and_says_why(result: Derivation) -> None:
    causal = result["flops.forward.causal"]

    assert _latex(causal) is None
    assert f"unknown: {causal.unknown}" in _html(causal)


def test_a_check_an_answer_and_a_comparison_are_tables(result: Derivation) -> None:
    check = calc.check(result)
    answer = calc.ask("training-time", parameters="70e9", tokens="15e12", gpu="h100-sxm", gpus=1024, mfu=0.5)

    assert f"{check.passed} passed, 0 failed" in _html(check)
    assert "training-time: " in _html(answer)
    assert "143.9" in _html(answer)
    assert "<td>parameters</td><td>62</td><td>62</td><td>0</td>" in _html(compare(result, result))
    assert f"<caption>mlp → mlp: B {result.sizes['B']} → 97</caption>" in _html(compare(result, result.at_sizes({"B": 97})))


def test_no_name_is_markup(result: Derivation) -> None:
    hostile = replace(result, model=HOSTILE, quantities={"parameters": replace(result["parameters"], meaning=HOSTILE, name=HOSTILE)})

    assert "<script>" not in _html(hostile) + _html(hostile["parameters"])


def test_ipython_is_told_when_calc_is_imported_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh import finds IPython's shell; ``%load_ext calc`` tells one that came later."""
    formatters = {"text/html": _Formatter(), "text/latex": _Formatter()}
    shell = SimpleNamespace(display_formatter=SimpleNamespace(formatters=formatters))
    calc.load_ipython_extension(shell)

    assert ("calc.derive.result", "Derivation") in formatters["text/html"].by_name
    assert [("calc.derive.result", "Quantity")] == [*formatters["text/latex"].by_name]

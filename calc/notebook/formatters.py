"""How IPython shows results in a notebook: tables in plain HTML, closed forms in LaTeX. Names are escaped, and nothing in them runs.

Results know nothing of it: ``register`` tells IPython, by the names of their types, what to call when one of them is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from calc.symbolic import tree
from calc.symbolic.assignments import sizes_text
from calc.symbolic.latex import latex
from calc.units import QuantityValue

if TYPE_CHECKING:
    from calc.capacity.questions.answer import Answer
    from calc.derive.compare import Comparison
    from calc.derive.result import Derivation, Quantity
    from calc.pipeline.check import Report

_LONGEST = 240  # characters of a closed form in a table
_LONGEST_LATEX = 4000


def register(formatters: Mapping[str, Any]) -> None:
    """Tell IPython's ``formatters``, by MIME type, how each type of result is shown. None of the types is imported for it."""
    tables = {
        "calc.derive.result.Derivation": derivation,
        "calc.derive.result.Quantity": quantity,
        "calc.pipeline.check.Report": report,
        "calc.derive.compare.Comparison": comparison,
        "calc.capacity.questions.answer.Answer": answer,
    }
    for name, shown in tables.items():
        formatters["text/html"].for_type_by_name(*name.rsplit(".", 1), shown)
    formatters["text/latex"].for_type_by_name("calc.derive.result", "Quantity", quantity_latex)


def derivation(derivation: Derivation) -> str:
    """Every quantity of its step with its closed form and its value."""
    from calc.derive.quantities import applies

    shown = [derivation[name] for name in derivation if applies(name, derivation[name].unknown, derivation.options)]
    rows = [(quantity.name, _value(quantity), _closed_form(quantity)) for quantity in shown]
    sizes = sizes_text(derivation.sizes)
    return table(f"{derivation.model}: {sizes}", ("Quantity", "Value", "Closed form"), rows, code=2)


def quantity(quantity: Quantity) -> str:
    """Its terms and their sum."""
    rows = [(term.module_path, f"{term.value:,}", _formula(term.expr), term.because) for term in quantity.terms]
    total = ("all", _value(quantity), _closed_form(quantity), "")
    return table(f"{quantity.name}: {quantity.meaning}", ("Module path", "Value", "Closed form", "What"), [*rows, total], code=2)


def quantity_latex(quantity: Quantity) -> str | None:
    """``name = closed form``; ``None`` where it is unknown, or too long to be read."""
    if quantity.text is None or len(quantity.text) > _LONGEST_LATEX:
        return None
    name = quantity.name.replace("_", r"\_")
    return rf"$\displaystyle \mathrm{{{name}}} = {latex(tree.parse(quantity.text))}$"


def report(report: Report) -> str:
    """The verdicts of a check."""
    rows = [(v.quantity, _number(v.derived), _number(v.measured), v.verdict, v.because or v.instrument or "") for v in report.verdicts]
    sizes = sizes_text(report.sizes)
    title = f"{report.model} at {sizes}: {report.passed} passed, {report.failed} failed, {report.not_measured} not measured"
    return table(title, ("Quantity", "Derived", "Measured", "Verdict", "How"), rows)


def answer(answer: Answer) -> str:
    """The answer with the way to it."""
    lines = answer.calculation.steps
    steps = [(x.symbol, x.expr, f"{float(x.value):,.6g} {x.unit}".strip(), x.because) for x in lines]
    title = f"{answer.question}: {answer.key} = {float(answer.value):,.6g} {answer.unit}".strip()
    return table(title, ("Step", "Equals", "Value", "Because"), steps, code=1)


def comparison(changes: Comparison) -> str:
    """Both values of each quantity, and their difference."""
    rows = [
        (c.quantity, _number(c.left), _number(c.right), _number(c.value), _formula(c.expr) if c.expr else _clipped(c.note))
        for c in changes.changes
    ]
    return table(changes.title, ("Quantity", "Left", "Right", "Difference", "In closed form"), rows)


class NotebookFormula(str):
    """A formula in LaTeX, which notebooks typeset between dollars; any other text is shown as it is."""

    __slots__ = ()


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], code: int | None = None) -> str:
    """An HTML table; column ``code`` is shown as code where it is no LaTeX. Every text is escaped."""
    heads = "".join(f"<th>{escape(each)}</th>" for each in head)
    body = "".join(f"<tr>{''.join(_cell(text, i == code) for i, text in enumerate(row))}</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str, code: bool) -> str:
    if isinstance(text, NotebookFormula):
        return rf"<td>$\displaystyle {escape(text)}$</td>"
    return f"<td><code>{escape(text)}</code></td>" if code else f"<td>{escape(text)}</td>"


def _closed_form(quantity: Quantity) -> str:
    """A closed form; of a peak with several candidates the largest at these sizes, and how many there are."""
    if quantity.text is None:
        return quantity.reason
    candidate = quantity.largest_candidate
    if candidate is None or len(quantity.text) <= _LONGEST:
        return _formula(quantity.text)
    shown = _formula(candidate.expr)
    among = f"the largest of {len(quantity.candidates)} peak candidates here"
    return NotebookFormula(rf"{shown}\quad\text{{({among})}}") if isinstance(shown, NotebookFormula) else f"{shown} ({among})"


def _formula(text: str) -> str:
    """A closed form in LaTeX; as clipped text where it is too long for a line."""
    if len(text) > _LONGEST:
        return _clipped(text)
    return NotebookFormula(latex(tree.parse(text)))


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def _value(quantity: Quantity) -> str:
    return "unknown" if quantity.value is None else repr(QuantityValue(quantity.value, quantity.unit))


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"

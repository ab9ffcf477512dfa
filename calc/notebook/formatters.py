"""How IPython shows results in a notebook: tables in plain HTML, closed forms in LaTeX. Names are escaped, and nothing in them runs.

Results know nothing of it: ``register`` tells IPython, by the names of their types, what to call when one of them is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calc.capacity.questions.answer import Answer
    from calc.derive.compare import Contrast
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
        "calc.derive.compare.Contrast": contrast,
        "calc.capacity.questions.answer.Answer": answer,
    }
    for name, shown in tables.items():
        formatters["text/html"].for_type_by_name(*name.rsplit(".", 1), shown)
    formatters["text/latex"].for_type_by_name("calc.derive.result", "Quantity", quantity_latex)


def derivation(found: Derivation) -> str:
    """Every quantity with its closed form and its value."""
    rows = [(name, _clipped(found[name].text or found[name].reason), _value(found[name])) for name in found]
    sizes = ", ".join(f"{name} = {size:,}" for name, size in found.sizes.items())
    return table(f"{found.model}: {sizes}", ("Quantity", "Closed form", "Value"), rows, code=1)


def quantity(found: Quantity) -> str:
    """Its terms and their sum."""
    rows = [(term.site, _clipped(term.expr), f"{term.value:,}", term.because) for term in found.terms]
    total = ("all", _clipped(found.text or found.reason), _value(found), "")
    return table(f"{found.name}: {found.meaning}", ("Site", "Closed form", "Value", "What"), [*rows, total], code=1)


def quantity_latex(found: Quantity) -> str | None:
    """``name = closed form``; ``None`` where it is unknown, or too long to be read."""
    if found.text is None or len(found.text) > _LONGEST_LATEX:
        return None
    import sympy as sp

    name = found.name.replace("_", r"\_")
    return rf"$\displaystyle \mathrm{{{name}}} = {sp.latex(found.expr)}$"


def report(found: Report) -> str:
    """The verdicts of a check."""
    rows = [(v.quantity, _number(v.derived), _number(v.measured), v.verdict, v.because or v.instrument or "") for v in found.verdicts]
    sizes = ", ".join(f"{name} = {size:,}" for name, size in found.sizes.items())
    title = f"{found.model} at {sizes}: {found.passed} passed, {found.failed} failed, {found.not_measured} not measured"
    return table(title, ("Quantity", "Derived", "Measured", "Verdict", "How"), rows)


def answer(found: Answer) -> str:
    """The answer with the way to it."""
    lines = found.reckoning.lines
    steps = [(x.letter, x.expr, f"{float(x.value):,.6g} {x.unit}".strip(), x.because) for x in lines]
    title = f"{found.question}: {found.key} = {float(found.value):,.6g} {found.unit}".strip()
    return table(title, ("Step", "Equals", "Value", "Because"), steps, code=1)


def contrast(found: Contrast) -> str:
    """Both values of each quantity, and their difference."""
    rows = [(c.quantity, _number(c.left), _number(c.right), _number(c.value), _clipped(c.expr or c.note)) for c in found.changes]
    return table(f"{found.left} → {found.right}", ("Quantity", "Left", "Right", "Difference", "In closed form"), rows, code=4)


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], code: int | None = None) -> str:
    """An HTML table; column ``code`` is shown as code. Every text is escaped."""
    heads = "".join(f"<th>{escape(each)}</th>" for each in head)
    body = "".join(f"<tr>{''.join(_cell(text, i == code) for i, text in enumerate(row))}</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str, code: bool) -> str:
    return f"<td><code>{escape(text)}</code></td>" if code else f"<td>{escape(text)}</td>"


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def _value(found: Quantity) -> str:
    return "unknown" if found.value is None else f"{found.value:,} {found.unit}"


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"

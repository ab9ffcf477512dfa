"""The answers of a stored form as ``napkin derive`` shows those of a fresh derivation: the same words, without its machinery.

How long this takes is the time of the command, so that nothing is imported here that is not needed for a table of integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from calc.derive.quantities import absent
from calc.graph.exchanges import headlines
from calc.options import TRAIN
from calc.symbolic.exact import evaluate_text
from calc.units import Unit
from reports.page.conventions import STEPS
from reports.typeset import numbers
from reports.typeset.escape import visible
from reports.typeset.folded import folded, grid, table
from reports.typeset.wording import ANSWERS, declared, headline, in_case, largest_of, place, remark, several, sizes_text, stated

if TYPE_CHECKING:
    from calc.pipeline.precomputed import Stored, StoredQuantity
    from calc.symbolic.polynomials import Polynomial, Table

_POWERS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def lines(form: Stored, given: Mapping[str, int], width: int) -> Iterator[str]:
    """The answers at the given sizes, in lines of at most ``width`` characters where no number is longer."""
    sizes = form.sizes(given)
    names = sorted((name for name in form.quantities if not absent(name, form.options)), key=place)
    values = {name: None if form.quantity(name).unknown else form.quantity(name).value(sizes) for name in names}
    first = headline({name: why for name, (_, why) in form.specialized.items()}, sizes)
    yield from folded(visible(first), width) if first else ()
    yield from folded(visible(_heading(form)), width)
    yield from folded(visible(sizes_text(sizes)), width)
    for sentence in headlines(form.assumptions):
        yield from folded(visible(sentence), width)
    yield ""
    yield from grid([_answer(question, form.quantity(name), values[name]) for name, question in ANSWERS], width)
    yield ""
    rows = [_quantity(form.quantity(name), values[name], sizes) for name in names]
    yield from table(("Quantity", "Value", "Closed form"), rows, width, numbers={1})
    for words in _remarks(form, sizes):
        yield from folded(visible(words), width)
    if form.thumbs:
        yield ""
        heads = ("Rule of thumb", "Says", "Exact", "Off by", "It stands for")
        yield from table(heads, [_thumb(thumb, values, sizes) for thumb in form.thumbs], width, numbers={1, 2, 3})


def _heading(form: Stored) -> str:
    options = ", ".join(f"{name} {value}" for name, value in form.options.items())
    return f"{form.model}, {STEPS[form.options.get('mode', TRAIN)]}: {options}"


def _answer(question: str, quantity: StoredQuantity, value: int | None) -> tuple[str, str]:
    if value is None:
        return question, f"unknown: {visible(quantity.unknown)}"
    found = numbers.amount(value, quantity.definition.unit)
    return question, "  ".join((found.text, *found.readings))


def _quantity(quantity: StoredQuantity, value: int | None, sizes: Mapping[str, int]) -> tuple[str, str, str]:
    if value is None:
        return quantity.name, "unknown", visible(quantity.unknown)
    form, case = quantity.form, quantity.form.case_at(sizes)
    note = ""
    if case is not None and quantity.name in case.differing:
        quantity, form, note = case.form.quantity(quantity.name), case.form, f"where {in_case(case.equal)}"
    point = form.point(sizes)
    here = next(p for p in quantity.polynomials if point(p) == value)
    if len(quantity.moments) > 1:
        at = next(m.at for m in quantity.moments if m.polynomial is here)
        note = "; ".join(filter(None, (largest_of(len(quantity.moments), at), note)))
    written = closed_form(form.table, here)
    return quantity.name, numbers.amount(value, quantity.definition.unit).text, f"{written}  ({visible(note)})" if note else written


def closed_form(of: Table, polynomial: Polynomial) -> str:
    """A polynomial as a reader sees it: ``12·L·d² + (3·T·k)/2 − 1``."""
    written = ""
    for number, numerator in polynomial.terms:
        term = _term(of, number, Fraction(abs(numerator), polynomial.over))
        sign = "−" if numerator < 0 else "+" if written else ""
        written += f" {sign} {term}" if written else f"{sign}{term}"
    return written or "0"


def _term(of: Table, number: int, coefficient: Fraction) -> str:
    factors = [_power(of.names[i], power) for i, power in of.monomials[number]]
    if coefficient.numerator != 1 or not factors:
        factors.insert(0, f"{coefficient.numerator:,}")
    product = "·".join(factors)
    if coefficient.denominator == 1:
        return product
    return f"({product})/{coefficient.denominator:,}" if len(factors) > 1 else f"{product}/{coefficient.denominator:,}"


def _power(name: str, power: int) -> str:
    base = name if name.isidentifier() or name.endswith(")") else f"({name})"
    return base if power == 1 else f"{base}{str(power).translate(_POWERS)}"


def _remarks(form: Stored, sizes: Mapping[str, int]) -> Iterator[str]:
    calls = form.calls_at(sizes)
    of_kind = {kind: operators for kind, operators, _ in calls}
    several_calls = f"{several(sum(of_kind.values()), 'operator')}, {several(sum(count for _, _, count in calls), 'call')}"
    kinds = f"{of_kind.get('counted', 0)} counted, {of_kind.get('free', 0)} free, 0 refused"
    yield f"coverage: {several_calls}: {kinds}. Not counted: 0 operators, 0 calls, 0 FLOP"
    for assumption in stated((*declared(form.dims, form.assumptions), *form.assumptions)):
        yield f"assumes {assumption.words}: {assumption.because}"
    for note in form.notes:
        yield f"note: {remark(note)}"


def _thumb(thumb: Mapping[str, object], values: Mapping[str, int | None], sizes: Mapping[str, int]) -> Sequence[str]:
    """A rule of thumb, and the sum of quantities that it stands for."""
    unit, size, exact = Unit(thumb["unit"]), thumb["size"], thumb["exact"]
    assert isinstance(size, int)
    assert isinstance(exact, list)
    says = int(evaluate_text(str(thumb["expr"]).replace("{N}", str(values["parameters"])), sizes))
    truth = sum(sign * (values[name] or 0) for sign, name in exact) // size
    off = numbers.percent(Fraction(says, truth) - 1, signed=True) if truth else "unknown"
    return str(thumb["name"]), numbers.amount(says, unit).text, numbers.amount(truth, unit).text, off, str(thumb["stands_for"])

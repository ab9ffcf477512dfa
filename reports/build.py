"""Derivation, checks and comparisons → ``Page``. Everything that a report says is decided and written here, once."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from calc import branches, display, sensitivity
from calc.algebra import evaluate_text
from calc.derivation import Candidate, Derivation, Quantity, Step
from calc.display import Display, Labelled, Maximum, Sum
from calc.errors import BadInputError
from calc.graph import Assumption, DimRecord
from calc.textbook import Comparison, Within
from calc.units import Unit
from reports import expressions, latex, numbers, plain
from reports.conventions import CONVENTIONS, NOT_COVERED, OTHERWISE, REFUSED
from reports.escape import slug
from reports.numbers import NBSP, Amount
from reports.page import (
    Answer,
    AssumptionRow,
    Badge,
    CandidateRow,
    Chapter,
    CheckRow,
    Command,
    CrossoverView,
    DifferenceRow,
    DoublingTable,
    Formula,
    LedgerRow,
    Link,
    Page,
    RangeRow,
    RuleRow,
    StepView,
    SymbolRow,
    Tally,
    TermRow,
    Thumb,
    Tile,
)

ANSWERS = (
    ("parameters", "How many parameters?"),
    ("memory.peak", "How much memory at the peak?"),
    ("flops.step.total", "How many FLOPs per step?"),
)

SECTIONS = {
    "answers": "Questions and answers",
    "assumptions": "Assumptions",
    "symbols": "Symbols",
    "derivation": "Derivation",
    "sensitivity": "Sensitivity",
    "textbook": "Rules of thumb",
    "checks": "Checks",
    "not-covered": "Not covered",
    "rules": "Rules used",
    "provenance": "Provenance",
    "commands": "Commands",
}

# A derivation reads from what is stored to what is done.
_ORDER = ("parameters", "activations", "gradients", "optimizer_state", "checkpoint", "memory", "flops", "bytes_moved")

_BADGES = {
    "exact": Badge("✓", "measured, equal", "good"),
    "within": Badge("≈", "measured, within tolerance", "good"),
    "proved": Badge("∎", "proved, not measured", "proved"),
    "failed": Badge("×", "failed", "bad"),
    "not measured": Badge("○", "not measured", "open"),
}
_UNCHECKED = Badge("○", "not measured", "open")
_STEP_BADGES = {"symbolic": Badge("∎", "proved symbolically", "proved"), "random points": Badge("∴", "checked at random points", "open")}


def build(
    derivation: Derivation,
    checks: Any = None,
    comparisons: Sequence[Comparison] = (),
    commands: Sequence[Command] = (),
    given: Mapping[str, int] | None = None,
    unchecked: str = "",
) -> Page:
    """The page of a derivation.

    ``given`` are the sizes that somebody chose; the others are the model's own. ``unchecked`` says why there are no checks.
    """
    names = sorted(derivation, key=_place)
    verdicts = {v.quantity: v for v in checks.verdicts} if checks is not None else {}
    sizes, anchors = _known_sizes(derivation), _Anchors()
    notes = list(dict.fromkeys(_check_note(v) for v in verdicts.values()))
    chapters = tuple(_chapter(i, derivation[name], derivation, verdicts, sizes, anchors) for i, name in enumerate(names, 1))
    return Page(
        model=derivation.model,
        subtitle=_subtitle(derivation.options),
        sizes=_sizes(derivation.sizes),
        date=_date(),
        tiles=tuple(_tile(name, question, derivation, verdicts) for name, question in ANSWERS),
        tally=_tally(checks, unchecked),
        answers=tuple(_answer(c) for c in chapters),
        assumptions=tuple(_assumption(a) for a in (*_declared(derivation), *derivation.assumptions)),
        conventions=tuple(AssumptionRow(None, *convention) for convention in CONVENTIONS),
        notes=tuple(_sentence(note) for note in derivation.notes),
        symbols=_symbols(derivation, given or {}, sizes),
        chapters=chapters,
        steps=numbers.integer(sum(len(c.steps) for c in chapters)),
        dominant=tuple(_dominant(derivation)),
        doublings=_doublings(derivation),
        crossover=_crossover(derivation),
        thumbs=tuple(_thumb(c, derivation) for c in comparisons),
        checks=tuple(_check(v, notes) for v in verdicts.values()),
        check_notes=tuple(notes),
        certificates=tuple(_sizes(c.sizes) + f": {numbers.integer(c.quantities)} quantities equal" for c in derivation.certificates),
        not_covered=tuple(_not_covered(derivation, verdicts)),
        rules=_rules(derivation),
        ledger=_ledger(derivation),
        ledger_title=_several(len(derivation.coverage), "operator") + ", each counted or stated free",
        provenance=tuple(_provenance(derivation, checks)),
        commands=tuple(commands),
        sections=SECTIONS,
    )


# -- head --------------------------------------------------------------------------------------------------------------


def _subtitle(options: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items())


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}{NBSP}={NBSP}{numbers.integer(value)}" for name, value in sizes.items())


def _date() -> str:
    """Today, or the date that SOURCE_DATE_EPOCH fixes so that two runs give equal bytes."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    if not fixed:
        return datetime.datetime.now(datetime.UTC).date().isoformat()
    try:
        return datetime.datetime.fromtimestamp(int(fixed), datetime.UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        raise BadInputError(f"SOURCE_DATE_EPOCH = {fixed[:40]!r} is not a time: give seconds since 1970 as an integer") from None


def _tile(name: str, question: str, derivation: Derivation, verdicts: Mapping[str, Any]) -> Tile:
    quantity = derivation.quantities.get(name)
    if quantity is None or quantity.value is None:
        reason = quantity.unknown if quantity is not None else "this derivation does not state it"
        return Tile(question, None, reason, _UNCHECKED, _chapter_anchor(name) if quantity is not None else "answers")
    return Tile(question, numbers.amount(quantity.value, quantity.unit), "", _badge(name, verdicts), _chapter_anchor(name))


def _tally(checks: Any, unchecked: str) -> Tally:
    if checks is None:
        return Tally(False, unchecked, (), "open", "")
    count = {kind: sum(v.verdict == kind for v in checks.verdicts) for kind in _BADGES}
    # Only what was measured counts as passed; what was proved without a measurement stands beside it.
    counts = (
        (numbers.integer(count["exact"] + count["within"]), "passed"),
        (numbers.integer(count["proved"]), "proved, not measured"),
        (numbers.integer(count["failed"]), "failed"),
        (numbers.integer(count["not measured"]), "not measured"),
    )
    return Tally(True, "", counts, "bad" if count["failed"] else "good", _sizes(checks.sizes))


def _badge(name: str, verdicts: Mapping[str, Any]) -> Badge:
    return _BADGES[verdicts[name].verdict] if name in verdicts else _UNCHECKED


def _answer(chapter: Chapter) -> Answer:
    formula = chapter.here or chapter.formula
    note = "; ".join(words for words in (chapter.note, f"where {chapter.where}" if chapter.where else "") if words)
    return Answer(chapter.quantity, chapter.meaning, chapter.anchor, formula, note, chapter.value, chapter.unknown, chapter.badge)


# -- assumptions and symbols -------------------------------------------------------------------------------------------


def _declared(derivation: Derivation) -> Iterator[Assumption]:
    """Conditions that the model's dimensions declare, unless the record states them too."""
    stated = {a.expr for a in derivation.assumptions}
    for dim in derivation.dims:
        conditions = []
        if dim.multiple_of is not None:
            conditions.append((f"Eq(Mod({dim.name}, {dim.multiple_of}), 0)", f"{dim.name} is split into equal parts"))
        if dim.at_most is not None:
            conditions.append((f"{dim.name} <= {dim.at_most}", f"the model is made for at most {dim.at_most}"))
        for expr, because in conditions:
            if expr not in stated:
                yield Assumption(expr, because)


def _assumption(assumption: Assumption) -> AssumptionRow:
    written = latex.relation(assumption.expr)
    divides = re.fullmatch(r"Eq\(Mod\((\w+), (\w+)\), 0\)", assumption.expr)
    words = f"{divides.group(2)} divides {divides.group(1)}" if divides else assumption.expr.replace("<=", "≤").replace(">=", "≥")
    formula = Formula((written,), (words,), latex.width(written) > latex.WIDE) if written else None
    effect = REFUSED if any(sign in assumption.expr for sign in ("Mod(", "%", "<=")) else OTHERWISE
    return AssumptionRow(formula, "" if formula else assumption.expr, assumption.because, effect)


def _symbols(derivation: Derivation, given: Mapping[str, int], sizes: Mapping[str, int]) -> tuple[SymbolRow, ...]:
    """A row for each symbol that some formula of the report shows, and for no other."""
    used = set().union(*(expressions.names(tree) for tree in _trees(derivation)))
    rows = [_symbol(dim, given) for dim in derivation.dims if dim.name in used]
    known = {dim.name for dim in derivation.dims}
    rows += [_undeclared(name, sizes) for name in sorted(used - known)]
    if any(_is_maximum(step) for step in derivation.steps):
        meaning = "live bytes at the first candidate moment, and so on"
        rows.append(SymbolRow(_formula(_moment(1)), meaning, "byte", "in its step", "derived"))
    if any(expressions.has_layers(tree) for step in derivation.steps for tree in (step.before, step.after)):
        rows.append(SymbolRow(Formula((r"\ell",), ("ℓ",)), "which layer a sum has come to", "count", "1, 2, …", "index of a sum"))
    return tuple(rows)


def _trees(derivation: Derivation) -> Iterator[Display]:
    for step in derivation.steps:
        yield from (step.before, step.after)
    for name in derivation:
        quantity = derivation[name]
        if quantity.text is not None:
            yield expressions.parse(branches.at_hand(quantity.text, derivation.sizes))


def _symbol(dim: DimRecord, given: Mapping[str, int]) -> SymbolRow:
    if dim.name in given:
        source = "given"
    elif dim.expr is not None:
        source = f"{'always' if dim.tied else 'by default'} {dim.expr.replace('*', '·')}"
    else:
        source = "the model's default"
    return SymbolRow(_formula(display.Name(dim.name)), dim.meaning, "count", numbers.integer(dim.value), source)


def _undeclared(name: str, sizes: Mapping[str, int]) -> SymbolRow:
    value = sizes.get(name)
    whole, _, part = name.partition("_per_")
    return SymbolRow(_formula(display.Name(name)), f"{whole} divided by {part}", "count", _or_unknown(value), "named while tracing")


# -- derivation --------------------------------------------------------------------------------------------------------


def _known_sizes(derivation: Derivation) -> dict[str, int]:
    """Sizes by name, with those quotients that a trace names itself (``d_per_h`` is d/h)."""
    sizes = dict(derivation.sizes)
    for tree in _trees(derivation):
        for name in expressions.names(tree) - set(sizes):
            whole, _, part = name.partition("_per_")
            divisor = int(part) if part.isdigit() else sizes.get(part, 0)
            if whole in sizes and divisor and sizes[whole] % divisor == 0:
                sizes[name] = sizes[whole] // divisor
    return sizes


class _Anchors:
    """Ids made of names: legal, and each given once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def __call__(self, name: str) -> str:
        base = slug(name) or "step"
        anchor, count = base, 2
        while anchor in self._taken:
            anchor, count = f"{base}-{count}", count + 1
        self._taken.add(anchor)
        return anchor


def _chapter_anchor(name: str) -> str:
    return f"q-{slug(name)}"


def _place(name: str) -> tuple[int, int]:
    for place, prefix in enumerate(_ORDER):
        if name == prefix or name.startswith(f"{prefix}."):
            return place, 0
    return len(_ORDER), 0


def _chapter(
    number: int,
    quantity: Quantity,
    derivation: Derivation,
    verdicts: Mapping[str, Any],
    sizes: Mapping[str, int],
    anchors: _Anchors,
) -> Chapter:
    steps = [s for s in derivation.steps if s.quantity == quantity.name]
    moments = _moments(steps)
    views = tuple(
        _step(f"{number}.{i}", s, quantity.unit, sizes, moments, anchors, last=s is steps[-1]) for i, s in enumerate(steps, 1)
    )
    value = None if quantity.value is None else numbers.amount(quantity.value, quantity.unit)
    return Chapter(
        number=str(number),
        anchor=_chapter_anchor(quantity.name),
        quantity=quantity.name,
        meaning=quantity.meaning,
        formula=_closed_form(quantity, steps, moments, sizes),
        here=_largest(quantity, sizes),
        note=_largest_note(quantity),
        where=_where(quantity, sizes),
        otherwise=_otherwise(quantity, sizes),
        value=value,
        unknown=quantity.unknown,
        badge=_badge(quantity.name, verdicts),
        compared=_compared(quantity, verdicts),
        steps=views,
        terms=tuple(_term(t.site, t.expr, t.value, quantity.value, t.because, sizes) for t in quantity.terms),
        total=value.text if value is not None else "unknown",
        candidates=tuple(_candidate(c, quantity, steps, views, moments, sizes) for c in quantity.candidates),
        titles={
            "steps": _several(len(steps), "step"),
            "terms": f"{_several(len(quantity.terms), 'term')} by site",
            "table": f"{quantity.name} by site",
            "candidates": f"{_several(len(quantity.candidates), 'moment')} at which memory can peak",
        },
    )


def _compared(quantity: Quantity, verdicts: Mapping[str, Any]) -> str:
    """The two numbers of a check, which ran at sizes of its own."""
    verdict = verdicts.get(quantity.name)
    if verdict is None or verdict.derived is None or verdict.measured is None:
        return ""
    derived, measured = (numbers.amount(n, quantity.unit).text for n in (verdict.derived, verdict.measured))
    return f"at the sizes of the check: derived {derived}, measured {measured}"


def _several(count: int, noun: str) -> str:
    return f"{numbers.integer(count)} {noun}{'s' if count != 1 else ''}"


def _where(quantity: Quantity, sizes: Mapping[str, int]) -> str:
    """The case in force of a form by cases, as words: ``B = 1``."""
    condition = branches.condition_at(quantity.text, sizes) if quantity.text is not None else ""
    equations = re.findall(r"Eq\((\w+), (\w+)\)", condition)
    return " and ".join(f"{name}{NBSP}={NBSP}{to}" for name, to in equations)


def _otherwise(quantity: Quantity, sizes: Mapping[str, int]) -> Formula | None:
    """The general form beside the case in force. A general maximum is too long to stand beside anything."""
    others = branches.other_cases(quantity.text, sizes) if quantity.text is not None else []
    general = [expr for expr, condition in others if condition == "True"]
    return _formula(expressions.parse(general[0])) if general and "Max(" not in general[0] and "Piecewise" not in general[0] else None


def _closed_form(
    quantity: Quantity, steps: Sequence[Step], moments: Mapping[Display, Display], sizes: Mapping[str, int]
) -> Formula | None:
    """As the last step leaves it, which keeps like terms together; else as the quantity writes itself."""
    if quantity.text is None:
        return None
    if steps and steps[-1].value == quantity.value:
        return _formula(_named(steps[-1].after, moments))
    return _formula(expressions.parse(branches.at_hand(quantity.text, sizes)))


def _largest(quantity: Quantity, sizes: Mapping[str, int]) -> Formula | None:
    """The candidate that is the maximum at the derivation's sizes."""
    here = [c for c in quantity.candidates if c.value == quantity.value]
    return _formula(expressions.parse(branches.at_hand(here[0].expr, sizes))) if here and len(quantity.candidates) > 1 else None


def _largest_note(quantity: Quantity) -> str:
    here = [c for c in quantity.candidates if c.value == quantity.value]
    if not here or len(quantity.candidates) < 2:
        return ""
    return f"at these sizes the largest of {_several(len(quantity.candidates), 'moment')}: {here[0].at}"


def _is_maximum(step: Step) -> bool:
    return isinstance(step.after, Maximum)


def _moment(number: int) -> Display:
    return display.Name(f"M_{number}")


def _subscripted(name: str) -> str:
    """``M_12`` as text: M₁₂."""
    letter, _, digits = name.partition("_")
    return letter + digits.translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def _moments(steps: Sequence[Step]) -> dict[Display, Display]:
    """The candidates of a maximum, each under the short name that its own step gives it (M₁, M₂, …).

    Written out, a maximum of twenty sums would be read by nobody; each of them is derived in the step it is named by.
    """
    found: dict[Display, Display] = {}
    for step in steps:
        if isinstance(step.after, Maximum):
            own = {s.after for s in steps if not _is_maximum(s)}
            for item in step.after.items:
                if item in own:
                    found.setdefault(item, _moment(len(found) + 1))
    return found


def _named(tree: Display, moments: Mapping[Display, Display]) -> Display:
    return Maximum(tuple(moments.get(item, item) for item in tree.items)) if isinstance(tree, Maximum) else tree


def _step(
    number: str,
    step: Step,
    unit: Unit,
    sizes: Mapping[str, int],
    moments: Mapping[Display, Display],
    anchors: _Anchors,
    *,
    last: bool,
) -> StepView:
    numbers_in = _numbers_in(step.after, sizes)
    _require_equal(step, numbers_in)
    moment = moments.get(step.after)
    before, after = _sides(step, moments)
    before = _without_prefix(before, _place_of(step).partition(", ")[0])
    return StepView(
        number=number,
        anchor=anchors(step.id),
        title=step.title if moment is None else f"{_subscripted(display.text(moment))}: {step.title}",
        rule=Link(step.rule, target=_rule_anchor(step.rule)),
        badge=_STEP_BADGES.get(step.check.kind, Badge("○", step.check.kind, "open")),
        before=_formula(before),
        after=_formula(after),
        because=_sentence(step.because),
        substituted=_formula(numbers_in),
        value=numbers.amount(step.value, unit),
        checked=_how_checked(step),
        last=last,
    )


def _sides(step: Step, moments: Mapping[Display, Display]) -> tuple[Display, Display]:
    """The two sides as they are shown: in a maximum, what a step above derived stands under its short name."""
    if not (isinstance(step.before, Maximum) and isinstance(step.after, Maximum)) or len(step.before.items) != len(step.after.items):
        return step.before, _named(step.after, moments)
    named = Maximum(tuple(moments.get(after, before) for before, after in zip(step.before.items, step.after.items, strict=True)))
    return named, _named(step.after, moments)


def _place_of(step: Step) -> str:
    """A step's title without the case it is of: ``h.*.ln_1 (at B = 1)`` is about ``h.*.ln_1``."""
    return re.sub(r" \(at [^()]*\)$", "", step.title)


def _without_prefix(tree: Display, place: str) -> Display:
    """Labels that repeat the place the step is about lose it: under ``h.*.ln_1``, ``h.*.ln_1.bias`` is ``bias``."""
    if isinstance(tree, Sum):
        return Sum(tuple(_without_prefix(t, place) for t in tree.terms))
    if isinstance(tree, Labelled):
        return Labelled(tree.body, tree.label.removeprefix(f"{place}."))
    return tree


def _numbers_in(tree: Display, sizes: Mapping[str, int]) -> Display:
    """``tree`` with numbers put in; of a maximum, the value of each candidate."""
    put = expressions.substituted(tree, sizes)
    if isinstance(put, Maximum):
        return Maximum(tuple(display.Number(int(evaluate_text(display.text(item), {}))) for item in put.items))
    return put


def _require_equal(step: Step, numbers_in: Display) -> None:
    """A row that does not evaluate to the number beside it must never be printed."""
    value = evaluate_text(display.text(numbers_in), {})
    if value != step.value:
        raise ValueError(f"step {step.id}: the substituted row is {value}, the step says {step.value}")


def _sentence(words: str) -> str:
    return words if not words or words.endswith((".", "!", "?")) else f"{words}."


def _how_checked(step: Step) -> str:
    """What the check found, where that says more than the badge does."""
    return "" if step.check.kind == "symbolic" and step.check.result in ("0", "holds", "") else step.check.result


def _formula(tree: Display) -> Formula:
    rows = latex.labelled_rows(tree)
    pieces = tuple(piece for row, _ in rows for piece in row) if rows else latex.pieces(tree)
    return Formula(pieces, plain.terms(tree), any(latex.width(p) > latex.WIDE for p in pieces), rows)


def _term(site: str, expr: str, value: int, whole: int | None, because: str, sizes: Mapping[str, int]) -> TermRow:
    share = numbers.percent(Fraction(value, whole)) if whole else ""
    return TermRow(site, _formula(expressions.parse(branches.at_hand(expr, sizes))), numbers.integer(value), share, because)


def _candidate(
    candidate: Candidate,
    quantity: Quantity,
    steps: Sequence[Step],
    views: Sequence[StepView],
    moments: Mapping[Display, Display],
    sizes: Mapping[str, int],
) -> CandidateRow:
    parts = tuple((role, numbers.amount(candidate.part_values[role], quantity.unit).text) for role in candidate.parts)
    value = numbers.amount(candidate.value, quantity.unit)
    largest = candidate.value == quantity.value
    for step, view in zip(steps, views, strict=True):
        if step.after in moments and _place_of(step) == candidate.at:
            return CandidateRow(candidate.at, _subscripted(display.text(moments[step.after])), view.anchor, None, value, parts, largest)
    return CandidateRow(candidate.at, "", "", _formula(expressions.parse(branches.at_hand(candidate.expr, sizes))), value, parts, largest)


# -- sensitivity -------------------------------------------------------------------------------------------------------


def _answered(derivation: Derivation) -> list[str]:
    return [name for name, _ in ANSWERS if name in derivation.quantities and derivation[name].value]


def _dominant(derivation: Derivation) -> Iterator[tuple[str, tuple[TermRow, ...]]]:
    for name in _answered(derivation):
        quantity = derivation[name]
        rows = tuple(_term(s.site, s.expr, s.value, quantity.value, "", derivation.sizes) for s in sensitivity.shares(quantity))
        if rows:
            yield name, rows


def _doublings(derivation: Derivation) -> DoublingTable:
    names = _answered(derivation)
    by_dim: dict[str, dict[str, str]] = {}
    for name in names:
        for d in sensitivity.doublings(derivation, name):
            by_dim.setdefault(d.dim, {})[name] = numbers.times(d.factor) if d.factor is not None else f"cannot double: {d.because}"
    order = [dim.name for dim in derivation.dims if dim.name in by_dim]
    rows = tuple(
        (_formula(display.Name(dim)), tuple(by_dim[dim].get(name, "no effect") for name in names)) for dim in order
    )
    return DoublingTable((("Size", "text"), *((name, "number") for name in names)), rows)


def _crossover(derivation: Derivation) -> CrossoverView | None:
    found = sensitivity.crossover(derivation, "flops.forward.matmul")
    if found is None:
        return None
    first = numbers.integer(-(-found.at.numerator // found.at.denominator))
    fast, slow = (_formula(expressions.parse(text)) for text in (found.fast, found.slow))
    return CrossoverView(found.quantity, _formula(display.Name(found.dim)), fast, slow, f"{found.dim}{NBSP}={NBSP}{first}")


# -- rules of thumb ----------------------------------------------------------------------------------------------------


def _thumb(comparison: Comparison, derivation: Derivation) -> Thumb:
    rule, ratio = comparison.rule, comparison.ratio
    off = "unknown" if ratio is None else numbers.percent(ratio - 1, signed=True)
    return Thumb(
        name=rule.name,
        anchor=f"thumb-{slug(rule.name)}",
        statement=rule.statement,
        letters=rule.letters,
        assumes=rule.assumes,
        stands_for=rule.stands_for,
        source=Link(rule.source, address=rule.link),
        applies=comparison.applies,
        reason=comparison.reason,
        value=_amount(comparison.value, rule.unit),
        exact=_amount(comparison.exact, rule.unit),
        off=off,
        verdict=_thumb_verdict(ratio),
        differences=tuple(_difference(d) for d in comparison.differences),
        closes=_closes(comparison),
        outside=tuple((name, numbers.amount(value, derivation[name].unit)) for name, value in comparison.outside),
        ranges=tuple(_range(w) for w in comparison.within),
    )


def _amount(value: int | None, unit: Unit) -> Amount | None:
    return None if value is None else numbers.amount(value, unit)


def _thumb_verdict(ratio: Fraction | None) -> str:
    if ratio is None:
        return "cannot be compared"
    if ratio == 1:
        return "equal here"
    return f"{'within' if abs(ratio - 1) <= Fraction(1, 20) else 'not within'} 5{NBSP}% here"


def _difference(difference: Any) -> DifferenceRow:
    return DifferenceRow(
        _formula(expressions.parse(difference.expr)),
        numbers.signed(difference.value),
        difference.kind,
        difference.sites,
        difference.because,
    )


def _closes(comparison: Comparison) -> str:
    if comparison.value is None or comparison.exact is None or not comparison.differences:
        return ""
    return numbers.signed(comparison.value - comparison.exact)


def _range(within: Within) -> RangeRow:
    low, high = (numbers.integer(n) for n in within.searched)
    if within.ranges == (within.searched,):
        text = "everywhere"
    elif not within.ranges:
        text = "nowhere"
    else:
        text = ", ".join(_interval(a, b, within.searched[1]) for a, b in within.ranges)
    return RangeRow(_formula(display.Name(within.dim)), text, f"{low}{NBSP}…{NBSP}{high}")


def _interval(a: int, b: int, high: int) -> str:
    if a == b:
        return f"at {numbers.integer(a)}"
    return f"from {numbers.integer(a)} on" if b == high else f"{numbers.integer(a)}{NBSP}…{NBSP}{numbers.integer(b)}"


# -- checks and the rest -----------------------------------------------------------------------------------------------


def _check_note(verdict: Any) -> str:
    """How it was measured, and what there is to say about it. Many verdicts share one note."""
    because = verdict.because
    if not verdict.instrument and because.startswith("no instrument"):
        return str(because)
    return f"{verdict.instrument or 'no instrument'}; {because}" if because else str(verdict.instrument or "no instrument")


def _check(verdict: Any, notes: Sequence[str]) -> CheckRow:
    both = verdict.derived is not None and verdict.measured is not None
    return CheckRow(
        quantity=verdict.quantity,
        derived=_or_unknown(verdict.derived),
        measured="not measured" if verdict.measured is None else numbers.integer(verdict.measured),
        difference=numbers.signed(verdict.derived - verdict.measured) if both else "unknown",
        tolerance=str(verdict.tolerance) if verdict.measured is not None else "–",
        badge=_BADGES[verdict.verdict],
        note=str(notes.index(_check_note(verdict)) + 1),
    )


def _or_unknown(value: int | None) -> str:
    return "unknown" if value is None else numbers.integer(value)


def _not_covered(derivation: Derivation, verdicts: Mapping[str, Any]) -> Iterator[str]:
    for name in derivation:
        if derivation[name].text is None:
            yield f"{name} is unknown: {derivation[name].unknown}."
    for v in verdicts.values():
        if v.verdict == "not measured" and v.derived is not None:
            yield f"{v.quantity} is derived and was not measured ({v.because or 'no instrument'})."
    yield from NOT_COVERED


def _rule_anchor(rule: str) -> str:
    return f"rule-{slug(rule)}"


def _rules(derivation: Derivation) -> tuple[RuleRow, ...]:
    """Every rule that a step names, with what it states and how often it is used."""
    uses: dict[str, int] = {}
    for step in derivation.steps:
        uses[step.rule] = uses.get(step.rule, 0) + 1
    return tuple(_rule(name, count) for name, count in uses.items())


def _rule(name: str, count: int) -> RuleRow:
    statement, source = _known_rule(name)
    return RuleRow(name, _rule_anchor(name), statement, source, _several(count, "step"))


def _known_rule(name: str) -> tuple[str, str]:
    entry = _registry().get(name)
    if entry is not None:
        return entry
    statement = STEP_RULES.get(name)
    return (statement, "arithmetic") if statement else ("stated in the step itself", "the step's reason")


def _registry() -> Mapping[str, tuple[str, str]]:
    """Operator → (statement, source), from the rules that the derivation used."""
    from calc import rules  # noqa: F401  importing it fills the registry
    from calc.cost import REGISTRY

    known = {op: (rule.statement, rule.source) for op, rule in REGISTRY.rules.items()}
    return known | {op: (free.because, "stated free") for op, free in REGISTRY.frees.items()}


STEP_RULES = {
    "parameter": "A tensor has as many elements as the product of its sizes; a storage counts once.",
    "gradient": "A gradient takes its elements times their size in bytes.",
    "optimizer state": "A tensor of the optimizer takes its elements times their size in bytes.",
    "sum": "A quantity is the sum of its parts; each operator and tensor stands in one of them.",
    "sum over parts": "What the parts of a module hold or do adds up; like terms are collected.",
    "sum over operators": "What the operators of one place do adds up; like terms are collected.",
    "sum over layers": "Layers that are alike hold and do the same: their sum is their number times one of them.",
    "live storages by role": "Live bytes are those of the storages born and not yet dead.",
    "maximum": "The peak is the largest of the moments at which live bytes can be highest.",
    "substitution": "A dimension is replaced by what defines it.",
}


def _ledger(derivation: Derivation) -> tuple[LedgerRow, ...]:
    registry = _registry()
    return tuple(
        LedgerRow(
            operator=row.operator,
            anchor=f"op-{slug(row.operator)}",
            runs=_count(row.runs),
            value=numbers.integer(row.value),
            kind=row.kind,
            because=row.because,
            source=registry.get(row.operator, ("", ""))[1],
        )
        for row in derivation.coverage
    )


def _count(text: str) -> Formula | None:
    try:
        return _formula(expressions.parse(text))
    except (SyntaxError, ValueError):
        return None


def _provenance(derivation: Derivation, checks: Any) -> Iterable[tuple[str, str]]:
    yield "model", derivation.model
    yield "model's source", derivation.source
    for name, value in derivation.options.items():
        yield name, value
    for name, value in derivation.provenance.items():
        yield name, str(value)
    measured = getattr(checks, "provenance", {}) if checks is not None else {}
    for name, value in measured.items():
        if derivation.provenance.get(name) != value:
            yield f"check: {name}", str(value)

"""Audit → ``LecturePage``, with every number written, and its Markdown, HTML and JSON files."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from calc.pipeline.verdict import NOT_MEASURED
from calc.symbolic.expression import Expression, Name, Number, Product, Quotient, Sum
from calc.symbolic.readable import superscript
from calc.symbolic.worked import WorkedCalculation
from reports.jobs import job
from reports.jobs.report import carried
from reports.lecture.audit import Audit, AuditedClaim, audit, to_json
from reports.lecture.lab import Lab
from reports.lecture.repairs import RunError, error_json, run_errors
from reports.lecture.sources import YEAR, notes
from reports.lecture.system import LectureSystem, SystemDerivation, SystemResult, SystemVerdict
from reports.lecture.system import to_json as system_json
from reports.lecture.systems import SYSTEMS
from reports.lecture.verdicts import APPROXIMATE, CONVENTION, HOLDS, MISLEADING, ROUNDED, UNCHECKED, WRONG
from reports.page import rules
from reports.page.chapters import sizes_with_quotients
from reports.page.gradients import entries
from reports.page.inputs import Inputs
from reports.page.lecture import (
    CalculationStepView,
    CheckView,
    ClaimRow,
    CodeErrorView,
    DerivedView,
    DisputeView,
    LecturePage,
    SystemView,
    TopicView,
    WorkedCalculationView,
)
from reports.page.model import Badge, Command
from reports.page.parts import BADGES, badge_of, formula, sentence, sizes_text
from reports.page.steps import Anchors, StepNotation, step_views
from reports.typeset import expressions, numbers
from reports.typeset.numbers import NBSP
from reports.writers import html, markdown
from reports.writers.render import Look
from reports.writers.terminal import Terminal, bold

SECTIONS = {
    "verdicts": "Verdicts",
    "contradictions": "Contradictions among the notes",
    "claims": "Claims",
    "code": "Code that does not run",
    "systems": "Systems",
    "rules": "Rules used",
    "provenance": "Provenance",
    "commands": "Commands",
}
VERDICT_BADGES = {
    HOLDS: Badge("✓", HOLDS, "good"),
    ROUNDED: Badge("✓", ROUNDED, "good"),
    APPROXIMATE: Badge("≈", APPROXIMATE, "open"),
    MISLEADING: Badge("!", MISLEADING, "bad"),
    WRONG: Badge("×", WRONG, "bad"),
    CONVENTION: Badge("○", CONVENTION, "proved"),
    UNCHECKED: Badge("?", UNCHECKED, "open"),
}
MEANINGS = {
    HOLDS: "the computed value equals the claimed one, or makes the statement true",
    ROUNDED: "equal when rounded to the digits of the claim",
    APPROXIMATE: "the error is at most 5 %, for rules of thumb 25 %; or the claim is right up to a stated factor",
    MISLEADING: "literally true but misleading; or one part true and another false",
    WRONG: "the computed value contradicts it",
    CONVENTION: "a choice of words or a judgment that no computed value contradicts",
    UNCHECKED: "cannot be computed here; the reason gives what can be",
}


@dataclass(frozen=True, slots=True)
class LectureOutcome:
    """The result of an audit. ``ok``: no check of a system failed."""

    audit: Audit
    systems: tuple[tuple[LectureSystem, SystemResult], ...]
    errors: tuple[RunError, ...]
    files: tuple[Path, ...]

    @property
    def ok(self) -> bool:
        return all(worked.ok for _, worked in self.systems)


LOOK = Look("lecture.j2")

# -- making it ---------------------------------------------------------------------------------------------------------------------


def lecture(directory: Path, progress: Callable[[str], None]) -> LectureOutcome:
    """Audit everything and write lecture.md, lecture.html and lecture.json, all or none."""
    job.write_all(directory, {})  # a folder that cannot be made is refused before minutes of work
    outcome, texts = make(progress)
    return replace(outcome, files=job.write_all(directory, texts))


def make(progress: Callable[[str], None], stamp: Inputs | None = None) -> tuple[LectureOutcome, dict[str, str]]:
    """(audit, file name → text). ``stamp``: inputs whose date and versions the texts take over."""
    lab = Lab(progress)
    audited = audit(lab, progress=progress)
    worked = []
    for system in SYSTEMS:
        progress(f"system {system.number}: {system.title}")
        worked.append((system, system.work(lab)))
    outcome = LectureOutcome(audited, tuple(worked), run_errors(), ())
    inputs = stamp or Inputs(kind="lecture", date=_date(), environment=dict(provenance()))
    page = build(audited, tuple(worked), inputs, outcome.errors)
    return outcome, {
        "lecture.md": markdown.write(page, LOOK),
        "lecture.html": html.write(page, LOOK),
        "lecture.json": job.json_text({**document(outcome), "provenance": dict(page.provenance), **carried(inputs)}),
    }


def build(
    audited: Audit, systems: tuple[tuple[LectureSystem, SystemResult], ...], inputs: Inputs, errors: tuple[RunError, ...] = ()
) -> LecturePage:
    """The page of an audited lecture: its claims, its systems, and the errors of its code."""
    anchors = Anchors()
    count = len(audited.claims)
    checks = [check for _, worked in systems for check in worked.checks]
    failed = sum(c.verdict == "failed" for c in checks)
    return LecturePage(
        model="Stanford CS336, lecture 2",
        step="the claims of its notes",
        subtitle=f"{numbers.integer(count)} claims of five sets of public notes, restated and recomputed;"
        f" {len(systems)} systems, derived and checked",
        sizes=f"{numbers.integer(len(checks))} checks of systems by real runs: {numbers.integer(failed)} failed",
        date=inputs.date,
        tally=tuple((VERDICT_BADGES[verdict], numbers.integer(n), MEANINGS[verdict]) for verdict, n in audited.tally.items()),
        disputes=tuple(_disputes(audited)),
        topics=tuple(_topics(audited)),
        errors=tuple(_code_error(i, run) for i, run in enumerate(errors, 1)),
        systems=tuple(_system(system, worked, anchors) for system, worked in systems),
        rules=rules.used([step for _, worked in systems for derived in worked.derived for step in derived.steps]),
        provenance=tuple((name, inputs.environment.get(name, value)) for name, value in provenance()),
        commands=(
            Command("Make this report again:", "napkin lecture -o ."),
            Command("One claim, computed by itself:", f"napkin lecture --claim {audited.claims[0].claim.id}"),
            Command("One system, worked out by itself:", f"napkin lecture --system {systems[0][0].number if systems else 1}"),
            Command("The number formats, one at a time:", "napkin dtype fp16 0.01"),
            Command(
                "A model's step in full, with every step of the derivation:", "napkin derive cruncher -d B=2 -d D=4 -d L=2 --optimizer spec"
            ),
        ),
        sections=SECTIONS,
        inputs=inputs.text(),
    )


def _date() -> str:
    """The date in SOURCE_DATE_EPOCH, else ``demand``, so that the file is the same on every day."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.datetime.fromtimestamp(int(fixed), datetime.UTC).date().isoformat() if fixed and fixed.isdigit() else "demand"


def provenance() -> Iterator[tuple[str, str]]:
    """(name, value) of the versions and sources of the audit."""
    from importlib import metadata

    yield "napkin", job.version()
    for name in ("torch", "numpy", "sympy"):
        yield name, metadata.version(name).partition("+")[0]
    yield "chance", "every experiment has seed 0; these files contain no measured time"
    yield "sources", "calc/data/hardware.toml for accelerators, calc/data/lecture_sources.toml for papers, laws and figures of others"


def _topics(audited: Audit) -> Iterator[TopicView]:
    by_topic: dict[str, list[AuditedClaim]] = {}
    for c in audited.claims:
        by_topic.setdefault(c.topic, []).append(c)
    for number, (title, claims) in enumerate(by_topic.items(), 1):
        yield TopicView(str(number), f"topic-{number}", title, f"{len(claims)} claims", tuple(map(_claim, claims)))


def _claim(c: AuditedClaim) -> ClaimRow:
    f = c.finding
    return ClaimRow(
        id=c.claim.id,
        notes=_notes(c.claim.id),
        says=c.claim.says,
        badge=VERDICT_BADGES[f.verdict],
        value=shown(f.value, f.unit),
        because=sentence(f.because),
        computed_by=f.computed_by,
        rests_on=f.rests_on,
    )


def _code_error(number: int, run: RunError) -> CodeErrorView:
    error = run.error
    written, repaired = (tuple(f"{error.before}{code}".split("\n")) for code in (error.written, error.repaired))
    anchor = f"code-{error.name}"
    return CodeErrorView(str(number), anchor, error.problem, written, run.message or "it runs", repaired, run.result, sentence(error.why))


def _notes(name: str) -> str:
    """The notes that make a claim: ``note 002``, ``notes 002, 003``."""
    sets = notes()[name]
    return f"note{'s' if len(sets) > 1 else ''}{NBSP}{', '.join(sets)}"


def _disputes(audited: Audit) -> Iterator[DisputeView]:
    def positions(names: Iterable[str]) -> tuple[tuple[str, str, Badge], ...]:
        return tuple((name, _notes(name), VERDICT_BADGES[audited[name].finding.verdict]) for name in names)

    for s in audited.settled:
        yield DisputeView(s.dispute.about, positions(s.right), positions(s.others), sentence(s.dispute.settled))


# -- systems -----------------------------------------------------------------------------------------------------------------------


def _system(system: LectureSystem, worked: SystemResult, anchors: Anchors) -> SystemView:
    return SystemView(
        number=str(system.number),
        anchor=f"system-{system.number:02}",
        title=system.title,
        asks=sentence(f"It computes {system.asks}"),
        rows=tuple((r.quantity, shown(r.value, r.unit), sentence(r.because)) for r in worked.rows),
        calculations=tuple(map(_calculation, worked.calculations)),
        derived=tuple(_derived(f"{system.number}.{i}", d, anchors) for i, d in enumerate(worked.derived, 1)),
        equations=equations(worked),
        checks=tuple(map(_check, worked.checks)),
        notes=tuple(sentence(note) for note in worked.notes),
    )


def equations(worked: SystemResult) -> tuple[str, ...]:
    """The equations of a forward pass and of its gradients, from the loss backwards."""
    return tuple(str(entry.equation) for derived in worked.equations for entry in entries(derived))


def system_document(system: LectureSystem, worked: SystemResult) -> dict[str, Any]:
    """A system with its equations as a JSON-ready dictionary."""
    return {**system_json(system, worked), "equations": list(equations(worked))}


def _calculation(calculation: WorkedCalculation) -> WorkedCalculationView:
    values: dict[str, Fraction] = {g.symbol: g.value for g in calculation.inputs}
    lines = []
    for line in calculation.steps:
        tree = expressions.parse(line.expr)
        put = _numbers_in(tree, values)
        lines.append(
            CalculationStepView(
                line.meaning,
                formula(expressions.parse(line.symbol)),
                formula(tree),
                formula(put),
                shown(line.value, line.unit),
                sentence(line.because),
            )
        )
        values[line.symbol] = line.value
    givens = tuple(
        (formula(expressions.parse(g.symbol)), shown(g.value, g.unit), "" if g.meaning == g.unit else g.meaning, g.source)
        for g in calculation.inputs
    )
    return WorkedCalculationView(calculation.name, givens, tuple(lines), tuple(sentence(n) for n in calculation.notes))


def _numbers_in(tree: Expression, values: Mapping[str, Fraction]) -> Expression:
    """A formula with each symbol replaced by its value."""
    match tree:
        case Name(name):
            return _number_leaf(values[name])
        case Sum(terms):
            return Sum(tuple(_numbers_in(t, values) for t in terms))
        case Product(factors):
            return Product(tuple(_numbers_in(f, values) for f in factors))
        case Quotient(top, bottom):
            return Quotient(_numbers_in(top, values), _numbers_in(bottom, values))
    return tree


def _number_leaf(value: Fraction) -> Expression:
    """A value as a tree: an integer, a decimal if exact, else a fraction, or rounded to six digits where the fraction is long."""
    if value.denominator == 1:
        return Number(int(value))
    decimal = str(float(value))
    if Fraction(decimal) == value:
        return Name(decimal)
    if max(value.numerator, value.denominator) >= _LARGEST and value >= Fraction(1, 10**4):
        return Number(round(value)) if value >= 10**6 else Name(f"{float(value):.6g}")
    return Quotient(Number(value.numerator), Number(value.denominator))


def _derived(number: str, derivation: SystemDerivation, anchors: Anchors) -> DerivedView:
    sizes = sizes_with_quotients(derivation.sizes, (tree for s in derivation.steps for tree in (s.before, s.after)))
    views = tuple(step_views(number, derivation.steps, StepNotation(derivation.unit, sizes, anchors)))
    return DerivedView(f"{derivation.quantity} of {derivation.model}: {len(views)} steps", sizes_text(derivation.sizes), views)


def _check(c: SystemVerdict) -> CheckView:
    measured = "not measured" if c.measured is None else shown(c.measured)
    return CheckView(c.quantity, shown(c.derived), measured, badge_of(c), sentence(c.instrument), c.because or "–")


# -- numbers -----------------------------------------------------------------------------------------------------------------------

_LARGEST = 10**15


def shown(value: Any, unit: str = "") -> str:
    """A value as text: integers in groups of three, very large and small values with a power of ten, others with six digits."""
    if unit == YEAR:
        return str(value)
    text = value if isinstance(value, str) else _number(Fraction(str(value)) if isinstance(value, float) else Fraction(value))
    return f"{text}{NBSP}{_counted(unit, value)}" if unit and unit != "1" else text


_COUNTED = ("byte", "element", "device", "sequence", "token", "parameter", "day", "week", "minute")


def _counted(unit: str, value: Any) -> str:
    """A unit in the number of its value: ``1 byte``, ``2 bytes``, ``1 token/s``."""
    noun, slash, rest = unit.partition("/")
    singular = noun.removesuffix("s")
    if singular not in _COUNTED:
        return unit
    return f"{singular if value == 1 else f'{singular}s'}{slash}{rest}"


def _number(value: Fraction) -> str:
    if value.denominator == 1 and abs(value) < _LARGEST:
        return numbers.integer(int(value))
    if not value:
        return "0"
    digits = f"{Decimal(value.numerator) / Decimal(value.denominator):.6e}"
    mantissa, _, power = digits.partition("e")
    exponent = int(power)
    if -4 <= exponent < 6:
        return f"{float(value):,.6g}".replace("-", numbers.MINUS)
    mantissa = mantissa.rstrip("0").rstrip(".").replace("-", numbers.MINUS)
    return f"{mantissa}{NBSP}·{NBSP}10{superscript(exponent)}"


def show_claims(audited: Audit, out: Terminal) -> None:
    """Claims on a terminal: restatement, verdict with the correct value, reason, and what computes it."""
    for c in audited.claims:
        row = _claim(c)
        out.line(bold(row.id), f": {row.says} ({row.notes})")
        out.line(f"  {row.badge.sign} {row.badge.words}: {row.value}")
        out.line(f"  because {row.because}")
        out.line(f"  computed by: {row.computed_by} (rests on {row.rests_on})", style="dim")


def show_system(system: LectureSystem, worked: SystemResult, out: Terminal) -> None:
    """A system on a terminal: its answers with reasons, and its checks by real runs. Calculations and derivations are in the files."""
    view = _system(system, worked, Anchors())
    out.line(bold(f"System {system.number}, {system.title}"), f": {system.asks}")
    out.table(("Answer", "Value", "Because"), view.rows)
    out.lines(*view.equations)
    for c in view.checks:
        by = c.instrument.removesuffix(".") + ("" if c.tolerance == "–" else f"; {c.tolerance}")
        measured = "" if c.badge == BADGES[NOT_MEASURED] else f", measured {c.measured}"
        out.line(f"{c.badge.sign} {c.badge.words}: {c.quantity}: derived {c.derived}{measured} ({by})", hang=2)
    out.lines(*view.notes, style="dim")


def summary(audited: Audit) -> str:
    """The tally on one line."""
    return ", ".join(f"{n} {verdict}" for verdict, n in audited.tally.items())


def document(outcome: LectureOutcome) -> dict[str, Any]:
    """The audit as a JSON-ready dictionary, with versions and sources."""
    body = to_json(outcome.audit, (system_document(s, w) for s, w in outcome.systems))
    return {**body, "code": [error_json(run) for run in outcome.errors], "provenance": dict(provenance())}

"""A system of the lecture: its answers, the steps of their derivation, and checks by real runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from calc.derive.result import Step
from calc.derive.to_json import number
from calc.mathematics.autodiff.derived import Derived as Gradients
from calc.mathematics.gradients import Checked as Differentiated
from calc.pipeline.check import Report
from calc.pipeline.verdict import FAILED, NOT_MEASURED, WITHIN, Verdict, judged
from calc.symbolic.assignments import TYPED, sizes_text
from calc.symbolic.worked import WorkedCalculation
from calc.units import Unit
from reports.lecture.lab import Lab

AnswerValue = int | float | Fraction | str
SystemVerdict = Verdict[AnswerValue]
"""Something derived beside the same measured; ``because`` says which tolerance passes, and why, where equality is impossible."""


@dataclass(frozen=True, slots=True)
class SystemAnswer:
    """One answer: name, value with unit, reason."""

    quantity: str
    value: AnswerValue
    unit: str
    because: str


@dataclass(frozen=True, slots=True)
class SystemDerivation:
    """The derivation of one quantity of a model, at ``sizes``."""

    model: str
    quantity: str
    unit: Unit
    sizes: Mapping[str, int]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class SystemResult:
    """The content of a system, before it is typeset."""

    rows: tuple[SystemAnswer, ...]
    calculations: tuple[WorkedCalculation, ...] = ()
    derived: tuple[SystemDerivation, ...] = ()
    checks: tuple[SystemVerdict, ...] = ()
    notes: tuple[str, ...] = ()
    equations: tuple[Gradients, ...] = ()

    @property
    def ok(self) -> bool:
        return not any(check.failed for check in self.checks)


SystemFunction = Callable[[Lab], SystemResult]


@dataclass(frozen=True, slots=True)
class LectureSystem:
    """A system of the lecture. ``asks``: what it must compute."""

    number: int
    name: str
    title: str
    asks: str
    work: SystemFunction = field(repr=False)


def equal(quantity: str, derived: AnswerValue, measured: AnswerValue, instrument: str) -> SystemVerdict:
    """A check by equality: exact or failed."""
    return judged(quantity, derived, measured, instrument)


def near(quantity: str, derived: float, measured: float, tolerance: float, instrument: str, why: str) -> SystemVerdict:
    """A check within ``tolerance`` of the derived value, or failed; ``why``: why equality is impossible."""
    verdict = WITHIN if abs(measured - derived) <= tolerance else FAILED
    return Verdict(quantity, derived, float(f"{measured:.4g}"), instrument, verdict, tolerance, f"±{tolerance:.2g}: {why}")


def unmeasured(quantity: str, derived: AnswerValue, why: str) -> SystemVerdict:
    """A derived value that cannot be measured here; ``why``: the reason."""
    return Verdict(quantity, derived, None, why, NOT_MEASURED)


def from_run(report: Report, *quantities: str) -> tuple[SystemVerdict, ...]:
    """The verdicts on some quantities of a real run, each named by model, optimizer, precision and sizes."""
    at = sizes_text(report.sizes, TYPED)
    step = f"{report.model}, {report.options['optimizer']} in {report.options['precision']}, at {at}"
    checks: list[SystemVerdict] = []
    for name in quantities:
        v = report[name]
        instrument = v.instrument or v.because
        derived = "unknown" if v.derived is None else v.derived
        checks.append(Verdict(f"{step}: {name}", derived, v.measured, instrument, v.verdict, expected=v.expected))
    return tuple(checks)


def from_autograd(model: str, comparison: Differentiated) -> tuple[SystemVerdict, ...]:
    """Checks of derived gradient equations, evaluated in numpy, against autograd and central differences."""
    checks: list[SystemVerdict] = []
    for trial in comparison.trials:
        at = sizes_text(trial.sizes, TYPED)
        verdict, outcome = (WITHIN, "equal to rounding") if trial.ok else (FAILED, f"off by {trial.worst:.1g} in {trial.where}")
        tolerance = "10⁻⁹ of the largest gradient; 10⁻⁵ for central differences"
        checks.append(
            Verdict(
                f"gradients of {model} at {at}",
                "autograd's",
                outcome,
                "autograd and central differences in float64",
                verdict,
                because=tolerance,
            )
        )
    return tuple(checks)


def steps_of(lab: Lab, model: str, sizes: Mapping[str, int], *quantities: str, **options: str) -> tuple[SystemDerivation, ...]:
    """The steps of some quantities of a derivation."""
    derivation = lab.derive(model, sizes, **options)
    return tuple(
        SystemDerivation(model, q, derivation[q].unit, derivation.sizes, tuple(s for s in derivation.steps if s.quantity == q))
        for q in quantities
    )


def to_json(system: LectureSystem, worked: SystemResult) -> dict[str, Any]:
    """A system as a JSON-ready dictionary."""
    from calc.symbolic.tree import text

    return {
        "number": system.number,
        "name": system.name,
        "title": system.title,
        "asks": system.asks,
        "answers": [{"what": r.quantity, "value": plain(r.value), "unit": r.unit or None, "because": r.because} for r in worked.rows],
        "calculations": [r.to_json() for r in worked.calculations],
        "derivations": [
            {
                "model": d.model,
                "quantity": d.quantity,
                "sizes": {name: number(size) for name, size in d.sizes.items()},
                "steps": [
                    {
                        "title": s.title,
                        "rule": s.rule,
                        "before": text(s.before),
                        "after": text(s.after),
                        "because": s.because,
                        "value": number(s.value),
                    }
                    for s in d.steps
                ],
            }
            for d in worked.derived
        ],
        "checks": [
            {
                "what": c.quantity,
                "derived": plain(c.derived),
                "measured": None if c.measured is None else plain(c.measured),
                "verdict": c.verdict,
                "instrument": c.instrument,
                "tolerance": c.because or None,
            }
            for c in worked.checks
        ],
        "notes": list(worked.notes),
    }


def plain(value: object) -> int | float | str | bool | None:
    """A JSON value: integers above 2**53 as strings, fractions as the nearest double."""
    if isinstance(value, Fraction):
        value = int(value) if value.denominator == 1 else float(value)
    if isinstance(value, float) and value.is_integer() and abs(value) >= 2**53:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return number(value)
    assert value is None or isinstance(value, bool | float | str)  # what a finding or an answer may hold
    return value

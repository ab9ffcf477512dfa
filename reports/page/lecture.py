"""The document model of the audited lecture, with every number already written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reports.page.model import Badge, Command, StepView, TypesetFormula
from reports.page.rules import RuleRow


@dataclass(frozen=True, slots=True)
class ClaimRow:
    id: str
    notes: str
    says: str
    badge: Badge
    value: str
    because: str
    computed_by: str
    rests_on: str


@dataclass(frozen=True, slots=True)
class TopicView:
    number: str
    anchor: str
    title: str
    count: str
    claims: tuple[ClaimRow, ...]


@dataclass(frozen=True, slots=True)
class DisputeView:
    about: str
    right: tuple[tuple[str, str, Badge], ...]
    others: tuple[tuple[str, str, Badge], ...]
    settled: str


@dataclass(frozen=True, slots=True)
class CalculationStepView:
    """One step of a worked calculation: formula, formula with numbers, value, reason."""

    label: str
    left: TypesetFormula
    formula: TypesetFormula
    substituted: TypesetFormula
    value: str
    because: str


@dataclass(frozen=True, slots=True)
class WorkedCalculationView:
    title: str
    givens: tuple[tuple[TypesetFormula, str, str, str], ...]
    lines: tuple[CalculationStepView, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DerivedView:
    title: str
    sizes: str
    steps: tuple[StepView, ...]


@dataclass(frozen=True, slots=True)
class CheckView:
    quantity: str
    derived: str
    measured: str
    badge: Badge
    instrument: str
    tolerance: str


@dataclass(frozen=True, slots=True)
class SystemView:
    number: str
    anchor: str
    title: str
    asks: str
    rows: tuple[tuple[str, str, str], ...]
    calculations: tuple[WorkedCalculationView, ...]
    derived: tuple[DerivedView, ...]
    equations: tuple[str, ...]
    checks: tuple[CheckView, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CodeErrorView:
    """An error of the notes' code: its lines, what they raise, lines that run instead, and their result."""

    number: str
    anchor: str
    problem: str
    written: tuple[str, ...]
    message: str
    repaired: tuple[str, ...]
    result: str
    why: str


@dataclass(frozen=True, slots=True)
class LecturePage:
    """The whole page. ``inputs``: the line from which ``napkin verify`` makes it again."""

    model: str
    step: str
    subtitle: str
    sizes: str
    date: str
    tally: tuple[tuple[Badge, str, str], ...]
    disputes: tuple[DisputeView, ...]
    topics: tuple[TopicView, ...]
    errors: tuple[CodeErrorView, ...]
    systems: tuple[SystemView, ...]
    rules: tuple[RuleRow, ...]
    provenance: tuple[tuple[str, str], ...]
    commands: tuple[Command, ...]
    sections: Mapping[str, str]
    inputs: str = ""

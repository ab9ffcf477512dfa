"""A whole report, with every number already written. Built once, read by all writers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reports.figures.shapes import Figures
from reports.page.checks import CheckRow, CheckTally
from reports.page.coverage import CoverageSection
from reports.page.design import DesignSection
from reports.page.equations import ModelSection
from reports.page.memory import MemorySection
from reports.page.model import Badge, Chapter, Command, TypesetFormula
from reports.page.peak import PeakStory
from reports.page.records import RecordedRuns
from reports.page.rules import RuleRow
from reports.page.sensitivity import CrossoverView, DoublingTable, InapplicableRuleOfThumb, LargestPartRow, RuleOfThumbView
from reports.typeset.numbers import PrintedAmount


@dataclass(frozen=True, slots=True)
class Tile:
    """One of the answers on the first screen."""

    question: str
    answer: PrintedAmount | None
    unknown: str
    badge: Badge
    target: str


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """A row of the table of answers."""

    quantity: str
    meaning: str
    target: str
    formula: TypesetFormula | None
    note: str
    value: PrintedAmount | None
    unknown: str
    badge: Badge


@dataclass(frozen=True, slots=True)
class AssumptionRow:
    formula: TypesetFormula | None
    words: str
    because: str
    effect: str


@dataclass(frozen=True, slots=True)
class SymbolRow:
    formula: TypesetFormula
    meaning: str
    unit: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report.

    ``date``: date and machine. ``inputs``: the line from which ``napkin verify`` makes it again, or empty. ``exchanged``: where torch runs
    other kernels by default; ``counted_with``: where only the check's count of FLOPs runs others. ``derivation_rules``: the rules that the
    steps of ``chapters`` use; ``outside_modules``: what paths in parentheses mean. ``undivided``: what a row of ``dominant`` is that is no
    line of attention. ``further``: the commands that show the steps, on a page without them.
    """

    model: str
    headline: str
    step: str
    subtitle: str
    sizes: str
    date: str
    tiles: tuple[Tile, ...]
    tally: CheckTally
    exchanged: tuple[str, ...]
    counted_with: tuple[str, ...]
    answers: tuple[AnswerRow, ...]
    assumptions: tuple[AssumptionRow, ...]
    conventions: tuple[AssumptionRow, ...]
    notes: tuple[str, ...]
    symbols: tuple[SymbolRow, ...]
    chapters: tuple[Chapter, ...]
    steps: str
    memory: MemorySection
    peak: PeakStory | None
    equations: ModelSection
    figures: Figures
    dominant: tuple[tuple[str, tuple[LargestPartRow, ...]], ...]
    undivided: str
    doublings: DoublingTable
    crossover: CrossoverView | None
    rules_of_thumb: tuple[RuleOfThumbView, ...]
    inapplicable_rules: tuple[InapplicableRuleOfThumb, ...]
    checks: tuple[CheckRow, ...]
    check_notes: tuple[str, ...]
    certificates: tuple[str, ...]
    recorded: RecordedRuns
    not_covered: tuple[str, ...]
    rules: tuple[RuleRow, ...]
    derivation_rules: tuple[RuleRow, ...]
    outside_modules: str
    coverage: CoverageSection
    provenance: tuple[tuple[str, str], ...]
    commands: tuple[Command, ...]
    further: tuple[Command, ...]
    sections: Mapping[str, str]
    design: DesignSection | None = None
    inputs: str = ""

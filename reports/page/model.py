"""The document model: everything a report says, with every number already written. Built once, read by all writers.

Text fields are plain and untrusted; each writer escapes them for its own format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from reports.figures.shapes import Drawing, Figures
from reports.typeset.numbers import PrintedAmount


class LatexFormula(NamedTuple):
    """A formula in LaTeX pieces (see ``reports.typeset.latex``). A ``wide`` one may need to scroll. With ``rows``, the terms are written
    one under another, each in its pieces with a label beside it."""

    pieces: tuple[str, ...]
    wide: bool = False
    rows: tuple[tuple[tuple[str, ...], str], ...] = ()


@dataclass(frozen=True)
class TypesetFormula:
    """A formula as plain text, one for each term, and in LaTeX, which is written when a writer first asks for it: a terminal never does.

    With ``braces``, its labels may be written under braces, else beside their terms."""

    plain: tuple[str, ...]
    write: Callable[[], LatexFormula] = field(compare=False, repr=False)
    braces: bool = True

    @cached_property
    def _latex(self) -> LatexFormula:
        return self.write()

    @property
    def pieces(self) -> tuple[str, ...]:
        return self._latex.pieces

    @property
    def wide(self) -> bool:
        return self._latex.wide

    @property
    def rows(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        return self._latex.rows


@dataclass(frozen=True, slots=True)
class Badge:
    """A verdict: sign, words and tone, so that colour never stands alone. ``tone``: good, proved, bad, open."""

    sign: str
    words: str
    tone: str


@dataclass(frozen=True, slots=True)
class PageLink:
    """A reference inside the page (``target`` is an id), or a citation (``address`` is a URL)."""

    words: str
    target: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """One of the answers on the first screen."""

    question: str
    answer: PrintedAmount | None
    unknown: str
    badge: Badge
    target: str


@dataclass(frozen=True, slots=True)
class CheckTally:
    """What became of the checks. ``tone`` is bad when one failed; ``why`` says why none ran, or why they ran at these ``sizes``."""

    ran: bool
    why: str
    counts: tuple[tuple[str, str], ...]
    tone: str
    sizes: str


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
class StepView:
    """A step of a derivation.

    ``alike``: titles of further steps that differ from it in their module path only; ``more`` says how many. ``same``: its two sides are
    written alike. ``same_reason``: its reason is that of the step before it. ``same_as``: the equal step of an earlier chapter.
    ``tabled``: its formula is in the table of peak candidates.
    """

    number: str
    anchor: str
    title: str
    rule: PageLink
    badge: Badge
    before: TypesetFormula
    after: TypesetFormula
    because: str
    substituted: TypesetFormula
    value: PrintedAmount
    checked: str
    last: bool
    same: bool = False
    same_reason: bool = False
    same_as: PageLink | None = None
    tabled: bool = False
    alike: tuple[str, ...] = ()
    more: str = ""

    @property
    def short(self) -> bool:
        """Whether it fits a line."""
        return not self.last and len(self.before.pieces) == len(self.after.pieces) == 1


@dataclass(frozen=True, slots=True)
class TermRow:
    """An addend of a quantity. ``share`` is empty where a part of the whole makes no sense."""

    site: str
    formula: TypesetFormula
    value: str
    share: str
    because: str


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """A moment at which memory can peak. ``name`` is that of the step at ``target`` that derives it, where there is one, and ``formula``
    then says what sets it apart from another moment, if it is told so. ``parts`` are its bytes in the
    columns of the chapter."""

    at: str
    name: str
    target: str
    formula: TypesetFormula | None
    value: PrintedAmount
    parts: tuple[str, ...]
    largest: bool


@dataclass(frozen=True, slots=True)
class Chapter:
    """The derivation of one quantity. ``aside``: the answers on the first screen do not rest on its steps. Where all ``terms`` are the same
    thing, ``what`` says it. Of a maximum, ``here`` is the candidate that is largest, ``note`` says which, and ``throughout`` is what all
    of them have alike. Of a form by cases, ``where`` names the case in force, and ``otherwise`` is the general form, unless that is a
    maximum.
    """

    number: str
    anchor: str
    quantity: str
    aside: bool
    meaning: str
    formula: TypesetFormula | None
    here: TypesetFormula | None
    note: str
    where: str
    otherwise: TypesetFormula | None
    value: PrintedAmount | None
    unknown: str
    badge: Badge
    compared: str
    steps: tuple[StepView, ...]
    terms: tuple[TermRow, ...]
    what: str
    total: str
    candidates: tuple[CandidateRow, ...]
    columns: tuple[tuple[str, str], ...]
    throughout: tuple[tuple[str, str], ...]
    titles: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DoublingTable:
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[TypesetFormula, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class CrossoverView:
    """From ``at`` on, ``fast`` is larger than ``slow``."""

    quantity: str
    dim: TypesetFormula
    fast: TypesetFormula
    slow: TypesetFormula
    at: str


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    formula: TypesetFormula
    value: str
    kind: str
    sites: tuple[str, ...]
    because: str


@dataclass(frozen=True, slots=True)
class RangeRow:
    dim: TypesetFormula
    ranges: str
    searched: str


@dataclass(frozen=True, slots=True)
class RuleOfThumbView:
    """A rule of thumb beside the exact count, and the steps from the one to the other."""

    number: str
    name: str
    anchor: str
    statement: str
    letters: str
    assumes: str
    stands_for: str
    source: PageLink
    value: PrintedAmount
    exact: PrintedAmount
    off: str
    verdict: str
    differences: tuple[DifferenceRow, ...]
    closes: str
    steps: tuple[StepView, ...]
    steps_title: str
    outside: tuple[tuple[str, PrintedAmount], ...]
    ranges: tuple[RangeRow, ...]


@dataclass(frozen=True, slots=True)
class InapplicableRuleOfThumb:
    """A rule of thumb that says nothing about this model, and why."""

    name: str
    statement: str
    source: PageLink
    reason: str


@dataclass(frozen=True, slots=True)
class CheckRow:
    quantity: str
    derived: str
    measured: str
    difference: str
    tolerance: str
    badge: Badge
    note: str


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule that steps use: what it states of which shapes, where that is from, and what tests it. ``inside``: no step is made by it
    alone, but operators that steps add up are counted by it."""

    name: str
    anchor: str
    statement: str
    shapes: str
    source: str
    test: str
    use: str
    inside: bool = False


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """An operator of the step. Shares are of all calls and of all FLOPs; ``places`` say where a refused one runs."""

    operator: str
    anchor: str
    runs: TypesetFormula | None
    value: str
    share: str
    flops: str
    flops_share: str
    kind: str
    because: str
    source: str
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KindRow:
    """What the operators of one kind add up to: those counted, those free, those refused."""

    kind: str
    operators: str
    calls: str
    share: str
    flops: str
    flops_share: str


@dataclass(frozen=True, slots=True)
class CoverageSection:
    """How much of a step is counted."""

    summary: str
    kinds: tuple[KindRow, ...]
    rows: tuple[LedgerRow, ...]
    title: str
    accepted: bool


@dataclass(frozen=True, slots=True)
class InstantRow:
    """Live bytes at one instant of the step, by role."""

    name: str
    after: str
    values: tuple[str, ...]
    total: str
    mark: str


@dataclass(frozen=True, slots=True)
class AliveRow:
    """Storages alive at the peak that are alike; ``each`` is empty where there is one."""

    name: str
    role: str
    each: str
    total: str
    share: str


@dataclass(frozen=True, slots=True)
class AllocatorRow:
    """What the CUDA allocator would make of one step."""

    step: str
    live: str
    allocated: str
    reserved: str
    segments: str


@dataclass(frozen=True, slots=True)
class LiveBytesView:
    """Live bytes over the step at the sizes of the page. ``roles`` are (name, class, bytes and share at the peak), the top of the
    figure first; ``columns`` those of the table of landmarks. ``allocator`` is empty where the step was not run at this depth; the
    sentences of ``simulated`` go with it."""

    finding: str
    largest: str
    note: str
    drawing: Drawing
    roles: tuple[tuple[str, str, str, str], ...]
    columns: tuple[tuple[str, str], ...]
    total: PrintedAmount
    landmarks: tuple[InstantRow, ...]
    alive: tuple[AliveRow, ...]
    rest: AliveRow | None
    allocator: tuple[AllocatorRow, ...]
    simulated: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PeakIntervalRow:
    """A stretch of one size in which one moment is the peak; ``here`` if the page's own size lies in it."""

    words: str
    at: str
    here: bool


@dataclass(frozen=True, slots=True)
class PeakCrossoverRow:
    """Which moment is the peak as one size moves."""

    dim: TypesetFormula
    value: str
    intervals: tuple[PeakIntervalRow, ...]
    searched: str


@dataclass(frozen=True, slots=True)
class SavedRow:
    """A kind of tensor kept for the backward. Where ``same_as`` names another, it counts there."""

    tensor: str
    site: str
    shape: str
    times: TypesetFormula | None
    formula: TypesetFormula | None
    value: str
    share: str
    needed_by: str
    because: str
    same_as: str


@dataclass(frozen=True, slots=True)
class MemorySection:
    """What is said of memory beside its closed forms; where there is no timeline, ``no_timeline`` says why."""

    live_bytes: LiveBytesView | None
    no_timeline: str
    peak_crossovers: tuple[PeakCrossoverRow, ...]
    saved: tuple[SavedRow, ...]
    saved_title: str
    saved_total: PrintedAmount | None


@dataclass(frozen=True, slots=True)
class RecordedRow:
    """A recorded measurement of the page's own step: where, when and how; its median and the middle half of its repetitions."""

    machine: str
    date: str
    how: str
    step: str
    spread: str
    parts: tuple[tuple[str, str], ...]
    throughput: str
    share: str
    memory: str
    command: str


@dataclass(frozen=True, slots=True)
class RecordedRuns:
    """What was measured of the step's time; where nothing was, ``why`` says so. ``otherwise`` names runs of the model in other steps."""

    rows: tuple[RecordedRow, ...]
    why: str
    otherwise: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Command:
    words: str
    line: str


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report. ``date`` is the day, with what was noted of the machine; ``inputs`` a line from which it can be made again, empty
    where it is not written down. ``exchanged`` says where torch runs other kernels by default. ``derivation_rules`` are those of
    ``rules`` that the steps of ``chapters`` use."""

    model: str
    headline: str
    step: str
    subtitle: str
    sizes: str
    date: str
    tiles: tuple[Tile, ...]
    tally: CheckTally
    exchanged: tuple[str, ...]
    answers: tuple[AnswerRow, ...]
    assumptions: tuple[AssumptionRow, ...]
    conventions: tuple[AssumptionRow, ...]
    notes: tuple[str, ...]
    symbols: tuple[SymbolRow, ...]
    chapters: tuple[Chapter, ...]
    steps: str
    memory: MemorySection
    figures: Figures
    dominant: tuple[tuple[str, tuple[TermRow, ...]], ...]
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
    coverage: CoverageSection
    provenance: tuple[tuple[str, str], ...]
    commands: tuple[Command, ...]
    sections: Mapping[str, str]
    inputs: str = ""

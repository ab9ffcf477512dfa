"""The document model of a report, with every number already written. Built once, read by all writers.

Text fields are plain and untrusted; each writer escapes them for its own format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from reports.figures.shapes import Drawing, Figures
from reports.typeset.marks import Marks
from reports.typeset.numbers import PrintedAmount


class FormulaPieces(NamedTuple):
    """A formula in pieces (see ``reports.typeset.latex``). ``wide``: it may need to scroll. ``rows``: one term a row, as (pieces,
    label)."""

    pieces: tuple[Marks, ...]
    wide: bool = False
    rows: tuple[tuple[tuple[Marks, ...], str], ...] = ()


@dataclass(frozen=True)
class TypesetFormula:
    """A formula as plain text, one for each term, and in LaTeX, which is made on first use: a terminal never needs it."""

    plain: tuple[str, ...]
    write: Callable[[], FormulaPieces] = field(compare=False, repr=False)

    @cached_property
    def _pieces(self) -> FormulaPieces:
        return self.write()

    @property
    def pieces(self) -> tuple[Marks, ...]:
        return self._pieces.pieces

    @property
    def wide(self) -> bool:
        return self._pieces.wide

    @property
    def rows(self) -> tuple[tuple[tuple[Marks, ...], str], ...]:
        return self._pieces.rows


@dataclass(frozen=True, slots=True)
class Badge:
    """A verdict by sign, words and color. ``tone``, which gives the color: good, proved, bad, open."""

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
    """Counts of checks by verdict. ``tone``: bad if one failed. ``why``: why none ran, or why they ran at these ``sizes``."""

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

    ``alike``: patterns of the titles of ``others`` further steps that differ from it in their module path only, as ``more`` says.
    ``same``: its two sides are written alike. ``same_reason``: reason, rule and check are those of the step before it. ``reason_of``: an
    earlier step that has them. ``same_as``: the equal step of an earlier chapter.
    ``tabled``: its formula is in the table of peak candidates. ``folded``: it leads to a peak candidate that is not the largest.
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
    reason_of: PageLink | None = None
    same_as: PageLink | None = None
    tabled: bool = False
    folded: bool = False
    alike: tuple[str, ...] = ()
    others: int = 0
    more: str = ""

    @property
    def short(self) -> bool:
        """Whether it fits on a line."""
        return not self.last and len(self.before.pieces) == len(self.after.pieces) == 1


@dataclass(frozen=True, slots=True)
class TermRow:
    """An addend of a quantity. ``share``: its part of the total; empty if the total is 0 or unknown."""

    module_path: str
    formula: TypesetFormula
    value: str
    share: str
    because: str


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """A peak candidate. ``name``: the short name that the step at ``target`` gives it, or empty. ``formula``: with a name, its difference
    from another candidate, or ``None``; else its closed form. ``parts``: its bytes by role, in the columns of the chapter."""

    at: str
    name: str
    target: str
    formula: TypesetFormula | None
    value: PrintedAmount
    parts: tuple[str, ...]
    largest: bool


@dataclass(frozen=True, slots=True)
class Chapter:
    """The derivation of one quantity.

    ``aside``: no answer on the first screen depends on it. ``shared_reason``: the common description of all ``terms``, if they have one.
    For a maximum, ``at_sizes`` is the largest candidate, ``note`` names it, and ``throughout`` has the bytes by role that all candidates
    share. For a form by cases, ``where`` is the case that holds here and ``otherwise`` the general form, unless that is a maximum.
    ``same_table``: an earlier chapter whose table has the same rows.
    """

    number: str
    anchor: str
    quantity: str
    aside: bool
    meaning: str
    formula: TypesetFormula | None
    at_sizes: TypesetFormula | None
    note: str
    where: str
    otherwise: TypesetFormula | None
    value: PrintedAmount | None
    unknown: str
    badge: Badge
    compared: str
    steps: tuple[StepView, ...]
    terms: tuple[TermRow, ...]
    shared_reason: str
    total: str
    candidates: tuple[CandidateRow, ...]
    columns: tuple[tuple[str, str], ...]
    throughout: tuple[tuple[str, str], ...]
    titles: Mapping[str, str]
    same_table: PageLink | None = None

    @property
    def main(self) -> tuple[StepView, ...]:
        """The steps that a reader needs first: for a maximum of several candidates, those of the largest one."""
        return tuple(step for step in self.steps if not step.folded and step not in self.closing)

    @property
    def closing(self) -> tuple[StepView, ...]:
        """The step after ``others``: the maximum."""
        return self.steps[-1:] if self.others else ()

    @property
    def others(self) -> tuple[StepView, ...]:
        """All further steps."""
        return tuple(step for step in self.steps if step.folded)

    @property
    def untabled(self) -> tuple[StepView, ...]:
        """Those of ``others`` that are not in the table of peak candidates."""
        return tuple(step for step in self.others if not step.tabled)


@dataclass(frozen=True, slots=True)
class DoublingTable:
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[TypesetFormula, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class CrossoverView:
    """For sizes from ``at``, ``fast`` is at least as large as ``slow``."""

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
    module_paths: tuple[str, ...]
    because: str


@dataclass(frozen=True, slots=True)
class RuleAssumptionRow:
    """An assumption of a rule of thumb: whether this step meets it, what the difference does to the rule, and why."""

    statement: str
    met: str
    effect: str
    because: str


@dataclass(frozen=True, slots=True)
class RangeRow:
    dim: TypesetFormula
    ranges: str
    searched: str


@dataclass(frozen=True, slots=True)
class RuleOfThumbView:
    """A rule of thumb, the exact count, and the steps from the rule to the count."""

    number: str
    name: str
    anchor: str
    statement: str
    letters: str
    assumes: tuple[RuleAssumptionRow, ...]
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
    """A rule of thumb that does not apply to this model, and why."""

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
    """A rule used in the steps: statement, shapes, source, tests, number of uses. ``inside``: it is used only for operators inside sums."""

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
    """An operator of the step, with its shares of all calls and FLOPs. ``places``: where a refused operator runs."""

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
    """Totals of the operators of one kind: counted, free or refused."""

    kind: str
    operators: str
    calls: str
    share: str
    flops: str
    flops_share: str


@dataclass(frozen=True, slots=True)
class CoverageSection:
    """The coverage section: how many operators, calls and FLOPs are counted."""

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
    """Equal storages alive at the peak. ``each``: count × bytes, empty for a single storage."""

    name: str
    role: str
    each: str
    total: str
    share: str


@dataclass(frozen=True, slots=True)
class AllocatorRow:
    """One step in the simulated CUDA allocator: bytes and segments at its peak."""

    step: str
    live: str
    allocated: str
    reserved: str
    segments: str


@dataclass(frozen=True, slots=True)
class LiveBytesView:
    """Live bytes over the step at the sizes of the page. ``roles``: (name, CSS class, bytes at the peak, share), top of the figure first.
    ``columns``: those of the table of landmarks. ``allocator``: empty if the step was not traced at this depth; ``simulated`` has its
    notes."""

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
    """An interval of one size in which one candidate is the peak. ``formula``: its bytes in this size, the others being numbers.
    ``is_current``: the interval contains the size of the page."""

    words: str
    at: str
    formula: TypesetFormula | None
    is_current: bool


@dataclass(frozen=True, slots=True)
class PeakCrossoverRow:
    """The peak candidates that are the peak, by intervals of one size."""

    dim: TypesetFormula
    value: str
    intervals: tuple[PeakIntervalRow, ...]
    searched: str


@dataclass(frozen=True, slots=True)
class SavedRow:
    """A kind of tensor saved for backward. ``same_as``: the tensor with the same storage, where its bytes are counted."""

    tensor: str
    module_path: str
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
    """The memory section, without the closed forms. ``no_timeline``: why there is no timeline."""

    live_bytes: LiveBytesView | None
    no_timeline: str
    peak_crossovers: tuple[PeakCrossoverRow, ...]
    saved: tuple[SavedRow, ...]
    saved_title: str
    saved_total: PrintedAmount | None


@dataclass(frozen=True, slots=True)
class RecordedRow:
    """A recorded measurement of the page's step: machine, date, method, median and middle half of its repetitions."""

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
    """The recordings of this step. ``why``: why there is none. ``otherwise``: recordings of this model with other options or sizes."""

    rows: tuple[RecordedRow, ...]
    why: str
    otherwise: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EquationRow:
    """An equation of the model as text. ``parameter``: the gradient of a parameter."""

    equation: str
    shape: str
    flops: str
    parameter: bool


@dataclass(frozen=True, slots=True)
class EquationTable:
    title: str
    rows: tuple[EquationRow, ...]


@dataclass(frozen=True, slots=True)
class ModelSection:
    """The forward and the gradients as equations. ``why``: why there are none."""

    tables: tuple[EquationTable, ...]
    notes: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class LeverRow:
    """A change of the step and its peak. ``matmul``: the change of its matmul FLOPs. ``fits``: whether the device holds the peak."""

    change: str
    peak: PrintedAmount
    difference: str
    at: str
    matmul: str
    fits: str


@dataclass(frozen=True, slots=True)
class PeakStory:
    """The peak in words: when, its largest parts, the largest term of its closed form, fit, what lowers it. ``bound``: the peak
    without its largest tensors. ``target``: the chapter that derives it. Names of code are between backticks."""

    when: str
    parts: tuple[str, ...]
    term: TypesetFormula | None
    term_share: str
    fit: str
    bound: str
    best: str
    levers: tuple[LeverRow, ...]
    device: str
    target: str


@dataclass(frozen=True, slots=True)
class ClaimPart:
    """A part of a sentence: ``words``, then a ``number`` with the expression that it must equal, if it has one."""

    words: str
    number: str = ""
    expr: str = ""


@dataclass(frozen=True, slots=True)
class DesignSection:
    """A section of a design document. ``statements``: those of a ``napkin`` block, which define the names of the claims. ``rows`` and
    ``columns``: the fit grid."""

    statements: tuple[str, ...]
    sentences: tuple[tuple[ClaimPart, ...], ...]
    changes: tuple[LeverRow, ...]
    device: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    recommendation: str
    otherwise: str

    @property
    def grid(self) -> tuple[tuple[str, str], ...]:
        """The columns of the fit grid."""
        return (("", "text"), *((title, "number") for title in self.columns))


@dataclass(frozen=True, slots=True)
class Command:
    words: str
    line: str


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report.

    ``date``: date and machine. ``inputs``: the line from which ``napkin verify`` makes it again, or empty. ``exchanged``: where torch runs
    other kernels by default. ``derivation_rules``: the rules that the steps of ``chapters`` use.
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
    design: DesignSection | None = None
    inputs: str = ""

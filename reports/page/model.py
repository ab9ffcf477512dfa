"""What all documents are made of: formulas, badges, links, steps, chapters; every number is already written.

Text fields are plain and untrusted; each writer escapes them for its own format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from calc.symbolic.marks import Marks
from reports.typeset.numbers import PrintedAmount


class FormulaPieces(NamedTuple):
    """A formula in pieces (see ``calc.symbolic.latex``). ``wide``: it may need to scroll. ``rows``: one term a row, as (pieces,
    label)."""

    pieces: tuple[Marks, ...]
    wide: bool = False
    rows: tuple[tuple[tuple[Marks, ...], str], ...] = ()


@dataclass(frozen=True)
class TypesetFormula:
    """A formula as plain text, one for each term, and in LaTeX, which is made on first use: a terminal never needs it. ``labelled``: it is
    a sum, and terms have labels."""

    plain: tuple[str, ...]
    write: Callable[[], FormulaPieces] = field(compare=False, repr=False)
    labelled: bool = False

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
    """A reference inside the page (``target`` is an id, ``title`` says of what it is), or a citation (``address`` is a URL)."""

    words: str
    target: str = ""
    address: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class StepView:
    """A step of a derivation.

    ``alike``: patterns of the titles of ``others`` further steps that differ from it in their module path only, as ``more`` says.
    ``same``: its two sides are written alike, but for the order of factors. ``same_reason``: reason, rule and check are those of the step
    before it. ``reason_of``: an earlier step that has them. ``same_as``: the equal step of an earlier chapter. ``equation``: its second
    side, which is the closed form of its chapter.
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
    equation: PageLink | None = None
    tabled: bool = False
    folded: bool = False
    alike: tuple[str, ...] = ()
    others: int = 0
    more: str = ""

    @property
    def zero(self) -> bool:
        """Whether it has nothing to add up, so that its reason says all."""
        return self.before.plain == self.after.plain == ("0",)

    @property
    def lines(self) -> tuple[tuple[str, TypesetFormula], ...]:
        """Its formulas, each with the sign before it: both sides and the sizes substituted, but none that is as the one above it."""
        if self.zero:
            return ()
        further = (self.before if self.same else self.after, self.substituted)
        above = (self.before, further[0])
        return (("", self.before), *(("=", line) for line, last in zip(further, above, strict=True) if line.plain != last.plain))

    @property
    def short_lines(self) -> tuple[tuple[str, TypesetFormula], ...]:
        """``lines`` without the side that is the closed form of its chapter."""
        return (self.lines[0], self.lines[-1]) if self.equation and len(self.lines) > 2 else self.lines

    @property
    def short(self) -> bool:
        """Whether it fits on a line."""
        return not self.last and len(self.before.pieces) == len(self.after.pieces) == 1


@dataclass(frozen=True, slots=True)
class StepDifference:
    """What distinguishes steps from others with the same formulas: ``labels``, each with the one in whose place it is, and the reason.
    ``titles`` of the steps; none where it is every step of a single tensor."""

    titles: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    because: str
    rule: PageLink
    badge: Badge
    checked: str


@dataclass(frozen=True, slots=True)
class SameSteps:
    """The earlier chapter that has the ``count`` steps of another one, and in what they differ."""

    link: PageLink
    count: int
    differences: tuple[StepDifference, ...]


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


_LEADING = 8  # peak candidates of a quantity that no answer depends on


@dataclass(frozen=True, slots=True)
class Chapter:
    """The derivation of one quantity.

    ``aside``: pages that must stay light leave its steps out. ``shared_reason``: the common description of all ``terms``, if they have one.
    For a maximum, ``at_sizes`` is the largest candidate, ``note`` names it, ``loops`` says what the names of candidates in a loop mean,
    and ``throughout`` has the bytes by role that all share. For a form by cases, ``where`` is the case that holds here and ``otherwise``
    the general form, unless that is a maximum.
    ``same_table``: an earlier chapter whose table has the same rows; ``same_steps``: one that has its steps, which are then left out.
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
    loops: str
    titles: Mapping[str, str]
    same_table: PageLink | None = None
    same_steps: SameSteps | None = None

    @property
    def derived(self) -> bool:
        """Whether it has steps, if in another chapter."""
        return bool(self.steps) or self.same_steps is not None

    @property
    def count(self) -> int:
        """Number of its steps, those that are shown once or in another chapter included."""
        return self.same_steps.count if self.same_steps else sum(1 + step.others for step in self.steps)

    @property
    def leading(self) -> tuple[CandidateRow, ...]:
        """The largest peak candidates."""
        return self.candidates[:_LEADING]

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
class Command:
    words: str
    line: str

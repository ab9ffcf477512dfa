"""Derivation, checks and rules of thumb → ``Page``: every number and word of a report, written once for all formats."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from calc.derive.live_bytes import Timeline
from calc.derive.peak_crossovers import PeakCrossovers
from calc.derive.quantities import absent, applies
from calc.derive.result import Derivation, Step
from calc.derive.rules_of_thumb import RuleComparison
from calc.derive.to_json import checked_sizes
from calc.errors import BadInputError, listed
from calc.graph.exchanges import headlines, in_force
from calc.graph.folds import named_quotient
from calc.graph.guards import BRANCH, SPECIAL_CASE, Assumption
from calc.graph.step import TracedDim
from calc.hardware.accelerators import Accelerator
from calc.memory.peak_levers import PeakLever
from calc.options import TRAIN
from calc.performance.records import Evidence
from calc.symbolic import latex, marks
from calc.symbolic.expression import Compare, Expression, FunctionCall, Name, Remainder, walk
from calc.symbolic.parser import free_names
from calc.symbolic.tree import is_maximum
from calc.symbolic.writer import as_text
from reports.figures.drawn import UNNAMED, figures
from reports.figures.shapes import Figure
from reports.page import checks as check_rows
from reports.page import rules
from reports.page.chapters import chapter, reported, sizes_with_quotients, trees, with_tables_once, without_steps
from reports.page.conventions import (
    GIVEN,
    NOT_COVERED,
    OTHERWISE,
    OWN_CASE,
    REFUSED,
    STEPS,
    TRACED_AGAIN,
    attends,
    conventions,
    names_outside_modules,
    options_in_words,
    runs_prediction,
)
from reports.page.coverage import coverage
from reports.page.design import DesignSection, design_section
from reports.page.equations import NO_EQUATIONS, ModelSection
from reports.page.inputs import Inputs
from reports.page.memory import memory
from reports.page.model import Chapter, Command, FormulaPieces, TypesetFormula
from reports.page.parts import ANSWERS, UNCHECKED, badge, chapter_anchor, formula, meaning_in, or_unknown, sentence, sizes_text
from reports.page.peak import TARGET, PeakStory, peak_story
from reports.page.peak_candidates import PeakCandidates, letters
from reports.page.records import recorded
from reports.page.report import AnswerRow, AssumptionRow, Page, SymbolRow, Tile
from reports.page.same_steps import with_steps_once
from reports.page.sensitivity import Doubled, crossover, dominant, doubled, doublings, inapplicable, thumbs
from reports.page.steps import Anchors, with_references
from reports.typeset import expressions, numbers, plain
from reports.typeset.wording import Stated, as_condition, declared, headline, in_words, stated, undivided

SECTIONS = {
    "answers": "Questions and answers",
    "assumptions": "Assumptions",
    "symbols": "Symbols and model",
    "derivation": "Derivation",
    "memory": "Memory over the step",
    "sensitivity": "Sensitivity",
    "textbook": "Rules of thumb",
    "checks": "Checks",
    "time": "Time",
    "coverage": "Coverage",
    "not-covered": "Not covered",
    "rules": "Rules used",
    "provenance": "Provenance",
    "commands": "Commands",
}


@dataclass(frozen=True)
class PageContent:
    """What a page is made of.

    ``unchecked``: why there are no ``checks``. ``chosen``: the sizes that the user chose; all others are the model's defaults.
    ``no_timeline``: why there is no ``timeline``. ``sensitivity``: with peak crossovers, doublings and figures, which take seconds for a
    large model. ``inputs``: what makes the page again, to embed in it. ``evidence``: recordings of real runs. ``device``: what the peak is
    compared with. ``roof``: the roofline figure. ``levers``: changes of the step, with the peaks that they give.
    ``equations``: those of the model. ``with_design``: with a section for a design document. ``only``: the quantities of the page, if
    not all; ``solved``: without those that are unknown. With ``further``, the commands that show more of them, the page has their values,
    closed forms and parts, and no steps.
    """

    derivation: Derivation
    checks: Any = None
    comparisons: tuple[RuleComparison, ...] = ()
    commands: Sequence[Command] = ()
    chosen: Mapping[str, int] = field(default_factory=dict)
    unchecked: str = ""
    timeline: Timeline | None = None
    no_timeline: str = ""
    inputs: Inputs | None = None
    evidence: Evidence | None = None
    device: Accelerator | None = None
    roof: Figure = UNNAMED
    levers: tuple[PeakLever, ...] = ()
    equations: ModelSection = NO_EQUATIONS
    with_design: bool = False
    only: Collection[str] = ()
    solved: bool = False
    further: Sequence[Command] = ()

    @cached_property
    def names(self) -> list[str]:
        """The quantities that have a chapter."""
        names = (name for name in reported(self.derivation) if not self.only or name in self.only)
        return [name for name in names if self.derivation[name].text is not None or not self.solved]

    @cached_property
    def verdicts(self) -> Mapping[str, Any]:
        """Quantity → verdict of the real run."""
        return {v.quantity: v for v in self.checks.verdicts} if self.checks is not None else {}

    @cached_property
    def notes_of_checks(self) -> list[str]:
        return check_rows.notes([*self.verdicts.values()])

    @cached_property
    def moves(self) -> Sequence[PeakCrossovers]:
        """The peak crossovers."""
        return self.derivation.peak_crossovers

    @cached_property
    def twice(self) -> Doubled:
        """What doubles with which size."""
        return doubled(self.derivation)

    @cached_property
    def narrowed(self) -> Derivation:
        """The derivation with the quantities of the page, and their steps alone."""
        if not self.only:
            return self.derivation
        quantities = {name: quantity for name, quantity in self.derivation.quantities.items() if name in self.names}
        return replace(self.derivation, quantities=quantities, steps=tuple(self.steps))

    @cached_property
    def steps(self) -> list[Step]:
        """The steps of the chapters."""
        return [] if self.further else [step for step in self.derivation.steps if step.quantity in self.names]

    @cached_property
    def shown(self) -> list[Expression]:
        """Every formula of the page."""
        return [*trees(self.narrowed, self.comparisons), *(Name(t.dim) for t in self.moves)]

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Size of each name in ``shown``."""
        return sizes_with_quotients(self.derivation.sizes, self.shown)

    @cached_property
    def unbacked(self) -> list[str]:
        """The data-dependent sizes."""
        return [dim.name for dim in self.derivation.dims if dim.unbacked_at]

    @cached_property
    def story(self) -> PeakStory | None:
        return peak_story(self.derivation, self.timeline, self.levers, self.device)

    def chapters(self, anchors: Anchors) -> tuple[Chapter, ...]:
        """The chapters; their steps take names in ``anchors``."""
        moments = PeakCandidates()
        numbered = enumerate(self.names, 1)
        drafts = (chapter(i, self.derivation[name], self.derivation, self.verdicts, self.sizes, anchors, moments) for i, name in numbered)
        return with_references(with_steps_once(with_tables_once(without_steps(each) if self.further else each for each in drafts)))

    def tiles(self) -> tuple[Tile, ...]:
        at = _other_sizes(self.derivation, self.checks)
        return tuple(_tile(name, question, self.derivation, self.verdicts, at) for name, question in ANSWERS)

    def exchanged(self) -> tuple[str, ...]:
        """Where torch runs other kernels by default than the derived step."""
        return self.checks.exchanged if self.checks is not None else tuple(headlines(self.derivation.assumptions))

    @cached_property
    def assumed(self) -> Sequence[Stated]:
        """The assumptions of the step, but for operators that torch exchanges."""
        exchanged = [exchange.assumption for exchange in in_force(self.derivation.assumptions)]
        assumed = [assumption for assumption in self.derivation.assumptions if assumption not in exchanged]
        return stated((*declared(self.derivation.dims, assumed), *assumed))

    def assumptions(self) -> tuple[AssumptionRow, ...]:
        return tuple(_assumption(row, self.unbacked) for row in self.assumed)

    def symbols(self) -> tuple[SymbolRow, ...]:
        """One row for each symbol in the formulas of the page, those of its assumptions included where it shows them."""
        declared_names = {dim.name for dim in self.derivation.dims}
        used = set() if self.only else declared_names.intersection(name for row in self.assumed for name in _names_in(row))
        used = used.union(*(expressions.names(tree) for tree in self.shown))
        return _symbols(self.narrowed, self.chosen, self.sizes, used, any(expressions.has_layers(tree) for tree in self.shown))

    def tally(self) -> check_rows.CheckTally:
        """The counts of checks, at those sizes of the run that the page has symbols for."""
        at = None if self.checks is None else checked_sizes(self.derivation, self.checks.sizes)
        return check_rows.tally(self.checks, self.unchecked, at)

    def conventions(self) -> tuple[AssumptionRow, ...]:
        of = self.derivation
        by_data, attention, predicts = bool(self.unbacked), attends(of), runs_prediction(of)
        rows = conventions(of.options, data_dependent=by_data, attention=attention, predicts=predicts)
        return tuple(AssumptionRow(None, *row) for row in rows)

    def design(self) -> DesignSection | None:
        if not self.with_design:
            return None
        model = self.inputs.model if self.inputs is not None else self.derivation.model
        return design_section(self.derivation, self.story, self.levers, self.device, model, self.chosen)


def build(content: PageContent) -> Page:
    """The page of a derivation, with every number and word written. Raises ``ValueError`` if a step's substituted formula does not have
    its value."""
    derivation, inputs, comparisons, anchors = content.derivation, content.inputs, content.comparisons, Anchors()
    chapters = content.chapters(anchors)
    return Page(
        model=derivation.model,
        headline=headline(derivation.specialization_reasons, derivation.sizes),
        step=STEPS[derivation.options.get("mode", TRAIN)],
        subtitle=options_in_words(derivation),
        sizes=sizes_text(derivation.sizes),
        date=inputs.noted if inputs is not None else today(),
        tiles=content.tiles(),
        tally=content.tally(),
        exchanged=content.exchanged(),
        counted_with=content.checks.counted_with if content.checks is not None else (),
        answers=tuple(_answer(c) for c in chapters),
        assumptions=content.assumptions(),
        conventions=content.conventions(),
        notes=tuple(note if "\n" in note.strip() else sentence(note.strip()) for note in derivation.notes),
        symbols=content.symbols(),
        chapters=chapters,
        steps=numbers.integer(sum(c.count for c in chapters)),
        memory=memory(derivation, content.timeline, content.no_timeline, content.moves),
        equations=content.equations,
        peak=content.story,
        figures=figures(derivation, content.twice, comparisons, content.device, content.roof),
        dominant=(largest := tuple(dominant(derivation, content.only))),
        undivided=undivided(row.part for _, rows in largest for row in rows),
        doublings=doublings(derivation, content.twice),
        crossover=crossover(derivation),
        rules_of_thumb=tuple(thumbs(comparisons, derivation, content.sizes, anchors)),
        inapplicable_rules=tuple(inapplicable(comparisons)),
        checks=tuple(check_rows.row(v, content.notes_of_checks) for v in content.verdicts.values()),
        check_notes=tuple(content.notes_of_checks),
        certificates=tuple(sizes_text(c.sizes) + f": {numbers.integer(c.quantities)} quantities equal" for c in derivation.certificates),
        recorded=recorded(derivation, content.evidence, content.timeline),
        not_covered=tuple(_not_covered(derivation, content.verdicts)),
        rules=rules.used([*content.steps, *(step for c in comparisons for step in c.steps)]),
        derivation_rules=rules.used(content.steps),
        outside_modules=names_outside_modules(derivation),
        coverage=coverage(derivation.ledger),
        provenance=tuple(_provenance(derivation, content.checks)),
        commands=tuple(content.commands),
        further=tuple(content.further),
        sections=SECTIONS,
        design=content.design(),
        inputs=inputs.text() if inputs is not None else "",
    )


def today() -> str:
    """Today as YYYY-MM-DD, or the date in SOURCE_DATE_EPOCH, with which two runs write equal bytes. Raises ``BadInputError``."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    if not fixed:
        return datetime.datetime.now(datetime.UTC).date().isoformat()
    try:
        return datetime.datetime.fromtimestamp(int(fixed), datetime.UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        raise BadInputError(f"SOURCE_DATE_EPOCH = {fixed[:40]!r} is not a time: give seconds since 1970 as an integer") from None


def _other_sizes(derivation: Derivation, checks: Any) -> str:
    """The sizes of the real run that differ from those of the answers, as text; empty if none does."""
    if checks is None:
        return ""
    return sizes_text({name: value for name, value in checks.sizes.items() if derivation.sizes.get(name) != value})


def _tile(name: str, question: str, derivation: Derivation, verdicts: Mapping[str, Any], at: str) -> Tile:
    quantity = derivation.quantities.get(name)
    if quantity is None or quantity.value is None:
        reason = quantity.unknown if quantity is not None else "this derivation has no such quantity"
        return Tile(question, None, reason, UNCHECKED, chapter_anchor(name) if quantity is not None else "answers")
    verdict = badge(name, verdicts)
    if at and name in verdicts:
        verdict = replace(verdict, words=f"{verdict.words} at {at}")
    if quantity.text is None:
        verdict = replace(verdict, words=f"{verdict.words}; value at these sizes, no closed form")
    target = TARGET if name == "memory.peak" else chapter_anchor(name)
    return Tile(question, numbers.amount(quantity.value, quantity.unit), "", verdict, target)


def _answer(chapter: Chapter) -> AnswerRow:
    formula = chapter.at_sizes or chapter.formula
    note = "; ".join(text for text in (chapter.note, f"where {chapter.where}" if chapter.where else "") if text)
    return AnswerRow(chapter.quantity, chapter.meaning, chapter.anchor, formula, note, chapter.value, chapter.unknown, chapter.badge)


def _assumption(stated: Stated, decided: Collection[str]) -> AssumptionRow:
    """An assumption as a row: a formula where it is one."""
    assumption = stated.assumptions[0]
    if len(stated.assumptions) > 1:
        return AssumptionRow(None, stated.words, stated.because, OTHERWISE)
    text, condition = in_words(assumption.expr), as_condition(assumption.expr)
    written = None if condition is None else latex.relation(condition)
    formula = None if not written else TypesetFormula((text,), partial(FormulaPieces, (written,), marks.width(written) > latex.WIDE))
    return AssumptionRow(formula, "" if formula else text, assumption.because, _effect(assumption, condition, decided))


_OF_KIND = {BRANCH: TRACED_AGAIN, SPECIAL_CASE: OWN_CASE}


def _effect(assumption: Assumption, condition: Expression | None, decided: Collection[str]) -> str:
    """What is to be done at sizes where the assumption does not hold. Expected values of data-dependent sizes (``decided``) do not limit
    the closed forms."""
    match condition:
        case FunctionCall("Eq", (Name(name), _)) if name in decided:
            return GIVEN
    if assumption.kind:
        return _OF_KIND[assumption.kind]
    return REFUSED if condition is not None and any(map(_is_divisor_or_bound, walk(condition))) else OTHERWISE


def _is_divisor_or_bound(node: Expression) -> bool:
    match node:
        case Remainder() | FunctionCall("Mod", _) | Compare(_, "<=", _):
            return True
    return False


def _names_in(stated: Stated) -> Collection[str]:
    """The sizes in an assumption; none in one that is a sentence."""
    if len(stated.assumptions) > 1:
        return ()
    with contextlib.suppress(BadInputError):
        return free_names(stated.assumptions[0].expr)
    return ()


def _symbols(
    derivation: Derivation, chosen: Mapping[str, int], sizes: Mapping[str, int], used: Collection[str], layers: bool
) -> tuple[SymbolRow, ...]:
    """A row for each symbol that is ``used``, and for the index of ``layers``."""
    rows = [_symbol(dim, derivation, chosen) for dim in derivation.dims if dim.name in used]
    declared_names = {dim.name for dim in derivation.dims}
    rows += [_undeclared(name, sizes) for name in sorted(set(used) - declared_names)]
    for name, letter in letters(dict.fromkeys(step.quantity for step in derivation.steps if is_maximum(step.after))).items():
        meaning = f"live bytes at the largest peak candidate of {name}; {letter}₂ at the second largest, and so on"
        rows.append(SymbolRow(formula(Name(f"{letter}_1")), meaning, "byte", "see its step", "derived"))
    if layers:
        index = TypesetFormula(("ℓ",), lambda: FormulaPieces(((marks.command(r"\ell"),),)))
        rows.append(SymbolRow(index, "index of the layer in a sum", "count", "1, 2, …", "index of a sum"))
    return tuple(rows)


def _symbol(dim: TracedDim, derivation: Derivation, chosen: Mapping[str, int]) -> SymbolRow:
    if dim.name in chosen:
        source = "given"
    elif dim.expr is not None:
        source = f"{'always' if dim.tied else 'by default'} {plain.plain_text(dim.expr)}"
    else:
        source = "the model's default"
    return SymbolRow(formula(Name(dim.name)), meaning_in(dim, derivation), "count", numbers.integer(dim.value), source)


def _undeclared(name: str, sizes: Mapping[str, int]) -> SymbolRow:
    quotient = named_quotient(name)
    meaning = "" if quotient is None else f"{as_text(quotient.top)} divided by {as_text(quotient.bottom)}"
    return SymbolRow(formula(Name(name)), meaning, "count", or_unknown(sizes.get(name)), "named by the trace")


def _not_covered(derivation: Derivation, verdicts: Mapping[str, Any]) -> Iterator[str]:
    reasons = {name: absent(name, derivation.options) for name in derivation}
    for reason in dict.fromkeys(filter(None, reasons.values())):
        absent_here = [name for name in derivation if reasons[name] == reason]
        yield f"{listed(absent_here)} {'is' if len(absent_here) == 1 else 'are'} not part of this step: {reason}."
    for name in derivation:
        if derivation[name].text is None and applies(name, derivation[name].unknown, derivation.options):
            is_unknown = derivation[name].value is None
            yield f"{name} is unknown: {derivation[name].unknown}." if is_unknown else f"{name}: {derivation[name].reason}."
    yield from check_rows.unmeasured(verdicts.values())
    yield from NOT_COVERED


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

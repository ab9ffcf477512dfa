"""The peak in a paragraph: when it is, what it consists of, which device holds it, and which changes lower it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from calc.derive.live_bytes import Alive, Instant, Timeline
from calc.derive.result import Candidate, Derivation
from calc.hardware.accelerators import Accelerator, accelerator
from calc.memory.peak_levers import BATCH, PeakLever, StepChange, matmul, zero_stages
from calc.symbolic import branches
from calc.symbolic.expression import Expression, Sum
from calc.symbolic.tree import value
from calc.units import Unit
from reports.figures.devices import capacity
from reports.page.instants import called, phase_of, short
from reports.page.model import LeverRow, PeakStory
from reports.page.operator_words import in_words, without_backticks
from reports.page.parts import chapter_anchor, formula
from reports.typeset import expressions, numbers
from reports.typeset.numbers import NBSP

TARGET = "peak"
COMMON_80_GB = "h100-sxm"
_PARTS = 3


def peak_story(
    derivation: Derivation, timeline: Timeline | None, levers: Sequence[PeakLever] = (), device: Accelerator | None = None
) -> PeakStory | None:
    """The peak told; ``None`` if it is unknown. ``device``: by default one of 80 GB."""
    quantity = derivation.quantities.get("memory.peak")
    if quantity is None or quantity.value is None:
        return None
    candidate = quantity.largest_candidate
    board = device or accelerator(COMMON_80_GB)
    largest = _largest_term(candidate, derivation) if candidate is not None else None
    exact = timeline is not None and not timeline.fewer
    return PeakStory(
        when=_when(quantity.value, timeline if exact else None, candidate),
        parts=_parts(quantity.value, timeline if exact else None, candidate),
        term=formula(largest[0]) if largest is not None else None,
        term_share=numbers.percent(Fraction(largest[1], quantity.value)) if largest is not None else "",
        fit=_fit(quantity.value, board),
        bound=_bound(quantity.value, timeline) if timeline is not None and exact else "",
        best=_best(quantity.value, levers, board),
        levers=(
            *(_row(lever, quantity.value, derivation, board) for lever in levers),
            *_bounds(derivation, timeline if exact else None, board),
        ),
        device=capacity(board.memory),
        target=chapter_anchor("memory.peak"),
    )


def _when(peak: int, timeline: Timeline | None, candidate: Candidate | None) -> str:
    """When the peak is, as a sentence."""
    read = _read(peak)
    if timeline is not None and timeline.peak.operator:
        return f"The peak of {read} is {phase_of(timeline)}, after {in_words(short(timeline.peak.operator), timeline.peak.module_path)}."
    if candidate is None:
        return f"The peak is {read}."
    return f"The peak of {read} is at this point of the step: {without_backticks(candidate.at)}."


def _parts(peak: int, timeline: Timeline | None, candidate: Candidate | None) -> str:
    """What makes most of the peak, as a sentence."""
    if timeline is not None and timeline.alive:
        rows = timeline.alive[:_PARTS]
        total = sum(row.total for row in rows)
        together = f"; together {_share(total, peak)}" if len(rows) > 1 else ""
        parts = [f"{_tensor(row)} ({_read(row.total)}, {_share(row.total, peak)})" for row in rows]
        return f"Its largest parts: {_listed(parts)}{together}."
    if candidate is None:
        return ""
    roles = sorted(candidate.part_values.items(), key=lambda item: -item[1])[:_PARTS]
    return f"Its largest parts: {_listed([f'{role} {_read(nbytes)} ({_share(nbytes, peak)})' for role, nbytes in roles])}."


def _tensor(row: Alive) -> str:
    return f"{numbers.integer(row.number)}{NBSP}× {_storage(row.name)}" if row.number > 1 else _storage(row.name)


def _storage(name: str) -> str:
    """A storage in words: one that an operator allocates is its output."""
    operator, at, module_path = name.partition(" at ")
    return f"the output of {in_words(operator, module_path)}" if at and operator != "made" else without_backticks(name)


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _fit(peak: int, board: Accelerator) -> str:
    """Whether a device holds the peak, as a sentence."""
    room = board.memory - peak
    name = f"a device of {capacity(board.memory)} ({board.name})"
    if room < 0:
        return f"It does not fit {name}: {_read(-room)} too much."
    return f"It fits {name} and leaves {_read(room)} for allocator rounding, library workspaces and all else."


def _bounds(derivation: Derivation, timeline: Timeline | None, board: Accelerator) -> Iterator[LeverRow]:
    """Changes of which only a lower bound is derived, all else unchanged: cross-entropy in chunks, and the stages of ZeRO."""
    peak = derivation["memory.peak"].value or 0
    if timeline is not None and timeline.without_largest is not None and _is_chunkable(timeline):
        highest = timeline.without_largest.highest
        yield _bound_row("cross-entropy in chunks of tokens", highest.total, peak, board, f"{highest.phase}, after {called(highest)}")
    for z in zero_stages(derivation):
        yield _bound_row(f"ZeRO-{z.stage} on {z.devices} devices", z.peak, peak, board, z.at)


def _bound_row(change: str, least: int, peak: int, board: Accelerator, at: str) -> LeverRow:
    fits = "perhaps" if least <= board.memory else "no"
    fits = "yes" if peak <= board.memory else fits
    return LeverRow(f"{change}, at least", numbers.amount(least, Unit.BYTE), difference(least, peak), at, "unchanged", fits)


def _is_chunkable(timeline: Timeline) -> bool:
    """Whether the largest tensors at the peak are those of a cross-entropy's log-softmax."""
    bound = timeline.without_largest
    first = next((a for a in timeline.alive if bound is not None and a.each == bound.each), None)
    return first is not None and "log_softmax" in first.name


def _bound(peak: int, timeline: Timeline) -> str:
    """What shrinking the largest tensors can do at most, as a sentence."""
    bound = timeline.without_largest
    if bound is None or bound.highest.total >= peak:
        return ""
    chunked = _is_chunkable(timeline)
    caveat = "; a cross-entropy in chunks of tokens, which never holds such tensors, cannot go below that" if chunked else ""
    return (
        f"Without activations and temporaries of {numbers.integer(bound.each)}{NBSP}bytes each, and all else unchanged, the peak would be"
        f" {_read(bound.highest.total)} ({difference(bound.highest.total, peak)}){_place(bound.highest)}{caveat}."
    )


def _place(instant: Instant) -> str:
    return f", after {in_words(short(instant.operator), instant.module_path)}" if instant.operator else ""


def _best(peak: int, levers: Sequence[PeakLever], board: Accelerator) -> str:
    """The change that lowers the peak most without making the step smaller, as a sentence."""
    same_work = [lever for lever in levers if lever.change.options]
    best = min(same_work, key=lambda lever: lever.peak, default=None)
    if best is None:
        return ""
    if best.peak >= peak:
        return "At this batch, none of the changes below lowers it."
    fits = f" It then fits {capacity(board.memory)}." if peak > board.memory >= best.peak else ""
    return f"What lowers it most at this batch: {change_words(best.change)}, to {_read(best.peak)} ({difference(best.peak, peak)}).{fits}"


def _row(lever: PeakLever, peak: int, derivation: Derivation, board: Accelerator) -> LeverRow:
    return LeverRow(
        change=change_words(lever.change),
        peak=numbers.amount(lever.peak, Unit.BYTE),
        difference=difference(lever.peak, peak),
        at=lever.at,
        matmul=_matmul(lever, derivation),
        fits="yes" if lever.peak <= board.memory else "no",
    )


def _matmul(lever: PeakLever, derivation: Derivation) -> str:
    """The change of the matmul FLOPs of a step; unknown if one of both is."""
    current = matmul(derivation)
    if current is None or lever.matmul is None:
        return "unknown"
    return difference(lever.matmul, current) if current else "0"


def difference(to: int, of: int) -> str:
    """``to`` relative to ``of``: ``−40.1 %``, or ``unchanged``."""
    return "unchanged" if to == of else numbers.percent(Fraction(to - of, of), signed=True)


def change_words(change: StepChange) -> str:
    """A change of a step in words."""
    return " and ".join(_words(change))


def _words(change: StepChange) -> Iterator[str]:
    if "accumulation" in change.options:
        yield f"{change.options['accumulation']} micro-batches of {BATCH}{NBSP}={NBSP}{numbers.integer(change.sizes[BATCH])} per step"
    elif change.sizes:
        yield ", ".join(f"{name}{NBSP}={NBSP}{numbers.integer(size)}" for name, size in change.sizes.items())
    for name, choice in change.options.items():
        if name != "accumulation":
            yield _OPTIONS.get((name, choice), f"{name} {choice}")


_OPTIONS = {
    ("precision", "bf16-autocast"): "bf16 autocast",
    ("precision", "bf16"): "bf16 for everything",
    ("checkpointing", "block"): "activation checkpointing of every block",
    ("implementation", "fused"): "fused optimizer",
}


def _read(value: int) -> str:
    return numbers.amount(value, Unit.BYTE).headline


def _share(nbytes: int, total: int) -> str:
    return numbers.percent(Fraction(nbytes, total)) if total else "–"


def _largest_term(candidate: Candidate, derivation: Derivation) -> tuple[Expression, int] | None:
    """The largest term of the candidate's closed form and its value; ``None`` for one that is no sum of several terms."""
    tree = expressions.parse(branches.at_hand(candidate.expr, derivation.sizes))
    if not isinstance(tree, Sum) or not expressions.names(tree) <= set(derivation.sizes):
        return None
    terms = {term: int(value(term, derivation.sizes.__getitem__)) for term in tree.terms}
    largest = max(terms, key=lambda term: terms[term])
    return (largest, terms[largest]) if terms[largest] > 0 else None

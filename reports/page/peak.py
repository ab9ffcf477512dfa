"""The peak in words: when it is, what it consists of, which device holds it, and which changes lower it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.derive.live_bytes import Instant, Timeline
from calc.derive.result import Candidate, Derivation
from calc.graph.step import bare_name
from calc.hardware.accelerators import Accelerator, accelerator
from calc.memory.peak_levers import BATCH, PeakLever, StepChange, matmul, zero_stages
from calc.options import by_cuda, trains
from calc.symbolic.exact import evaluate_text
from calc.symbolic.expression import Expression, Sum
from calc.symbolic.tree import value
from calc.units import Unit
from reports.figures.memory import capacity
from reports.page.model import TypesetFormula
from reports.page.operator_words import in_words, place_in_words
from reports.page.parts import at_hand, chapter_anchor, formula
from reports.page.peak_candidates import phase_of
from reports.page.peak_parts import PeakPart, largest_parts
from reports.typeset import expressions, numbers
from reports.typeset.numbers import NBSP, PrintedAmount, bytes_text


@dataclass(frozen=True, slots=True)
class LeverRow:
    """A change of the step and its peak. ``matmul``: the change of its matmul FLOPs. ``fits``: whether the device holds the peak.
    ``derived``: the change whose own step has that peak; without one, the peak is a lower bound."""

    change: str
    peak: PrintedAmount
    difference: str
    at: str
    matmul: str
    fits: str
    derived: StepChange | None = None

    @property
    def title(self) -> str:
        """The change, with a word where its peak is a bound."""
        return self.change if self.derived is not None else f"{self.change}, at least"


@dataclass(frozen=True, slots=True)
class PeakStory:
    """The peak in words: its size ``read``, when it is, its largest parts, the largest term of its closed form, fit, what lowers it.
    ``kernels``: whose kernels it is by, if not the device's. ``bound``: the peak without its largest tensors. ``target``: the chapter that
    derives it. Names of code are between backticks."""

    read: str
    when: str
    parts: tuple[PeakPart, ...]
    term: TypesetFormula | None
    term_share: str
    fit: str
    kernels: str
    bound: str
    best: str
    levers: tuple[LeverRow, ...]
    device: str
    target: str

    @property
    def levers_caption(self) -> str:
        return caption_of(self.levers)


def caption_of(levers: Iterable[LeverRow]) -> str:
    """The caption of a table of changes; it explains a word that only bounds have."""
    bounds = ". “At least” marks a lower bound: buffers for communication, or for one chunk, come on top"
    return "Changes of this step and the peak that each leads to" + (bounds if any(row.derived is None for row in levers) else "")


TARGET = "peak"
COMMON_80_GB = "h100-sxm"


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
    exact = timeline if timeline is not None and not timeline.fewer else None
    bounds = tuple(_bounds(derivation, exact))
    return PeakStory(
        read=bytes_text(quantity.value),
        when=_when(exact, candidate),
        parts=largest_parts(derivation, quantity.value, exact, candidate),
        term=formula(largest[0]) if largest is not None else None,
        term_share=numbers.percent(Fraction(largest[1], quantity.value)) if largest is not None else "",
        fit=_fit(quantity.value, board),
        kernels=_by(derivation, board),
        bound=_bound(quantity.value, exact) if exact is not None else "",
        best=_best(derivation, quantity.value, levers, bounds, board),
        levers=(
            *(_row(lever, quantity.value, derivation, board) for lever in levers),
            *(_bound_row(bound, quantity.value, board) for bound in bounds),
        ),
        device=capacity(board.memory),
        target=chapter_anchor("memory.peak"),
    )


def _when(timeline: Timeline | None, candidate: Candidate | None) -> str:
    """When the peak is; empty where no operator is known for it."""
    if timeline is not None and timeline.peak.operator:
        return f"{phase_of(timeline)}{_place(timeline.peak)}"
    return "" if candidate is None else f"in the {place_in_words(candidate.at)}"


# -- whether it fits, and what lowers it ------------------------------------------------------------------------------------


def _fit(peak: int, board: Accelerator) -> str:
    """Whether a device holds the peak, as a sentence."""
    room = board.memory - peak
    if room < 0:
        return f"No: it is {bytes_text(-room)} too large for one {board.name}."
    return f"Yes: one {board.name} has {bytes_text(room)} left for allocator rounding, library workspaces and everything else."


def _by(derivation: Derivation, board: Accelerator) -> str:
    """Whose kernels the peak is by, if not those of the device."""
    if board.vendor != "NVIDIA" or by_cuda(derivation.options):
        return ""
    return "This is the peak with CPU kernels; --kernels cuda derives the peak with GPU kernels."


@dataclass(frozen=True, slots=True)
class _BoundedChange:
    """A change of which only a lower bound in bytes is derived, all else unchanged. ``kind``: what changes of different strengths share.
    ``at``: where the step then has that much."""

    kind: str
    change: str
    least: int
    at: str


def _bounds(derivation: Derivation, timeline: Timeline | None) -> Iterator[_BoundedChange]:
    """Cross-entropy in chunks, and the stages of ZeRO."""
    if timeline is not None and timeline.without_largest is not None and _is_chunkable(timeline):
        highest = timeline.without_largest.highest
        yield _BoundedChange("cross-entropy", "cross-entropy in chunks of tokens", highest.total, f"{highest.phase}{_place(highest)}")
    for z in zero_stages(derivation):
        yield _BoundedChange("ZeRO", f"ZeRO-{z.stage} on {z.devices} devices", z.peak, place_in_words(z.at))


def _bound_row(bound: _BoundedChange, peak: int, board: Accelerator) -> LeverRow:
    fits = "perhaps" if bound.least <= board.memory else "no"
    fits = "yes" if peak <= board.memory else fits
    amount = numbers.amount(bound.least, Unit.BYTE)
    return LeverRow(bound.change, amount, difference(bound.least, peak), bound.at, "unchanged", fits)


def _is_chunkable(timeline: Timeline) -> bool:
    """Whether the largest tensors at the peak are those of a cross-entropy's log-softmax."""
    bound = timeline.without_largest
    first = next((a for a in timeline.alive if bound is not None and a.each == bound.each), None)
    return first is not None and "log_softmax" in first.name.operator


def _bound(peak: int, timeline: Timeline) -> str:
    """What shrinking the largest tensors can do at most, as a sentence."""
    bound = timeline.without_largest
    if bound is None or bound.highest.total >= peak:
        return ""
    cause = " Computing the cross-entropy in chunks of tokens shrinks exactly these." if _is_chunkable(timeline) else ""
    return (
        f"Shrinking the largest activations and temporaries, those of {bytes_text(bound.each)} each, lowers the peak to"
        f" {bytes_text(bound.highest.total)} ({difference(bound.highest.total, peak)}) at best: without them, that much is still live in"
        f" the {bound.highest.phase}{_place(bound.highest)}.{cause}"
    )


def _place(instant: Instant) -> str:
    return f", after {in_words(bare_name(instant.operator), instant.module_path)}" if instant.operator else ""


def _best(derivation: Derivation, peak: int, levers: Sequence[PeakLever], bounds: Sequence[_BoundedChange], board: Accelerator) -> str:
    """The change that lowers the peak most without making the step smaller, and the bounds below it, as sentences."""
    best = best_of(levers)
    least = peak if best is None else min(best.peak, peak)
    exact = _exact_best(peak, best, board)
    sentences = (exact, caution(best.change, derivation) if best is not None and least < peak else "", _lower(bounds, least))
    return " ".join(sentence for sentence in sentences if sentence)


def best_of(levers: Sequence[PeakLever]) -> PeakLever | None:
    """The change with the lowest peak among those that leave the sizes of the step."""
    return min((lever for lever in levers if lever.change.options), key=lambda lever: lever.peak, default=None)


def _exact_best(peak: int, best: PeakLever | None, board: Accelerator) -> str:
    if best is None:
        return ""
    if best.peak >= peak:
        return "None of the changes below whose peak is derived exactly."
    fits = f" It then fits {capacity(board.memory)}." if peak > board.memory >= best.peak else ""
    return f"{_sentence_of(best.change)}, to {bytes_text(best.peak)} ({difference(best.peak, peak)}).{fits}"


def _sentence_of(change: StepChange) -> str:
    """A change as the beginning of a sentence: with a capital letter, but for the name of a number format."""
    first, *others = _words(change)
    return " and ".join((first.text if first.is_name else _capitalized(first.text), *(words.text for words in others)))


def _capitalized(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def caution(change: StepChange, derivation: Derivation) -> str:
    """What a change does to the training itself, as a sentence; empty where it only moves memory. bf16 has 8 significant bits: half the
    distance to the next number is at least 2⁻⁹ of a weight."""
    if not trains(derivation.options):
        return ""
    if change.options.get("precision") == "bf16":
        return "It also changes the training: in bf16 an update below 2⁻⁹ of its weight is rounded away."
    if BATCH in change.sizes and any("batch_norm" in row.operator for row in derivation.coverage):
        count = numbers.integer(change.sizes[BATCH])
        return f"It also changes the training: batch norm then normalizes by the mean and variance of {count} examples."
    return ""


def _lower(bounds: Sequence[_BoundedChange], least: int) -> str:
    """The bounds below ``least``, of the stages of ZeRO only the lowest, as a sentence."""
    lowest = {bound.kind: bound for bound in sorted(bounds, key=lambda bound: -bound.least) if bound.least < least}
    if not lowest:
        return ""
    listed = " and ".join(f"{bound.change} (not below {bytes_text(bound.least)})" for bound in lowest.values())
    return _capitalized(f"{listed} may lower it more.")


def _row(lever: PeakLever, peak: int, derivation: Derivation, board: Accelerator) -> LeverRow:
    return LeverRow(
        change=change_words(lever.change),
        peak=numbers.amount(lever.peak, Unit.BYTE),
        difference=difference(lever.peak, peak),
        at=place_in_words(lever.at) if lever.at is not None else "",
        matmul=_matmul(lever, derivation),
        fits="yes" if lever.peak <= board.memory else "no",
        derived=lever.change,
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
    return " and ".join(words.text for words in _words(change))


@dataclass(frozen=True, slots=True)
class _ChangeWords:
    """A part of a change in words. ``is_name``: it begins with a name, whose first letter stays small in a sentence: bf16, a size."""

    text: str
    is_name: bool = False


def _words(change: StepChange) -> Iterator[_ChangeWords]:
    if "accumulation" in change.options:
        batch = f"{BATCH}{NBSP}={NBSP}{numbers.integer(change.sizes[BATCH])}"
        yield _ChangeWords(f"{change.options['accumulation']} micro-batches of {batch} per step")
    elif change.sizes:
        sizes = ", ".join(f"{name}{NBSP}={NBSP}{numbers.integer(size)}" for name, size in change.sizes.items())
        yield _ChangeWords(sizes, is_name=True)
    for name, choice in change.options.items():
        if name != "accumulation":
            yield _OPTIONS.get((name, choice), _ChangeWords(f"{name} {choice}"))


_OPTIONS = {
    ("precision", "bf16-autocast"): _ChangeWords("bf16 autocast", is_name=True),
    ("precision", "bf16"): _ChangeWords("bf16 for everything", is_name=True),
    ("checkpointing", "block"): _ChangeWords("activation checkpointing of every block"),
    ("implementation", "fused"): _ChangeWords("fused optimizer"),
}


def _largest_term(candidate: Candidate, derivation: Derivation) -> tuple[Expression, int] | None:
    """The largest term of the candidate's closed form and its value; ``None`` for one that is no sum of several terms."""
    tree = at_hand(candidate.expr, derivation)
    if not isinstance(tree, Sum) or not expressions.names(tree) <= set(derivation.sizes):
        return None
    terms = {term: int(value(term, lambda name: evaluate_text(name, derivation.sizes))) for term in tree.terms}
    largest = max(terms, key=lambda term: terms[term])
    return (largest, terms[largest]) if terms[largest] > 0 else None

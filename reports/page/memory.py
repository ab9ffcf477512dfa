"""The memory section: live bytes over the step, storages alive at the peak, peak crossovers, tensors saved for backward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from calc.derive.cuda_allocator import NOT_MEASURED, WORKSPACES, Simulated
from calc.derive.live_bytes import Alive, Instant, Timeline
from calc.derive.names import SavedBefore, TensorName
from calc.derive.peak_crossovers import PeakCrossovers, PeakInterval
from calc.derive.result import SEVERAL, Derivation, SavedTensor
from calc.graph.step import bare_name
from calc.symbolic.expression import Name, Number
from calc.units import Unit
from reports.figures.live_bytes import drawing
from reports.figures.shapes import Drawing, css_class
from reports.page.model import TypesetFormula
from reports.page.parts import formula, searched_sizes, several, share, sizes_text, times
from reports.page.peak_candidates import called, phase_of
from reports.typeset import expressions, numbers, paths, plain
from reports.typeset.numbers import NBSP, PrintedAmount, bytes_text


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


LARGEST = 12


def memory(derivation: Derivation, timeline: Timeline | None, no_timeline: str = "", moves: Sequence[PeakCrossovers] = ()) -> MemorySection:
    """The memory section, without the closed forms. ``no_timeline`` says why there is no timeline; ``moves`` are its peak crossovers."""
    quantity = derivation.quantities.get("activations.bytes")
    total = quantity.value if quantity is not None else None
    ambiguous = _saved_in_several_roles(derivation.saved)
    rows = tuple(_saved(alike, total, names_role=alike[0].tensor in ambiguous) for alike in _alike(derivation.saved))
    return MemorySection(
        live_bytes=_live_bytes(timeline) if timeline is not None else None,
        no_timeline=no_timeline,
        peak_crossovers=tuple(_peak_crossover(t, derivation) for t in moves),
        saved=rows,
        saved_title=f"{several(len(rows), 'kind')} of tensor saved for backward",
        saved_total=numbers.amount(total, Unit.BYTE) if derivation.saved and total is not None else None,
    )


# -- tensors saved for backward ------------------------------------------------------------------------------------------


def _saved_in_several_roles(saved: Sequence[SavedTensor]) -> set[TensorName]:
    """Tensors that one operator saves more than once, as queries, keys and values that one matmul computes."""
    roles: dict[tuple[TensorName, str, str], set[str]] = {}
    for t in saved:
        roles.setdefault((t.tensor, t.operator, t.module_path), set()).add(t.role)
    return {tensor for (tensor, _, _), several_roles in roles.items() if len(several_roles) > 1}


def _saved(alike: Sequence[SavedTensor], total: int | None, *, names_role: bool) -> SavedRow:
    """The row of tensors that differ in their places only."""
    tensor, number = alike[0], len(alike)
    shape = ", ".join(size if size == SEVERAL else plain.plain_text(size) for size in tensor.shape)
    count = times(number, expressions.parse(tensor.times)) if tensor.times != "1" else Number(number)
    return SavedRow(
        tensor=f"{f'{tensor.role}: ' if names_role and tensor.role else ''}{_at_all([t.tensor for t in alike])}",
        module_path=paths.pattern([t.module_path for t in alike]),
        shape=f"({shape}) {tensor.dtype}{', part of its storage' if tensor.part and not tensor.same_as else ''}",
        times=None if count == Number(1) else formula(count),
        formula=None if tensor.same_as else formula(times(number, expressions.parse(tensor.expr))),
        value=numbers.integer(number * tensor.value),
        share=share(number * tensor.value, total) if total else "",
        needed_by=f"{bare_name(tensor.operator)}{f' ({tensor.node})' if tensor.node else ''}",
        because=tensor.because,
        same_as=_saved_before([t.same_as for t in alike if t.same_as]),
    )


def _alike(saved: Sequence[SavedTensor]) -> Iterable[list[SavedTensor]]:
    """The tensors, those together that differ in their places only."""
    alike: dict[object, list[SavedTensor]] = {}
    for t in saved:
        before = t.same_as and SavedBefore(replace(t.same_as.tensor, module_path=""), "")
        alike.setdefault(replace(t, tensor=replace(t.tensor, module_path=""), same_as=before, module_path=""), []).append(t)
    return alike.values()


def _at_all(names: Sequence[TensorName]) -> TensorName:
    """Names that differ in their module paths only as one, with the pattern of all paths."""
    return replace(names[0], module_path=paths.pattern([name.module_path for name in names]))


def _saved_before(rows: Sequence[SavedBefore]) -> str:
    return str(SavedBefore(_at_all([row.tensor for row in rows]), paths.pattern([row.module_path for row in rows]))) if rows else ""


# -- peak crossovers ----------------------------------------------------------------------------------------------------


def _peak_crossover(crossover: PeakCrossovers, derivation: Derivation) -> PeakCrossoverRow:
    size = derivation.sizes[crossover.dim]
    intervals = tuple(_interval(r, i, crossover, size) for i, r in enumerate(crossover.intervals))
    return PeakCrossoverRow(formula(Name(crossover.dim)), numbers.integer(size), intervals, _searched(crossover))


def _interval(interval: PeakInterval, number: int, crossover: PeakCrossovers, size: int) -> PeakIntervalRow:
    first, last = numbers.integer(interval.first), numbers.integer(interval.last)
    opens, closes = number == 0, number == len(crossover.intervals) - 1
    if opens and closes:
        text = f"any {crossover.dim}"
    elif interval.first == interval.last:
        text = f"{crossover.dim} = {first}"
    elif opens:
        text = f"{crossover.dim} ≤ {last}"
    elif closes:
        text = f"{crossover.dim} ≥ {first}"
    else:
        text = f"{first} ≤ {crossover.dim} ≤ {last}"
    closed = formula(expressions.parse(interval.expr)) if interval.expr else None
    return PeakIntervalRow(text.replace(" ", NBSP), str(interval.at), closed, interval.first <= size <= interval.last)


def _searched(crossover: PeakCrossovers) -> str:
    if crossover.because:
        return f"not searched: {crossover.because}"
    if not crossover.intervals:
        return "not searched: the closed forms hold at no other size"
    first, last = crossover.intervals[0].first, crossover.intervals[-1].last
    if crossover.among:
        return f"{searched_sizes(first, last)}, {several(len(crossover.among), 'divisor')}"
    return searched_sizes(first, last, crossover.step)


# -- live bytes over the step --------------------------------------------------------------------------------------------


def _live_bytes(timeline: Timeline) -> LiveBytesView:
    peak = timeline.peak.total
    return LiveBytesView(
        finding=_finding(timeline),
        largest=_largest(timeline),
        note=_note(timeline),
        drawing=drawing(timeline),
        roles=tuple(
            (role, css_class(role), bytes_text(nbytes), share(nbytes, peak))
            for role, nbytes in ((role, timeline.peak.live.get(role, 0)) for role in reversed(timeline.roles))
        ),
        columns=(("Instant", "text"), ("All", "number"), *((role, "number") for role in reversed(timeline.roles))),
        total=numbers.amount(peak, Unit.BYTE),
        landmarks=tuple(_landmark(name, instant, timeline) for name, instant in timeline.landmarks),
        alive=tuple(_alive(a, peak) for a in timeline.alive[:LARGEST]),
        rest=_rest(timeline.alive[LARGEST:], peak),
        allocator=tuple(_allocated(name, step) for name, step in zip(("first step", "steady step"), timeline.allocated, strict=False)),
        simulated=tuple(_simulated(timeline)),
    )


def _allocated(name: str, simulated: Simulated) -> AllocatorRow:
    return AllocatorRow(name, *(numbers.integer(n) for n in (simulated.live, simulated.allocated, simulated.reserved, simulated.segments)))


def _simulated(timeline: Timeline) -> Iterator[str]:
    """Notes on the allocator's table: that it is a simulation, and what it leaves out."""
    if not timeline.allocated:
        return
    steady = timeline.allocated[-1]
    rounding, cached = (bytes_text(n) for n in (steady.rounding, steady.cached))
    yield f"{NOT_MEASURED[0].upper()}{NOT_MEASURED[1:]}."
    yield f"Rounding adds {rounding} to the steady peak; another {cached} are reserved but not allocated at that time."
    if any(phase == "optimizer" for phase, _, _ in timeline.phases):
        yield "Live bytes are those on the device: the optimizer's step counters are on the CPU unless it is fused."
    workspaces = " or ".join(f"{w.label} {bytes_text(w.nbytes)} ({w.when})" for w in WORKSPACES)
    yield f"Library workspaces come on top: {workspaces}. CUDA kernels may allocate other tensors than the CPU kernels traced here."


def _finding(timeline: Timeline) -> str:
    """The title of the figure: the size of the peak and where in the step it is."""
    return f"The peak of {bytes_text(timeline.peak.total)} is {phase_of(timeline)}: {called(timeline.peak)}"


def _largest(timeline: Timeline) -> str:
    """The kind of storage with the most bytes at the peak, as a sentence."""
    if not timeline.alive:
        return ""
    first = timeline.alive[0]
    return f"Largest storage at the peak: {first.name} ({first.role}), {share(first.total, timeline.peak.total)}."


def _note(timeline: Timeline) -> str:
    width = max((c.last + 1 - c.first for c in timeline.columns), default=1)
    text = f"Live bytes after each of {several(timeline.operators, 'operator')}, in execution order."
    if width > 1:
        text += f" A column covers up to {numbers.integer(width)} operators and shows their maximum."
    if timeline.fewer:
        text += f" This is the deepest trace that the derivation has, {sizes_text(timeline.fewer)}, not the requested depth."
    return text


def _landmark(name: str, instant: Instant, timeline: Timeline) -> InstantRow:
    mark = "peak" if instant == timeline.peak else ""
    after = f"after {called(instant)}" if instant.operator and instant is not timeline.landmarks[-1][1] else ""
    values = tuple(numbers.integer(instant.live.get(role, 0)) for role in reversed(timeline.roles))
    return InstantRow(name, after, values, numbers.integer(instant.total), mark)


def _alive(alive: Alive, peak: int) -> AliveRow:
    each = f"{numbers.integer(alive.number)}{NBSP}×{NBSP}{numbers.integer(alive.each)}" if alive.number > 1 else ""
    return AliveRow(str(alive.name), alive.role, each, numbers.integer(alive.total), share(alive.total, peak))


def _rest(smaller: tuple[Alive, ...], peak: int) -> AliveRow | None:
    if not smaller:
        return None
    total = sum(a.total for a in smaller)
    return AliveRow(f"{several(len(smaller), 'further kind')} of storage", "", "", numbers.integer(total), share(total, peak))

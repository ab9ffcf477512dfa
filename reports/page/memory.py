"""Memory made visible: live bytes over the step, what is alive at the peak, what moves the peak, what is kept for the backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from calc.derive.cuda_allocator import NOT_MEASURED, WORKSPACES, Simulated
from calc.derive.live_bytes import Alive, Instant, Timeline
from calc.derive.peak_crossovers import Reign, Takeover
from calc.derive.result import SEVERAL, Derivation, SavedTensor
from calc.symbolic import tree
from calc.units import Unit
from reports.figures.live_bytes import drawing
from reports.figures.shapes import css_class
from reports.page.model import (
    AliveRow,
    AllocatorRow,
    InstantRow,
    LiveBytesView,
    MemorySection,
    PeakCrossoverRow,
    PeakIntervalRow,
    SavedRow,
    TypesetFormula,
)
from reports.page.parts import formula, several, sizes_text
from reports.typeset import expressions, numbers, plain
from reports.typeset.numbers import NBSP

LARGEST = 12


def memory(derivation: Derivation, timeline: Timeline | None, untimed: str = "", moves: Sequence[Takeover] = ()) -> MemorySection:
    """Everything that is said of memory beside its closed forms. ``untimed`` says why there is no timeline."""
    quantity = derivation.quantities.get("activations.bytes")
    whole = quantity.value if quantity is not None else None
    return MemorySection(
        timing=_timing(timeline) if timeline is not None else None,
        untimed=untimed,
        takeovers=tuple(_takeover(t, derivation) for t in moves),
        saved=tuple(_saved(s, whole) for s in derivation.saved),
        saved_title=f"{several(len(derivation.saved), 'kind')} of tensor kept for the backward",
        saved_total=numbers.amount(whole, Unit.BYTE) if derivation.saved and whole is not None else None,
    )


# -- tensors kept for the backward ---------------------------------------------------------------------------------------


def _saved(tensor: SavedTensor, whole: int | None) -> SavedRow:
    shape = ", ".join(size if size == SEVERAL else plain.plain(expressions.parse(size)) for size in tensor.shape)
    return SavedRow(
        tensor=tensor.tensor,
        site=tensor.site,
        shape=f"({shape}) {tensor.dtype}{', a part of its storage' if tensor.part and not tensor.same_as else ''}",
        times=_times(tensor),
        formula=None if tensor.same_as else formula(expressions.parse(tensor.expr)),
        value=numbers.integer(tensor.value),
        share=numbers.percent(Fraction(tensor.value, whole)) if whole else "",
        needed_by=f"{_short(tensor.operator)}{f' ({tensor.node})' if tensor.node else ''}",
        because=tensor.because,
        same_as=tensor.same_as,
    )


def _short(operator: str) -> str:
    """``aten.addmm.default`` → ``addmm``; what is no operator of ATen keeps its name."""
    return operator.removeprefix("aten.").rsplit(".", 1)[0] if operator.startswith("aten.") else operator


def _times(tensor: SavedTensor) -> TypesetFormula | None:
    """How many there are, unless one."""
    return None if tensor.times == "1" else formula(expressions.parse(tensor.times))


# -- which moment is the peak --------------------------------------------------------------------------------------------


def _takeover(found: Takeover, derivation: Derivation) -> PeakCrossoverRow:
    here = derivation.sizes[found.dim]
    reigns = tuple(_reign(r, i, found, here) for i, r in enumerate(found.reigns))
    return PeakCrossoverRow(formula(tree.Name(found.dim)), numbers.integer(here), reigns, _searched(found))


def _reign(reign: Reign, number: int, found: Takeover, here: int) -> PeakIntervalRow:
    first, last = numbers.integer(reign.first), numbers.integer(reign.last)
    opens, closes = number == 0, number == len(found.reigns) - 1
    if opens and closes:
        words = f"any {found.dim}"
    elif reign.first == reign.last:
        words = f"{found.dim} = {first}"
    elif opens:
        words = f"{found.dim} ≤ {last}"
    elif closes:
        words = f"{found.dim} ≥ {first}"
    else:
        words = f"{first} ≤ {found.dim} ≤ {last}"
    return PeakIntervalRow(words.replace(" ", NBSP), reign.at, reign.first <= here <= reign.last)


def _searched(found: Takeover) -> str:
    if found.because:
        return f"not searched: {found.because}"
    if not found.reigns:
        return "not searched: the closed forms stand at no other size"
    span = f"{numbers.integer(found.reigns[0].first)}{NBSP}…{NBSP}{numbers.integer(found.reigns[-1].last)}"
    if found.among:
        return f"{span}, {several(len(found.among), 'divisor')}"
    return span if found.step == 1 else f"{span}, in steps of {numbers.integer(found.step)}"


# -- live bytes over the step --------------------------------------------------------------------------------------------


def _timing(found: Timeline) -> LiveBytesView:
    peak = found.peak.total
    return LiveBytesView(
        finding=_finding(found),
        largest=_largest(found),
        note=_note(found),
        drawing=drawing(found),
        roles=tuple(
            (role, css_class(role), numbers.amount(held, Unit.BYTE).headline, _share(held, peak))
            for role, held in ((role, found.peak.live.get(role, 0)) for role in reversed(found.roles))
        ),
        columns=(("Instant", "text"), ("All", "number"), *((role, "number") for role in reversed(found.roles))),
        total=numbers.amount(peak, Unit.BYTE),
        landmarks=tuple(_landmark(name, instant, found) for name, instant in found.landmarks),
        alive=tuple(_alive(a, peak) for a in found.alive[:LARGEST]),
        rest=_rest(found.alive[LARGEST:], peak),
        allocator=tuple(_allocated(name, step) for name, step in zip(("first step", "steady step"), found.allocated, strict=False)),
        simulated=tuple(_simulated(found)),
    )


def _allocated(name: str, found: Simulated) -> AllocatorRow:
    return AllocatorRow(name, *(numbers.integer(n) for n in (found.live, found.allocated, found.reserved, found.segments)))


def _simulated(found: Timeline) -> Iterator[str]:
    """What stands beside the allocator's table: that it is no measurement, and what is not in it."""
    if not found.allocated:
        return
    steady = found.allocated[-1]
    rounding, cached = (numbers.amount(n, Unit.BYTE).headline for n in (steady.rounding, steady.cached))
    yield f"{NOT_MEASURED[0].upper()}{NOT_MEASURED[1:]}."
    yield f"Rounding adds {rounding} to the steady peak; {cached} more are reserved and not allocated at once."
    yield "Live bytes are those on the device: an optimizer's step counters stay on the CPU unless it is fused."
    held = ", ".join(f"{w.what} {numbers.amount(w.nbytes, Unit.BYTE).headline} ({w.when})" for w in WORKSPACES)
    yield f"Beside it a library holds workspaces: {held}. CUDA's kernels may keep other tensors than those recorded on a CPU."


def _finding(found: Timeline) -> str:
    """The title of the figure: how large the peak is, and when it comes."""
    return f"The peak of {numbers.amount(found.peak.total, Unit.BYTE).headline} comes {_when(found)}: {_called(found.peak)}"


def _when(found: Timeline) -> str:
    op = found.peak.op
    stretch = next(((phase, first, last) for phase, first, last in found.phases if first <= op <= last), None)
    if stretch is None:
        return "before the first operator"
    phase, first, last = stretch
    share = Fraction(op - first, max(last - first, 1))
    where = "at the start of" if share <= Fraction(1, 10) else "at the end of" if share >= Fraction(9, 10) else "within"
    again = [p for p, _, _ in found.phases].count(phase) > 1
    return f"{where} {'a' if again else 'the'} {phase.replace('_', ' ')}"


def _called(instant: Instant) -> str:
    if not instant.operator:
        return "nothing has run"
    return f"{_short(instant.operator).strip('_')} at {instant.site}"


def _largest(found: Timeline) -> str:
    """The single kind of storage with most bytes then."""
    if not found.alive:
        return ""
    first = found.alive[0]
    return f"Most of it then: {first.name} ({first.role}), {_share(first.total, found.peak.total)}."


def _note(found: Timeline) -> str:
    width = max((c.last + 1 - c.first for c in found.columns), default=1)
    words = f"Live bytes after each of {several(found.operators, 'operator')}, in the order in which they run."
    if width > 1:
        words += f" A column stands for up to {numbers.integer(width)} of them and shows the highest."
    if found.fewer:
        words += f" Read off the deepest record that the derivation has, {sizes_text(found.fewer)}: not the depth asked for."
    return words


def _landmark(name: str, instant: Instant, found: Timeline) -> InstantRow:
    mark = "peak" if instant == found.peak else ""
    after = f"after {_called(instant)}" if instant.operator and instant is not found.landmarks[-1][1] else ""
    values = tuple(numbers.integer(instant.live.get(role, 0)) for role in reversed(found.roles))
    return InstantRow(name, after, values, numbers.integer(instant.total), mark)


def _alive(alive: Alive, peak: int) -> AliveRow:
    each = f"{numbers.integer(alive.number)}{NBSP}×{NBSP}{numbers.integer(alive.each)}" if alive.number > 1 else ""
    return AliveRow(alive.name, alive.role, each, numbers.integer(alive.total), _share(alive.total, peak))


def _rest(left: tuple[Alive, ...], peak: int) -> AliveRow | None:
    if not left:
        return None
    total = sum(a.total for a in left)
    return AliveRow(f"{several(len(left), 'further kind')} of storage", "", "", numbers.integer(total), _share(total, peak))


def _share(value: int, whole: int) -> str:
    return numbers.percent(Fraction(value, whole)) if whole else "–"

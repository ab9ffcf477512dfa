"""A trace, replayed: allocations and frees of storages over the second step, in bytes.

A concrete trace at the requested sizes has the requested depth, but needs torch. Without one, the deepest trace of the derivation is
evaluated at these sizes: with further iterations where the traces determine what one adds (``unrolled``), else at its own depth, which
``Timeline.fewer`` states. In every case the highest instant must equal the derived peak.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from calc.derive.analysis import Analysis
from calc.derive.cuda_allocator import Simulated, simulate
from calc.derive.live_bytes import Alive, Column, Instant, Timeline, WithoutLargest
from calc.derive.loops import LoopIndices
from calc.derive.names import MODEL_INPUT, TensorName
from calc.derive.saved_tensors import made_by
from calc.errors import CertificateError
from calc.graph.step import Event, Graph, Op, Size, StepTrace
from calc.graph.unrolling import IrregularError, Unrolling

_STEP = 2
_COLUMNS = 160
_WHERE = "memory.peak"


def timeline(analysis: Analysis, sizes: Mapping[str, int], trace: StepTrace | None = None) -> Timeline:
    """Live bytes over the step at ``sizes``, by a ``trace`` at these sizes or by the deepest trace of the derivation."""
    values = analysis.graph.as_basis().values(sizes)
    if trace is not None:
        return _timeline(analysis, values, trace)
    longer = unrolled(analysis.graph, analysis.module_paths, values, _reading(analysis, values))
    if longer is not None:
        with contextlib.suppress(CertificateError):  # its peak is not the derived one: it is of other sizes
            return _timeline(analysis, values, longer)
    deepest = analysis.graph.traces[-1]
    fewer = {name: deepest.sizes[name] for name in analysis.graph.loops if deepest.sizes[name] != values[name]}
    return _timeline(analysis, values | fewer, deepest, fewer)


def _timeline(analysis: Analysis, at_values: Mapping[str, int], trace: StepTrace, fewer: Mapping[str, int] | None = None) -> Timeline:
    """Live bytes over the second step of a trace, at ``at_values`` of the basis symbols."""
    read = _reading(analysis, at_values)
    instants = list(_instants(trace, read))
    peak = max(instants, key=lambda i: i.total)  # the first of several
    candidates = analysis.peaks[_WHERE]
    derived = max(map(analysis.algebra.at(at_values), (p.live for p in candidates)), default=peak.total)
    if peak.total != derived:
        raise CertificateError(_WHERE, f"the trace at these sizes peaks at {peak.total:,} bytes, but {derived:,} were derived")
    phases = tuple(_phases(trace))
    alive = _alive(trace, peak, read, analysis)
    return Timeline(
        sizes=dict(analysis.graph.as_basis().sizes(at_values)),
        fewer=fewer or {},
        operators=sum(op.step == _STEP for op in trace.ops),
        peak=peak,
        alive=alive,
        landmarks=tuple(_landmarks(instants)),
        columns=tuple(_columns(instants, phases)),
        phases=phases,
        allocated=() if fewer else _allocated(trace, read, analysis.graph.options),
        without_largest=_without_largest(trace, alive, read),
    )


def _allocated(trace: StepTrace, read: Callable[[Size], int], options: Mapping[str, str]) -> tuple[Simulated, ...]:
    """The first step and the steady one, simulated by the CUDA allocator. A fused optimizer's step counters are on the device."""
    everything: dict[int, bool] | None = {} if options.get("implementation") == "fused" else None
    return tuple(simulate(trace, step, everything, read) for step in (1, _STEP))


def _reading(analysis: Analysis, at_values: Mapping[str, int]) -> Callable[[Size], int]:
    """Evaluates sizes of a trace to integers, cached, since few differ."""
    values: dict[Size, int] = {}

    def read(size: Size) -> int:
        if size not in values:
            values[size] = size if isinstance(size, int) else analysis.algebra.value(analysis.algebra.parse(size), at_values)
        return values[size]

    return read


# -- instants ---------------------------------------------------------------------------------------------------------


def _first(trace: StepTrace) -> int:
    """Index of the step's first operator."""
    return next((op.index for op in trace.ops if op.step == _STEP), len(trace.ops))


def _after(
    events: Iterable[Event], live: dict[str, int], trace: StepTrace, read: Callable[[Size], int], left_out: Collection[int] = ()
) -> dict[str, int]:
    """``live`` after those allocations and frees, without the storages ``left_out`` and roles that have no live bytes."""
    for event in events:
        if event.storage in left_out:
            continue
        storage = trace.storages[event.storage]
        live[storage.role] = live.get(storage.role, 0) + event.change * read(storage.nbytes)
    return {role: value for role, value in live.items() if value}


def _without_largest(trace: StepTrace, alive: Sequence[Alive], read: Callable[[Size], int]) -> WithoutLargest | None:
    """The highest instant without the activations and temporaries that have the size of the largest tensor at the peak."""
    each = max((a.each for a in alive), default=0)
    if each not in {a.each for a in alive if a.role in _TRANSIENT}:
        return None
    removed = {i for i, storage in enumerate(trace.storages) if storage.role in _TRANSIENT and read(storage.nbytes) == each}
    return WithoutLargest(each, max(_instants(trace, read, removed), key=lambda i: i.total))


_TRANSIENT = ("activation", "temporary")


def _instants(trace: StepTrace, read: Callable[[Size], int], left_out: Collection[int] = ()) -> Iterator[Instant]:
    """Live bytes before the step, and after each operator that allocates or frees, without the storages ``left_out``."""
    start, end = trace.windows[_STEP - 1]
    live = _after(trace.events[:start], {}, trace, read, left_out)
    first = _first(trace)
    yield Instant(-1, "", "", "", dict(live))
    for index, together in groupby(trace.events[start:end], key=lambda e: e.op):
        events = list(together)
        op = trace.ops[min(index, len(trace.ops) - 1)]
        last_allocated = max((i for i, e in enumerate(events) if e.change > 0), default=-1) + 1
        for phase_events in (events[:last_allocated], events[last_allocated:]):
            if phase_events:
                live = _after(phase_events, dict(live), trace, read, left_out)
                yield Instant(op.index - first, op.phase, op.name, op.module_path, dict(live))


def _landmarks(instants: Sequence[Instant]) -> Iterator[tuple[str, Instant]]:
    """The instant before the step, and the highest and the last instant of each phase."""
    yield "before the step", instants[0]
    for phase in dict.fromkeys(i.phase for i in instants[1:]):
        mine = [i for i in instants[1:] if i.phase == phase]
        yield f"{_named(phase)}, highest", max(mine, key=lambda i: i.total)
        if mine[-1] is not instants[-1]:
            yield f"{_named(phase)}, at its end", mine[-1]
    yield "after the step", instants[-1]


def _named(phase: str) -> str:
    return phase.replace("_", " ")


# -- columns ----------------------------------------------------------------------------------------------------------


def _phases(trace: StepTrace) -> Iterator[tuple[str, int, int]]:
    """Consecutive operators of one phase: its name, its first and its last operator in the step."""
    first = _first(trace)
    mine = (op for op in trace.ops if op.step == _STEP)
    for phase, together in groupby(mine, key=_phase):
        ops = list(together)
        yield phase, ops[0].index - first, ops[-1].index - first


def _phase(op: Op) -> str:
    return op.phase


def _columns(instants: Sequence[Instant], phases: Sequence[tuple[str, int, int]]) -> Iterator[Column]:
    """The step in about 160 columns at most, each with its highest instant, so that no column hides a peak."""
    operators = phases[-1][2] + 1 if phases else 0
    width = max(1, -(-operators // _COLUMNS))
    waiting = list(reversed(instants[1:]))
    level = instants[0]
    for phase, first, last in phases:
        for start in range(first, last + 1, width):
            stop = min(start + width - 1, last)
            mine = []
            while waiting and waiting[-1].op <= stop:
                mine.append(waiting.pop())
            # Without allocations and frees, live bytes are unchanged.
            yield Column(start, stop, phase, max(mine, key=lambda i: i.total) if mine else level)
            level = mine[-1] if mine else level


# -- live storages ----------------------------------------------------------------------------------------------------


def _alive(trace: StepTrace, peak: Instant, read: Callable[[Size], int], analysis: Analysis) -> tuple[Alive, ...]:
    """The storages at the peak, equal ones together, the largest first."""
    alive = _storages_at(trace, peak, read)
    names = _Names(trace, analysis)
    counts: dict[tuple[str, TensorName, int], int] = {}
    for storage in alive:
        key = (trace.storages[storage].role, names(storage), read(trace.storages[storage].nbytes))
        counts[key] = counts.get(key, 0) + 1
    rows = (Alive(role, name, each, number) for (role, name, each), number in counts.items())
    return tuple(sorted((a for a in rows if a.each), key=lambda a: (-a.total, a.role, str(a.name))))


def _storages_at(trace: StepTrace, peak: Instant, read: Callable[[Size], int]) -> list[int]:
    start, end = trace.windows[_STEP - 1]
    first = _first(trace)
    alive: dict[int, None] = {}
    best: list[int] = []
    for i, event in enumerate(trace.events[:end]):
        if event.change > 0:
            alive[event.storage] = None
        else:
            alive.pop(event.storage, None)
        at_peak = i >= start - 1 and (peak.op < 0 or event.op - first == peak.op)
        if at_peak and sum(read(trace.storages[s].nbytes) for s in alive) == peak.total:
            best = list(alive)
            break
    return best


class _Names:
    """The name of a storage: its owner, else the operator that allocated it."""

    def __init__(self, trace: StepTrace, analysis: Analysis) -> None:
        self._trace, self._general = trace, analysis.module_paths.general
        self._owned = {t.storage: (key, name) for name, key, t in reversed(trace.state)}
        self._owned |= {t.storage: ("", name) for name, t in reversed((*trace.parameters, *trace.buffers, *trace.masters))}
        self._allocated_at = {e.storage: e.op for e in trace.events if e.change > 0}

    def __call__(self, storage: int) -> TensorName:
        if storage in self._owned:
            part, owner = self._owned[storage]
            return TensorName(part, self._general(owner))
        stored = self._trace.storages[storage]
        if stored.role == "gradient":
            return TensorName("gradient", self._general(stored.name))
        if stored.role == "input":
            return TensorName(owner=MODEL_INPUT)
        last_allocated = self._allocated_at[storage]
        op = self._trace.ops[last_allocated] if 0 <= last_allocated < len(self._trace.ops) else None
        place = next((i for i, t in enumerate(op.outputs) if t.storage == storage), None) if op else None
        if op is None or place is None:
            outside = TensorName(owner="made outside of operators")
            return TensorName(owner="made", module_path=self._general(stored.name)) if stored.name else outside
        return made_by(op, place, self._general)


# -- unrolled traces --------------------------------------------------------------------------------------------------
# Unrolls a trace to more layers than were traced: an iteration in its middle is repeated.
#
# Tracing every layer of a deep model takes as long as all traces of its derivation together, and all layers are equal. Repeating an
# iteration is verified: unrolling the second-deepest trace must reproduce the deepest one, to the last event and storage. Where it does
# not, there is no unrolled trace, and the step must be traced at that depth. Where the deepest one was made in this way, certificates have
# verified it.


# How many iterations before the last one to repeat, in the order of trying: the last and its neighbor may differ from the others.
_TRIES = 3


def unrolled(graph: Graph, module_paths: LoopIndices, sizes: Mapping[str, int], read: Callable[[Size], int]) -> StepTrace | None:
    """The deepest trace of ``graph`` with the trip counts of ``sizes`` (values of the basis symbols), for its live bytes: without arguments
    of operators and saved tensors. ``read`` evaluates bytes at these sizes.

    None where more than one loop differs, or the traces do not determine what an iteration adds."""
    deepest = graph.traces[-1]
    differ = [name for name in graph.loops if deepest.sizes[name] != sizes[name]]
    shallower = [r for r in graph.traces if all((r.sizes[n] == deepest.sizes[n]) != (n in differ) for n in graph.loops)]
    if len(differ) != 1 or not shallower or sizes[differ[0]] < deepest.sizes[differ[0]]:
        return None
    loop = differ[0]
    before = max(shallower, key=lambda trace: trace.sizes[loop])
    added = deepest.sizes[loop] - before.sizes[loop]
    further, remainder = divmod(sizes[loop] - deepest.sizes[loop], added)
    if remainder:
        return None
    least = module_paths.instances(before)
    layers = {
        prefix: count - least[prefix] for prefix, count in module_paths.instances(deepest).items() if count > least.get(prefix, count)
    }
    for last in range(1, _TRIES + 1):
        try:
            if layers and _alike(Unrolling(before, least, layers, last, 1).of_live_bytes(), deepest, read):
                return Unrolling(deepest, module_paths.instances(deepest), layers, last, further).of_live_bytes()
        except IrregularError:
            continue
    return None


def _alike(unrolled_trace: StepTrace, run: StepTrace, read: Callable[[Size], int]) -> bool:
    """Whether two traces have the same operators, allocations and frees, each of equal storages."""
    return (
        unrolled_trace.windows == run.windows
        and _operators(unrolled_trace) == _operators(run)
        and _events(unrolled_trace, read) == _events(run, read)
    )


def _operators(trace: StepTrace) -> list[tuple[str, str, int, str]]:
    return [(op.name, op.phase, op.step, op.module_path) for op in trace.ops]


def _events(trace: StepTrace, read: Callable[[Size], int]) -> list[tuple[int, int, int, int, str]]:
    allocated_at = {event.storage: index for index, event in enumerate(trace.events) if event.change > 0}
    storages = [(read(storage.nbytes), storage.role) for storage in trace.storages]
    return [(e.change, e.op, allocated_at[e.storage], *storages[e.storage]) for e in trace.events]

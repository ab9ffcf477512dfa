"""The ledger of a traced step: its operators with their number of calls, as closed forms in the trip counts, and their FLOPs.

A step with an operator that cannot be counted has no analysis, but it has a ledger, which shows how much is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calc.derive import loops
from calc.derive.accumulate import Accumulator
from calc.derive.loops import Group, Interpolation, LoopIndices
from calc.errors import NapkinError, RefusedOperatorError, UnknownOperatorError
from calc.graph.basis import Folding
from calc.graph.coverage import COUNTED, FREE, REFUSED, CoverageRow, Ledger, Place, refusal
from calc.graph.step import Graph, Op, StepTrace
from calc.rules.registry import Free, Registry
from calc.symbolic.algebra import Algebra, Poly

STEP = 2  # the step that is counted
FLOPS = tuple(f"flops.{phase}.{kind}" for phase in ("forward", "backward", "optimizer") for kind in ("matmul", "elementwise"))


@dataclass(frozen=True, slots=True)
class CostStatus:
    """Whether an operator's cost is counted, free or refused. Of one operator, some calls may be counted and others refused."""

    operator: str
    kind: str
    because: str
    unstated: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """Calls of one status in closed form, by module path where they are refused; ``flops`` is then ``None``."""

    status: CostStatus
    runs: Poly
    flops: Poly | None
    places: tuple[tuple[str, str, Poly], ...] = ()


@dataclass(frozen=True, slots=True)
class CoverageContext:
    """What closed forms of a graph are computed with."""

    graph: Graph
    registry: Registry
    algebra: Algebra
    fold: Folding
    module_paths: LoopIndices
    interpolate: Interpolation


def ledger(frame: CoverageContext, groups_of: Mapping[str, Sequence[Group]], sizes: Mapping[str, int]) -> Ledger:
    """The ledger of a step whose operators are all counted or free; ``groups_of`` has the groups of its quantities."""
    flops = _flops(frame, [g for name in FLOPS for g in groups_of.get(name, ())])
    counts = _counted(frame, lambda op: _stated(op, frame.registry))
    return _at(frame, [Tally(s, _poly(frame, n), flops.get(s.operator, frame.algebra.constant(0))) for s, n in counts.items()], sizes)


def runs_as_derived(frame: CoverageContext, trace: StepTrace) -> bool:
    """Whether ``trace`` calls each operator as often as the closed forms of the counts say."""
    counts = _counted(frame, lambda op: _stated(op, frame.registry))
    expected = {status.operator: frame.algebra.value(_poly(frame, number), trace.sizes) for status, number in counts.items()}
    return expected == Counter(op.name for op in _calls(trace))


def refused(frame: CoverageContext) -> RefusedOperatorError | None:
    """The error for a step with operators that cannot be counted, with its ledger; ``None`` where every operator can be."""
    folder = Accumulator(frame.algebra.parse, frame.registry)
    statuses: dict[int, CostStatus] = {}

    def judge(op: Op) -> CostStatus:
        return statuses.setdefault(id(op), _judged(op, folder))

    counts = _counted(frame, judge)
    if all(status.kind != REFUSED for status in counts):
        return None
    entries = [_flop_entries(trace, folder, judge) for trace in frame.graph.traces]
    flops = _flops(frame, loops.group(entries, frame.module_paths, frame.interpolate, frame.algebra.constant(1)))
    places = _places(frame, folder, judge)
    tallies = [
        Tally(s, _poly(frame, n), None, tuple(places[s]))
        if s.kind == REFUSED
        else Tally(s, _poly(frame, n), flops.get(s.operator, frame.algebra.constant(0)))
        for s, n in counts.items()
    ]
    return _error(frame, tallies)


def _error(frame: CoverageContext, tallies: Sequence[Tally]) -> RefusedOperatorError:
    operators = [*frame.registry.rules, *frame.registry.frees]
    kind = UnknownOperatorError if any(t.status.unstated for t in tallies) else RefusedOperatorError

    def at(sizes: Mapping[str, int]) -> RefusedOperatorError:
        ledger = _at(frame, tallies, sizes)
        return kind(refusal(ledger, operators), ledger, at)

    return at({d.name: d.value for d in frame.graph.dims})


# -- reading a graph ---------------------------------------------------------------------------------------------------


def _calls(trace: StepTrace) -> Iterator[Op]:
    yield from (op for op in trace.ops if op.step == STEP)


def _counted(frame: CoverageContext, judge: Any) -> dict[CostStatus, list[int]]:
    """Calls of each status in every trace."""
    traces = frame.graph.traces
    counts: dict[CostStatus, list[int]] = {}
    for i, trace in enumerate(traces):
        for op in _calls(trace):
            counts.setdefault(judge(op), [0] * len(traces))[i] += 1
    return dict(sorted(counts.items(), key=lambda item: (item[0].operator, item[0].kind)))


def _stated(op: Op, registry: Registry) -> CostStatus:
    entry = registry.find(op.name)
    if entry is None:
        return CostStatus(op.name, REFUSED, "it has no cost rule", unstated=True)
    return CostStatus(op.name, FREE, entry.because) if isinstance(entry, Free) else CostStatus(op.name, COUNTED, entry.statement)


def _judged(op: Op, folder: Accumulator) -> CostStatus:
    """Like ``_stated``, but refused where the rule does not support this call."""
    status = _stated(op, folder.registry)
    if status.kind == REFUSED:
        return status
    try:
        folder.cost(op)
    except NapkinError as error:
        return CostStatus(op.name, REFUSED, str(error).rstrip("."))
    return status


def _flop_entries(trace: StepTrace, folder: Accumulator, judge: Any) -> list[Any]:
    """Addends of the FLOPs of those operators that can be counted."""
    countable = replace(trace, ops=tuple(op for op in _calls(trace) if judge(op).kind != REFUSED))
    return [entry for entry in folder.work(countable) if entry.quantity in FLOPS]


def _flops(frame: CoverageContext, groups_here: Sequence[Group]) -> dict[str, Poly]:
    """FLOPs of each operator."""
    total: dict[str, Poly] = {}
    for g in groups_here:
        total[g.rule] = total.get(g.rule, frame.algebra.constant(0)) + g.total
    return total


def _places(frame: CoverageContext, folder: Accumulator, judge: Any) -> dict[CostStatus, list[tuple[str, str, Poly]]]:
    """Module path, inputs and calls of every refused operator."""
    traces = frame.graph.traces
    counts: dict[tuple[CostStatus, str, str], list[int]] = {}
    for i, trace in enumerate(traces):
        for op in _calls(trace):
            if judge(op).kind == REFUSED:
                key = (judge(op), frame.module_paths.general(op.module_path), _inputs(frame, folder, op))
                counts.setdefault(key, [0] * len(traces))[i] += 1
    places: dict[CostStatus, list[tuple[str, str, Poly]]] = {}
    for (status, module_path, inputs), number in counts.items():
        places.setdefault(status, []).append((module_path, inputs, _poly(frame, number)))
    return places


def _inputs(frame: CoverageContext, folder: Accumulator, op: Op) -> str:
    """``A (B*T, d) float32, B (d, f) float32``, in the model's dimensions."""
    shapes = [(name, ", ".join(_text(frame, s) for s in view.shape), view.dtype) for name, view in folder.operator(op).tensors()]
    return ", ".join(f"{name} ({shape}) {dtype}" for name, shape, dtype in shapes)


def _poly(frame: CoverageContext, number: Sequence[int]) -> Poly:
    return frame.interpolate([frame.algebra.constant(n) for n in number])


def _text(frame: CoverageContext, poly: Poly) -> str:
    return frame.fold.text(poly)


# -- at sizes ----------------------------------------------------------------------------------------------------------


def _at(frame: CoverageContext, tallies: Sequence[Tally], sizes: Mapping[str, int]) -> Ledger:
    values = frame.graph.as_basis().values(sizes)

    def value(poly: Poly) -> int:
        return frame.algebra.value(poly, values)

    return Ledger(
        tuple(
            CoverageRow(
                operator=t.status.operator,
                runs=_text(frame, t.runs),
                value=value(t.runs),
                kind=t.status.kind,
                because=t.status.because,
                flops=None if t.flops is None else _text(frame, t.flops),
                flops_value=None if t.flops is None else value(t.flops),
                unstated=t.status.unstated,
                places=tuple(Place(module_path, inputs, _text(frame, runs), value(runs)) for module_path, inputs, runs in t.places),
            )
            for t in tallies
        )
    )

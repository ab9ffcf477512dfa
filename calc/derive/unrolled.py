"""Unrolls a trace to more layers than were traced: an iteration in its middle is repeated.

Tracing every layer of a deep model takes as long as all traces of its derivation together, and all layers are equal. Repeating an iteration
is verified: unrolling the second-deepest trace must reproduce the deepest one, to the last event and storage. Where it does not, there is
no unrolled trace, and the step must be traced at that depth. Where the deepest one was made in this way, certificates have verified it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from calc.derive.loops import LoopIndices
from calc.graph.step import Graph, Size, StepTrace
from calc.graph.unrolling import IrregularError, Unrolling

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

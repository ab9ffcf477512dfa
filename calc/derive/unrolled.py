"""Unrolls a trace to more layers than were traced: an iteration in its middle is repeated.

Tracing every layer of a deep model takes as long as all traces of its derivation together, and all layers are equal. Repeating an iteration
is verified: unrolling the second-deepest trace must reproduce the deepest one, to the last event and storage. Where it does not, there is
no unrolled trace, and the step must be traced at that depth.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from calc.derive.loops import LoopIndices
from calc.graph.step import Event, Graph, Op, Size, StepTrace, Storage, Tensor

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
            if layers and _alike(_Unrolling(before, module_paths, layers, last, 1).trace(), deepest, read):
                return _Unrolling(deepest, module_paths, layers, last, further).trace()
        except _IrregularError:
            continue
    return None


class _IrregularError(Exception):
    """An iteration runs other operators than its neighbor."""


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


@dataclass(frozen=True, slots=True)
class _Place:
    """An iteration: ``group`` 0 is the repeated one, −1 the one before it."""

    container: str
    group: int


@dataclass(frozen=True, slots=True)
class _Item:
    """An operator or an event, by its index."""

    index: int
    is_op: bool


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Consecutive operators and events of one iteration; ``at`` is None outside of the layers."""

    at: _Place | None
    items: Sequence[_Item]


Copy = tuple[int, int]  # a storage of the base trace, and the copy of its iteration


@dataclass
class _Unrolling:
    """Builds a trace in which the iteration ``last`` from the end is repeated ``further`` times. ``layers`` has the number of children per
    iteration of each container."""

    base: StepTrace
    module_paths: LoopIndices
    layers: Mapping[str, int]
    last: int
    further: int
    _iterations: list[_Place | None] = field(init=False)
    _members: dict[_Place, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = self.module_paths.instances(self.base)
        self._starts = {prefix: counts[prefix] - (self.last + 1) * each for prefix, each in self.layers.items()}
        if min(self._starts.values()) < 0:
            raise _IrregularError
        self._placed: dict[str, _Place | None] = {}
        self._places = self._places_of_ops()
        self._iterations = self._iterations_of_storages()
        for storage, iteration in enumerate(self._iterations):
            if iteration is not None:
                self._members.setdefault(iteration, []).append(storage)

    # -- where things belong --------------------------------------------------------------------------------------

    def _numbered(self, module_path: str) -> tuple[str, int, str] | None:
        """A path as container, number and rest, if it is in one of the containers."""
        parts = module_path.split(".")
        for i, part in enumerate(parts):
            if part.isdigit() and ".".join(parts[:i]) in self.layers:
                return ".".join(parts[:i]), int(part), ".".join(parts[i + 1 :])
        return None

    def _place(self, module_path: str) -> _Place | None:
        if module_path not in self._placed:
            numbered = self._numbered(module_path)
            self._placed[module_path] = numbered and _Place(
                numbered[0], (numbered[1] - self._starts[numbered[0]]) // self.layers[numbered[0]]
            )
        return self._placed[module_path]

    def _places_of_ops(self) -> list[_Place | None]:
        """The iteration of each operator: by its module path; between two of one iteration, or of neighbors, that of the next one
        (operators outside of modules at the start of an iteration)."""
        places = [self._place(op.module_path) for op in self.base.ops]
        placed = [i for i, place in enumerate(places) if place is not None]
        for before, after in itertools.pairwise(placed):
            if after > before + 1 and self._follow_each_other(before, after, places):
                places[before + 1 : after] = [places[after]] * (after - before - 1)
        return places

    def _follow_each_other(self, before: int, after: int, places: Sequence[_Place | None]) -> bool:
        first, second = places[before], places[after]
        earlier, later = self.base.ops[before], self.base.ops[after]
        if first is None or second is None or (earlier.phase, earlier.step) != (later.phase, later.step):
            return False
        return first.container == second.container and abs(first.group - second.group) <= 1

    def _place_of_op(self, op: int) -> _Place | None:
        return self._places[op] if 0 <= op < len(self._places) else None

    def _iterations_of_storages(self) -> list[_Place | None]:
        """The iteration in which each storage is allocated: by its operator, else by its name."""
        iterations: list[_Place | None] = [None] * len(self.base.storages)
        for event in self.base.events:
            if event.change > 0:
                iterations[event.storage] = self._place_of_op(event.op) or self._place(self.base.storages[event.storage].name)
        return iterations

    # -- order ---------------------------------------------------------------------------------------------------------

    def _stretches(self) -> list[_Stretch]:
        edges = {edge for window in self.base.windows for edge in window}
        keyed: list[tuple[tuple[_Place | None, int], _Item]] = []
        part, events = 0, iter(enumerate(self.base.events))
        waiting = next(events, None)
        for op in range(-1, len(self.base.ops) + 1):
            if 0 <= op < len(self.base.ops):
                keyed.append(((self._place_of_op(op), part), _Item(op, True)))
            while waiting is not None and waiting[1].op <= op:
                part += waiting[0] in edges
                iteration = self._place_of_op(op) or self._iterations[waiting[1].storage]
                keyed.append(((iteration, part), _Item(waiting[0], False)))
                waiting = next(events, None)
        grouped = itertools.groupby(keyed, key=lambda pair: pair[0])
        return [_Stretch(at, [item for _, item in items]) for (at, _), items in grouped]

    def _written(self) -> Iterator[tuple[_Stretch, int]]:
        """Every stretch with its copy, in the order of the unrolled trace: the backward goes through layers from the last."""
        stretches = self._stretches()
        for i, stretch in enumerate(stretches):
            copies = range(self.further + 1) if stretch.at is not None and stretch.at.group == 0 else range(1)
            for copy in copies if _ascends(stretches, i) else reversed(copies):
                yield stretch, copy

    # -- storages -------------------------------------------------------------------------------------------------

    def _meant(self, storage: int, at: _Place | None, copy: int) -> Copy:
        """The storage of the unrolled trace that corresponds to ``storage`` in ``copy`` of the iteration ``at``."""
        iteration = self._iterations[storage]
        if iteration is None:
            if at is not None and at.group == 0:
                raise _IrregularError  # one storage would get the event several times
            return storage, 0
        if at is None or at == iteration:
            return storage, copy if iteration.group == 0 else 0
        if at.container != iteration.container:
            if 0 in (at.group, iteration.group):
                raise _IrregularError
            return storage, 0
        group = iteration.group + (copy if at.group == 0 else self.further if at.group > 0 else 0)
        if 0 <= group <= self.further:
            return self._like(storage, 0), group
        return self._like(storage, group if group < 0 else group - self.further), 0

    def _like(self, storage: int, group: int) -> int:
        """The storage that corresponds to ``storage`` in the iteration ``group``."""
        iteration = self._iterations[storage]
        assert iteration is not None  # the caller checks this
        mine, theirs = self._members[iteration], self._members.get(replace(iteration, group=group), [])
        if len(mine) != len(theirs):
            raise _IrregularError
        return theirs[mine.index(storage)] if mine is not theirs else storage

    # -- the unrolled trace ----------------------------------------------------------------------------------------------

    def _module_path_of(self, module_path: str, copy: int) -> str:
        """A module path with its layer's number in the unrolled trace."""
        numbered, place = self._numbered(module_path), self._place(module_path)
        if numbered is None or place is None or place.group < 0:
            return module_path
        container, number, tail = numbered
        number += self.layers[container] * (copy if place.group == 0 else self.further)
        return ".".join(filter(None, (container, str(number), tail)))

    def trace(self) -> StepTrace:
        ops: list[tuple[Op, int]] = []
        events: list[Event] = []
        storages: list[Storage] = []
        new: dict[Copy, int] = {}
        moved: dict[int, int] = {}
        for stretch, copy in self._written():
            for item in stretch.items:
                if item.is_op:
                    ops.append((self.base.ops[item.index], copy))
                    continue
                event = self.base.events[item.index]
                moved.setdefault(item.index, len(events))
                storage_copy = (event.storage, copy) if event.change > 0 else self._meant(event.storage, stretch.at, copy)
                if event.change > 0:
                    old = self.base.storages[event.storage]
                    new[storage_copy] = len(storages)
                    storages.append(replace(old, index=len(storages), name=self._module_path_of(old.name, copy)))
                if storage_copy not in new:
                    raise _IrregularError
                events.append(Event(event.change, new[storage_copy], len(ops) - (event.op < len(self.base.ops))))
        moved[len(self.base.events)] = len(events)
        windows = tuple((moved[start], moved[end]) for start, end in self.base.windows)
        written = tuple(self._op(index, op, copy, new) for index, (op, copy) in enumerate(ops))
        return self._with_names(replace(self.base, ops=written, events=tuple(events), storages=tuple(storages), windows=windows), new)

    def _op(self, index: int, op: Op, copy: int, new: Mapping[Copy, int]) -> Op:
        """An operator with its results, which name the storages that it allocates."""
        outputs = tuple(replace(t, storage=new.get((t.storage, copy), -1)) for t in op.outputs)
        return replace(op, index=index, module_path=self._module_path_of(op.module_path, copy), args=(), outputs=outputs)

    def _with_names(self, trace: StepTrace, new: Mapping[Copy, int]) -> StepTrace:
        """The trace with the names of its tensors."""

        def copies(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
            for copy in range(self.further + 1):
                if (tensor.storage, copy) in new:
                    yield self._module_path_of(name, copy), replace(tensor, storage=new[tensor.storage, copy])

        return replace(
            trace,
            parameters=tuple(each for name, t in trace.parameters for each in copies(name, t)),
            buffers=tuple(each for name, t in trace.buffers for each in copies(name, t)),
            masters=tuple(each for name, t in trace.masters for each in copies(name, t)),
            state=tuple((each, key, own) for name, key, t in trace.state for each, own in copies(name, t)),
            saved=(),
            calls=(),
            gradients=(),
            persistent=(),
        )


def _ascends(stretches: Sequence[_Stretch], index: int) -> bool:
    """Whether the iterations around a stretch are in ascending order."""
    at = stretches[index].at
    if at is None:
        return True
    beside = [stretches[i].at for i in (index - 1, index, index + 1) if 0 <= i < len(stretches)]
    groups = [place.group for place in beside if place is not None and place.container == at.container]
    return groups[0] <= groups[-1]

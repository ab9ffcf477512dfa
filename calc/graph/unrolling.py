"""Traces of more iterations than were traced: an iteration of a trace is repeated, with everything that the trace says of it.

The layers of a deep model are equal, so a trace of three of them contains all that a fourth one would add. Whether that is so is verified
by whoever unrolls: by another trace, or by certificates, which are traces of still more iterations.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from calc.graph.step import Event, Op, Saved, Size, StepTrace, Storage, Tensor

T = TypeVar("T")
Shape = tuple[Size, ...]


class IrregularError(Exception):
    """An iteration runs other operators than its neighbor."""


def numbers_in(module_path: str) -> Iterator[tuple[str, int, str]]:
    """``"h.3.mlp.0"`` → ``("h", 3, "mlp.0"), ("h.3.mlp", 0, "")``: containers with the number of a child, and the rest of the path."""
    parts = module_path.split(".")
    yield from ((".".join(parts[:i]), int(part), ".".join(parts[i + 1 :])) for i, part in enumerate(parts) if part.isdecimal())


def numbered_children(module_paths: Iterable[str]) -> dict[str, frozenset[int]]:
    """Numbers of the children of each container (``h.0``, ``h.1``), by the container's path."""
    children: dict[str, set[int]] = {}
    for module_path in set(module_paths):
        for container, number, _ in numbers_in(module_path):
            children.setdefault(container, set()).add(number)
    return {container: frozenset(numbers) for container, numbers in children.items()}


def frees_in_order(events: Sequence[Event], windows: Sequence[tuple[int, int]]) -> Iterator[Event]:
    """``events``, with storages that are freed together in allocation order: autocast frees its casts in the order of addresses, which
    differs between runs."""
    bounds = sorted({bound for window in windows for bound in window})
    numbered = enumerate(events)
    for (change, *_), group in itertools.groupby(numbered, lambda each: (each[1].change, each[1].op, bisect.bisect(bounds, each[0]))):
        together = [event for _, event in group]
        yield from together if change > 0 else sorted(together, key=lambda event: event.storage)


def unrolled_to(base: StepTrace, sizes: Mapping[str, int], tensors: Sequence[tuple[str, Shape]]) -> StepTrace | None:
    """``base`` with one more iteration of a loop, as a trace at ``sizes`` would be, whose module has parameters and buffers of these names
    and shapes. None where ``base`` does not determine it."""
    before, after = numbered_children(_names(base)), numbered_children(name for name, _ in tensors)
    layers = {prefix: len(after.get(prefix, ())) - len(numbers) for prefix, numbers in before.items()}
    layers = {prefix: more for prefix, more in layers.items() if more > 0}
    try:
        longer = Unrolling(base, {prefix: len(before[prefix]) for prefix in layers}, layers).trace() if layers else None
    except IrregularError:
        return None
    built = {name for name, _ in tensors}  # and not by a step
    if longer is None or [(name, t.shape) for name, t in (*longer.parameters, *longer.buffers) if name in built] != [*tensors]:
        return None
    return replace(longer, sizes=dict(sizes))


def _names(trace: StepTrace) -> list[str]:
    return [name for name, _ in (*trace.parameters, *trace.buffers)]


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
class Unrolling:
    """Builds a trace in which the iteration ``last`` from the end is repeated ``further`` times. ``children`` has the number of children of
    each container in ``base``, ``layers`` that per iteration."""

    base: StepTrace
    children: Mapping[str, int]
    layers: Mapping[str, int]
    last: int = 1
    further: int = 1
    _iterations: list[_Place | None] = field(init=False)
    _members: dict[_Place, list[int]] = field(default_factory=dict)
    _new: dict[Copy, int] = field(default_factory=dict)
    _tensors: dict[tuple[Tensor, int], Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._starts = {prefix: self.children[prefix] - (self.last + 1) * each for prefix, each in self.layers.items()}
        if min(self._starts.values()) < 0:
            raise IrregularError
        self._numbers: dict[str, tuple[str, int, str] | None] = {}
        self._placed: dict[str, _Place | None] = {}
        self._places = self._places_of_ops()
        self._iterations = self._iterations_of_storages()
        for storage, iteration in enumerate(self._iterations):
            if iteration is not None:
                self._members.setdefault(iteration, []).append(storage)
        self._position = {storage: i for members in self._members.values() for i, storage in enumerate(members)}

    # -- where things belong --------------------------------------------------------------------------------------

    def _numbered(self, module_path: str) -> tuple[str, int, str] | None:
        """A path as container, number and rest, if it is in one of the containers."""
        if module_path not in self._numbers:
            self._numbers[module_path] = next((each for each in numbers_in(module_path) if each[0] in self.layers), None)
        return self._numbers[module_path]

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
            copies = range(self._copies(stretch.at))
            for copy in copies if _ascends(stretches, i) else reversed(copies):
                yield stretch, copy

    def _copies(self, at: _Place | None) -> int:
        """How often what belongs to ``at`` is in the unrolled trace."""
        return self.further + 1 if at is not None and at.group == 0 else 1

    def _repeated(self, items: Iterable[T], place: Callable[[T], _Place | None]) -> Iterator[tuple[T, _Place | None, int]]:
        """``items`` with the place and the copy of each, those of the repeated iteration as often as it runs."""
        for at, group in itertools.groupby(items, key=place):
            stretch = list(group)
            for copy in range(self._copies(at)):
                yield from ((item, at, copy) for item in stretch)

    # -- storages -------------------------------------------------------------------------------------------------

    def _meant(self, storage: int, at: _Place | None, copy: int) -> Copy:
        """The storage of the unrolled trace that corresponds to ``storage`` in ``copy`` of the iteration ``at``."""
        iteration = self._iterations[storage]
        if iteration is None:
            return storage, 0
        if at is None or at == iteration:
            return storage, copy if iteration.group == 0 else 0
        if at.container != iteration.container:
            if 0 in (at.group, iteration.group):
                raise IrregularError
            return storage, 0
        group = iteration.group + (copy if at.group == 0 else self.further if at.group > 0 else 0)
        if 0 <= group <= self.further:
            return self._like(storage, 0), group
        return self._like(storage, group if group < 0 else group - self.further), 0

    def _freed(self, storage: int, at: _Place | None, copy: int) -> Copy:
        """The storage that an event of ``at`` frees: one of no iteration is freed only once."""
        if self._iterations[storage] is None and at is not None and at.group == 0:
            raise IrregularError
        return self._meant(storage, at, copy)

    def _like(self, storage: int, group: int) -> int:
        """The storage that corresponds to ``storage`` in the iteration ``group``."""
        iteration = self._iterations[storage]
        assert iteration is not None  # the caller checks this
        if iteration.group == group:
            return storage
        mine, theirs = self._members[iteration], self._members.get(replace(iteration, group=group), [])
        if len(mine) != len(theirs):
            raise IrregularError
        return theirs[self._position[storage]]

    def _number(self, copy: Copy) -> int:
        """The index of a storage in the unrolled trace."""
        if copy not in self._new:
            raise IrregularError
        return self._new[copy]

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
        """The unrolled trace; its ``sizes`` are those of the base."""
        trace, ops = self._unrolled()
        calls, places = self._calls(ops), [self._places[op.index] for op, _ in ops]
        saved = self._repeated(self.base.saved, lambda saved: self._place(saved.module_path))
        return replace(
            trace,
            ops=tuple(self._op(i, op, at, copy, calls) for i, ((op, copy), at) in enumerate(zip(ops, places, strict=True))),
            calls=tuple(self.base.calls[call] for call, _ in calls),
            saved=tuple(Saved(self._tensor(s.tensor, at, copy), self._module_path_of(s.module_path, copy), s.op) for s, at, copy in saved),
            gradients=self._named(self.base.gradients),
            persistent=tuple(sorted(self._new[s, copy] for s in self.base.persistent for copy in range(self._copies(self._iterations[s])))),
        )

    def of_live_bytes(self) -> StepTrace:
        """The unrolled trace without arguments of operators, saved tensors, calls and gradients, which live bytes do not depend on."""
        trace, ops = self._unrolled()
        written = tuple(self._without_arguments(index, op, copy) for index, (op, copy) in enumerate(ops))
        return replace(trace, ops=written, saved=(), calls=(), gradients=(), persistent=())

    def _unrolled(self) -> tuple[StepTrace, list[tuple[Op, int]]]:
        """The trace with its storages, events and named tensors; and its operators, each with its copy."""
        ops: list[tuple[Op, int]] = []
        events: list[Event] = []
        storages: list[Storage] = []
        moved: dict[int, int] = {}
        for stretch, copy in self._written():
            for item in stretch.items:
                if item.is_op:
                    ops.append((self.base.ops[item.index], copy))
                    continue
                event = self.base.events[item.index]
                moved.setdefault(item.index, len(events))
                if event.change > 0:
                    old = self.base.storages[event.storage]
                    self._new[event.storage, copy] = len(storages)
                    storages.append(replace(old, index=len(storages), name=self._module_path_of(old.name, copy)))
                storage_copy = (event.storage, copy) if event.change > 0 else self._freed(event.storage, stretch.at, copy)
                events.append(Event(event.change, self._number(storage_copy), len(ops) - (event.op < len(self.base.ops))))
        moved[len(self.base.events)] = len(events)
        windows = tuple((moved[start], moved[end]) for start, end in self.base.windows)
        in_order = tuple(frees_in_order(events, windows))
        return self._with_names(replace(self.base, events=in_order, storages=tuple(storages), windows=windows)), ops

    def _with_names(self, trace: StepTrace) -> StepTrace:
        """The trace with its parameters, buffers, fp32 copies and optimizer state."""
        state = self._repeated(self.base.state, lambda state: self._place(state[0]))
        return replace(
            trace,
            parameters=self._named(self.base.parameters),
            buffers=self._named(self.base.buffers),
            masters=self._named(self.base.masters),
            state=tuple((self._module_path_of(name, copy), key, self._tensor(t, at, copy)) for (name, key, t), at, copy in state),
        )

    def _named(self, tensors: Sequence[tuple[str, Tensor]]) -> tuple[tuple[str, Tensor], ...]:
        repeated = self._repeated(tensors, lambda named: self._place(named[0]))
        return tuple((self._module_path_of(name, copy), self._tensor(t, at, copy)) for (name, t), at, copy in repeated)

    def _calls(self, ops: Sequence[tuple[Op, int]]) -> dict[Copy, int]:
        """The index of each copy of a composite call in the unrolled trace, in the order of their first operators."""
        calls: dict[Copy, int] = {}
        for op, copy in ops:
            if op.call is not None:
                calls.setdefault((op.call, copy), len(calls))
        if {call for call, _ in calls} != {*range(len(self.base.calls))}:
            raise IrregularError
        return calls

    def _op(self, index: int, op: Op, at: _Place | None, copy: int, calls: Mapping[Copy, int]) -> Op:
        call = None if op.call is None else calls[op.call, copy]
        args = tuple((name, self._value(value, at, copy)) for name, value in op.args)
        outputs = tuple(self._tensor(t, at, copy) for t in op.outputs)
        return Op(index, op.name, op.phase, op.step, self._module_path_of(op.module_path, copy), args, outputs, op.mutates, op.node, call)

    def _without_arguments(self, index: int, op: Op, copy: int) -> Op:
        """An operator with its results, which name the storages that it allocates."""
        outputs = tuple(replace(t, storage=self._new.get((t.storage, copy), -1)) for t in op.outputs)
        return replace(op, index=index, module_path=self._module_path_of(op.module_path, copy), args=(), outputs=outputs)

    def _value(self, value: Any, at: _Place | None, copy: int) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(value, at, copy)
        return tuple(self._value(v, at, copy) for v in value) if isinstance(value, tuple) else value

    def _tensor(self, tensor: Tensor, at: _Place | None, copy: int) -> Tensor:
        iteration = self._iterations[tensor.storage]
        if at is None and iteration is not None and iteration.group == 0:
            raise IrregularError  # what uses all layers would have further arguments
        storage = self._number(self._meant(tensor.storage, at, copy))
        if (tensor, storage) not in self._tensors:
            self._tensors[tensor, storage] = replace(tensor, storage=storage)
        return self._tensors[tensor, storage]


def _ascends(stretches: Sequence[_Stretch], index: int) -> bool:
    """Whether the iterations around a stretch are in ascending order."""
    at = stretches[index].at
    if at is None:
        return True
    beside = [stretches[i].at for i in (index - 1, index, index + 1) if 0 <= i < len(stretches)]
    groups = [place.group for place in beside if place is not None and place.container == at.container]
    return groups[0] <= groups[-1]

"""The FLOPs and traffic of every operator of the counted step, equal ones together: the input of a roofline and a predicted time.

They are accumulated like the quantities, so that FLOPs and bytes add up to ``flops.*`` and ``bytes_moved.*``. In addition to the traffic
of eager execution, where every operator reads its arguments from memory and writes its results there, there is a lower one with fusion:

    Operators without matrix multiplications whose rule states no traffic of its own, following one another within a phase (views
    between them are no operators), run as one kernel. It reads every tensor that existed before it once, and writes once every tensor
    that an operator after it reads or that outlives the step. All other operators move the same bytes as in eager execution.

Equal views of one storage (same shape, same dtype) count as one tensor. A compiler may fuse less: this is a lower model, and never above
the traffic of eager execution. Where two sizes are equal, a matrix and its transpose are equal views and a kernel would read one tensor
where the closed form counts two: there the closed form is an upper bound of what a trace has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calc.derive.accumulate import PHASES, Accumulator
from calc.derive.analysis import sizes_read
from calc.derive.loops import Interpolation, LoopIndices
from calc.errors import CertificateError, UnequalIterationsError
from calc.graph.basis import Folding
from calc.graph.guards import resolve
from calc.graph.step import Graph, Op, StepTrace, Tensor
from calc.rules import families  # noqa: F401  # importing the rules registers them
from calc.rules.registry import REGISTRY, Cost, Operator, Registry, View
from calc.symbolic.algebra import Algebra, Poly
from calc.units import item_size

_OUTLIVES = ("parameter", "gradient", "buffer", "optimizer state", "master weight", "input")
SUMMED = ("matmul", "elementwise", "recompute", "moved", "fused", "launches", "fused_launches", "cold")


@dataclass(frozen=True, slots=True)
class Work:
    """One operator, or ``times`` equal ones. Counts are per operator: FLOPs, bytes, kernels.

    ``module_path`` has ``*`` for a loop index. A view has no traffic and no kernel. ``fused_launches`` is 1 for the first of a fused run.
    ``cold`` is the part of ``moved`` for tensors that existed before the phase and are accessed in it for the first time: weights, saved
    activations, optimizer state. Their size determines whether a cache still contains them.
    """

    phase: str
    module_path: str
    operator: Operator
    matmul: Any
    elementwise: Any
    recompute: Any
    moved: Any
    fused: Any
    launches: int
    fused_launches: int
    times: Any = 1
    cold: Any = 0

    @property
    def name(self) -> str:
        return self.operator.name


@dataclass(frozen=True)
class Operators:
    """The operators of a graph's step, with sizes and numbers as polynomials in basis symbols."""

    graph: Graph
    registry: Registry
    algebra: Algebra
    fold: Folding
    works: tuple[Work, ...]

    def text(self, poly: Poly) -> str:
        """A count of one operator, or of all equal ones, as a closed form in the model's dimensions."""
        return self.fold.text(poly)

    def total(self, field: str, phase: str) -> str:
        """Closed form of one of ``SUMMED`` over a phase, in the model's dimensions."""
        return self.text(self._sum(field, phase))

    def _sum(self, field: str, phase: str) -> Poly:
        zero = self.algebra.constant(0)
        return sum((w.times * getattr(w, field) for w in self.works if w.phase == phase), start=zero)

    def in_force(self, values: Mapping[str, int]) -> Operators:
        """The operators at these values of all dimensions: those of the special case in force, or these."""
        special = self.graph.special_case_at(values)
        return self if special is None else operators(special.graph, self.registry).in_force(values)

    def at(self, sizes: Mapping[str, int] | None = None) -> tuple[Work, ...]:
        """The operators at ``sizes`` (those not given as traced), in integers, without those that do not run there.

        Raises ``UnequalIterationsError`` where the number of equal operators has no closed form.
        """
        values = resolve(self.graph, sizes or {})
        return self.in_force(values).at_all(values)

    def at_all(self, values: Mapping[str, int]) -> tuple[Work, ...]:
        """The same for all dimensions, without special cases."""
        symbols = self.graph.as_basis().values(values)
        read = _Cached(self.algebra.at(symbols))
        works = (_evaluated(w, read) for w in self.works)
        return tuple(w for w in works if w.times)


def operators(graph: Graph, registry: Registry = REGISTRY) -> Operators:
    """The operators of every trace of ``graph`` with their numbers as polynomials in the trip counts, compared with its certificates."""
    algebra = Algebra(graph.symbols, sizes_read(graph.traces))
    module_paths = LoopIndices(graph.traces)
    interpolate = Interpolation(graph.traces, graph.loops, algebra)
    folder = Accumulator(algebra.parse, registry)
    counts: dict[Any, list[int]] = {}
    samples: dict[Any, Work] = {}
    for i, trace in enumerate(graph.traces):
        for key, work in _traced(trace, folder, module_paths):
            counts.setdefault(key, [0] * len(graph.traces))[i] += 1
            samples.setdefault(key, work)
    unit = algebra.constant(1)
    works = tuple(replace(samples[key], times=interpolate([unit * n for n in number])) for key, number in counts.items())
    result = Operators(graph, registry, algebra, Folding(graph.as_basis(), algebra), works)
    for trace in graph.certificates:
        _certify(result, trace, module_paths, registry)
    return result


def of_trace(graph: Graph, trace: StepTrace) -> tuple[Work, ...]:
    """The operators of a concrete ``trace`` of the graph's step, equal ones together, in integers."""
    numbers: dict[Any, int] = {}
    samples: dict[Any, Work] = {}
    for key, work in _traced(trace, Accumulator(int, REGISTRY), LoopIndices(graph.traces)):
        numbers[key] = numbers.get(key, 0) + 1
        samples.setdefault(key, work)
    return tuple(replace(samples[key], times=number) for key, number in numbers.items())


def _certify(totals: Operators, trace: StepTrace, module_paths: LoopIndices, registry: Registry) -> None:
    """Compare every total with that of a concrete trace at sizes outside the derivation."""
    works = [work for _, work in _traced(trace, Accumulator(int, registry), module_paths)]
    for phase in PHASES:
        for field in SUMMED:
            derived = totals.algebra.value(totals._sum(field, phase), trace.sizes)
            counted = sum(int(getattr(w, field)) for w in works if w.phase == phase)
            if derived != counted and not (field == "fused" and counted < derived and _may_have_equal_shapes(trace.sizes)):
                raise CertificateError(field, f"{field} of the {phase}: {derived:,} derived, {counted:,} in a trace", trace.sizes)


def _may_have_equal_shapes(sizes: Mapping[str, int]) -> bool:
    """Whether views of different shape may have equal shapes at ``sizes``."""
    return len(set(sizes.values())) < len(sizes)


class _Cached:
    """A polynomial with its cached value."""

    def __init__(self, value: Callable[[Any], int]) -> None:
        self._value = value
        self._values: dict[Any, int] = {}

    def __call__(self, size: Any) -> int:
        if isinstance(size, int):
            return size
        if size not in self._values:
            self._values[size] = self._value(size)
        return self._values[size]


def _evaluated(work: Work, read: _Cached) -> Work:
    times = read(work.times)
    if times < 0:
        raise UnequalIterationsError(
            f"the operators at {work.module_path or 'the top level'} have different sizes in each iteration: trace the step at these sizes"
        )
    return replace(
        work,
        operator=_sized(work.operator, read),
        times=times,
        matmul=read(work.matmul),
        elementwise=read(work.elementwise),
        recompute=read(work.recompute),
        moved=read(work.moved),
        fused=read(work.fused),
        cold=read(work.cold),
    )


def _sized(operator: Operator, read: _Cached) -> Operator:
    def sized(value: Any) -> Any:
        if isinstance(value, View):
            return View(tuple(read(s) for s in value.shape), value.dtype, read(value.distinct))
        return tuple(sized(v) for v in value) if isinstance(value, tuple) else value

    return Operator(operator.name, {n: sized(v) for n, v in operator.args.items()}, sized(operator.outputs), operator.mutates)


# -- one trace --------------------------------------------------------------------------------------------------------


def _traced(trace: StepTrace, folder: Accumulator, module_paths: LoopIndices) -> Iterator[tuple[Any, Work]]:
    """Each operator of the counted step, with the key by which equal ones are grouped."""
    mine = [op for op in trace.ops if op.step == 2 and op.phase in PHASES]
    last_read = _last_reads(mine)
    cold = _first_touches(mine, folder)
    for run in _runs(mine, folder):
        fused = _fused(run, trace, folder, last_read) if len(run) > 1 else {}
        for place, op in enumerate(run):
            work = _work(op, folder, module_paths, fused.get(op.index), place == 0, cold.get(op.index, 0))
            yield (work.phase, work.module_path, *folder.key(op), work.recompute, work.fused, work.fused_launches, work.cold), work


def _work(op: Op, folder: Accumulator, module_paths: LoopIndices, fused: Any, first: bool, cold: Any) -> Work:
    cost = folder.cost(op)
    moved = folder.moved(op, cost).count
    launches = int(_launches(op, cost, folder))
    return Work(
        phase=op.phase,
        module_path=module_paths.general(op.module_path),
        operator=folder.operator(op),
        matmul=_flops(cost.matmul),
        elementwise=_flops(cost.elementwise),
        recompute=_flops(folder.repeated(op, cost)),
        moved=moved,
        fused=moved if fused is None else fused,
        launches=launches,
        fused_launches=int(launches and first),
        cold=cold,
    )


def _flops(terms: Iterable[Any]) -> Any:
    return sum((t.count for t in terms), start=0)


def _last_reads(ops: Sequence[Op]) -> dict[int, int]:
    """The index of the last operator of the step that reads each storage."""
    return {tensor.storage: op.index for op in ops for _, tensor in _tensors(op)}


def _first_touches(ops: Sequence[Op], folder: Accumulator) -> dict[int, Any]:
    """Bytes of each operator's tensors that its phase accesses for the first time and did not allocate; mutated ones are read and written.

    An operator without matrix multiplications whose rule states its own traffic counts 0: the rule does not say which arguments it reads
    whole.
    """
    bytes_by_operator: dict[int, Any] = {}
    touched: set[tuple[str, int]] = set()
    for op in ops:
        cost = folder.cost(op)
        if not _launches(op, cost, folder):
            continue
        for name, tensor in _tensors(op):
            if (op.phase, tensor.storage) not in touched and (cost.matmul or cost.reads is None):
                bytes_by_operator[op.index] = bytes_by_operator.get(op.index, 0) + (2 if name in op.mutates else 1) * _bytes(tensor, folder)
            touched.add((op.phase, tensor.storage))
        touched.update((op.phase, tensor.storage) for tensor in op.outputs)
    return bytes_by_operator


def _tensors(op: Op) -> Iterator[tuple[str, Tensor]]:
    for name, value in op.args:
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Tensor):
                yield name, item


def _runs(ops: Sequence[Op], folder: Accumulator) -> Iterator[list[Op]]:
    """Groups of operators that run as one kernel if fused; every other operator by itself. A view joins no group and ends none."""
    run: list[Op] = []
    for op in ops:
        cost = folder.cost(op)
        if not _launches(op, cost, folder):
            yield [op]
            continue
        if run and (op.phase != run[0].phase or not _fuses(op, cost)):
            yield run
            run = []
        if _fuses(op, cost):
            run.append(op)
        else:
            yield [op]
    if run:
        yield run


def _launches(op: Op, cost: Cost, folder: Accumulator) -> bool:
    """Whether a kernel runs for the operator: it is not a view."""
    return bool(cost.matmul) or folder.moved(op, cost).count != 0


def _fuses(op: Op, cost: Cost) -> bool:
    """Whether the operator can be fused: no matrix multiplications, default traffic, and a result; reading a number ends a kernel."""
    return not cost.matmul and cost.reads is None and cost.writes is None and bool(op.outputs or op.mutates)


def _fused(run: Sequence[Op], trace: StepTrace, folder: Accumulator, last_read: Mapping[int, int]) -> dict[int, Any]:
    """Bytes of each operator of a fused group: a tensor's read counts at its first reader, its write at its last writer."""
    end = run[-1].index
    internal: set[int] = set()
    read: set[Any] = set()
    moved: dict[int, Any] = {op.index: 0 for op in run}
    writes: dict[Any, tuple[int, Tensor]] = {}
    for op in run:
        for _, tensor in _tensors(op):
            if tensor.storage not in internal and _alike(tensor) not in read:
                read.add(_alike(tensor))
                moved[op.index] += _bytes(tensor, folder)
        for tensor in op.outputs or tuple(t for name, t in _tensors(op) if name in op.mutates):
            internal.add(tensor.storage)
            writes[_alike(tensor)] = (op.index, tensor)
    for index, tensor in writes.values():
        if last_read.get(tensor.storage, -1) > end or trace.storages[tensor.storage].role in _OUTLIVES:
            moved[index] += _bytes(tensor, folder)
    return moved


def _alike(tensor: Tensor) -> Any:
    return tensor.storage, tensor.shape, tensor.dtype, tensor.distinct


def _bytes(tensor: Tensor, folder: Accumulator) -> Any:
    return item_size(tensor.dtype) * folder.read(tensor.distinct)

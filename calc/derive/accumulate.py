"""Accumulates one trace: every operator's cost and every tensor's bytes, each by module path. The same code accumulates symbolic traces
(polynomials) and concrete ones (integers)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from calc.derive.active import ParameterUse, parameter_use
from calc.derive.backward_matmuls import ForwardMatmuls, MatmulName, forward_matmuls, gradient_of, product_of
from calc.derive.model_parts import ModelParts, model_parts
from calc.derive.names import MODEL_INPUT, AddendLabel, WorkKind
from calc.derive.saved_for import SavedAs, SavedUses
from calc.graph.step import ITERATION, RECOMPUTED, Op, Size, StepTrace, Tensor, bare_name
from calc.rules.registry import Cost, Operator, Registry, Term, View, cost_of
from calc.units import Amount, Unit, bytes_of, item_size

Read = Callable[[Size], Any]

# Arguments that are sizes themselves: no tensor of the operator has them.
SIZES = ("num_head", "num_heads", "chosen", "stages")

PHASES = ("forward", "backward", "optimizer")

_TRAFFIC = AddendLabel("reads and writes")
# Labels of parameters: of all, and of those that one token uses.
_ELEMENTS = AddendLabel("elements")
EXPERTS, TABLE = AddendLabel("elements of a token's experts"), AddendLabel("elements of the table")


@dataclass(frozen=True, slots=True)
class CountedAddend:
    """One addend of one quantity in one trace.

    ``factors`` is the product as the rule states it; ``count`` its value. A factor that is a tuple is a sum of products. ``rule`` names
    the operator's rule or the kind of tensor, ``label`` the rule's addend. ``part`` of the model: one of ``model_parts.NAMES``, or a
    module path.
    ``uses``: as what operators save a tensor for their backwards. ``work``: what of an operator; none of a tensor.
    """

    quantity: str
    module_path: str
    rule: str
    label: AddendLabel
    factors: tuple[Any, ...]
    amount: Amount
    part: str = ""
    uses: tuple[SavedAs, ...] = ()
    work: WorkKind | None = None

    @property
    def count(self) -> Any:
        return self.amount.count


class Accumulator:
    """Accumulates traces of one graph. Costs are cached by operator and shapes, of which a step has few different ones."""

    def __init__(self, read: Read, registry: Registry) -> None:
        self.read = read
        self.registry = registry
        self._costs: dict[Any, Cost] = {}
        self._views: dict[Any, View] = {}
        self._addends: dict[Any, Sequence[CountedAddend]] = {}
        self.uncredited: set[str] = set()
        self.unrouted: set[str] = set()

    def entries(self, trace: StepTrace) -> list[CountedAddend]:
        """Every addend of every counted quantity."""
        use = parameter_use(trace, self.read)
        parts = model_parts(trace, use, self.cost)
        of_tensors = (
            *self._parameters(trace),
            *self._used_parameters(trace, use),
            *self._weights(trace),
            *self._gradients(trace),
            *self._state(trace),
            *self._checkpoint(trace),
        )
        return [
            *(replace(entry, part=parts.of_tensor(entry.module_path)) for entry in of_tensors),
            *self._activations(trace, parts),
            *self._work(trace, parts),
        ]

    # -- tensors --------------------------------------------------------------------------------------------------

    def _parameters(self, trace: StepTrace) -> Iterator[CountedAddend]:
        for name, tensor in _first_of_each_storage(trace.parameters):
            shape = tuple(self.read(s) for s in tensor.shape)
            yield CountedAddend("parameters", name, "parameter", _ELEMENTS, shape or (1,), Amount(math.prod(shape), Unit.ELEMENT))

    def _used_parameters(self, trace: StepTrace, use: ParameterUse) -> Iterator[CountedAddend]:
        self.unrouted |= {use.reason} if use.reason else set()
        for name, tensor in _first_of_each_storage(trace.parameters):
            active, shape = use.active[name], tuple(self.read(s) for s in tensor.shape) or (1,)
            count = math.prod(active.factors)
            if not use.reason and count != 0:
                label = EXPERTS if active.routed else TABLE if name in use.tables else _ELEMENTS
                yield CountedAddend("parameters.active", name, "parameter", label, active.factors, Amount(count, Unit.ELEMENT))
            if name not in use.embeddings:
                amount = Amount(math.prod(shape), Unit.ELEMENT)
                yield CountedAddend("parameters.non_embedding", name, "parameter", _ELEMENTS, shape, amount)

    def _weights(self, trace: StepTrace) -> Iterator[CountedAddend]:
        for name, tensor in _first_of_each_storage(trace.parameters):
            yield self._bytes(trace, "parameters.bytes", name, "parameter", AddendLabel("parameter", tensor.dtype), tensor)
        for name, tensor in _first_of_each_storage(trace.masters):
            yield self._bytes(trace, "master_weights.bytes", name, "master weight", AddendLabel("copy", tensor.dtype), tensor)

    def _gradients(self, trace: StepTrace) -> Iterator[CountedAddend]:
        for name, tensor in _first_of_each_storage(trace.gradients):
            yield self._bytes(trace, "gradients.bytes", name, "gradient", AddendLabel("gradient", tensor.dtype), tensor)

    def _state(self, trace: StepTrace) -> Iterator[CountedAddend]:
        for (name, key), tensor in _first_of_each_storage(((n, k), t) for n, k, t in trace.state):
            yield self._bytes(trace, "optimizer_state.bytes", name, "optimizer state", AddendLabel(key, tensor.dtype), tensor)

    def _activations(self, trace: StepTrace, parts: ModelParts) -> Iterator[CountedAddend]:
        own = {t.storage for _, t in (*trace.parameters, *trace.buffers)}
        full_tensors, uses = _largest_by_storage(trace), _uses(trace)
        for saved, tensor in _first_of_each_storage((s, s.tensor) for s in trace.saved):
            if tensor.storage not in own:
                mine = uses[saved.module_path, saved.op, tensor.storage]
                is_input = trace.storages[tensor.storage].role == "input"
                names = ", ".join(filter(None, dict.fromkeys(use.name for use in mine)))
                words = (names, f"({MODEL_INPUT})" if is_input else "", f"saved for the backward of {bare_name(saved.op)}")
                label = AddendLabel(" ".join(filter(None, words)), tensor.dtype, is_input)
                entry = self._bytes(trace, "activations.bytes", saved.module_path, "saved tensor", label, tensor, full_tensors)
                yield replace(entry, part=parts.of_saved(saved), uses=mine)

    def _checkpoint(self, trace: StepTrace) -> Iterator[CountedAddend]:
        state, keys = {t.storage: t for _, _, t in trace.state}, {t.storage: key for _, key, t in trace.state}
        masters = {t.storage for _, t in trace.masters}
        names = {t.storage: n for n, t in (*trace.buffers, *trace.masters, *trace.parameters, *((n, t) for n, _, t in trace.state))}
        tensors = {t.storage: t for t in (*state.values(), *(t for _, t in (*trace.buffers, *trace.masters, *trace.parameters)))}
        for index in dict.fromkeys((*trace.persistent, *sorted(masters), *sorted(state))):
            kind = keys.get(index, "master weight" if index in masters else "model")
            name, nbytes = names.get(index, trace.storages[index].name), self.read(trace.storages[index].nbytes)
            factors = self._byte_factors(nbytes, tensors.get(index))
            yield CountedAddend("checkpoint.bytes", name, "checkpoint", AddendLabel(kind), factors, Amount(nbytes, Unit.BYTE))
        if any(op.phase == "backward" for op in trace.ops):  # a forward-only step has no iteration counter
            label = AddendLabel("iteration", "int64")
            yield CountedAddend("checkpoint.bytes", ITERATION, "checkpoint", label, (8,), Amount(self.read(8), Unit.BYTE))

    def _bytes(
        self,
        trace: StepTrace,
        quantity: str,
        module_path: str,
        rule: str,
        label: AddendLabel,
        tensor: Tensor,
        full_tensors: Mapping[int, Tensor] = MappingProxyType({}),
    ) -> CountedAddend:
        """Bytes of the whole storage behind ``tensor``, shown as item size times the shape of the tensor that is all of it: this one, else
        the one in ``full_tensors``."""
        nbytes = self.read(trace.storages[tensor.storage].nbytes)
        factors = self._byte_factors(nbytes, tensor, full_tensors.get(tensor.storage))
        return CountedAddend(quantity, module_path, rule, label, factors, Amount(nbytes, Unit.BYTE))

    def _byte_factors(self, nbytes: Any, *views: Tensor | None) -> tuple[Any, ...]:
        """Item size times shape of the first of ``views`` that is the whole of a storage of ``nbytes``; without one, ``nbytes`` itself."""
        for view in views:
            if view is not None and self._is_whole(view, nbytes):
                return item_size(view.dtype), *(self.read(s) for s in view.shape)
        return (nbytes,)

    def _is_whole(self, view: Tensor, nbytes: Any) -> bool:
        elements = Amount(math.prod(self.read(s) for s in view.shape), Unit.ELEMENT)
        return bool(bytes_of(elements, item_size(view.dtype)).count == nbytes)

    # -- operators ------------------------------------------------------------------------------------------------

    def work(self, trace: StepTrace) -> Iterator[CountedAddend]:
        """FLOPs and bytes moved of the operators of the counted step."""
        return self._work(trace, model_parts(trace, parameter_use(trace, self.read), self.cost))

    def _work(self, trace: StepTrace, parts: ModelParts) -> Iterator[CountedAddend]:
        forward = forward_matmuls(trace)
        for op in trace.ops:
            if op.step != 2 or op.phase not in PHASES:
                continue
            matmuls = []
            for alike in self._addends_of(op, trace, _computes(op, forward)):
                part = parts.of_operator(op, alike.work, alike.label.attention, forward)
                label = parts.label(part, alike.label)
                if alike.work is WorkKind.MATMUL:
                    matmuls.append(label.text)
                if alike.work is WorkKind.TRAFFIC and len(matmuls) == 1:
                    label = replace(label, product=matmuls[0])
                yield replace(alike, module_path=op.module_path, label=label, part=part)

    def _addends_of(self, op: Op, trace: StepTrace, computes: MatmulName) -> Sequence[CountedAddend]:
        """The addends of ``op``, or those of an equal operator at another module path. ``computes`` names a matmul."""
        key = self.key(op)
        cost = self._cost(op, key)
        causal = self._mask(op, cost, trace)
        alike = key, op.phase, op.mutates, op.node == RECOMPUTED, causal, computes
        addends = self._addends.get(alike)
        if addends is None:
            addends = self._addends[alike] = [*self._flops(op, cost, causal, computes), *self._traffic(op, cost)]
        return addends

    def cost(self, op: Op) -> Cost:
        """The cost of ``op`` by its rule."""
        return self._cost(op, self.key(op))

    def _cost(self, op: Op, key: tuple[Any, ...]) -> Cost:
        op_cost = self._costs.get(key)
        if op_cost is None:
            op_cost = self._costs[key] = cost_of(self.operator(op), op.module_path, self.registry)
        return op_cost

    def key(self, op: Op) -> tuple[Any, ...]:
        """The cache key of an operator's cost: the name, numbers and the shapes of all tensors."""
        return op.name, _signature(op.args), _signature((("", op.outputs),))

    def operator(self, op: Op) -> Operator:
        """The operator as rules read it, with sizes as polynomials or integers."""
        return Operator(
            op.name,
            {n: self._size(v) if n in SIZES else self._argument(v) for n, v in op.args},
            tuple(self._view(t) for t in op.outputs),
            op.mutates,
        )

    def _size(self, value: Any) -> Any:
        return tuple(self.read(v) for v in value) if isinstance(value, tuple) else self.read(value)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._view(value)
        if isinstance(value, tuple):
            return tuple(self._argument(v) for v in value)
        return value

    def _view(self, tensor: Tensor) -> View:
        key = (tensor.shape, tensor.dtype, tensor.distinct)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = View(tuple(self.read(s) for s in tensor.shape), tensor.dtype, self.read(tensor.distinct))
        return view

    def _flops(self, op: Op, cost: Cost, causal: Any, computes: MatmulName) -> Iterator[CountedAddend]:
        for term in cost.matmul:
            yield _flop_entry(WorkKind.MATMUL, op, term, computes)
            if op.phase != "optimizer":
                credited = _flop_entry(WorkKind.CAUSAL, op, term, computes)
                yield credited if causal is None else _under_mask(credited, term, causal)
        for term in self.repeated(op, cost):
            yield _flop_entry(WorkKind.RECOMPUTE, op, term)
        for term in cost.elementwise:
            yield _flop_entry(WorkKind.ELEMENTWISE, op, term)

    def repeated(self, op: Op, cost: Cost) -> tuple[Term, ...]:
        """The matrix multiplications that only repeat the forward (recomputation)."""
        return cost.matmul if op.node == RECOMPUTED else cost.recompute

    def _mask(self, op: Op, cost: Cost, trace: StepTrace) -> Any:
        """Length of the square causal mask that the model's own call declares for this operator's matrix multiplications, if any."""
        query, key = None, None
        if cost.causal is not None:
            query, key = cost.causal
        elif op.call is not None and cost.matmul and trace.calls[op.call].causal:
            query, key = self.read(trace.calls[op.call].query), self.read(trace.calls[op.call].key)
        if query is not None and query != key:
            self.uncredited.add(f"{op.module_path}: a causal mask over {query} queries and {key} keys, whose alignment is a convention")
            return None
        return query

    def _traffic(self, op: Op, cost: Cost) -> Iterator[CountedAddend]:
        moved = self.moved(op, cost)
        if moved.count != 0:
            products = Counter((item_size(view.dtype), *_distinct_shape(view)) for view in self._transfers(op, cost))
            addends = tuple(product if times == 1 else (times, *product) for product, times in products.items())
            factors = addends[0] if len(addends) == 1 else (addends,)
            yield CountedAddend(f"bytes_moved.{op.phase}", op.module_path, op.name, _TRAFFIC, factors, moved, work=WorkKind.TRAFFIC)

    def moved(self, op: Op, cost: Cost) -> Amount:
        """Bytes that the operator reads and writes."""
        total = Amount(0, Unit.BYTE)
        for view in self._transfers(op, cost):
            total = total + bytes_of(Amount(view.distinct, Unit.ELEMENT), item_size(view.dtype))
        return total

    def _transfers(self, op: Op, cost: Cost) -> list[View]:
        """What the operator reads, then what it writes. A number of elements that the rule states is a tensor of one dimension."""
        reads = self._default_reads(op) if cost.reads is None else [View((n,), dtype, n) for n, dtype in cost.reads]
        writes = self._default_writes(op) if cost.writes is None else [View((n,), dtype, n) for n, dtype in cost.writes]
        return reads + writes

    def _default_reads(self, op: Op) -> list[View]:
        return [view for _, view in self.operator(op).tensors()]

    def _default_writes(self, op: Op) -> list[View]:
        """The results. An argument written in place counts only if the operator returns nothing, since otherwise it is a result."""
        mutated = [v if isinstance(v, tuple) else (v,) for n, v in op.args if n in op.mutates]
        written = op.outputs or [t for tensors in mutated for t in tensors if isinstance(t, Tensor)]
        return [self._view(t) for t in written]


def _distinct_shape(view: View) -> tuple[Any, ...]:
    """The shape of a tensor; the number of its distinct elements where some repeat."""
    return view.shape if view.numel == view.distinct else (view.distinct,)


def _largest_by_storage(trace: StepTrace) -> dict[int, Tensor]:
    """Storage → the result for which it was allocated."""
    largest: dict[int, Tensor] = {}
    for op in trace.ops:
        for tensor in op.outputs:
            largest.setdefault(tensor.storage, tensor)
    return largest


def _uses(trace: StepTrace) -> dict[tuple[str, str, int], tuple[SavedAs, ...]]:
    """(module path, operator, storage) → as what the operator saves the views of the storage."""
    uses: dict[tuple[str, str, int], tuple[SavedAs, ...]] = {}
    for saved, use in SavedUses(trace):
        key = (saved.module_path, saved.op, saved.tensor.storage)
        uses[key] = tuple(dict.fromkeys((*uses.get(key, ()), use)))
    return uses


def _computes(op: Op, forward: ForwardMatmuls) -> MatmulName:
    """What a matmul computes, where its rule cannot tell: the gradient in the backward, the parameter's name in the forward."""
    if op.phase == "backward" and op.node != RECOMPUTED:
        return gradient_of(op, forward)
    return product_of(op, forward)


_UNNAMED = MatmulName()


def _flop_entry(work: WorkKind, op: Op, term: Term, computes: MatmulName = _UNNAMED) -> CountedAddend:
    text, gradient = (computes.text, computes.gradient) if computes.text else (term.name, term.gradient)
    label = AddendLabel(text, gradient=gradient, is_convolution=term.is_convolution, attention=term.attention)
    label = replace(label, of_parameter=computes.of_parameter)
    amount = Amount(term.count, Unit.FLOP)
    return CountedAddend(f"flops.{op.phase}.{work}", op.module_path, op.name, label, term.factors, amount, work=work)


def _under_mask(entry: CountedAddend, term: Term, length: Any) -> CountedAddend:
    """``entry`` with the T(T+1)/2 positions of a causal mask in place of all T·T."""
    factors = list(term.factors)
    for _ in range(2):
        factors.remove(length)
    first = factors.index(2)
    credited = replace(term, factors=(*factors[:first], *factors[first + 1 :], length, length + 1))
    amount = Amount(credited.count, Unit.FLOP)
    return replace(entry, label=replace(entry.label, is_causal=True), factors=credited.factors, amount=amount)


def _first_of_each_storage(pairs: Iterable[tuple[Any, Tensor]]) -> Iterator[tuple[Any, Tensor]]:
    storages: set[int] = set()
    for key, tensor in pairs:
        if tensor.storage not in storages:
            storages.add(tensor.storage)
            yield key, tensor


def _signature(args: Iterable[tuple[str, Any]]) -> Any:
    return tuple((n, _stripped(v)) for n, v in args)


def _stripped(value: Any) -> Any:
    if isinstance(value, Tensor):
        return (value.shape, value.dtype, value.distinct)
    if isinstance(value, tuple):
        return tuple(_stripped(v) for v in value)
    return (type(value).__name__, value)

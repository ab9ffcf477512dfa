"""Real calls of ATen operators, seen as rules see them, with what torch's own instruments make of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import flop_counter
from torch.utils._python_dispatch import TorchDispatchMode

from calc.measure.reference import ReferenceCounter
from calc.rules.registry import Cost, Operator, Registry, Term, View, cost_of
from calc.symbolic.algebra import log2_ceiling
from calc.trace.kernels import fourier
from calc.units import item_size

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Case:
    """Arguments of one call, and the expected products where torch has no formula of its own for them."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    matmul: int | None = None
    recompute: int = 0
    causal: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """One call: the operator as a rule sees it, and what the measuring side and torch count for it."""

    operator: Operator
    matmul: int
    elementwise: int
    bytes_moved: int
    recompute: int
    causal: tuple[int, int] | None


class _Capture(TorchDispatchMode):
    """Keeps the calls that are dispatched: torch leaves out arguments that are at their default."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[Operator] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        outputs = func(*args, **kwargs)
        self.operators.append(described(func, args, kwargs, outputs))
        return outputs


def described(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Any) -> Operator:
    """A call as a rule sees it."""
    arguments = func._schema.arguments
    bound = {n: _value(v) for n, v in [*zip([a.name for a in arguments], args, strict=False), *kwargs.items()]}
    if func in fourier.TRANSFORMS:
        bound["stages"] = tuple(log2_ceiling(n) for n in fourier.lengths(tuple(args), outputs))
    indices = args[1] if "index" in func._schema.name and len(args) > 1 and isinstance(args[1], list) else []
    masks = [i for i in indices if isinstance(i, torch.Tensor) and i.dtype is torch.bool]
    if masks:
        bound["chosen"] = int(masks[0].numpy().sum())  # no operator that the counter would see
    mutates = tuple(a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write)
    return Operator(str(func), bound, tuple(_views(outputs)), mutates)


class Comparing(TorchDispatchMode):
    """Compares every operator of real code with its rule as it runs. ``differences`` says what does not agree."""

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self.registry = registry
        self.compared = 0
        self.differences: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace != "aten":
            return func(*args, **(kwargs or {}))
        counter = ReferenceCounter()
        outputs = counter.__torch_dispatch__(func, (), args, kwargs)
        operator = described(func, args, kwargs or {}, outputs)
        cost = cost_of(operator, "", self.registry)
        stated = (total(cost.elementwise), bytes_moved(cost, operator))
        if counter.unknown or stated != (counter.elementwise, counter.bytes_moved):
            self.differences.append(f"{operator.name}: rule {stated}, torch {(counter.elementwise, counter.bytes_moved)}")
        self.compared += 1
        return outputs


def _value(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _view(value)
    if isinstance(value, list | tuple):
        return tuple(_value(v) for v in value)
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype | torch.device) else value


def _view(tensor: torch.Tensor) -> View:
    distinct = math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or not size)
    return View(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), distinct)


def _views(outputs: Any) -> list[View]:
    if isinstance(outputs, torch.Tensor):
        return [_view(outputs)]
    return [v for o in outputs for v in _views(o)] if isinstance(outputs, list | tuple) else []


def overload(op: str) -> Any:
    """``"aten.add.Tensor"`` → the torch operator of that name."""
    _, packet, name = op.split(".")
    return getattr(getattr(aten, packet), name)


# Outside of inference mode autograd does this by itself.
ANSWERED_BEFORE = {"aten.detach_.default"}


def observe(op: str, case: Case) -> Observed:
    """Make the call under the measuring side's counter."""
    func = overload(op)
    counter, capture = ReferenceCounter(), _Capture()
    with torch.no_grad():
        if func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd) or op in ANSWERED_BEFORE:
            # This device would take the operator apart before any mode sees it: hand it over as another device would.
            capture.__torch_dispatch__(func, (), case.args, case.kwargs)
            outputs = counter.__torch_dispatch__(func, (), case.args, case.kwargs)
        else:
            with counter, capture:
                outputs = func(*case.args, **case.kwargs)
    (operator,) = [o for o in capture.operators if o.name == op]
    assert {} == dict(counter.unknown)
    return Observed(operator, _matmul(func, case, outputs), counter.elementwise, counter.bytes_moved, case.recompute, case.causal)


def _matmul(func: Any, case: Case, outputs: Any) -> int:
    """Torch's own formula for the products, else the number that the case states, else none."""
    if case.matmul is not None:
        return case.matmul
    formula = flop_counter.flop_registry.get(func.overloadpacket)
    return int(formula(*case.args, **case.kwargs, out_val=outputs)) if formula is not None else 0


def total(terms: Sequence[Term]) -> int:
    return sum(int(t.count) for t in terms)


def bytes_moved(cost: Cost, operator: Operator) -> int:
    """Traffic of a cost: what it states, else every argument read and every result written."""
    arguments = [(v.distinct, v.dtype) for _, v in operator.tensors()]
    results = [(v.distinct, v.dtype) for v in operator.outputs]
    changed = [(v.distinct, v.dtype) for n, v in operator.tensors() if n in operator.mutates]
    reads = arguments if cost.reads is None else cost.reads
    writes = (results or changed) if cost.writes is None else cost.writes
    return sum(int(elements) * item_size(dtype) for elements, dtype in [*reads, *writes])


def derived(cost: Cost, seen: Observed) -> Observed:
    """What ``cost`` says of the call, to be compared with what was observed."""
    return Observed(
        seen.operator,
        total(cost.matmul),
        total(cost.elementwise),
        bytes_moved(cost, seen.operator),
        total(cost.recompute),
        cost.causal,
    )

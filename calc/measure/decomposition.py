"""Elementwise FLOPs of one operator, counted by running torch's own reference decomposition of it on ``meta`` tensors.

The decomposition (``torch._decomp``, ``torch._refs``) runs under a counting mode, recursively down to prims. An arithmetic
prim counts its result elements, a reduction of n elements to one n - 1; comparisons, selections, casts, rounding, copies,
views, factories and random numbers are 0. A reference that branches on the device takes the branch of any device but CPU.

Some operators are counted as a whole instead (``calc.measure.conventions``), because their reference is missing, or does not reflect
the operator's own arithmetic (a cumulative sum written as a masked square, index arithmetic).

- an ``alpha`` of 1 counts no multiplication, nor does a softplus ``beta`` of 1;
- moving, selecting and sorting elements: 0, whatever index arithmetic the reference does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from calc.measure.conventions import CONVENTIONS, scatter_reduce
from calc.measure.conventions_updates import repeated
from calc.measure.kinds import (
    ARITHMETIC_PRIMS,
    FREE,
    FREE_PRIMS,
    IGNORED_NAMESPACES,
    REDUCTION_PRIMS,
    Args,
    UncountableError,
    as_meta,
    base_name,
    bind,
    is_view,
    reduced,
    results,
    tensors_in,
)
from calc.measure.references import FAST_PATH, REPLACEMENTS
from calc.platform.torch_private import DispatchKey, OpOverload, TorchDispatchMode, decomposition_table, no_modes


def _is_known(func: OpOverload) -> bool:
    """Whether an operator is counted without decomposing it."""
    name = base_name(func)
    return func.namespace == "prims" or (func.namespace == "aten" and (name in FREE or name in CONVENTIONS or is_view(func)))


def _known_flops(func: OpOverload, args: Sequence[Any], kwargs: Args, outputs: Any) -> int | None:
    """Elementwise FLOPs of an operator of a known kind; ``None`` if it must be decomposed."""
    name = base_name(func)
    if func.namespace == "prims":
        return _prim(name, args, outputs)
    if func.namespace != "aten":
        return None
    bound = bind(func, args, kwargs)
    if name == "scatter" and "reduce" in bound:
        return scatter_reduce(bound, outputs)
    if name in FREE or is_view(func):
        return 0
    convention = CONVENTIONS.get(name)
    return None if convention is None else convention(bound, outputs)


def _prim(name: str, args: Sequence[Any], outputs: Any) -> int:
    if name in ARITHMETIC_PRIMS:
        return sum(t.numel() for t in tensors_in(outputs))
    if name in REDUCTION_PRIMS:
        return reduced(args[0].numel(), results(outputs))
    if name in FREE_PRIMS:
        return 0
    raise UncountableError(f"prims.{name}")


# -- everything else: run the decomposition --------------------------------------------------------------------------------


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves its modes untyped
    """Mode that adds up the elementwise FLOPs of its operators and decomposes those of no known kind."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves its modes untyped
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _is_known(func):
            outputs = func(*args, **kwargs)
            self.count += _known_flops(func, args, kwargs, outputs) or 0
            return outputs
        if func.namespace in IGNORED_NAMESPACES:
            return func(*args, **kwargs)
        return self.decompose(func, args, kwargs)

    def decompose(self, func: OpOverload, args: Sequence[Any], kwargs: Args) -> Any:
        """The result of one operator, decomposed under this mode. Raises ``UncountableError`` if it has no decomposition."""
        decomposition = _decomposition(func)
        if decomposition is None and func.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd):
            decomposition = func.decompose
        if decomposition is None:
            raise UncountableError(str(func))
        with self:
            outputs = decomposition(*args, **kwargs)
        if outputs is NotImplemented:
            raise UncountableError(str(func))
        return outputs


def _decomposition(func: OpOverload) -> Callable[..., Any] | None:
    """The decomposition of an operator: ours, else torch's; for an in-place operator without one, that of the functional variant."""
    functional = _functional(func)
    ours = REPLACEMENTS.get(func) or REPLACEMENTS.get(functional)
    return ours or decomposition_table.get(func) or FAST_PATH.get(func) or (decomposition_table.get(functional) if functional else None)


def _functional(func: OpOverload) -> OpOverload | None:
    """The functional (out-of-place) variant of an in-place operator; ``None`` for other operators."""
    if not func._schema.name.endswith("_"):
        return None
    packet = getattr(torch.ops.aten, base_name(func), None)
    return getattr(packet, func._overloadname, None) if packet is not None else None


def _on_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        return as_meta(value)
    if isinstance(value, list | tuple):
        return type(value)(_on_meta(v) for v in value)
    if isinstance(value, torch.device):
        return torch.device("meta")
    return value


_COUNTS: dict[Any, int] = {}


def elementwise(func: OpOverload, args: Sequence[Any], kwargs: Args, outputs: Any) -> int:
    """Elementwise FLOPs of one call, given what it returned.

    Raises ``UncountableError`` for an operator that is of no known kind and has no decomposition.
    """
    shapes = _known_flops(func, args, kwargs, outputs)
    if shapes is not None:
        return shapes
    many = repeated(func, bind(func, args, kwargs))
    if many is not None:
        return sum(elementwise(many[0], results, arguments, results[0]) for results, arguments in many[1])
    # References multiply by any scale other than the default, so a scale of 1 (also as 1.0) is left out.
    kwargs = {name: value for name, value in kwargs.items() if name != "alpha" or value != 1}
    if base_name(func) == "softplus" and len(args) > 1 and args[1] == 1:
        args = [args[0], None, *args[2:]]
    key = (func, _signature(args), _signature(sorted(kwargs.items())))
    if key not in _COUNTS:
        _COUNTS[key] = _decomposed(func, args, kwargs)
    return _COUNTS[key]


def _decomposed(func: OpOverload, args: Sequence[Any], kwargs: Args) -> int:
    # The caller's modes (e.g. another counter) must not see the decomposition's own operators.
    with no_modes(), torch.no_grad():
        mode = _Counting()
        try:
            mode.decompose(func, [_on_meta(a) for a in args], {k: _on_meta(v) for k, v in kwargs.items()})
        except UncountableError:
            raise
        except Exception as error:  # any error of a reference leaves the operator uncounted, and reported as such
            raise UncountableError(f"{func}: its decomposition does not run on meta tensors: {error}") from error
        return mode.count


def _signature(value: Any) -> Any:
    """The parts of an argument that affect the count: shapes, dtypes and plain values."""
    if isinstance(value, Tensor):
        return ("tensor", tuple(value.shape), value.dtype)
    if isinstance(value, list | tuple):
        return tuple(_signature(v) for v in value)
    if isinstance(value, int | float | bool | str | complex):
        return (type(value), value)
    return str(value)

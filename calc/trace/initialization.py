"""The distribution from which a module initializes each parameter, read from the calls of its constructor and initializers.

Every operator that creates or fills a tensor while the module is built is intercepted with its arguments; the last one that fills a storage
determines the distribution of its parameter. ``trunc_normal_`` resamples until every value is within its bounds, so its call is
intercepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from calc.experiment.inputs import inputs_at
from calc.experiment.uncompiled import uncompiled
from calc.platform.torch_private import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode, TorchDispatchMode
from calc.spec import Sizes, Spec
from calc.symbolic import laws
from calc.symbolic.laws import Law
from calc.trace.function_caches import bypassing_caches
from calc.trace.recorder import tensors_in


@dataclass(frozen=True, slots=True)
class Drawn:
    """A parameter's shape and distribution; ``law`` is ``None`` where the operator ``made_by`` has no known distribution."""

    shape: tuple[int, ...]
    law: Law | None
    made_by: str = ""


def drawn(spec: Spec, sizes: Mapping[str, int]) -> tuple[dict[str, Drawn], dict[str, Drawn]]:
    """Each parameter by name and each input by position, at these sizes of the free dimensions.

    The module is built of fake tensors, which take no memory. One whose constructor reads sampled values is built of real tensors. Integer
    tensors have no distribution here.
    """
    n = Sizes(**spec.sizes(dict(sizes)))
    try:
        return _built(spec, n, FakeTensorMode(allow_non_fake_inputs=True))
    except (DataDependentOutputException, DynamicOutputShapeException):
        return _built(spec, n, nullcontext())


def _built(spec: Spec, n: Sizes, mode: AbstractContextManager[Any]) -> tuple[dict[str, Drawn], dict[str, Drawn]]:
    watch = _LawWatch()
    with torch.random.fork_rng(devices=[]), _truncated_reported(watch), bypassing_caches(), mode, watch, uncompiled():
        torch.manual_seed(0)
        module, inputs = spec.build(n), inputs_at(spec, n)
    tensors = {str(i): each for i, each in enumerate(tensors_in(inputs))}
    return {name: watch.of(p) for name, p in module.named_parameters()}, {name: watch.of(t) for name, t in tensors.items()}


class _LawWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's modes are untyped
    """Maps each storage to the distribution of its elements. It holds references to storages, so that no address is reused."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.laws: dict[int, Law | str] = {}
        self.storages: list[Any] = []

    def of(self, parameter: Tensor) -> Drawn:
        law = self.laws.get(_key(parameter), "no known operator")
        shape = tuple(parameter.shape)
        return Drawn(shape, law) if isinstance(law, Law) else Drawn(shape, None, law)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.is_floating_point():
            self._note(func, args, kwargs or {}, result)
        return result

    def _note(self, func: Any, args: Any, kwargs: Mapping[str, Any], result: Tensor) -> None:
        first = args[0] if args and isinstance(args[0], Tensor) else None
        inplace = first is not None and _key(first) == _key(result)
        name = func.overloadpacket.__name__
        if inplace and not func._schema.is_mutable:
            return  # a view
        law = self._law(name, first, args, kwargs)
        if law is None and inplace and name == "set_":
            return
        self.set_law(result, law if law is not None else f"aten.{name}")

    def _law(self, name: str, first: Tensor | None, args: Any, kwargs: Mapping[str, Any]) -> Law | None:
        if name in _MADE:
            return _MADE[name](args, kwargs)
        before = self.laws.get(_key(first)) if first is not None else None
        if name in ("copy_",):
            source = args[1]
            before = self.laws.get(_key(source)) if isinstance(source, Tensor) else None
            return before if isinstance(before, Law) else None
        if name in ("fill_", "zero_", "fill"):
            value = _scalar(args[1]) if len(args) > 1 else 0.0
            return None if value is None else laws.constant(value)
        if not isinstance(before, Law):
            return None
        number = _scalar(args[1]) if len(args) > 1 else None
        if name in ("clone", "_to_copy", "contiguous", "detach", "alias"):
            return before
        if number is None:
            return None
        change: dict[str, Callable[[float], Law]] = {
            "mul": before.scaled,
            "div": lambda by: before.scaled(1 / by),
            "add": before.shifted,
            "sub": lambda by: before.shifted(-by),
        }
        bare = name.rstrip("_")
        return change[bare](number) if bare in change and (bare, number) != ("div", 0.0) else None

    def set_law(self, tensor: Tensor, law: Law | str) -> None:
        """Set the distribution of a tensor, which may be a part of its storage."""
        key, whole = _key(tensor), tensor.untyped_storage().nbytes() // max(tensor.element_size(), 1)
        self.storages.append(tensor.untyped_storage())
        before = self.laws.get(key)
        if tensor.numel() < whole and isinstance(before, Law) and isinstance(law, Law):
            law = before.overwritten(law, tensor.numel() / whole)
        self.laws[key] = law


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _scalar(value: Any) -> float | None:
    if isinstance(value, bool | int | float):
        return float(value)
    if isinstance(value, Tensor) and value.dim() == 0:
        return float(value)
    return None


def _of(args: Any, kwargs: Mapping[str, Any], index: int, name: str, otherwise: float) -> float:
    return float(args[index] if len(args) > index else kwargs.get(name, otherwise))


_MADE: dict[str, Callable[[Any, Mapping[str, Any]], Law]] = {
    "randn": lambda a, k: laws.normal(0, 1),
    "randn_like": lambda a, k: laws.normal(0, 1),
    "rand": lambda a, k: laws.uniform(0, 1),
    "rand_like": lambda a, k: laws.uniform(0, 1),
    "zeros": lambda a, k: laws.constant(0),
    "zeros_like": lambda a, k: laws.constant(0),
    "new_zeros": lambda a, k: laws.constant(0),
    "ones": lambda a, k: laws.constant(1),
    "ones_like": lambda a, k: laws.constant(1),
    "new_ones": lambda a, k: laws.constant(1),
    "full": lambda a, k: laws.constant(float(a[1])),
    "normal_": lambda a, k: laws.normal(_of(a, k, 1, "mean", 0.0), _of(a, k, 2, "std", 1.0)),
    "uniform_": lambda a, k: laws.uniform(_of(a, k, 1, "from", 0.0), _of(a, k, 2, "to", 1.0)),
}


@contextmanager
def _truncated_reported(watch: _LawWatch) -> Iterator[None]:
    """``trunc_normal_`` reports its distribution instead of sampling: the values are not needed."""
    real = torch.nn.init._no_grad_trunc_normal_

    def reported(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any = None) -> Tensor:
        watch.set_law(tensor, laws.truncated(mean, std, a, b))
        return tensor

    torch.nn.init._no_grad_trunc_normal_ = reported
    try:
        yield
    finally:
        torch.nn.init._no_grad_trunc_normal_ = real

"""Scalars that are read out of tensors and only used in arithmetic or logged: a norm that scales an update, a loss in a log.

They affect no size unless a branch or a size depends on them. In a traced step, ``.item()`` of a data-dependent floating-point tensor
returns a number that cannot be compared, truncated or used as a truth value: each of these raises an error that names it. In the file of
the optimizer's class, ``max`` and ``min`` of such a number and a bound may return either: the traces for the closed forms take the number,
certificates take the bound, so a bound that costs less (a multiplication by 1 costs none) is noticed. The two also read different numbers,
so they disagree where one escapes through one of Python's own functions.

A check (``assert lengths.max().item() <= T``) may also compare an integer, which nothing else sees: the comparison has the outcome at which
nothing is raised.
"""

from __future__ import annotations

import builtins
import contextlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch

from calc.errors import DataDependentError
from calc.platform.replaced import replaced
from calc.trace.random_draws import refused
from calc.trace.source_lines import user_line
from calc.trace.values import asserts
from calc.trace.values.constant_propagation import has_constant_values
from calc.trace.values.elements import AffineIndex, elements_of
from calc.trace.values.facts import Even, fact_of

_LARGEST = ("max", "min")
# The optimizer that is stepping, if any.
_stepping: list[str] = []


class ScalarRead(float):
    """A floating-point value read out of data. Arithmetic with it returns a scalar of the same kind."""

    def _combined(self, second: Any = None, *_: Any) -> Any:
        return NotImplemented if isinstance(second, torch.Tensor) else ScalarRead(float.__float__(self))  # a tensor does it itself

    def _refused(self, *_: Any) -> Any:
        raise DataDependentError(
            f"{_stepping[-1] if _stepping else 'the step'} branches on a value that it reads out of a tensor, at {user_line()}: it depends"
            " on the data, so no closed form follows; choose between tensors instead, with torch.where"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _combined
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _combined
    __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = _combined
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refused
    __bool__ = __int__ = __trunc__ = __floor__ = __ceil__ = __round__ = _refused
    __hash__ = float.__hash__


class UniformDraw(ScalarRead):
    """A number between 0 and 1 that torch has drawn. It is 0 so seldom (once in 2**24) that it is not below or at 0."""

    def _below(self, *bounds: Any) -> Any:
        (bound,) = bounds
        if type(bound) not in (int, float) or 0 < bound < 1:
            raise refused(f"the step at {user_line()}")
        return bound >= 1

    def _above(self, *bounds: Any) -> Any:
        return not self._below(*bounds)

    __lt__ = __le__ = _below
    __gt__ = __ge__ = _above
    __hash__ = float.__hash__


class ComparedRead:
    """A value read out of data that a check compares, and that nothing else sees. ``outcome()`` is what the comparison must be."""

    def __init__(self, outcome: Callable[[], bool]) -> None:
        self._outcome = outcome

    def _compared(self, _: object) -> bool:
        return self._outcome()

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _compared
    __hash__ = object.__hash__


Reading = Callable[[float, str], AbstractContextManager[None]]
Comparing = Callable[[], AbstractContextManager[Callable[[], bool]]]


def in_model(reading: Reading, value: float, comparing: Comparing) -> AbstractContextManager[None]:
    """Context in which a model and its loss read ``value`` wherever they read a floating-point number out of data. ``reading(value, who)``
    is the context of the operator that reads it, ``comparing()`` that of one in a check, with the required outcome."""
    return _items(reading, value, comparing=comparing)


@contextlib.contextmanager
def numbers_only(optimizer: Any, reading: Reading, value: float, bounded: bool) -> Iterator[None]:
    """Context in which ``optimizer.step()`` reads ``value`` wherever it reads a number out of data. ``reading`` is that of ``in_model``.
    ``bounded``: ``max`` and ``min`` of such a number and a bound return the bound."""
    step = optimizer.step
    own = vars(optimizer).get("step")

    def stepping(*args: Any, **kwargs: Any) -> Any:
        _stepping.append("the optimizer")
        try:
            with _items(reading, value, type(optimizer).__name__), _largest(type(optimizer), bounded):
                return step(*args, **kwargs)
        finally:
            _stepping.pop()

    optimizer.step = stepping
    try:
        yield
    finally:
        if own is None:
            del optimizer.step
        else:
            optimizer.step = own


def _items(reading: Reading, value: float, who: str = "", comparing: Comparing | None = None) -> AbstractContextManager[None]:
    original, is_nonzero = torch.Tensor.item, torch.Tensor.__bool__

    def item(self: torch.Tensor) -> Any:
        if has_constant_values(self):
            return original(self)
        if comparing is not None and asserts.only_compared():
            with comparing() as outcome:
                original(self)
            return ComparedRead(outcome)
        if not self.dtype.is_floating_point:
            return original(self)
        with reading(value, who or f"the step at {user_line()}"):
            return (UniformDraw if fact_of(self) == Even() else ScalarRead)(original(self))

    def __bool__(self: torch.Tensor) -> bool:
        """A length in a tensor is compared with 0 as a size is; torch would make a number of it first."""
        return bool(original(self)) if isinstance(elements_of(self), AffineIndex) else is_nonzero(self)

    return replaced(torch.Tensor, item=item, __bool__=__bool__)


@contextlib.contextmanager
def _largest(kind: type, bounded: bool) -> Iterator[None]:
    """Context in which the files of the optimizer's classes see other ``max`` and ``min``."""
    own = [(names, {n: names[n] for n in _LARGEST if n in names}) for names in _files(kind)]
    for names, old in own:
        names.update({n: _of_readings(old.get(n, getattr(builtins, n)), bounded) for n in _LARGEST})
    try:
        yield
    finally:
        for names, old in own:
            for n in _LARGEST:
                names.pop(n, None)
            names.update(old)


def _files(kind: type) -> list[dict[str, Any]]:
    """The global names that the methods of a class see, and those of the optimizers that it extends."""
    functions = [
        inspect.unwrap(f) for c in kind.__mro__ if c not in (object, torch.optim.Optimizer) for f in vars(c).values() if callable(f)
    ]
    return list({id(f.__globals__): f.__globals__ for f in functions if hasattr(f, "__globals__")}.values())


def _of_readings(function: Callable[..., Any], bounded: bool) -> Callable[..., Any]:
    def chosen(*numbers: Any, **options: Any) -> Any:
        read = [number for number in numbers if isinstance(number, ScalarRead)]
        if not read:
            return function(*numbers, **options)
        bounds = [number for number in numbers if not isinstance(number, ScalarRead)]
        return function(bounds) if bounded and bounds else read[0]

    return chosen

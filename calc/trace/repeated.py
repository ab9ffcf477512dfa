"""Operators run once for each kind of arguments: layers repeat, and torch works out the shape of every result anew.

What a result looks like depends on the arguments' shapes, strides and formats alone. It is worked out by torch the first
time, and compared with what is made here from its description; after that the description is enough. Anything unusual (a
result that aliases what its schema does not say, a storage larger than its shape) is left to torch every time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sympy as sp
import torch
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager

from calc.trace.symbols import SizeEnv

_INDEX, _MASKS = torch.ops.aten.index.Tensor, (torch.bool, torch.uint8)
_NEVER = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}


@dataclass(frozen=True, slots=True)
class _Form:
    """One result: a new tensor, row after row where it is ``dense``, or a view at ``offset`` of the argument with index ``of``."""

    shape: tuple[Any, ...]
    stride: tuple[Any, ...]
    dtype: torch.dtype
    offset: Any
    of: int | None
    dense: bool = True

    def make(self, args: tuple[Any, ...], mode: Any) -> FakeTensor:
        with in_kernel_invocation_manager(mode):
            if self.of is None and self.dense:
                made = torch.empty(self.shape, dtype=self.dtype, device="meta")
            elif self.of is None:
                made = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")
            else:
                made = torch.ops.aten.as_strided.default(args[self.of], self.shape, self.stride, self.offset)
        return FakeTensor(mode, made, torch.device("cpu"))


@dataclass(frozen=True, slots=True)
class _Plan:
    """What an operator returns: its first argument (in place), a tensor, or several; with the ``questions`` that it asks of sizes."""

    forms: tuple[_Form, ...]
    kind: type | None
    questions: Mapping[Any, tuple[Any, str]] = field(default_factory=dict)

    def make(self, args: tuple[Any, ...], mode: Any) -> Any:
        if self.kind is None:
            return args[0]
        env = mode.shape_env
        with env.aside() if isinstance(env, SizeEnv) else contextlib.nullcontext():
            made = [form.make(args, mode) for form in self.forms]
        return made[0] if self.kind is torch.Tensor else self.kind(made)


class Repeats:
    """Descriptions of results seen in one run, or in several that have their symbols in common."""

    def __init__(self, env: SizeEnv | None) -> None:
        self.env = env
        self._plans: dict[Any, _Plan | None] = {}
        self._used: set[Any] = set()

    def serve(self, hint_of: Mapping[str, int], turns: Collection[str]) -> bool:
        """Whether they are of the symbols that a run with those hints has."""
        return self.env is not None and self.env.serves(hint_of, turns)

    def begin(self) -> None:
        """Start of a run, in which each question counts that it asks itself."""
        self._used = set()
        if self.env is not None:
            self.env.begin()

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], compute: Callable[..., Any]) -> Any:
        """``compute(func, args, kwargs)``, or its like from what it gave for arguments of the same kind."""
        key = _key(func, args, kwargs)
        if key is None:
            return compute(func, args, kwargs)
        if key not in self._plans:
            with self._noted() as questions:
                out = compute(func, args, kwargs)
            plan = _plan(func, args, out)
            self._plans[key] = None if plan is None else replace(plan, questions=questions)
            self._used.add(key)
            return out
        plan = self._plans[key]
        if plan is None:
            return compute(func, args, kwargs)
        if self.env is not None and key not in self._used:  # worked out in an earlier run
            self._used.add(key)
            self.env.ask(plan.questions)
        return plan.make(args, _first_tensor(args).fake_mode)  # type: ignore[union-attr]  # what has a plan has one

    def _noted(self) -> contextlib.AbstractContextManager[Mapping[Any, tuple[Any, str]]]:
        return self.env.noted() if self.env is not None else contextlib.nullcontext({})


def _key(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What decides the form of the results, or nothing where that is not known."""
    if _first_tensor(args) is None or (_NEVER & set(func.tags) and not _takes_rows(func, args)):
        return None
    try:
        key = (func, tuple(map(_token, args)), tuple((name, _token(value)) for name, value in kwargs.items()))
        hash(key)
    except (TypeError, _Unknown):
        return None
    return key


def _takes_rows(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether this takes the elements at given places: as many as there are places, which a mask would leave to data."""
    return func is _INDEX and all(index is None or index.dtype not in _MASKS for index in args[1])


class _Unknown(Exception):
    """An argument whose kind is not described here."""


def _token(value: Any) -> Any:
    if type(value) is FakeTensor:
        if value.layout is not torch.strided or value.dtype.is_complex:
            raise _Unknown
        if value.is_inference() != torch.is_inference_mode_enabled():
            raise _Unknown  # a view of a parameter is an ordinary tensor in inference mode too, which nothing made here would be
        offset = value.storage_offset()
        return (tuple(map(_size, value.shape)), tuple(map(_size, value.stride())), value.dtype, _size(offset))
    if isinstance(value, torch.Tensor):
        raise _Unknown
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return (type(value).__name__, value.node._expr)
    if isinstance(value, list | tuple):
        return tuple(map(_token, value))
    return (type(value).__name__, value)


def _size(size: Any) -> Any:
    return size if type(size) is int else size.node._expr


def _first_tensor(args: tuple[Any, ...]) -> FakeTensor | None:
    """Of the arguments, or of a list among them."""
    inside = (t for a in args for t in (a if isinstance(a, list | tuple) else (a,)))
    return next((t for t in inside if type(t) is FakeTensor), None)


def _plan(func: Any, args: tuple[Any, ...], out: Any) -> _Plan | None:
    schema = func._schema
    written = [i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    if written:
        return _Plan((), None) if written == [0] and out is args[0] and len(schema.returns) == 1 else None
    if isinstance(out, torch.Tensor):
        outs, kind = [out], torch.Tensor
    elif type(out) in (tuple, list) and all(isinstance(o, torch.Tensor) for o in out):
        outs, kind = list(out), type(out)
    else:
        return None
    forms = tuple(form for o in outs if (form := _form(o, args)) is not None)
    if len(forms) < len(outs):
        return None
    plans = [_Plan(tuple(replace(form, dense=dense) for form in forms), kind) for dense in (True, False)]
    return next((plan for plan in plans if _agrees(plan, args, outs)), None)


def _form(out: torch.Tensor, args: tuple[Any, ...]) -> _Form | None:
    if type(out) is not FakeTensor or out.layout is not torch.strided or out.dtype.is_complex or out.device.type != "cpu":
        return None
    if out.constant is not None or any(out is a for a in args):
        return None
    storage = out.untyped_storage()._cdata
    of = next((i for i, a in enumerate(args) if type(a) is FakeTensor and a.untyped_storage()._cdata == storage), None)
    inside = [t for a in args if isinstance(a, list | tuple) for t in a if isinstance(t, torch.Tensor)]
    if any(t.untyped_storage()._cdata == storage for t in inside):
        return None
    return _Form(tuple(out.shape), tuple(out.stride()), out.dtype, out.storage_offset(), of)


def _agrees(plan: _Plan, args: tuple[Any, ...], outs: list[torch.Tensor]) -> bool:
    """Whether what the plan makes is what torch made, down to the storage; results must not share one among themselves."""
    made = plan.make(args, outs[0].fake_mode)  # type: ignore[attr-defined]  # they are fake tensors
    several = [made] if isinstance(made, torch.Tensor) else made
    own = [o.untyped_storage()._cdata for o, form in zip(outs, plan.forms, strict=True) if form.of is None]
    return len(set(own)) == len(own) and all(
        _token(a) == _token(b) and _same(_size(a.untyped_storage().nbytes()), _size(b.untyped_storage().nbytes()))
        for a, b in zip(several, outs, strict=True)
    )


def _same(a: Any, b: Any) -> bool:
    return a == b or bool(sp.expand(sp.sympify(a) - sp.sympify(b)) == 0)

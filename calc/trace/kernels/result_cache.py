"""Caches fake results: layers repeat, and torch infers the shape of every result from scratch.

A result's description depends only on the shapes, strides and dtypes of the arguments. The first time, torch computes it, and a result
made from the description is compared with it; later calls use the description. Torch computes anything unusual every time (a result with
aliases that its schema does not declare, a storage larger than its shape).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp
import torch

from calc.platform.torch_private import FakeTensor, in_kernel_invocation_manager, throw_on_address, warn_on_address
from calc.trace.kernels import contiguous
from calc.trace.symbolic_sizes import Evaluations, SizeEnv
from calc.trace.values.facts import once_per_operator, written

_INDEX, _MASKS = torch.ops.aten.index.Tensor, (torch.bool, torch.uint8)
_NEVER = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}


Token = tuple[tuple[Any, ...], tuple[Any, ...], torch.dtype, Any]


@dataclass(frozen=True, slots=True)
class _Form:
    """One result: a new tensor, contiguous where it is ``dense``, or a view at ``offset`` of the argument with index ``of``."""

    shape: tuple[Any, ...]
    stride: tuple[Any, ...]
    dtype: torch.dtype
    offset: Any
    of: int | None
    dense: bool = True

    @property
    def token(self) -> Token:
        """What ``token_of`` returns for the result."""
        return tuple(map(in_key, self.shape)), tuple(map(in_key, self.stride)), self.dtype, in_key(self.offset)

    def make(self, args: tuple[Any, ...], mode: Any) -> FakeTensor:
        with in_kernel_invocation_manager(mode):
            if self.of is None and self.dense:
                made = torch.empty(self.shape, dtype=self.dtype, device="meta")
            elif self.of is None:
                made = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")
            else:
                made = torch.ops.aten.as_strided.default(args[self.of], self.shape, self.stride, self.offset)
        return _faked(made, mode)


_CPU = torch.device("cpu")


def _faked(made: torch.Tensor, mode: Any) -> FakeTensor:
    """``FakeTensor(mode, made, _CPU)``. The constructor builds the first tensor of a run; later ones copy its attributes, in a third of the
    time."""
    new = getattr(mode, "napkin_new", None)
    if new is None:
        first = FakeTensor(mode, made, _CPU)
        mode.napkin_new = dict(first.__dict__)
        return first
    fake: FakeTensor = torch.Tensor._make_subclass(FakeTensor, made, False, dispatch_device=True, device_for_backend_keys=_CPU)
    # What a read of its address does.
    (warn_on_address if mode._allow_unsafe_data_ptr_access else throw_on_address)(fake)
    fake.__dict__.update(new)
    return fake


@dataclass(frozen=True, slots=True)
class _Plan:
    """What an operator returns: its first argument (in place), a tensor, or several; with the guards that it evaluates."""

    forms: tuple[_Form, ...]
    kind: type | None
    evaluations: Evaluations
    tokens: tuple[Token, ...] = ()

    def make(self, args: tuple[Any, ...], mode: Any, tokens: dict[int, Token]) -> Any:
        """The result. Notes the tokens of its tensors in ``tokens``, by identity."""
        if self.kind is None:
            return args[0]
        env = mode.shape_env
        with env.unrecorded() if isinstance(env, SizeEnv) else contextlib.nullcontext():
            made = [form.make(args, mode) for form in self.forms]
        tokens.update(zip(map(id, made), self.tokens, strict=True))
        return made[0] if self.kind is torch.Tensor else self.kind(made)


_NEW: Any = object()


class Repeats:
    """Descriptions of results of one run, or of several runs with the same symbols."""

    def __init__(self, env: SizeEnv | None) -> None:
        self.env = env
        self._plans: dict[Any, _Plan | None] = {}
        self.tokens: dict[int, Token] = {}  # of the tensors of the running operator, by identity
        self._used: set[int] = set()  # plans of the current run, by identity

    @classmethod
    def begun(cls, hint_of: Mapping[str, int], trip_counts: Collection[str], like: Repeats | None) -> Repeats:
        """The cache for a new run: ``like`` where its symbols are the same. Each run counts only the guards that it evaluates itself."""
        if like is None or like.env is None or not like.env.matches(hint_of, trip_counts):
            return cls(SizeEnv(hint_of, trip_counts) if hint_of else None)
        like._used = set()
        like.env.begin_run()
        return like

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], compute: Callable[..., Any]) -> Any:
        """``compute(func, args, kwargs)``, or a result made from the description of an earlier call with equal keys."""
        first = _first_tensor(args)
        if first is None or (key := _key(func, args, kwargs, self.tokens)) is None:
            return compute(func, args, kwargs)
        plan = self._plans.get(key, _NEW)
        if plan is _NEW and (forms := contiguous.forms(func, args, kwargs)) is not None:
            plan = self._plans[key] = _of_forms(forms)
        if plan is _NEW:
            with self._noted() as evaluations:
                out = compute(func, args, kwargs)
            plan = self._plans[key] = _plan(func, args, out, evaluations)
            self._used.add(id(plan))
            self.tokens.clear()  # ``out=`` may have been resized
            return out
        if plan is None:
            self.tokens.clear()  # as above
            return compute(func, args, kwargs)
        if self.env is not None and id(plan) not in self._used:  # computed in an earlier run
            self._used.add(id(plan))
            self.env.add_answers(plan.evaluations)
        return plan.make(args, first.fake_mode, self.tokens)

    def _noted(self) -> contextlib.AbstractContextManager[Evaluations]:
        return self.env.collecting_answers() if self.env is not None else contextlib.nullcontext({})


def _key(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tokens: dict[int, Token]) -> Any:
    """The cache key: everything that determines the form of the results. None where that is unknown. Notes the tokens of tensors."""
    if _by_values(func) and not _takes_rows(func, args):
        return None
    try:
        values = tuple([_token(value, tokens) for value in args])
        key = (id(func), values, tuple([(name, _token(value, tokens)) for name, value in kwargs.items()]))
        hash(key)
    except (TypeError, _NoKey):
        return None
    return key


@once_per_operator
def _by_values(func: Any) -> bool:
    """Whether the form of the results of ``func`` may depend on the values of its arguments."""
    return not _NEVER.isdisjoint(func.tags)


def _takes_rows(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether this indexes by integers: the result has as many elements as there are indices, while a mask makes the size
    data-dependent."""
    return func is _INDEX and all(index is None or index.dtype not in _MASKS for index in args[1])


class _NoKey(Exception):
    """An argument of a kind that the key does not support."""


def _token(value: Any, tokens: dict[int, Token]) -> Any:
    if type(value) is FakeTensor:
        if value.layout is not torch.strided or value.dtype.is_complex:
            raise _NoKey
        if value.is_inference() != torch.is_inference_mode_enabled():
            raise _NoKey  # in inference mode a view of a parameter is an ordinary tensor too, which a result made here would not be
        token = tokens[id(value)] = token_of(value)
        return token
    if isinstance(value, torch.Tensor):
        raise _NoKey
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return (type(value).__name__, value.node._expr)
    if isinstance(value, list | tuple):
        return tuple([_token(item, tokens) for item in value])
    return (type(value).__name__, value)


def token_of(value: torch.Tensor) -> Token:
    """A hashable description of a tensor: its shape, strides, dtype and offset."""
    return tuple(map(in_key, value.shape)), tuple(map(in_key, value.stride())), value.dtype, in_key(value.storage_offset())


def in_key(size: Any) -> Any:
    """A hashable key of a size: the number, or the expression of a symbolic size."""
    return size if type(size) is int else size.node._expr


def _first_tensor(args: tuple[Any, ...]) -> FakeTensor | None:
    """The first tensor of the arguments, or of a list among them."""
    inside = (t for a in args for t in (a if isinstance(a, list | tuple) else (a,)))
    return next((t for t in inside if type(t) is FakeTensor), None)


def _of_forms(forms: tuple[contiguous.Form, ...]) -> _Plan:
    """The plan for results of known forms: no guard is evaluated for them."""
    made = tuple(_Form(*form) for form in forms)
    return _Plan(made, torch.Tensor if len(made) == 1 else tuple, {}, tuple(form.token for form in made))


def _plan(func: Any, args: tuple[Any, ...], out: Any, evaluations: Evaluations) -> _Plan | None:
    places = [place for place, _ in written(func)]
    if places:
        return _Plan((), None, evaluations) if places == [0] and out is args[0] and len(func._schema.returns) == 1 else None
    if isinstance(out, torch.Tensor):
        outs, kind = [out], torch.Tensor
    elif type(out) in (tuple, list) and all(isinstance(o, torch.Tensor) for o in out):
        outs, kind = list(out), type(out)
    else:
        return None
    forms = tuple(form for o in outs if (form := _form(o, args)) is not None)
    if len(forms) < len(outs):
        return None
    tokens = tuple(form.token for form in forms)
    plans = [_Plan(tuple(replace(form, dense=dense) for form in forms), kind, evaluations, tokens) for dense in (True, False)]
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
    """Whether the plan reproduces torch's results, including their storages; results must not share a storage with each other."""
    made = plan.make(args, outs[0].fake_mode, {})  # type: ignore[attr-defined]  # they are fake tensors
    several = [made] if isinstance(made, torch.Tensor) else made
    own = [o.untyped_storage()._cdata for o, form in zip(outs, plan.forms, strict=True) if form.of is None]
    return len(set(own)) == len(own) and all(
        token_of(a) == token_of(b) and _same(in_key(a.untyped_storage().nbytes()), in_key(b.untyped_storage().nbytes()))
        for a, b in zip(several, outs, strict=True)
    )


def _same(a: Any, b: Any) -> bool:
    return a == b or bool(sp.expand(sp.sympify(a) - sp.sympify(b)) == 0)

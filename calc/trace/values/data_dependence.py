"""Bounds and expected shares of data-dependent values: the range of an integer, and how often a mask is true.

A router chooses one of E experts. If all are chosen equally often (balanced routing), a mask that compares the choice with one expert is
true once in E times, and a comparison with expert E is never true. These facts are stored on the fake tensors; they give a data-dependent
size its expected value and never specialize it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import torch

from calc.platform.torch_private import FakeTensor, no_dispatch
from calc.trace.values.facts import (
    ALWAYS,
    NEVER,
    Between,
    Columns,
    Even,
    IfFinite,
    OneIn,
    ZerosBeyond,
    at_least,
    fact_of,
    given_to,
    index_bound,
    name_of,
    note,
    overwritten,
    places_in,
    registering,
    within_of,
    writes_to,
    written,
)

_CARRYING = frozenset(
    """view _unsafe_view _reshape_alias permute transpose t expand unsqueeze squeeze clone _to_copy detach detach_ alias slice select index
    index_select gather split split_with_sizes unbind flip repeat roll
    lift_fresh take""".split()  # noqa: SIM905  # names of operators
)
_FACT_RULES: dict[str, Callable[..., Any]] = {}


_fact_rule = registering(_FACT_RULES)


# From a row that has −∞ in places and a finite number in others, these make finite numbers.
_FINITE_OF_MASKED = frozenset(
    """_softmax _safe_softmax exp sigmoid tanh amax nan_to_num
    _scaled_dot_product_attention_math _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention
    _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention""".split()  # noqa: SIM905  # names of operators
)


def follow(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
    """Note the facts about the results of ``func``; count its writes, which invalidates facts."""
    _follow_infinities(func, args, kwargs, out)
    if written(func):
        for tensor in overwritten(func, args, kwargs):
            tensor.untyped_storage().napkin_writes = writes_to(tensor) + 1  # type: ignore[attr-defined]  # ours, as above
        if name_of(func) == "uniform_":
            _drawn_between(given_to(func, args, kwargs), out)
        return
    if args and hasattr(args[0], "napkin_pick"):
        _carry_pick(args[0], out)
    name = name_of(func)
    if name in _FACT_RULES:
        _FACT_RULES[name](given_to(func, args, kwargs), out)
    elif args and name in _CARRYING and fact_of(args[0]) is not None:
        _carry(name, args, kwargs, out)


def _follow_infinities(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
    """Note on storages that the model writes an infinite number into them, or what it makes of such numbers."""
    if not any(map(_has_infinity, (*args, *kwargs.values()))) or name_of(func) in _FINITE_OF_MASKED:
        return
    for tensor in (*overwritten(func, args, kwargs), *(out if isinstance(out, list | tuple) else (out,))):
        if isinstance(tensor, torch.Tensor) and tensor.dtype.is_floating_point:
            tensor.untyped_storage().napkin_infinite = True  # type: ignore[attr-defined]  # ours, as above


def _has_infinity(value: Any) -> bool:
    """Whether the model writes an infinite number into ``value``, a number, a tensor or a list of them. A real tensor is a constant that
    is written in Python."""
    if isinstance(value, list | tuple):
        return any(map(_has_infinity, value))
    if not isinstance(value, torch.Tensor):
        return type(value) is float and math.isinf(value)
    if isinstance(value, FakeTensor) or not value.dtype.is_floating_point:
        return hasattr(value.untyped_storage(), "napkin_infinite")
    with no_dispatch():
        return bool(value.isinf().any())


_numbers = itertools.count(1)


def mark_picked(part: torch.Tensor) -> None:
    """Note that ``part`` is selected at a data-dependent position: it is not assumed to equal any other part."""
    part.napkin_pick = next(_numbers)  # type: ignore[attr-defined]  # ours, as above


def _carry_pick(part: torch.Tensor, out: Any) -> None:
    storage = part.untyped_storage()._cdata
    for tensor in out if isinstance(out, list | tuple) else (out,):
        if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata == storage:
            tensor.napkin_pick = part.napkin_pick  # type: ignore[attr-defined]  # ours, as above


def _carry(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
    """Note the fact of the argument for a result with the same values; ``Columns`` are split where the last axis is."""
    fact = fact_of(args[0])
    if isinstance(fact, OneIn) and fact.within is not None and name not in ("clone", "detach", "_to_copy", "alias"):
        fact = replace(fact, within=_permuted(fact.within, args[1]) if name == "permute" else None)
    if isinstance(fact, Between) and fact.differ:
        _carry_different(fact, name, args, kwargs, out)
        return
    if not isinstance(fact, Columns):
        note(out, fact if name != "_to_copy" or _keeps(fact, out.dtype) else None)
        return
    last = args[0].dim() - 1
    axis = kwargs.get("dim", args[1] if len(args) > 1 else 0)
    if name == "select" and axis in (last, -1):
        which = args[2]
        one = len(fact.counts) == 1 or isinstance(which, int)
        note(out, fact.column(which if isinstance(which, int) else 0) if one else None)
    elif name == "unbind" and axis in (last, -1):
        for which, tensor in enumerate(out):
            note(tensor, fact.column(which))
    elif name == "unbind" and fact.row is None and last == 1:
        for row, tensor in enumerate(out):
            note(tensor, replace(fact, row=row))
    elif len(fact.counts) == 1 and (name == "squeeze" or (name == "view" and out.dim() == last)):
        note(out, fact.column())
    elif name in ("clone", "detach") or (name in ("select", "unbind", "slice") and axis not in (last, -1)):
        note(out, fact)


def _carry_different(fact: Between, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
    """Note the place of each element that is taken out of one axis of integers that differ."""
    alike = replace(fact, differ=False)
    which = kwargs.get("index", args[2] if len(args) > 2 else None)
    if name == "unbind" and args[0].dim() == 1:
        for place, tensor in enumerate(out):
            note(tensor, replace(alike, place=place))
    elif name == "select" and args[0].dim() == 1 and isinstance(which, int) and which >= 0:
        note(out, replace(alike, place=which))
    elif name in ("clone", "detach", "alias"):
        note(out, fact)
    elif name != "_to_copy" or _keeps(fact, out.dtype):
        note(out, fact if name == "_to_copy" else alike)


def _permuted(within: ZerosBeyond, order: Any) -> ZerosBeyond:
    return replace(within, axis=[d % len(order) for d in order].index(within.axis))


def _keeps(fact: Any, dtype: torch.dtype) -> bool:
    """Whether values with this fact are unchanged by a cast to that dtype."""
    if isinstance(fact, Between):
        return dtype in (torch.int32, torch.int64)
    return isinstance(fact, OneIn) or dtype.is_floating_point


# -- sources of facts ---------------------------------------------------------------------------------------------------------


@_fact_rule("topk", "sort")
def _chosen(given: Mapping[str, Any], out: Any) -> None:
    source = given["self"]
    at = given.get("dim", -1)
    note(out[1], Between(0, source.shape[at], chosen=True) if isinstance(at, int) and source.dim() else None)


@_fact_rule("max", "min")
def _largest(given: Mapping[str, Any], out: Any) -> None:
    if isinstance(out, tuple):
        _chosen(given, out)


@_fact_rule("argmax", "argmin", "argsort")
def _best(given: Mapping[str, Any], out: Any) -> None:
    at = given.get("dim")
    note(out, Between(0, given["self"].shape[at], chosen=True) if isinstance(at, int) and given["self"].dim() else None)


@_fact_rule("multinomial")
def _drawn(given: Mapping[str, Any], out: Any) -> None:
    note(out, Between(0, given["self"].shape[-1]))


@_fact_rule("randint")
def _uniform(given: Mapping[str, Any], out: Any) -> None:
    low = given.get("low", 0)
    note(out, Between(low, given["high"]))


@_fact_rule("randperm")
def _shuffled(given: Mapping[str, Any], out: Any) -> None:
    note(out, Between(0, given["n"]))


@_fact_rule("rand", "rand_like")
def _even(given: Mapping[str, Any], out: Any) -> None:
    note(out, Even())


@_fact_rule("uniform")
def _drawn_between(given: Mapping[str, Any], out: Any) -> None:
    note(out, Even() if (given.get("from", 0), given.get("to", 1)) == (0, 1) else None)


@_fact_rule("unique_consecutive", "unique_dim")
def _different(given: Mapping[str, Any], out: Any) -> None:
    note(out[0], fact_of(given["self"]))


@_fact_rule("_unique2")
def _each_once(given: Mapping[str, Any], out: Any) -> None:
    fact = fact_of(given["self"])
    note(out[0], replace(fact, differ=True) if isinstance(fact, Between) else fact)


@_fact_rule("nonzero")
def _places(given: Mapping[str, Any], out: Any) -> None:
    note(out, Columns(places_in(given["self"])))


@_fact_rule("sum")
def _summed(given: Mapping[str, Any], out: Any) -> None:
    """A sum along other axes is zero where all of its addends are."""
    within, source = within_of(given["self"]), given["self"]
    axes = given.get("dim")
    if within is None or not axes:
        return
    gone = {axis % source.dim() for axis in axes}
    if within.axis not in gone:
        left = 0 if given.get("keepdim", False) else sum(axis < within.axis for axis in gone)
        note(out, replace(within, axis=within.axis - left))


@_fact_rule("ones", "ones_like", "new_ones")
def _only_ones(given: Mapping[str, Any], out: Any) -> None:
    """A padding mask of nothing but ones may have more elements than constants are computed for."""
    note(out, ALWAYS)


@_fact_rule(*(f"{kind}{n}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)))
def _resized(given: Mapping[str, Any], out: Any) -> None:
    """Each element of the result is one of the argument."""
    fact = fact_of(given["self"])
    note(out, fact if fact in (ALWAYS, NEVER) else None)


# -- comparisons ------------------------------------------------------------------------------------------------------------


@_fact_rule("isnan", "isinf")
def _not_finite(given: Mapping[str, Any], out: Any) -> None:
    note(out, None if _has_infinity(given["self"]) else IfFinite(False))


def _if_finite(given: Mapping[str, Any], equal: bool) -> IfFinite | None:
    """Of a comparison of numbers with themselves or with infinity, as ``isfinite`` makes: whether they are ``equal`` or not."""
    left, right = given["self"], given["other"]
    if _has_infinity(left):
        return None
    is_itself = left is right and isinstance(left, torch.Tensor) and left.dtype.is_floating_point
    return IfFinite(equal) if is_itself else IfFinite(not equal) if isinstance(right, float) and math.isinf(right) else None


@_fact_rule("eq")
def _equal(given: Mapping[str, Any], out: Any) -> None:
    left, right = given["self"], given["other"]
    note(out, _if_finite(given, equal=True))
    values = fact_of(left) or fact_of(right)
    if isinstance(values, Between) and _is_outside(right, values):
        note(out, NEVER)
    elif (count := index_bound(values)) is not None:
        note(out, OneIn((count,), chosen=values.chosen and not (isinstance(right, torch.Tensor) and right.dim())))
    elif isinstance(values, OneIn) and isinstance(right, int) and right == 1:
        note(out, values)


def _is_outside(value: Any, values: Between) -> bool:
    """Whether no integer of that range equals ``value``, at all sizes."""
    return at_least(value, values.high) or (isinstance(value, int | torch.SymInt) and at_least(values.low - 1, value))


@_fact_rule("ge")
def _no_less(given: Mapping[str, Any], out: Any) -> None:
    share = _share_below(given)
    note(out, None if share is None else OneIn((), 1 - share))


@_fact_rule("gt")
def _greater(given: Mapping[str, Any], out: Any) -> None:
    _no_less(given, out)
    _true(given, out)


def _true(given: Mapping[str, Any], out: Any) -> None:
    values = fact_of(given["self"])
    nothing = isinstance(given["other"], int) and given["other"] == 0
    note(out, values if isinstance(values, OneIn | ZerosBeyond) and nothing else None)


@_fact_rule("ne")
def _different_from(given: Mapping[str, Any], out: Any) -> None:
    values, checked = fact_of(given["self"]), _if_finite(given, equal=False)
    if checked is not None:
        note(out, checked)
    elif isinstance(values, Between) and _is_outside(given["other"], values):
        note(out, ALWAYS)
    else:
        _true(given, out)


@_fact_rule("logical_not", "bitwise_not")
def _not(given: Mapping[str, Any], out: Any) -> None:
    truth = fact_of(given["self"])
    if given["self"].dtype is torch.bool:
        opposite = IfFinite(not truth.truth) if isinstance(truth, IfFinite) else None
        note(out, ALWAYS if truth == NEVER else NEVER if truth == ALWAYS else opposite)


@_fact_rule("any")
def _any(given: Mapping[str, Any], out: Any) -> None:
    """``any`` of a mask that is nowhere true is false, also of an empty one. Of several choices of a row, each of another expert, one is a
    certain expert as many times more often."""
    fact, axis = fact_of(given["self"]), given.get("dim")
    note(out, fact if fact in (NEVER, IfFinite(False)) else None)
    if isinstance(fact, OneIn) and fact.chosen and isinstance(axis, int) and out.dim():
        note(out, replace(fact, times=(*fact.times, given["self"].shape[axis]), within=None))


@_fact_rule("all")
def _all(given: Mapping[str, Any], out: Any) -> None:
    """``all`` of a mask that is true everywhere is true, also of an empty one."""
    fact = fact_of(given["self"])
    note(out, fact if fact in (ALWAYS, IfFinite(True)) else None)


@_fact_rule("_is_all_true")
def _checked(given: Mapping[str, Any], out: Any) -> None:
    """Checks of torch's own argument validation (of a distribution, for example), which raise if they fail: a step that runs has passed
    them."""
    note(out, ALWAYS)


@_fact_rule("lt", "le")
def _below(given: Mapping[str, Any], out: Any) -> None:
    share = _share_below(given)
    note(out, None if share is None else OneIn((), share))


def _share_below(given: Mapping[str, Any]) -> Fraction | None:
    """How often a number between 0 and 1 is below another one: never below 0, nor at it, which is drawn seldom. None of other numbers."""
    bound = given["other"]
    even = fact_of(given["self"]) == Even() and isinstance(bound, int | float)
    return Fraction(repr(min(max(bound, 0), 1))) if even else None


@_fact_rule("bernoulli")
def _tossed(given: Mapping[str, Any], out: Any) -> None:
    share = given.get("p")
    note(out, OneIn((), Fraction(repr(share))) if isinstance(share, float) and 0 < share <= 1 else None)


@_fact_rule("mul", "logical_or", "bitwise_or")
def _two_checks(given: Mapping[str, Any], out: Any) -> None:
    """``isfinite`` is the product of two masks."""
    left, right = fact_of(given["self"]), fact_of(given["other"])
    note(out, left if isinstance(left, IfFinite) and left == right else None)


@_fact_rule("logical_and", "bitwise_and")
def _both(given: Mapping[str, Any], out: Any) -> None:
    left, right = fact_of(given["self"]), fact_of(given["other"])
    _two_checks(given, out)
    if isinstance(left, OneIn) and isinstance(right, OneIn):
        note(out, OneIn((*left.ways, *right.ways), left.share * right.share, times=(*left.times, *right.times)))



"""The number of true elements of a mask where sizes determine it: one in each row of one-hot labels, all but a diagonal.

Such a size is not data-dependent. The counts are stored on fake tensors of zeros and ones; any write that is not handled here invalidates
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from calc.platform.torch_private import no_dispatch
from calc.trace.values.facts import contents, fact_of, given_to, name_of, note, registering, written

COUNT, _DISTINCT = "napkin_count", "napkin_distinct"

# Operators whose result has the same elements in another place or dtype. Those that select a diagonal or a part are not among them.
_SAME = frozenset(
    """view _unsafe_view _reshape_alias permute transpose t unsqueeze squeeze clone detach alias lift_fresh flip roll _to_copy
    contiguous""".split()  # noqa: SIM905  # names of operators
)
_MAKING: dict[str, Callable[[Mapping[str, Any], Any], None]] = {}
_count_rule = registering(_MAKING)


def count_of(mask: torch.Tensor) -> Any:
    """The number of elements of ``mask`` that are 1, where the others are 0; None where it is data-dependent."""
    return fact_of(mask, COUNT)


def follow(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
    """Note the count of the result of ``func``. Call it after the writes of ``func`` are counted."""
    name = name_of(func)
    if name in _MAKING:
        _MAKING[name](given_to(func, args, kwargs), out)
    elif name in _SAME and not written(func) and isinstance(args[0], torch.Tensor):
        _note(out, fact_of(args[0], COUNT))
        distinct = fact_of(args[0], _DISTINCT)
        if out.dtype == args[0].dtype and (distinct == "all" or name in ("clone", "detach", "alias")):
            note(out, distinct, _DISTINCT)


def _note(out: Any, count: Any) -> None:
    note(out, count, COUNT)


def _is(value: Any, number: int) -> bool:
    """Whether ``value`` equals ``number``; it may be a constant tensor."""
    if isinstance(value, torch.Tensor):
        constant = getattr(value, "napkin_constant", None)
        real = constant[0] if constant is not None else getattr(value, "constant", None)
        with no_dispatch():
            return real is not None and real.dim() == 0 and bool(real.item() == number)
    return isinstance(value, bool | int | float) and value == number


@_count_rule("zeros", "zeros_like", "new_zeros")
def _zeros(given: Mapping[str, Any], out: Any) -> None:
    _note(out, 0)


@_count_rule("ones", "ones_like", "new_ones")
def _ones(given: Mapping[str, Any], out: Any) -> None:
    _note(out, out.numel())


@_count_rule("full", "full_like", "new_full")
def _full(given: Mapping[str, Any], out: Any) -> None:
    _note(out, 0 if _is(given["fill_value"], 0) else out.numel() if _is(given["fill_value"], 1) else None)


@_count_rule("eye")
def _diagonal(given: Mapping[str, Any], out: Any) -> None:
    _note(out, out.shape[0] if "m" not in given else None)


@_count_rule("arange", "randperm")
def _numbered(given: Mapping[str, Any], out: Any) -> None:
    note(out, "all", _DISTINCT)


@_count_rule("topk", "sort")
def _ordered(given: Mapping[str, Any], out: Any) -> None:
    axis = given.get("dim", -1)
    note(out[1], axis % out[1].dim() if out[1].dim() else "all", _DISTINCT)


@_count_rule("argsort")
def _order(given: Mapping[str, Any], out: Any) -> None:
    note(out, given.get("dim", -1) % out.dim() if out.dim() else "all", _DISTINCT)


# -- comparisons --------------------------------------------------------------------------------------------------------------


@_count_rule("eq")
def _equal(given: Mapping[str, Any], out: Any) -> None:
    count = count_of(given["self"])
    if count is not None:
        _note(out, count if _is(given["other"], 1) else out.numel() - count if _is(given["other"], 0) else None)


@_count_rule("ne")
def _unequal(given: Mapping[str, Any], out: Any) -> None:
    count = count_of(given["self"])
    if count is not None:
        _note(out, count if _is(given["other"], 0) else out.numel() - count if _is(given["other"], 1) else None)


@_count_rule("gt")
def _above(given: Mapping[str, Any], out: Any) -> None:
    _note(out, count_of(given["self"]) if _is(given["other"], 0) else None)


@_count_rule("logical_not", "bitwise_not")
def _others(given: Mapping[str, Any], out: Any) -> None:
    count = count_of(given["self"])
    if count is not None and out.dtype is torch.bool:
        _note(out, out.numel() - count)


# -- ones written into zeros ------------------------------------------------------------------------------------------


def _before(given: Mapping[str, Any], out: Any) -> Any:
    """The count of ``self`` before the operator: of the tensor that ``out`` is a copy of, or of ``out`` itself before it was written in
    place."""
    source = given["self"]
    return fact_of(source, COUNT, writes=1) if source is out or contents(source) == contents(out) else count_of(source)


def _is_zero(count: Any) -> bool:
    return isinstance(count, int) and count == 0


@_count_rule("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put")
def _put(given: Mapping[str, Any], out: Any) -> None:
    indices, axes = given["indices"], given["self"].dim()
    if len(indices) != axes or not all(i is not None and i.dim() == 1 and i.dtype is torch.int64 for i in indices):
        return
    distinct = [i.shape[0] for i in indices if fact_of(i, _DISTINCT) is not None]
    alone = [i.shape[0] for i in indices if not _is(i.shape[0], 1)]
    if distinct and _is_zero(_before(given, out)) and _is(given["values"], 1) and not (alone and _is(distinct[0], 1)):
        _note(out, distinct[0])


@_count_rule("scatter", "scatter_")
def _scattered(given: Mapping[str, Any], out: Any) -> None:
    index, axis = given["index"], given["dim"]
    one = given.get("value", given.get("src"))
    if not _is_zero(_before(given, out)) or not _is(one, 1) or not index.dim():
        return
    if _is(index.shape[axis], 1) or fact_of(index, _DISTINCT) in (axis % index.dim(), "all"):
        _note(out, index.numel())

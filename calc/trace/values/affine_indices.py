"""Affine indices: integer tensors ``first + step*i`` along one axis, in symbolic sizes, such as position ids.

A library tests whether position ids exceed a length or restart. Constant propagation answers that at the hint sizes alone; an affine
index answers it at all sizes. The answer is either the same everywhere or a guard about sizes (``T > 4096``), which the graph keeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from calc.platform.torch_private import FakeTensor
from calc.trace.size_text import never_below_one
from calc.trace.values.causal_masks import by_triangles, is_square_of
from calc.trace.values.elements import (
    ELEMENT_RULES,
    RELATIONS,
    AffineIndex,
    ComparedElements,
    Elements,
    Triangle,
    element_rule,
    elements_of,
    is_zero_or_one,
    note_elements,
    same,
    whole,
)
from calc.trace.values.facts import WHOLE, given_to, name_of, written

_TAKING_APART = ("unbind", "split", "split_with_sizes")
_READ = torch.ops.aten._local_scalar_dense.default


def answer(func: Any, args: tuple[Any, ...]) -> tuple[bool, Any]:
    """``(True, value)`` where ``func`` reads a one-element tensor whose value is known at all sizes: a size expression, such as the length
    of an unpadded sequence, or a truth value; else ``(False, None)``. A truth value that depends on sizes is evaluated as a guard."""
    elements = elements_of(args[0]) if func is _READ and args[0].dtype in (*WHOLE, torch.uint8) else None
    if elements is None or isinstance(elements, Triangle):
        return False, None
    if args[0].dtype is torch.uint8:  # uint8 elements are known only if they are 0 or 1
        return (True, elements.first) if isinstance(elements, AffineIndex) and elements.first in (0, 1) else (False, None)
    if args[0].dtype is not torch.bool:
        return (True, elements.first) if isinstance(elements, AffineIndex) else (False, None)
    if isinstance(elements, ComparedElements):
        return True, bool(RELATIONS[elements.relation](elements.index.first, elements.bound))
    return True, bool(elements.first)


def follow(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
    """Note the elements of ``out``, where they follow from those of the arguments."""
    name = name_of(func)
    if name in (*_TAKING_APART, "sort"):
        of_all = _plain(args[0])
        if of_all is not None and not of_all.step:
            for part in out if name != "sort" else out[:1]:
                note_elements(part, of_all)
        return
    if name not in ELEMENT_RULES or type(out) is not FakeTensor or (written(func) and name != "masked_fill_"):
        return
    elements = ELEMENT_RULES[name](given_to(func, args, kwargs), out)
    if elements is not None:
        note_elements(out, elements)


def _axis(given: Mapping[str, Any], dims: int) -> int:
    """The axis that an operator acts on, counted from the last (-1)."""
    dim = given.get("dim", 0)
    return int(dim if dim < 0 else dim - dims)


def _rising(first: Any, step: int, axis: int, length: Any) -> AffineIndex:
    """An affine index; a constant one if it has one element or equal ones."""
    return AffineIndex(first, step, axis, length) if step and not same(length, 1) else AffineIndex(first)


def _plain(value: Any) -> AffineIndex | None:
    """The affine index of ``value``; None if it has none or holds a comparison with one."""
    elements = elements_of(value)
    return elements if isinstance(elements, AffineIndex) else None


# -- sources of affine indices ------------------------------------------------------------------------------------------------


@element_rule("arange")
def _numbered(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | None:
    start, step = given.get("start", 0), given.get("step", 1)
    return _rising(start, step, -1, out.shape[0]) if whole(start, given["end"]) and type(step) is int else None


@element_rule("zeros", "zeros_like", "new_zeros")
def _zeros(_: Mapping[str, Any], out: torch.Tensor) -> AffineIndex:
    return AffineIndex(0)


@element_rule("ones", "ones_like", "new_ones")
def _ones(_: Mapping[str, Any], out: torch.Tensor) -> AffineIndex:
    return AffineIndex(1)


@element_rule("full", "full_like", "new_full", "scalar_tensor")
def _filled(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | Triangle | None:
    value = given.get("fill_value", given.get("s"))
    if out.dtype is torch.bool:
        return AffineIndex(int(bool(value))) if isinstance(value, int | float) else None
    if isinstance(value, float) and math.isinf(value) and out.dtype.is_floating_point:
        return Triangle(0, value, value)
    return AffineIndex(value) if whole(value) else None


# -- the same elements, elsewhere -----------------------------------------------------------------------------------------


@element_rule("clone", "detach", "alias", "lift_fresh", "expand")
def _unchanged(given: Mapping[str, Any], out: torch.Tensor) -> Elements | None:
    """The same elements. An axis of length 1 that is expanded holds one repeated element, so the index is unchanged."""
    elements = elements_of(given["self"])
    return elements if not isinstance(elements, Triangle) or is_square_of(given["self"], out) else None


@element_rule("_to_copy")
def _cast(given: Mapping[str, Any], out: torch.Tensor) -> Elements | None:
    """Elements after a cast, where the dtype represents them: 0 and 1 in every dtype, all integers in int64."""
    elements, source = elements_of(given["self"]), given["self"].dtype
    if isinstance(elements, Triangle) and out.dtype is torch.bool:
        return Triangle(elements.diagonal, int(elements.above != 0), int(elements.below != 0))
    if isinstance(elements, Triangle):
        return elements if out.dtype.is_floating_point or {elements.above, elements.below} <= {0, 1} else None
    if out.dtype is source or not isinstance(elements, AffineIndex):
        return elements if out.dtype is source else None
    positions = source in WHOLE and out.dtype is torch.int32  # indices and lengths fit in int32
    return elements if is_zero_or_one(elements) or out.dtype is torch.int64 or positions else None


@element_rule("unsqueeze", "squeeze", "view", "_unsafe_view", "_reshape_alias")
def _shaped(given: Mapping[str, Any], out: torch.Tensor) -> Elements | None:
    """Axes of length 1 are added or removed. (A view may also reinterpret the bytes in another dtype.)"""
    elements = elements_of(given["self"]) if out.dtype is given["self"].dtype else None
    if isinstance(elements, Triangle):
        return None
    if isinstance(elements, ComparedElements):
        moved = _moved(elements.index, given["self"], out)
        return None if moved is None else replace(elements, index=moved)
    return None if elements is None else _moved(elements, given["self"], out)


def _moved(index: AffineIndex, before: torch.Tensor, after: torch.Tensor) -> AffineIndex | None:
    """``index`` along the axis of ``after`` that corresponds to its axis of ``before``: None where axes after it are merged or split."""
    if not index.step:
        return index
    axes_before, axes_after = ([axis for axis in range(-1, -1 - t.dim(), -1) if not same(t.shape[axis], 1)] for t in (before, after))
    place = axes_before.index(index.axis) if index.axis in axes_before else len(axes_after)
    alike = [same(before.shape[a], after.shape[b]) for a, b in zip(axes_before, axes_after, strict=False)]
    return replace(index, axis=axes_after[place]) if place < len(axes_after) and all(alike[: place + 1]) else None


@element_rule("permute", "transpose", "t", "flip", "roll", "index_select", "index", "gather")
def _moved_about(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | None:
    """Equal elements remain equal in any order."""
    index = _plain(given["self"])
    return index if index is not None and not index.step else None


@element_rule("repeat")
def _repeated(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | None:
    index = _plain(given["self"])
    return index if index is None or not index.step or same(given["repeats"][index.axis], 1) else None


@element_rule("slice")
def _cut(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | None:
    index, axis = _plain(given["self"]), _axis(given, out.dim())
    if index is None or not index.step or axis != index.axis:
        return index
    start, by = given.get("start") or 0, given.get("step", 1)
    if not isinstance(start, int) or start < 0 or by != 1:
        return None
    return _rising(index.first + index.step * start, index.step, axis, out.shape[axis])


@element_rule("select")
def _picked(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | None:
    index, axis, at = _plain(given["self"]), _axis(given, given["self"].dim()), given["index"]
    if index is None or not index.step:
        return index
    if axis != index.axis:
        return replace(index, axis=index.axis + (axis > index.axis))
    return AffineIndex(index.first + index.step * (at if at >= 0 else index.length + at)) if isinstance(at, int) else None


# -- arithmetic -----------------------------------------------------------------------------------------------------------


@element_rule("cat")
def _joined(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | None:
    """The concatenation of pieces, where each continues the one before it."""
    axis = _axis(given, out.dim())
    pieces = [
        (piece, t.shape[axis]) for t in given["tensors"] if (piece := _plain(t)) is not None and (not piece.step or piece.axis == axis)
    ]
    if len(pieces) < len(given["tensors"]):
        return None
    first = at = pieces[0][0].first
    step = next((index.step for index, _ in pieces if index.step), 0)
    for index, length in pieces:
        if not same(index.first, at) or (index.step != step and not same(length, 1)):
            return None
        at = at + step * length
    return _rising(first, step, axis, out.shape[axis])


@element_rule("stack")
def _stacked(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | None:
    """Equal elements remain equal along a new axis."""
    first, *others = (_plain(t) for t in given["tensors"])
    alike = all(piece is not None and not piece.step and first is not None and same(piece.first, first.first) for piece in others)
    return first if first is not None and not first.step and alike else None


@element_rule("add")
def _sum(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | None:
    return _of_both(given, 1) if out.dtype is not torch.bool else None


@element_rule("sub")
def _difference(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | None:
    return _of_both(given, -1)


def _of_both(given: Mapping[str, Any], sign: int) -> AffineIndex | None:
    left, right = _plain(given["self"]), _plain(given["other"])
    if given.get("alpha", 1) != 1 or left is None or right is None or (left.step and right.step and left.axis != right.axis):
        return None
    long = left if left.step else right
    return _rising(left.first + sign * right.first, left.step + sign * right.step, long.axis, long.length)


@element_rule("mul")
def _product(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | None:
    left, right = _plain(given["self"]), _plain(given["other"])
    if left is None or right is None or (left.step and right.step) or out.dtype is torch.bool:
        return None
    long, number = (left, right.first) if left.step else (right, left.first)
    if not long.step:
        return AffineIndex(long.first * number)
    return _rising(long.first * number, long.step * number, long.axis, long.length) if isinstance(number, int) else None


@element_rule("floor_divide", "div")
def _quotient(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | None:
    """The rounded quotient of constant elements, such as a length after a layer with stride 2, or a number of chunks."""
    left, right, rounding = _plain(given["self"]), _plain(given["other"]), given.get("rounding_mode", "floor")
    if left is None or right is None or left.step or right.step or rounding is None or same(right.first, 0) or out.dtype not in WHOLE:
        return None
    down = rounding == "floor" or (left.first >= 0 and right.first > 0)  # "trunc" rounds towards zero
    return AffineIndex(left.first // right.first) if down else None


@element_rule("cumsum")
def _added_up(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | None:
    index, axis = _plain(given["self"]), _axis(given, out.dim())
    if index is None or index.step or not isinstance(index.first, int):
        return None
    return _rising(index.first, index.first, axis, out.shape[axis])


@element_rule("sum")
def _summed(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | None:
    """The sum of equal elements: the element times their number."""
    index, source = _plain(given["self"]), given["self"]
    if index is None or index.step or out.dtype is torch.bool:
        return None
    axes = given.get("dim") or range(source.dim())
    return AffineIndex(math.prod((source.shape[axis] for axis in axes), start=index.first))


@element_rule("max", "amax")
def _largest(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | None:
    return _end(given, 1)


@element_rule("min", "amin")
def _least(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | None:
    return _end(given, 0)


def _end(given: Mapping[str, Any], which: int) -> AffineIndex | None:
    index = _plain(given["self"])
    if index is None or "dim" in given or "other" in given or not _has_elements(given["self"]):
        return None
    return AffineIndex(index.ends()[which])


# -- comparisons ----------------------------------------------------------------------------------------------------------


def _comparing(relation: str) -> Callable[[Mapping[str, Any], torch.Tensor], Elements | None]:
    def make(given: Mapping[str, Any], out: torch.Tensor) -> Elements | None:
        sides = [(given[name], elements_of(given[name])) for name in ("self", "other")]
        if any(isinstance(elements, Triangle) for _, elements in sides):
            return by_triangles(sides[0], sides[1], out, lambda a, b: int(RELATIONS[relation](a, b)))
        left, right = _plain(given["self"]), _plain(given["other"])
        if left is None or right is None:
            return None
        if right.step:
            difference = _of_both(given, -1)
            return None if difference is None else _compared(difference, relation, 0)
        return _compared(left, relation, right.first)

    return make


def _compared(index: AffineIndex, relation: str, operand: Any) -> AffineIndex | ComparedElements:
    """The comparison of an index with a number. If both are plain numbers, the result is 0 or 1."""
    if not index.step and isinstance(index.first, int) and isinstance(operand, int):
        return AffineIndex(int(RELATIONS[relation](index.first, operand)))
    return ComparedElements(index, relation, operand)


ELEMENT_RULES.update({relation: _comparing(relation) for relation in RELATIONS})


@element_rule("any")
def _anywhere(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | ComparedElements | None:
    return _of_all(given, largest_decides=("gt", "ge"))


@element_rule("all")
def _everywhere(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | ComparedElements | None:
    return _of_all(given, largest_decides=("lt", "le"))


def _of_all(given: Mapping[str, Any], largest_decides: Sequence[str]) -> AffineIndex | ComparedElements | None:
    """``any`` or ``all`` by the one element that determines it: if any element is greater, the largest is; if all are, the least is."""
    truth = elements_of(given["self"])
    if truth is None or "dim" in given or not _has_elements(given["self"]):
        return None
    if (
        isinstance(truth, AffineIndex)
        and not truth.step
        and (truth.first in (0, 1) or (given["self"].dtype in WHOLE and type(truth.first) is int))
    ):
        return AffineIndex(int(truth.first != 0))
    if isinstance(truth, Triangle) or given["self"].dtype is not torch.bool:
        return None
    if isinstance(truth, AffineIndex):
        return truth if not truth.step else None
    if truth.index.step and truth.relation in ("eq", "ne"):
        return None
    least, largest = truth.index.ends()
    return _compared(AffineIndex(largest if truth.relation in largest_decides else least), truth.relation, truth.bound)


def _has_elements(value: torch.Tensor) -> bool:
    """Whether the tensor has elements; a guard where it has none at some sizes."""
    return all(size >= 1 if isinstance(size, int) else never_below_one(size.node.expr) or bool(size >= 1) for size in value.shape)

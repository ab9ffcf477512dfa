"""The result of each operation on a layout: a view of the same storage, or a copy in a new one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from calc.errors import BadInputError
from calc.mathematics.dtypes.layouts import IntegerFormat, element_bytes, named
from calc.mathematics.strides.layouts import StridedLayout, alike, by_stride, fresh, viewed

LARGEST = 2**62


@dataclass(frozen=True, slots=True)
class StridedTensor:
    """A layout in a number format (by torch's name) over a memory of ``nbytes``."""

    layout: StridedLayout
    dtype: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class StridedResult:
    """The result of an operation. ``allocated`` are bytes of new storage, 0 for a view."""

    tensor: StridedTensor
    allocated: int
    because: str


def bytes_each(dtype: str) -> int:
    """Bytes of an element. Dtypes packed into bytes have no strides."""
    size = element_bytes(named(dtype))
    if size.denominator != 1:
        raise BadInputError(f"{dtype[:40]} has elements smaller than a byte: choose a dtype of 8 bits or more")
    return int(size)


def tensor(shape: Sequence[int], dtype: str = "fp32") -> StridedTensor:
    """A new tensor."""
    number_format = named(dtype)
    if not number_format.stored or number_format.name == "tf32":
        raise BadInputError(f"torch has no tensors in {dtype[:40]}: choose fp64, fp32, bf16, fp16, an fp8 or an integer dtype")
    if math.prod(shape) * bytes_each(dtype) > LARGEST:
        raise BadInputError("a tensor of that shape has more than 2**62 bytes: choose smaller sizes")
    return StridedTensor(fresh(shape), number_format.stored, math.prod(shape) * bytes_each(dtype))


def _view(of: StridedTensor, layout: StridedLayout, because: str) -> StridedResult:
    return StridedResult(StridedTensor(layout, of.dtype, of.nbytes), 0, because)


def _copy(of: StridedTensor, layout: StridedLayout, because: str, dtype: str = "") -> StridedResult:
    nbytes = layout.elements * bytes_each(dtype or of.dtype)
    return StridedResult(StridedTensor(layout, dtype or of.dtype, nbytes), nbytes, because)


# -- other strides over the same memory --------------------------------------------------------------------------------------------


def _permute(x: StridedTensor, *dims: Any) -> StridedResult:
    order = [_dim(x, d) for d in _flat(dims)]
    if sorted(order) != list(range(len(x.layout.shape))):
        raise BadInputError(f"permute{tuple(_flat(dims))} does not name each of {len(x.layout.shape)} dimensions once")
    layout = x.layout
    moved = StridedLayout(tuple(layout.shape[d] for d in order), tuple(layout.strides[d] for d in order), layout.offset)
    return _view(x, moved, "sizes and strides are permuted, no element is copied")


def _transpose(x: StridedTensor, a: int, b: int) -> StridedResult:
    order = list(range(len(x.layout.shape)))
    first, second = _dim(x, a), _dim(x, b)
    order[first], order[second] = order[second], order[first]
    return _permute(x, *order)


def _t(x: StridedTensor) -> StridedResult:
    if len(x.layout.shape) > 2:
        raise BadInputError(f"t() takes at most 2 dimensions, not {len(x.layout.shape)}: use transpose(a, b)")
    return _permute(x, *reversed(range(len(x.layout.shape))))


def _expand(x: StridedTensor, *sizes: Any) -> StridedResult:
    target, layout = _flat(sizes), x.layout
    new = len(target) - len(layout.shape)
    if new < 0:
        raise BadInputError(f"expand{tuple(target)} has fewer dimensions than the tensor, of shape {layout.shape}")
    shape, strides = [0] * len(target), [0] * len(target)
    for at in range(len(target) - 1, -1, -1):
        # A new dimension is one of size 1 in front; what is as large as it was keeps its stride.
        size = layout.shape[at - new] if at >= new else 1
        stride = layout.strides[at - new] if at >= new else shape[at + 1] * strides[at + 1] if at + 1 < len(target) else 1
        goal = size if target[at] == -1 and at >= new else target[at]
        if goal < 1 or size not in (1, goal):
            raise BadInputError(f"expand{tuple(target)} cannot make {goal} of a dimension of size {size}: only one of size 1 is repeated")
        shape[at], strides[at] = goal, stride if goal == size else 0
    return _view(x, StridedLayout(tuple(shape), tuple(strides), layout.offset), "stride 0 repeats the same elements")


def _view_as(x: StridedTensor, *sizes: Any) -> StridedResult:
    shape = _inferred(x, _flat(sizes))
    layout = viewed(x.layout, shape)
    if layout is None:
        raise BadInputError(
            f"view{tuple(shape)} of strides {x.layout.strides}: no strides give these elements in that shape;"
            " use reshape, which copies"
        )
    return _view(x, layout, "the new dimensions split or merge contiguous ones")


def _reshape(x: StridedTensor, *sizes: Any) -> StridedResult:
    shape = _inferred(x, _flat(sizes))
    layout = viewed(x.layout, shape)
    if layout is not None:
        return _view(x, layout, "a view is possible, so nothing is copied")
    return _copy(x, fresh(shape), "no strides give these elements in that shape: they are copied in order")


def _flatten(x: StridedTensor, start: int = 0, end: int = -1) -> StridedResult:
    shape = x.layout.shape or (1,)
    first, last = _dim(x, start), _dim(x, end)
    if first > last:
        raise BadInputError(f"flatten({start}, {end}) ends before it begins")
    if first == last and x.layout.shape:
        return _view(x, x.layout, "it has one dimension already: the tensor itself")
    return _reshape(x, *shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])


def _unsqueeze(x: StridedTensor, dim: int) -> StridedResult:
    layout = x.layout
    at = dim + len(layout.shape) + 1 if dim < 0 else dim
    if not 0 <= at <= len(layout.shape):
        raise BadInputError(
            f"unsqueeze({dim}) of a tensor of {len(layout.shape)} dimensions: from {-len(layout.shape) - 1} to {len(layout.shape)}"
        )
    stride = layout.shape[at] * layout.strides[at] if at < len(layout.shape) else 1
    shape, strides = list(layout.shape), list(layout.strides)
    shape.insert(at, 1)
    strides.insert(at, stride)
    return _view(x, StridedLayout(tuple(shape), tuple(strides), layout.offset), "one more dimension of size 1, no element is copied")


def _squeeze(x: StridedTensor, *dims: int) -> StridedResult:
    chosen = {_dim(x, d) for d in _flat(dims)} if dims else set(range(len(x.layout.shape)))
    axes = [d for d, size in enumerate(x.layout.shape) if size != 1 or d not in chosen]
    layout = x.layout
    moved = StridedLayout(tuple(layout.shape[d] for d in axes), tuple(layout.strides[d] for d in axes), layout.offset)
    return _view(x, moved, "fewer dimensions of size 1, no element is copied")


def _narrow(x: StridedTensor, dim: int, start: int, length: int) -> StridedResult:
    at = _dim(x, dim)
    if not (0 <= start and 1 <= length and start + length <= x.layout.shape[at]):
        raise BadInputError(f"narrow({dim}, {start}, {length}) goes beyond a dimension of size {x.layout.shape[at]}")
    return index(x, (*(slice(None),) * at, slice(start, start + length)))


def index(x: StridedTensor, parts: Sequence[Any]) -> StridedResult:
    """``x[parts]`` with numbers, slices, ``None`` and ``...``: a view with an offset."""
    layout = x.layout
    used = sum(p is not None and p is not Ellipsis for p in parts)
    if used > len(layout.shape) or sum(p is Ellipsis for p in parts) > 1:
        raise BadInputError(f"{used} indices for a tensor of {len(layout.shape)} dimensions, or several ellipses")
    trailing = [slice(None)] * (len(layout.shape) - used)
    at = next((k for k, p in enumerate(parts) if p is Ellipsis), len(parts))
    all_parts = [*parts[:at], *trailing, *parts[at + 1 :]]
    shape, strides, offset, dim = [], [], layout.offset, 0
    for part in all_parts:
        if part is None:
            later = (layout.shape[dim] * layout.strides[dim]) if dim < len(layout.shape) else 1
            shape.append(1)
            strides.append(later)
            continue
        size, stride = layout.shape[dim], layout.strides[dim]
        dim += 1
        if isinstance(part, slice):
            start, stop, step = _bounds(part, size)
            offset += start * stride
            shape.append(-(-(stop - start) // step))
            strides.append(stride * step)
        else:
            if not -size <= part < size:
                raise BadInputError(f"index {part} is outside a dimension of size {size}")
            offset += part % size * stride
    return _view(x, StridedLayout(tuple(shape), tuple(strides), offset), "part of the same storage, from its offset on")


def _bounds(part: slice, size: int) -> tuple[int, int, int]:
    step = 1 if part.step is None else part.step
    if step < 1:
        raise BadInputError(f"a slice with step {step}: torch's slices have positive steps, use flip, which copies")
    start, stop, _ = slice(part.start, part.stop, step).indices(size)
    if start >= stop:
        raise BadInputError(f"the slice {part.start}:{part.stop} of a dimension of size {size} is empty: choose others")
    return start, stop, step


# -- memory of its own --------------------------------------------------------------------------------------------------------------


def _contiguous(x: StridedTensor) -> StridedResult:
    if x.layout.contiguous:
        return _view(x, x.layout, "it is contiguous already: the same tensor")
    return _copy(x, fresh(x.layout.shape), "its elements are copied in row-major order")


def _clone(x: StridedTensor) -> StridedResult:
    return _copy(x, alike(x.layout), "a copy, in the memory order of the elements")


def _to(x: StridedTensor, dtype: str) -> StridedResult:
    target = tensor((), dtype).dtype
    if target == x.dtype:
        return _view(x, x.layout, f"it is {dtype} already: the same tensor")
    return _copy(x, alike(x.layout), f"every element is written in {bytes_each(dtype)} byte{'s' if bytes_each(dtype) > 1 else ''}", target)


def _with_number(x: StridedTensor, number: float) -> StridedResult:
    """A number with a fraction makes numbers of torch's default format of whole ones."""
    _require_arithmetic(x)
    return _copy(x, by_stride(x.layout), "every element of the result is new", _promoted(x) if isinstance(number, float) else "")


def _of_each(x: StridedTensor) -> StridedResult:
    """A contiguous operand has a contiguous result, also where a dimension of size 1 has a stride of its own."""
    _require_arithmetic(x)
    layout = fresh(x.layout.shape) if x.layout.contiguous else alike(x.layout)
    return _copy(x, layout, "every element of the result is new")


def _exp(x: StridedTensor) -> StridedResult:
    result = _of_each(x)
    return _copy(x, result.tensor.layout, result.because, _promoted(x))


def _in_place(x: StridedTensor, *_: Any) -> StridedResult:
    _require_arithmetic(x)
    places = math.prod(size for size, stride in zip(x.layout.shape, x.layout.strides, strict=True) if stride)
    if places != x.layout.elements:
        raise BadInputError("in place, several elements would be written to one memory location: clone the expanded tensor first")
    return _view(x, x.layout, "every element is written in place")


def _promoted(x: StridedTensor) -> str:
    return "float32" if isinstance(named(x.dtype), IntegerFormat) else x.dtype


def _require_arithmetic(x: StridedTensor) -> None:
    if x.dtype.startswith("float8"):
        raise BadInputError(f"torch has no arithmetic in {x.dtype}: cast to bf16 first")


def _detach(x: StridedTensor) -> StridedResult:
    return _view(x, x.layout, "the same elements, without a gradient")


Operation = Callable[..., StridedResult]
# Name → what it makes, and how many arguments it takes at least and at most.
OPERATIONS: dict[str, tuple[Operation, int, int]] = {
    "transpose": (_transpose, 2, 2), "permute": (_permute, 1, 8), "t": (_t, 0, 0), "expand": (_expand, 1, 8), "view": (_view_as, 1, 8),
    "reshape": (_reshape, 1, 8), "flatten": (_flatten, 0, 2), "unsqueeze": (_unsqueeze, 1, 1), "squeeze": (_squeeze, 0, 1),
    "narrow": (_narrow, 3, 3), "contiguous": (_contiguous, 0, 0), "clone": (_clone, 0, 0), "to": (_to, 1, 1), "add": (_with_number, 1, 1),
    "mul": (_with_number, 1, 1), "relu": (_of_each, 0, 0), "exp": (_exp, 0, 0), "add_": (_in_place, 1, 1),
    "mul_": (_in_place, 1, 1), "relu_": (_in_place, 0, 0), "detach": (_detach, 0, 0),
}  # fmt: skip


def _dim(x: StridedTensor, dim: int) -> int:
    count = max(1, len(x.layout.shape))
    if not -count <= dim < count:
        raise BadInputError(f"there is no dimension {dim} in a tensor of shape {x.layout.shape}")
    return dim % count


def _flat(sizes: Sequence[Any]) -> list[int]:
    return [*sizes[0]] if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else [*sizes]


def _inferred(x: StridedTensor, sizes: Sequence[int]) -> tuple[int, ...]:
    """The shape with -1 replaced."""
    elements = math.prod(size for size in sizes if size != -1)
    wrong = any(size < 1 and size != -1 for size in sizes) or list(sizes).count(-1) > 1
    if wrong or (x.layout.elements % elements if -1 in sizes else elements != x.layout.elements):
        raise BadInputError(f"{x.layout.elements} elements of shape {x.layout.shape} cannot have the shape {tuple(sizes)}")
    return tuple(x.layout.elements // elements if size == -1 else size for size in sizes)

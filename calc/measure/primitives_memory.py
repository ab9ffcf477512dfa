"""Memory-bound operators of a calibration: on elements, rows, images and tables, from far below to far above cache sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from calc.hardware import calibration as names
from calc.measure.primitive import Action, Primitive, Shapes, random_of

_ELEMENTS = (2**8, 2**14, 2**17, 2**20, 7 * 2**20)  # of 4 bytes; one tensor of the last size nearly fills a cache of 32 MiB
_FRESH = (2**20, 4 * 2**20, 2**24, 2**26)  # bytes


def memory(device: str) -> Iterator[Primitive]:
    """All memory-bound primitives on ``device``."""
    yield from _memory(device)
    yield from _pointwise(device)
    yield from _rows(device)
    yield from _images(device)
    yield from _tables(device)


def _by_bytes(name: str, nbytes: int, make: Callable[[], Action]) -> Primitive:
    return Primitive(name, "float32", {"bytes": nbytes}, 0, nbytes, make)


# Rows of (operator, number of random positive arguments, number of tensors of that size read and written, function).
Table = tuple[tuple[str, int, int, Callable[..., object]], ...]


def _pointwise(device: str) -> Iterator[Primitive]:
    aten = torch.ops.aten
    table: Table = (
        (names.COPY, 2, 2, lambda a, b: a.copy_(b)),
        ("aten.add", 2, 3, lambda a, b: a + b),
        ("aten.mul_", 1, 2, lambda a: a.mul_(1.0)),
        ("aten.lerp_", 2, 3, lambda a, b: a.lerp_(b, 0.1)),
        ("aten.addcmul_", 3, 4, lambda a, b, c: a.addcmul_(b, c, value=0.0)),
        ("aten.addcdiv_", 3, 4, lambda a, b, c: a.addcdiv_(b, c, value=0.0)),
        ("aten.sqrt", 1, 2, torch.sqrt),
        ("aten.div", 1, 2, lambda a: a / 1.1),
        ("aten.exp", 1, 2, torch.exp),
        ("aten.tanh", 1, 2, torch.tanh),
        ("aten.sigmoid", 1, 2, torch.sigmoid),
        ("aten.pow", 1, 2, lambda a: a**3),
        ("aten.relu", 1, 2, torch.relu),
        ("aten.threshold_backward", 2, 3, lambda dy, y: aten.threshold_backward(dy, y, 0)),
        ("aten.gelu", 1, 2, aten.gelu),
        ("aten.gelu_backward", 2, 3, aten.gelu_backward),
        ("aten.silu", 1, 2, aten.silu),
        ("aten.silu_backward", 2, 3, aten.silu_backward),
        ("aten.native_dropout", 1, 2, lambda a: aten.native_dropout(a, 0.1, True)),
    )
    for elements in _ELEMENTS:
        yield from _tabled(device, (elements,), table)


def _tabled(device: str, shape: tuple[int, ...], table: Table) -> Iterator[Primitive]:
    for name, inputs, moved, function in table:
        yield _by_bytes(name, 4 * moved * math.prod(shape), _applied(device, (shape,) * inputs, function))


def _applied(device: str, shapes: Shapes, function: Callable[..., object]) -> Callable[[], Action]:
    def make() -> Action:
        tensors = [random_of(shape, device).abs_().add_(0.1) for shape in shapes]
        return lambda: function(*tensors)

    return make


def _rows(device: str) -> Iterator[Primitive]:
    """Softmax, norms, sums and copies over rows of 1,024."""
    aten, row = torch.ops.aten, 1024
    for elements in _ELEMENTS:
        shape = (max(1, elements // row), min(row, elements))
        scale, mean = torch.ones(shape[1], device=device), torch.zeros(shape[0], 1, device=device)
        norm = {"normalized_shape": [shape[1]], "weight": scale}

        def normed(x: Tensor, norm: Any = norm, scale: Tensor = scale) -> object:
            return aten.native_layer_norm(x, **norm, bias=scale, eps=1e-5)

        def normed_back(dy: Tensor, x: Tensor, norm: Any = norm, mean: Tensor = mean, scale: Tensor = scale) -> object:
            return aten.native_layer_norm_backward(dy, x, norm["normalized_shape"], mean, mean + 1, scale, scale, [True, True, True])

        table: Table = (
            ("aten.sum", 1, 1, lambda x: x.sum(0)),
            ("aten.mean", 1, 1, lambda x: x.mean(-1)),
            ("aten.clone", 1, 2, lambda x: x.t().clone(memory_format=torch.contiguous_format)),  # a single row's transpose is contiguous
            ("aten._softmax", 1, 2, lambda x: aten._softmax(x, -1, False)),
            ("aten._softmax_backward_data", 2, 3, lambda dy, y: aten._softmax_backward_data(dy, y, -1, torch.float32)),
            ("aten._log_softmax", 1, 2, lambda x: aten._log_softmax(x, -1, False)),
            ("aten._log_softmax_backward_data", 2, 3, lambda dy, y: aten._log_softmax_backward_data(dy, y, -1, torch.float32)),
            ("aten.native_layer_norm", 1, 2, normed),
            ("aten.native_layer_norm_backward", 2, 3, normed_back),
        )
        yield from _tabled(device, shape, table)
        third = (shape[0], max(1, shape[1] // 3))  # so that the result is no larger than the others
        yield from _tabled(device, third, (("aten.cat", 3, 6, lambda a, b, c: torch.cat((a, b, c), 1)),))


def _images(device: str) -> Iterator[Primitive]:
    """Batch norm and 2×2 max pooling over 64 channels; the pooled result is a quarter as large."""
    aten, channels = torch.ops.aten, 64
    for elements in _ELEMENTS[1:]:
        side = math.isqrt(elements // channels)
        side -= side % 2
        shape, scale = (1, channels, side, side), torch.ones(channels, device=device)
        indices = (torch.arange(side // 2, device=device) * 2).expand(1, channels, side // 2, side // 2).contiguous()

        def normed(x: Tensor, scale: Tensor = scale) -> object:
            return aten.native_batch_norm(x, scale, scale, None, None, True, 0.1, 1e-5)

        def normed_back(dy: Tensor, x: Tensor, scale: Tensor = scale) -> object:
            return aten.native_batch_norm_backward(dy, x, scale, None, None, scale, scale, True, 1e-5, [True, True, True])

        def pooled(x: Tensor) -> object:
            return aten.max_pool2d_with_indices(x, [2, 2], [2, 2])

        def pooled_back(dy: Tensor, x: Tensor, indices: Tensor = indices) -> object:
            return aten.max_pool2d_with_indices_backward(dy, x, [2, 2], [2, 2], [0, 0], [1, 1], False, indices)

        yield from _tabled(
            device, shape, (("aten.native_batch_norm", 1, 2, normed), ("aten.native_batch_norm_backward", 2, 3, normed_back))
        )
        quarter = (1, channels, side // 2, side // 2)
        nbytes = math.prod(quarter) * (4 * 4 + 4 + 8)  # four float32 inputs, one float32 result and its int64 index
        yield _by_bytes("aten.max_pool2d_with_indices", nbytes, _applied(device, (shape,), pooled))
        yield _by_bytes("aten.max_pool2d_with_indices_backward", nbytes, _applied(device, (quarter, shape), pooled_back))


def _tables(device: str) -> Iterator[Primitive]:
    """Embedding of rows of 1,024 elements, and its backward."""
    aten, row = torch.ops.aten, 1024
    for rows, count in ((16, 16), (512, 64), (4096, 256), (4096, 4096)):
        index = (torch.arange(count, device=device) * 7) % rows

        def gathered(weight: Tensor, index: Tensor = index) -> object:
            return aten.embedding(weight, index)

        def added(dy: Tensor, index: Tensor = index, rows: int = rows) -> object:
            return aten.embedding_dense_backward(dy, index, rows, -1, False)

        yield _by_bytes("aten.embedding", 2 * 4 * row * count, _applied(device, ((rows, row),), gathered))
        yield _by_bytes("aten.embedding_dense_backward", 4 * row * (2 * count + rows), _applied(device, ((count, row),), added))


def _memory(device: str) -> Iterator[Primitive]:
    """Writes to memory that was touched before, and to freshly allocated memory."""
    for nbytes in _FRESH:
        elements = nbytes // 4

        def touched(elements: int = elements) -> Action:
            buffer = torch.empty(elements, device=device)
            return lambda: buffer.fill_(0.0)

        def fresh(elements: int = elements) -> Action:
            return lambda: torch.empty(elements, device=device).fill_(0.0)

        yield Primitive(names.TOUCHED, "float32", {"bytes": nbytes}, 0, nbytes, touched)
        yield Primitive(names.FRESH, "float32", {"bytes": nbytes}, 0, nbytes, fresh)

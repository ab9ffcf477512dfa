"""The operators that a calibration times: memory-bound ones, matmuls, and the program's own overhead per operator.

Their FLOPs and bytes follow from their sizes: 2 FLOP per multiply-add, every tensor once. No model is among them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from calc.hardware import calibration as names

Action = Callable[[], object]
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Primitive:
    """An operator at one size. ``make`` allocates its tensors and returns the function to time, which runs it ``repeats`` times."""

    name: str
    dtype: str
    sizes: dict[str, int]
    flops: int
    bytes: int
    make: Callable[[], Action]
    repeats: int = 1


def random_of(shape: tuple[int, ...], device: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor of normal values."""
    return torch.randn(shape, device=device).to(dtype)


def name_of(dtype: torch.dtype) -> str:
    """The name of a dtype without ``torch.``."""
    return str(dtype).removeprefix("torch.")


_CHAIN = _PARAMETERS = 64
_MOST_ON_GPU = 2**40  # FLOP of a primitive


def primitives(device: str) -> Iterator[Primitive]:
    """All primitives for tensors on ``device``, including those for which it may lack a kernel."""
    yield from _overheads(device)
    yield from memory(device)
    yield from matmuls(device)


def _overheads(device: str) -> Iterator[Primitive]:
    """Overheads, on tensors of four elements: an operator, a view, an operator in a module under autograd, a backward node, and an
    operator of an optimizer's loop over parameters."""

    def launch() -> Action:
        x = random_of((4,), device)
        return lambda: x + x

    def view() -> Action:
        x = random_of((4,), device)
        return lambda: x.view(2, 2)

    def recorded() -> Action:
        x = random_of((4,), device).requires_grad_()
        modules = torch.nn.Sequential(*(torch.nn.ReLU() for _ in range(_CHAIN)))

        def run() -> object:
            with torch.enable_grad():
                return modules(x)

        return run

    def back() -> Action:
        x = random_of((4,), device).requires_grad_()
        with torch.enable_grad():
            y = x
            for _ in range(_CHAIN):
                y = y + 1.0
        upstream = torch.ones_like(y)
        return lambda: torch.autograd.grad(y, x, upstream, retain_graph=True)

    def stepping() -> Action:
        parameters = [torch.nn.Parameter(random_of((4,), device)) for _ in range(_PARAMETERS)]
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        return torch.optim.SGD(parameters, lr=0.0, momentum=0.9, weight_decay=0.1, foreach=False).step

    yield Primitive(names.LAUNCH, "float32", {}, 0, 0, launch)
    yield Primitive(names.VIEW, "float32", {}, 0, 0, view)
    yield Primitive(names.FORWARD, "float32", {}, 0, 0, recorded, _CHAIN)
    yield Primitive(names.BACKWARD, "float32", {}, 0, 0, back, _CHAIN)
    # weight decay, the momentum's two operators, the update
    yield Primitive(names.OPTIMIZER, "float32", {}, 0, 0, stepping, 4 * _PARAMETERS)


# -- memory-bound operators: on elements, rows, images and tables, from far below to far above cache sizes ------------


# Of 4 bytes. On a CPU, one tensor of the last size nearly fills a cache of 32 MiB; on a GPU it is many times as large as any cache.
_ELEMENTS = (2**8, 2**14, 2**17, 2**20, 7 * 2**20)
_ELEMENTS_ON_GPU = (2**8, 2**14, 2**17, 2**20, 2**23, 2**26)
_FRESH = (2**20, 4 * 2**20, 2**24, 2**26)  # bytes


def _on_gpu(device: str) -> bool:
    return device.startswith("cuda")


def _elements(device: str) -> tuple[int, ...]:
    return _ELEMENTS_ON_GPU if _on_gpu(device) else _ELEMENTS


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
    for elements in _elements(device):
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
    for elements in _elements(device):
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
    for elements in _elements(device)[1:]:
        images = 8 if _on_gpu(device) else 1
        side = math.isqrt(elements // channels // images)
        side -= side % 2
        shape, scale = (images, channels, side, side), torch.ones(channels, device=device)
        indices = (torch.arange(side // 2, device=device) * 2).expand(images, channels, side // 2, side // 2).contiguous()

        def pooled(x: Tensor) -> object:
            return aten.max_pool2d_with_indices(x, [2, 2], [2, 2])

        def pooled_back(dy: Tensor, x: Tensor, indices: Tensor = indices) -> object:
            return aten.max_pool2d_with_indices_backward(dy, x, [2, 2], [2, 2], [0, 0], [1, 1], False, indices)

        forward, backward = (make(device, shape, scale) for make in (_norming, _norming_back))
        yield _by_bytes("aten.native_batch_norm", 4 * 2 * math.prod(shape), forward)
        yield _by_bytes("aten.native_batch_norm_backward", 4 * 3 * math.prod(shape), backward)
        quarter = (images, channels, side // 2, side // 2)
        nbytes = math.prod(quarter) * (4 * 4 + 4 + 8)  # four float32 inputs, one float32 result and its int64 index
        yield _by_bytes("aten.max_pool2d_with_indices", nbytes, _applied(device, (shape,), pooled))
        yield _by_bytes("aten.max_pool2d_with_indices_backward", nbytes, _applied(device, (quarter, shape), pooled_back))


def _norming(device: str, shape: tuple[int, ...], scale: Tensor) -> Callable[[], Action]:
    """Batch norm as a module runs it: on a CUDA device by cuDNN, whose kernel is several times as fast as torch's own."""

    def make() -> Action:
        x = random_of(shape, device)
        return lambda: torch.batch_norm(x, scale, scale, None, None, True, 0.1, 1e-5, torch.backends.cudnn.enabled)

    return make


def _norming_back(device: str, shape: tuple[int, ...], scale: Tensor) -> Callable[[], Action]:
    def make() -> Action:
        aten, x, dy = torch.ops.aten, random_of(shape, device), random_of(shape, device)
        how = (True, 0.1, 1e-5, torch.backends.cudnn.enabled)
        _, mean, deviation, reserved, kernel = aten._batch_norm_impl_index(x, scale, scale, None, None, *how)
        given = (kernel, x, dy, scale, None, None, mean, deviation, True, 1e-5, [True, True, True], reserved)
        return lambda: aten._batch_norm_impl_index_backward(*given)

    return make


def _tables(device: str) -> Iterator[Primitive]:
    """Embedding of rows of 1,024 elements, and its backward."""
    aten, row = torch.ops.aten, 1024
    large = ((32768, 32768),) if _on_gpu(device) else ()
    for rows, count in ((16, 16), (512, 64), (4096, 256), (4096, 4096), *large):
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


# -- matmuls over shapes and dtypes, batched ones, attention and convolutions, forward and backward -------------------


_SIDES = (8, 32, 128, 512, 2048)  # of matmuls, every combination of three
_OTHER_SIDES = (32, 256, 2048)  # in dtypes other than float32
_SKINNY = ((1, 512, 512), (1, 2048, 2048), (8, 768, 8192), (128, 768, 8192))  # m, k, n: a vector, and a wide output
_BATCHED = ((4, 32, 64, 32), (4, 128, 64, 128), (4, 512, 64, 512), (32, 128, 64, 128), (32, 512, 512, 64), (32, 32, 32, 64))  # b, m, k, n
_SIDES_ON_GPU = (64, 256, 1024, 4096, 16384)
_BATCHED_ON_GPU = ((8, 64, 256, 64), (32, 256, 64, 256), (128, 512, 64, 512), (128, 1024, 1024, 128), (8, 2048, 1024, 4096))
_QUERIES = (16, 64, 256, 512)
_QUERIES_ON_GPU = (64, 256, 1024, 4096)
_HEADS = (4, 32)
_HEADS_ON_GPU = (8, 96)
_MOST = 3 * 10**9  # FLOP of a convolution
# Batch, channels in and out, output side, kernel side, stride: a grid of sizes, and some that widen or downsample.
_CONVOLUTIONS = (
    *((n, c, c, side, kernel, 1) for n, c, side, kernel in itertools.product((1, 8), (32, 128, 512), (4, 14, 56), (1, 3))),
    (1, 3, 64, 112, 7, 2), (8, 3, 64, 112, 7, 2), (4, 64, 256, 28, 1, 1), (4, 256, 64, 28, 1, 1), (1, 128, 256, 14, 3, 2),
    (4, 128, 256, 14, 1, 2),
)  # fmt: skip
_CONVOLUTIONS_ON_GPU = (
    *((n, c, c, side, kernel, 1) for n, c, side, kernel in itertools.product((8, 64), (64, 256, 1024), (7, 14, 56), (1, 3))),
    (8, 3, 64, 112, 7, 2), (64, 3, 64, 112, 7, 2), (64, 64, 256, 56, 1, 1), (64, 256, 64, 56, 1, 1), (64, 128, 128, 28, 3, 2),
    (64, 256, 512, 28, 1, 2), (64, 512, 2048, 7, 1, 1),
)  # fmt: skip


def matmuls(device: str) -> Iterator[Primitive]:
    """All matmul-like primitives on ``device``."""
    products = itertools.chain(_matmuls(device), _attention(device), _convolutions(device))
    yield from (p for p in products if not _on_gpu(device) or p.flops <= _MOST_ON_GPU)


def _matmuls(device: str) -> Iterator[Primitive]:
    sides, others = (_SIDES_ON_GPU, _SIDES_ON_GPU) if _on_gpu(device) else (_SIDES, _OTHER_SIDES)
    for m, k, n in (*itertools.product(sides, repeat=3), *_SKINNY):
        yield _matmul(device, torch.float32, m, k, n)
    for dtype in _low_precision_dtypes(device):
        for m, k, n in itertools.product(others, repeat=3):
            yield _matmul(device, dtype, m, k, n)
    for b, m, k, n in (*_BATCHED, *(_BATCHED_ON_GPU if _on_gpu(device) else ())):
        yield _batched(device, b, m, k, n)


def _low_precision_dtypes(device: str) -> tuple[torch.dtype, ...]:
    """Dtypes besides float32 that the device multiplies natively; most CPUs emulate float16."""
    return (torch.bfloat16, torch.float16) if _on_gpu(device) else (torch.bfloat16,)


def _fused_dtypes(device: str) -> tuple[torch.dtype, ...]:
    """Dtypes in which attention and convolutions are timed."""
    return (torch.float32, *(_low_precision_dtypes(device) if _on_gpu(device) else ()))


def _matmul(device: str, dtype: torch.dtype, m: int, k: int, n: int) -> Primitive:
    def make() -> Action:
        a, b = random_of((m, k), device, dtype), random_of((n, k), device, dtype).t()
        return lambda: torch.mm(a, b)

    return Primitive(names.PRODUCT, name_of(dtype), {"m": m, "k": k, "n": n}, 2 * m * k * n, dtype.itemsize * (m * k + k * n + m * n), make)


def _batched(device: str, b: int, m: int, k: int, n: int) -> Primitive:
    def make() -> Action:
        x, y = random_of((b, m, k), device), random_of((b, k, n), device)
        return lambda: torch.bmm(x, y)

    return Primitive("aten.bmm", "float32", {"b": b, "m": m, "k": k, "n": n}, 2 * b * m * k * n, 4 * b * (m * k + k * n + m * n), make)


def _attention(device: str) -> Iterator[Primitive]:
    """Attention forward and backward. FLOPs count the matmuls in full, also for a causal mask, whose kernel skips blocks."""
    heads_of, queries_of = (_HEADS_ON_GPU, _QUERIES_ON_GPU) if _on_gpu(device) else (_HEADS, _QUERIES)
    for dtype, heads, queries, causal in itertools.product(_fused_dtypes(device), heads_of, queries_of, (False, True)):
        shape, masked = (1, heads, queries, 64), names.CAUSAL if causal else ""
        sizes = {"b": heads, "m": queries, "k": 64, "n": queries}
        product, nbytes = 2 * heads * queries * queries * 64, dtype.itemsize * math.prod(shape)
        forward, backward = (make(device, shape, dtype, causal) for make in (_attending, _attending_back))
        yield Primitive(names.ATTENTION + masked, name_of(dtype), sizes, 2 * product, 4 * nbytes, forward)
        yield Primitive(names.ATTENTION_BACKWARD + masked, name_of(dtype), sizes, 5 * product, 8 * nbytes, backward)


def _attending(device: str, shape: tuple[int, ...], dtype: torch.dtype, causal: bool) -> Callable[[], Action]:
    def make() -> Action:
        q, k, v = (random_of(shape, device, dtype) for _ in range(3))
        return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return make


def _attending_back(device: str, shape: tuple[int, ...], dtype: torch.dtype, causal: bool) -> Callable[[], Action]:
    def make() -> Action:
        q, k, v = (random_of(shape, device, dtype).requires_grad_() for _ in range(3))
        with torch.enable_grad():
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        upstream = torch.ones_like(out)
        return lambda: torch.autograd.grad(out, (q, k, v), upstream, retain_graph=True)

    return make


def _convolutions(device: str) -> Iterator[Primitive]:
    """Convolutions forward and backward, as matmuls of m positions, k elements per patch and n output channels."""
    convolutions, most = (_CONVOLUTIONS_ON_GPU, _MOST_ON_GPU) if _on_gpu(device) else (_CONVOLUTIONS, _MOST)
    for dtype, (batch, inner, outer, side, kernel, stride) in itertools.product(_fused_dtypes(device), convolutions):
        sizes = {"m": batch * side * side, "k": inner * kernel * kernel, "n": outer, "side": kernel}
        flops = 2 * sizes["m"] * sizes["k"] * sizes["n"]
        if flops > most:
            continue
        padded_side = (side - 1) * stride + kernel - 2 * (kernel // 2)
        shapes = (batch, inner, padded_side, padded_side), (outer, inner, kernel, kernel), (batch, outer, side, side)
        nbytes = dtype.itemsize * sum(math.prod(shape) for shape in shapes)
        how = ([stride, stride], [kernel // 2, kernel // 2], [1, 1], False, [0, 0], 1)
        forward, backward = (make(device, shapes[:2], dtype, how) for make in (_convolving, _convolving_back))
        yield Primitive("aten.convolution", name_of(dtype), sizes, flops, nbytes, forward)
        yield Primitive("aten.convolution_backward", name_of(dtype), sizes, 2 * flops, 2 * nbytes, backward)


def _convolving(device: str, shapes: Shapes, dtype: torch.dtype, how: Any) -> Callable[[], Action]:
    def make() -> Action:
        x, w = (random_of(shape, device, dtype) for shape in shapes)
        return lambda: torch.ops.aten.convolution(x, w, None, *how)

    return make


def _convolving_back(device: str, shapes: Shapes, dtype: torch.dtype, how: Any) -> Callable[[], Action]:
    def make() -> Action:
        x, w = (random_of(shape, device, dtype) for shape in shapes)
        dy = torch.ones_like(torch.ops.aten.convolution(x, w, None, *how))
        return lambda: torch.ops.aten.convolution_backward(dy, x, w, None, *how, [True, True, False])

    return make

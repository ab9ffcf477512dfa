"""Matmuls of a calibration over shapes and dtypes, batched ones, attention and convolutions, forward and backward."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from calc.hardware import calibration as names
from calc.measure.primitive import Action, Primitive, Shapes, name_of, random_of

_SIDES = (8, 32, 128, 512, 2048)  # of matmuls, every combination of three
_OTHER_SIDES = (32, 256, 2048)  # in dtypes other than float32
_SKINNY = ((1, 512, 512), (1, 2048, 2048), (8, 768, 8192), (128, 768, 8192))  # m, k, n: a vector, and a wide output
_BATCHED = ((4, 32, 64, 32), (4, 128, 64, 128), (4, 512, 64, 512), (32, 128, 64, 128), (32, 512, 512, 64), (32, 32, 32, 64))  # b, m, k, n
_QUERIES = (16, 64, 256, 512)
_HEADS = (4, 32)
_MOST = 3 * 10**9  # FLOP of a convolution
# Batch, channels in and out, output side, kernel side, stride: a grid of sizes, and some that widen or downsample.
_CONVOLUTIONS = (
    *((n, c, c, side, kernel, 1) for n, c, side, kernel in itertools.product((1, 8), (32, 128, 512), (4, 14, 56), (1, 3))),
    (1, 3, 64, 112, 7, 2), (8, 3, 64, 112, 7, 2), (4, 64, 256, 28, 1, 1), (4, 256, 64, 28, 1, 1), (1, 128, 256, 14, 3, 2),
    (4, 128, 256, 14, 1, 2),
)  # fmt: skip


def matmuls(device: str) -> Iterator[Primitive]:
    """All matmul-like primitives on ``device``."""
    yield from _matmuls(device)
    yield from _attention(device)
    yield from _convolutions(device)


def _matmuls(device: str) -> Iterator[Primitive]:
    for m, k, n in (*itertools.product(_SIDES, repeat=3), *_SKINNY):
        yield _matmul(device, torch.float32, m, k, n)
    for dtype in _low_precision_dtypes(device):
        for m, k, n in itertools.product(_OTHER_SIDES, repeat=3):
            yield _matmul(device, dtype, m, k, n)
    for b, m, k, n in _BATCHED:
        yield _batched(device, b, m, k, n)


def _low_precision_dtypes(device: str) -> tuple[torch.dtype, ...]:
    """Dtypes besides float32 that the device multiplies natively; most CPUs emulate float16."""
    return (torch.bfloat16, torch.float16) if device.startswith("cuda") else (torch.bfloat16,)


def _fused_dtypes(device: str) -> tuple[torch.dtype, ...]:
    """Dtypes in which attention and convolutions are timed."""
    return (torch.float32, *(_low_precision_dtypes(device) if device.startswith("cuda") else ()))


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
    for dtype, heads, queries, causal in itertools.product(_fused_dtypes(device), _HEADS, _QUERIES, (False, True)):
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
    for dtype, (batch, inner, outer, side, kernel, stride) in itertools.product(_fused_dtypes(device), _CONVOLUTIONS):
        sizes = {"m": batch * side * side, "k": inner * kernel * kernel, "n": outer, "side": kernel}
        flops = 2 * sizes["m"] * sizes["k"] * sizes["n"]
        if flops > _MOST:
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

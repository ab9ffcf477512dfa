"""A linear layer whose forward multiplies in fp8, run for real; and what of fp8 this torch runs at all.

Operands are bf16. Each is divided by its scale, so that its largest magnitude becomes the largest number of e4m3, and cast to e4m3; the
matmul takes fp8 and scales and gives bf16. torch has no derivative of it, so the layer is an autograd function: its backward multiplies in
bf16, by the weight itself and by the saved fp8 input times its scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from calc.measure.experiments import raised
from calc.measure.storages import distinct_storages
from calc.measure.training import SEED
from calc.platform.torch_private import scaled_mm

E4M3 = torch.float8_e4m3fn
_LARGEST = torch.finfo(E4M3).max
TENSOR, ROW = "tensor", "row"


@dataclass(frozen=True, slots=True)
class Fp8Run:
    """One forward and backward of a layer (B, D) by (K, D). ``error`` is the largest difference of its result from that of the fp8 operands
    in fp64, and ``weight_error`` that of the weight's gradient, both relative to the largest element."""

    saved: int
    forward_flops: int
    backward_flops: int
    error: float
    weight_error: float


def quantized(x: Tensor, scaling: str) -> tuple[Tensor, Tensor]:
    """(x over its scale in e4m3, scale in fp32): one scale, or one per row with shape (rows, 1)."""
    largest = x.abs().amax() if scaling == TENSOR else x.abs().amax(dim=1, keepdim=True)
    scale = largest.float() / _LARGEST
    return (x.float() / scale).to(E4M3), scale


class Fp8Matmul(torch.autograd.Function):
    """x (B, D) and W (K, D) to x Wᵀ (B, K), multiplied in fp8; saves x in fp8 with its scale, and W."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, scaling: str) -> Tensor:
        x8, of_x = quantized(x, scaling)
        weight8, of_weight = quantized(weight, scaling)
        ctx.save_for_backward(x8, of_x, weight)
        columns = of_weight if scaling == TENSOR else of_weight.t()
        product: Tensor = scaled_mm(x8, weight8.t(), of_x, columns, out_dtype=torch.bfloat16)
        return product

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x8, of_x, weight = ctx.saved_tensors
        return grad @ weight, grad.t() @ (x8.float() * of_x).to(torch.bfloat16), None


def fp8_forward(B: int, D: int, K: int, scaling: str = TENSOR) -> Fp8Run:
    """A real forward and backward on the CPU: bytes saved beside the weight, FLOPs of matmuls, and errors of rounding."""
    generator = torch.Generator().manual_seed(SEED)
    x, weight = (torch.randn(rows, D, generator=generator).bfloat16().requires_grad_() for rows in (B, K))
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), FlopCounterMode(display=False) as forward:
        y = Fp8Matmul.apply(x, weight, scaling)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    with FlopCounterMode(display=False) as backward:
        y.backward(torch.ones_like(y))
    saved = distinct_storages([t for t in packed if t.untyped_storage()._cdata != weight.untyped_storage()._cdata])
    (x8, of_x), (weight8, of_weight) = (quantized(t.detach(), scaling) for t in (x, weight))
    operand = x8.double() * of_x
    assert weight.grad is not None
    return Fp8Run(
        sum(saved.values()),
        int(forward.get_total_flops()),
        int(backward.get_total_flops()),
        _off(y, operand @ (weight8.double() * of_weight).t()),
        _off(weight.grad, torch.ones(K, B, dtype=torch.float64) @ operand.bfloat16().double()),
    )


def _off(value: Tensor, exact: Tensor) -> float:
    return float((value.detach().double() - exact).abs().max() / exact.abs().max())


def fp8_offered() -> dict[str, str]:
    """For each use of fp8 on the CPU, an empty text if this torch runs it, else the first line of its error."""
    x = torch.randn(3, 5).to(E4M3)
    one = torch.tensor(1.0)

    def multiplied(a: Tensor, b: Tensor, of_a: Tensor = one, of_b: Tensor = one) -> Tensor:
        product: Tensor = scaled_mm(a, b.t(), of_a, of_b, out_dtype=torch.bfloat16)
        return product

    def stepped() -> None:
        p = torch.nn.Parameter(x.clone())
        p.grad = torch.zeros_like(p)
        torch.optim.AdamW([p]).step()

    wide = torch.randn(3, 5, requires_grad=True)
    uses: dict[str, Callable[[], object]] = {
        "matmul of e4m3 by e4m3, a scale per tensor": lambda: multiplied(x, x),
        "matmul of e5m2 by e4m3, a scale per tensor": lambda: multiplied(x.float().to(torch.float8_e5m2), x),
        "matmul of e4m3 by e4m3, a scale per row": lambda: multiplied(x, x, torch.ones(3, 1), torch.ones(1, 3)),
        "cast to bf16": lambda: x.to(torch.bfloat16),
        "backward through the matmul": lambda: multiplied(wide.to(E4M3), x).sum().backward(),  # type: ignore[no-untyped-call]  # torch's own
        "addition": lambda: x + x,
        "sum of elements": lambda: x.sum(),
        "step of AdamW on fp8 parameters": stepped,
    }
    return {use: raised(run) for use, run in uses.items()}

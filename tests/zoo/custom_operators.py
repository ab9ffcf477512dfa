"""Operators that a user wrote in Python, whose inside is derived and run like the rest of the step."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.spec import Spec
from tests.zoo.exhibit import operators, show


@torch.library.custom_op("napkin_zoo::gram", mutates_args=())
def gram(x: Tensor) -> tuple[Tensor, Tensor]:
    """The matrix of products of the rows, and the sum of its elements: ``matmul`` is an operator that torch decomposes."""
    products = torch.matmul(x, x.T)
    return products.clone(), products.sum()


@gram.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[0], x.shape[0]), x.new_empty(())


def _gram_backward(ctx: Any, dy: Tensor, total: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return (dy + dy.T + 2 * total).to(x.dtype) @ x  # under autocast the products are of fewer bits


gram.register_autograd(_gram_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))


@torch.library.custom_op("napkin_zoo::scale_", mutates_args=("x",))
def scale_(x: Tensor, by: float) -> None:
    """In place, through a gram matrix that is dropped."""
    x.mul_(by * gram(x)[0][0, 0])


def _scaled(w: Tensor) -> Tensor:
    copy = w.detach().clone()
    scale_(copy, 2.0)
    return copy * w


operators("operators written in Python", lambda w: gram(w)[0], lambda w: gram(w)[1], _scaled)
operators("operators written in Python, autocast", lambda w: gram(w)[0], _scaled, precision="bf16-autocast")


class ChunkedLoss(nn.Module):
    """A projection to the vocabulary and its loss, in chunks of five rows: torch's own operator written in Python."""

    def __init__(self, s: Any) -> None:
        super().__init__()
        self.inside, self.head = nn.Linear(s.n, s.n), nn.Linear(s.n, s.V)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=5, chunking_method=None)
        return F.linear_cross_entropy(self.inside(x), self.head.weight, y, linear_bias=self.head.bias, options=options)


if hasattr(F, "linear_cross_entropy"):  # since torch 2.13
    for precision in ("fp32", "bf16-autocast"):
        show(
            f"loss in chunks, {precision}",
            lambda: Spec(
                "loss in chunks",
                {"m": 13, "n": 7, "V": 17},
                ChunkedLoss,
                lambda s: (torch.rand(s.m, s.n), torch.arange(s.m) % s.V),
                lambda module, *given: module(*given),
            ),
            {"m": 11, "n": 5, "V": 19},
            precision=precision,
        )

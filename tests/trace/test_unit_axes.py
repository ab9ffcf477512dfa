"""Axes of length 1 have strides of their own, by which an image counts as one with its channels last."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

import calc
from calc.spec import Spec
from calc.trace.kernels import fake_kernels
from tests.checks import failures
from tests.quick import few

aten = torch.ops.aten
SHAPES = [(1, 4, 6, 6), (1, 4, 1, 6), (1, 1, 4, 6), (2, 4, 1, 1), (1, 1, 1, 5), (1, 3, 1, 4, 2), (4, 1, 6)]
ALONE: list[tuple[Any, tuple[Any, ...]]] = [
    *((op.default, ()) for op in (aten.relu, aten.neg, aten.gelu, aten.silu, aten.clone, aten.logical_not)),
    *((op.default, ()) for op in (aten.hardtanh, aten.elu, aten.leaky_relu)),
    *((op.Scalar, (2,)) for op in (aten.add, aten.mul, aten.div, aten.rsub, aten.gt)),
    *((op.default, ()) for op in (aten.empty_like, aten.ones_like, aten._to_copy)),
    (aten.add.Tensor, (1,)),
    (aten.pow.Tensor_Scalar, (2,)),
    (aten.native_dropout.default, (0.5, True)),
]
TOGETHER = [
    *(op.Tensor for op in (aten.add, aten.div, aten.mul, aten.rsub)),
    *(op.default for op in (aten.maximum, aten.gelu_backward, aten.sigmoid_backward, aten.addcmul)),
    aten.where.self,
]


def strides(tensors: Any) -> tuple[int, ...]:
    return tuple((tensors[0] if isinstance(tensors, tuple) else tensors).stride())


def layouts(shape: tuple[int, ...], draw: random.Random) -> list[Tensor]:
    """Plain, permuted, with channels last, and each with other strides of its axes of length 1."""
    orders = draw.sample(list(itertools.permutations(range(len(shape)))), 3)
    tensors = [torch.ones(shape), *(torch.ones([shape[i] for i in p]).permute([p.index(i) for i in range(len(shape))]) for p in orders)]
    tensors += [torch.ones(shape).to(memory_format=torch.channels_last)] if len(shape) == 4 else []
    for x in list(tensors):
        others = [draw.choice([1, 7, 64, 4096, s]) if size == 1 else s for size, s in zip(shape, x.stride(), strict=True)]
        tensors.append(torch.ones(50_000).as_strided(shape, others))
    return tensors


def calls(shape: tuple[int, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    draw = random.Random(str(shape))
    of = layouts(shape, draw)
    for a, (op, more) in itertools.product(of, ALONE):
        yield op, (a, *more)
    for a, b in itertools.product(of, [*draw.sample(of, 3), torch.ones(shape[1:]), torch.ones(())]):
        for op in TOGETHER:
            if b.dim() == len(shape) or op.overloadpacket in (aten.add, aten.div, aten.mul, aten.rsub, aten.maximum):
                yield op, (a > 0, a, b) if op is aten.where.self else (a, b, b) if op is aten.addcmul.default else (a, b)
    for a in of:
        n = a.numel()
        for target in ((1, n // 2, 1, 2), (n, 1, 1), (1, n, 1, 1), (1, 4, n // 4)):
            if math.prod(target) == n and _is_a_view(a, target):
                yield aten.view.default, (a, list(target))


def _is_a_view(x: Tensor, shape: tuple[int, ...]) -> bool:
    try:
        x.view(shape)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("shape", few([(shape,) for shape in SHAPES], 1), ids=str)
def test_results_have_the_strides_that_real_kernels_give_them(shape: tuple[int, ...]) -> None:
    """Those of axes of length 1 included, whatever the strides of the operands are."""
    mode = FakeTensorMode()
    assert list(calls(shape))
    for op, args in calls(shape):
        with mode:
            fake = strides(fake_kernels.run(op, tuple(mode.from_tensor(a) if isinstance(a, Tensor) else a for a in args), {}))
        assert strides(op(*args)) == fake, (op, [a.stride() for a in args if isinstance(a, Tensor)])


@pytest.mark.slow
def test_an_image_made_of_tokens_is_laid_out_as_in_a_real_run_at_a_batch_of_one() -> None:
    """As attention in a U-Net gives it back: whether the normalization behind it copies depends on the stride of the batch."""

    class Attended(nn.Module):
        def __init__(self, n: Any) -> None:
            super().__init__()
            self.linear, self.norm, self.last = nn.Linear(n.c, n.c), nn.GroupNorm(1, n.c), nn.Conv2d(n.c, n.c, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.linear(x.flatten(2).transpose(1, 2)).transpose(-1, -2).reshape(x.shape)
            y = self.last(self.norm((y + x) / 2))
            return (y * y).sum()

    s = Spec("attended", {"B": 2, "c": 8, "S": 6}, Attended, lambda n: (torch.randn(n.B, n.c, n.S, n.S),), lambda m, x: m(x))
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert [] == [text for at in ({}, {"B": 1}) for text in failures(calc.check(derivation, **at))]

"""Multiples that a step needs one after the other: of two sizes that fail at one line, of quotients of quotients, of what heads share."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from einops import rearrange
from torch import Tensor, nn

import calc
from calc import Spec
from calc.dimensions import Dim
from tests.checks import failures


class Pyramid(nn.Module):
    """Halves an image three times, and puts the double of each half beside it, as detectors do."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(channels, 5, 3, 2, 1) for channels in (3, 5, 5)])

    def forward(self, x: Tensor) -> Tensor:
        halves = [x]
        for layer in self.down:
            halves.append(layer(halves[-1]))
        y = halves.pop()
        while halves:
            y = torch.cat([halves.pop(), nn.functional.interpolate(y, scale_factor=2)], 1)
        return y


def test_height_and_width_are_inferred_to_be_multiples_one_after_the_other() -> None:
    """The same line fails because of the width, and then because of the height alone: the first multiple has settled its own."""
    s = Spec("pyramid", {"B": 2, "H": 24, "W": 40}, Pyramid, lambda n: (torch.randn(n.B, 3, n.H, n.W),), lambda module, x: module(x).sum())
    progress: list[str] = []
    derivation = calc.derive(s, cache=False, optimizer="sgd", progress=progress.append)

    assert {"Eq(Mod(H, 8), 0)", "Eq(Mod(W, 8), 0)"} <= {a.expr for a in derivation.assumptions}
    assert ["assuming W to be a multiple of 8"] == [p for p in progress if p.startswith("assuming W")]
    assert not derivation.specialized
    assert [] == failures(calc.check(derivation, B=3, H=56, W=16))


def test_less_is_tried_of_an_inferred_multiple_only_where_a_step_below_suffices() -> None:
    """8 is needed: 4 is refused, so that 2 is not traced."""
    s = Spec("pyramid", {"B": 2, "W": 24}, Pyramid, lambda n: (torch.randn(n.B, 3, 16, n.W),), lambda module, x: module(x).sum())
    progress: list[str] = []
    calc.derive(s, cache=False, optimizer="sgd", progress=progress.append)

    assert ["trying W as a multiple of 4"] == [p for p in progress if p.startswith("trying")]


class Recurrent(nn.Module):
    """Divides a signal's length by 2 and by 4, and runs a loop over what is left."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.halves, self.eighths = nn.Conv1d(1, 3, 3, 2, 1), nn.Conv1d(3, 5, 5, 4, 2)
        self.over = nn.GRU(5, 5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.over(self.eighths(self.halves(x)).transpose(1, 2))[0]
        return y


@pytest.mark.slow
def test_a_quotient_of_a_quotient_is_exact_for_multiples_of_the_product() -> None:
    s = Spec("recurrent", {"B": 2, "S": 88}, Recurrent, lambda n: (torch.randn(n.B, 1, n.S),), lambda module, x: module(x).sum())
    progress: list[str] = []
    derivation = calc.derive(s, cache=False, optimizer="sgd", progress=progress.append)

    assert ["assuming S to be a multiple of 8"] == [p for p in progress if p.startswith("assuming")]
    assert not derivation.specialized
    assert [] == failures(calc.check(derivation, B=3, S=56))


class SharedKeys(nn.Module):
    """Layers in which several heads share one key, and pairs of a head's columns have one angle."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.h, self.g, k = n.h, n.g, n.d // n.h
        self.layers = nn.ModuleList([nn.ModuleList([nn.Linear(n.d, n.h * k), nn.Linear(n.d, n.g * k)]) for _ in range(n.L)])

    def forward(self, x: Tensor) -> Tensor:
        for query, key in self.layers:
            q, k = query(x).unflatten(1, (self.h, -1)), key(x).unflatten(1, (self.g, -1))
            angles = torch.arange(0, q.shape[-1], 2)
            q = q * torch.cat([angles, angles])
            x = (q * k.repeat_interleave(self.h // self.g, 1)).flatten(1)
        return x


@pytest.mark.slow
def test_sizes_that_should_be_equal_are_multiples_and_no_bounds() -> None:
    """No more keys than layers, and no larger a batch, by chance: heads are a multiple of the keys, and nothing is at most the depth."""
    s = Spec("grouped", {"B": 2, "d": 64, "h": 4, "g": 2, "L": 4}, SharedKeys, lambda n: (torch.randn(n.B, n.d),), lambda m, x: m(x).sum())
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert {"d": "h", "h": "g", "d_per_h": 2} == {dim.name: dim.multiple_of for dim in derivation.dims if dim.multiple_of}
    assert {None} == {dim.at_most for dim in derivation.dims}
    assert not derivation.specialized
    assert [] == failures(calc.check(derivation, B=3, d=60, h=6, g=3, L=5))


class Waves(nn.Module):
    """Layers that add sines and cosines of the positions, half of the width each, through a matrix."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.h, self.layers = n.h, nn.ModuleList([nn.Linear(n.d, n.d, bias=False) for _ in range(n.L)])

    def forward(self, x: Tensor) -> Tensor:
        angles = torch.arange(x.shape[0])[:, None] / torch.arange(1, x.shape[1] + 1, 2)
        waves = torch.cat([angles.sin(), angles.cos()], 1)
        for layer in self.layers:
            x = (x + layer(waves)).unflatten(1, (self.h, -1)).flatten(1)
        return x


def test_widths_of_a_matmul_that_should_be_equal_are_multiples_and_no_bounds() -> None:
    """With two heads the width is even by chance: heads are even, and may be more than layers."""
    dims = {"B": 2, "d": Dim(48, multiple_of="h"), "h": 8, "L": 9}
    s = Spec("waves", dims, Waves, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum(), trip_counts=("L",))
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert {"d": "h", "h": 2} == {dim.name: dim.multiple_of for dim in derivation.dims if dim.multiple_of}
    assert {None} == {dim.at_most for dim in derivation.dims}
    assert [] == failures(calc.check(derivation, B=3, d=54, h=6, L=2))


class Patches(nn.Module):
    """Cuts an image into patches of p by p pixels."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.p, self.embed = n.p, nn.Linear(3 * n.p * n.p, n.d)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        p = self.p
        patches = x.reshape(batch, channels, height // p, p, width // p, p).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        y: Tensor = self.embed(patches)
        return y


def test_two_sizes_that_one_operator_divides_are_multiples_at_once() -> None:
    """Once the height is a multiple, the operator fails because of the width alone: nothing else is tried of either."""
    dims = {"B": 2, "H": 32, "W": 32, "p": 4, "d": 8}
    s = Spec("patches", dims, Patches, lambda n: (torch.randn(n.B, 3, n.H, n.W),), lambda module, x: module(x).sum())
    progress: list[str] = []
    derivation = calc.derive(s, cache=False, optimizer="sgd", progress=progress.append)

    assert ["assuming H to be a multiple of p", "assuming W to be a multiple of p"] == [p for p in progress if p.startswith("assuming")]
    assert not derivation.specialized
    assert [] == failures(calc.check(derivation, B=3, H=15, W=20, p=5, d=7))


class ChunkedLoss(nn.Module):
    """Torch's loss of a projection, in chunks of 64 rows."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.mix, self.head = nn.Linear(n.d, n.d), nn.Linear(n.d, n.V)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=64, chunking_method=None)
        return nn.functional.linear_cross_entropy(self.mix(x).flatten(0, 1), self.head.weight, y.flatten(), options=options)


@pytest.mark.skipif(not hasattr(nn, "LinearCrossEntropyOptions"), reason="since torch 2.13")
def test_the_size_that_makes_more_chunks_than_were_traced_is_a_number() -> None:
    """A few rows are one chunk, so both sizes look like numbers of iterations; at the length asked for a batch has as many chunks more."""
    s = Spec(
        "chunked loss",
        {"B": 2, "T": 128, "d": 5, "V": 11},
        ChunkedLoss,
        lambda n: (torch.randn(n.B, n.T, n.d), torch.randint(n.V, (n.B, n.T))),
        lambda module, *given: module(*given),
    )
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert {"T": 128} == dict(derivation.specialized)
    assert "256*B*d**2 + 768*B*d*V + 512*B" == derivation["flops.forward.matmul"].text
    assert [] == failures(calc.check(derivation, B=4, d=7))


class Tiles(nn.Module):
    """Products of each tile of queries with each tile of keys, of heads whose width nobody declared."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.h, self.mix = n.h, nn.Linear(n.d, n.d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        heads = rearrange(self.mix(x), "b t (h d) -> (b h) t d", h=self.h)
        tiles = range(0, x.shape[1], 4)
        rows = []
        for i in tiles:
            row = torch.zeros_like(heads[:, i : i + 4])
            for j in tiles:
                row = row + (heads[:, i : i + 4] @ heads[:, j : j + 4].mT).exp() @ heads[:, j : j + 4]
            rows.append(row)
        return torch.cat(rows, 1)


@pytest.mark.slow
def test_a_peak_without_a_closed_form_is_no_reason_for_other_multiples() -> None:
    """The heads divide the width, and no further divisor is tried where a peak between two loops over tiles has no closed form."""
    s = Spec("tiles", {"B": 3, "T": 24, "d": 12, "h": 2}, Tiles, lambda n: (torch.randn(n.B, n.T, n.d),), lambda module, x: module(x).sum())
    progress: list[str] = []
    derivation = calc.derive(s, cache=False, optimizer="sgd", mode="infer", progress=progress.append)

    assert {"assuming d to be a multiple of h", "assuming T to be a multiple of 4"} == {p for p in progress if p.startswith("assuming")}
    assert "4*B*T**2*d + 2*B*T*d**2" == derivation["flops.forward.matmul"].text
    assert [] == failures(calc.check(derivation, B=2, T=20, d=14, h=2))


def test_two_modules_that_fail_at_one_line_without_naming_a_size_get_a_divisor_each() -> None:
    """Encoder and decoder of other widths: torch says "embed_dim must be divisible by num_heads" of both."""

    class Attention(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.of = nn.MultiheadAttention(width, heads, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.of(x[:, None], x[:, None], x[:, None], need_weights=False)[0]
            return y[:, 0]

    def build(n: Any) -> nn.Module:
        return nn.Sequential(Attention(n.d, n.h), nn.Linear(n.d, n.e), Attention(n.e, n.g))

    dims = {"B": 2, "d": 28, "h": 7, "e": 33, "g": 11}
    s = Spec("two attentions", dims, build, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert {"Eq(Mod(d, h), 0)", "Eq(Mod(e, g), 0)"} <= {a.expr for a in derivation.assumptions}
    assert not derivation.specialized


class Windowed(nn.Module):
    """Windows of patches in pairs, of a mask or of the rows themselves, then heads: the length must be a multiple of a product of sizes and
    two, which only numbers say, and the width one of the heads."""

    def __init__(self, n: Any, masks: bool) -> None:
        super().__init__()
        self.n, self.masks, self.mix = n, masks, nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        n, batch, length = self.n, x.shape[0], x.shape[1]
        patches = x.view(batch, length // n.p, n.p, n.d).mean(2)
        windows = torch.ones(1, length // n.p, 1) if self.masks else patches
        windows = windows.view(windows.shape[0], length // n.p // (2 * n.w), 2 * n.w, windows.shape[2])
        heads: Tensor = self.mix(patches).view(batch, -1, n.h, n.d // n.h).softmax(-1)
        return heads * windows.sum()


@pytest.mark.parametrize(("masks", "numbers"), [(True, {"w"}), (False, {"d", "h", "w"})], ids=["mask", "rows"])
def test_a_multiple_is_inferred_where_other_sizes_have_to_be_numbers(masks: bool, numbers: set[str]) -> None:
    """The batch is on both sides of the comparison and stays a symbol, as do width and heads where only sizes of a mask are compared."""
    dims = {"B": 2, "R": 24, "p": 2, "w": 3, "d": 20, "h": 5}
    s = Spec("windows", dims, lambda n: Windowed(n, masks), lambda n: (torch.randn(n.B, n.R, n.d),), lambda module, x: module(x).sum())

    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert numbers == derivation.specialized.keys()
    assert [] == failures(calc.check(derivation, B=7))

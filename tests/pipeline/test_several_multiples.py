"""Multiples that a step needs one after the other: of two sizes that fail at one line, of quotients of quotients, of what heads share."""

from __future__ import annotations

from typing import Any

import pytest
import sympy as sp
import torch
from einops import rearrange
from torch import Tensor, nn

import calc
from calc import Spec
from calc.dimensions import Dim
from calc.trace.symbolic_sizes import _with_remainder
from tests.checks import failures
from tests.quick import few


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


class Chunked(nn.Module):
    """Sums a sequence in chunks of 8."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return y.reshape(y.shape[0], -1, 8, y.shape[-1]).sum(2)


def test_sizes_for_checks_are_raised_to_the_inferred_multiple() -> None:
    """The spec would have run the check at a length of 5."""
    dims = {"B": 3, "T": 64, "d": 11}
    s = Spec("chunked", dims, Chunked, lambda n: (torch.randn(n.B, n.T, n.d),), lambda module, x: module(x).sum(), check_at={"T": 5})
    report = calc.check(calc.derive(s, cache=False, optimizer="sgd"))

    assert [] == failures(report)
    assert {"B": 3, "T": 8, "d": 11} == {**report.sizes}


class SplitInThree(nn.Module):
    """Features in three parts, whose widths differ by one where three does not divide them."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(self.layer(x).tensor_split(3, -1)[::-1], -1).square()


def test_a_derivation_is_checked_at_sizes_that_its_own_trace_does_not_hold_at() -> None:
    """Six features are split evenly, as the closed forms assume; five are not, and are traced."""
    s = Spec("split", {"B": 3, "d": 6}, SplitInThree, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())
    derivation = calc.derive(s, cache=False, optimizer="sgd")
    report = calc.check(derivation, d=5)

    assert ["Eq(Mod(d, 3), 0)"] == [a.expr for a in derivation.assumptions]
    assert [] == failures(report)
    assert {"B": 3, "d": 5} == {**report.sizes}


class HybridLayer(nn.Module):
    """Multiplies by a table that all layers of this kind share, or sums over chunks of 8, padded to whole ones."""

    def __init__(self, n: Any, shares: bool) -> None:
        super().__init__()
        self.shares = shares
        self.wide, self.narrow = nn.Linear(n.d, n.f), nn.Linear(n.f, n.d)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        y = self.narrow(nn.functional.gelu(self.wide(x)))
        if self.shares:
            return y * table
        length, pad = x.shape[1], (8 - x.shape[1] % 8) % 8
        y = nn.functional.pad(y, (0, 0, 0, pad)).unflatten(1, (-1, 8)).cumsum(1).flatten(1, 2)
        return y[:, :length] if pad else y


class Hybrid(nn.Module):
    """Every fourth layer but the first shares a table, which is freed in the backward once the first of them is done."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(HybridLayer(n, shares=i % 4 == 0 and i > 0) for i in range(n.L))

    def forward(self, x: Tensor) -> Tensor:
        table = torch.arange(x.shape[1])[:, None].cos() * torch.ones(x.shape[2])
        for layer in self.layers:
            x = layer(x, table)
        return x


@pytest.mark.slow
def test_where_more_iterations_and_a_multiple_are_needed_the_multiple_is_found_first() -> None:
    """The peak in the iteration that frees the table has no closed form at three and four patterns: five and six are traced with the
    multiple alone."""
    dims: dict[str, int | Dim] = {"B": 3, "T": 16, "d": 11, "f": 5, "L": Dim(14, multiple_of=4, plus=2)}
    s = Spec("hybrid", dims, Hybrid, lambda n: (torch.randn(n.B, n.T, n.d),), lambda module, x: module(x).sum(), trip_counts=("L",))
    progress: list[str] = []
    derivation = calc.derive(s, cache=False, optimizer="sgd", progress=progress.append)

    assert [
        "tracing the step with symbolic sizes at L = 14",
        "assuming T to be a multiple of 8",
        "tracing the step with symbolic sizes at L = 14",
        "the iterations traced do not determine the closed forms: tracing more",
        "tracing the step with symbolic sizes at L = 22",
    ] == [p for p in progress if not p.startswith("tracing a certificate")]
    assert not derivation.specialized
    assert [] == failures(calc.check(derivation, T=8))


class Rearranged(nn.Module):
    """Heads of a width, and pairs of each head, in the notation of einops, which raises all of its errors in one line of its own."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.h, self.mix = n.h, nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        heads = rearrange(self.mix(x), "b (h d) -> b h d", h=self.h)
        return rearrange(heads, "b h (d two) -> two b h d", two=2)


def test_errors_of_einops_are_of_the_line_that_calls_it() -> None:
    """The width is a multiple of the heads, and each head's of 2: two lines of the model."""
    s = Spec("rearranged", {"B": 3, "d": 24, "h": 2}, Rearranged, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())
    derivation = calc.derive(s, cache=False, optimizer="sgd", mode="infer")

    inferred = {a.expr: a.because for a in derivation.assumptions}
    assert ["Eq(Mod(d, h), 0)", "Eq(Mod(d_per_h, 2), 0)"] == [*inferred]
    assert all("raised EinopsError at test_several_multiples.py:" in because for because in inferred.values())
    assert not derivation.specialized


class Blockwise(nn.Module):
    """Runs a layer over chunks of eight positions, the last of which may be shorter."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.mix = nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.mix(x[:, i : i + 8]) for i in range(0, x.shape[1], 8)], 1)


@pytest.mark.slow
def test_where_a_length_is_no_trip_count_the_number_of_chunks_is() -> None:
    """A length of a few positions is one chunk, whose closed forms hold at no longer length."""
    s = Spec("chunked", {"B": 3, "T": 40, "d": 5}, Blockwise, lambda n: (torch.randn(n.B, n.T, n.d),), lambda module, x: module(x).sum())
    derivation = calc.derive(s, cache=False, optimizer="sgd", mode="infer")

    assert "Eq(Mod(T, 8), 0)" in {a.expr for a in derivation.assumptions}
    assert "2*B*T*d**2" == derivation["flops.forward.matmul"].text
    assert [] == failures(calc.check(derivation, B=2, T=48, d=7))


class ChunkedLoss(nn.Module):
    """Torch's loss of a projection, in chunks of 64 rows."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.mix, self.head = nn.Linear(n.d, n.d), nn.Linear(n.d, n.V)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=64, chunking_method=None)
        return nn.functional.linear_cross_entropy(self.mix(x).flatten(0, 1), self.head.weight, y.flatten(), options=options)


@pytest.mark.slow
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


@pytest.mark.parametrize(("masks", "numbers"), few([(True, {"w"}), (False, {"d", "h", "w"})], 1))
def test_a_multiple_is_inferred_where_other_sizes_have_to_be_numbers(masks: bool, numbers: set[str]) -> None:
    """The batch is on both sides of the comparison and stays a symbol, as do width and heads where only sizes of a mask are compared."""
    dims = {"B": 2, "R": 24, "p": 2, "w": 3, "d": 20, "h": 5}
    s = Spec("windows", dims, lambda n: Windowed(n, masks), lambda n: (torch.randn(n.B, n.R, n.d),), lambda module, x: module(x).sum())

    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert numbers == derivation.specialized.keys()
    assert [] == failures(calc.check(derivation, B=7))


class Grouped(nn.Module):
    """Heads in groups, all of them dividing the width, as language models with fewer key heads do."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        assert n.d % n.h == 0
        self.heads, self.groups = n.h, n.g
        self.q, self.k = nn.Linear(n.d, n.d), nn.Linear(n.d, n.d // n.h * n.g)

    def forward(self, x: Tensor) -> Tensor:
        q, k = self.q(x).unflatten(-1, (self.heads, -1)), self.k(x).unflatten(-1, (self.groups, -1))
        return q * k.repeat_interleave(self.heads // self.groups, dim=-2)


def test_a_width_in_heads_that_are_in_groups_is_a_multiple_of_the_heads() -> None:
    """The line that fails divides the width per group by the heads per group: neither is a dimension, and both are quotients by one."""
    dims = {"B": 3, "h": Dim(12, multiple_of="g"), "g": 4, "d": Dim("16*h")}
    s = Spec("grouped", dims, Grouped, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert not derivation.specialized
    assert "Eq(Mod(d, h), 0)" in {a.expr for a in derivation.assumptions}
    assert [] == failures(calc.check(derivation, h=6, g=2))


class RotatedParts(nn.Module):
    """Rotates a part of each row of two matrices, as complex numbers: torch needs rows of an even length for that."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.n, self.q, self.kv = n, nn.Linear(n.d, n.h * (n.a + n.k)), nn.Linear(n.d, n.r + n.k)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, self.n.h, -1).transpose(1, 2)[..., self.n.a :]
        k = self.kv(x)[..., self.n.r :].view(batch, 1, length, self.n.k)
        of_q, of_k = (torch.view_as_complex(part.reshape(*part.shape[:-1], -1, 2)) for part in (q, k))
        return torch.view_as_real(of_q * of_k).flatten(3)


def test_of_a_sum_that_must_be_even_the_odd_term_is_made_even() -> None:
    """``a + 2 (k/2)`` has no remainder of its second term: a and r are even, and nothing else is a multiple or a number."""
    dims = {"B": 3, "T": 7, "d": 5, "h": 3, "a": 22, "r": 26, "k": Dim(16, multiple_of=2)}
    rotated = Spec("rotated", dims, RotatedParts, lambda n: (torch.randn(n.B, n.T, n.d),), lambda m, x: m(x).sum())
    result = calc.derive(rotated, cache=False, optimizer="sgd")

    assert {"B"} >= result.specialized.keys()
    assert {"a": 2, "r": 2, "k": 2} == {dim.name: dim.multiple_of for dim in result.dims if dim.multiple_of}
    assert failures(calc.check(result)) == []


def test_terms_that_leave_no_remainder_are_left_out() -> None:
    r, k, t = sp.symbols("r k t", integer=True)

    assert (r, 2) == _with_remainder(r + 2 * k, sp.Integer(2))
    assert (r * t, 2) == _with_remainder(t * (r + 2 * k), sp.Integer(2))

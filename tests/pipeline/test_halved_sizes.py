"""Sizes that a model halves: multiples where rounding changes what runs, and none where it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import calc
from calc import Dim, Spec
from tests.checks import failures


class Skips(nn.Module):
    """Halves an image some times and doubles it again; where that loses a row and a column, as of an odd image, it pads them."""

    def __init__(self, channels: int, halvings: int) -> None:
        super().__init__()
        self.up = nn.ModuleList(nn.ConvTranspose2d(channels, channels, 2, stride=2) for _ in range(halvings))

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for _ in self.up:
            skips.append(x)
            x = nn.functional.max_pool2d(x, 2)
        for up in self.up:
            x, skip = up(x), skips.pop()
            if x.shape[-1] != skip.shape[-1]:
                x = nn.functional.pad(x, [0, 1, 0, 1])
            x = x + skip
        return x


def _skips(halvings: int, **dims: int | Dim) -> Spec:
    image = "B", "c", "S", "S"
    build, loss = (lambda n: Skips(n.c, halvings)), (lambda module, x: module(x).sum())
    return Spec("skips", dims, build, lambda n: (torch.randn([getattr(n, name) for name in image]),), loss)


@pytest.mark.parametrize("halvings", [2, 3])
def test_an_image_is_a_multiple_where_only_multiples_take_the_path_of_the_sizes(halvings: int) -> None:
    """24 is halved without a remainder, so no row is padded: the side is a multiple of 4, or of 8, and stays a symbol. This is the only
    assumption, though the model compares quotients of the side that are rounded."""
    derivation = calc.derive(_skips(halvings, B=4, S=24, c=2), cache=False, optimizer="sgd")

    assert [a.expr for a in derivation.assumptions] == [f"Eq(Mod(S, {2**halvings}), 0)"]
    assert not derivation.specialized
    assert [] == failures(calc.check(derivation, B=3, S=40))


def test_a_path_that_no_other_size_takes_is_left_for_multiples() -> None:
    """At the sizes of the first trace one halving leaves a remainder and another does not, which no certificate repeats."""
    derivation = calc.derive(_skips(3, B=4, S=128, c=Dim(32, multiple_of=4), K=5), cache=False, mode="infer")

    assert [a.expr for a in derivation.assumptions] == ["Eq(Mod(S, 8), 0)"]
    assert not derivation.specialized


class Stack(nn.Module):
    """So many layers, with the places of half of them in a list, as a library may keep that for another kind of stack."""

    def __init__(self, n: Any, used: bool) -> None:
        super().__init__()
        self.halves = [2 * i for i in range(n.L // 2)]
        self.layers = nn.ModuleList(nn.Linear(n.d, n.d) for _ in (self.halves if used else range(n.L)))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return x


def _stack(used: bool) -> Spec:
    build, loss = (lambda n: Stack(n, used)), (lambda module, x: module(x).sum())
    return Spec("split", {"B": 2, "d": 7, "L": 6}, build, lambda n: (torch.randn(n.B, n.d),), loss)


def test_a_depth_that_is_halved_to_no_effect_needs_no_multiple() -> None:
    """The step is a polynomial in the depth all the same, odd or even."""
    derivation = calc.derive(_stack(used=False), cache=False, optimizer="sgd")

    assert [a.expr for a in derivation.assumptions if "Mod" in a.expr] == []
    assert [] == failures(calc.check(derivation, L=5))


@pytest.mark.slow
def test_a_depth_that_is_halved_is_a_multiple_of_two() -> None:
    """As many layers as half the depth, rounded down, are no polynomial in it."""
    derivation = calc.derive(_stack(used=True), cache=False, optimizer="sgd")

    assert [a.expr for a in derivation.assumptions if "Mod" in a.expr] == ["Eq(Mod(L, 2), 0)"]
    assert [] == failures(calc.check(derivation, L=4))


class Chunks(nn.Module):
    """Pads a length to eights, and cuts it into chunks of four and joins these in every layer."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(n.d, n.d) for _ in range(n.L))

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.pad(x, (0, 0, 0, -x.shape[1] % 8))
        for layer in self.layers:
            chunks = x.shape[1] // 4
            x = layer(x.view(x.shape[0], chunks, x.shape[1] // chunks, x.shape[2])).flatten(1, 2)
        return x


_CHUNKS = Spec(
    "chunks",
    {"B": 2, "T": 16, "d": 5, "L": 5},
    Chunks,
    lambda n: (torch.randn(n.B, n.T, n.d),),
    lambda module, x: module(x).square().sum(),
    trip_counts=("L",),
)


def test_a_length_that_is_cut_and_joined_in_every_layer_is_a_multiple() -> None:
    """Else what a layer makes of it is a quotient of quotients of quotients, and the text of a size doubles with each layer."""
    derivation = calc.derive(_CHUNKS, cache=False, optimizer="sgd")

    assert ["Eq(Mod(T, 8), 0)"] == [a.expr for a in derivation.assumptions]
    assert not derivation.specialized
    assert [] == failures(calc.check(derivation, B=3, T=40, L=7))


def test_such_a_length_that_is_padded_is_a_number() -> None:
    """13 is padded to 16: the model holds at that length, and says so."""
    derivation = calc.derive(_CHUNKS, {"T": 13}, cache=False, optimizer="sgd")

    assert {"T": 13} == derivation.specialized
    assert any("are divided and rounded again and again" in a.because for a in derivation.assumptions)
    assert [] == failures(calc.check(derivation, B=3, T=13, L=7))


class Frequencies(nn.Module):
    """Layers, after frequencies that NumPy divides by half of the width in place, which it does to no symbol."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(n.d, n.d) for _ in range(n.L))
        omega = np.arange(n.d // 2, dtype=np.float64)
        omega /= n.d / 2.0
        self.register_buffer("frequencies", torch.from_numpy(omega).float())

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x * torch.cat([self.frequencies, self.frequencies])


@pytest.mark.slow
def test_a_depth_stays_a_symbol_where_the_width_has_to_be_a_number() -> None:
    """It counts layers: no divisor helps the line that fails, and what counts iterations is not at fault."""
    dims = {"B": 2, "L": 7, "h": 3, "d": Dim(24, multiple_of="h")}
    s = Spec("frequencies", dims, Frequencies, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert "d" in derivation.specialized
    assert "L" not in derivation.specialized
    assert [] == failures(calc.check(derivation, B=3, L=9))



class Sparse(nn.Module):
    """Makes a plan of blocks, by numbers, where it has more rows than 704."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.mix, self.places = nn.Linear(n.d, n.d), nn.Parameter(torch.zeros(n.C, n.d))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.mix(x) + self.places[: x.shape[1]]
        if x.shape[1] <= 704:
            return y
        return y * float(np.zeros((len(self.places) // 64, x.shape[1] // 64)).size)


def test_what_a_special_case_reads_as_a_number_is_one_as_well() -> None:
    """The length decides that numbers are read: once it is one, all places are found to be read, too."""
    dims = {"B": 2, "T": Dim(1024, at_most="C"), "C": 4096, "d": 7}
    may = (("T",), ("C",), ("d",))
    s = Spec("sparse", dims, Sparse, lambda n: (torch.randn(n.B, n.T, n.d),), lambda module, x: module(x).sum(), may_specialize=may)
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert {"T": 1024, "C": 4096} == derivation.specialized
    assert [] == failures(calc.check(derivation, B=1, d=3))

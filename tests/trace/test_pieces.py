"""Rows that a step splits into pieces and walks: how many there are is a trip count where it is whole, and else a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor, nn
from torch.utils._sympy.functions import FloorDiv, Max

import calc
from calc import Dim, Spec
from calc.derive.result import Derivation
from calc.trace.size_text import size_text
from tests.checks import failures

Pieces = Callable[[Tensor, Any], Any]

PIECES: dict[str, Pieces] = {
    "split": lambda x, c: x.split(c, 1),
    "by places": lambda x, c: [x[:, at : at + c] for at in range(0, x.shape[1], c)],
    "counted": lambda x, c: [x[:, i * c : (i + 1) * c] for i in range(x.shape[1] // c)],
}


# A step trained takes three times as long to trace as its forward.
MODES = pytest.mark.parametrize("mode", ["infer", pytest.param("train", marks=pytest.mark.slow)])


class Growing(nn.Module):
    """Each piece looks at itself and all before, as a prompt that is read in chunks."""

    def __init__(self, n: Any, pieces: Pieces) -> None:
        super().__init__()
        self.mix, self.pieces, self.c = nn.Linear(n.d, n.d), pieces, n.c

    def forward(self, x: Tensor) -> Tensor:
        seen: list[Tensor] = []
        out = []
        for piece in self.pieces(self.mix(x), self.c):
            seen.append(piece)
            out.append(piece @ torch.cat(seen, 1).transpose(1, 2))
        return torch.stack([y.sum() for y in out])


class Walking(Growing):
    """Each piece by itself."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.mix(piece).tanh().sum() for piece in self.pieces(x, self.c)])


def _spec(kind: type[Growing], pieces: Pieces, rows: Any, **dims: Any) -> Spec:
    def inputs(n: Any) -> tuple[Tensor, ...]:
        return (torch.randn(n.B, rows(n), n.d),)

    return Spec("pieces", dims, lambda n: kind(n, pieces), inputs, lambda module, x: module(x).sum())


def _failed(derivation: Derivation, **sizes: int) -> list[str]:
    return failures(calc.check(derivation, **sizes))


@pytest.mark.parametrize("how", [pytest.param(how, marks=() if how == "by places" else pytest.mark.slow) for how in PIECES])
@pytest.mark.parametrize(
    "length",
    [pytest.param(Dim(12, multiple_of="c"), id="declared", marks=pytest.mark.slow), pytest.param(12, id="inferred")],
)
@MODES
def test_as_many_pieces_as_fit_are_a_trip_count(how: str, length: Any, mode: str) -> None:
    """T/c of them, each through a layer: 2·B·T·d² in all."""
    s = _spec(Walking, PIECES[how], lambda n: n.T, B=2, c=3, T=length, d=5)
    derivation = calc.derive(s, cache=False, optimizer="sgd", mode=mode)

    assert not derivation.specialized
    assert 2 * 12 * 2 * 25 == derivation["flops.forward.matmul"].value
    assert not _failed(derivation)
    assert not _failed(calc.derive(s, {"c": 2, "T": 10, "d": 3}, cache=False, optimizer="sgd", mode=mode))
    assert not _failed(calc.derive(s, {"T": 3}, cache=False, optimizer="sgd", mode=mode))  # one piece


@pytest.mark.parametrize("c", [5, *(pytest.param(c, marks=pytest.mark.slow) for c in (3, 13))])
def test_a_number_of_rows_in_pieces_of_a_size_is_no_constant(c: int) -> None:
    """Twelve rows are one piece for any c from 12 on. With c = 3 they are four: what holds of large sizes holds of those alone."""
    derivation = calc.derive(_spec(Growing, PIECES["split"], lambda _: 12, B=2, c=c, d=5), cache=False, optimizer="sgd", mode="infer")

    assert not _failed(derivation)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "length"), [("infer", 13), ("train", 12), ("train", 13)])
def test_pieces_that_look_back_are_exact_where_the_peak_has_no_closed_form(mode: str, length: int) -> None:
    """Then the length is a number."""
    derivation = calc.derive(_looking_back(), {"T": length}, cache=False, optimizer="sgd", mode=mode)

    assert "T" in derivation.specialized
    assert not _failed(derivation)


@pytest.mark.slow
@pytest.mark.parametrize("length", [12, 9, 27])
def test_whole_pieces_that_look_back_have_closed_forms_without_a_backward(length: int) -> None:
    """What is alive is quadratic in the length: three numbers of pieces from five on determine it."""
    derivation = calc.derive(_looking_back(), cache=False, optimizer="sgd", mode="infer")

    assert not derivation.specialized
    assert not _failed(derivation, T=length)


def _looking_back() -> Spec:
    return _spec(Growing, PIECES["split"], lambda n: n.T, B=2, c=3, T=12, d=5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_quarters_of_few_rows_are_not_four(mode: str) -> None:
    """Pieces of up to a quarter each, rounded up: of 5, 6 and 9 rows three. What is so at most sizes is a condition, not a constant."""

    class Quarters(Walking):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([self.mix(piece).tanh().sum() for piece in x.chunk(4, 1)])

    s = _spec(Quarters, PIECES["split"], lambda n: n.T, B=2, c=3, T=32, d=5)
    derivation = calc.derive(s, cache=False, optimizer="sgd", mode=mode)

    for rows in (8, 11, 33, 5, 6, 9):
        assert not _failed(derivation, T=rows)


def test_a_width_is_written_alike_whether_or_not_a_stride_must_not_be_zero() -> None:
    """Queries of r heads, a key and a value for each of g groups, 2·k wide, fused in one projection: the width of one is a quotient of
    sums that is whole. Torch's strides have it as ``Max(1, width)``, and a tensor's bytes come out with either."""
    k, g, r = sympy.symbols("k g r", positive=True, integer=True)
    width = FloorDiv(2 * k * (g * r + 2 * g), g * (r + 2))
    names = {k: "k", g: "g", r: "r"}

    assert "2*k" == size_text(width, names) == size_text(Max(1, width), names)
    assert "g*r*(2*k)" == size_text(Max(1, g * r * width), names)


def test_a_quotient_of_a_rounded_size_that_is_whole_is_written_as_one() -> None:
    """Relative positions are shifted by viewing t rows of 2t as 2t rows of t, where t is a quarter of the sequence."""
    T, B = sympy.symbols("T B", positive=True, integer=True)
    rounded = FloorDiv(T - 3, 4)
    names = {T: "T", B: "B"}

    assert "floor(((-3 + T))/(4))" == size_text(FloorDiv(rounded**2, rounded, evaluate=False), names)
    assert "B*(floor(((-3 + T))/(4)))" == size_text(FloorDiv(3 * B * rounded**3, 3 * rounded**2, evaluate=False), names)
    assert "floor(((floor(((-3 + T))/(4)))**2)/(T))" == size_text(FloorDiv(rounded**2, T, evaluate=False), names)


def test_a_walk_in_steps_as_long_as_the_rows_has_one_piece() -> None:
    """``range(0, T, T)``: the length stays a symbol. In quarters there are four, each at a place that is a symbol."""
    for pieces in (lambda x, _: [x[:, at:] for at in range(0, x.shape[1], x.shape[1])], _quarters):
        s = _spec(Walking, pieces, lambda n: n.T, B=2, c=3, T=Dim(12, multiple_of=4), d=5)
        derivation = calc.derive(s, cache=False, mode="infer")

        assert not derivation.specialized
        assert 2 * 2 * 20 * 25 == derivation["flops.forward.matmul"].at(T=20)
        assert [] == _failed(derivation, T=20)


def _quarters(x: Tensor, _: Any) -> list[Tensor]:
    quarter = x.shape[1] // 4
    return [x[:, at : at + quarter] for at in range(0, x.shape[1], quarter)]


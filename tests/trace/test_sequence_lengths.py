"""Lengths of sequences as tensors: where all are one size they are constants, and what is read out of them is that size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import calc
from calc import Spec
from calc.derive.result import Derivation
from tests.checks import failures

LENGTHS: dict[str, Callable[[Any, Any], Tensor]] = {
    "full": lambda rows, length: torch.full((rows,), length),
    "full of short numbers": lambda rows, length: torch.full((rows,), length, dtype=torch.int32),
    "a product": lambda rows, length: torch.ones(rows, dtype=torch.int64) * length,
    "half of twice": lambda rows, length: torch.div(torch.full((rows,), 2 * length), 2, rounding_mode="floor"),
    "sorted otherwise": lambda rows, length: torch.full((rows,), length).flip(0),
}


class Padded(nn.Module):
    """Attends to no place beyond a sequence's length, as far as the longest one goes."""

    def __init__(self, n: Any, lengths: Callable[[Any, Any], Tensor]) -> None:
        super().__init__()
        self.linear, self.lengths = nn.Linear(n.d, n.d), lengths

    def forward(self, x: Tensor) -> Tensor:
        lengths = self.lengths(x.shape[0], x.shape[1])
        longest = int(lengths.max().item())
        there = torch.arange(longest)[None] < lengths[:, None]
        y: Tensor = self.linear(x[:, :longest])
        return y if there.all() else y.masked_fill(~there[..., None], 0)


def _exact(s: Spec) -> Derivation:
    derivation = calc.derive(s, cache=False, optimizer="sgd")
    assert [] == [text for at in ({}, {"B": 5, "T": 7}) for text in failures(calc.check(derivation, **at))]
    return derivation


def _inputs(n: Any) -> tuple[Tensor, ...]:
    return (torch.randn(n.B, n.T, n.d),)


DIMS = {"B": 3, "T": 17, "d": 11}


@pytest.mark.parametrize("name", LENGTHS)
def test_a_mask_of_constant_lengths_is_known(name: str) -> None:
    """No assumption is made, and every size stays a symbol: 2·B·T·d² FLOP."""
    derivation = _exact(Spec("padded", DIMS, lambda n: Padded(n, LENGTHS[name]), _inputs, lambda module, x: module(x).sum()))

    assert ((), {}) == (derivation.assumptions, derivation.specialization_reasons)
    assert "2*B*T*d**2" == derivation["flops.forward.matmul"].text


def test_lengths_among_the_inputs_are_constants_too() -> None:
    def loss(module: nn.Module, x: Tensor, lengths: Tensor) -> Tensor:
        return module(x)[:, : lengths.max().item()].sum() / lengths.sum()

    s = Spec("lengths", DIMS, lambda n: nn.Linear(n.d, n.d), lambda n: (*_inputs(n), torch.full((n.B,), n.T)), loss)

    assert ((), {}) == ((derivation := _exact(s)).assumptions, derivation.specialization_reasons)


def test_a_list_of_lengths_is_one_of_sizes() -> None:
    """It has as many as the batch, which is a loop count then; each is the length, a symbol."""

    def loss(module: nn.Module, x: Tensor) -> Tensor:
        lengths = torch.full((x.shape[0],), x.shape[1]).tolist()
        parts: list[Tensor] = [module(row[:length]).sum() for row, length in zip(x, lengths, strict=True)]
        return torch.stack(parts).sum()

    derivation = _exact(Spec("list", DIMS, lambda n: nn.Linear(n.d, n.d), _inputs, loss))

    assert ["the step is a polynomial in B"] == [a.expr for a in derivation.assumptions]


def _packed(module: nn.Module, x: Tensor, lengths: Any) -> Tensor:
    states: Tensor = pack_padded_sequence(module(x), lengths, batch_first=True).data
    return states.sum()


def test_a_sequence_is_packed_at_every_size() -> None:
    """All rows are of length T: nothing is left out, and T·B rows are copied there and back."""
    derivation = _exact(
        Spec("packed", DIMS, lambda n: nn.Linear(n.d, n.d), _inputs, lambda m, x: _packed(m, x, torch.full((len(x),), x.shape[1])))
    )

    assert {} == derivation.specialized
    assert "2*B*T*d**2" == derivation["flops.forward.matmul"].text


def test_constant_lengths_leave_out_what_is_padding() -> None:
    """Of three rows, 7 + 5 + 2 elements of d are copied, by an operator that reads all 3·T of them."""
    dims = {"T": 7, "d": 11}
    s = Spec("constants", dims, lambda n: nn.Linear(n.d, n.d), lambda n: (torch.randn(3, n.T, n.d),), lambda m, x: _packed(m, x, [7, 5, 2]))
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert [] == [text for at in ({}, {"T": 9, "d": 5}) for text in failures(calc.check(derivation, **at))]


@pytest.mark.parametrize("use", ["packed", "paths"])
def test_lengths_that_are_drawn_are_refused_with_the_line(use: str) -> None:
    def loss(module: nn.Module, x: Tensor) -> Tensor:
        lengths = torch.randint(1, x.shape[1], (x.shape[0],))
        if use == "packed":
            return _packed(module, x, lengths.sort(descending=True).values)
        labels = torch.ones(x.shape[:2], dtype=torch.int64)
        steps = torch.full((x.shape[0],), x.shape[1])
        return nn.functional.ctc_loss(module(x).log_softmax(-1).transpose(0, 1), labels, steps, lengths)

    with pytest.raises(calc.errors.TraceError, match=r"sequence lengths at test_sequence_lengths.py:\d+.* depend on data"):
        calc.derive(Spec("drawn", DIMS, lambda n: nn.Linear(n.d, n.d), _inputs, loss), cache=False, mode="infer")


def test_lengths_that_are_data_stay_refused() -> None:
    """One that is drawn is no size."""
    drawn = Spec(
        "drawn",
        DIMS,
        lambda n: nn.Linear(n.d, n.d),
        _inputs,
        lambda module, x: module(x)[:, : torch.randint(1, x.shape[1], (x.shape[0],)).max().item()].sum(),
    )
    with pytest.raises(calc.errors.TraceError, match="data"):
        calc.derive(drawn, cache=False, mode="infer")

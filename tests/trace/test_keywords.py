"""Functions of torch that are replaced while a step is traced: they take the keywords that torch's own take."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, one_hot

import calc
from tests.checks import failures
from tests.trace.modules import function

CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "split": lambda x: x.split(split_size=[2, x.shape[1] - 2], dim=1)[1],
    "one_hot": lambda x: x @ one_hot(input=torch.arange(x.shape[1]), num_classes=x.shape[1]).float(),
    "linspace": lambda x: x * torch.linspace(start=0, end=1, steps=x.shape[1]),
    "arange": lambda x: x * torch.arange(start=0, end=x.shape[1], step=1),
    "interpolate": lambda x: interpolate(input=x[:, None], scale_factor=2),
    "max_pool1d": lambda x: torch.max_pool1d(input=x[:, None], kernel_size=2),
    "masked_select": lambda x: torch.masked_select(input=x, mask=torch.ones_like(x, dtype=torch.bool)),
    "fftfreq": lambda x: x * torch.fft.fftfreq(n=x.shape[1], d=2.0),
    "tensor": lambda x: x * torch.tensor(data=[2.0]),
    "embedding": lambda x: x + nn.functional.embedding(input=torch.zeros(1, dtype=torch.int64), weight=x[:1]),
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_are_given_by_the_names_of_torch(name: str) -> None:
    derivation = calc.derive(function(CALLS[name], dims={"B": 3, "d": 8}), cache=False, mode="infer")

    assert [] == failures(calc.check(derivation))

"""What a derivation is made of is freed with its last reader: no reference cycle holds it until somebody searches for cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import calc
from calc.derive.result import Quantity, Step
from calc.graph.step import Op, StepTrace
from calc.spec import Spec

LAYER = Spec(
    name="freed",
    dims={"B": 3, "d": 7, "m": 11},
    build=lambda n: nn.Linear(n.d, n.m),
    inputs=lambda n: (torch.randn(n.B, n.d),),
    loss=lambda module, x: module(x).square().mean(),
)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No search for cycles, and nothing to be found in what is there already: torch leaves cycles at its first trace."""
    calc.derive(LAYER)
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def _in_cycles() -> set[type]:
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    return {type(part) for part in gc.garbage}


def test_no_cycle_holds_a_trace_or_a_step(uncollected: None) -> None:
    """Every trace of a derivation, and the steps of every quantity."""
    steps = len(calc.derive(LAYER).steps)

    assert steps > 0
    assert not {Op, StepTrace, Step, Quantity} & _in_cycles()

"""Layers that are recomputed in the backward pass: what is saved, allocated at the peak and computed is that of the real step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import calc
from calc.derive.result import Derivation
from calc.pipeline.check import Report
from calc.pipeline.verdict import EXACT, NOT_MEASURED
from calc.spec import Spec


class Block(nn.Module):
    """Two layers with noise, so that recomputing them must repeat the noise too."""

    def __init__(self, d: int, f: int) -> None:
        super().__init__()
        self.norm, self.up, self.down, self.noise = nn.LayerNorm(d), nn.Linear(d, f), nn.Linear(f, d), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.noise(self.down(nn.functional.gelu(self.up(self.norm(x)))))
        return y


class Stack(nn.Module):
    """L blocks between two layers that run once."""

    def __init__(self, n: Any, run: Callable[..., Tensor]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(n.d, n.d), nn.Linear(n.d, n.d)
        self.blocks = nn.ModuleList([Block(n.d, n.f) for _ in range(n.L)])
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = self.run(block, x)
        y: Tensor = self.last(x)
        return y


def stack(run: Callable[..., Tensor]) -> Spec:
    return Spec(
        name="stack",
        dims={"B": 3, "d": 5, "f": 11, "L": 2},
        build=lambda n: Stack(n, run),
        inputs=lambda n: (torch.randn(n.B, n.d),),
        loss=lambda module, x: module(x).square().mean(),
        trip_counts=("L",),
    )


def products(_: Any, op: Any, *__: Any, **___: Any) -> CheckpointPolicy:
    """Save the results of matmuls."""
    return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.addmm.default else CheckpointPolicy.PREFER_RECOMPUTE


WAYS = {
    "reentrant": partial(checkpoint, use_reentrant=True),
    "not reentrant": partial(checkpoint, use_reentrant=False),
    "without the noise's state": partial(checkpoint, use_reentrant=False, preserve_rng_state=False),
    "to the end": partial(checkpoint, use_reentrant=False, early_stop=False),
    "but for the products": partial(checkpoint, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, products)),
}

_derived: dict[str, Derivation] = {}


def derived(way: str) -> Derivation:
    if way not in _derived:
        _derived[way] = calc.derive(stack(WAYS[way]), cache=False, optimizer="sgd")
    return _derived[way]


def not_exact(report: Report) -> list[str]:
    assert report.passed
    return [str(v) for v in report.verdicts if v.verdict not in (EXACT, NOT_MEASURED)]


QUICK = ("but for the products",)  # the other ways wait for the slow tests


@pytest.mark.parametrize("way", [way if way in QUICK else pytest.param(way, marks=pytest.mark.slow) for way in WAYS])
def test_a_checkpointed_model_is_exact(way: str) -> None:
    """Bytes saved, both peaks and all FLOPs equal a real run at other sizes and another depth; the repeated work is measured too."""
    report = calc.check(derived(way), B=7, d=2, f=3, L=4)

    assert [] == not_exact(report)
    assert [] == [v.quantity for v in report.verdicts if v.verdict == NOT_MEASURED]


@pytest.mark.slow
def test_a_checkpointed_block_keeps_its_input_only() -> None:
    """The input of each of L blocks, that of the two layers outside, and that of the square: 4·B·d each."""
    assert derived("not reentrant")["activations.bytes"].text == "4*B*d*L + 12*B*d"
    assert derived("reentrant")["activations.bytes"].text == "4*B*d*L + 12*B*d"


def test_saved_matmuls_are_not_recomputed() -> None:
    """Selective checkpointing also keeps both products of a block, 4·B·f and 4·B·d bytes, and repeats none."""
    assert derived("but for the products")["activations.bytes"].at(B=3, d=5, f=11, L=2) == 4 * 3 * (2 * (5 + 11 + 5) + 3 * 5)
    assert derived("but for the products")["flops.backward.recompute"].value == 0


def test_a_recomputed_block_repeats_its_matmuls() -> None:
    """Two products of 2·B·d·f in each block, inside the backward's own: 3 times the forward's, less the first layer's input gradient."""
    result = derived("reentrant")
    repeated = 2 * 2 * 3 * 5 * 11 * 2

    assert repeated == result["flops.backward.recompute"].at(B=3, d=5, f=11, L=2)
    assert 2 * result["flops.forward.matmul"].at(B=3, d=5, f=11, L=2) - 2 * 3 * 5 * 5 + repeated == result["flops.backward.matmul"].at(
        B=3, d=5, f=11, L=2
    )


def test_the_steps_say_what_a_checkpoint_keeps() -> None:
    """By the name of the function that recomputes it."""
    assert any("torch.utils.checkpoint" in term.because for term in derived("reentrant")["activations.bytes"].terms)
    assert any("torch.utils.checkpoint" in term.because for term in derived("not reentrant")["activations.bytes"].terms)


def test_what_is_recomputed_is_at_the_path_of_its_module() -> None:
    """And not at that of the module that needs it."""
    module_paths = {term.module_path for term in derived("not reentrant")["flops.backward.recompute"].terms}

    assert {"blocks.*.up", "blocks.*.down"} == module_paths

"""A step says why its equality holds: a mask halves the pairs, each operation listed is one FLOP for each of its results."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.derive.result import Derivation
from tests.derive.conftest import Derived

_PAIRS = "row t of a causal mask attends to t keys: 1 + 2 + … + T = T·(T + 1)/2 of the T² pairs of a query and a key"


def because(derivation: Derivation, quantity: str, title: str) -> str:
    """The reason of the only step of a quantity with this title that is no sum or substitution."""
    steps = [s for s in derivation.steps if (s.quantity, s.title) == (quantity, title) and "sum over parts" not in s.rule]
    assert len(steps) == 1, [s.title for s in derivation.steps if s.quantity == quantity]
    return steps[0].because


@pytest.mark.parametrize("phase", ["forward", "backward"])
@pytest.mark.parametrize("attention", ["fused", "math"])
def test_a_causal_step_counts_the_pairs_that_the_mask_leaves(phase: str, attention: str, derived: Derived) -> None:
    """B·h·k·T(T + 1) is 2·k FLOP for each of T(T + 1)/2 pairs, in B·h heads."""
    gpt2 = derived("gpt2", "sgd", attention)

    assert because(gpt2, f"flops.{phase}.causal", "transformer.h.*.attn") == f"{_PAIRS}; 2·k FLOP for each pair, head and matmul"
    assert "mask" not in because(gpt2, f"flops.{phase}.causal", "transformer.h.*.attn.c_proj")


def test_a_step_without_a_mask_has_no_sentence_of_one(derived: Derived) -> None:
    """All pairs count among the matmuls, whatever the mask; how elementwise work is counted is no reason for a matmul."""
    reason = because(derived("gpt2", "sgd"), "flops.forward.matmul", "transformer.h.*.attn")

    assert reason.endswith("(every pair of a query and a key counts, masked or not): two matmuls; one multiply-add = 2 FLOP")
    assert "row t" not in reason


class Windowed(nn.Module):
    """Attention in a window of positions, with a mask of its own."""

    def __init__(self, d: Any, w: Any) -> None:
        super().__init__()
        self.qkv, self.w = nn.Linear(d, 3 * d), w

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        places = torch.arange(x.shape[1])
        apart = places[:, None] - places[None, :]
        seen = (apart >= 0) & (apart < self.w)
        return torch.nn.functional.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], attn_mask=seen)


def test_a_window_is_no_causal_mask() -> None:
    """Its pairs are counted in full: no step states the sum 1 + 2 + … + T."""
    spec = calc.Spec(
        name="windowed",
        dims={"B": 3, "T": 11, "d": 7, "w": 5},
        build=lambda n: Windowed(n.d, n.w),
        inputs=lambda n: (torch.randn(n.B, n.T, n.d),),
        loss=lambda model, x: model(x).sum(),
    )

    assert not [s for s in calc.derive(spec, optimizer="sgd", cache=False).steps if "causal mask" in s.because]


def test_elementwise_operators_have_a_flop_for_each_result(derived: Derived) -> None:
    """The operators of AdamW are listed in the rows: the reason says how each row is counted, not what each operator computes."""
    reason = because(derived("gpt2"), "flops.optimizer.elementwise", "transformer.wte.weight")

    assert reason.startswith("one FLOP for each result element of each operation listed, those of torch's references; ")
    assert "lerp_: compares |w| once and computes both w and w − 1" in reason
    assert "y = a · b" not in reason


def test_a_reduction_of_n_elements_is_n_less_1_operations(derived: Derived) -> None:
    """Only a step with a reduction says so."""
    loss = because(derived("two-layer"), "flops.forward.elementwise", "(loss)")

    assert loss.endswith("those of torch._decomp.decompositions.mse_loss; n − 1 for a reduction of n")
    assert "reduction" not in because(derived("two-layer"), "flops.backward.elementwise", "(loss)")


def test_the_bias_of_a_matmul_is_the_reason_of_its_additions_alone(derived: Derived) -> None:
    """Its matmul has another."""
    mlp = derived("mlp", "sgd")

    assert because(mlp, "flops.forward.elementwise", "0").endswith(": the bias is one addition per result element")
    assert because(mlp, "flops.forward.matmul", "0").endswith(": matrix multiplication; one multiply-add = 2 FLOP")

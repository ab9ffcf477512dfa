"""A step says why its equality holds: a mask halves the pairs, each operation listed is one FLOP for each of its results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.derive.names import AddendLabel
from calc.derive.optimizer_state import update
from calc.derive.quantities import QUANTITIES
from calc.derive.result import Derivation
from calc.mathematics.updates.table import RULES
from calc.options import NAMED_OPTIMIZERS
from reports.views.optimizers import shown
from tests.derive.conftest import Derived
from tests.quick import few

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
    assert because(mlp, "flops.forward.matmul", "0").endswith(
        ": matrix multiplication, a multiply-add for each result element and inner index; one multiply-add = 2 FLOP"
    )


def test_a_table_counts_whole_among_active_parameters_by_convention(derived: Derived) -> None:
    """A token reads a row of it; every other weight it reads whole. No model without experts has a reason with some."""
    gpt2 = derived("gpt2", "sgd")
    reasons = {s.because for s in gpt2.steps if s.quantity == "parameters.active" and s.rule == "parameter"}

    table = because(gpt2, "parameters.active", "transformer.wpe.weight")
    assert table == "an embedding table counts whole by convention, though a token reads few of its rows"
    assert reasons == {table, "each weight that the forward of one token or sample reads is counted in full"}


@pytest.mark.slow
def test_a_token_uses_the_experts_that_its_router_chooses() -> None:
    """Only parameters of experts have that reason."""
    n = {"B": 2, "T": 5, "d": 24, "h": 6, "g": 2, "k": 10, "f": 56, "L": 3, "V": 29, "E": 7, "e": 2}
    steps = calc.derive(calc.load("mixtral"), n, optimizer="sgd").steps
    routed = {s.title for s in steps if s.because == "a token uses only the experts that its router chooses"}

    assert routed == {f"model.layers.*.mlp.experts.{name}" for name in ("gate_up_proj", "down_proj")}


def test_the_state_of_adamw_is_what_its_updates_read(derived: Derived) -> None:
    """Both moments, and the step of the bias correction."""
    assert because(derived("gpt2"), "optimizer_state.bytes", "transformer.wte.weight") == (
        "AdamW updates m ← β₁·m + (1 − β₁)·g (exp_avg) and v ← β₂·v + (1 − β₂)·g² (exp_avg_sq) for each element of the parameter;"
        " step is the t of the bias correction; bytes of one value times number of values"
    )


def test_the_reasons_of_state_are_the_equations_of_the_updates() -> None:
    """Of every optimizer that has equations; the table of reasons is data that a derivation reads without them."""
    state = [(rule, letter) for rule in RULES.values() for letter in (*rule.state, *rule.single)]
    equations = {(rule.name, e.target): f"{shown(e.target)} ← {shown(e.text)}" for rule in RULES.values() for e in rule.equations}

    assert len(state) > 20
    assert [] == [(r.name, x) for r, x in state if update(r.name, r.keys[x]) != equations[r.name, x]]


@pytest.mark.parametrize("optimizer", few(NAMED_OPTIMIZERS, 4))
def test_every_optimizer_says_why_it_keeps_its_state(optimizer: str, derived: Derived) -> None:
    """Muon leaves vectors to AdamW, and Adafactor has no rows and columns of them: their reasons are of what they keep."""
    steps = [s for s in derived("mlp", optimizer).steps if s.rule == "optimizer state"]

    assert bool(steps) == (optimizer != "sgd")
    assert [] == [s.title for s in steps if "←" not in s.because or "these tensors" in s.because]


def test_a_peak_candidate_says_whose_outputs_are_temporary(derived: Derived) -> None:
    """The gradients of the scores before and after the log-softmax, 4·B·T·V bytes each, and that of the loss, 4 bytes. Of the saved
    tensors, the ids and the targets of 8·B·T bytes are inputs."""
    reason = because(derived("gpt2"), "memory.peak", "backward, after _log_softmax_backward_data at (loss)")

    assert reason.endswith(
        "; temporary: outputs of ones_like, nll_loss_backward and _log_softmax_backward_data at (loss);"
        " activation: activations.bytes without the 16·B·T bytes of model inputs, which count as input"
    )


def test_what_is_live_in_place_of_a_freed_tensor_of_its_size_is_named(derived: Derived) -> None:
    """The mean squared error is reduced in the buffer of its B·K elements, which is live when the prediction is freed."""
    reason = because(derived("two-layer"), "memory.peak", "backward, after mm at (model)")

    assert reason.endswith(
        "; 4·B·K of these bytes are freed already, and the output of mse_loss at (loss), a scalar that keeps its buffer, takes as many"
    )


def test_one_tensor_beside_all_saved_ones_is_named(derived: Derived) -> None:
    """The loss, before the prediction is freed."""
    reason = because(derived("two-layer"), "memory.peak", "backward, after mse_loss_backward at (loss)")

    assert reason.endswith("; beside them 4·B·K bytes of the output of mse_loss at (loss), a scalar that keeps its buffer")


def test_only_where_all_saved_tensors_are_live_are_they_compared_with_activations(derived: Derived) -> None:
    """Later in the backward some are freed."""
    steps = [s for s in derived("gpt2").steps if s.quantity == "memory.peak" and s.rule == "live storages by role"]

    assert len(steps) == 20
    assert [s.title for s in steps if "activations.bytes" in s.because] == ["backward, after _log_softmax_backward_data at (loss)"]
    assert all("; temporary: outputs of " in s.because for s in steps)


def test_a_label_has_the_mask_in_parentheses() -> None:
    """A comma would make it one more addend of a list: query keyᵀ (causal), probs value (causal)."""
    assert str(AddendLabel("query keyᵀ", is_causal=True)) == "query keyᵀ (causal)"


def test_a_total_of_one_part_says_why_it_is_the_whole() -> None:
    """In inference mode the step is the forward alone."""
    total = QUANTITIES["flops.step.total"]

    assert total.because == "every operation is counted in exactly one of them, so they add"
    assert replace(total, parts=total.parts[:1]).because == "of its parts, only this one runs in this step"

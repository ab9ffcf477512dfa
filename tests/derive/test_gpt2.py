"""GPT-2 124M, one AdamW step: the closed forms that its literature agrees on, and the numbers at its own sizes."""

from __future__ import annotations

import pytest
import sympy as sp

from calc.derive.result import Derivation
from calc.symbolic.algebra import symbol
from tests.derive.conftest import Derived

B, T, d, h, k, f, L, V, C = (symbol(name) for name in "B T d h k f L V C".split())  # noqa: SIM905  # as they are written in formulas

# B=8, T=1024, d=768, h=12, f=3072, L=12, V=50257, C=1024
BT = 8 * 1024


@pytest.fixture
def fused(derived: Derived) -> Derivation:
    return derived("gpt2", "adamw", "fused")


@pytest.fixture
def math(derived: Derived) -> Derivation:
    return derived("gpt2", "sgd", "math")


def as_published(expr: sp.Expr) -> sp.Expr:
    """At f = 4d and k = d/h, as papers write it."""
    return expr.subs(f, 4 * d).subs(k, d / h)


def assert_equal(expected: sp.Expr, expr: sp.Expr) -> None:
    assert sp.simplify(as_published(expr) - expected) == 0


# -- parameters and their state ----------------------------------------------------------------------------------------


def test_parameters_are_the_published_polynomial(fused: Derivation) -> None:
    """Embeddings, L blocks, a last norm; 124,439,808 at the published sizes."""
    assert_equal(V * d + C * d + L * (12 * d**2 + 13 * d) + 2 * d, fused["parameters"].expr)
    assert fused["parameters"].value == 124_439_808


def test_every_block_has_its_share(fused: Derivation) -> None:
    """4 d² + 4 d attention, 8 d² + 5 d feed-forward, 4 d norms, each by its weights."""
    terms = {t.module_path: t.value for t in fused["parameters"].terms}

    assert terms["transformer.h.*.attn.c_attn.weight"] == 12 * 768 * 3 * 768
    assert terms["transformer.h.*.attn.c_proj.bias"] == 12 * 768
    assert terms["transformer.h.*.mlp.c_fc.weight"] == 12 * 768 * 3072
    assert terms["transformer.wte.weight"] == 50257 * 768
    assert terms["transformer.wpe.weight"] == 1024 * 768
    assert not any("lm_head" in path for path in terms)  # tied to wte


def test_adamw_keeps_two_moments_and_a_counter_for_each_tensor(fused: Derivation) -> None:
    """8 N + 4 · (12 tensors a block and 4 outside): 8 * 124439808 + 4 * (12 * 12 + 4)."""
    assert sp.expand(fused["optimizer_state.bytes"].expr - (8 * fused["parameters"].expr + 4 * (12 * L + 4))) == 0
    assert fused["optimizer_state.bytes"].value == 8 * 124_439_808 + 4 * 148


# -- matrix multiplications -----------------------------------------------------------------------------------------------------------


def test_the_forward_multiplies_the_published_polynomial(fused: Derivation, math: Derivation) -> None:
    """24 B T d² + 4 B T² d a layer, and the head: 2 B T d V; fused attention multiplies as much as products one by one."""
    for result in (fused, math):
        assert_equal(L * (24 * B * T * d**2 + 4 * B * T**2 * d) + 2 * B * T * d * V, result["flops.forward.matmul"].expr)
        assert result["flops.forward.matmul"].value == 12 * (24 * BT * 768**2 + 4 * BT * 1024 * 768) + 2 * BT * 768 * 50257


def test_the_backward_multiplies_twice_as_much_with_math_attention(math: Derivation) -> None:
    """Every product of the forward has two in the backward: no first layer whose input needs no gradient, embeddings do."""
    assert sp.expand(math["flops.backward.matmul"].expr - 2 * math["flops.forward.matmul"].expr) == 0
    assert math["flops.backward.recompute"].value == 0


def test_fused_attention_repeats_the_scores_in_its_backward(fused: Derivation, math: Derivation) -> None:
    """Five products instead of four: one query keyᵀ more a layer, 2 B T² d, which is stated as recompute."""
    repeated = fused["flops.backward.recompute"].expr

    assert_equal(L * 2 * B * T**2 * d, repeated)
    assert sp.expand(fused["flops.backward.matmul"].expr - math["flops.backward.matmul"].expr - repeated) == 0


def test_the_causal_credit_replaces_every_square_of_the_sequence(fused: Derivation, math: Derivation) -> None:
    """T² becomes T(T+1)/2 in each attention product, and nothing else changes."""
    half = T * (T + 1) / 2
    for result, products in ((fused, 5), (math, 4)):
        assert_equal(L * 2 * 2 * B * d * (T**2 - half), result["flops.forward.matmul"].expr - result["flops.forward.causal"].expr)
        assert_equal(L * products * 2 * B * d * (T**2 - half), result["flops.backward.matmul"].expr - result["flops.backward.causal"].expr)


def test_a_step_executes_six_flops_a_weight_and_token_but_for_attention_and_positions(math: Derivation) -> None:
    """6 N B T, less the positions and everything that is no matrix (biases, norms), and 12 B T² d L of attention."""
    executed = math["flops.forward.matmul"].expr + math["flops.backward.matmul"].expr

    assert_equal(6 * B * T * (V * d + 12 * L * d**2) + 12 * B * T**2 * d * L, executed)


# -- activations and memory --------------------------------------------------------------------------------------------------


def test_fused_attention_saves_no_square_of_the_sequence(fused: Derivation, math: Derivation) -> None:
    """Its log-sum-exp is 4 B h T a layer; math attention keeps the scores."""
    assert sp.degree(fused["activations.bytes"].expr, T) == 1
    assert sp.degree(math["activations.bytes"].expr, T) == 2


def test_activations_of_a_block_are_the_tensors_it_saves(fused: Derivation) -> None:
    """At f = 4d: 16 B T d of 4 bytes (norms 2, qkv 3, its result 1, residuals 2, feed-forward 8), the log-sum-exp, 2·2 moments of norms."""
    layer = sp.Poly(as_published(fused["activations.bytes"].expr), L).coeff_monomial(L)

    assert sp.expand(layer - (4 * 16 * B * T * d + 4 * B * T * h + 4 * 4 * B * T)) == 0


def test_the_peak_is_in_dimensions_of_the_model_with_its_candidates_listed(fused: Derivation) -> None:
    """Weights, state, saved tensors of every layer, and the head's logits and their gradient."""
    peak = fused["memory.peak"]

    assert {s.name for s in peak.expr.free_symbols} <= set("BTdhkfLVC")
    assert len(peak.candidates) >= 2
    assert peak.value == peak.candidates[0].value == max(c.value for c in peak.candidates)
    assert "backward" == peak.candidates[0].at.phase
    # three times the logits beside what the forward saved: log-softmax's result is saved, its gradient and the logits' are allocated
    assert peak.value > 16 * 124_439_808 - 4 * 124_439_808 + 3 * 4 * BT * 50257


def test_the_first_step_peaks_lower_by_the_state_it_does_not_have_yet(fused: Derivation) -> None:
    """At sizes where the peak is in the backward, by exactly the optimizer's state."""
    steady, first = (fused[name].at() for name in ("memory.peak", "memory.peak.first_step"))

    assert steady - first == fused["optimizer_state.bytes"].value


# -- the shape of the derivation ---------------------------------------------------------------------------------------------


def test_parameters_are_derived_from_tensors_through_layers_to_the_total(fused: Derivation) -> None:
    """Single weights first, then one layer, then L of them, then the sum of all parts."""
    steps = [s for s in fused.steps if s.quantity == "parameters"]
    rules = [s.rule for s in steps]

    assert rules[0] == "parameter"
    assert "sum over layers" in rules
    assert steps[-1].rule == "sum"
    assert steps[-1].value == 124_439_808


def test_a_matrix_product_is_derived_by_its_operators_rule(fused: Derivation) -> None:
    """The fused projection of queries, keys and values: 2 (B T) d (3 d)."""
    (step,) = (s for s in fused.steps if s.quantity == "flops.forward.matmul" and s.title.endswith("attn.c_attn"))

    assert step.operators == ("aten.addmm.default",)
    assert step.value == 2 * BT * 768 * 3 * 768
    assert step.because == (
        "y = β z + α (a b), with z (p, r) or broadcast to it, a (p, q), b (q, r) → y (p, r):"
        " matrix multiplication, a multiply-add for each result element and inner index; one multiply-add = 2 FLOP"
    )


def test_the_depth_is_summed_over_in_every_quantity_that_has_layers(fused: Derivation) -> None:
    """Σ over layers is shown wherever L occurs, but in sums of quantities and in peaks."""
    summed = {s.quantity for s in fused.steps if s.rule == "sum over layers"}
    with_layers = {n for n in fused if fused[n].text is not None and L in fused[n].expr.free_symbols and not fused[n].candidates}

    assert {n for n in with_layers if not n.endswith(".total")} <= summed

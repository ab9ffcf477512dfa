"""What a published account of recomputation says of a layer, beside a real step in 2-byte numbers with dropout."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import pytest
import sympy as sp

import calc
from calc.capacity.sharding import account, decoder, layout_of, state_of
from calc.derive.result import Derivation
from calc.symbolic.algebra import to_sympy
from tests.published.derived import value
from tests.published.figures import assert_reproduced, assert_same, reproduces

SIZES = {
    "korthikanti-act-22b": {"T": 2048, "B": 4, "d": 6144, "h": 64},
    "korthikanti-act-175b": {"T": 2048, "B": 1, "d": 12288, "h": 96},
    "korthikanti-act-1t": {"T": 2048, "B": 1, "d": 25600, "h": 160},
}


@cache
def _of_a_layer(quantity: str, checkpointing: str) -> sp.Expr:
    """What each layer adds, where the feed-forward width is four times the model's."""
    as_gpt = {to_sympy("f"): to_sympy("4*d"), to_sympy("k"): to_sympy("d/h")}
    return sp.expand(_derived(checkpointing)[quantity].expr.subs(as_gpt)).coeff(to_sympy("L"), 1)


@cache
def _derived(checkpointing: str) -> Derivation:
    model = calc.load("gpt2:dropout=0.1")
    return calc.derive(model, cache=False, optimizer="sgd", precision="bf16", attention="math", checkpointing=checkpointing)


# What torch keeps of a layer and the formula does not have: noise of the two dropouts beside the residuals in 2 bytes an element, not 1;
# queries, keys and values of attention written out in 4 bytes, not 2; its scores and noise in 4 bytes, three times; mean and deviation
# of the norms.
NOISE = to_sympy("2*B*T*d")
WIDER = to_sympy("6*B*T*d + (4 + 4 + 4 - 5)*B*h*T**2")
NORMS = to_sympy("2*4*B*T")


DIVIDED: dict[str, dict[str, str]] = {
    "tensor": {},
    "tensor_sequence": {"sequence": "regather"},
    "tensor_sequence_selective": {"sequence": "regather", "checkpointing": "attention"},
}


def kept_on_a_rank(sizes: dict[str, int], tensor: int = 8, **how: str) -> Fraction:
    """Bytes of a layer on one of 8 tensor ranks, from the account of the layer that layouts are worked out with."""
    letters = {"L": 1, "V": 51200, **{name: size for name, size in sizes.items() if name != "B"}}
    layer = decoder(letters, gated=False, bias=True, tied=True, dropout=True, attention="math")
    ranks = layout_of({"tensor": tensor, "micro": sizes["B"], **how})
    return account(layer, ranks, state_of()).fullest.calculation["Al"]


@pytest.mark.parametrize("row", SIZES)
def test_the_account_of_a_layer_that_layouts_are_worked_out_with_is_the_published_one(row: str) -> None:
    """On one rank it is 34sbh + 5as²b, which the derived step has beside what torch keeps on top."""
    B, T, d, h = (SIZES[row][name] for name in "BTdh")

    assert 34 * T * B * d + 5 * h * T**2 * B == kept_on_a_rank(SIZES[row], tensor=1)


@reproduces(*SIZES, slow=True)
def test_bytes_of_a_layer(row: str) -> None:
    """A layer that is recomputed keeps its argument alone, 2sbh. One that does not keeps 34sbh + 5as²b and what torch keeps on top."""
    derived = {
        "none": _of_a_layer("activations.bytes", "none") - NOISE - WIDER - NORMS,
        "full": _of_a_layer("activations.bytes", "block"),
    }
    numbers = {name: value(sp.expand(expr), **SIZES[row]) for name, expr in derived.items()}

    assert_reproduced(row, {**numbers, **{name: kept_on_a_rank(SIZES[row], **how) for name, how in DIVIDED.items()}})


@reproduces("korthikanti-pp-input-spike", slow=True)
def test_outputs_kept_on_the_first_stage_of_a_pipeline(row: str) -> None:
    """2sbh of each micro-batch under way, of which the first of p = 35 stages has p. Between two layers passes one tensor: what the next
    one keeps where it is recomputed. How many are under way is the account's own figure; no step on several devices is recorded."""
    one = value(_of_a_layer("activations.bytes", "block"), T=2048, B=1, d=20480)

    assert_reproduced(row, {"saved": Fraction(35 * one, 2**30)})


@pytest.mark.slow
def test_a_layer_whose_attention_runs_again_keeps_what_is_not_attention_s() -> None:
    """Of 34sbh, attention's 11sbh go but for its argument of 2sbh, and with them all that grows as T²; the norms and one noise stay."""
    kept = _of_a_layer("activations.bytes", "attention")

    assert_same(to_sympy("(34 - 11 + 2)*B*T*d") + NOISE / 2 + NORMS, kept)


@pytest.mark.slow
def test_full_recomputation_repeats_the_forward_of_the_layers() -> None:
    """24Bsh²(1 + s/(6h)) FLOP of each layer, as the account has it: with dropout last, even the last product is recomputed."""
    assert_same(to_sympy("24*B*T*d**2*(1 + T/(6*d))"), _of_a_layer("flops.backward.recompute", "block"))


@pytest.mark.slow
def test_selective_recomputation_of_a_module_repeats_its_projections_too() -> None:
    """The account repeats the two products of T² alone, 4Bs²h; a module that is recomputed makes its four projections once more, 8Bsh²."""
    assert_same(to_sympy("4*B*T**2*d + 8*B*T*d**2"), _of_a_layer("flops.backward.recompute", "attention"))

"""Derived gradients equal autograd's, at three random sizes, and central differences."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch
from torch import Tensor, nn

import calc
from calc.mathematics.autodiff.derived import Derived
from calc.mathematics.gradients import Trial, _sizes, check, trial, trial_sizes
from calc.options import Options
from calc.spec import Spec
from tests.mathematics.autodiff.models import MODELS

BUILT_IN = ("linear", "two-layer", "cruncher", "mlp")


@functools.cache
def derived(name: str, attention: str = "fused") -> tuple[Spec, Derived]:
    spec = MODELS.get(name) or calc.load(name)
    return spec, calc.gradients(spec, attention=attention)


def trials(name: str, attention: str = "fused") -> list[Trial]:
    spec, actual = derived(name, attention)
    options = Options(attention=attention)
    return [trial(actual, spec, at, options, seed) for seed, at in enumerate(trial_sizes(actual.program, spec, {}))]


# The others take the same way through the same rules.
QUICK = (
    "linear", "two-layer", "cruncher", "mlp with GELU", "mlp with ReLU", "layer norm", "rms norm", "cross-entropy",
    "grouped-query attention", "convolution with batch norm", "tied head", "tables of one row", "scalar", "dropout",
)  # fmt: skip


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in (*BUILT_IN, *MODELS)])
def test_gradients_equal_autograd(name: str) -> None:
    """Every parameter's gradient to 1e-9 of the module's largest, central differences to 1e-5 of it, at three sizes."""
    actual = trials(name)

    assert [] == [t for t in actual if not t.ok]
    assert sum(t.places for t in actual) > 0


@pytest.mark.parametrize("name", ["scalar", "two-layer", "cruncher", "layer norm"])
def test_the_three_sets_of_sizes_differ(name: str) -> None:
    """Even of a model with one size; no drawn size equals a depth, which is a number in the equations; all are small."""
    spec, actual = derived(name)
    sets = trial_sizes(actual.program, spec, {})

    assert 3 == len({tuple(at.items()) for at in sets})
    assert all(2 <= size <= 8 for at in sets for size in at.values())
    drawn = [[at[n] for n in actual.program.hints if n in at and n not in actual.program.fixed] for at in sets]
    assert drawn
    assert all(not set(sizes) & set(actual.program.fixed.values()) for sizes in drawn)


def test_sizes_that_are_all_given_are_used_again() -> None:
    """Each comparison draws other numbers there."""
    spec, actual = derived("scalar")

    assert [{"n": 3}] * 3 == trial_sizes(actual.program, spec, {"n": 3})


@pytest.mark.parametrize("attention", ["fused", pytest.param("math", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["gpt2", pytest.param("llama3-8b", marks=pytest.mark.slow)])
def test_gradients_of_a_whole_decoder_equal_autograd(name: str, attention: str) -> None:
    """Two layers of GPT-2 and of Llama, either kernel of attention."""
    compared = list(trials(name, attention))
    assert compared
    assert [] == [t for t in compared if not t.ok]


def test_a_gradient_that_vanishes_is_derived_to_be_zero() -> None:
    """A key bias moves all scores of a row alike, a convolution's bias is taken off by the batch norm."""
    assert ("kk.bias",) == derived("multi-head attention")[1].zero
    assert ("kk.bias",) == derived("grouped-query attention")[1].zero
    assert ("conv.bias",) == derived("convolution with batch norm")[1].zero
    assert () == derived("encoder layer")[1].zero  # there it is a third of in_proj_bias


def test_the_scalar_example_has_gradient_1_2_3() -> None:
    """½(x·w - 5)² at x = (1, 2, 3), w = (1, 1, 1): (x·w - 5) x = (1, 2, 3)."""
    _, actual = derived("scalar")

    loss, gradients = actual.values({"n": 3}, {("input", "0"): np.array([1.0, 2.0, 3.0]), ("parameter", "w"): np.ones(3)})

    assert 0.5 == loss
    assert [1.0, 2.0, 3.0] == gradients["w"].tolist()


def test_two_layers_cost_what_the_lecture_says() -> None:
    """2BD² + 2BDK forward; backward 4BDK + 2BD² as executed, 4BDK + 4BD² with a gradient of the input."""
    _, actual = derived("two-layer")
    B, D, K = (sp.Symbol(n, positive=True, integer=True) for n in "BDK")

    assert 0 == sp.expand(actual.forward_flops - (2 * B * D**2 + 2 * B * D * K))
    assert 0 == sp.expand(actual.backward_flops - (4 * B * D * K + 2 * B * D**2))
    assert 0 == sp.expand(actual.backward_flops_with_inputs - (4 * B * D * K + 4 * B * D**2))


def test_flops_of_equations_equal_what_a_step_executes() -> None:
    """Equal for two layers; for fused attention the difference is the repeated query keyᵀ, and is said."""
    checked = check(derived("two-layer")[1], derived("two-layer")[0])

    assert [True, True] == [f.equations == f.executed for f in checked.flops]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama3-8b", "vit-b", "resnet50"])
def test_flops_of_whole_models_equal_what_a_step_executes(name: str) -> None:
    """Where they differ, it is said why."""
    checked = check(derived(name)[1], derived(name)[0])

    assert checked.ok, checked
    assert [f.because for f in checked.flops if f.phase == "forward"] == [""]


def test_a_part_that_runs_twice_is_counted_twice() -> None:
    """As it is executed: the same layer on the same input, for two losses."""
    linear = calc.load("linear")
    twice = replace(linear, name="twice", loss=lambda m, x, y: linear.loss(m, x, y) + m(x).abs().mean())
    once, actual = calc.gradients(linear), calc.gradients(twice)

    assert 0 == sp.expand(actual.forward_flops - 2 * once.forward_flops)
    assert 0 == sp.expand(actual.backward_flops - 2 * once.backward_flops)


def test_shares_of_a_tied_weight_add_up() -> None:
    """The embedding's gradient has a share from the head and one from the reading of rows."""
    _, actual = derived("tied head")
    node = actual.parameters["embedding.weight"]

    assert 2 == len([s for s in actual.gradients.shares if s.target == node])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "options"),
    [
        ("GPT2Config", {}),
        ("LlamaConfig", {"num_key_value_heads": 8}),
        ("Qwen3Config", {}),
        ("BertConfig", {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}),
        ("OPTConfig", {"dropout": 0.0}),
        ("GPTNeoXConfig", {}),
    ],
)
def test_gradients_of_library_models_equal_autograd(tmp_path: Path, config: str, options: dict[str, Any]) -> None:
    """Hugging Face's own modules, by their config alone: a head for each."""
    transformers = pytest.importorskip("transformers")
    made = getattr(transformers, config)(**options)
    stem = config.removesuffix("Config")
    made.architectures = [{"GPT2": "GPT2LMHeadModel", "Bert": "BertForMaskedLM"}.get(stem, f"{stem}ForCausalLM")]
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout", "hidden_dropout"):
        if hasattr(made, name):
            setattr(made, name, 0.0)
    made.save_pretrained(tmp_path)
    spec = calc.load(f"hf:{tmp_path}")
    equations = calc.gradients(spec)

    assert trial(equations, spec, _sizes(equations.program, spec, 0, {}), Options(), 0).ok


class Halves(nn.Module):
    """Multiplies one half of a width by the other."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.mix = nn.Linear(n.d, n.d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.mix(x).view(x.shape[0], 2, -1).unbind(1)
        return left * right


def test_a_multiple_that_a_step_needs_is_inferred_for_equations_too() -> None:
    """Without it every size would be a number."""
    halves = Spec("halves", {"B": 3, "d": 10}, Halves, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())
    derived = calc.gradients(halves)

    assert ({}, "(2)*(d_per_2)") == (derived.program.fixed, derived.program.define["d"])
    assert check(derived, halves).ok

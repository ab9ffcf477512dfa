"""Derived equals measured, at sizes that the derivation never saw: equal integers, or products measured one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import calc
from calc.derive.result import Derivation
from calc.pipeline.check import Report
from calc.pipeline.verdict import EXACT, IN_PARTS
from calc.spec import Spec
from tests.checks import failures
from tests.derive.conftest import Derived
from tests.quick import few
from tests.trace import modules
from tests.trace.modules import spec, stack

# Ten size sets of GPT-2: distinct primes where the model allows them, a long and a short sequence, one head, heads of width
# one, sequences as long as the positions, a tiny feed-forward, equal sizes.
SETS: list[dict[str, int]] = [
    {"B": 2, "T": 37, "L": 3, "d": 33, "h": 3, "f": 13, "V": 53, "C": 41},
    {"B": 3, "T": 5, "L": 2, "d": 14, "h": 2, "f": 29, "V": 17, "C": 11},
    {"B": 5, "T": 2, "L": 4, "d": 21, "h": 7, "f": 3, "V": 11, "C": 13},
    {"B": 2, "T": 19, "L": 5, "d": 11, "h": 11, "f": 7, "V": 5, "C": 23},
    {"B": 7, "T": 13, "L": 2, "d": 17, "h": 1, "f": 5, "V": 19, "C": 13},
    {"B": 1, "T": 23, "L": 3, "d": 10, "h": 5, "f": 31, "V": 37, "C": 29},
    {"B": 11, "T": 3, "L": 7, "d": 26, "h": 13, "f": 2, "V": 7, "C": 5},
    {"B": 2, "T": 8, "L": 1, "d": 24, "h": 4, "f": 96, "V": 16, "C": 16},
    {"B": 3, "T": 1, "L": 2, "d": 15, "h": 5, "f": 11, "V": 23, "C": 7},
    {"B": 4, "T": 4, "L": 4, "d": 4, "h": 4, "f": 4, "V": 4, "C": 4},
]
WAYS = [(attention, optimizer) for attention in ("fused", "math") for optimizer in ("sgd", "adamw")]

MAY_BE_UNMEASURED = {"flops.forward.causal", "flops.backward.causal", "flops.backward.recompute"}
REPEATING = {"flops.backward.matmul", "flops.backward.total", "flops.step.total"}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads cost more than they bring at these sizes, above all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def assert_holds(report: Report) -> None:
    """Nothing failed; everything with an instrument was measured; only totals of fused products are not torch's own count."""
    assert [] == failures(report)
    assert {v.quantity for v in report.verdicts if v.verdict not in (EXACT, IN_PARTS)} <= MAY_BE_UNMEASURED
    in_parts = {v.quantity for v in report.verdicts if v.verdict == IN_PARTS}
    assert all(quantity.startswith("flops.") for quantity in in_parts)
    if report.options["attention"] == "math":
        assert in_parts == set()


def at_their_own(s: Spec, sizes: dict[str, int], **options: str) -> None:
    """Derived at the sizes and checked there."""
    result = calc.derive(s, sizes, **options)
    assert result.steps  # each is checked when it is made
    assert_holds(calc.check(result, **{name: value for name, value in sizes.items() if not s.dimensions[name].tied}))


# -- GPT-2 -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "attention", "optimizer"),
    [(1, "math", "sgd"), *(pytest.param(number, "fused", "adamw", marks=pytest.mark.slow) for number in (0, 2))],
)
def test_gpt2_is_exact_at_sizes_it_was_not_derived_for(number: int, attention: str, optimizer: str, derived: Derived) -> None:
    """One derivation at B = 8, T = 1024, d = 768; real runs of small relatives."""
    assert_holds(calc.check(derived("gpt2", optimizer, attention), **SETS[number]))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(SETS)))
@pytest.mark.parametrize(("attention", "optimizer"), WAYS)
def test_gpt2_is_exact_when_derived_at_the_sizes(number: int, attention: str, optimizer: str) -> None:
    """Those of equal sizes and sizes of 1 too, where a step may run other operators."""
    at_their_own(calc.load("gpt2"), SETS[number], attention=attention, optimizer=optimizer)


@pytest.mark.slow
@pytest.mark.parametrize(("attention", "optimizer"), WAYS)
def test_gpt2_is_exact_at_full_width(attention: str, optimizer: str, derived: Derived) -> None:
    """``napkin check gpt2 -d L=3 -d B=2 -d T=37``: 768 wide, 50257 tokens."""
    assert_holds(calc.check(derived("gpt2", optimizer, attention), L=3, B=2, T=37))


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw"])
@pytest.mark.parametrize("rate", [0.1])
def test_gpt2_with_dropout_is_exact_with_every_optimizer(optimizer: str, rate: float) -> None:
    """Fused attention is not what torch picks then; noise is saved."""
    at_their_own(calc.load(f"gpt2:dropout={rate}"), SETS[1], optimizer=optimizer)


# -- the other built-in models ---------------------------------------------------------------------------------------------

BUILT_IN = {
    "linear": [{"B": 2, "D": 11, "K": 13}, {"B": 1, "D": 5, "K": 3}, {"B": 7, "D": 7, "K": 7}, {"B": 1, "D": 1, "K": 1}],
    "two-layer": [{"B": 2, "D": 11, "K": 13}, {"B": 5, "D": 1, "K": 3}, {"B": 1, "D": 7, "K": 7}],
    "mlp": [{"B": 2, "d": 11, "f": 13, "K": 3}, {"B": 1, "d": 5, "f": 2, "K": 17}, {"B": 3, "d": 3, "f": 12, "K": 3}],
    "cruncher": [{"B": 2, "D": 4, "L": 2}, {"B": 5, "D": 3, "L": 7}, {"B": 1, "D": 7, "L": 3}, {"B": 4, "D": 4, "L": 4}],
}


@pytest.mark.parametrize(("name", "sizes"), [(name, sets[0]) for name, sets in BUILT_IN.items()])
def test_a_built_in_model_is_exact(name: str, sizes: dict[str, int], derived: Derived) -> None:
    """With the optimizer of its reports."""
    result = derived(name, "spec" if name == "cruncher" else "adamw")

    assert_holds(calc.check(result, **sizes))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sizes"), [(name, sizes) for name, sets in BUILT_IN.items() for sizes in sets])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw"])
def test_a_built_in_model_is_exact_with_every_optimizer_at_every_kind_of_sizes(name: str, sizes: dict[str, int], optimizer: str) -> None:
    """Single and coinciding sizes among them."""
    at_their_own(calc.load(name), sizes, optimizer=optimizer)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", BUILT_IN["cruncher"], ids=str)
def test_the_lectures_optimizer_is_exact(sizes: dict[str, int]) -> None:
    """The Cruncher with its own AdaGrad."""
    at_their_own(calc.load("cruncher"), sizes, optimizer="spec")


# -- traits, one module each ----------------------------------------------------------------------------------------------------

TRAITS: dict[str, tuple[Spec, dict[str, int]]] = {
    "shared": (spec(lambda n: modules.Nested(n.d)), {"B": 5, "d": 11}),
    "tied": (modules.tied(), {"B": 5, "V": 13, "d": 3}),
    "frozen": (spec(lambda n: nn.Sequential(nn.Linear(n.d, n.d).requires_grad_(False), nn.Linear(n.d, 5))), {"B": 2, "d": 13}),
    "buffers": (spec(lambda n: modules.Buffered(n.d)), {"B": 5, "d": 11}),
    "dropout": (spec(lambda n: nn.Sequential(nn.Linear(n.d, n.d), nn.Dropout(0.25), nn.Linear(n.d, n.d))), {"B": 5, "d": 11}),
    "norms": (spec(lambda n: nn.Sequential(nn.Linear(n.d, n.d), nn.LayerNorm(n.d), nn.RMSNorm(n.d))), {"B": 5, "d": 11}),
    "stack": (stack(), {"B": 5, "d": 11, "L": 6}),
    "convolution": (
        spec(
            lambda n: nn.Sequential(nn.Conv2d(3, n.d, 3, padding=1), nn.BatchNorm2d(n.d), nn.ReLU(), nn.Conv2d(n.d, 5, 3)),
            dims={"B": 2, "d": 7, "H": 11},
            inputs=lambda n: (torch.randn(n.B, 3, n.H, n.H),),
        ),
        {"B": 3, "d": 5, "H": 13},
    ),
}


@pytest.mark.parametrize("name", few(TRAITS, 2))
def test_a_trait_is_exact(name: str) -> None:
    """Derived at one set of sizes, run at another."""
    s, sizes = TRAITS[name]

    assert_holds(calc.check(calc.derive(s, cache=False), **sizes))


@pytest.mark.slow
@pytest.mark.parametrize("L", [1, 2, 3, 11])
def test_a_stack_is_exact_at_every_depth(L: int) -> None:
    """Below and above those traced."""
    at_their_own(stack(), {"B": 3, "d": 7, "L": L})


@pytest.mark.slow
@pytest.mark.parametrize("T", [3, 7, 13])
def test_a_recurrence_is_exact_at_every_length(T: int) -> None:
    """T iterations of one cell."""
    from tests.trace.test_loops import Recurrent

    s = spec(Recurrent, dims={"B": 3, "T": 5, "d": 7}, inputs=lambda n: (torch.randn(n.B, n.T, n.d),))

    at_their_own(s, {"B": 2, "d": 11, "T": T})


# -- Hugging Face ----------------------------------------------------------------------------------------------------------------

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 61,
    "max_position_embeddings": 32,
    "tie_word_embeddings": False,
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "n_embd": 24,
    "n_head": 6,
    "n_layer": 2,
    "n_positions": 32,
    "vocab_size": 61,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}


def config(tmp_path: Path, values: dict[str, Any]) -> Spec:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(values))
    return calc.load(f"hf:{file}")


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["fused", "math"])
@pytest.mark.parametrize(
    "values",
    [LLAMA, {**LLAMA, "tie_word_embeddings": True}, {**LLAMA, "head_dim": 10}, {**LLAMA, "num_key_value_heads": 6}, GPT2],
    ids=["llama", "tied", "own head width", "no groups", "gpt2"],
)
def test_a_hugging_face_model_is_exact(values: dict[str, Any], attention: str, tmp_path: Path) -> None:
    """Grouped heads, tied and untied heads, a head width of its own; B = 3, T = 11, then one more layer."""
    s = config(tmp_path, values)
    result: Derivation = calc.derive(s, {"B": 3, "T": 11}, cache=False, attention=attention)

    assert_holds(calc.check(result, B=3, T=11))
    assert_holds(calc.check(result, B=2, T=7, L=4))


FEW = [{"B": 64, "D": 32, "L": 2}, {"B": 5, "D": 3, "L": 2}, {"B": 3, "D": 5, "L": 2}, {"B": 64, "D": 32, "L": 3}]


@pytest.mark.parametrize("sizes", FEW, ids=str)
def test_a_peak_candidate_that_few_layers_lack_is_no_peak_there(sizes: dict[str, int]) -> None:
    """The first step's gradients reach a middle layer only where there are three: with two, what would be live then is never live,
    and it would be the most where B is larger than D."""
    at_their_own(calc.load("cruncher"), sizes, optimizer="sgd")

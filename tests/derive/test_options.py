"""What options and sizes change, and what they leave."""

from __future__ import annotations

import pytest
import sympy as sp

import calc
from calc.derive.result import Derivation
from calc.errors import BadInputError, DimensionError
from calc.graph.step import Graph
from calc.options import OPTIMIZERS
from tests.derive.conftest import Derived
from tests.derive.models import at

# Bytes of state for each of N parameters in n tensors.
STATE = {
    "sgd": lambda N, n: 0,
    "momentum": lambda N, n: 4 * N,
    "adagrad": lambda N, n: 4 * N + 4 * n,
    "rmsprop": lambda N, n: 4 * N + 4 * n,
    "adam": lambda N, n: 8 * N + 4 * n,
    "adamw": lambda N, n: 8 * N + 4 * n,
}


@pytest.mark.parametrize("optimizer", STATE)
def test_an_optimizer_keeps_so_many_bytes_a_parameter(optimizer: str, derived: Derived) -> None:
    """The classifier of two layers has d f + f + f K + K parameters in 4 tensors: 7*11 + 11 + 11*5 + 5 = 148."""
    result = derived("mlp", optimizer)

    assert result["optimizer_state.bytes"].at(B=3, d=7, f=11, K=5) == STATE[optimizer](148, 4)


@pytest.mark.parametrize("optimizer", STATE)
def test_an_optimizer_changes_neither_forward_nor_backward(optimizer: str, derived: Derived) -> None:
    """Nor what autograd saves."""
    one, other = derived("mlp", optimizer), derived("mlp", "adamw")

    for quantity in one:
        if quantity.startswith(("flops.forward", "flops.backward", "bytes_moved.forward", "bytes_moved.backward", "activations")):
            assert one[quantity].text == other[quantity].text


def test_the_options_are_stated_with_the_result(derived: Derived) -> None:
    """Those given and those by default."""
    assert {"optimizer": "sgd", "precision": "fp32", "attention": "math", "mode": "train"} == dict(derived("gpt2", "sgd", "math").options)


def test_an_option_of_a_graph_is_the_graphs() -> None:
    """A trace is of one optimizer; deriving it says which."""
    graph = calc.trace(calc.load("linear"), optimizer="momentum", cache=False)

    assert calc.derive(graph).options["optimizer"] == "momentum"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("precision", "fp32-tf32", r"^precision 'fp32-tf32' is not built yet: use fp32, bf16-autocast, fp16-autocast, bf16, bf16-master$"),
        ("checkpointing", "half", r"^unknown checkpointing 'half': use none, block, block/2 \(every second block\) or attention$"),
        ("accumulation", "0", r"^accumulation = 0 is not a count: give an integer from 1 to 64$"),
        ("mode", "dream", r"^unknown mode 'dream': use one of train, eval, infer$"),
        ("optimizer", "lion", rf"^unknown optimizer 'lion': use one of {', '.join(OPTIMIZERS)}$"),
    ],
)
def test_options_that_are_not_there_are_refused(option: str, value: str, message: str) -> None:
    """Those planned by name."""
    with pytest.raises(BadInputError, match=message):
        calc.derive(calc.load("linear"), **{option: value})


# -- sizes -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def gpt2(derived: Derived) -> Derivation:
    return derived("gpt2")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return calc.trace(calc.load("mlp"), cache=False)


def test_a_default_that_is_an_expression_follows(graph: Graph) -> None:
    """f = 4*d: setting d to 13 makes f 52."""
    result = calc.derive(graph, {"d": 13})

    assert {"B": 128, "d": 13, "f": 52, "K": 10} == result.sizes
    assert result["parameters"].value == 13 * 52 + 52 + 52 * 10 + 10
    assert result["parameters"].at(d=17) == 17 * 68 + 68 + 68 * 10 + 10


def test_a_size_that_is_given_stays_where_it_was_put(graph: Graph) -> None:
    """f = 7 whatever d is."""
    result = calc.derive(graph, {"d": 13, "f": 7})

    assert result["parameters"].value == 13 * 7 + 7 + 7 * 10 + 10
    assert result["parameters"].at(d=17) == 17 * 7 + 7 + 7 * 10 + 10
    assert result["parameters"].at(d=17, f=11) == 17 * 11 + 11 + 11 * 10 + 10


def test_a_tied_size_always_follows(gpt2: Derivation) -> None:
    """k = d/h: 1536 / 12 = 128, and the head width never enters a parameter count."""
    assert gpt2["parameters"].at(d=1536) == 50257 * 1536 + 1024 * 1536 + 12 * (12 * 1536**2 + 13 * 1536) + 2 * 1536
    assert gpt2.sizes["k"] == 64
    with pytest.raises(DimensionError, match=r"^k cannot be set"):
        gpt2["parameters"].at(k=32)


def test_values_change_and_expressions_do_not(graph: Graph) -> None:
    """``-d`` sets values; ``expr`` stays symbolic, and the derivation at other values is ``at`` of the first."""
    one, other = calc.derive(graph), calc.derive(graph, {"B": 7, "d": 13, "f": 29, "K": 3})

    assert {n: one[n].text for n in one if not one[n].candidates} == {n: other[n].text for n in other if not other[n].candidates}
    assert {n: other[n].value for n in other} == at(one, {"B": 7, "d": 13, "f": 29, "K": 3})


def test_the_peak_candidates_are_the_same_at_all_sizes(graph: Graph) -> None:
    """Only which of them is the largest changes."""
    one, other = calc.derive(graph), calc.derive(graph, {"B": 2, "d": 1009, "f": 1013, "K": 3})

    assert {c.expr for c in one["memory.peak"].candidates} == {c.expr for c in other["memory.peak"].candidates}
    assert one["memory.peak"].candidates[0].expr != other["memory.peak"].candidates[0].expr


def test_very_large_sizes_are_exact(gpt2: Derivation) -> None:
    """Far beyond 2**53 and 2**64: no float is in the way. 24 B T d² L + 4 B T² d L + 2 B T d V at a million of everything."""
    n = 10**6
    value = gpt2["flops.forward.matmul"].at(B=n, T=n, C=n, d=12 * n, f=48 * n, L=n, V=n)
    d = 12 * n

    assert value == n * (24 * n * n * d**2 + 4 * n * n**2 * d) + 2 * n * n * d * n


def test_dimensions_say_what_they_mean(gpt2: Derivation) -> None:
    """The symbol table of the report: meaning, value, and the expression of those that follow."""
    table = {dim.name: (dim.meaning, dim.value, dim.expr) for dim in gpt2.dims}

    assert table["B"] == ("batch size", 8, None)
    assert table["f"] == ("feed-forward width", 3072, "4*d")
    assert table["k"] == ("head width", 64, "d/h")


def test_expressions_in_parentheses_expand_to_the_text(gpt2: Derivation) -> None:
    """``text`` is what SymPy prints of an expanded polynomial, up to order."""
    expanded = [name for name in gpt2 if gpt2[name].text is not None and not gpt2[name].candidates]
    assert "flops.forward.matmul" in expanded
    for name in expanded:
        assert sp.expand(gpt2[name].expr) == gpt2[name].expr

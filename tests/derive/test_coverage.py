"""The ledger of a traced step against what was derived from it: nothing is left out, and nothing is counted twice."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

import calc
from calc.derive.closed_forms import derive
from calc.derive.result import Derivation
from calc.errors import NapkinError, RefusedOperatorError, UnknownOperatorError
from calc.graph.step import Graph
from calc.rules.registry import REGISTRY, Cost, Operator, Registry
from calc.spec import Spec
from calc.symbolic.algebra import to_sympy
from tests.rules.mutate import with_rule, without

SIZES = {"B": 3, "d": 5, "f": 7, "L": 11}


class Layers(nn.Module):
    """The requested number of layers, and one more of another width at the end."""

    def __init__(self, depth: int, width: int, inner: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(width, inner), nn.Tanh(), nn.Linear(inner, width)) for _ in range(depth))
        self.head = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return torch.tanh(self.head(x))


@pytest.fixture(scope="module")
def graph() -> Graph:
    spec = Spec("layers", SIZES, lambda n: Layers(n.L, n.d, n.f), lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())
    return calc.trace(spec, optimizer="sgd", cache=False)


@pytest.fixture(scope="module")
def result(graph: Graph) -> Derivation:
    return calc.derive(graph)


def test_the_ledger_of_an_accepted_derivation_leaves_nothing_out(result: Derivation) -> None:
    """0 operators, 0 calls, 0 FLOPs are not counted."""
    assert result.ledger.accepted
    assert () == result.ledger.of("refused")
    assert 0 == result.ledger.calls_of("refused")


def test_the_flops_of_all_operators_are_those_of_the_step(result: Derivation) -> None:
    """Matrix multiplications and elementwise work of all phases, each under one operator."""
    assert result["flops.step.total"].value == result.ledger.flops
    assert result["flops.step.total"].expr.equals(sum(to_sympy(row.flops) for row in result.coverage))


def test_calls_in_closed_form_are_those_of_a_trace(graph: Graph, result: Derivation) -> None:
    """At the depths of the certificates, which no closed form was made from."""
    assert graph.certificates
    for trace in graph.certificates[:2]:
        executed = Counter(op.name for op in trace.ops if op.step == 2)
        at = graph.as_basis().sizes(trace.sizes)

        assert executed == {row.operator: row.value for row in derive(graph, at).coverage}


def test_a_layers_operator_runs_in_every_layer(result: Derivation) -> None:
    """Two products in each layer and the head's; a tanh in each layer and one at the end."""
    runs = {row.operator: (row.runs, row.value) for row in result.coverage}

    assert ("2*L + 1", 23) == runs["aten.addmm.default"]
    assert ("L + 1", 12) == runs["aten.tanh.default"]


# -- refusals -----------------------------------------------------------------------------------------------------------


def refusal(graph: Graph, registry: Registry, sizes: dict[str, int] | None = None) -> RefusedOperatorError:
    with pytest.raises(RefusedOperatorError) as raised:
        derive(graph, sizes, registry)
    return raised.value


def test_every_operator_without_a_rule_is_named_with_module_path_calls_and_shapes(graph: Graph) -> None:
    """The one in the forward and the one in the backward, though the first alone would refuse the step."""
    error = refusal(graph, without(without(REGISTRY, "aten.tanh.default"), "aten.tanh_backward.default"))

    assert isinstance(error, UnknownOperatorError)
    assert str(error).startswith(
        "no cost rule for 2 operators: aten.tanh.default at layers.*.1, inputs: self (B, f) float32, L times (11),"
        " and at 1 more module path, L + 1 times (12) in all; aten.tanh_backward.default at (model), inputs: grad_output (B, 1) float32,"
        " output (B, 1) float32, once, and at 1 more module path, L + 1 times (12) in all. Not counted: 24 of "
    )
    assert "\n" not in str(error)


def test_a_refusal_carries_the_whole_ledger(graph: Graph, result: Derivation) -> None:
    """The calls of all operators as they would be, the FLOPs of all but the refused one."""
    ledger = refusal(graph, without(REGISTRY, "aten.addmm.default")).ledger
    known = {row.operator: row for row in result.coverage}

    assert ledger is not None
    assert not ledger.accepted
    assert ["aten.addmm.default"] == [row.operator for row in ledger.of("refused")]
    assert {row.operator: row.value for row in result.coverage} == {row.operator: row.value for row in ledger.rows}
    assert all(row.flops_value == known[row.operator].flops_value for row in ledger.rows if row.kind != "refused")
    assert None is ledger.flops
    assert {("head", 1), ("layers.*.0", 11), ("layers.*.2", 11)} == {(p.module_path, p.value) for p in ledger.of("refused")[0].places}


def test_a_refusal_is_reported_at_the_requested_sizes(graph: Graph) -> None:
    """Depth 2 has 5 products."""
    error = refusal(graph, without(REGISTRY, "aten.addmm.default"))
    assert error.at is not None
    moved = error.at({**SIZES, "L": 2})

    assert isinstance(moved, UnknownOperatorError)
    assert "2*L + 1 times (5) in all" in str(moved)


def test_a_call_that_its_rule_does_not_fit_is_refused_with_its_place(graph: Graph) -> None:
    """The rule is there; it does not take a width of f."""

    def particular(op: Operator) -> Cost:
        if op.out.shape[-1] != 1:
            raise NapkinError(f"{op.name} takes one column only.")
        return REGISTRY.rules["aten.tanh.default"].function(op)

    error = refusal(graph, with_rule(REGISTRY, "aten.tanh.default", particular))

    assert not isinstance(error, UnknownOperatorError)
    assert str(error).startswith("aten.tanh.default takes one column only (at layers.*.1, inputs: self (B, f) float32, L times (11)). Not")
    assert error.ledger is not None
    assert [("counted", 1), ("refused", 11)] == [(r.kind, r.value) for r in error.ledger.rows if r.operator == "aten.tanh.default"]

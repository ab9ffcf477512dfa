"""Assumptions of a traced step at other sizes: each is a true statement there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.dimensions import Dim
from calc.graph.guards import BRANCH, SPECIAL_CASE, Assumption, TracedDim, assumed
from calc.graph.unbacked_sizes import assumptions
from calc.spec import Spec
from calc.symbolic.exact import holds
from reports.typeset.wording import declared, in_words, undivided


@pytest.mark.parametrize(
    ("expr", "sizes", "words"),
    [
        ("V <= 50283", {"V": 50281}, "V ≤ 50283"),
        ("V <= 50283", {"V": 50368}, "V > 50283"),
        ("Eq(Mod(h, 2), 1)", {"h": 8}, "Mod(h, 2) ≠ 1"),
        ("not (B == 7)", {"B": 7}, "B = 7"),
        ("the step is a polynomial in k", {"k": 3}, "the step is a polynomial in k"),
        ("k <= 256", {"d": 3}, "k ≤ 256"),
    ],
)
def test_an_assumption_that_fails_at_the_sizes_is_negated(expr: str, sizes: dict[str, int], words: str) -> None:
    """A sentence, and a guard on what is no size, stay as they are."""
    assert in_words(Assumption(expr, "a line").at(sizes).expr) == words


def test_a_declared_divisor_is_an_assumption_with_its_reason() -> None:
    """14 = 3·4 + 2 layers: 3 divides L − 2, not L. A divisor without a reason is declared by the spec."""
    because = "layers repeat in patterns of 3"
    dims = {"L": Dim(14, multiple_of=3, plus=2, because=because), "d": Dim(8, multiple_of=4)}
    spec = Spec("threshold", dims, Threshold, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())

    assert [Assumption("Eq(Mod(L - 2, 3), 0)", because)] == assumptions(spec)
    assert "3 divides L - 2" == in_words("Eq(Mod(L - 2, 3), 0)")
    assert holds("Eq(Mod(L - 2, 3), 0)", {"L": 14})
    assert not holds("Eq(Mod(L, 3), 0)", {"L": 14})


def test_a_divisor_that_only_the_dimensions_state_is_said_once() -> None:
    """With the remainder that they have; one that is a dimension splits the size, a number is the spec's."""
    dims = [
        TracedDim("L", "layers", 14, multiple_of=3, plus=2),
        TracedDim("d", "width", 8, multiple_of="h"),
        TracedDim("n", "one", 3, multiple_of=1),
    ]
    written = [Assumption("Eq(Mod(L - 2, 3), 0)", "layers repeat in patterns of 3")]
    own = Assumption("Eq(Mod(d, h), 0)", "d is split into equal parts")

    assert [Assumption("Eq(Mod(L - 2, 3), 0)", "the model's spec declares it"), own] == [*declared(dims, [])]
    assert [own] == [*declared(dims, written)]


def test_what_attention_as_a_whole_is_stands_where_its_row_does() -> None:
    """Saved bytes of a fused kernel belong to no line of attention."""
    assert undivided(["softmax", "attention"]).startswith("attention: what query keyᵀ, softmax and probs value share")
    assert undivided(["softmax", "attention output"]) == ""


class Threshold(nn.Module):
    """Asks for its width, and computes the same on both sides."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(n.d, n.d)
        self.is_wide = bool(n.d > 90)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        return y


def test_no_derivation_states_an_assumption_that_is_false_at_its_sizes() -> None:
    """Of a step traced on one side of a comparison, and derived on the other, where a certificate covers it."""
    spec = Spec("threshold", {"B": 5, "d": 11}, Threshold, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())
    for width in (11, 101):
        statements = [in_words(a.expr) for a in calc.derive(spec, {"d": width}).assumptions]
        assert [("d > 90" if width > 90 else "d ≤ 90")] == [text for text in statements if "90" in text]


class Halved(nn.Module):
    """Splits its width in two, and branches on the whole."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.linear(x).chunk(2, -1)
        return first * second if x.shape[-1] <= 256 else first + second


def test_a_size_that_the_trace_splits_is_stated_whole() -> None:
    """d <= 256, also in JSON: the trace knows d as twice a half."""
    dims = {"B": 5, "d": Dim(14, multiple_of=2)}
    spec = Spec("halved", dims, Halved, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())

    assert ["d <= 256"] == [a.expr for a in calc.derive(spec).assumptions if "256" in a.expr]


def test_no_guard_of_the_general_graph_that_fails_in_a_special_case_is_stated_there() -> None:
    """Another graph was traced for the case. Where none is in force, the guard is stated as it is, and a certificate covers it."""
    case = Assumption("the closed forms have a special case where T = 4", "a branch", SPECIAL_CASE)
    stated = (Assumption("T >= 5", "a branch", BRANCH), Assumption("d >= 3", "a branch", BRANCH), case)
    inside, outside = (assumed(stated, {"T": 4, "d": 8}, in_case) for in_case in (True, False))

    assert ["d >= 3", case.expr] == [a.expr for a in inside]
    assert ["not (T >= 5)", "d >= 3"] == [a.expr for a in outside]

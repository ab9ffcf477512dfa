"""A branch on sizes is taken as at the requested sizes: the number is right at them, or it is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.dimensions import Dim
from calc.errors import NapkinError
from tests.checks import failures
from tests.trace.modules import Attention, function, spec

# What each of these adds to 2*B*d - 1 (a product with the weight, and the sum): B*d for a negation where it is taken.
ELEMENTWISE = "flops.forward.elementwise"
Branch = Callable[[Tensor], Tensor]


def if_odd(x: Tensor) -> Tensor:
    if x.shape[0] % 2 == 1:
        return -x
    return x


def if_wide(x: Tensor) -> Tensor:
    if x.shape[1] > x.shape[0]:
        return -x
    return x


def if_equal(x: Tensor) -> Tensor:
    if x.shape[1] == x.shape[0]:
        return -x
    return x


def if_one(x: Tensor) -> Tensor:
    if x.shape[0] == 1:
        return -x
    return x


def if_large(x: Tensor) -> Tensor:
    if x.shape[0] > 100:
        return -x
    return x


def if_small(x: Tensor) -> Tensor:
    if x.shape[0] <= 2:
        return -x
    return x


TAKEN: dict[Branch, Callable[[int, int], bool]] = {
    if_odd: lambda B, d: B % 2 == 1,
    if_wide: lambda B, d: d > B,
    if_equal: lambda B, d: d == B,
    if_one: lambda B, d: B == 1,
    if_large: lambda B, d: B > 100,
    if_small: lambda B, d: B <= 2,
}


def elementwise(of: Branch, B: int, d: int) -> int:
    return 2 * B * d - 1 + (B * d if TAKEN[of](B, d) else 0)


def number(value: Callable[[], Any]) -> Any:
    """What there is, or the words of the refusal."""
    try:
        return value()
    except NapkinError as error:
        return str(error)


def right_or_refused(value: Callable[[], int | None], expected: int) -> bool:
    """Whether there is a number, which is then the right one; a refusal is one line."""
    outcome = number(value)
    if isinstance(outcome, str):
        assert "\n" not in outcome
        return False
    assert outcome == expected
    return True


SIZES = [(3, 7), (8, 5), (1, 1), (7, 3), (4, 7), (5, 5), (1, 7), (2, 7), (101, 7), (127, 131)]


SOME = (if_large,)


@pytest.mark.parametrize("of", [pytest.param(of, id=of.__name__, marks=[] if of in SOME else [pytest.mark.slow]) for of in TAKEN])
def test_a_branch_on_sizes_gives_the_right_number_or_none(of: Branch) -> None:
    """At the sizes derived for, and at all others that the result is evaluated at: a negation more where it is taken, never a guess."""
    given = 0
    for B, d in SIZES[:3]:
        result = number(functools.partial(calc.derive, function(of, dims={"B": B, "d": d}), cache=False, mode="infer"))
        if not right_or_refused(lambda result=result: result[ELEMENTWISE].value, elementwise(of, B, d)):
            continue
        given += sum(right_or_refused(functools.partial(result[ELEMENTWISE].at, B=b, d=e), elementwise(of, b, e)) for b, e in SIZES)

    assert given > 0 or of in (if_large, if_small)  # these change among the sizes of certificates


@pytest.mark.parametrize("of", [if_odd, if_wide], ids=lambda of: of.__name__)
def test_another_branch_is_traced_where_the_spec_is_at_hand(of: Branch) -> None:
    """Traced at B = 3, d = 7, requested at B = 8: the other branch, and its number."""
    result = calc.derive(function(of), cache=False, mode="infer")

    assert result[ELEMENTWISE].at(B=8) == elementwise(of, 8, 7)


@pytest.mark.parametrize("of", [if_odd, if_wide], ids=lambda of: of.__name__)
def test_a_graph_without_its_spec_names_the_guard_and_its_line(of: Branch) -> None:
    """It cannot be traced at B = 8, where another branch is taken."""
    result = calc.derive(calc.trace(function(of), cache=False, mode="infer"))

    with pytest.raises(NapkinError) as refusal:
        result[ELEMENTWISE].at(B=8)

    assert "test_guards.py:" in str(refusal.value)
    assert f"if x.shape[{0 if of is if_odd else 1}]" in str(refusal.value)


@pytest.mark.parametrize("of", [if_odd, if_wide], ids=lambda of: of.__name__)
def test_a_branch_on_sizes_is_a_stated_assumption(of: Branch) -> None:
    """B is odd, or d is larger than B: the reader must know."""
    result = calc.derive(function(of), cache=False, mode="infer")

    assert any("test_guards.py:" in a.because or "test_guards.py:" in a.expr for a in result.assumptions)


def test_a_boolean_read_from_constants_is_evaluated_and_stated() -> None:
    """Squares of positions depend on sizes alone, so the branch is the one a real run takes; the assumption names its line."""

    def squares(x: Tensor) -> Tensor:
        positions = torch.arange(x.shape[1])
        if (positions * positions >= 0).all():
            return x
        return -x

    result = calc.derive(function(squares), cache=False, mode="infer")
    (assumption,) = (a for a in result.assumptions if "value read at" in a.expr)

    assert "test_guards.py:" in assumption.expr
    assert "if (positions * positions >= 0).all() is" in assumption.expr
    # no negation: w * x and the sum, and d squares
    assert result[ELEMENTWISE].value == 3 * 7 + 3 * 7 - 1 + 7


def test_what_a_model_demands_of_its_sizes_is_no_reason_to_refuse_it() -> None:
    """It asserts that d is odd: it is, and where it is not, there is no number."""

    def demands(x: Tensor) -> Tensor:
        assert x.shape[1] % 2 == 1, "odd widths only"
        return x

    result = calc.derive(function(demands), cache=False, mode="infer")

    assert result[ELEMENTWISE].at(d=13) == 2 * 3 * 13 - 1
    assert isinstance(number(functools.partial(result[ELEMENTWISE].at, d=8)), str)


def test_a_declared_multiple_needs_no_assumption() -> None:
    """d = h*k is divisible by h by construction."""
    heads = spec(
        lambda n: Attention(n.d, n.h),
        dims={"B": 3, "T": 5, "d": calc.Dim(12, multiple_of="h"), "h": 3},
        inputs=lambda n: (torch.randn(n.B, n.T, n.d),),
    )

    assert calc.derive(heads, cache=False, mode="infer").assumptions == ()


def test_half_of_a_size_that_is_declared_even_is_exact() -> None:
    """d = 2 κ: a rotation of halves runs on d/2 columns."""

    def halves(x: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=-1)
        return torch.cat((-b, a), dim=-1)

    result = calc.derive(function(halves, dims={"B": 3, "d": calc.Dim(10, multiple_of=2)}), cache=False, mode="infer")

    # product, negation of half of it, sum: B d + B d/2 + B d - 1
    assert result[ELEMENTWISE].at(B=5, d=14) == 5 * 14 + 5 * 7 + 5 * 14 - 1
    with pytest.raises(NapkinError, match="d = 7 is not divisible by 2"):
        result[ELEMENTWISE].at(d=7)


def test_half_of_a_size_that_may_be_odd_is_right_or_refused() -> None:
    """x[:, : d//2] at even and at odd widths: floor(d/2) columns."""

    def first_half(x: Tensor) -> Tensor:
        return -x[:, : x.shape[1] // 2]

    result = calc.derive(function(first_half), cache=False, mode="infer")

    for d in (7, 8, 13, 2, 3):
        half = d // 2
        right_or_refused(functools.partial(result[ELEMENTWISE].at, d=d), 3 * d + 3 * half + 3 * half - 1)
    assert result[ELEMENTWISE].value == 3 * 7 + 3 * 3 + 3 * 3 - 1


def test_numbers_in_steps_of_a_quotient_are_as_many_as_torch_makes() -> None:
    """4/d is a double: of d = 196 there are 50 such numbers below 1, not 49. Everywhere else here there are d/4."""

    def fractions(x: Tensor) -> Tensor:
        return x[:, :1] * torch.arange(0, 1, 4 / x.shape[1])

    result = calc.derive(function(fractions, dims={"B": 3, "d": Dim(16, multiple_of=4)}), cache=False, mode="infer")

    assert not result.specialized
    for d in (16, 4, 64, 196, 392, 500):
        fractions_below_one = len(torch.arange(0, 1, 4 / d))
        assert 3 * d + 6 * fractions_below_one - 1 == result[ELEMENTWISE].at(d=d)


class Smeared(nn.Module):
    """Distances to some places on a line, weighed for each of ``d`` values and ``k`` results."""

    def __init__(self, d: Any, k: Any, g: Any, places: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(k, d, g))
        self.places = nn.Buffer(places(g))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("big,oig->bo", (x.unsqueeze(-1) - self.places).square().neg().exp(), self.weight)


@pytest.mark.parametrize(
    ("places", "read"),
    [
        pytest.param(lambda g: torch.linspace(-1, 1, g), False, marks=pytest.mark.slow),
        (lambda g: torch.tensor([i / g for i in range(g)]), True),
    ],
    ids=["by a function", "one by one"],
)
def test_what_is_divided_by_iterations_is_no_guard_on_that_number(places: Callable[[Any], Tensor], read: bool) -> None:
    """A width that is read as a number is 3 in one trace, so that torch tests of a layout whether 3*k//g is 1. With k = 5 and g = 13
    that is so of 3, and never of the 13 that stand in its place. A function that builds a line of g places reads no number at all."""

    def build(n: Any) -> nn.Module:
        return nn.Sequential(Smeared(n.d, n.k, n.g, places), Smeared(n.k, n.d, n.g, places))

    line = spec(build, dims={"B": 7, "d": 11, "k": 5, "g": 13})
    result = calc.derive(line, cache=False, optimizer="sgd")

    assert read == bool(calc.trace(line, cache=False, optimizer="sgd").loops)
    assert 2 * 5 * 11 * 13 == result["parameters"].value
    assert [] == failures(calc.check(result))


def by_row(x: Tensor) -> Tensor:
    rows = torch.cat([x[:, i] + x[:, 0] for i in range(x.shape[1])])
    return rows.sum() if rows.shape[0] == x.shape[1] else rows.relu().sum()


def test_a_length_compared_with_iterations_is_compared_with_its_own() -> None:
    """With n iterations, n*B rows are compared with T: at T = n*B there are other rows, T*B, and only one batch has as many as T."""
    graph = calc.trace(function(by_row, dims={"B": 3, "d": 11}), cache=False, mode="infer")

    assert {"d"} == {*graph.loops}
    assert [] == [guard.expr for n in range(2, 8) for guard in graph.failed_guards({"B": 3, "d": 3 * n})]
    assert "d*B == d" in [guard.expr for guard in graph.failed_guards({"B": 1, "d": 11})]


class Turning(nn.Module):
    """A layer several times, on the negated input depending on a guard about rows and iterations."""

    def __init__(self, n: Any, asked: Callable[[Any, Any], bool]) -> None:
        super().__init__()
        self.layer, self.g, self.asked = nn.Linear(n.d, n.d), n.g, asked

    def forward(self, x: Tensor) -> Tensor:
        x = -x if self.asked(x.shape[0], self.g) else x
        for _ in range(self.g):
            x = self.layer(x)
        return x


@pytest.mark.parametrize(
    ("asked", "same", "other", "because"),
    [
        (lambda B, g: B // g == 1, ((7, 3), (5, 3), (100, 50)), (5, 5), "floor((B)/(g)) == 1 is True there"),
        (lambda B, g: g // 10 == 0, ((7, 4), (5, 9)), (7, 13), "floor((g)/(10)) == 0 is False there"),
    ],
    ids=["rows", "iterations alone"],
)
@pytest.mark.slow
def test_a_branch_on_a_quotient_with_iterations_stays_one(
    asked: Callable[[Any, Any], bool], same: tuple[tuple[int, int], ...], other: tuple[int, int], because: str
) -> None:
    """Of 7 rows for 3 iterations there are two for each, of 5 for 5 one: another path, and not the one of 5 rows for 3. That 3 and 4
    iterations alike are fewer than 10 says nothing of 13. On another path the iterations are a number."""

    def turning(B: int, g: int) -> Any:
        return spec(lambda n: Turning(n, asked), dims={"B": B, "d": 11, "g": g})

    assert same
    for B, g in (*same, other):
        result = calc.derive(turning(B, g), cache=False, optimizer="sgd")
        assert [] == failures(calc.check(result))
    assert because in result.specialization_reasons["g"]


def test_branches_that_follow_from_a_least_size_are_listed_as_that_size() -> None:
    """A model that predicts each token but the first has T - 1 of them, which torch compares with 1 in every product: that is T ≥ 3."""

    def of(x: Tensor) -> Tensor:
        shifted = (x[:, :-1] * 2).transpose(0, 1).contiguous()
        return shifted.softmax(0).expand(*shifted.shape)

    sequences = function(of, dims={"B": 3, "d": 5, "T": 19}, inputs=lambda n: (torch.randn(n.B, n.T, n.d),))
    listed = [a.expr for a in calc.derive(sequences, optimizer="sgd", cache=False).assumptions if "the step branches on it" in a.because]
    assert listed == ["T >= 3"]


def test_a_branch_that_does_not_follow_is_listed_as_the_step_has_it() -> None:
    def of(x: Tensor) -> Tensor:
        return -x if x.shape[0] > 4 and x.shape[1] < 1000 and x.shape[0] > x.shape[1] - 900 else x

    derivation = calc.derive(function(of, dims={"B": 19, "d": 7}), optimizer="sgd", cache=False)
    listed = [a.expr for a in derivation.assumptions if "the step branches on it" in a.because]
    assert listed == ["B > 4", "d < 1000", "B > (-900 + d)"]


def listed_branches(of: Branch) -> list[str]:
    """The assumptions of a function of (B, T, d) about sizes on which the step branches."""
    sequences = function(of, dims={"B": 3, "d": 5, "T": 67}, inputs=lambda n: (torch.randn(n.B, n.T, n.d),))
    return [a.expr for a in calc.derive(sequences, optimizer="sgd", cache=False).assumptions if "the step branches on it" in a.because]


def test_branches_that_follow_from_a_rounded_size_are_listed_as_its_least_value() -> None:
    """A layer that keeps an eighth of the tokens, at least one: torch compares T // 8 with 1 in every product, and the layer does so."""

    def of(x: Tensor) -> Tensor:
        shorter = (x[:, : max(1, x.shape[1] // 8)] * 2).transpose(0, 1).contiguous()
        return shorter.softmax(0).expand(*shorter.shape)

    assert listed_branches(of) == ["floor(T/8) >= 2"]


def test_a_branch_on_a_rounded_size_that_does_not_follow_from_its_least_value_is_listed_too() -> None:
    def of(x: Tensor) -> Tensor:
        rounded = x.shape[1] // 8
        return -x if rounded > 4 and rounded < 900 and rounded > x.shape[2] - 800 else x

    assert listed_branches(of) == ["floor(T/8) >= 5", "floor(T/8) < 900", "floor(T/8) > -800 + d"]


def test_parts_from_both_ends_are_compared_once_without_signs() -> None:
    """torch compares what is counted from the end as ``-1*B >= -1*T``."""

    def of(x: Tensor) -> Tensor:
        rows = x.shape[0]
        return x[:, :rows] * x[:, -rows:]

    assert [text for text in listed_branches(of) if "=" in text.replace("!=", "")] == ["B <= T"]

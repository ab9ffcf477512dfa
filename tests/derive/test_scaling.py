"""A step's arithmetic by the power of a size with which it grows: the parts add up everywhere, and the crossover is the first such size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.derive import sensitivity
from calc.derive.result import Derivation, Quantity
from calc.derive.scaling import FlopsByPart, flops_by_degree
from calc.dimensions import Dim, resolve
from calc.graph.step import TracedDim
from calc.pipeline.precomputed import stored
from calc.symbolic.exact import evaluate_text
from calc.units import Unit
from tests.reports import sample


@dataclass(frozen=True)
class Form:
    """Evaluates a text at sizes that follow their defaults."""

    text: str
    dims: tuple[TracedDim, ...]

    @property
    def own(self) -> Form:
        return self

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        table = {d.name: Dim(d.expr or d.value, d.meaning, d.multiple_of, d.tied, at_most=d.at_most) for d in self.dims}
        return resolve(table, given)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return True

    def value(self, sizes: Mapping[str, int]) -> int:
        return int(evaluate_text(self.text, sizes))

    def expr(self) -> Any:
        raise NotImplementedError


def made(forward: str, elementwise: str, *dims: TracedDim) -> Derivation:
    """A derivation of a forward alone, of which the total is the sum."""
    values = {d.name: d.value for d in dims}
    texts = {"flops.forward.matmul": forward, "flops.forward.elementwise": elementwise, "flops.step.total": f"{forward} + {elementwise}"}
    quantities = {
        name: Quantity(name, Unit.FLOP, "", text, int(evaluate_text(text, values)), _evaluator=Form(text, dims))
        for name, text in texts.items()
    }
    return sample.derivation(dims=dims, quantities=quantities, options={"mode": "infer"})


def dim(name: str, value: int, **how: Any) -> TracedDim:
    return TracedDim(name, name, value, **how)


def agree(split: FlopsByPart, derivation: Derivation) -> None:
    """Every point's parts add up to what the derivation gives there."""
    for point in split.points:
        sizes = {split.dim: point.size, **{limit: max(point.size, derivation.sizes[limit]) for limit in split.raised}}
        assert derivation["flops.step.total"].at(**sizes) == point.total


def test_attention_is_the_square_and_the_matrices_are_the_first_power() -> None:
    """Of the sample at B = 2, T = 5, d = 12, f = 48, L = 2, V = 17: (4 + 8)·B·L·T²·d = 14,400, and 43,920 for each of the 5 tokens."""
    split = flops_by_degree(sample.derivation())

    assert ("T", 5, (2, 1, None)) == (split.dim, split.size, split.parts)
    assert {2: 14_400, 1: 5 * 43_920, None: 12 * 4_080} == dict(split.at_hand.values)
    assert ("h.*.attn",) == split.module_paths
    agree(split, sample.derivation())


def test_the_crossover_is_the_first_size_at_which_the_square_is_the_larger() -> None:
    """576·T² against 43,920·T: from T = 76.25 on, so from 77; one less and the square is the smaller."""
    split = flops_by_degree(sample.derivation())
    point = next(p for p in split.points if p.size == split.crossover)

    assert 77 == split.crossover
    assert point.values[2] >= point.values[1]
    assert 576 * 76**2 < 43_920 * 76


def test_a_size_that_follows_counts_with_its_power() -> None:
    """p = S/P patches a side: p⁴ grows with S⁴, p² with S², and the crossover is a multiple of P: 2·p⁴ ≥ 50·p² from p = 5 on, S = 15."""
    dims = (dim("S", 12, multiple_of="P"), dim("P", 3), dim("p", 4, expr="S/P", tied=True))
    split = flops_by_degree(made("2*p**4 + 50*p**2 + 7", "p**2", *dims))

    assert ("S", (4, 2, 0, None)) == (split.dim, split.parts)
    assert [3, 6, 12, 24, 48, 96, 192] == [p.size for p in split.points if p.size != split.crossover]
    assert 18 == split.crossover  # at 15 the 7 is still missing: 1,250 < 1,257


def test_without_T_it_is_the_first_size_that_something_is_quadratic_in_then_B() -> None:
    """And where nothing grows with any of them, the reason."""
    assert "D" == flops_by_degree(made("2*B*D**2 + B*K", "B", dim("B", 8), dim("D", 16), dim("K", 4))).dim
    assert "B" == flops_by_degree(made("2*B*D*K", "B", dim("B", 8), dim("D", 16), dim("K", 4))).dim
    split = flops_by_degree(made("2*D*K", "D", dim("D", 16), dim("K", 4)))
    assert ((), "no matrix multiplication grows with T, with the square of a size, or with B") == (split.points, split.because)


def test_a_limit_goes_up_with_its_size() -> None:
    """T is at most C = 8: beyond, C is as large, and what hangs on C goes with it."""
    derivation = made("T**2 + 3*T", "5*C", dim("T", 8, at_most="C"), dim("C", 8))
    split = flops_by_degree(derivation)

    assert ("C",) == split.raised
    assert any(p.size > 8 for p in split.points)
    assert [5 * max(8, p.size) for p in split.points] == [p.values[None] for p in split.points]
    agree(split, derivation)


def test_rounded_sizes_grow_with_what_is_rounded_and_have_no_exact_crossover() -> None:
    """⌊T/2⌋·T goes with T²; where it overtakes is not solved for."""
    derivation = made("floor(T/2)*T + 40*T", "T", dim("T", 9))
    split = flops_by_degree(derivation)

    assert ((2, 1, None), None) == (split.parts, split.crossover)
    agree(split, derivation)


def test_what_grows_with_no_power_is_refused() -> None:
    """2 to the T is no sum of powers of T; a logarithm is none either."""
    split = flops_by_degree(made("T*ceiling(log(T, 2))", "T", dim("T", 8)))

    assert "ceiling(log(T, 2)) grows with no power of T" == split.because


def test_cases_are_those_in_force_at_each_size() -> None:
    """Where T = 4 runs other operators, its own form counts there."""
    derivation = made("Piecewise((100*T, Eq(T, 4)), (T**2 + T, True))", "T", dim("T", 16))
    split = flops_by_degree(derivation)

    assert {1: 400, None: 4} == dict(next(p for p in split.points if p.size == 4).values)
    assert {2: 64, 1: 8, None: 8} == dict(next(p for p in split.points if p.size == 8).values)
    agree(split, derivation)


def test_parts_that_do_not_add_up_are_refused() -> None:
    """A planted total, one FLOP too many; a planted text beside a right evaluator."""
    derivation = sample.derivation()
    total = derivation["flops.step.total"]
    planted = replace(total, _evaluator=Form(f"{total.text} + 1", derivation.dims))
    wrong = replace(derivation, quantities={**derivation.quantities, "flops.step.total": planted})
    assert "matrix multiplications and elementwise arithmetic do not add up to flops.step.total at T = 5" == flops_by_degree(wrong).because

    forward = derivation["flops.forward.matmul"]
    other = replace(forward, text=f"{forward.text} + B")
    wrong = replace(derivation, quantities={**derivation.quantities, "flops.forward.matmul": other})
    assert "the parts of flops.forward.matmul are not whole, or do not add up to it, at T = 5" == flops_by_degree(wrong).because


def test_an_unknown_part_is_no_zero() -> None:
    """What the derivation does not know leaves no curve."""
    derivation = sample.derivation()
    unknown = Quantity("flops.backward.matmul", Unit.FLOP, "", None, None, unknown="an operator has no rule")
    split = flops_by_degree(replace(derivation, quantities={**derivation.quantities, "flops.backward.matmul": unknown}))

    assert "flops.backward.matmul is unknown: an operator has no rule" == split.because


def test_sizes_that_are_refused_leave_no_point() -> None:
    """They are named."""
    derivation = made("T**2 + T", "T", dim("T", 12, at_most="c"), dim("c", 24, expr="2*h", tied=True), dim("h", 12))
    split = flops_by_degree(derivation)

    assert [1, 3, 6, 12, 24] == [p.size for p in split.points]
    assert (48, 96, 192) == split.refused
    few = flops_by_degree(made("T**2 + T", "T", dim("T", 2, at_most="c"), dim("c", 2, expr="2*h", tied=True), dim("h", 1)))
    assert "the closed forms hold at too few other sizes; at T = 4: T = 4 is more than c = 2" in few.because


@pytest.mark.parametrize("model", ["gpt2", "llama3-8b", "mixtral", "vit-b", "resnet50", "linear", "two-layer", "cruncher", "mlp"])
def test_stored_forms_of_every_built_in_model_have_their_parts(model: str) -> None:
    """Without torch, and each point adds up to the stored total."""
    form = stored(model)
    if form is None:
        pytest.skip("there is no stored form that holds here")
    derivation = form.derivation({})
    split = flops_by_degree(derivation)

    assert split.points, split.because
    agree(split, derivation)


@given(
    coefficients=st.lists(st.integers(0, 10**6), min_size=3, max_size=4).filter(lambda c: c[-1] > 0 and any(c[:-1])),
    unit=st.sampled_from([1, 2, 3, 8]),
)
def test_a_crossover_is_where_brute_force_finds_it(coefficients: list[int], unit: int) -> None:
    """Of any sum of powers without negative terms: the first multiple of the unit at which the highest is at least the rest."""
    text = " + ".join(f"{c}*T**{k}" for k, c in enumerate(coefficients) if c)
    split = flops_by_degree(made(text, "T", dim("T", unit * 2**10, multiple_of=unit)))
    top = len(coefficients) - 1

    def over(size: int) -> bool:
        return coefficients[top] * size**top >= sum(c * size**k for k, c in enumerate(coefficients[:-1]))

    if split.crossover is not None:
        assert over(split.crossover)
        assert split.crossover == unit or not over(split.crossover - unit)
    else:
        assert not over(unit * 2**22)  # the farthest size that is drawn


def test_addends_that_are_no_integers_alone_have_a_crossover() -> None:
    """Every third of L layers but two attends, T² each, and every layer takes 4·T: at L = 8 that is 2·T² and 32·T, equal at 16."""
    crossing = sensitivity.crossover(made("T**2*L/3 - 2*T**2/3 + 4*T*L", "T", dim("T", 9), dim("L", 8)), "flops.forward.matmul")

    assert crossing is not None
    assert 16 == crossing.at

"""Doubles that are made of sizes and rounded to sizes again: whatever is computed is what Python computes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch

from calc.graph.step import Guard
from calc.symbolic import arrays, exact
from calc.trace import guards
from calc.trace.symbolic_sizes import SizeEnv
from calc.trace.values import doubles
from calc.trace.values.doubles import preserving_order
from calc.trace.values.integers import like_integers
from calc.trace.values.size_arithmetic import symbolic_numbers

ROUND: tuple[Callable[[Any], Any], ...] = (math.floor, math.ceil, round, math.trunc)
LARGEST = 20_000


def _constant(generator: random.Random) -> float:
    """A factor as models write it: thirds, sevenths, one to three decimals."""
    kind = generator.randrange(3)
    if kind == 0:
        return generator.randint(1, 20) / generator.choice([3, 7])
    return round(generator.uniform(0.05, 4), generator.randint(1, 3)) or 0.5


def _expression(generator: random.Random, depth: int) -> Callable[[Any, Any], Any]:
    """A number made of two sizes by a few operations."""
    if depth == 0:
        return generator.choice([lambda d, T: d, lambda d, T: T, lambda d, T: d * T])
    inner, c, n = _expression(generator, depth - 1), _constant(generator), generator.randint(2, 12)
    return generator.choice(
        [
            lambda d, T: inner(d, T) * c, lambda d, T: c * inner(d, T), lambda d, T: inner(d, T) / n, lambda d, T: inner(d, T) / c,
            lambda d, T: inner(d, T) + c, lambda d, T: inner(d, T) - n, lambda d, T: n * inner(d, T), lambda d, T: inner(d, T) / d,
            lambda d, T: -1.0 * -inner(d, T), lambda d, T: inner(d, T) % n, lambda d, T: inner(d, T) // c,
        ]
    )  # fmt: skip


def _traced(expression: Callable[[Any, Any], Any], how: Callable[[Any], Any], d: int, T: int) -> tuple[int | str, list[Any]]:
    """The size that tracing makes of the expression at these hints, and the guards that it evaluates."""
    env = SizeEnv({"d": d, "T": T})
    with preserving_order(), symbolic_numbers(), like_integers():
        size = how(expression(env.symbols["d"], env.symbols["T"]))
        return env.size(size), env.size_guards()


def _agree(generator: random.Random, pairs: int) -> Iterator[tuple[int, int]]:
    """How many of so many further sizes the traced size stands at, after it was compared with Python's wherever it says it does."""
    for _ in range(pairs):
        expression, how = _expression(generator, generator.randint(1, 3)), generator.choice(ROUND)
        hints = [generator.randint(2, LARGEST) for _ in range(2)]
        size, conditions = _traced(expression, how, *hints)
        stands = 0
        for at in ([generator.randint(1, LARGEST), generator.randint(1, LARGEST)] for _ in range(8)):
            values = dict(zip("dT", at, strict=True))
            if all(c.holds_at(values) for c in conditions):
                stands += 1
                assert how(expression(*at)) == (size if isinstance(size, int) else exact.evaluate_text(size, values)), (size, values)
        yield stands, 8


def test_a_number_made_of_sizes_is_rounded_as_python_rounds_it() -> None:
    """Random expressions at random sizes: the closed form is Python's number, or says that it does not stand there; mostly it stands."""
    stands = [agreed for agreed, _ in _agree(random.Random(1), 100)]

    assert sum(stands) > 4 * len(stands)


@pytest.mark.slow
def test_many_numbers_made_of_sizes_are_rounded_as_python_rounds_them() -> None:
    assert sum(agreed for agreed, _ in _agree(random.Random(2), 6_000)) > 4 * 6_000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["floor", "ceil", "rint"])
def test_what_is_proved_of_a_constant_holds_at_a_million_sizes(name: str) -> None:
    """Of each constant whose fraction is used without a guard, NumPy's doubles at random sizes and at multiples of its denominator."""
    generator = np.random.default_rng(0)
    d, proved = sp.Symbol("d", integer=True, positive=True), 0
    for constant in sorted({_constant(random.Random(seed)) for seed in range(3_000)}):
        if not doubles._is_proved(doubles.Times(doubles.sp.Function("ToFloat", real=True)(d), sp.Float(constant))):
            continue
        proved += 1
        over, under = doubles._simplest(constant).as_integer_ratio()
        sizes = generator.integers(1, 2**31 // over, 5_000)
        sizes = np.concatenate([sizes, sizes // under * under, sizes // (2 * under) * (2 * under) + under])
        made = getattr(np, name)(sizes * constant).astype(np.int64)
        twice, rest = (2 * over * sizes) // under, (2 * over * sizes) % under
        whole = {
            "floor": over * sizes // under,
            "ceil": -(-over * sizes // under),
            "rint": np.where((rest == 0) & (twice % 4 == 1), twice // 2, (twice + 1) // 2),
        }
        assert np.array_equal(made, whole[name]), constant
    assert proved * 15_000 > 10**6


def test_a_constant_is_read_as_the_simplest_fraction_with_that_double() -> None:
    assert [Fraction(8, 3), Fraction(29, 100), Fraction(1, 4), Fraction(5, 7)] == [*map(doubles._simplest, (8 / 3, 0.29, 0.25, 5 / 7))]


def test_a_fraction_is_used_without_a_guard_only_where_that_is_proved() -> None:
    """8/3 is near enough to its double; 0.29 falls short of 29 at 100, and has a guard at every size."""
    third, hundredth = (_traced(lambda d, _, c=c: d * c, math.floor, 31, 5) for c in (8 / 3, 0.29))

    assert "floor((8*d)/(3))" == third[0]
    assert ["8*d < 35184372088832"] == [c.expr for c in third[1]]
    assert ["floor((float(d)) * (0.29)) == floor((29*d)/(100))"] == [c.expr for c in hundredth[1]]


def test_a_proof_that_is_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: every constant is taken for near enough. Of many constants at multiples of 100, some are no longer what Python makes."""
    monkeypatch.setattr(doubles, "_is_near", lambda _: True)

    def is_python_s(constant: float) -> bool:
        size, conditions = _traced(lambda d, _: d * constant, math.floor, 31, 5)
        at = [d for d in range(100, 2_001, 100) if all(c.holds_at({"d": d}) for c in conditions)]
        return all(math.floor(d * constant) == exact.evaluate_text(str(size), {"d": d}) for d in at)

    assert not all(is_python_s(hundredths / 100) for hundredths in range(29, 60))


def test_guards_on_doubles_have_the_same_outcome_at_one_size_and_at_many() -> None:
    for text in ("floor((float(d)) * (0.29)) == floor((29*d)/(100))", "(float(d)) * (0.29) < 29", "int(log2(float(d))) == 6"):
        sizes = np.arange(1, 2_000)
        assert [exact.holds(text, {"d": int(d)}) for d in sizes] == arrays.holds(text, {"d": sizes}).tolist()


def test_torch_has_its_own_arithmetic_back_afterwards() -> None:
    before = torch.SymFloat.__ceil__
    with preserving_order():
        assert before is not torch.SymFloat.__ceil__
    assert before is torch.SymFloat.__ceil__


def test_a_size_rounded_from_a_double_needs_a_trace_at_each_value() -> None:
    """Of a rounded double no other size is known to come out alike; a comparison of doubles is a guard like others, a quotient none."""
    rounded = Guard("floor(log2(float(h))) == 6", True, "a line")
    others = [Guard("0.5*float(h) < 3.0", True, "a line"), Guard("floor(h / 2) == 6", True, "a line")]

    assert [Guard("h < 1", True, "a line", opaque=True)] == guards.of_numbers([rounded, *others], [], {})

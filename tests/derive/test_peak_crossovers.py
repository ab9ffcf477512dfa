"""Which candidate is the peak along each size: compared with the candidates themselves, integer by integer."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

import calc
from calc.derive.names import PeakPlace
from calc.derive.peak_crossovers import PeakCrossovers, _at, _cells, _first_above, peak_crossovers
from calc.derive.result import Derivation
from calc.derive.size_steps import valid_step
from calc.graph.guards import TracedDim
from calc.symbolic.algebra import evaluate_text
from tests.derive.conftest import Derived


@dataclass(frozen=True, slots=True)
class _Dims:
    dims: tuple[TracedDim, ...]


def _peak_at(result: Derivation, along: PeakCrossovers, size: int) -> int:
    return result["memory.peak"].at(**{along.dim: size})


def _candidate_at(result: Derivation, at: PeakPlace, dim: str, size: int) -> int:
    """Largest value of the candidates of that name, at other sizes."""

    quantity = result["memory.peak"]
    assert quantity._evaluator is not None
    sizes = quantity._evaluator.sizes({dim: size})
    return max(int(evaluate_text(c.expr, sizes)) for c in quantity.candidates if c.at == at)


@pytest.mark.slow
def test_a_candidate_is_the_peak_where_it_is_the_largest(derived: Derived) -> None:
    """At both ends of each stretch and somewhere inside, for every dimension of GPT-2."""
    result = derived("gpt2")
    generator = random.Random(0)
    crossovers = peak_crossovers(result)

    assert ["B", "T", "d", "h", "f", "L", "V", "C"] == [t.dim for t in crossovers]
    for crossover in crossovers:
        assert crossover.intervals, crossover.because
        for interval in crossover.intervals:
            every = range(interval.first, interval.last + 1, crossover.step)
            between = [n for n in crossover.among if interval.first <= n <= interval.last] or every
            for size in {interval.first, interval.last, generator.choice(between)}:
                assert _peak_at(result, crossover, size) == _candidate_at(result, interval.at, crossover.dim, size), (crossover.dim, size)


@pytest.mark.slow
def test_stretches_follow_one_another_without_a_gap(derived: Derived) -> None:
    """The next begins one step after the last has ended."""
    stepped = [crossover for crossover in peak_crossovers(derived("gpt2")) if not crossover.among]

    assert any(len(crossover.intervals) > 1 for crossover in stepped)
    for crossover in stepped:
        ends = [r.last + crossover.step for r in crossover.intervals[:-1]]
        assert ends == [r.first for r in crossover.intervals[1:]]


@pytest.mark.slow
def test_positions_bound_the_length(derived: Derived) -> None:
    """T is searched up to C and no further."""
    result = derived("gpt2")
    length = next(t for t in peak_crossovers(result) if t.dim == "T")

    assert result.sizes["C"] == length.intervals[-1].last


def test_heads_are_tried_one_by_one(derived: Derived) -> None:
    """d = 768 heads can only be divisors of it."""
    heads = next(t for t in peak_crossovers(derived("gpt2")) if t.dim == "h")

    assert heads.among
    assert all(768 % n == 0 for n in heads.among)


@pytest.mark.parametrize("peak", ["memory.peak", "memory.peak.first_step"])
def test_a_single_peak_candidate_is_the_peak_at_every_size(peak: str) -> None:
    """The forward of one linear layer allocates nothing but its result: there is one candidate, a line in each size."""
    result = calc.derive(calc.load("linear"), mode="infer")

    assert 1 == len(result[peak].candidates)
    for crossover in peak_crossovers(result, peak):
        (interval,) = crossover.intervals
        for size in (interval.first, 97):
            assert evaluate_text(interval.expr, {crossover.dim: size}) == result[peak].at(**{crossover.dim: size})


@pytest.mark.parametrize("seed", range(300))
def test_no_change_of_sign_is_missed(seed: int) -> None:
    """Of random polynomials up to the fourth degree with small and large coefficients, touching zeros included."""
    generator = random.Random(seed)
    roots = [generator.randint(-5, 40) for _ in range(generator.randint(0, 4))]
    form: tuple[int, ...] = (generator.choice((-3, -1, 1, 2)),)
    for root in roots:  # (…)(x - root), and now and then between two integers
        numerator = generator.choice((1, 2))
        longer = [numerator * c for c in form] + [0]
        form = tuple(a - b for a, b in zip(longer, [0, *(root * c for c in form)], strict=True))
    low, high = 1, 50
    cells = _cells(form, low, high)

    def side(x: int) -> int:
        return (_at(form, x) > 0) - (_at(form, x) < 0)

    assert {n for n in range(low, high) if side(n) != side(n + 1)} <= set(cells)
    for start in (n for n in range(low, high) if side(n) <= 0):
        assert next((n for n in range(start + 1, high + 1) if _at(form, n) > 0), high + 1) == _first_above(form, start, high)


@pytest.mark.slow
def test_only_sizes_that_the_model_can_have_are_searched() -> None:
    """Where d is divided by 4 heads whose width k = d/h must be even, d goes in steps of 8: at d = 12, k would be 3."""
    result = calc.derive(calc.load("llama3-8b"), {"B": 2, "T": 16, "d": 64, "h": 4, "g": 2, "f": 96, "L": 3, "V": 97})
    (width,) = (t for t in peak_crossovers(result) if t.dim == "d")

    assert width.step == 8
    assert all(size % 8 == 0 for interval in width.intervals for size in (interval.first, interval.last))


def test_a_dimension_steps_where_those_that_follow_it_are_valid() -> None:
    """k = d/6 a multiple of 4 makes d a multiple of 24; f = 4·d asks for nothing more."""
    dims = (
        TracedDim("d", "", 48, multiple_of="h"),
        TracedDim("h", "", 6),
        TracedDim("k", "", 8, expr="d/h", multiple_of=4),
        TracedDim("f", "", 192, expr="4*d"),
    )

    assert valid_step(_Dims(dims), "d") == 24
    assert valid_step(_Dims(dims), "f") == 1

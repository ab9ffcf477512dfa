"""Which moment is the peak along each size: compared with the candidates themselves, integer by integer."""

from __future__ import annotations

import random

import pytest

import calc
from calc.derive.peak_crossovers import Takeover, _at, _cells, _first_above, takeovers
from calc.derive.result import Derivation
from tests.derive.conftest import Derived


def _peak_at(result: Derivation, found: Takeover, size: int) -> int:
    return result["memory.peak"].at(**{found.dim: size})


def _candidate_at(result: Derivation, at: str, dim: str, size: int) -> int:
    """Largest value of the moments of that name, at other sizes."""
    from calc.symbolic.algebra import evaluate_text

    quantity = result["memory.peak"]
    assert quantity._evaluator is not None
    sizes = quantity._evaluator.sizes({dim: size})
    return max(int(evaluate_text(c.expr, sizes)) for c in quantity.candidates if c.at == at)


def test_a_candidate_is_the_peak_where_it_is_the_largest(derived: Derived) -> None:
    """At both ends of each stretch and somewhere inside, for every dimension of GPT-2."""
    result = derived("gpt2")
    generator = random.Random(0)
    crossovers = takeovers(result)

    assert ["B", "T", "d", "h", "f", "L", "V", "C"] == [t.dim for t in crossovers]
    for takeover in crossovers:
        assert takeover.reigns, takeover.because
        for reign in takeover.reigns:
            between = [n for n in takeover.among if reign.first <= n <= reign.last] or range(reign.first, reign.last + 1, takeover.step)
            for size in {reign.first, reign.last, generator.choice(between)}:
                assert _peak_at(result, takeover, size) == _candidate_at(result, reign.at, takeover.dim, size), (takeover.dim, size)


def test_stretches_follow_one_another_without_a_gap(derived: Derived) -> None:
    """The next begins one step after the last has ended."""
    stepped = [takeover for takeover in takeovers(derived("gpt2")) if not takeover.among]

    assert any(len(takeover.reigns) > 1 for takeover in stepped)
    for takeover in stepped:
        ends = [r.last + takeover.step for r in takeover.reigns[:-1]]
        assert ends == [r.first for r in takeover.reigns[1:]]


def test_positions_bound_the_length(derived: Derived) -> None:
    """T is searched up to C and no further."""
    result = derived("gpt2")
    length = next(t for t in takeovers(result) if t.dim == "T")

    assert result.sizes["C"] == length.reigns[-1].last


def test_heads_are_tried_one_by_one(derived: Derived) -> None:
    """d = 768 heads can only be divisors of it."""
    heads = next(t for t in takeovers(derived("gpt2")) if t.dim == "h")

    assert heads.among
    assert all(768 % n == 0 for n in heads.among)


@pytest.mark.parametrize("peak", ["memory.peak", "memory.peak.first_step"])
def test_a_single_peak_candidate_has_no_crossover(peak: str) -> None:
    """The forward of one linear layer allocates nothing but its result: there is one candidate, and nothing to search."""
    result = calc.derive(calc.load("linear"), mode="infer")

    assert 1 == len(result[peak].candidates)
    assert () == takeovers(result, peak)


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

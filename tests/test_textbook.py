"""Rules of thumb beside exact counts: the difference is split without a rest, and the range is where it really is near."""

from __future__ import annotations

from fractions import Fraction

import pytest

from calc.algebra import evaluate_text
from calc.textbook import RULES, compare
from tests.reports import sample


@pytest.fixture(scope="module")
def found():
    return {c.rule.name: c for c in compare(sample.derivation())}


def test_6nd_counts_every_parameter_six_times_a_token(found):
    """4,080 parameters, 2*5 tokens: 6 * 4080 * 10 = 244,800."""
    assert 244_800 == found["6ND"].value


def test_6nd_stands_for_model_flops_without_recomputation(found):
    """Forward 78,000 + backward 156,000 - recomputed 1,200 = 232,800, so the rule is 5.15 % high."""
    assert 78_000 + 156_000 - 1_200 == found["6ND"].exact
    assert Fraction(244_800, 232_800) == found["6ND"].ratio


def test_2nd_stands_for_the_forward(found):
    """2 * 4080 * 10 = 81,600 against 78,000."""
    assert (81_600, 78_000) == (found["2ND"].value, found["2ND"].exact)


def test_activations_rule_is_stated_in_this_models_letters(found):
    """L (34 T B d + 5 h T² B) = 2 * (34*5*2*12 + 5*3*25*2) = 2 * (4080 + 750) = 9,660 bytes."""
    assert 9_660 == found["34sbh + 5as²b"].value


def test_sixteen_bytes_stand_for_parameters_gradients_and_state(found):
    """4*4080 + 4*4080 + (8*4080 + 4*28) = 65,392; the rule leaves out the 28 step counters of 4 bytes."""
    comparison = found["16 bytes per parameter"]

    assert 65_392 == comparison.exact
    assert 65_392 - 16 * 4_080 == 112 == -sum(d.value for d in comparison.differences)


@pytest.mark.parametrize("name", [rule.name for rule in RULES])
def test_differences_close_without_a_rest(found, name):
    """The listed differences are rule − exact to the last unit, as numbers and as expressions."""
    comparison = found[name]
    sizes = sample.derivation().sizes

    assert comparison.value - comparison.exact == sum(d.value for d in comparison.differences)
    assert all(evaluate_text(d.expr, sizes) == d.value for d in comparison.differences)


def test_2nd_drops_attention_and_adds_positions(found):
    """The products of attention belong to no parameter; the position embedding enters no product."""
    by_kind = {(d.kind, site) for d in found["2ND"].differences for site in d.sites}

    assert ("dropped", "h.*.attn") in by_kind
    assert ("added", "wpe") in by_kind
    # The token embedding's V·d is looked up once and multiplied once, as the tied head: it does not show.
    assert not any("V" in d.expr for d in found["2ND"].differences)


@pytest.mark.parametrize("name", [rule.name for rule in RULES])
def test_the_range_is_where_the_rule_is_near(found, name):
    """At the ends of each range the rule is within 5 %, just outside it is not."""
    derivation, comparison = sample.derivation(), found[name]
    for within in comparison.within:
        if within.dim not in ("T", "L", "V"):
            continue
        low, high = within.searched
        for a, b in within.ranges:
            assert _near(comparison, derivation, within.dim, a)
            assert _near(comparison, derivation, within.dim, b)
            assert a == low or not _near(comparison, derivation, within.dim, a - 1)
            assert b == high or not _near(comparison, derivation, within.dim, b + 1)


def _near(comparison, derivation, dim, size):
    sizes = {**derivation.sizes, dim: size}
    exact = sum(sign * derivation[name].at(**{dim: size}) for sign, name in comparison.rule.exact if name in derivation.quantities)
    if "parameters.bytes" in {name for _, name in comparison.rule.exact}:
        exact += 4 * int(evaluate_text(derivation["parameters"].text, sizes))
    return abs(int(evaluate_text(comparison.expr, sizes)) - exact) * 20 <= exact


def test_positions_bound_the_search(found):
    """T is searched up to C = 7 only: at more, the model does not run."""
    assert {(1, 7)} == {w.searched for c in found.values() for w in c.within if w.dim == "T"}


def test_a_rule_does_not_apply_without_its_sizes():
    """A model with no heads has no 34sbh + 5as²b, and the reason names what is missing."""
    full = sample.derivation()
    small = sample.derivation(
        dims=tuple(d for d in full.dims if d.name in ("B", "d")),
        quantities={"parameters": sample._quantity("parameters", full["parameters"].unit, "", "d**2")},
    )

    comparison = {c.rule.name: c for c in compare(small)}["34sbh + 5as²b"]

    assert not comparison.applies
    assert "does not apply: it is stated in B, T, d, h, L, and this model has no T, h, L" == comparison.reason
    assert None is comparison.value is comparison.ratio


def test_a_rule_is_not_compared_with_an_unknown_quantity():
    """What is unknown stays unknown: no ratio against zero."""
    quantities = sample.quantities()
    quantities["flops.forward.matmul"] = quantities["flops.forward.causal"]

    comparison = {c.rule.name: c for c in compare(sample.derivation(quantities=quantities))}["2ND"]

    assert not comparison.applies
    assert sample.NO_MASK in comparison.reason

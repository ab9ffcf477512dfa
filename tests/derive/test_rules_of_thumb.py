"""Rules of thumb beside exact counts: the difference is split without a rest, and the range is where it really is near."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import nn

import calc
from calc import Dim
from calc.derive.names import AddendLabel
from calc.derive.result import QuantityTerm
from calc.derive.rules_of_thumb import RULES, GrossErrors, compare, gross_errors, ranges
from calc.derive.rules_of_thumb.assumptions import ComparedStep, Judgment, four_times_width, two_bytes
from calc.derive.rules_of_thumb.exact import ExactCount
from calc.graph.step import TracedDim
from calc.symbolic import tree
from calc.symbolic.algebra import evaluate_text
from tests.reports import sample
from tests.trace.modules import spec as trace_spec


@pytest.fixture(scope="module")
def comparisons():
    return {c.rule.name: c for c in compare(sample.derivation())}


def test_6nd_counts_every_parameter_six_times_a_token(comparisons):
    """4,080 parameters, 2*5 tokens: 6 * 4080 * 10 = 244,800."""
    assert 244_800 == comparisons["6ND"].value


def test_6nd_approximates_model_flops_without_recomputation(comparisons):
    """Forward 78,000 + backward 156,000 - recomputed 1,200 = 232,800, so the rule is 5.15 % high."""
    assert 78_000 + 156_000 - 1_200 == comparisons["6ND"].exact
    assert Fraction(244_800, 232_800) == comparisons["6ND"].ratio


def test_2nd_approximates_the_forward(comparisons):
    """2 * 4080 * 10 = 81,600 against 78,000."""
    assert (81_600, 78_000) == (comparisons["2ND"].value, comparisons["2ND"].exact)


def test_activations_rule_is_stated_in_this_models_letters(comparisons):
    """L (34 T B d + 5 h T² B) = 2 * (34*5*2*12 + 5*3*25*2) = 2 * (4080 + 750) = 9,660 bytes."""
    assert 9_660 == comparisons["34sbh + 5as²b"].value


def test_sixteen_bytes_approximate_parameters_gradients_and_state(comparisons):
    """4*4080 + 4*4080 + (8*4080 + 4*28) = 65,392; the rule leaves out the 28 step counters of 4 bytes."""
    comparison = comparisons["16 bytes per parameter"]

    assert 65_392 == comparison.exact
    assert 65_392 - 16 * 4_080 == 112 == -sum(d.value for d in comparison.differences)


OF_TRANSFORMERS = ("6ND", "2ND", "34sbh + 5as²b", "16 bytes per parameter")


def test_rules_of_models_without_a_sequence_do_not_apply(comparisons):
    """They are stated in a width D, or for models without T; nothing else about them is known."""
    elsewhere = {name: c for name, c in comparisons.items() if not c.applies}

    assert {rule.name for rule in RULES} - set(OF_TRANSFORMERS) == set(elsewhere)
    assert "does not apply: it is stated for models without T, and this model has T" == elsewhere["6BN"].reason
    assert "does not apply: it is stated in B, D, L, and this model has no D" == elsewhere["BDL activations"].reason
    assert all(c.value is c.exact is c.ratio is None and () == c.steps for c in elsewhere.values())


@pytest.mark.parametrize("name", OF_TRANSFORMERS)
def test_differences_close_without_a_rest(comparisons, name):
    """The listed differences are rule − exact to the last unit, as numbers and as expressions."""
    comparison = comparisons[name]
    sizes = sample.derivation().sizes

    assert comparison.value - comparison.exact == sum(d.value for d in comparison.differences)
    assert all(evaluate_text(d.expr, sizes) == d.value for d in comparison.differences)


@pytest.mark.parametrize("name", OF_TRANSFORMERS)
def test_steps_lead_from_the_rule_to_the_exact_count(comparisons, name):
    """From the rule's value, through a correction for each difference, to a sum of both that is the exact count."""
    comparison, sizes = comparisons[name], sample.derivation().sizes
    corrections = [s for s in comparison.steps if s.rule == "correction"]

    assert comparison.value == comparison.steps[0].value
    assert [-d.value for d in comparison.differences] == [s.value for s in corrections]
    assert comparison.exact == comparison.value + sum(s.value for s in corrections) == comparison.steps[-1].value
    for step in comparison.steps:
        assert step.value == evaluate_text(tree.text(step.before), sizes) == evaluate_text(tree.text(step.after), sizes)
        assert step.title
        assert step.because
        assert ("symbolic", "holds") == (step.check.kind, step.check.result)


def test_2nd_drops_attention_and_adds_positions(comparisons):
    """The products of attention belong to no parameter; the position embedding enters no product."""
    by_kind = {(d.kind, path) for d in comparisons["2ND"].differences for path in d.module_paths}

    assert ("dropped", "h.*.attn") in by_kind
    assert ("added", "wpe") in by_kind
    # The token embedding's V·d is looked up once and multiplied once, as the tied head: it does not show.
    assert not any("V" in d.expr for d in comparisons["2ND"].differences)


@pytest.mark.parametrize("name", OF_TRANSFORMERS)
def test_the_range_is_where_the_rule_is_near(comparisons, name):
    """At the ends of each range the rule is within 5 %, just outside it is not."""
    derivation, comparison = sample.derivation(), comparisons[name]
    assert comparison.within
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


def test_positions_bound_the_search():
    """T is searched up to C = 7 only: at more, the model does not run."""
    whole = sample.derivation()
    bounded = replace(whole, dims=tuple(replace(dim, at_most="C" if dim.name == "T" else None) for dim in whole.dims))

    assert {(1, 7)} == {w.searched for c in compare(bounded) for w in c.within if w.dim == "T"}


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


def test_a_default_that_holds_is_put_in():
    """d = h·k where k = d/h was not changed: 2·d·h·k elements are no other term than 2·d², so nothing separates them."""
    full = sample.derivation()
    dims = tuple(TracedDim("k", "head width", 4, expr="d/h") if d.name == "k" else d for d in full.dims)
    quantities = {
        "parameters.active": sample._quantity("parameters.active", full["parameters"].unit, "", "2*d*h*k"),
        "flops.forward.matmul": sample._quantity("flops.forward.matmul", full["flops.forward.matmul"].unit, "", "4*B*T*d**2"),
    }

    comparison = {c.rule.name: c for c in compare(sample.derivation(dims=dims, quantities=quantities))}["2ND"]

    assert () == comparison.differences
    assert comparison.value == comparison.exact == 4 * 2 * 5 * 12**2
    assert comparison.exact == comparison.steps[-1].value


def test_a_step_says_which_sizes_it_replaces(comparisons):
    """f = 4·d is a default that holds: 2·d·f of the rule and 8·d² of its result are equal only with it."""
    reasons = {name: [s.because for s in comparisons[name].steps] for name in ("6ND", "34sbh + 5as²b")}

    assert [True, True, *[False] * 6] == [because.endswith("; with f = 4·d") for because in reasons["6ND"]]
    assert "these are all the terms in which the rule and the exact count differ; with f = 4·d" == reasons["34sbh + 5as²b"][-1]
    assert not reasons["34sbh + 5as²b"][0].endswith("; with f = 4·d")


def test_assumptions_that_the_step_does_not_meet_say_so(comparisons):
    """Of 6ND, what parameters in no matmul and what attention cause is all of rule − exact. The sample names no formats and runs no
    dropout; f = 48 is 4 · 12."""
    tokens, attention = comparisons["6ND"].assumptions
    korthikanti = {a.statement: a.judgment.met for a in comparisons["34sbh + 5as²b"].assumptions}

    assert (False, Fraction(244_800 - 232_800, 232_800)) == (tokens.judgment.met, tokens.judgment.effect + attention.judgment.effect)
    assert tokens.judgment.because.startswith("the rule counts it for ")
    assert (None, False, True) == tuple(korthikanti[name] for name in list(korthikanti)[:3])


def test_the_state_of_another_optimizer_is_not_adams():
    """With no state at all, weights and gradients are 4 + 4 + 0 bytes per parameter."""
    full = sample.derivation()
    state = replace(full["optimizer_state.bytes"], text="0", value=0, terms=(), _evaluator=_Plain("0", full.sizes))
    derivation = sample.derivation(quantities={**full.quantities, "optimizer_state.bytes": state})

    [judged] = {c.rule.name: c for c in compare(derivation)}["16 bytes per parameter"].assumptions

    because = "weights, gradients and optimizer state take 4 + 4 + 0 bytes per parameter"
    assert Judgment(False, because, Fraction(16 - 8, 8)) == judged.judgment


def test_saved_tensors_of_four_bytes_are_not_of_two():
    """34·s·b·h counts 2 bytes an element: float32 takes 4, and integers, which no precision changes, do not count."""
    (of_float32, of_bfloat16) = (
        two_bytes(ComparedStep(_deep_linear(dtype, "4*B*D*L"), 192, None)) for dtype in ("float32", "bfloat16")
    )

    because = "float32 tensors are saved, 4 bytes an element: with 2 bytes each, 96 bytes fewer"
    assert Judgment(False, because, Fraction(-2, 4)) == of_float32  # of 4 · 2 · 12 · 2 = 192 bytes
    assert Judgment(True, "") == of_bfloat16


def test_what_fused_attention_and_a_step_without_dropout_do_not_save_has_a_size(comparisons):
    """In each of the sample's layers 5·a·s²·b bytes of scores, and 2·s·b·h of masks; those of the scores count once."""
    judged = {a.statement: a.judgment for a in comparisons["34sbh + 5as²b"].assumptions}
    sizes, exact = sample.derivation().sizes, comparisons["34sbh + 5as²b"].exact
    B, T, d, h, L = (sizes[name] for name in "BTdhL")

    assert Fraction(5 * h * T**2 * B * L, exact) == judged["attention scores are stored"].effect
    assert Fraction(2 * T * B * d * L, exact) == judged["dropout on the attention scores and on both outputs of a layer"].effect


def test_a_feed_forward_of_another_width_has_a_size(comparisons):
    """16·s·b·h are 4·s·b·f at f = 4·d alone: f = 40 in place of 48 leaves 4·8·s·b less."""
    derivation = sample.derivation(dims=tuple(replace(d, value=40) if d.name == "f" else d for d in sample.derivation().dims))
    B, T, L = (derivation.sizes[name] for name in "BTL")

    assert Fraction(4 * 8 * T * B * L, 1000) == four_times_width(ComparedStep(derivation, 1000, None)).effect


def test_nearness_by_cancellation_is_called_so():
    """+300 and −280 of 1,000 differ by 2 %; +30 and −10 do too, but neither alone is more than 5 %."""
    assert gross_errors([300, -200, -80], 1000) == GrossErrors(Fraction(3, 10), Fraction(-28, 100))
    assert gross_errors([300, -280], 1000).cancel
    assert not gross_errors([30, -10], 1000).cancel
    assert not gross_errors([300, -200], 1000).cancel


def test_ranges_of_cancellation_are_part_of_the_range(comparisons):
    """In each of them the errors of one sign are more than 5 %, and just outside they are not, or the rule is not near."""
    derivation = sample.derivation()
    seen = 0
    for name in OF_TRANSFORMERS:
        comparison = comparisons[name]
        for along in (w for w in comparison.within if w.dim in ("T", "L", "V")):
            for low, high in along.by_cancellation:
                seen += 1
                assert any(a <= low and high <= b for a, b in along.ranges)
                assert _cancels(comparison, derivation, along.dim, low)
                assert _cancels(comparison, derivation, along.dim, high)
                assert high == along.searched[1] or not _cancels(comparison, derivation, along.dim, high + 1)
    assert seen


def _cancels(comparison, derivation, dim, size):
    """Whether the rule is near there, while its differences of one sign alone are not. Eight differences at most: none is merged."""
    sizes = {**derivation.sizes, dim: size}
    values = [evaluate_text(d.expr, sizes) for d in comparison.differences]
    exact = int(evaluate_text(comparison.expr, sizes)) - sum(values)
    return _near(comparison, derivation, dim, size) and max(sum(v for v in values if v > 0), -sum(v for v in values if v < 0)) * 20 > exact


def _attention(name, *products):
    """A quantity of one place whose products are (what, expr)."""
    terms = tuple(QuantityTerm("h.*.attn", expr, int(evaluate_text(expr, sample.SIZES)), what) for what, expr in products)
    whole = " + ".join(expr for _, expr in products)
    return replace(sample._quantity(name, sample.derivation()[name].unit, "", whole), terms=terms)


def test_a_correction_names_no_product_that_is_counted_and_taken_away():
    """A repeated query keyᵀ is executed and left out of model FLOPs: 6ND lacks two products of the forward and four of the backward."""
    of, again, gradients = "2*B*L*T**2*d", "recomputed query keyᵀ", ("dprobs", "dquery", "dkey", "dvalue")
    quantities = {
        "parameters.active": sample._quantity("parameters.active", sample.derivation()["parameters"].unit, "", "L*d**2"),
        "flops.forward.matmul": _attention("flops.forward.matmul", ("query keyᵀ", of), ("probs value", of)),
        "flops.backward.matmul": _attention("flops.backward.matmul", (again, of), *((name, of) for name in gradients)),
        "flops.backward.recompute": _attention("flops.backward.recompute", (again, of)),
    }

    comparison = {c.rule.name: c for c in compare(sample.derivation(quantities=quantities))}["6ND"]

    assert "the rule has no such term: query keyᵀ, probs value, dprobs and 3 more" in [d.because for d in comparison.differences]


class Convolutions(nn.Module):
    """Two of 3 × 3 weights: from 3 channels to c, then from c to c."""

    def __init__(self, c):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return self.second(self.first(x)).square().mean()


@pytest.fixture(scope="module")
def convolutions():
    dims = {"B": 2, "c": 4, "S": 6}
    inputs, loss = lambda n: (torch.randn(n.B, 3, n.S, n.S),), lambda module, x: module(x)
    return {c.rule.name: c for c in compare(calc.derive(calc.Spec("convolutions", dims, lambda n: Convolutions(n.c), inputs, loss)))}


def test_a_gradient_that_is_not_computed_has_a_label_of_its_own(convolutions):
    """2·3·9 = 54 for each of x ⋆ w, dx and dw, 162 in all, of which 54 are subtracted again."""
    comparison = convolutions["6BN"]
    step = next(s for s in comparison.steps if s.place.path == "first")  # of the two, the larger
    parts = {term.label: tree.text(term.body) for term in step.before.terms}
    missing = next(d for d in comparison.differences if d.kind == "not computed")

    labels = ["x ⋆ w", "dw = x ⋆ dy", "dx if it were computed"]
    assert dict.fromkeys(labels, "54*B*c*S**2") == parts
    assert "162*B*c*S**2" == tree.text(step.after)
    assert ("54*B*c*S**2", ("first",)) == (missing.expr, missing.module_paths)
    assert step.because.endswith("; autograd does not compute dx, so a term of its own subtracts it")


def test_a_convolution_applies_a_weight_at_every_position(convolutions):
    """S² positions: 6·B·9·c·c of the weight become 6·B·9·c·c·S²."""
    because = {d.module_paths: d.because for d in convolutions["6BN"].differences if d.kind == "applied more often"}

    of_second = "N counts each weight once per data point; the convolution applies it at every position of its result, S² times"
    assert of_second == because["second",]
    assert because["first",].startswith(of_second)


class Patches(nn.Module):
    """A linear layer on each of S positions, and one on a position that comes on top."""

    def __init__(self, d):
        super().__init__()
        self.first, self.fc = nn.Linear(d, d, bias=False), nn.Parameter(torch.zeros(d, d))

    def forward(self, x):
        y = nn.functional.linear(torch.cat([self.first(x[:, :1]), x], 1), self.fc)
        return torch.bmm(y, y.transpose(1, 2)).square().mean()


def test_a_weight_applied_at_several_positions_is_no_term_that_the_rule_lacks():
    """The rule counts 6·B·d² for each weight; that of ``fc`` is applied to S + 1 rows. What the rule lacks is y yᵀ, which has no weight."""
    inputs, loss = lambda n: (torch.randn(n.B, n.S, n.d),), lambda module, x: module(x)
    spec = calc.Spec("patches", {"B": 2, "S": 6, "d": 10}, lambda n: Patches(n.d), inputs, loss)
    comparison = {c.rule.name: c for c in compare(calc.derive(spec))}["6BN"]
    reused = {d.because for d in comparison.differences if d.kind == "applied more often"}
    lacking = {d.because for d in comparison.differences if d.kind == "dropped"}
    judged = {a.statement: a.judgment for a in comparison.assumptions}

    assert reused == {"N counts each weight once per data point; the layer applies it to each row of its input, S + 1 times"}
    assert lacking == {"the rule has no such term: x W"}
    assert judged["every parameter multiplies every point once"].because.startswith(next(iter(reused)))
    assert judged["nothing else is multiplied"].because.startswith(next(iter(lacking)))


def test_the_module_of_a_missing_gradient_is_named_once(convolutions):
    """Its reason has it, so the assumption adds none."""
    (judgment,) = (a.judgment for a in convolutions["6BN"].assumptions if a.statement == "every layer's input needs its gradient")

    assert 1 == judgment.because.count("at first")


def _deep_linear(dtype, expr):
    """A derivation in B, D and L whose activations are one term."""
    full = sample.derivation()
    dims = (TracedDim("B", "batch size", 2), TracedDim("D", "width", 12), TracedDim("L", "layers", 2))
    sizes = {d.name: d.value for d in dims}
    label = AddendLabel("saved", dtype)
    term = QuantityTerm("layers", expr, int(evaluate_text(expr, sizes)), str(label), ((label, expr),))
    known = full["activations.bytes"]
    quantity = type(known)(known.name, known.unit, known.meaning, expr, term.value, (term,), _evaluator=_Plain(expr, sizes))
    return sample.derivation(dims=dims, quantities={known.name: quantity})


class _Plain:
    """Evaluates one expression."""

    def __init__(self, text, sizes):
        self.text, self.known, self.own = text, sizes, self

    def sizes(self, given):
        return {**self.known, **given}

    def holds(self, sizes):
        return True

    def value(self, sizes):
        return int(evaluate_text(self.text, sizes))


def test_numbers_are_compared_with_numbers_of_one_format():
    """4·B·D·L bytes of float32 are B·D·L numbers; bytes of another format are not counted as if they were of this one."""
    (right,) = (c for c in compare(_deep_linear("float32", "4*B*D*L")) if c.rule.name == "BDL activations")
    (wrong,) = (c for c in compare(_deep_linear("int64", "8*B*D*L")) if c.rule.name == "BDL activations")

    assert right.value == right.exact == 2 * 12 * 2
    assert not wrong.applies
    assert "cannot be compared: it counts numbers in float32, and activations.bytes has int64" == wrong.reason


def test_valid_ranges_include_sizes_that_are_a_multiple_plus_a_remainder():
    """Of a width of 2m + 1, sizes are odd. 16 d² is within 5 % of 16 d² + 4 bytes at each of them."""
    odd = trace_spec(lambda n: nn.Linear(n.d, n.d, bias=False), dims={"B": 3, "d": Dim(7, multiple_of=2, plus=1)})

    comparisons = {c.rule.name: c for c in compare(calc.derive(odd, cache=False))}["16 bytes per parameter"]

    [along] = [w for w in comparisons.within if w.dim == "d"]
    assert along.ranges == (along.searched,) == ((3, 2**20 + 1),)


def test_a_number_of_parameters_by_cases_is_that_of_the_case_in_force():
    """As of a projection that is left out where two widths are equal: a case has no place in a product."""
    derivation = sample.derivation()
    quantity = derivation["parameters.active"]
    text = f"Piecewise(({quantity.text}, And(Eq(B, {derivation.sizes['B']}), Eq(d, d))), (d, True))"
    quantities = {**derivation.quantities, "parameters.active": replace(quantity, text=text)}
    comparisons = {c.rule.name: c for c in compare(replace(derivation, quantities=quantities))}

    assert "Piecewise" not in comparisons["6ND"].expr
    assert 244_800 == evaluate_text(comparisons["6ND"].expr, derivation.sizes)
    assert not any("Piecewise" in str(step) for step in comparisons["6ND"].steps)


def test_a_range_ends_where_the_terms_of_the_error_do_not_hold(comparisons):
    """Those of a special case, here of the derivation's batch, say nothing about cancellation at another one."""
    derivation, comparison = sample.derivation(), comparisons["2ND"]
    batch = derivation.sizes["B"]
    here = [replace(d, expr=re.sub(r"\bB\b", str(batch), d.expr)) for d in comparison.differences]
    exact = ExactCount(comparison.rule, derivation)

    assert (batch, batch) == ranges.within("B", comparison.expr, exact, derivation, here).searched
    assert ranges.within("B", comparison.expr, exact, derivation, comparison.differences).searched[1] == 2**20

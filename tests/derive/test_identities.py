"""What must hold of every derivation, whatever the model: sums close, steps hold, values are their expressions'."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
import sympy as sp

from calc.derive.result import Derivation
from calc.errors import DimensionError, UnknownQuantityError
from calc.symbolic.algebra import symbol, to_sympy
from calc.units import QuantityValue, Unit
from tests.derive.conftest import Derived
from tests.derive.models import CASES, SMALL, at, exactly, some_sizes

FORWARD = ("flops.forward.matmul", "flops.forward.elementwise", "flops.forward.total", "bytes_moved.forward", "activations.bytes")
PEAKS = ("memory.peak", "memory.peak.first_step")


@pytest.fixture(params=CASES, ids=lambda case: "-".join(case))
def result(request: pytest.FixtureRequest, derived: Derived) -> Derivation:
    return derived(*request.param)


def substituted(expr: sp.Expr, sizes: Mapping[str, int]) -> sp.Integer:
    """All sizes at once: one after the other, SymPy would compare half-substituted moments of a peak with each other."""
    return expr.xreplace({symbol(name): sp.Integer(value) for name, value in sizes.items()})


def with_head_width(sizes: Mapping[str, int]) -> dict[str, int]:
    """``sizes`` and the k = d/h that follows from them."""
    return {**sizes, **({"k": sizes["d"] // sizes["h"]} if "h" in sizes else {})}


def known(result: Derivation) -> list[str]:
    """Quantities with a closed form: most of them."""
    names = [name for name in result if result[name].text is not None]
    assert len(names) > len(list(result)) // 2
    return names


# -- expressions and values -------------------------------------------------------------------------------------------------


def test_a_value_is_its_expression_at_the_models_sizes(result: Derivation) -> None:
    """SymPy's substitution, in integers."""
    for name in known(result):
        assert result[name].value == substituted(result[name].expr, result.sizes)


def test_an_expression_is_the_one_that_its_text_says(result: Derivation) -> None:
    """It is built from what the text was written from: nothing is lost on the way through a document."""
    for name in known(result):
        assert result[name].expr == to_sympy(str(result[name].text)), name


@pytest.mark.parametrize("seed", range(3))
def test_a_quantity_at_other_sizes_is_its_expression_there(result: Derivation, seed: int) -> None:
    """``at`` evaluates polynomials in symbols of the trace; ``expr`` is in the model's dimensions: the same numbers."""
    given = some_sizes(result, seed)
    for name in known(result):
        assert result[name].at(**given) == substituted(result[name].expr, with_head_width(given))


def test_expressions_hold_dimensions_of_the_model_alone(result: Derivation) -> None:
    """Anyone who knows the symbol table can read them."""
    for name in known(result):
        assert {s.name for s in result[name].expr.free_symbols} <= set(result.sizes)
        assert all(s.is_positive and s.is_integer for s in result[name].expr.free_symbols)


def test_every_quantity_is_a_positive_integer_or_zero_with_a_reason_to_be(result: Derivation) -> None:
    """Bytes and FLOPs are counted, not estimated."""
    for name in known(result):
        value = result[name].value
        assert type(value) is QuantityValue
        assert value >= 0
    for name in ("parameters", "gradients.bytes", "memory.peak", "flops.forward.matmul", "flops.backward.matmul", "bytes_moved.optimizer"):
        assert (result[name].value or 0) > 0


def test_units_follow_names(result: Derivation) -> None:
    """Elements are parameters; bytes say so or are memory; the rest is FLOP."""
    assert "parameters" in result
    for name in result:
        flop, element = name.startswith("flops."), name in ("parameters", "parameters.active", "parameters.non_embedding")
        assert result[name].unit is (Unit.FLOP if flop else Unit.ELEMENT if element else Unit.BYTE)


# -- terms --------------------------------------------------------------------------------------------------------------------


def test_terms_add_up_to_their_quantity(result: Derivation) -> None:
    """As expressions and as values, in every quantity that has terms."""
    summed = [name for name in known(result) if name not in PEAKS and result[name].value != 0]
    assert summed
    for name in summed:
        quantity = result[name]
        assert sp.expand(sp.Add(*(to_sympy(t.expr) for t in quantity.terms)) - quantity.expr) == 0
        assert sum(t.value for t in quantity.terms) == quantity.value
        assert all(t.module_path and t.because for t in quantity.terms)


def test_peak_candidates_add_up_from_their_parts(result: Derivation) -> None:
    """Live bytes by role, none negative, none left out."""
    for name in PEAKS:
        assert result[name].candidates
        for candidate in result[name].candidates:
            assert sp.expand(sp.Add(*(to_sympy(p) for p in candidate.parts.values())) - to_sympy(candidate.expr)) == 0
            assert sum(candidate.part_values.values()) == candidate.value
            assert set(candidate.parts) == set(candidate.part_values)
            assert all(v > 0 for v in candidate.part_values.values())


def test_the_peak_is_the_largest_of_its_candidates(result: Derivation) -> None:
    """Here and elsewhere, in the case in force; they stand in falling order, and no two are alike."""
    for name in PEAKS:
        values = [c.value for c in result[name].candidates]
        assert result[name].value == max(values)
        assert values == sorted(values, reverse=True)
        assert len({c.expr for c in result[name].candidates}) == len(values)
        for seed in range(3):
            sizes = {**some_sizes(result, seed), **result.specialized}
            everywhere = [substituted(to_sympy(c.expr), with_head_width(sizes)) for c in result[name].candidates]
            assert result[name].at(**sizes) == max(everywhere)


@pytest.mark.parametrize("seed", range(3))
def test_the_peak_holds_at_least_what_lives_all_the_time(result: Derivation, seed: int) -> None:
    """Weights, state and gradients together when the backward ends; weights, state and activations when the forward does."""
    q = at(result, some_sizes(result, seed))
    always = 4 * q["parameters"] + q["optimizer_state.bytes"]

    assert q["memory.peak"] >= always + q["gradients.bytes"]
    assert q["memory.peak"] >= q["memory.peak.first_step"]
    assert q["memory.peak.first_step"] >= 4 * q["parameters"] + q["gradients.bytes"]


# -- sums of quantities ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_totals_are_sums_of_their_parts(result: Derivation, seed: int) -> None:
    """Matmul and elementwise; forward, backward and optimizer."""
    q = at(result, some_sizes(result, seed))
    for phase in ("forward", "backward", "optimizer"):
        assert q[f"flops.{phase}.total"] == q[f"flops.{phase}.matmul"] + q[f"flops.{phase}.elementwise"]
    assert q["flops.step.total"] == sum(q[f"flops.{phase}.total"] for phase in ("forward", "backward", "optimizer"))


def test_gradients_are_four_bytes_a_parameter(result: Derivation) -> None:
    """Every weight of these models is trained, in fp32."""
    assert sp.expand(result["gradients.bytes"].expr - 4 * result["parameters"].expr) == 0


def test_a_checkpoint_is_weights_state_and_the_iteration(result: Derivation) -> None:
    """These models have no buffers: 4 bytes a parameter, the optimizer's bytes, and 8."""
    expected = 4 * result["parameters"].expr + result["optimizer_state.bytes"].expr + 8

    assert sp.expand(result["checkpoint.bytes"].expr - expected) == 0


def test_repeated_and_credited_products_are_parts_of_all_products(result: Derivation) -> None:
    """0 ≤ recompute ≤ backward, and a mask takes at most half of the forward away."""
    q = at(result, some_sizes(result, 7))

    assert 0 <= q["flops.backward.recompute"] <= q["flops.backward.matmul"]
    if q["flops.forward.causal"] is not None:
        assert q["flops.forward.matmul"] / 2 < q["flops.forward.causal"] < q["flops.forward.matmul"]


# -- how quantities grow --------------------------------------------------------------------------------------------------


def differences(result: Derivation, quantity: str, dimension: str, order: int) -> int:
    """The ``order``-th difference of a quantity in one dimension, from 5 in steps of 1."""
    sizes = {**SMALL[result.model], **({"C": 97} if "C" in SMALL[result.model] else {})}
    values = [result[quantity].at(**{**sizes, dimension: n}) for n in range(5, 6 + order)]
    for _ in range(order):
        values = [b - a for a, b in itertools.pairwise(values)]
    return values[0]


def test_the_forward_is_linear_in_the_batch(result: Derivation) -> None:
    """Up to a constant: weights are read once, a sum of n takes n - 1. Activations likewise."""
    for quantity in FORWARD:
        assert differences(result, quantity, "B", 2) == 0
        assert differences(result, quantity, "B", 1) > 0


def test_matrix_products_of_the_forward_are_proportional_to_the_batch(result: Derivation) -> None:
    """Twice the sequences, twice the products: no constant at all."""
    one, two = (result["flops.forward.matmul"].at(**{**SMALL[result.model], "B": B}) for B in (7, 14))

    assert two == 2 * one


@pytest.mark.parametrize("case", [c for c in CASES if c[0] in ("gpt2", "cruncher")], ids="-".join)
def test_layers_are_additive(case: tuple[str, str, str], derived: Derived) -> None:
    """One more layer costs the same whatever the number of layers, in every quantity but the maximum."""
    result = derived(*case)
    for quantity in known(result):
        if quantity not in PEAKS:
            assert differences(result, quantity, "L", 2) == 0


@pytest.mark.parametrize("case", [c for c in CASES if c[0] == "gpt2"], ids="-".join)
def test_attention_is_quadratic_in_the_sequence_and_nothing_is_more(case: tuple[str, str, str], derived: Derived) -> None:
    """Third differences vanish. Scores and values are 2·2·B·T²·d a layer, whose second difference is 8·B·d·L: 8*2*15*5."""
    result = derived(*case)
    for quantity in known(result):
        if quantity not in PEAKS:
            assert differences(result, quantity, "T", 3) == 0
    assert differences(result, "flops.forward.matmul", "T", 2) == 8 * 2 * 15 * 5


@pytest.mark.parametrize("case", [c for c in CASES if c[0] == "gpt2"], ids="-".join)
def test_heads_cancel_from_matrix_products(case: tuple[str, str, str], derived: Derived) -> None:
    """More and narrower heads multiply as much."""
    result = derived(*case)
    for quantity in ("flops.forward.matmul", "flops.backward.matmul", "flops.forward.causal"):
        assert "h" not in {s.name for s in result[quantity].expr.free_symbols}
        assert "k" not in {s.name for s in result[quantity].expr.free_symbols}


def test_parameters_and_state_do_not_depend_on_the_batch(result: Derivation) -> None:
    """Nor on the sequence."""
    for quantity in ("parameters", "gradients.bytes", "optimizer_state.bytes", "checkpoint.bytes"):
        assert not {"B", "T"} & {s.name for s in result[quantity].expr.free_symbols}


# -- steps ------------------------------------------------------------------------------------------------------------------


def test_every_step_holds_at_random_sizes(result: Derivation) -> None:
    """Before equals after at three points, read off the trees by this test's own code."""
    assert result.steps
    for seed in range(3):
        sizes = with_head_width(some_sizes(result, seed))
        for step in result.steps:
            assert exactly(step.before, sizes) == exactly(step.after, sizes), (step.id, step.title)


def test_every_steps_value_is_what_it_arrives_at(result: Derivation) -> None:
    """At the derivation's own sizes."""
    assert result.steps
    for step in result.steps:
        assert step.value == exactly(step.after, result.sizes)


def test_the_last_step_of_a_quantity_arrives_at_it(result: Derivation) -> None:
    """Nothing is left between the steps and the result."""
    last = {step.quantity: step for step in result.steps}
    assert set(last) == set(known(result))
    for name in known(result):
        assert last[name].value == result[name].value
        for seed in range(2):
            sizes = {**some_sizes(result, seed), **result.specialized}
            assert exactly(last[name].after, with_head_width(sizes)) == result[name].at(**sizes)


def test_steps_are_numbered_in_the_order_of_quantities_and_say_why(result: Derivation) -> None:
    """Each has a rule, a reason and the way it was verified."""
    order = list(result)
    numbers = [int(step.id.rpartition("-")[2]) for step in result.steps]

    assert len(set(numbers)) == len(numbers)
    assert [order.index(s.quantity) for s in result.steps] == sorted(order.index(s.quantity) for s in result.steps)
    assert all(s.title and s.rule and s.because for s in result.steps)
    assert {s.check.kind for s in result.steps} <= {"symbolic", "random points"}
    assert all("holds" in s.check.result for s in result.steps)


def test_steps_that_apply_a_rule_name_its_operators(result: Derivation) -> None:
    """All of which the coverage knows as counted."""
    counted = {row.operator for row in result.coverage if row.kind == "counted"}
    named = {op for step in result.steps for op in step.operators}

    assert named
    assert {op for step in result.steps if step.quantity.startswith("flops.") for op in step.operators} <= counted


def test_the_coverage_says_of_every_operator_whether_it_counts(result: Derivation) -> None:
    """How often it runs, and why it is free."""
    assert {row.kind for row in result.coverage} <= {"counted", "free"}
    assert all(row.value > 0 and row.because for row in result.coverage)
    assert len({row.operator for row in result.coverage}) == len(result.coverage)


def test_certificates_lie_outside_of_the_derivation(result: Derivation) -> None:
    """Two at least, at different sizes, not all of them the model's own, each on every counted quantity that is not zero."""
    assert len(result.certificates) >= 2
    assert len({tuple(sorted(c.sizes.items())) for c in result.certificates}) == len(result.certificates)
    assert any(c.sizes != result.sizes for c in result.certificates)  # one may be at the sizes of the model, which are no hints
    assert all(set(c.sizes) == set(result.sizes) for c in result.certificates)
    assert all(c.quantities >= 15 for c in result.certificates)


# -- the results object -------------------------------------------------------------------------------------------------------


def test_an_unknown_quantity_is_refused_with_those_there_are(result: Derivation) -> None:
    """A misspelt one above all."""
    with pytest.raises(UnknownQuantityError, match=r"^unknown quantity 'flops': use one of parameters, parameters\.active, "):
        result["flops"]


def test_a_derivation_lists_its_quantities(result: Derivation) -> None:
    """The same 27 for every model, known or not."""
    assert len(result) == len(list(result)) == 27
    assert "memory.peak" in list(result)


def test_a_quantity_without_value_says_why(derived: Derived) -> None:
    """A classifier has no attention to credit a mask to; it is null, not zero."""
    causal = derived("mlp")["flops.forward.causal"]

    assert (causal.text, causal.value, causal.terms) == (None, None, ())
    assert causal.unknown == "this model has no attention"
    with pytest.raises(UnknownQuantityError, match=r"^flops\.forward\.causal is unknown: this model has no attention"):
        causal.at(B=3)
    with pytest.raises(UnknownQuantityError, match=r"^flops\.forward\.causal is unknown: this model has no attention"):
        _ = causal.expr


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"Q": 3}, r"^this model has no dimension 'Q'"),
        ({"B": 0}, r"^B = 0 is not positive"),
        ({"d": 770}, r"^k = d/h is not an integer at d = 770, h = 12: choose d as a multiple of h, e\.g\. d = 768$"),
        ({"T": 1025}, r"^T = 1025 is more than C = 1024"),
        ({"k": 32}, r"^k cannot be set: in this model k = d/h; set d or h$"),
        ({"B": 2**63}, r"^B is too large"),
    ],
)
def test_sizes_that_the_model_cannot_have_are_refused(sizes: dict[str, int], message: str, derived: Derived) -> None:
    """At evaluation as well as before tracing."""
    with pytest.raises(DimensionError, match=message):
        derived("gpt2")["memory.peak"].at(**sizes)

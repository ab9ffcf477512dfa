"""An error in any rule makes the check fail on some model of the zoo.

The tests enumerate the registry: a rule that no model executes fails the suite, and so does an error in one that no check
notices. A check that a wrong rule passes would prove nothing. Those over the whole zoo are slow; tests/rules/test_table.py asks the
same of the one model that the table of rules names for each.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import calc.rules.families  # noqa: F401  # importing it fills the registry
from calc.derive.accumulate import PHASES, Accumulator
from calc.derive.result import Derivation, Quantity
from calc.errors import UnbackedSizeError
from calc.graph.basis import basis_of
from calc.graph.coverage import CoverageRow
from calc.graph.step import StepTrace
from calc.measure import Measurement, measure
from calc.pipeline.check import Report, check, compare
from calc.pipeline.pipeline import Run, derived
from calc.pipeline.verdict import FAILED
from calc.rules.registry import REGISTRY, Operator, Registry
from calc.trace.step import trace_step
from calc.trace.tracing import StepSizes
from calc.units import Unit
from tests.quick import few
from tests.rules.cases import CASES
from tests.rules.mutate import planted, with_rule
from tests.rules.operators import observe
from tests.zoo import ZOO

# Kernels of a CUDA device. Each is counted by the very function that counts the CPU's kernel.
ELSEWHERE = {
    f"aten._scaled_dot_product_{kind}_attention{way}.default": f"aten._scaled_dot_product_flash_attention_for_cpu{way}.default"
    for kind in ("flash", "efficient", "cudnn")
    for way in ("", "_backward")
}
UNTRACED = {
    "aten.lift_fresh.default": "a constant written in Python: tracing takes it as it is, and both sides move nothing for it",
    "aten.set_.source_Storage_storage_offset": "a tensor read from a file: tracing takes it as it is, and both sides move nothing for it",
}

HERE = sorted(REGISTRY.rules.keys() - ELSEWHERE.keys())


# The quantities that rules are asked for and that a run has an instrument for; the recompute is held against what executes.
COUNTED = (
    "flops.backward.recompute",
    *(f"bytes_moved.{phase}" for phase in PHASES),
    *(f"flops.{phase}.{kind}" for phase in PHASES for kind in ("matmul", "elementwise")),
)


# -- models, traced and measured once ---------------------------------------------------------------------------------------


@cache
def traced(model: str) -> StepTrace:
    """The training step of a model at its first sizes, as plain numbers."""
    exhibit = ZOO[model]
    spec = exhibit.make()
    basis = basis_of(spec.dimensions)
    at = StepSizes(basis, {}, basis.values(spec.sizes(exhibit.sizes)))
    try:
        return trace_step(spec, at, exhibit.options).trace
    except UnbackedSizeError:
        # What data decide is as the real run had it, in both of its steps alike.
        met = {place: 2 * counts for place, counts in ran(model).unbacked_sizes.items()}
        return trace_step(spec, replace(at, observed=met), exhibit.options).trace


@cache
def ran(model: str) -> Measurement:
    """The same step run for real."""
    exhibit = ZOO[model]
    spec = exhibit.make()
    return measure(spec, spec.sizes(exhibit.sizes), options=exhibit.options)


@cache
def measured(model: str) -> Measurement:
    """The run. With the rules as they are, nothing of it fails: else every error would seem noticed."""
    measurement = ran(model)
    assert [] == failed(compared(traced(model), REGISTRY, measurement)), model
    return measurement


@cache
def models() -> dict[str, list[str]]:
    """The models that execute each operator in the step that counts, those with fewer operators first.

    Left out are slow ones, those known to be wrong, and those that declare a causal mask: a rule that forgets the length of the
    mask has nothing that could be credited, which is an error of its own before anything is compared.
    """
    actual: dict[str, list[str]] = {}
    for model, exhibit in ZOO.items():
        if not exhibit.slow and not any(call.causal for call in traced(model).calls):
            for op in {op.name for op in traced(model).ops if op.step == 2}:
                actual.setdefault(op, []).append(model)
    return {op: sorted(names, key=lambda m: (len(traced(m).ops), m)) for op, names in actual.items()}


def calls(op: str, among: Iterable[str]) -> list[Operator]:
    """Every call of an operator in these models, as its rule sees it."""
    folder = Accumulator(int, REGISTRY)
    return [folder.operator(o) for model in among for o in traced(model).ops if o.name == op and o.step == 2]


# -- the check ----------------------------------------------------------------------------------------------------------------


def compared(trace: StepTrace, registry: Registry, measurement: Measurement) -> Report:
    """The check of ``calc.pipeline.check`` on what ``registry`` says of a trace's operators."""
    counts = dict.fromkeys(COUNTED, 0)
    for entry in Accumulator(int, registry).entries(trace):
        if entry.quantity in counts:
            counts[entry.quantity] += entry.count
    quantities = {name: Quantity(name, Unit.FLOP, "", "folded", count) for name, count in counts.items()}
    coverage = tuple(CoverageRow(name, "1", 1, "counted", "") for name in sorted({op.name for op in trace.ops}))
    return compare(Derivation("zoo", "tests", (), {}, (), quantities, (), coverage, (), {}), counts, measurement)


def failed(report: Report) -> list[str]:
    return [verdict.quantity for verdict in report.verdicts if verdict.verdict == FAILED]


def unnoticed(op: str, registry: Registry) -> bool:
    """Whether every model that executes ``op`` passes its check under ``registry``."""
    return not any(failed(compared(traced(m), registry, measured(m))) for m in models()[op])


def errors(op: str, model: str | None = None) -> Mapping[str, Registry]:
    """Registries with an error planted in the rule of ``op``, by what was done: in one of its calls by this model, or by any."""
    if model is None:
        assert op in models(), f"no model of tests/zoo executes {op}, so no check would notice that its rule is wrong: add one"
    return dict(planted(REGISTRY, op, calls(op, models()[op] if model is None else [model])))


# -- every rule ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("op", HERE)
def test_whatever_is_wrong_in_a_rule_fails_a_check(op: str) -> None:
    """Every addend dropped, doubled, with one dimension in place of another; every read and write dropped or doubled. Of a free operator
    there is one error, which tests/rules/test_table.py plants."""
    assert [] == [what for what, registry in errors(op).items() if unnoticed(op, registry)]


@pytest.mark.slow
@pytest.mark.parametrize("op", sorted(REGISTRY.rules))
def test_a_rule_is_executed_by_a_model_or_shared_with_one_that_is(op: str) -> None:
    """What no CPU executes is counted by the function of what one does."""
    twin = ELSEWHERE.get(op, op)

    assert REGISTRY.rules[op].function is REGISTRY.rules[twin].function
    assert twin in models()
    assert op == twin or op not in models()


# What a rule counts elsewhere only: on a CPU the forward keeps what this backward would make again.
ADDENDS_ELSEWHERE = {"aten.log_sigmoid_backward.default": frozenset(("|x|", "−|x|", "z = exp(−|x|)"))}


@pytest.mark.slow
@pytest.mark.parametrize("op", HERE)
def test_every_addend_of_a_rule_is_executed_by_a_model(op: str) -> None:
    """The calls that compare a rule with torch, operator by operator, show all its addends: a model makes each of them count."""
    assert shown_alone(op) <= addends(op, calls(op, models()[op]))


def shown_alone(op: str) -> set[str]:
    """Names of the addends that calls of the operator by itself have, but for those that no CPU runs in a step."""
    return addends(op, [observe(op, make()).operator for make in CASES[op]]) - ADDENDS_ELSEWHERE.get(op, frozenset())


def addends(op: str, operators: Iterable[Operator]) -> set[str]:
    """Names of all addends that the rule of ``op`` states for any of the calls."""
    costs = [REGISTRY.rules[op].function(operator) for operator in operators]
    return {term.name for cost in costs for term in (*cost.matmul, *cost.elementwise, *cost.recompute)}


@pytest.mark.slow
@pytest.mark.parametrize("op", random.Random(5).sample(HERE, 8))
def test_a_rule_in_its_own_place_is_no_error(op: str) -> None:
    """The checks that notice an error pass where there is none, though the registry is a copy all the same."""
    assert unnoticed(op, with_rule(REGISTRY, op, REGISTRY.rules[op].function))


@pytest.mark.slow
@pytest.mark.parametrize("op", sorted(UNTRACED))
def test_what_is_said_not_to_be_recorded_is_not(op: str) -> None:
    """Otherwise the table of what cannot be tested here would hide a rule that can."""
    assert op in REGISTRY.frees
    assert op not in models()


# -- the whole way ------------------------------------------------------------------------------------------------------------

WHOLE_WAY = [
    *few(
        [
            ("words", "aten.mm.default", "flops.forward.matmul"),
            ("words", "aten.embedding.default", "bytes_moved.forward"),
            ("class losses, mean", "aten._log_softmax_backward_data.default", "flops.backward.elementwise"),
            ("layer norms", "aten.native_layer_norm.default", "flops.forward.elementwise"),
            ("grouped convolution", "aten.convolution_backward.default", "flops.backward.matmul"),
            ("attention, fused", "aten._scaled_dot_product_flash_attention_for_cpu_backward.default", "flops.backward.matmul"),
            ("trained by adamw", "aten.addcdiv_.default", "flops.optimizer.elementwise"),
            ("a scatter by a mask", "aten.index_put.default", "flops.forward.elementwise"),
        ],
        4,
    ),
    pytest.param("experts in a loop", "aten.mm.default", "flops.backward.matmul", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("model", "op", "quantity"), WHOLE_WAY)
def test_an_error_passes_the_derivation_and_fails_the_check(model: str, op: str, quantity: str) -> None:
    """The closed forms and their certificates follow the wrong rule; the run does not."""
    exhibit = ZOO[model]
    spec = exhibit.make()
    kind = quantity.rpartition(".")[2] if quantity.startswith("flops") else "reads"
    what, registry = next((what, registry) for what, registry in errors(op, model).items() if what.startswith(kind) and "dropped" in what)

    derivation = derived(spec, exhibit.sizes, Run(exhibit.options, cache=False, registry=registry))
    report = check(derivation, **_free(spec, exhibit.sizes))

    assert quantity in failed(report), what


def _free(spec: Any, given: Mapping[str, int]) -> dict[str, int]:
    return {name: size for name, size in spec.sizes(given).items() if not spec.dimensions[name].tied}

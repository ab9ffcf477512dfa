"""The check: equal integers pass, anything else fails or says why it was not measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import pytest
import sympy as sp

from calc.derive.result import Derivation, Quantity
from calc.dimensions import Dim
from calc.errors import BadInputError, DimensionError, MeasurementError
from calc.graph.coverage import CoverageRow
from calc.graph.step import TracedDim
from calc.measure import measure
from calc.options import Options
from calc.pipeline.check import Report, check, chosen
from calc.pipeline.verdict import EXACT, FAILED, IN_PARTS, NOT_MEASURED, Verdict
from calc.spec import Spec
from calc.units import Unit
from tests.measure import tiny
from tests.opaque import NAME, twice

Formula = Callable[[Mapping[str, int]], int]

# The summed linear layer with SGD, by hand: y = x W' + b, loss = sum(y).
LINEAR: dict[str, Formula] = {
    "parameters": lambda s: s["n"] * s["m"] + s["m"],
    "gradients.bytes": lambda s: 4 * (s["n"] * s["m"] + s["m"]),
    "optimizer_state.bytes": lambda s: 0,
    "activations.bytes": lambda s: 4 * s["B"] * s["n"],
    "checkpoint.bytes": lambda s: 4 * (s["n"] * s["m"] + s["m"]) + 8,
    "flops.forward.matmul": lambda s: 2 * s["B"] * s["n"] * s["m"],
    "flops.forward.elementwise": lambda s: 2 * s["B"] * s["m"] - 1,
    "flops.forward.total": lambda s: 2 * s["B"] * s["n"] * s["m"] + 2 * s["B"] * s["m"] - 1,
    "flops.backward.matmul": lambda s: 2 * s["B"] * s["n"] * s["m"],
    "flops.backward.recompute": lambda s: 0,
    "flops.optimizer.matmul": lambda s: 0,
}  # fmt: skip

LINEAR_COVERAGE = (
    "t.default", "addmm.default", "sum.default", "ones_like.default", "expand.default", "mm.default", "sum.dim_IntList",
    "view.default", "detach.default", "add_.Tensor",
)  # fmt: skip


@dataclass(frozen=True)
class ByHand:
    """Evaluates a formula at the sizes given."""

    formula: Formula

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        return dict(given)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return True

    def value(self, sizes: Mapping[str, int]) -> int:
        return self.formula(sizes)

    def expr(self) -> sp.Expr:
        raise NotImplementedError


@dataclass(frozen=True)
class AtSizes:
    """The same derivation with the values of its formulas at other sizes."""

    derivation: Derivation

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        return {**self.derivation.sizes, **given}

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return True

    def usual(self, sizes: Mapping[str, int], free: Collection[str]) -> dict[str, int]:
        return {}

    def at(self, sizes: Mapping[str, int]) -> Derivation:
        derivation = self.derivation
        quantities = {n: q if q.text is None else replace(q, value=q.at(**sizes)) for n, q in derivation.quantities.items()}
        return replace(derivation, dims=tuple(replace(d, value=sizes[d.name]) for d in derivation.dims), quantities=quantities)


def derivation(
    spec: Spec | None,
    formulas: Mapping[str, Formula | str],
    *,
    dims: tuple[TracedDim, ...] | None = None,
    coverage: tuple[str, ...] = LINEAR_COVERAGE,
    attention: str = "fused",
) -> Derivation:
    """A derivation as the folds would make it; a text in place of a formula is why a quantity is unknown."""
    dims = dims or tuple(TracedDim(name, name, value) for name, value in (spec.sizes() if spec else {"B": 3}).items())

    def quantity(name: str, formula: Formula | str) -> Quantity:
        if isinstance(formula, str):
            return Quantity(name, Unit.FLOP, "", None, None, unknown=formula)
        return Quantity(name, Unit.FLOP, "", "by hand", formula({d.name: d.value for d in dims}), _evaluator=ByHand(formula))

    made = Derivation(
        model="by hand",
        source="test",
        dims=dims,
        options={"optimizer": "sgd", "precision": "fp32", "attention": attention, "mode": "train", "hints": "not an option of the run"},
        assumptions=(),
        quantities={name: quantity(name, formula) for name, formula in formulas.items()},
        steps=(),
        coverage=tuple(CoverageRow(f"aten.{name}", "1", 0, "counted", "by hand") for name in coverage),
        certificates=(),
        provenance={},
        spec=spec,
    )
    return replace(made, other_sizes=AtSizes(made))


def test_hand_derived_numbers_of_a_linear_layer_are_exact_at_other_sizes() -> None:
    """Every quantity but the recompute, which nothing measures, equals the real run at sizes that the spec never named."""
    report = check(derivation(tiny.summed(), LINEAR), B=2, n=11, m=13)

    assert report.ok
    assert report.passed
    assert [] == [str(v) for v in report.verdicts if v.verdict not in (EXACT, NOT_MEASURED)]
    assert ["flops.backward.recompute"] == [v.quantity for v in report.verdicts if v.verdict == NOT_MEASURED]
    assert {"B": 2, "n": 11, "m": 13} == dict(report.sizes)
    assert "11 passed (11 exact), 0 failed, 1 not measured" == report.tally


@pytest.mark.parametrize("quantity", [name for name in LINEAR if name != "flops.backward.recompute"])
def test_a_difference_of_one_fails_in_every_quantity(quantity: str) -> None:
    """There is no tolerance: one byte or FLOP too many is a failure that says by how much."""
    right = LINEAR[quantity]
    report = check(derivation(tiny.summed(), {**LINEAR, quantity: lambda s: right(s) + 1}))

    assert not report.ok
    assert FAILED == report[quantity].verdict
    assert "derived is off by +1" == report[quantity].because
    assert 1 == report.failed


def attention_formulas(repeated: int) -> dict[str, Formula | str]:
    """Tiny attention by hand: projections 21840, attention 4704 forward; fused attention repeats 2*2*7*7*12 = 2352 in backward."""
    return {
        "flops.forward.matmul": lambda s: 26544,
        "flops.backward.matmul": lambda s: 2 * 26544 + repeated,
        "flops.backward.recompute": lambda s: repeated,
        "flops.forward.causal": lambda s: 24192,
        "flops.optimizer.matmul": lambda s: 0,
    }


FUSED = "_scaled_dot_product_flash_attention_for_cpu.default"


def _attention(repeated: int, attention: str) -> Report:
    return check(derivation(tiny.attention(), attention_formulas(repeated), attention=attention, coverage=(FUSED,) if repeated else ()))


def test_products_inside_fused_attention_are_measured_in_parts() -> None:
    """The counter saw them one by one on the math backend; the backward has the repeated product on top: the expected difference."""
    report = _attention(2352, "fused")

    assert IN_PARTS == report["flops.forward.matmul"].verdict
    assert "torch's counter does not see _scaled_dot_product_flash_attention_for_cpu" in report["flops.forward.matmul"].because
    assert IN_PARTS == report["flops.backward.matmul"].verdict
    assert 2 * 26544 + 2352 == report["flops.backward.matmul"].derived
    assert 2 * 26544 == report["flops.backward.matmul"].measured
    assert (0, 2352) == (report["flops.forward.matmul"].expected, report["flops.backward.matmul"].expected)
    assert "includes 2,352 FLOP of recomputation inside the kernel" in report["flops.backward.matmul"].because
    instrument, unseen, repeats = report["flops.backward.matmul"].notes
    assert (instrument, unseen) == report["flops.forward.matmul"].notes
    assert (instrument, f"{unseen}; {repeats}") == (report["flops.backward.matmul"].instrument, report["flops.backward.matmul"].because)
    assert EXACT == report["flops.optimizer.matmul"].verdict


def test_a_wrong_recompute_of_fused_attention_fails() -> None:
    """The repeated product is taken from the derivation, so it must be inside the backward exactly once."""
    wrong = {**attention_formulas(2352), "flops.backward.matmul": lambda s: 2 * 26544}
    report = check(derivation(tiny.attention(), wrong, coverage=(FUSED,)))

    assert FAILED == report["flops.backward.matmul"].verdict
    assert "derived is off by -2,352" in report["flops.backward.matmul"].because


def test_math_attention_is_exact() -> None:
    """Every product is an operator that the counter knows, and none is repeated."""
    report = _attention(0, "math")

    assert EXACT == report["flops.forward.matmul"].verdict
    assert EXACT == report["flops.backward.matmul"].verdict


def test_a_causal_credit_has_no_instrument() -> None:
    """Torch's counter credits no mask; saying so is not a pass."""
    verdict = _attention(0, "math")["flops.forward.causal"]

    assert NOT_MEASURED == verdict.verdict
    assert verdict.measured is None
    assert not verdict.passed
    assert "no instrument: torch counts attention without its mask" == verdict.because


def test_a_total_is_measured_in_parts_if_a_part_of_it_is() -> None:
    """The step's total of fused attention is the sum of its measured parts and the stated recompute."""
    spec = tiny.attention()
    readings = measure(spec, {}, options=Options(optimizer="sgd"))
    elementwise = [readings[f"flops.{phase}.elementwise"].value or 0 for phase in ("forward", "backward", "optimizer")]
    formulas: dict[str, Formula | str] = {
        **attention_formulas(2352),
        "flops.forward.total": lambda s: 26544 + elementwise[0],
        "flops.optimizer.total": lambda s: elementwise[2],
        "flops.step.total": lambda s: 3 * 26544 + 2352 + sum(elementwise),
    }
    report = check(derivation(spec, formulas, coverage=(FUSED,)))

    assert IN_PARTS == report["flops.forward.total"].verdict
    assert EXACT == report["flops.optimizer.total"].verdict
    assert IN_PARTS == report["flops.step.total"].verdict


def test_what_could_not_be_derived_or_measured_says_why() -> None:
    """No instrument credits a mask; a quantity without a closed form keeps its own reason."""
    formulas: dict[str, Formula | str] = {"flops.backward.causal": lambda s: 1, "flops.forward.causal": "no mask was declared"}
    report = check(derivation(tiny.summed(), formulas))

    assert NOT_MEASURED == report["flops.backward.causal"].verdict
    assert "no instrument: torch counts attention without its mask" == report["flops.backward.causal"].because
    assert "not derived: no mask was declared" == report["flops.forward.causal"].because


def test_an_operator_that_nobody_accounts_for_fails_the_check() -> None:
    """The real run executed something that is neither in the derivation, nor has a rule, nor is stated free."""
    spec = tiny.summed(loss=lambda module, x: twice(module(x)).sum())
    report = check(derivation(spec, {"parameters": LINEAR["parameters"]}))

    assert FAILED == report["operators"].verdict
    assert f"neither counted nor stated free: {NAME}" == report["operators"].because


def test_a_derivation_of_a_loaded_graph_cannot_be_checked() -> None:
    """Nothing could be run: the refusal says what is missing."""
    with pytest.raises(BadInputError, match=r"^by hand was derived from a graph alone, which cannot be run: derive it from its spec"):
        check(derivation(None, {}))


def test_a_run_that_would_not_fit_is_refused_before_it_starts() -> None:
    """The derived peak itself says what the run would hold."""
    with pytest.raises(MeasurementError, match=r"^the run would allocate 1,000,000,000,000,000 bytes at its peak and [\d,]+ are free"):
        check(derivation(tiny.summed(), {"memory.peak": lambda s: 10**15}))


def test_sizes_that_are_numbers_have_to_be_given_for_a_smaller_run() -> None:
    """The spec's sizes for checks do not replace that at which the closed forms hold alone."""
    large = derivation(tiny.summed(check_at={"B": 2, "n": 11}), {"memory.peak": lambda s: 10**15})
    with pytest.raises(MeasurementError, match=r"as check_at of the spec; B=2 must be given, since closed forms hold at other numbers$"):
        check(replace(large, specialized={"B": large.sizes["B"]}))


def test_sizes_come_from_the_call_then_the_spec_then_the_derivation() -> None:
    """B is given, n is what the spec checks at, m stays as derived."""
    spec = tiny.summed(check_at={"B": 2, "n": 11})
    derived = derivation(spec, {}, dims=(TracedDim("B", "", 29), TracedDim("n", "", 31), TracedDim("m", "", 37)))

    assert {"B": 5, "n": 11, "m": 37} == chosen(derived, spec, {"B": 5}).sizes


def test_of_a_special_case_a_small_model_has_the_layers_and_what_is_no_larger() -> None:
    """At other layers it would be traced once more. The width of the special case is that of the large model."""
    spec = tiny.summed(dims={"B": 29, "d": 4096, "L": 16}, check_at={"d": 64, "L": 12}, reduced="to be quick", trip_counts=("L",))
    dims = (TracedDim("B", "", 1), TracedDim("d", "", 4096), TracedDim("L", "", 16))
    derived = replace(derivation(spec, {}, dims=dims), specialized={"B": 1, "d": 4096, "L": 16})

    assert {"B": 1, "d": 64, "L": 16} == chosen(derived, spec, {}).sizes


def test_a_default_moves_with_what_it_is_made_of_and_a_given_value_stays() -> None:
    """f = 4*d follows d to 8; a width f = 100 that somebody chose does not."""
    spec = tiny.summed(dims={"d": 12, "h": 3, "k": Dim("d/h", tied=True), "f": "4*d"})

    def at(f: int) -> dict[str, int]:
        dims = (TracedDim("d", "", 12), TracedDim("h", "", 3), TracedDim("k", "", 4, "d/h", tied=True), TracedDim("f", "", f, "4*d"))
        return dict(chosen(derivation(spec, {}, dims=dims), spec, {"d": 6}).sizes)

    assert {"d": 6, "h": 3, "k": 2, "f": 24} == at(48)
    assert {"d": 6, "h": 3, "k": 2, "f": 100} == at(100)


def test_a_size_that_the_model_does_not_have_is_refused() -> None:
    """The dimension table's own line, before anything runs."""
    with pytest.raises(DimensionError, match="no dimension 'Q'"):
        check(derivation(tiny.summed(), LINEAR), Q=3)


def test_a_verdict_reads_as_one_line() -> None:
    verdict = Verdict("parameters", 124439808, None, "", NOT_MEASURED, 0, "no instrument")

    assert "not measured  parameters                    derived 124,439,808, measured –  [no instrument]" == str(verdict)


def test_the_first_line_of_a_report_is_its_tally() -> None:
    """Not measured is counted where a reader looks first; then come the sizes, and why these."""
    lines = check(derivation(tiny.summed(), LINEAR)).lines()

    assert "by hand at B=3, n=5, m=7: 11 passed (11 exact), 0 failed, 1 not measured" == lines[0]
    assert "these sizes: those of the derivation" == lines[1]
    assert len(LINEAR) + 1 + 2 == len(lines)


def test_asking_a_report_for_what_was_not_checked_is_refused() -> None:
    """The line lists what was."""
    with pytest.raises(BadInputError, match=r"^'flops' was not checked: use one of parameters$"):
        Report("m", {}, {}, (Verdict("parameters", 1, 1, "i", EXACT, 0, ""),), {})["flops"]

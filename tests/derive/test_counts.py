"""No count is below 0: derived right where tensors have no elements, and refused by the results object where a rule goes wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.derive.closed_forms import derive
from calc.derive.result import Derivation
from calc.errors import CertificateError, NegativeCountError
from calc.pipeline.pipeline import Run, derived
from calc.pipeline.precomputed import Stored
from calc.pipeline.precomputed.index import FOLDER
from calc.pipeline.sweep import SweptSizes, sweep
from calc.pipeline.verdict import EXACT, FAILED
from calc.rules.registry import REGISTRY, Cost, Operator, Registry, term
from tests.rules.mutate import with_rule
from tests.trace.modules import function

OURS = "no count is below 0, so this is an error of Napkin, not of the model; report it with the model and these sizes"


def below_0(op: Operator) -> Cost:
    """A planted rule: it takes away what a sum costs."""
    return Cost(elementwise=(term("Σ x", -1000, op.tensor("self").numel),))


PLANTED: Registry = with_rule(REGISTRY, "aten.sum.default", below_0)


def _linear() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FOLDER / "linear.json").read_text(encoding="utf-8"))
    return document


def _measured(derivation: Derivation) -> Mapping[str, tuple[int | None, int | None]]:
    """What a real run does not confirm."""
    return {v.quantity: (v.derived, v.measured) for v in calc.check(derivation).verdicts if v.verdict == FAILED}


# -- without elements ---------------------------------------------------------------------------------------------------------


def _empty(y: Tensor) -> Tensor:
    """Sums, a mean, a softmax, a product and a norm of tensors without elements, beside the sum of all."""
    none = y[:0]
    reduced = none.softmax(-1).sum() + none.logsumexp(-1).sum() + none.cumsum(-1).prod() + none.norm()
    normal = nn.functional.layer_norm(none, none.shape[-1:]).sum()
    return y.sum() + none.sum() + reduced + normal + (none.T @ none).sum() + torch.cat([none, y]).sum()


def test_tensors_without_elements_cost_what_a_real_run_counts() -> None:
    """With ``x[:0]`` every quantity is the measured one; forward and backward were 1 FLOP and d too few each."""
    derivation = calc.derive(function(_empty), optimizer="sgd", cache=False)

    assert {} == _measured(derivation)
    assert {EXACT} == {v.verdict for v in calc.check(derivation).verdicts if v.quantity.startswith(("flops.backward.el", "bytes_moved"))}


def test_a_sum_of_no_elements_is_no_flop() -> None:
    """``x[:0].sum()`` after B·d products: 0 of its own, not −1; and an expanded gradient without elements is no byte."""
    derivation = calc.derive(function(lambda y: y[:0].sum()), optimizer="sgd", cache=False)

    assert ("B*d", 3 * 7) == (derivation["flops.forward.elementwise"].text, derivation["flops.forward.elementwise"].value)


@pytest.mark.slow
def test_where_a_size_comes_out_as_0_there_is_a_case_of_its_own() -> None:
    """``d // 4`` columns have no elements at d = 3, which no line tests: B·d products there, no sums over B and no product of those."""
    general = calc.derive(function(lambda y: y[:, : y.shape[1] // 4].sum(0).prod()), {"d": 16}, optimizer="sgd", cache=False)

    special = general.at_sizes({"d": 3})
    assert 3 * 3 == special["flops.forward.elementwise"].value == general["flops.forward.elementwise"].at(d=3)
    assert (3 * 16) + 4 * (3 - 1) + (4 - 1) == general["flops.forward.elementwise"].value


# -- refused by the results object --------------------------------------------------------------------------------------------


def test_a_rule_that_counts_below_0_is_refused_as_an_error_of_ours() -> None:
    """In the derivation itself, so before a terminal, a report or JSON has it: 21 products, and −1,000 for each of 21 and 1 addends."""
    said = f"flops.forward.elementwise is -21,979 at B = 3, d = 7: {OURS}"
    spec = function(lambda y: y.sum())

    with pytest.raises(NegativeCountError, match=f"^{re.escape(said)}$"):
        derived(spec, {}, Run(cache=False, registry=PLANTED))


@pytest.mark.parametrize("name", ["parameters", "activations.bytes", "bytes_moved.optimizer", "memory.peak"])
def test_no_quantity_of_a_derivation_is_below_0(name: str) -> None:
    """Whichever it is."""
    derivation = Stored(_linear()).derivation({})

    with pytest.raises(NegativeCountError, match=f"^{re.escape(name)} is -1 at B = 64, D = 256, K = 32: {re.escape(OURS)}$"):
        replace(derivation, quantities={**derivation.quantities, name: replace(derivation[name], value=-1)})


def _minus(name: str) -> Stored:
    """The stored form of ``linear``, with the other sign for the closed form of ``name``."""
    data = _linear()
    table = data["polynomials"]
    over, *terms = table[data["quantities"][name]["is"]]
    data["quantities"][name]["is"] = len(table)
    table.append([over, *(part if i % 2 == 0 else -part for i, part in enumerate(terms))])
    return Stored(data)


def test_a_stored_form_is_refused_where_a_count_is_below_0() -> None:
    """By ``at`` of a stored quantity and of a derivation's, and by the derivation at those sizes."""
    said = f"^flops.forward.matmul is -420 at B = 2, D = 7, K = 15: {re.escape(OURS)}$"
    form = _minus("flops.forward.matmul")

    with pytest.raises(NegativeCountError, match=said):
        form.quantity("flops.forward.matmul").at(B=2, D=7, K=15)
    with pytest.raises(NegativeCountError, match=said):
        form.derivation({"B": 2, "D": 7, "K": 15})
    with pytest.raises(NegativeCountError, match=said):
        form.derived("flops.forward.matmul", form.sizes({})).at(B=2, D=7, K=15)


def test_a_sweep_names_the_first_point_at_which_a_count_is_below_0() -> None:
    """It has no gap there: the error is Napkin's own."""
    said = f"^flops.forward.matmul is -420 at B = 2, D = 7, K = 15: {re.escape(OURS)}$"

    with pytest.raises(NegativeCountError, match=said):
        sweep(_minus("flops.forward.matmul"), SweptSizes({"B": [2, 3], "D": [7], "K": [15]}), ("flops.forward.matmul",))


def test_differences_of_counts_may_be_below_0() -> None:
    """What a check or a comparison takes from one another is no count."""
    from calc.derive.compare import compare

    small, large = (Stored(_linear()).derivation({"B": size}) for size in (2, 4))
    assert compare(large, small)


# -- certificates -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["forward", "backward", "optimizer"])
def test_certificates_cover_the_bytes_that_operators_move(phase: str) -> None:
    """A rule that says other bytes of sizes that are numbers, as a trace at the very sizes has them, is refused."""
    op = {"forward": "aten.sum.default", "backward": "aten.mul.Tensor", "optimizer": "aten.add_.Tensor"}[phase]

    def of_numbers(call: Operator) -> Cost:
        right = REGISTRY.rules[op].function(call)
        first = next(iter(call.tensors()))[1]
        more = 1 if isinstance(first.distinct, int) else 2
        return replace(right, reads=((first.distinct * more, first.dtype),))

    graph = calc.trace(function(lambda y: y.sum()), optimizer="sgd", cache=False)
    with pytest.raises(CertificateError) as refusal:
        derive(graph, registry=with_rule(REGISTRY, op, of_numbers))

    assert f"bytes_moved.{phase}" in refusal.value.failures


def test_certificates_cover_what_no_closed_form_is_of() -> None:
    """A rule that counts nothing of symbols and something of numbers: what only the trace has is compared with 0."""

    def of_numbers(call: Operator) -> Cost:
        counted = call.shape("self") and isinstance(call.tensor("self").numel, int)
        return Cost(matmul=(term("more", 2, call.out.numel),)) if counted else Cost()

    graph = calc.trace(function(lambda y: y.sum()), optimizer="sgd", cache=False)
    with pytest.raises(CertificateError, match=r"^the closed form of flops\.forward\.(matmul|causal) gives 0 and a trace gives 2 at "):
        derive(graph, registry=with_rule(REGISTRY, "aten.sum.default", of_numbers))

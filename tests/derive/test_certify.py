"""Certificates bite: a trace that is not what the closed forms say refuses them, by quantity and sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import calc
from calc.derive import peak
from calc.derive.accumulate import Accumulator
from calc.derive.analysis import PEAKS, analyse
from calc.derive.certify import CertifiedForms, certify
from calc.derive.closed_forms import derive
from calc.derive.loops import LoopIndices
from calc.errors import CertificateError, NapkinError, UnknownOperatorError
from calc.graph.step import Graph, StepTrace
from calc.rules.registry import REGISTRY, Cost, Operator, Registry, Term
from calc.symbolic.algebra import Algebra
from tests.rules.mutate import with_rule, without
from tests.trace.modules import stack


@pytest.fixture(scope="module")
def graph() -> Graph:
    return calc.trace(stack(), optimizer="momentum", cache=False)


def with_certificate(graph: Graph, change: Callable[[StepTrace], StepTrace], which: int = 0) -> Graph:
    """The graph with one certificate altered."""
    certificates = list(graph.certificates)
    certificates[which] = change(certificates[which])
    return replace(graph, certificates=tuple(certificates))


def with_records(graph: Graph, change: Callable[[StepTrace], StepTrace]) -> Graph:
    return replace(graph, traces=tuple(change(r) for r in graph.traces))


def without_last(name: str, phase: str) -> Callable[[StepTrace], StepTrace]:
    """A trace in which one operator did not run: it stays in place, as one that costs nothing."""

    def change(trace: StepTrace) -> StepTrace:
        index = max(op.index for op in trace.ops if op.name == name and op.phase == phase and op.step == 2)
        ops = tuple(replace(op, name="aten.alias.default", args=()) if op.index == index else op for op in trace.ops)
        return replace(trace, ops=ops)

    return change


def assert_refused(quantity: str, graph: Graph) -> None:
    with pytest.raises(CertificateError) as refusal:
        derive(graph)

    message = str(refusal.value)
    assert refusal.value.quantity == quantity
    assert message.startswith(f"the closed form of {quantity}")
    assert " gives " in message
    assert "L = " in message
    assert "\n" not in message


def test_an_unchanged_graph_is_certified(graph: Graph) -> None:
    """Every certificate is counted with the number of its quantities."""
    result = derive(graph)

    assert len(result.certificates) == len(graph.certificates) >= 2


@pytest.mark.parametrize("which", [0, 1])
def test_a_certificate_with_another_parameter_refuses(graph: Graph, which: int) -> None:
    """One weight less at a depth or size that the closed form was not made from."""
    assert_refused("parameters", with_certificate(graph, lambda r: replace(r, parameters=r.parameters[1:]), which))


def test_a_certificate_with_another_gradient_refuses(graph: Graph) -> None:
    """A bias that nobody trained there."""
    assert_refused("gradients.bytes", with_certificate(graph, lambda r: replace(r, gradients=r.gradients[:-1])))


def test_a_certificate_with_another_state_refuses(graph: Graph) -> None:
    """Of one parameter."""
    assert_refused("optimizer_state.bytes", with_certificate(graph, lambda r: replace(r, state=r.state[:-1])))


def test_a_certificate_that_saves_less_refuses(graph: Graph) -> None:
    """One tensor that autograd does not hold there."""
    assert_refused("activations.bytes", with_certificate(graph, lambda r: replace(r, saved=r.saved[1:])))


def test_a_certificate_with_one_product_less_refuses(graph: Graph) -> None:
    """The last layer's forward."""
    with pytest.raises(CertificateError, match=r"^the closed form of flops\.forward\.\w+ gives "):
        derive(with_certificate(graph, without_last("aten.addmm.default", "forward")))


def test_a_certificate_with_one_more_live_storage_refuses(graph: Graph) -> None:
    """A storage freed too late changes the peak alone."""

    def longer(trace: StepTrace) -> StepTrace:
        start, end = trace.windows[1]
        deaths = [i for i in range(start, end) if trace.events[i].change < 0]
        events = tuple(e for i, e in enumerate(trace.events) if i != deaths[0])
        return replace(trace, events=events, windows=(trace.windows[0], (start, end - 1)))

    assert_refused("memory.peak", with_certificate(graph, longer))


def test_a_step_that_grows_faster_with_depth_is_refused(graph: Graph) -> None:
    """Two traces determine a line: a parameter more in the deeper one is a line that deeper certificates are not on."""

    def deeper(trace: StepTrace) -> StepTrace:
        return replace(trace, parameters=trace.parameters[:-1]) if trace.sizes["L"] == 3 else trace

    assert_refused("parameters", with_records(graph, deeper))


def test_a_rule_that_is_wrong_alike_everywhere_passes_its_certificates(graph: Graph) -> None:
    """Certificates compare traces, not rules: what a rule says is for the check against a real run."""

    def doubled(op: Operator) -> Cost:
        right = REGISTRY.rules["aten.addmm.default"].function(op)
        return replace(right, matmul=tuple(Term(t.name, (2, *t.factors)) for t in right.matmul))

    wrong = derive(graph, registry=with_rule(REGISTRY, "aten.addmm.default", doubled))

    assert wrong["flops.forward.matmul"].value == 2 * (derive(graph)["flops.forward.matmul"].value or 0)


def test_a_rule_that_is_no_polynomial_is_refused(graph: Graph) -> None:
    """Right at the sizes of the trace, wrong elsewhere: 1 where a size is read as a number."""

    def guessed(op: Operator) -> Cost:
        right = REGISTRY.rules["aten.addmm.default"].function(op)
        return replace(right, matmul=(Term("guess", (1 if not isinstance(op.out.shape[0], int) else 2, op.out.numel)),))

    with pytest.raises(CertificateError, match=r"^the closed form of flops\.forward\.\w+ gives "):
        derive(graph, registry=with_rule(REGISTRY, "aten.addmm.default", guessed))


@pytest.mark.parametrize("name", ["aten.addmm.default", "aten.tanh.default", "aten.t.default"])
def test_an_operator_without_rule_refuses_the_derivation(graph: Graph, name: str) -> None:
    """Counted or free: what nobody stated is not zero."""
    with pytest.raises(UnknownOperatorError, match=rf"^no cost rule for operator {name} at "):
        derive(graph, registry=without(REGISTRY, name))


def test_an_empty_registry_refuses_everything(graph: Graph) -> None:
    """No default anywhere."""
    with pytest.raises(UnknownOperatorError):
        derive(graph, registry=Registry())


def test_an_unknown_operator_shows_its_shapes_in_dimensions(graph: Graph) -> None:
    """(B, d), as the user named them."""
    with pytest.raises(UnknownOperatorError, match=r"inputs: self \(B, d\) float32"):
        derive(graph, registry=without(REGISTRY, "aten.tanh.default"))


def test_refusals_are_ours(graph: Graph) -> None:
    """The command line prints them."""
    assert issubclass(CertificateError, NapkinError)


def test_a_closed_form_that_divides_by_nothing_is_not_met(graph: Graph) -> None:
    """Pieces of no rows, at a size that a certificate has: such a closed form does not stand there, and the others are compared."""
    at = graph.certificates[0]
    text = f"floor(1/(B - {at.sizes['B']}))"
    algebra = Algebra(sorted(at.sizes), [text])
    forms = CertifiedForms({"parameters": algebra.parse(text)}, {}, algebra, LoopIndices(graph.traces), {})

    with pytest.raises(CertificateError, match=r"^the closed form of parameters divides by a size that is 0 there$") as caught:
        certify(forms, at, Accumulator(int, REGISTRY))
    assert "parameters" in caught.value.failures


def test_peaks_without_a_closed_form_are_refused_together(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """One restart without them is then enough."""

    def refuse(*_: object) -> None:
        raise CertificateError("memory.peak", "no closed form")

    monkeypatch.setattr(peak, "peak_candidates", refuse)

    with pytest.raises(CertificateError, match=r"^no closed form$") as refusal:
        analyse(graph, REGISTRY)
    assert refusal.value.failures == dict.fromkeys(PEAKS, "no closed form")

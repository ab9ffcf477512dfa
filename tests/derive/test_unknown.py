"""A quantity without a closed form is unknown with its reason, and has its value from a trace at the requested sizes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from torch import nn

import calc
from calc.derive import accumulate as fold
from calc.derive import peak as memory
from calc.derive.result import Derivation, Quantity
from calc.errors import TraceError, UnknownQuantityError
from calc.graph import serialize
from calc.pipeline.verdict import EXACT
from calc.spec import Spec
from reports import cli

SOURCE = """
import torch
from torch import nn
from calc.spec import Spec

spec = Spec("layer", {"B": 3, "d": 7}, lambda n: nn.Linear(n.d, n.d), lambda n: (torch.randn(n.B, n.d),),
            lambda module, x: module(x).pow(2).mean(), check_at={"B": 5})
"""


def spec() -> Spec:
    return Spec(
        name="layer",
        dims={"B": 3, "d": 7},
        build=lambda n: nn.Linear(n.d, n.d),
        inputs=lambda n: (torch.randn(n.B, n.d),),
        loss=lambda module, x: module(x).pow(2).mean(),
    )


@pytest.fixture(scope="module")
def planted() -> Iterator[Quantity]:
    """Closed forms of the peak of the second step that are 4 bytes too high; it gives the true peak."""
    true = calc.derive(spec(), cache=False, optimizer="sgd")["memory.peak"]
    original = memory.peak_candidates

    def higher(traces: Any, step: int, algebra: Any, *rest: Any) -> Any:
        peaks = original(traces, step, algebra, *rest)
        return tuple(replace(peak, live=peak.live + algebra.constant(4)) for peak in peaks) if step == 2 else peaks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "peak_candidates", higher)
        patch.setenv("NAPKIN_CACHE", "off")
        patch.setenv("SOURCE_DATE_EPOCH", "0")
        yield true


@pytest.fixture(scope="module")
def derivation(planted: Quantity) -> Derivation:
    return calc.derive(spec(), cache=False, optimizer="sgd")


@pytest.fixture
def run(planted: Quantity, tmp_path: Path) -> Callable[..., Result]:
    model = tmp_path / "layer.py"
    model.write_text(SOURCE, encoding="utf-8")
    return lambda command, *words: CliRunner().invoke(cli.napkin, [command, f"{model}:spec", "--optimizer", "sgd", *words])


def test_the_wrong_closed_form_is_never_printed_and_the_value_is_the_traced_one(derivation, planted):
    """The peak has no text, no moments, and the number of the step at these sizes."""
    peak = derivation["memory.peak"]

    assert (None, (), planted.value) == (peak.text, peak.candidates, peak.value)
    with pytest.raises(UnknownQuantityError, match=r"memory\.peak is unknown"):
        _ = peak.expr


def test_the_reason_has_both_integers_their_sizes_and_the_operator(derivation):
    """It says where the closed form fails and by how much."""
    reason = derivation["memory.peak"].unknown

    for words in ("after", "gives", "a trace gives", "B = ", "d = "):
        assert words in reason


def test_the_other_quantities_keep_their_closed_forms(derivation):
    """The peak of the first step among them."""
    lacking = [name for name in derivation if derivation[name].text is None and not name.endswith((".causal", "master_weights.bytes"))]

    assert ["memory.peak"] == lacking
    assert "d**2 + d" == derivation["parameters"].text


def test_the_value_at_other_sizes_is_traced_there(derivation, planted):
    """Both by the quantity and by the derivation at those sizes."""
    assert derivation["memory.peak"].at(B=5) == derivation.at_sizes({"B": 5})["memory.peak"].value
    assert derivation["memory.peak"].at(B=5) == planted.at(B=5)


def test_a_check_judges_the_traced_value(derivation):
    """It equals the measured one, and nothing is left open for it."""
    report = calc.check(derivation, B=4)

    assert EXACT == report["memory.peak"].verdict
    assert report.ok


def test_a_graph_alone_keeps_the_reason_and_has_no_value(planted):
    """Without its spec nothing can be traced: null, never 0."""
    graph = calc.trace(spec(), cache=False, optimizer="sgd")
    again = calc.derive(serialize.loads(serialize.dumps(graph)))

    assert (None, None) == (again["memory.peak"].text, again["memory.peak"].value)
    assert "a trace gives" in again["memory.peak"].unknown


def one_more(monkeypatch: pytest.MonkeyPatch, quantity: str) -> None:
    """Plant one more in each addend of ``quantity`` that a trace with all sizes as numbers has."""
    original = fold.Accumulator.entries

    def more(self: Any, trace: Any) -> Any:
        entries = original(self, trace)
        if not trace.sizes:
            return entries
        return [replace(e, amount=replace(e.amount, count=e.count + 1)) if e.quantity == quantity else e for e in entries]

    monkeypatch.setattr(fold.Accumulator, "entries", more)


def test_a_model_whose_parameters_differ_is_refused(monkeypatch):
    """Another model was built than the one that was traced: nothing of it is believed."""
    one_more(monkeypatch, "parameters")

    with pytest.raises(TraceError, match="the closed form of parameters"):
        calc.derive(spec(), cache=False, optimizer="sgd")


def test_an_unknown_addend_makes_its_sums_unknown(monkeypatch):
    """Each has the value of the trace, and the reason of the addend."""
    one_more(monkeypatch, "flops.forward.matmul")
    derivation = calc.derive(spec(), cache=False, optimizer="sgd")

    for name in ("flops.forward.matmul", "flops.forward.total", "flops.step.total"):
        assert derivation[name].text is None
        assert "the closed form of flops.forward.matmul" in derivation[name].unknown
    assert 2 * 3 * 7 * 7 + 1 == derivation["flops.forward.matmul"].value
    assert derivation["flops.backward.matmul"].text == "2*B*d**2"
    assert derivation.coverage
    assert all(row.flops is None for row in derivation.coverage)


def test_the_command_line_prints_the_value_as_one_without_closed_form(run):
    """Beside the value stands why; the steps of it are none."""
    for words in ((), ("--explain", "memory.peak")):
        result = run("derive", *words)

        assert 0 == result.exit_code
        assert "value at these sizes, no closed form: the closed form of memory.peak" in " ".join(result.stdout.split())


def test_json_has_no_expression_the_value_and_the_reason(run, planted):
    """``expr`` is null, and the value is that at these sizes."""
    entry = json.loads(run("derive", "--json").stdout)["quantities"]["memory.peak"]

    assert (None, planted.value) == (entry["expr"], entry["value"])
    assert "a trace gives" in entry["because"]


def test_a_report_says_it_in_every_format(run, tmp_path):
    """Markdown, HTML and JSON have the value with the reason, and the check passes."""
    result = run("report", "-o", str(tmp_path / "out"))

    assert 0 == result.exit_code
    for name in ("report.md", "report.html"):
        assert "value at these sizes, no closed form" in (tmp_path / "out" / name).read_text(encoding="utf-8")
    document = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    verdicts = {v["quantity"]: v["verdict"] for v in document["checks"]}
    assert document["quantities"]["memory.peak"]["expr"] is None
    assert EXACT == verdicts["memory.peak"]


def test_a_sweep_of_it_is_traced_at_each_point(run, derivation):
    """Beside a quantity that has a closed form; no point is without a value."""
    result = run("sweep", "B=1,2,5", "--quantity", "memory.peak", "--quantity", "parameters")

    peaks = [derivation["memory.peak"].at(B=batch) for batch in (1, 2, 5)]
    assert 0 == result.exit_code
    assert ["B,memory.peak,parameters", *(f"{b},{peak:d},56" for b, peak in zip((1, 2, 5), peaks, strict=True))] == result.stdout.split()


def test_a_sweep_of_more_points_than_can_be_traced_says_so(run):
    """In one line, before the first is traced."""
    result = run("sweep", "B=1:2000")

    assert 2 == result.exit_code
    assert "memory.peak has no closed form, so each of 2,000 points would be traced: give at most 1,000" in result.stderr


def test_a_sweep_of_what_nothing_counts_is_refused(run):
    """A model without a causal mask has no number of it at any size."""
    result = run("sweep", "B=1,2", "--quantity", "flops.forward.causal")

    assert 2 == result.exit_code
    assert "flops.forward.causal is unknown: this model has no attention" in result.stderr


@pytest.mark.slow
def test_a_question_about_memory_is_answered_by_traces(run, tmp_path):
    """The largest batch is the last one whose traced peak fits."""
    model = tmp_path / "layer.py"
    result = CliRunner().invoke(cli.napkin, ["ask", "largest-batch", f"model={model}:spec", "memory=1e6"])

    assert 0 == result.exit_code, result.output
    assert "traced at these sizes; memory.peak has no closed form" in " ".join(result.stdout.split())

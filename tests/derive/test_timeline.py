"""Live bytes over the step: the highest instant is the derived peak, and what is alive then is named to the last byte."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import calc
from calc.derive.live_bytes import Timeline
from calc.derive.result import Derivation
from calc.derive.timeline import unrolled
from calc.errors import CertificateError
from calc.pipeline import pipeline
from calc.pipeline.certificates import analysed
from tests.derive.conftest import Derived
from tests.derive.models import CASES
from tests.quick import few

SIZES = {"B": 2, "T": 7, "d": 15, "h": 3, "f": 13, "L": 7, "V": 17, "C": 11}


@pytest.fixture(scope="module")
def deep() -> Derivation:
    """GPT-2 at a depth that no trace of its derivation has."""
    return calc.derive(calc.load("gpt2"), SIZES)


@pytest.fixture(scope="module")
def run(deep: Derivation) -> Timeline:
    return pipeline.timeline(deep)


@pytest.mark.parametrize(("name", "optimizer", "attention"), CASES)
def test_the_highest_instant_is_the_peak(name: str, optimizer: str, attention: str, derived: Derived) -> None:
    """Of every model, at its own sizes and depth."""
    result = derived(name, optimizer, attention)
    timeline = pipeline.timeline(result)

    assert {} == dict(timeline.fewer)
    assert result["memory.peak"].value == timeline.peak.total == max(c.high.total for c in timeline.columns)


def test_what_is_alive_adds_up_to_the_peak(deep: Derivation, run: Timeline) -> None:
    """By name and by role alike; the roles are those of the derived moment."""
    by_role: dict[str, int] = {}
    for alive in run.alive:
        by_role[alive.role] = by_role.get(alive.role, 0) + alive.total
    active = next(c for c in deep["memory.peak"].candidates if c.value == deep["memory.peak"].value)

    assert dict(run.peak.live) == by_role == dict(active.part_values)
    assert [a.total for a in run.alive] == sorted((a.total for a in run.alive), reverse=True)


def test_layers_are_grouped_under_one_name(run: Timeline) -> None:
    """L = 7 weights of the feed-forward, each of 4·d·f = 4 · 15 · 13 bytes."""
    weights = next(a for a in run.alive if str(a.name) == "transformer.h.*.mlp.c_fc.weight")

    assert ("parameter", 4 * 15 * 13, 7) == (weights.role, weights.each, weights.number)


def test_the_step_begins_and_ends_with_what_stays(deep: Derivation, run: Timeline) -> None:
    """Parameters, inputs and state before; after it those and the loss, which is still held."""
    (before, first), *_, (after, last) = run.landmarks

    assert ("before the step", "after the step") == (before, after)
    assert 4 == last.total - first.total
    assert deep["parameters.bytes"].value == first.live["parameter"]
    assert deep["optimizer_state.bytes"].value == first.live["optimizer state"]
    assert 2 * 8 * 2 * 7 == first.live["input"]  # ids and labels, 8 bytes each


def test_columns_cover_every_operator_once(run: Timeline) -> None:
    """In order and without a gap, and none is of two phases."""
    covered = [op for c in run.columns for op in range(c.first, c.last + 1)]

    assert [*range(run.operators)] == covered
    assert run.columns
    assert all(any(phase == c.phase and first <= c.first and c.last <= last for phase, first, last in run.phases) for c in run.columns)


def _run(derivation: Derivation) -> Timeline:
    """By a trace at the very sizes."""
    from calc.options import Options
    from calc.trace import trace_at

    assert derivation.replay is not None
    return derivation.replay(trace_at(derivation.spec, derivation.specialized, derivation.sizes, {}, Options(**derivation.options)))


GEMMA = Path(__file__).parents[1] / "published" / "configs" / "gemma-2-2b.json"
# Given depths are greater than those of all traces of the derivation.
LAYERED = [
    ("cruncher", {}),
    ("llama3-8b", {"L": 9}),
    ("mixtral", {"L": 9}),
    ("vit-b", {}),
    ("transformers:deepseek_v3", {"L": 13}),
    (f"hf:{GEMMA}", {"L": 14}),
]


@pytest.mark.parametrize("optimizer", [pytest.param("adamw", marks=pytest.mark.slow), "sgd"])
@pytest.mark.slow
def test_what_is_written_down_for_deep_models_is_what_a_run_of_all_layers_gives(optimizer: str) -> None:
    """Live bytes after every operator, what is alive at the peak, the allocator's segments: all of it, from traces of few layers."""
    derivation = calc.derive(calc.load("gpt2"), SIZES, optimizer=optimizer)

    assert derivation.replay is not None
    assert derivation.replay(None) == _run(derivation)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "sizes"), LAYERED, ids=[source.rpartition("/")[2] for source, _ in LAYERED])
def test_that_holds_of_each_kind_of_layers(source: str, sizes: dict[str, int]) -> None:
    """Dense ones before those with experts, patterns of several, a vision tower."""
    derivation = calc.derive(calc.load(source), sizes)
    traced = max(certificate.sizes["L"] for certificate in derivation.certificates)

    assert sizes.get("L", traced + 1) > traced
    assert derivation.replay is not None
    assert derivation.replay(None) == _run(derivation)


@pytest.fixture
def shallow(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where traces do not determine what an iteration adds."""
    monkeypatch.setattr(sys.modules[unrolled.__module__], "_alike", lambda *_: False)


@pytest.mark.usefixtures("shallow")
def test_without_torch_it_is_the_deepest_trace_and_says_so(deep: Derivation) -> None:
    """Its highest instant is the peak at the depth that it names, 4 in place of 7."""
    assert deep.replay is not None
    outputs = deep.replay(None)

    assert {"L": 4} == dict(outputs.fewer)
    assert deep["memory.peak"].at(**{**SIZES, "L": 4}) == outputs.peak.total
    assert {**SIZES, "L": 4, "k": 5} == dict(outputs.sizes)


@pytest.mark.usefixtures("shallow")
def test_then_the_step_is_run_at_its_depth(deep: Derivation, run: Timeline) -> None:
    assert pipeline.timeline(deep) == run


@pytest.mark.parametrize("planted", few(["an operator less", "a death later", "a larger storage"], 1))
def test_a_trace_that_unrolling_does_not_reproduce_is_not_unrolled(deep: Derivation, planted: str) -> None:
    """What one more layer adds to the first trace must be all that the deepest one has."""
    graph = calc.trace(calc.load("gpt2"))
    analysis = analysed(graph)
    values = graph.as_basis().values(deep.sizes)

    def read(size: str | int) -> int:
        return analysis.algebra.value(analysis.algebra.parse(size), values)

    deepest = graph.traces[-1]
    event, storage = deepest.events[-1], deepest.storages[-1]
    changed = {
        "an operator less": replace(deepest, ops=deepest.ops[:-1]),
        "a death later": replace(deepest, events=(*deepest.events[:-1], replace(event, op=event.op + 1))),
        "a larger storage": replace(deepest, storages=(*deepest.storages[:-1], replace(storage, nbytes=f"({storage.nbytes}) + 4"))),
    }[planted]

    assert unrolled(graph, analysis.module_paths, values, read) is not None
    assert unrolled(replace(graph, traces=(*graph.traces[:-1], changed)), analysis.module_paths, values, read) is None


def test_a_trace_of_another_step_is_refused(deep: Derivation) -> None:
    """A timeline that peaks elsewhere than was derived is never shown."""
    from calc.options import Options
    from calc.trace import trace_at

    assert deep.replay is not None
    other = trace_at(deep.spec, {}, {**deep.sizes, "V": 19}, {}, Options(**deep.options))
    with pytest.raises(CertificateError, match=r"^the trace at these sizes peaks at [\d,]+ bytes, but [\d,]+ were derived$"):
        deep.replay(other)


@pytest.mark.parametrize("mode", ["eval", "infer"])
def test_a_forward_alone_has_one_phase(mode: str) -> None:
    """And its peak is that of the forward."""
    result = calc.derive(calc.load("mlp"), mode=mode)
    timeline = pipeline.timeline(result)

    assert ["forward"] == [phase for phase, _, _ in timeline.phases]
    assert result["memory.peak"].value == timeline.peak.total


def test_accumulation_repeats_the_phases() -> None:
    """Two forwards and backwards to a step, then the optimizer."""
    result = calc.derive(calc.load("mlp"), accumulation="2")

    assert ["forward", "backward"] * 2 + ["optimizer"] == [phase for phase, _, _ in pipeline.timeline(result).phases]


def test_the_allocator_s_rounding_is_made_of_the_steps_that_were_run(deep: Derivation, run: Timeline) -> None:
    """First step and steady step, of what lies on a device: live bytes without the optimizer's step counters, 4 bytes each."""
    counters = sum(a.total for a in run.alive if a.name.part == "step")
    first, steady = run.allocated

    assert run.peak.total - counters == steady.live
    assert deep["memory.peak.first_step"].value - first.live in range(counters + 1)
    assert run.allocated
    for step in run.allocated:
        assert step.live <= step.allocated <= step.reserved


@pytest.mark.usefixtures("shallow")
def test_the_allocator_has_nothing_to_say_of_another_depth(deep: Derivation) -> None:
    """Read off the deepest trace, live bytes are shown and segments are not."""
    assert deep.replay is not None

    assert () == deep.replay(None).allocated

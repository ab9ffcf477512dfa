"""Recorded runs of a GPU on the page of a step that is derived by its kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

import calc
from calc.derive.result import Derivation
from calc.performance.records import Evidence, evidence_for, recorded
from calc.pipeline.pipeline import timeline
from reports.page import records
from reports.page.records import RecordedRuns
from tests.memory.test_recorded_peaks import MEASUREMENTS

SIZES = {"B": 8, "T": 1024}
# By precision: recorded and derived peaks as the page shows them, and how many recordings there are, and of compiled steps.
SHOWN = {
    "fp32": ({"11.4 GB; derived 11.4 GB (−0.01 %)"}, 5, 2),
    "bf16-autocast": ({"8.71 GB; derived 8.71 GB (+0.09 %)", "8.71 GB; derived 8.71 GB (+0.04 %)"}, 4, 1),
}


@pytest.fixture(scope="module", params=["fp32", pytest.param("bf16-autocast", marks=pytest.mark.slow)])
def derivation(request: pytest.FixtureRequest) -> Derivation:
    """In fp32 as the tests of recorded peaks and of `napkin predict` derive it, so that it is traced once for all of them."""
    return calc.derive(calc.load("gpt2"), SIZES, precision=request.param, implementation="foreach", kernels="cuda")


@pytest.fixture(scope="module")
def on_cuda(derivation: Derivation) -> RecordedRuns:
    return records.recorded(derivation, _evidence(derivation), timeline(derivation))


def _evidence(derivation: Derivation) -> Evidence:
    return evidence_for(derivation.model, derivation.source, derivation.options, derivation.sizes, recorded((MEASUREMENTS,)))


def test_a_recorded_peak_stands_beside_the_derived_one(derivation: Derivation, on_cuda: RecordedRuns) -> None:
    """That of the allocator, with its rounding and cuBLAS's workspaces: 11,392,434,176 bytes recorded and 11,391,104,000 derived in fp32,
    8,705,094,656 and 8,713,115,136 in bf16."""
    memory = {row.memory.replace("\N{NO-BREAK SPACE}", " ") for row in on_cuda.rows}

    assert {"not measured"} | SHOWN[derivation.options["precision"]][0] == memory


def test_runs_are_of_one_machine_and_compiled_or_not(derivation: Derivation, on_cuda: RecordedRuns) -> None:
    """Of this step: of its memory, and of its time alone."""
    _, recordings, compiled = SHOWN[derivation.options["precision"]]

    assert recordings == len(on_cuda.rows)
    assert {"NVIDIA H100 80GB HBM3, driver 580.159.04, torch 2.11.0"} == {row.machine for row in on_cuda.rows}
    assert compiled == sum("torch.compile" in row.how for row in on_cuda.rows)


def test_the_peak_of_a_cpu_step_is_not_compared_with_that_of_a_gpu(derivation: Derivation) -> None:
    """It is of other kernels."""
    options = {name: value for name, value in derivation.options.items() if name != "kernels"}
    on_cpu = replace(derivation, options=options)

    assert not any("derived" in row.memory for row in records.recorded(on_cpu, _evidence(on_cpu), timeline(derivation)).rows)

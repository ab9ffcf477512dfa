"""Records of measurements: what is accepted as one, which step it is evidence of, and how a report shows it."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calc.hardware.times import Timings
from calc.performance import records as evidence
from calc.performance.records import EvidenceError, evidence_for, read
from calc.platform import files
from reports.page.records import recorded as section

OPTIONS = {"optimizer": "adamw", "precision": "fp32", "attention": "fused", "mode": "train"}


def times(*nanoseconds: int) -> dict[str, Any]:
    return Timings(nanoseconds, warm_up=(9_000_000,)).to_json()


def record(**changes: Any) -> dict[str, Any]:
    """One run of mlp at B = 7 on a card: 2, 4 and 3 ms; 6·10⁶ FLOP in 3 ms over a peak of 8 GFLOP/s are a quarter of it."""
    measured = {"clock": "CUDA events", "tick_nanoseconds": 500, "whole": times(2_000_000, 4_000_000, 3_000_000), "compiled": False}
    time = {
        "measured": {**measured, "parts": {"forward": times(1_000_000, 1_000_000, 1_000_000)}, "matmul_dtype": "fp32"},
        "throughput": {"amount": 7, "unit": "samples", "per_second": 7 / 0.003},
        "flops": {"model": 6_000_000, "hardware": 6_000_000, "because": None},
        "peak": {"dtype": "fp32", "flops_per_second": 8e9, "source": "its maker", "because": None},
    }
    memory = {"measured": {"max_memory_allocated": 70_000_000}}
    return {
        "schema": 2,
        "kind": "measurement of a training step",
        "model": {"name": "mlp", "source": "built-in"},
        "options": OPTIONS,
        "command": "napkin measure mlp -d B=7",
        "date": "2026-01-31T12:00:00+00:00",
        "device": {"kind": "cuda", "name": "Some Card", "driver": "570.1"},
        "versions": {"torch": "2.13.0", "transformers": None},
        "runs": [{"sizes": {"B": 7, "d": 11}, "time": time, "memory": memory}],
        **changes,
    }


def kept(folder: Path, data: Any, name: str = "one.json") -> Path:
    file = folder / name
    file.write_text(data if isinstance(data, str) else json.dumps(data))
    return file


def test_a_record_is_read_with_every_repetition(tmp_path: Path) -> None:
    """The median of 2, 4 and 3 ms is 3 ms; 7 samples in it are 7000/3 a second."""
    actual = read(kept(tmp_path, record()))
    assert actual is not None
    (run,) = actual.runs

    assert ("mlp", "Some Card", "570.1", {"torch": "2.13.0"}) == (actual.model, actual.device, actual.driver, actual.versions)
    assert (2_000_000, 4_000_000, 3_000_000) == run.whole.nanoseconds
    assert (Fraction(3, 1000), Fraction(7000, 3)) == (run.whole.seconds, run.per_second)
    assert (Fraction(1, 4), None) == (run.mfu(6_000_000), run.mfu(6_000_001))
    assert 70_000_000 == run.memory


def test_evidence_is_of_the_same_model_options_and_sizes_only(tmp_path: Path) -> None:
    """Another B, another option and another model's file are not; data-dependent sizes do not matter, as no record has them."""
    actual = [read(kept(tmp_path, record())), read(kept(tmp_path, record(date="2026-02-01T12:00:00+00:00")))]
    records = [r for r in actual if r is not None]
    step = ("mlp", "built-in", OPTIONS, {"B": 7, "d": 11, "n1": 5})

    assert ["2026-02-01", "2026-01-31"] == [f"{r.date:%Y-%m-%d}" for r, _ in evidence_for(*step, records).shown]
    for other in ({"B": 8, "d": 11}, {"B": 7, "d": 13}):
        assert (0, 2) == _counts(evidence_for(*step[:3], other, records))
    assert (0, 2) == _counts(evidence_for("mlp", "built-in", {**OPTIONS, "precision": "bf16"}, step[3], records))
    assert (0, 0) == _counts(evidence_for("mlp", "mlp.py, SHA-256 5", OPTIONS, step[3], records))
    assert (0, 0) == _counts(evidence_for("gpt2", "built-in", OPTIONS, step[3], records))


def _counts(actual: evidence.Evidence) -> tuple[int, int]:
    return len(actual.shown), len(actual.otherwise)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 1}, "schema is 1, expected the schema that this reads: 2"),
        ({"schema": "one"}, "schema is 'one', expected the schema that this reads: 2"),
        ({"kind": "guess"}, f"kind is 'guess', expected a kind of measurement: {', '.join((evidence.KIND, *evidence.OTHER_KINDS))}"),
        ({"kind": None}, f"kind is null, expected a kind of measurement: {', '.join((evidence.KIND, *evidence.OTHER_KINDS))}"),
        ({"model": []}, "model is a list of 0, expected an object"),
        ({"model": {"name": "mlp"}}, "model lacks 'source'"),
        ({"date": "yesterday"}, "date is 'yesterday', expected a date and time with its zone, as 2026-01-31T12:00:00+00:00"),
        (
            {"date": "2026-01-31T12:00:00"},
            "date is '2026-01-31T12:00:00', expected a date and time with its zone, as 2026-01-31T12:00:00+00:00",
        ),
        ({"options": {"optimizer": 3}}, "options.optimizer is 3, expected text"),
        ({"runs": []}, "runs is a list of 0, expected a list of at least 1"),
        ({"runs": [7]}, "runs[0] is 7, expected an object"),
    ],
)
def test_a_malformed_record_is_refused_in_a_line_that_names_the_place(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    file = kept(tmp_path, record(**change))

    with pytest.raises(EvidenceError) as caught:
        read(file)
    assert f"{file}: {said}" == str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("nanoseconds",), [], "nanoseconds is a list of 0, expected a list of at least 1"),
        (("nanoseconds",), [1, -5], "nanoseconds[1] is -5, expected an integer from 1 on"),
        (("nanoseconds",), [1.5], "nanoseconds[0] is 1.5, expected an integer from 1 on"),
        (("seconds", "median"), 0, "seconds.median is 0, expected a number above 0"),
        (("calls",), True, "calls is true, expected an integer from 1 on"),
    ],
)
def test_repetitions_that_cannot_be_are_refused(tmp_path: Path, path: tuple[str, ...], value: Any, said: str) -> None:
    data = record()
    entry = data["runs"][0]["time"]["measured"]["whole"]
    for key in path[:-1]:
        entry = entry[key]
    entry[path[-1]] = value
    file = kept(tmp_path, data)

    with pytest.raises(EvidenceError) as caught:
        read(file)
    assert f"{file}: runs[0].time.measured.whole.{said}" == str(caught.value)


def test_a_median_that_does_not_follow_from_the_repetitions_is_refused(tmp_path: Path) -> None:
    """A planted number: nobody can write a faster step than was measured."""
    data = record()
    data["runs"][0]["time"]["measured"]["whole"]["seconds"]["median"] = 0.001

    with pytest.raises(EvidenceError, match=r": runs\[0\].time.measured.whole has a median written as 0.001 s, and it is 0.003 s$"):
        read(kept(tmp_path, data))


@pytest.mark.parametrize("text", ["", "{", '{"schema": NaN}', "[" * 100_000, "\x00", '"text"', "7"])
def test_what_is_no_record_at_all_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(EvidenceError, match=r"one.json"):
        read(kept(tmp_path, text))


def test_a_file_that_is_not_there_or_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EvidenceError, match=r"^cannot read .*gone.json: No such file or directory$"):
        read(tmp_path / "gone.json")
    monkeypatch.setattr(evidence, "_FILE", files.Kind(10, error=EvidenceError))
    with pytest.raises(EvidenceError, match=r"^cannot read .*one.json: it has more than 10 bytes, the most that is read$"):
        read(kept(tmp_path, record()))


def _places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        yield (*path, key)
        yield from _places(value, (*path, key))


_ODD = st.sampled_from([None, True, 0, -1, 2**200, 1e308, "", "9" * 50, [], {}, [[]], {"a": {}}, "\x1b[31m"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(place=st.sampled_from(sorted(_places(record()), key=str)), odd=_ODD)
def test_whatever_stands_anywhere_in_a_record_it_is_read_or_refused(tmp_path: Path, place: tuple[Any, ...], odd: Any) -> None:
    """Never anything else, and never with a number that is not a positive one."""
    data = copy.deepcopy(record())
    entry: Any = data
    for key in place[:-1]:
        entry = entry[key]
    entry[place[-1]] = odd
    with contextlib.suppress(EvidenceError):
        actual = read(kept(tmp_path, data))
        assert actual is None or all(run.whole.seconds > 0 and min(run.sizes.values(), default=1) > 0 for run in actual.runs)


def test_other_measurements_in_a_folder_are_passed_over_and_a_folder_of_one_s_own_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NAPKIN_MEASUREMENTS names it; where it is none, that is said."""
    own = tmp_path / "own"
    own.mkdir()
    kept(tmp_path, {"schema": 2, "kind": "measurement of matrix multiplications"})
    kept(own, record())
    monkeypatch.setenv("NAPKIN_MEASUREMENTS", str(own))

    assert ["one.json"] == [r.file for r in evidence.recorded([tmp_path])]
    monkeypatch.setenv("NAPKIN_MEASUREMENTS", str(tmp_path / "none"))
    with pytest.raises(EvidenceError, match=r"is not a folder: name one that holds measurements, or leave it out$"):
        evidence.recorded([])


# -- the section of a report -----------------------------------------------------------------------------------------------


def derivation(flops: int) -> Any:
    """As far as a report asks it for its sizes and the FLOPs of a forward."""
    sizes = {"B": 7, "d": 11}
    return SimpleNamespace(
        sizes=sizes, options={"mode": "infer"}, quantities={"flops.forward.matmul": SimpleNamespace(value=flops, unknown="")}
    )


def shown(tmp_path: Path, flops: int = 6_000_000, **changes: Any) -> Any:
    actual = read(kept(tmp_path, record(**changes)))
    assert actual is not None
    return section(derivation(flops), evidence_for("mlp", "built-in", OPTIONS, {"B": 7, "d": 11}, [actual]))


def test_a_report_says_what_was_measured_where_and_when(tmp_path: Path) -> None:
    """The quartiles of 2, 3 and 4 ms are 2.5 and 3.5."""
    (row,) = shown(tmp_path).rows
    plain = {name: str(getattr(row, name)).replace("\u00a0", " ") for name in ("machine", "date", "step", "spread", "throughput", "share")}

    assert {
        "machine": "Some Card, driver 570.1, torch 2.13.0",
        "date": "2026-01-31 12:00 UTC",
        "step": "3.00 ms",
        "spread": "2.50 ms to 3.50 ms",
        "throughput": "2.33 ksamples/s",
        "share": "MFU 25.0 % of 8.00 GFLOP/s in fp32 (its maker)",
    } == plain
    assert "matmuls in fp32; 3 repetitions, timed by CUDA events" == row.how
    assert "napkin measure mlp -d B=7" == row.command


def test_a_record_of_other_flops_has_no_mfu_here(tmp_path: Path) -> None:
    """And one above 1 is refused, though somebody wrote it down."""
    assert "unknown: the recorded step has other FLOPs than the derived one" == shown(tmp_path, 5).rows[0].share
    slow = record()
    slow["runs"][0]["time"]["peak"]["flops_per_second"] = 1e9

    said = shown(tmp_path, runs=slow["runs"]).rows[0].share.replace("\u00a0", " ")
    assert "refused: 200.0 % of 1.00 GFLOP/s in fp32 is above the peak rate" == said


def test_without_a_record_the_report_says_not_measured_and_names_runs_of_other_steps(tmp_path: Path) -> None:
    """Nothing is extrapolated from them."""
    actual = shown(tmp_path, options={**OPTIONS, "precision": "bf16"})

    assert () == actual.rows
    assert actual.why.startswith("there is no recording of this model with these options and sizes, neither bundled nor in the folder that")
    (line,) = actual.otherwise
    options = "optimizer adamw, precision bf16, attention fused, mode train"
    assert f"{options}, matmuls in fp32 (Some Card, 2026-01-31): at these sizes" == line.replace("\u00a0", " ")


def test_runs_of_one_machine_and_way_share_a_line_with_the_sizes_that_differ(tmp_path: Path) -> None:
    """Two of another batch, one of another width as well."""
    runs = [{**record()["runs"][0], "sizes": sizes} for sizes in ({"B": 3, "d": 11}, {"B": 5, "d": 13})]
    (line,) = shown(tmp_path, runs=runs).otherwise

    assert line.replace("\u00a0", " ").endswith("(Some Card, 2026-01-31): B = 3; B = 5, d = 13")

"""The bench times what it says it times: torch's counter counts the products that the derivation counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import calc
from tests.bench import __main__ as bench
from tests.bench.counter import count
from tests.bench.predicted import CLOCKS
from tests.bench.tracker import peak


def test_the_counter_counts_every_product_of_forward_and_backward(tmp_path: Path) -> None:
    """B = 2, T = 5, d = 12, h = 6, g = 3, k = 2, f = 13, V = 17 and two layers; the backward is twice the forward."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**bench.TOY.config, "num_hidden_layers": 2}), encoding="utf-8")
    heads = 2 * 2 * 5 * 12 * 12 + 2 * 2 * 2 * 5 * 12 * 6 + 2 * 2 * 5 * 12 * 12  # q; k and v; o
    layer = heads + 2 * 2 * 2 * 5 * 5 * 12 + 3 * 2 * 2 * 5 * 12 * 13  # scores and values; gate, up and down
    forward = 2 * layer + 2 * 2 * 5 * 12 * 17

    assert 3 * forward == count(str(file), 2, 5)


@pytest.mark.slow
def test_the_tracker_sees_the_peak_that_is_derived(tmp_path: Path) -> None:
    """Of the first step and of the second, to the byte, where the optimizer is the peak. Where few weights see many
    tokens the tracker's second step is above that of a real run, which is as derived."""
    config = {**bench.TOY.config, "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    derivation = calc.derive(calc.load(f"hf:{tmp_path}"), {"B": 2, "T": 2}, cache=False)

    for steps, name in ((1, "memory.peak.first_step"), (2, "memory.peak")):
        assert derivation[name].value == peak(str(tmp_path / "config.json"), 2, 2, steps)


def test_the_table_shows_medians_beside_the_aim() -> None:
    """Of 1, 9 and 2 seconds against 4, 4 and 8: 2 / 4."""
    runs = {name: [bench.Run(wall, wall, "") for wall in walls] for name, walls in {"ours": (1, 9, 2), "counter": (4, 4, 8)}.items()}

    table = bench._table([bench._ratio("derive", "1.5", runs, "ours")], 3, bench.FULL)

    assert "| derive | 1.5 | 0.50 | 0.50 | 2.0 / 4.0 |" == table.split("\n")[-1]


def test_a_measurement_that_fails_has_its_reason_in_its_row() -> None:
    """A process that is refused, one that comes to no end, and what is timed against it; the rows beside it stand."""
    runs = bench._in_turn(2, {"ours": lambda: bench.Run(1, 1, ""), "counter": lambda: bench._process(["tests.bench.no_such"])})
    (alone,) = bench._measured("alone", ["tests.bench.no_such"], bench._parsed)
    rows = [bench._ratio("derive", "1.5", runs, "ours"), alone, bench._ratio("itself", "", runs, "ours", "ours")]

    *_, first, second, third = bench._table(rows, 2, bench.FULL).split("\n")

    why = f"tests.bench.no_such ended with 1: {sys.executable}: No module named tests.bench.no_such"
    assert f"| derive | 1.5 | failed |  | {why} |" == first
    assert f"| alone |  | failed |  | {why} |" == second
    assert "| itself |  | 1.00 | 1.00 | 1.0 / 1.0 |" == third


def test_sizes_without_a_prediction_have_the_reason_beside_the_others() -> None:
    """One model at one size that is refused; where all are, there is no median."""
    failed = {"model": "toy", "sizes": {"B": 3}, "failed": "no such kernel"}
    known = [
        {"model": "toy", "sizes": {"B": 1}, "clock": clock, "predicted": 1.0, "low": 0.0, "high": 9.0, "measured": 1.0} for clock in CLOCKS
    ]

    assert ["0 %", "+0 %", ""] == [row.measured for row in bench._predictions([*known, failed])]
    assert [("toy at B = 3", "no such kernel")] == [(row.what, row.failed) for row in bench._predictions([failed])[1:]]


@pytest.mark.slow
def test_every_measurement_runs_at_toy_size(tmp_path: Path) -> None:
    """From end to end, as ``make bench`` runs them, and no row lacks its numbers."""
    file = tmp_path / "bench.md"

    done = subprocess.run([sys.executable, "-m", "tests.bench", "--toy", "-o", str(file)], cwd=bench.ROOT, capture_output=True, text=True)

    assert 0 == done.returncode, done.stdout + done.stderr
    assert done.stdout == file.read_text(encoding="utf-8")
    assert 19 == sum(line.startswith("| ") for line in done.stdout.splitlines()[4:])


def test_errors_of_predictions_stand_beside_the_aim() -> None:
    """Wall: 1.5 over 1 and 1 over 2, so 50 % either way; processor: 1.1 and 0.9 over 1."""
    seconds = {"wall": [(1.5, 1.0), (1.0, 2.0)], "processor": [(1.1, 1.0), (0.9, 1.0)]}
    entries = [
        {"model": "toy", "sizes": {"B": i}, "clock": clock, "predicted": told, "low": 0.0, "high": 9.0, "measured": took}
        for clock, pairs in seconds.items()
        for i, (told, took) in enumerate(pairs)
    ]

    median, *each = bench._predictions(entries)

    assert ("25 %", "50 %", "10 %", "2 of 2 within their band") == (median.aim, median.measured, median.processor, median.seconds)
    assert [("toy at B = 0", "+50 %", "+10 %"), ("toy at B = 1", "-50 %", "-10 %")] == [(r.what, r.measured, r.processor) for r in each]

"""The bench times what it says it times: torch's counter counts the products that the derivation counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import calc
from tests.bench import __main__ as bench
from tests.bench.counter import count
from tests.bench.tracker import peak

TINY = {"vocab_size": 17, "hidden_size": 12, "intermediate_size": 13, "num_attention_heads": 6, "num_key_value_heads": 3}


def test_the_counter_counts_every_product_of_forward_and_backward(tmp_path: Path) -> None:
    """B = 2, T = 5, d = 12, h = 6, g = 3, k = 2, f = 13, V = 17 and two layers; the backward is twice the forward."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**bench.LLAMA_3_70B, **TINY, "num_hidden_layers": 2}), encoding="utf-8")
    heads = 2 * 2 * 5 * 12 * 12 + 2 * 2 * 2 * 5 * 12 * 6 + 2 * 2 * 5 * 12 * 12  # q; k and v; o
    layer = heads + 2 * 2 * 2 * 5 * 5 * 12 + 3 * 2 * 2 * 5 * 12 * 13  # scores and values; gate, up and down
    forward = 2 * layer + 2 * 2 * 5 * 12 * 17

    assert 3 * forward == count(str(file), 2, 5)


@pytest.mark.slow
def test_the_tracker_sees_the_peak_that_is_derived(tmp_path: Path) -> None:
    """Of the first step and of the second, to the byte, where the optimizer is the peak. Where few weights see many
    tokens the tracker's second step is above that of a real run, which is as derived."""
    config = {**bench.LLAMA_3_70B, **TINY, "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    derivation = calc.derive(calc.load(f"hf:{tmp_path}"), {"B": 2, "T": 2}, cache=False)

    for steps, name in ((1, "memory.peak.first_step"), (2, "memory.peak")):
        assert derivation[name].value == peak(str(tmp_path / "config.json"), 2, 2, steps)


def test_the_table_shows_medians_beside_the_aim() -> None:
    """Of 1, 9 and 2 seconds against 4, 4 and 8: 2 / 4."""
    runs = {name: [bench.Run(wall, wall, "") for wall in walls] for name, walls in {"ours": (1, 9, 2), "counter": (4, 4, 8)}.items()}

    table = bench._table([bench._ratio("derive", "1.5", runs, "ours")], 3)

    assert "| derive | 1.5 | 0.50 | 0.50 | 2.0 / 4.0 |" == table.split("\n")[-1]


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

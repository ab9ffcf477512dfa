"""A few architectures of the sweep again, and what its table says of itself."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tests.sweep.run import EXACT, NOT_BUILT, REFUSED, WRONG, Row, names, sweep_one
from tests.sweep.table import as_json, as_markdown, from_json

_TABLE = Path(__file__).parents[2] / "reports" / "gallery" / "architectures.json"
_SEED = 0


def _rows() -> list[Row]:
    return from_json(_TABLE.read_text(encoding="utf-8"))


def _sample(count: int) -> list[Row]:
    quick = sorted((row for row in _rows() if row.verdict == EXACT), key=lambda row: row.seconds)
    return random.Random(_SEED).sample(quick[: len(quick) // 6], count)


def _again(row: Row, folder: Path) -> Row:
    """The same architecture once more. How long it takes is no claim."""
    return replace(sweep_one(row.model_type, names()[row.model_type], _SEED, folder), seconds=row.seconds)


@pytest.mark.parametrize("row", _sample(1), ids=lambda row: row.model_type)
def test_an_architecture_that_was_exact_is_exact(row: Row, tmp_path: Path) -> None:
    """One of the quick sixth of the table, by a seed: every number again an integer equal to the real run's."""
    assert _again(row, tmp_path) == row


def _sixth() -> list[Row]:
    """A sixth of the rows of what came to an end, by a seed, the longest first; how far others would have come is not known."""
    ended = [row for row in _rows() if not row.why.startswith("not done within")]
    return sorted(random.Random(_SEED).sample(ended, len(ended) // 6), key=lambda row: -row.seconds)


@pytest.mark.slow
@pytest.mark.parametrize("row", _sixth(), ids=lambda row: row.model_type)
def test_a_row_of_the_table_comes_out_again(row: Row, tmp_path: Path) -> None:
    """Exact with the same sizes as symbols, refused for the same reason, or not built by the library. ``make sweep`` runs all rows."""
    assert _again(row, tmp_path) == row


def test_nothing_in_the_table_is_wrong() -> None:
    """A number that is off is a fault of ours; a refusal names its reason."""
    rows = _rows()

    assert not [row.model_type for row in rows if row.verdict == WRONG]
    assert all(row.why for row in rows if row.verdict in (REFUSED, NOT_BUILT))


def test_the_table_counts_what_it_shows() -> None:
    """One exact, one refused, one not built: 1 of 2."""
    rows = [Row("a", "A", EXACT), Row("b", "B", REFUSED, "no rule | for x"), Row("c", "C", NOT_BUILT, "no file")]

    text = as_markdown(rows, {"torch": "1"}, 0)

    assert "1 of 2 architectures" in text
    assert "| b | B | refused |  |  |  | 0 | no rule \\| for x |" in text
    assert from_json(as_json(rows, {"torch": "1"}, 0)) == rows

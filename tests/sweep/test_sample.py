"""A few architectures of the sweep again, and what its table says of itself."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tests.sweep.run import EXACT, NOT_BUILT, REFUSED, WRONG, Row, names, sweep_one
from tests.sweep.table import as_json, as_markdown, from_json

_TABLE = Path(__file__).parents[2] / "reports" / "gallery" / "architectures.json"
_SEED = 0


def _exact() -> list[Row]:
    return [row for row in from_json(_TABLE.read_text(encoding="utf-8")) if row.verdict == EXACT]


def _sample(count: int, quick: bool) -> list[str]:
    rows = sorted(_exact(), key=lambda row: row.seconds)
    some = rows[: max(2, len(rows) // 6)] if quick else rows
    return [row.model_type for row in random.Random(_SEED).sample(some, min(count, len(some)))]


@pytest.mark.parametrize("name", _sample(2, quick=True))
def test_an_architecture_that_was_exact_is_exact(name: str, tmp_path: Path) -> None:
    """Two of the quick sixth of the table, by a seed: every number again an integer equal to the real run's."""
    row = sweep_one(name, names()[name], _SEED, tmp_path)

    assert (row.verdict, row.why) == (EXACT, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", _sample(8, quick=False))
def test_eight_architectures_are_exact(name: str, tmp_path: Path) -> None:
    """Eight of the whole table, by a seed."""
    row = sweep_one(name, names()[name], _SEED, tmp_path)

    assert (row.verdict, row.why) == (EXACT, "")


def test_nothing_in_the_table_is_wrong() -> None:
    """A number that is off is a fault of ours; a refusal names its reason."""
    rows = from_json(_TABLE.read_text(encoding="utf-8"))

    assert not [row.model_type for row in rows if row.verdict == WRONG]
    assert all(row.why for row in rows if row.verdict in (REFUSED, NOT_BUILT))


def test_the_table_counts_what_it_shows() -> None:
    """One exact, one refused, one not built: 1 of 2."""
    rows = [Row("a", "A", EXACT), Row("b", "B", REFUSED, "no rule | for x"), Row("c", "C", NOT_BUILT, "no file")]

    text = as_markdown(rows, {"torch": "1"}, 0)

    assert "1 of 2 architectures" in text
    assert "| b | B | refused |  |  |  | 0 | no rule \\| for x |" in text
    assert from_json(as_json(rows, {"torch": "1"}, 0)) == rows

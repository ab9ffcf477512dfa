"""No row is forgotten: each is reproduced by a test, or waits for a stated reason."""

from __future__ import annotations

import importlib

from tests.published.figures import FIGURES, HERE, TESTED, WAITING


def test_every_row_of_the_table_has_a_test() -> None:
    """And no test is about a row that is not there."""
    for module in HERE.glob("test_*.py"):
        importlib.import_module(f"tests.published.{module.stem}")

    assert set(FIGURES) == TESTED


def test_what_waits_says_why_and_is_not_in_the_table() -> None:
    """A row that waits in part is in the table without that part."""
    assert all(WAITING["rows"].values())
    assert not set(WAITING["rows"]) & set(FIGURES)
    for row, quantity in (name.split() for name in WAITING["parts"]):
        assert quantity not in FIGURES[row]

"""Whole pages and terminal texts of small models are those that somebody last read."""

from __future__ import annotations

import difflib

import pytest

from tests.reports.golden import FOLDER, PAGES, written


@pytest.mark.parametrize("name", PAGES)
def test_a_whole_text_is_the_one_that_was_read(name: str) -> None:
    """Every character. Where a change is meant, ``python -m tests.reports.golden`` rewrites the files."""
    golden = (FOLDER / name).read_text(encoding="utf-8").split("\n")

    assert [] == [*difflib.unified_diff(golden, written(name).split("\n"), "golden", "today", lineterm="", n=1)]


def test_every_file_of_the_folder_is_compared() -> None:
    """And every text has its file."""
    assert sorted(PAGES) == sorted(file.name for file in FOLDER.iterdir() if file.suffix in (".md", ".txt"))

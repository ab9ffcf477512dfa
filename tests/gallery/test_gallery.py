"""What is committed in the gallery is what comes out today."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from reports import cli
from tests.gallery.__main__ import index
from tests.gallery.entries import ENTRIES, FOLDER

QUICK = ("homework",)
REPORTS = [entry.name for entry in ENTRIES if entry.words]


def verified(file: Path) -> str:
    """What ``napkin verify`` says of a file; it ends in 0."""
    found = CliRunner().invoke(cli.napkin, ["verify", str(file)])
    assert found.exit_code == 0, found.stdout[:2000]
    return found.stdout


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in REPORTS])
@pytest.mark.parametrize("suffix", [".md", ".html", ".json"])
def test_a_report_of_the_gallery_is_what_comes_out_today(name: str, suffix: str) -> None:
    """Every character."""
    assert verified(FOLDER / f"{name}{suffix}").endswith("every character is the same\n")


def test_the_numbers_of_the_design_document_hold() -> None:
    """All of its claims."""
    assert "17 of 17 claims hold" in verified(FOLDER / "design-70b.md")


def test_the_index_names_every_entry_with_files_that_are_there() -> None:
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == index()
    assert all(list(FOLDER.glob(f"{entry.name}.*")) for entry in ENTRIES)

"""What is committed in the gallery is what comes out today."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from reports import cli
from tests.gallery.__main__ import index
from tests.gallery.entries import ENTRIES, FOLDER


def verified(file: Path) -> str:
    """What ``napkin verify`` says of a file; it ends in 0."""
    result = CliRunner().invoke(cli.napkin, ["verify", str(file)])
    assert result.exit_code == 0, result.stdout[:2000]
    return result.stdout


@pytest.mark.parametrize("suffix", [".md", ".html", ".json"])
def test_a_report_of_the_gallery_is_what_comes_out_today(suffix: str) -> None:
    """Every character of a small one; the others are compared where their digits are edited."""
    assert "every character is the same\n" in verified(FOLDER / f"homework{suffix}")


@pytest.mark.parametrize("page", sorted(FOLDER.glob("*.html")), ids=lambda page: page.stem)
def test_every_page_is_light(page: Path) -> None:
    """400 kB, whether there are 12 layers or 126, equal ones or 53 different convolutions: what is alike is told once."""
    assert page.stat().st_size < 400_000


def test_the_numbers_of_the_design_document_hold() -> None:
    """All of its claims."""
    assert "17 of 17 claims hold" in verified(FOLDER / "design-70b.md")


def test_the_index_names_every_entry_with_files_that_are_there() -> None:
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == index()
    assert all(list(FOLDER.glob(f"{entry.name}.*")) for entry in ENTRIES)

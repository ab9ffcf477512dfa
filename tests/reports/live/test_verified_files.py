"""Several files, folders and damaged files on one command line: each problem has its line, and nothing is written before all are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reports import cli
from reports.live.verify_reports import VerifiedReport, differences, summary
from reports.page.inputs import Inputs

WRONG = "3<!--= 4 -->\n"


@pytest.fixture
def verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command, in a folder with two documents and a report, ``commands.md``, of a model that is not here."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.md", "b.md"):
        Path(name).write_text(WRONG)
    Path("commands.md").write_text(f"# r\n\n## 14 Commands\n\n<!-- napkin-inputs {Inputs('report', 'no.py:x').text()} -->\n")
    return lambda *words: CliRunner().invoke(cli.napkin, ["verify", *words])


def test_every_path_is_checked_before_a_document_is_read(verify: Callable[..., Result]) -> None:
    """One line for each file that cannot be read."""
    actual = verify("--fix", "a.md", "none.md", "b.md", "x.pdf", ".")

    assert (2, "") == (actual.exit_code, actual.stdout)
    assert [
        "napkin: cannot read none.md: No such file or directory",
        "napkin: x.pdf is not a file that Napkin writes: give a .md, .html, .tex or .json",
        "napkin: . is a folder: give a .md, .html, .tex or .json file",
    ] == actual.stderr.splitlines()
    assert WRONG == Path("a.md").read_text()


def test_a_document_that_cannot_be_verified_stops_no_other(verify: Callable[..., Result]) -> None:
    """Those behind it are judged, and none is rewritten."""
    Path("empty.md").write_text("nothing\n")
    actual = verify("--fix", "empty.md", "b.md")

    assert (2, "b.md: 0 of 1 claims hold, 1 rewritten, 0 left to repair by hand") == (actual.exit_code, actual.stdout.splitlines()[-1])
    first, second = actual.stderr.splitlines()
    assert "napkin: no file is rewritten, since not all can be verified" == first
    assert second.startswith("napkin: empty.md: it has no claims")
    assert WRONG == Path("b.md").read_text()


@pytest.mark.parametrize("option", ["--fix", "--diff"])
def test_an_option_for_documents_is_refused_for_a_report(option: str, verify: Callable[..., Result]) -> None:
    """With how a report is made right."""
    actual = verify(option, "commands.md")
    how = "make it again with the command in its section Commands"

    assert (2, f"napkin: commands.md was written by Napkin: {option} is for live documents; {how}\n") == (actual.exit_code, actual.stderr)


@pytest.mark.parametrize("folder", [".", "notes.md"])
def test_a_folder_is_named(folder: str, verify: Callable[..., Result]) -> None:
    """Also one that is named like a document."""
    Path(folder).mkdir(exist_ok=True)
    actual = verify(folder)

    assert (2, f"napkin: {folder} is a folder: give a .md, .html, .tex or .json file\n") == (actual.exit_code, actual.stderr)


LINES = "".join(f"line {i}\n" + "\n" * (i % 3) for i in range(60))  # 60 lines and 60 blank ones


@pytest.mark.parametrize("cut", ["line 20\n", "line 20"])
def test_lines_that_are_missing_at_the_end_are_counted(cut: str) -> None:
    """Up to line 20 there are 21 lines and 0+1+2 blank ones for each three of 0 to 19, 19 in all: 40 of 120."""
    text = LINES[: LINES.index("line 20\n")] + cut
    report = VerifiedReport(tuple(differences(text, LINES)))

    assert ["x.tex:40:1: the file ends at line 40; 80 lines are missing"] == list(summary(report, "x.tex"))


def test_blank_lines_are_listed_only_where_nothing_else_differs() -> None:
    """They are said in words, not as two empty quotations."""
    without = LINES.replace("line 2\n\n", "line 2\n", 1)
    edited = without.replace("line 50", "line 51", 1)

    assert [": a line end is missing or does not belong here"] == [
        line.removeprefix("x.tex:5:1") for line in summary(VerifiedReport(tuple(differences(without, LINES))), "x.tex")
    ]
    assert ["says '51', right is '50'"] == [
        line.partition(": ")[2] for line in summary(VerifiedReport(tuple(differences(edited, LINES))), "x.tex")
    ]

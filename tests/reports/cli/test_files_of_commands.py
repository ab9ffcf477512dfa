"""Files on the command line: ``verify --fix`` and ``sweep`` lose nobody's work, and no command waits for a FIFO or reads a device."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from calc.errors import BadInputError
from calc.performance.records import recorded
from reports import cli
from reports.live import verify_documents as live
from reports.page.inputs import folder_digest
from reports.writers import html

WRONG, RIGHT = "3<!--= 4 -->\n", "4<!--= 4 -->\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In an empty folder; what waits for a minute fails."""
    monkeypatch.chdir(tmp_path)
    signal.alarm(60)
    yield
    signal.alarm(0)


def run(*words: str) -> Result:
    actual = CliRunner().invoke(cli.napkin, words)
    assert actual.exception is None or isinstance(actual.exception, SystemExit), (words, actual.exc_info)
    return actual


# -- verify --fix ----------------------------------------------------------------------------------------------------------


def test_text_that_is_added_while_models_are_derived_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The document is left as its author has it now, and the other document as it was."""
    judged = live.judge

    def judge(*words: object) -> object:
        with open("b.md", "a") as file:
            file.write("A new line.\n")
        return judged(*words)

    monkeypatch.setattr(live, "judge", judge)
    for name in ("a.md", "b.md"):
        Path(name).write_text(WRONG)
    actual = run("verify", "--fix", "b.md")

    assert (2, "napkin: cannot write b.md: it has changed since it was read: run the command again\n") == (actual.exit_code, actual.stderr)
    assert f"{WRONG}A new line.\n" == Path("b.md").read_text()


def test_through_a_symbolic_link_the_document_is_rewritten_and_named() -> None:
    """The link stays a link to it."""
    Path("folder").mkdir()
    Path("folder/real.md").write_text(WRONG)
    os.symlink("folder/real.md", "link.md")
    actual = run("verify", "--fix", "link.md")

    assert (0, f"rewrote 1 number of {Path('folder/real.md').resolve()}\n") == (actual.exit_code, actual.stderr)
    assert RIGHT == Path("folder/real.md").read_text()
    assert (["real.md"], "folder/real.md") == (os.listdir("folder"), os.readlink("link.md"))


def test_a_fixed_document_keeps_its_mode() -> None:
    Path("a.md").write_text(WRONG)
    Path("a.md").chmod(0o600)

    assert 0 == run("verify", "--fix", "a.md").exit_code
    assert (0o600, RIGHT) == (stat.S_IMODE(os.stat("a.md").st_mode), Path("a.md").read_text())


def test_a_read_only_document_is_refused_before_it_is_judged() -> None:
    """For the superuser as well, and without ``--fix`` it is verified as any other."""
    Path("a.md").write_text(WRONG)
    Path("a.md").chmod(0o444)
    actual = run("verify", "--fix", "a.md")

    assert (2, "napkin: cannot write a.md: it is read-only (mode 0444)\n") == (actual.exit_code, actual.stderr)
    assert WRONG == Path("a.md").read_text()
    assert 1 == run("verify", "a.md").exit_code


@pytest.mark.parametrize("refused", ["none.md", "broken.md", "read-only.md"])
def test_no_document_is_rewritten_where_a_later_one_is_refused(refused: str) -> None:
    """One that is not there, one that is malformed, and one that cannot be written."""
    Path("a.md").write_text(WRONG)
    Path("broken.md").write_text("```napkin\nunknown statement\n```\n")
    Path("read-only.md").write_text(WRONG)
    Path("read-only.md").chmod(0o444)

    assert 2 == run("verify", "--fix", "a.md", refused).exit_code
    assert WRONG == Path("a.md").read_text()
    assert ["a.md", "broken.md", "read-only.md"] == sorted(os.listdir())


def test_one_document_under_two_names_is_rewritten_once() -> None:
    Path("a.md").write_text(WRONG)
    os.symlink("a.md", "b.md")
    actual = run("verify", "--fix", "a.md", "b.md", "a.md")

    assert 0 == actual.exit_code
    assert RIGHT == Path("a.md").read_text()


# -- sweep -----------------------------------------------------------------------------------------------------------------

SWEEP = ("sweep", "--expr", "2*x", "x=1,2")


def test_a_table_through_a_device_leaves_it_a_device() -> None:
    """``--csv /dev/full`` replaced the system's node; here it is a node of our own."""
    try:
        os.mknod("full", stat.S_IFCHR | 0o666, os.makedev(1, 7))
        os.close(os.open("full", os.O_WRONLY))
    except OSError as error:
        pytest.skip(f"no device can be made here: {error}")
    for option in ("--csv", "--plot"):
        actual = run(*SWEEP, option, "full")

        assert (2, "napkin: cannot write full: No space left on device\n") == (actual.exit_code, actual.stderr)
        assert stat.S_ISCHR(os.stat("full").st_mode)


def test_a_table_leaves_a_file_of_that_name_and_partial_alone() -> None:
    Path("y.csv.partial").write_text("mine")

    assert 0 == run(*SWEEP, "--csv", "y.csv").exit_code
    assert {"y.csv": "x,2*x\n1,2\n2,4\n", "y.csv.partial": "mine"} == {path.name: path.read_text() for path in Path().iterdir()}


def test_a_table_and_a_drawing_are_written_both_or_not_at_all() -> None:
    """A drawing that cannot be written leaves the old table, and standard output empty."""
    Path("y.csv").write_text("old")
    Path("y.svg").mkdir()

    for words in (("--csv", "y.csv", "--plot", "y.svg"), ("--json", "--plot", "y.svg")):
        actual = run(*SWEEP, *words)
        assert (2, "", "napkin: cannot write y.svg: it is a folder\n") == (actual.exit_code, actual.stdout, actual.stderr)
    assert "napkin: y.csv and ./y.csv are one file: name two\n" == run(*SWEEP, "--csv", "y.csv", "--plot", "./y.csv").stderr
    assert "old" == Path("y.csv").read_text()


# -- what is read ----------------------------------------------------------------------------------------------------------

PIPE = "it is a pipe (FIFO), not a regular file"
READ = {
    "accelerators": (("list", "hardware", "--hardware", "fifo"), f"napkin: cannot read the accelerators of fifo: {PIPE}"),
    "accelerators of a device": (
        ("roofline", "linear", "--gpu", "x", "--hardware", "/dev/zero"),
        "napkin: cannot read the accelerators of /dev/zero: it is a character device, not a regular file",
    ),
    "a calibration": (
        ("predict", "linear", "--calibration", "fifo"),
        f"napkin: cannot read a calibration from fifo: {PIPE}; make one with napkin calibrate -o FILE",
    ),
    "a config": (("derive", "hf:fifo"), f"napkin: cannot read the config fifo: {PIPE}"),
    "a config in a folder": (("derive", "hf:folder"), f"napkin: cannot read the config folder/config.json: {PIPE}"),
    "code": (("derive", "fifo.py:spec"), f"napkin: cannot read the code of fifo.py: {PIPE}"),
    "points": ((*SWEEP[:3], "--from", "fifo"), f"napkin: cannot read fifo: {PIPE}"),
    "a document": (("verify", "fifo.md"), f"napkin: cannot read fifo.md: {PIPE}"),
    "a report": (("verify", "fifo.html"), f"napkin: cannot read fifo.html: {PIPE}"),
    "a device": (("verify", "/dev/zero"), "napkin: zero is not a file that Napkin writes: give a .md, .html, .tex or .json"),
}


@pytest.mark.parametrize("case", READ)
def test_no_command_waits_for_a_fifo_or_reads_a_device(case: str) -> None:
    """One line that says what it is, status 2."""
    Path("folder").mkdir()
    for name in ("fifo", "fifo.py", "fifo.md", "fifo.html", "folder/config.json"):
        os.mkfifo(name)
    words, message = READ[case]
    actual = run(*words)

    assert (2, "", message) == (actual.exit_code, actual.stdout, actual.stderr.rstrip("\n").split("\n")[-1])


def test_a_fifo_among_measurements_or_templates_is_refused() -> None:
    """A record of a measurement, ``report.css`` of a folder of templates, and the file whose digest a report is compared with."""
    for name in ("one.json", "report.css"):
        os.mkfifo(name)
    reads: dict[str, Callable[[], object]] = {
        "one.json": lambda: recorded([Path()]),
        "report.css": lambda: folder_digest(Path()),
        "the style sheet report.css": lambda: html._style(Path()),
    }

    assert reads
    for file, read in reads.items():
        with pytest.raises(BadInputError) as caught:
            read()
        assert f"cannot read {file}: {PIPE}" == str(caught.value)

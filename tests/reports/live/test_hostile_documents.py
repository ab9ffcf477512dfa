"""What hides claims in a document, or keeps a checker busy, has its message; a document reads no file outside of its folder."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from reports import cli
from reports.jobs import job
from reports.live.document import read
from tests.reports.live.documents import DOCUMENT, run


def refused(tmp_path: Path, text: str, *words: str) -> str:
    """The one line that a document is refused with, without the name of its file."""
    actual = run(tmp_path, text, *words)
    start = f"napkin: {tmp_path / 'plan.md'}: "
    said = [line for line in actual.stderr.splitlines() if not line.endswith(" …")]

    assert (actual.exit_code, actual.stdout, len(said)) == (2, "", 1), actual.output
    assert said[0].startswith(start)
    return said[0].removeprefix(start)


@pytest.mark.parametrize("text", ["", "# Plan\n\nIt takes 5 GB.\n", "```napkin\nL = 12\n```\nL is 13.\n", "`13<!--= 12 -->`\n"])
def test_a_document_without_claims_is_refused(text: str, tmp_path: Path) -> None:
    """0 of 0 claims would hold."""
    assert refused(tmp_path, text) == (
        "it has no claims, so nothing in it can be verified: put <!--= EXPRESSION --> after a number, or leave the file out"
    )


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_of_other_systems_are_line_ends(end: str, tmp_path: Path) -> None:
    """Checked alike, and --fix keeps them."""
    (tmp_path / "plan.md").write_bytes(DOCUMENT.replace("\n", end).encode())
    actual = CliRunner().invoke(cli.napkin, ["verify", "--fix", str(tmp_path / "plan.md")])

    assert f"{tmp_path / 'plan.md'}:10:39: L = 12, document says 13 (+8.3 %); rewritten as 12\n" in actual.stdout
    assert (tmp_path / "plan.md").read_bytes() == DOCUMENT.replace("13<!--= L", "12<!--= L").replace("\n", end).encode()


def test_a_byte_order_mark_hides_no_block(tmp_path: Path) -> None:
    """The block is in the first line, behind the mark, which --fix keeps."""
    actual = run(tmp_path, "\ufeff```napkin\nL = 12\n```\n13<!--= L -->\n", "--fix")

    said = f"{tmp_path / 'plan.md'}:4:1: L = 12, document says 13 (+8.3 %); rewritten as 12"
    assert (actual.exit_code, actual.stdout.splitlines()[0]) == (0, said)
    assert (tmp_path / "plan.md").read_text(encoding="utf-8") == "\ufeff```napkin\nL = 12\n```\n12<!--= L -->\n"


@pytest.mark.parametrize("fence", ["```", "~~~~", "```python"])
def test_a_foreign_block_that_does_not_end_is_refused(fence: str, tmp_path: Path) -> None:
    """It would hide every claim after it."""
    close = fence.removesuffix("python")

    assert refused(tmp_path, f"12<!--= 12 -->\n{fence}\n13<!--= 12 -->\n") == (
        f"line 2: the code block that begins here does not end and hides the rest: close it with {close}"
    )


def test_a_fence_ends_and_begins_as_in_commonmark() -> None:
    """Nothing stands behind a closing fence, and tildes may have backquotes behind them."""
    document = read("```\n13<!--= 12 -->\n``` !\n14<!--= 12 -->\n```\n~~~ `x`\n15<!--= 12 -->\n~~~\n12<!--= 12 -->\n")

    assert [claim.line for claim in document.claims] == [9]


@pytest.mark.parametrize(
    ("line", "claims"), [("``1<!--= 1 -->`", 1), ("\\`1<!--= 1 -->`", 1), ("``1`<!--= 1 -->``", 0), ("`1` `<!--= 1 -->` 2<!--= 2 -->", 1)]
)
def test_only_what_a_reader_sees_as_code_is_quoted(line: str, claims: int) -> None:
    """Backquotes close with as many, and an escaped one opens nothing."""
    assert len(read(line).claims) == claims


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x" * 5_000_001, "the document has 5,000,001 characters, Napkin reads at most 5,000,000: split it"),
        ("\n" * 200_001, "the document has 200,001 lines, Napkin reads at most 200,000: split it"),
        ("x" * 1_000_001, "line 1 has 1,000,001 characters, Napkin reads at most 1,000,000: break it"),
        ("1<!--= 1 -->\n" * 5_001, "the document has 5,001 claims, Napkin reads at most 5,000: split it"),
        (
            "```napkin\n" + "".join(f"a{i} = 1\n" for i in range(2_001)) + "```\n",
            "the document has 2,001 statements, Napkin reads at most 2,000: split it",
        ),
        (f"```napkin\na = {'1' * 2_000}\n```\n", "line 2: a statement of 2,004 characters, at most 2,000 are allowed: use names"),
        (
            f"{'1' * 101}<!--= 1 -->\n",
            "line 1, column 102: a number of 101 characters or more, Napkin reads at most 100: write it as 1.5e30",
        ),
        (
            "5 × 10⁻<!--= 1 -->\n",
            "line 1, column 8: the exponent of 10⁻ is not a number of one to three digits: write it as 1.5e30",
        ),
        (
            "5e1000<!--= 1 -->\n",
            "line 1, column 7: the exponent of e1000 is not a number of one to three digits: write it as 1.5e30",
        ),
        (
            "```napkin\na0 = 1\n" + "".join(f"a{i} = a{i - 1} + 1/({2 * i + 1}**64)\n" for i in range(1, 999)) + "```\n1<!--= a998 -->\n",
            "line 26, column 13: the number is too large",
        ),
        (
            "```napkin\na0 = 1 s\n" + "".join(f"a{i} = a{i - 1}*a{i - 1}\n" for i in range(1, 100)) + "```\n1 s<!--= a99 -->\n",
            "line 9, column 9: a unit to a power above 99",
        ),
        ("1 s<!--= (1 s)**64 * (1 s)**64 -->\n", "line 1, column 22: a unit to a power above 99"),
        (
            f"240<!--= {'+'.join('1' * 240)} -->\n" * 500,
            "line 409, column 488: the document needs more than 200,000 operations up to here (tracing a model counts as 10,000): split it",
        ),
        (
            "```napkin\n" + "".join(f"model mlp as m{i} B={i}\n" for i in range(1, 500)) + "```\n1<!--= m1.B -->\n",
            "line 402: the document needs more than 200,000 operations up to here (tracing a model counts as 10,000): split it",
        ),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
def test_each_limit_has_its_message(text: str, said: str, tmp_path: Path) -> None:
    """One line, exit status 2."""
    assert refused(tmp_path, text) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3e5<!--= (2**64)**62 -->", "(2**64)**62 = 3.06918e1194, document says 3e5 (-100 %)"),
        ("3<!--= 1/(2**64)**62 s -->", None),
        ("3e5<!--= 1/(2**64)**62 -->", "1/(2**64)**62 = 3.2582e-1195, document says 3e5 (wrong by orders of magnitude)"),
        (
            "3 GB<!--= (2**64)**62 -->",
            "(2**64)**62 = 3.06918e1194, document says 3 GB: wrong unit GB: expected a bare number;"
            " an amount in an expression has its unit, such as 2 B",
        ),
        ("3<!--= 1 GB * (2**64)**62 -->", None),
    ],
)
def test_a_value_that_no_float_holds_is_shown(text: str, said: str | None, tmp_path: Path) -> None:
    """2^3968 = 10^(3968·0.30103) is some 10^1194; a claim that is off is a check that failed, whatever the value."""
    actual = run(tmp_path, text)

    assert actual.exit_code in (1, 2)
    assert isinstance(actual.exception, SystemExit)
    if said is not None:
        assert actual.stdout.splitlines()[0] == f"{tmp_path / 'plan.md'}:1:1: {said}"


SLOW = {
    "125 spaces before claims": f"{' ' * 125}3<!--= 3 -->\n" * 100,
    "spaces between number and claim": f"3{' ' * 150}<!--= 3 -->\n" * 100,
    "claims in one line": f"{' ' * 125}3<!--= 3 -->" * 4_000,
    "a run of backquotes": f"<!-- x --> {'`' * 400_000} 3<!--= 3 -->",
    "runs of all lengths": "<!-- x --> " + " ".join("`" * i for i in range(1, 1_000)) + " 3<!--= 3 -->",
    "openings": "<!--=" * 150_000,
    "openings before an end": "<!--=" * 150_000 + "-->",
    "a fence with spaces": f"```{' ' * 400_000}`\n3<!--= 3 -->",
    "comments that do not end": "3<!--= 3 -->\n" + "<!-- " * 150_000,
    "links that do not end": "3<!--= 3 -->\n" + "](" * 400_000,
    "digits of a range": "3<!--= 3 -->\n" + "1" * 400_000 + "-1",
    "commas": "3<!--= 3 -->\n" + "1," * 400_000,
    "signs of a heading": f"3<!--= 3 -->\n{'#' * 400_000}x\n{' ' * 400_000}x",
}


@pytest.mark.parametrize("name", SLOW)
def test_a_document_is_read_in_time_proportional_to_its_length(name: str, tmp_path: Path) -> None:
    """Each of these took from minutes to hours; half a megabyte takes half a second."""
    started = time.process_time()
    actual = run(tmp_path, SLOW[name], "--unmarked")

    assert actual.exit_code in (0, 1, 2)
    assert time.process_time() - started < 20


def test_a_document_reads_no_file_outside_of_its_folder(tmp_path: Path) -> None:
    """By name, by a link or as a folder, for a model and for a question; the file may be named."""
    room = tmp_path / "room"
    room.mkdir()
    for name in ("config.json", "own.toml"):
        (tmp_path / name).write_text("{")
        (room / f"link-{name}").symlink_to(tmp_path / name)
    for path in ("../config.json", "..", str(tmp_path / "config.json"), "link-config.json"):
        model = f"```napkin\nmodel 'hf:{path}' as m\n```\n1<!--= m -->\n"
        question = f"```napkin\nask flops 'model=hf:{path}' tokens=1e9 as m\n```\n1<!--= m -->\n"
        named = refused(room, model, "--source", str(tmp_path / "config.json"))

        outside = f"line 2: {path} is outside the document's folder: name the file, as napkin verify … --source {path}"

        assert [refused(room, model), refused(room, question)] == [outside, outside]
        assert "config.json is not JSON" in named
    for path in ("../own.toml", "link-own.toml", "/dev/zero"):
        ask = f"ask training-time parameters=1e9 tokens=1e9 gpus=8 mfu=0.4 gpu=mine hardware={path} as m"

        assert refused(room, f"```napkin\n{ask}\n```\n1<!--= m -->\n") == (
            f"line 2: {path} is outside the document's folder: name the file, as napkin verify … --source {path}"
        )


def test_a_document_reads_regular_files_only(tmp_path: Path) -> None:
    """A named pipe would never end."""
    os.mkfifo(tmp_path / "pipe")
    ask = "ask training-time parameters=1e9 tokens=1e9 gpus=8 mfu=0.4 gpu=mine hardware=pipe as m"

    for statement in (ask, "model hf:pipe as m"):
        assert (
            refused(tmp_path, f"```napkin\n{statement}\n```\n1<!--= m -->\n") == "line 2: pipe is not a regular file: give the path of one"
        )


def test_files_of_a_document_lie_beside_it_wherever_it_is_checked_from(tmp_path: Path) -> None:
    """``hardware=`` is relative to the document, as a config is."""
    entry = '[mine]\nname = "m"\nvendor = "v"\narchitecture = "a"\nyear = 2026\nmemory = 80\nbandwidth = 9\nsource = "s"\n'
    (tmp_path / "own.toml").write_text(f'{entry}peak.bf16 = {{ dense = 1, engine = "tensor" }}\n')
    ask = "ask training-time parameters=1e9 tokens=1e9 gpus=8 mfu=0.5 gpu=mine hardware=own.toml as run"

    assert run(tmp_path, f"```napkin\n{ask}\n```\n1.5e6 s<!--= run.answer -->\n").exit_code == 0


def test_a_document_traces_twenty_models_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes up to a minute; those whose closed forms are stored take none."""
    monkeypatch.setattr(job, "derive", lambda *_: {})
    monkeypatch.setattr(job, "keep", lambda *_: None)
    many = "".join(f"model mlp as m{i} optimizer=sgd precision=bf16 attention=math B={i}\n" for i in range(1, 30))

    assert refused(tmp_path, f"```napkin\n{many}```\n1<!--= 1 -->\n") == (
        "line 21: the document needs more than 200,000 operations up to here (tracing a model counts as 10,000): split it"
    )

"""The command that checks a live document: what holds, what fails, what is said and what is run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from calc.errors import BadInputError
from reports.live.document import read
from reports.live.engine import Engine
from tests.reports.live.documents import DOCUMENT, run


def test_a_document_is_checked_against_derivations_and_devices(tmp_path: Path) -> None:
    """d*f + f + f*K + K = 11*13 + 13 + 13*3 + 3 = 198."""
    actual, file = run(tmp_path, DOCUMENT), tmp_path / "plan.md"

    assert actual.exit_code == 1
    assert actual.stdout == f"{file}:10:39: L = 12, document says 13 (+8.3 %)\n{file}: 4 of 5 claims hold\n"
    assert run(tmp_path, DOCUMENT.replace("13<!--= L", "12<!--= L")).exit_code == 0


def test_an_empty_claim_is_said_to_be_empty(tmp_path: Path) -> None:
    """At its place, beside a claim that holds."""
    actual, file = run(tmp_path, "3<!--= 3 --> and 4<!--= -->\n"), tmp_path / "plan.md"

    said = f"{file}:1:19: not verified: the claim is empty: write what the number must equal after <!--="
    assert (1, said) == (actual.exit_code, actual.stdout.splitlines()[0])


@pytest.mark.parametrize("depth", ["10001", "1e999999999"])
def test_a_model_of_a_document_has_no_more_layers_than_the_limit(depth: str, tmp_path: Path) -> None:
    """Some steps are traced layer by layer, and a document is somebody else's."""
    for statement in (f"model gpt2 L={depth} as g", f"ask sharding model=llama3-8b L={depth} data=8 zero=3 as g"):
        actual = run(tmp_path, f"```napkin\n{statement}\n```\n1<!--= g.L -->\n")
        said = f"L = {depth}: a model in a document has at most 10,000 layers: give fewer"
        assert (actual.exit_code, actual.stderr) == (2, f"napkin: {tmp_path / 'plan.md'}: line 2: {said}\n")


def test_json_says_every_claim(tmp_path: Path) -> None:
    """With what it says, what it is, and why it fails."""
    (file,) = json.loads(run(tmp_path, DOCUMENT, "--format", "json").stdout)["files"]

    assert (file["kind"], file["verdict"], [c["holds"] for c in file["claims"]]) == ("document", "fails", [True, True, True, True, False])
    assert file["claims"][4] == {
        "line": 10,
        "column": 39,
        "expr": "L",
        "says": "13",
        "is": "12",
        "holds": False,
        "because": "L = 12, document says 13 (+8.3 %)",
    }


def test_fix_writes_and_diff_does_not(tmp_path: Path) -> None:
    """And a fixed document passes."""
    assert "-at 989.5 TFLOP/s<!--= h.bf16 -->, and 13<!--= L --> layers." in run(tmp_path, DOCUMENT, "--diff").stdout
    assert (tmp_path / "plan.md").read_text() == DOCUMENT
    assert run(tmp_path, DOCUMENT, "--fix").exit_code == 0
    assert (tmp_path / "plan.md").read_text() == DOCUMENT.replace("13<!--= L", "12<!--= L")


def test_a_claim_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    """It has a line of its own, with what was meant; what can be repaired is, and what remains is said."""
    text = DOCUMENT.replace("<!--= m.parameters -->", "<!--= m.paramters -->")
    actual, file = run(tmp_path, text, "--fix"), tmp_path / "plan.md"

    assert (actual.exit_code, actual.stdout) == (
        1,
        f"{file}:9:8: not verified: mlp has no quantity 'paramters': did you mean 'parameters'? see napkin list quantities; repair"
        " it by hand\n"
        f"{file}:10:39: L = 12, document says 13 (+8.3 %); rewritten as 12\n"
        f"{file}: 3 of 5 claims hold, 1 rewritten, 1 left to repair by hand\n",
    )
    assert file.read_text() == text.replace("13<!--= L", "12<!--= L")


@pytest.mark.parametrize(
    ("claim", "near"),
    [
        ("m.peak", "'memory.peak'"),
        ("m.flops.step", "'flops.step.total'"),
        ("twoo", "'two'"),
        ("h.bandwith", "'bandwidth'"),
        ("m.b", "'B'"),
        ("l", "'L'"),
    ],
)
def test_a_name_that_was_nearly_right_is_answered_with_the_right_one(claim: str, near: str, tmp_path: Path) -> None:
    """Of quantities, also by one part of their name; of sizes, also in another case."""
    actual = run(tmp_path, DOCUMENT.replace("<!--= two -->", f"<!--= {claim} -->"))

    assert f"did you mean {near}?" in actual.stdout


def test_a_statement_that_fails_stops_only_what_depends_on_it(tmp_path: Path) -> None:
    """Statements and claims that depend on it say so, by the line of the first failure; the others are run and judged."""
    block = "```napkin\nL = 12\nmodel gpt2 as g B=0\nx = 2*g.parameters\nL = 13\nunknown\n```\n"
    text = f"{block}12<!--= L -->, 7<!--= x -->, 8<!--= g.L --> and 3<!--= y -->.\n"
    actual, file = run(tmp_path, text), tmp_path / "plan.md"

    assert (1, [
        f"{file}:3:1: statement not run: B = 0 is not positive: sizes are integers from 1 to 2**63 - 1",
        f"{file}:4:7: statement not run: depends on line 3, which failed",
        f"{file}:5:1: statement not run: L is already defined: choose another name",
        f"{file}:6:1: statement not run: unknown statement 'unknown': write model … as NAME, ask … as NAME, device … as NAME, or NAME = …",
        f"{file}:8:16: not verified: depends on line 3, which failed",
        f"{file}:8:30: not verified: depends on line 3, which failed",
        f"{file}:8:49: not verified: 'y' is not defined above (defined: L)",
        f"{file}: 1 of 4 claims hold; 4 statements did not run",
    ]) == (actual.exit_code, actual.stdout.splitlines())  # fmt: skip


def test_a_failed_statement_fails_a_document_whose_claims_hold(tmp_path: Path) -> None:
    """Also in JSON and as an annotation on GitHub."""
    text, file = "```napkin\nL = 1 +\n```\n3<!--= 3 -->\n", tmp_path / "plan.md"
    because = "a number or a name is missing at the end"
    data, annotated = run(tmp_path, text, "--format", "json"), run(tmp_path, text, "--format", "github")

    assert (1, 1) == (data.exit_code, annotated.exit_code)
    assert [{"line": 2, "column": 8, "because": because}] == json.loads(data.stdout)["files"][0]["failed_statements"]
    assert f"::error file={file},line=2,col=8::statement not run: {because}\n" == annotated.stdout
    assert f"{file}: 1 of 1 claims hold; 1 statement did not run" == run(tmp_path, text).stdout.splitlines()[-1]


def test_too_few_claims_fail(tmp_path: Path) -> None:
    """A document whose comments were lost would pass otherwise."""
    actual = run(tmp_path, "Nothing but 3<!--= 3 --> here.\n", "--require-claims", "2")

    assert (actual.exit_code, actual.stdout.splitlines()[0]) == (
        1,
        f"{tmp_path / 'plan.md'}: 1 claims where at least 2 are required",
    )


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("L = 1 +", "line 2, column 8: a number or a name is missing at the end"),
        ("L = 1\nL = 2", "line 3: L is already defined: choose another name"),
        ("model gpt2", "line 2: 'model gpt2' gives no name: write model gpt2 … as NAME"),
        ("import os as x", "line 2: unknown statement 'import': write model … as NAME, ask … as NAME, device … as NAME, or NAME = …"),
        ("model nothing as g", None),
        ("model gpt2 as g B=0", None),
        (
            "model ../evil.py:spec as g",
            "line 2: ../evil.py:spec is code: it runs only if you name the file, as napkin verify … --source ../evil.py",
        ),
        ("device a1000000 as h", None),
        ("model gpt2 as g 'B=8", 'line 2: cannot read "model gpt2 as g \'B=8": No closing quotation'),
        ("model gpt2 as 1g", "line 2: '1g' is not a name: use letters, digits and underscores"),
    ],
)
def test_a_malformed_document_is_one_line_and_exit_2(statement: str, said: str | None, tmp_path: Path) -> None:
    """Naming the place, cause and way out."""
    actual = run(tmp_path, f"```napkin\n{statement}\n```\n")

    assert actual.exit_code == 2
    assert actual.stdout == ""
    last = actual.stderr.splitlines()[-1]
    assert last.startswith(f"napkin: {tmp_path / 'plan.md'}: line ")
    if said is not None:
        assert last == f"napkin: {tmp_path / 'plan.md'}: {said}"


def test_code_of_a_document_is_run_only_from_a_file_that_is_named(tmp_path: Path) -> None:
    """The named file is loaded wherever it lies, and a file beside the document is not."""
    spec = "from calc import Spec\nimport torch\nraise RuntimeError('was run')\n"
    (tmp_path / "mine.py").write_text(spec)
    refused = run(tmp_path, "```napkin\nmodel mine.py:spec as m\n```\n")
    run_ = run(tmp_path, "```napkin\nmodel mine.py:spec as m\n```\n", "--source", str(tmp_path / "mine.py"))

    assert "was run" not in refused.stderr
    assert "was run" in run_.stderr
    assert (refused.exit_code, run_.exit_code) == (2, 2)


def test_of_files_of_one_name_the_one_beside_the_document_is_meant(tmp_path: Path) -> None:
    """a/mine.py and b/mine.py are both named, and the document says b; where it says neither of them, nothing is run."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(f"raise RuntimeError('{folder} was run')\n")
    named = [word for folder in ("a", "b") for word in ("--source", str(tmp_path / folder / "mine.py"))]

    meant = run(tmp_path, "```napkin\nmodel b/mine.py:spec as m\n```\n", *named)
    either = run(tmp_path, "```napkin\nmodel mine.py:spec as m\n```\n", *named)

    assert "b was run" in meant.stderr
    assert "was run" not in either.stderr
    assert either.stderr.endswith("mine.py:spec matches 2 files: name only one mine.py with --source\n")


def test_code_is_not_run_for_a_question_either(tmp_path: Path) -> None:
    """Of a model that a question names."""
    (tmp_path / "mine.py").write_text("raise RuntimeError('was run')\n")
    actual = run(tmp_path, "```napkin\nask training-time model=mine.py:spec tokens=1e9 gpu=h100-sxm gpus=8 mfu=0.5 as run\n```\n")

    assert actual.exit_code == 2
    assert "mine.py:spec is code: it runs only if you name the file" in actual.stderr


def test_a_key_of_an_answer_is_written_with_underscores_in_an_expression(tmp_path: Path) -> None:
    """gpu-hours would be gpu minus hours."""
    block = "```napkin\nask gpu-hours parameters=7e9 tokens=1e12 gpu=h100-sxm mfu=0.5 as run\n```\n"

    text = "23.6 k GPU hours<!--= run.gpu_hours -->, 1<!--= run.tokens / 1e12 -->\n"

    assert run(tmp_path, block + text).stdout.endswith(": 2 of 2 claims hold\n")


def test_an_answer_has_its_letters_and_keys_with_units(tmp_path: Path) -> None:
    """6·70e9·15e12 FLOP, in days, and the devices."""
    block = "```napkin\nask training-time parameters=70e9 tokens=15e12 gpu=h100-sxm gpus=1024 mfu=0.5 as run\n```\n"
    text = "143.93 days<!--= run.answer -->, 143.93 days<!--= run.t -->, 6.3e24 FLOP<!--= run.C -->, 1,024<!--= run.gpus -->\n"

    assert run(tmp_path, block + text).exit_code == 0


def test_an_engine_without_statements_knows_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"^'x' is not defined above \(defined: nothing\)$"):
        Engine(tmp_path).run([]).lookup("x")


def test_a_document_says_how_long_a_model_takes_that_is_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first in general, the second by the longest before it. The closed forms of the first are kept, and hold at other sizes."""
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path / "cache"))
    said: list[str] = []
    models = (("linear", "eval", 2), ("linear", "infer", 3), ("linear", "eval", 5))
    traced = "\n".join(f"model {model} mode={mode} B={size} as m{size}" for model, mode, size in models)
    Engine(tmp_path, progress=said.append).run(read(f"```napkin\n{traced}\n```\n").statements)
    first, second = (line for line in said if line.startswith("loading and tracing"))

    assert first == "loading and tracing linear (seconds, or minutes for a large model)"
    assert re.fullmatch(r"loading and tracing linear \(the longest before it took \d+ s\)", second)

"""The command line: data on standard output, one line for every refusal, and the exit status that scripts rely on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from calc.derive.rules_of_thumb import RULES
from calc.errors import FreeMemoryError
from reports import cli
from reports.cli.listing import LISTS
from reports.jobs import job
from reports.jobs import report as report_job
from reports.page.inputs import Inputs
from tests.reports import sample

ROOT = Path(__file__).resolve().parents[3]
HUGE = "1" + "0" * 400


@pytest.fixture
def run(monkeypatch):
    """The command with the sample in place of a traced model."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    monkeypatch.setattr(job, "derive", lambda request, progress: sample.derivation())
    monkeypatch.setattr(job, "check", lambda *_: sample.checks())
    monkeypatch.setattr(job, "levers", lambda *_: ())
    monkeypatch.setattr(report_job, "_differing", lambda request, checks: {"B", "T"})
    return lambda *words: CliRunner().invoke(cli.napkin, list(words))


def test_derive_prints_the_three_answers(run):
    """Exact, with unit, on standard output."""
    actual = run("derive", "tiny")

    assert 0 == actual.exit_code
    for answer in ("4,080\u00a0elements", "89,120\u00a0bytes", "282,960\u00a0FLOP"):
        assert answer in actual.stdout


def test_derive_as_json_writes_json_only(run):
    """Standard output parses, whatever is said on standard error."""
    actual = run("derive", "tiny", "--json")

    assert 0 == actual.exit_code
    assert 4080 == json.loads(actual.stdout)["quantities"]["parameters"]["value"]


def test_explain_as_json_holds_the_steps_of_one_quantity(run):
    """The rest of the document stays away."""
    document = json.loads(run("derive", "tiny", "--explain", "parameters", "--json").stdout)

    assert {"parameters"} == set(document["quantities"]) == {s["quantity"] for s in document["steps"]}


def test_check_begins_with_its_tally(run):
    """What was not measured is counted on the first line, and is exit 0."""
    actual = run("check", "tiny")

    assert 0 == actual.exit_code
    assert "2 passed, 1 measured in parts, 0 failed, 1 not measured" == actual.stdout.split("\n")[0]


def test_strict_fails_on_what_was_not_measured(run):
    """Exit 1."""
    assert 1 == run("check", "tiny", "--strict").exit_code


def test_a_failed_check_is_exit_1(run, monkeypatch, tmp_path):
    """In check and in report, which is written all the same."""
    wrong = sample.Verdict("activations.bytes", 23180, 23179, "hooks", "failed")
    monkeypatch.setattr(job, "check", lambda *_: sample.checks(wrong))

    assert 1 == run("check", "tiny").exit_code
    assert 1 == run("report", "tiny", "-o", str(tmp_path)).exit_code
    assert (tmp_path / "report.html").exists()


def test_report_writes_three_files_and_names_them_on_standard_error(run, tmp_path):
    """And prints the answers and every check."""
    actual = run("report", "tiny", "-o", str(tmp_path / "deep" / "er"))

    assert 0 == actual.exit_code
    assert ["report.html", "report.json", "report.md"] == sorted(p.name for p in (tmp_path / "deep" / "er").iterdir())
    assert "wrote" in actual.stderr
    assert "wrote" not in actual.stdout
    assert "4,080" in actual.stdout
    assert "✓ measured, equal" in actual.stdout


def test_two_runs_write_equal_bytes(run, tmp_path):
    """Into two folders."""
    for name in ("a", "b"):
        run("report", "tiny", "-o", str(tmp_path / name))

    for name in ("report.md", "report.html", "report.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_run_that_is_not_possible_leaves_the_report_unchecked(run, monkeypatch, tmp_path):
    """The derivation stands, the report says why nothing was measured, and --strict fails."""

    def refuse(*_):
        raise FreeMemoryError("the run would allocate 10 bytes at its peak", 5, ": check at smaller sizes")

    monkeypatch.setattr(job, "check", refuse)
    actual = run("report", "tiny", "-o", str(tmp_path))

    assert 0 == actual.exit_code
    why = "the run would allocate 10 bytes at its peak, more than is free: napkin check takes smaller sizes"
    words = f"No check was run: {why}. Nothing here has been measured."
    assert words in (tmp_path / "report.html").read_text()
    assert 1 == run("report", "tiny", "-o", str(tmp_path), "--strict").exit_code


def test_a_report_that_cannot_be_written_leaves_nothing(run, tmp_path, monkeypatch):
    """One line, exit 2, and no temporary file stays."""
    (tmp_path / "file").write_text("")

    actual = run("report", "tiny", "-o", str(tmp_path / "file"))
    assert 2 == actual.exit_code
    assert re.fullmatch(r"napkin: cannot write a report to .*: .*", actual.stderr.strip().split("\n")[-1])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    actual = run("report", "tiny", "-o", str(tmp_path / "full"))
    assert 2 == actual.exit_code
    assert [] == list((tmp_path / "full").iterdir())


BAD = {
    "zero": ["derive", "gpt2", "-d", "B=0"],
    "fraction": ["derive", "gpt2", "-d", "B=2.5"],
    "unknown dimension": ["derive", "gpt2", "-d", "Q=3"],
    "too large": ["derive", "gpt2", "-d", f"B={HUGE}"],
    "no value": ["derive", "gpt2", "-d", "B"],
    "twice": ["derive", "gpt2", "-d", "B=1", "-d", "B=2"],
    "option twice": ["derive", "gpt2", "--optimizer", "sgd", "--optimizer", "adamw"],
    "empty option": ["report", "gpt2", "--template", ""],
    "model": ["derive", "gpt3"],
    "hostile model": ["derive", "\x1b[31mevil\u202e\nname"],
    "missing config": ["derive", "hf:/nowhere/config.json"],
    "optimizer": ["derive", "gpt2", "--optimizer", "magic"],
    "precision": ["derive", "gpt2", "--precision", "fp7"],
    "attention": ["derive", "gpt2", "--attention", "none"],
    "mode": ["derive", "gpt2", "--mode", "dream"],
    "quantity": ["derive", "gpt2", "--explain", "joy"],
    "device": ["check", "gpt2", "--device", "abacus"],
    "option": ["derive", "gpt2", "--quick"],
    "command": ["divine", "gpt2"],
    "argument": ["derive"],
    "list": ["list", "socks"],
    "positions": ["derive", "gpt2", "-d", "T=4096"],
    "heads": ["derive", "gpt2", "-d", "h=7"],
}


@pytest.mark.parametrize("words", BAD.values(), ids=BAD)
def test_bad_input_is_one_line_and_exit_2(words, tmp_path, monkeypatch):
    """Cause and remedy on standard error, nothing on standard output, nothing written."""
    monkeypatch.chdir(tmp_path)

    actual = CliRunner().invoke(cli.napkin, words)
    lines = [line for line in actual.stderr.split("\n") if line and not line.endswith(" …")]

    assert 2 == actual.exit_code, actual.output
    assert 1 == len(lines), lines
    assert lines[0].startswith("napkin: ")
    assert lines[0].isprintable()
    assert len(lines[0]) < 600
    assert "" == actual.stdout
    assert [] == list(tmp_path.iterdir())


def test_no_arguments_show_the_help_and_are_exit_2():
    """Not an answer, so not on standard output."""
    actual = CliRunner().invoke(cli.napkin, [])

    assert 2 == actual.exit_code
    assert "" == actual.stdout
    assert "derive" in actual.stderr


@pytest.mark.parametrize("what", LISTS)
def test_lists_are_not_empty(what):
    """A line for each."""
    actual = CliRunner().invoke(cli.napkin, ["list", what])

    assert 0 == actual.exit_code
    assert len(actual.stdout.strip().split("\n")) >= 4


def test_version_is_a_line_on_standard_output():
    """napkin and its version."""
    actual = CliRunner().invoke(cli.napkin, ["--version"])

    assert 0 == actual.exit_code
    assert re.fullmatch(r"napkin \S.*\n", actual.stdout)


def test_control_characters_of_a_model_do_not_reach_the_terminal(monkeypatch):
    """A hostile name is shown with its characters spelled out."""
    monkeypatch.setattr(job, "derive", lambda request, progress: sample.derivation(model="\x1b[31mevil\u202e"))

    actual = CliRunner().invoke(cli.napkin, ["derive", "x"])

    assert "\x1b" not in actual.stdout
    assert "\u202e" not in actual.stdout
    assert "\\x1b[31mevil\\u202e" in actual.stdout


def test_what_a_model_prints_does_not_reach_standard_output(monkeypatch):
    """Standard output holds data only."""

    def noisy(request, progress):
        print("loading weights!")
        progress("tracing")
        return sample.derivation()

    monkeypatch.setattr(job, "derive", noisy)
    actual = CliRunner().invoke(cli.napkin, ["derive", "x", "--json"])

    assert json.loads(actual.stdout)
    assert "loading weights!" in actual.stderr
    assert "tracing …" in actual.stderr


def test_as_a_process_a_bad_size_is_one_line_and_exit_2(tmp_path):
    """The real command, from another directory."""
    done = subprocess.run(
        [sys.executable, "-m", "reports.cli", "derive", "linear", "-d", "B=0"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert 2 == done.returncode
    assert "" == done.stdout
    assert "napkin: B = 0 is not positive: sizes are integers from 1 to 2**63 - 1\n" == done.stderr.split("…\n")[-1]


def test_help_imports_nothing_heavy():
    """napkin --help answers at once: no torch, no SymPy, no Jinja."""
    code = "import sys; from reports import cli\ntry: cli.napkin.main(['--help'])\nexcept SystemExit: pass\n"
    code += "print(sorted({'torch', 'sympy', 'jinja2', 'math_core'} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert "[]" == done.stderr.strip()


def test_a_reader_that_stops_reading_is_not_a_failed_check():
    """napkin … | head: status 141 as of a closed pipe, never 1, and no complaint."""
    code = "import sys; from reports import cli; sys.stdout.reconfigure(line_buffering=True); cli.napkin.main(['list', 'rules'])"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()

    assert "" == process.communicate()[1]
    assert cli.PIPE_CLOSED == process.returncode


def test_explain_shows_the_steps_of_a_rule_of_thumb(run):
    """As text and as JSON, which then holds that rule alone; 2·4,080·10 = 81,600 lead to 78,000."""
    actual = run("derive", "tiny", "--explain", "2ND")
    document = json.loads(run("derive", "tiny", "--explain", "2ND", "--json").stdout)

    assert 0 == actual.exit_code
    for words in ("2ND: 2 FLOP per parameter and token for the forward", "81,600\u00a0FLOP", "78,000\u00a0FLOP", "these are all the terms"):
        assert words in actual.stdout
    assert ["2ND"] == [entry["rule"] for entry in document["textbook"]]
    assert 78_000 == document["textbook"][0]["steps"][-1]["value"]


def test_explain_of_a_rule_of_thumb_that_does_not_apply_says_why(run):
    """One line of words instead of steps."""
    actual = run("derive", "tiny", "--explain", "6BN")

    assert "It does not apply: it is stated for models without T, and this model has T." in actual.stdout.replace("\n", " ")


def test_derive_shows_how_far_off_rules_of_thumb_are(run):
    """On the terminal those that apply, in JSON all of them."""
    assert "+4.6\u00a0%" in next(line for line in run("derive", "tiny").stdout.split("\n") if line.startswith("2ND "))
    assert len(RULES) == len(json.loads(run("derive", "tiny", "--json").stdout)["textbook"])


# -- the last net ------------------------------------------------------------------------------------------------------------------------


class Odd(BaseException):
    """No ``Exception``."""


class Untold(Exception):
    def __str__(self):
        raise Odd


ESCAPED = [
    (MemoryError(), "there is not enough memory for this: choose smaller sizes, or a machine with more"),
    (RecursionError("maximum depth"), "something is nested too deeply: make it flatter (RecursionError: maximum depth)"),
    (OSError(28, "No space left on device"), "No space left on device"),
    (PermissionError(13, "Permission denied", "a/\x1bb"), "Permission denied: a/\\x1bb"),
    (UnicodeEncodeError("utf-8", "x\udce9y", 1, 2, "surrogates"), "'x\\udce9y' cannot be written as UTF-8: choose another name"),
]
BUGS = [
    KeyError("x"),
    EOFError(),
    SystemExit(0),
    SystemExit("words"),
    GeneratorExit(),
    StopIteration(),
    Odd("odd\x1b"),
    Untold(),
    AssertionError(),
]


def raising(error):
    def derive(*_):
        raise error

    return derive


@pytest.mark.parametrize(("error", "said"), ESCAPED, ids=lambda value: type(value).__name__)
def test_what_the_machine_cannot_do_is_one_line(error, said, monkeypatch):
    """Memory, depth, disk, rights, and names that cannot be written."""
    monkeypatch.setattr(job, "derive", raising(error))
    actual = CliRunner().invoke(cli.napkin, ["derive", "x", "--json"])

    assert (2, "", f"napkin: {said}\n") == (actual.exit_code, actual.stdout, actual.stderr)


@pytest.mark.parametrize("error", BUGS, ids=lambda error: type(error).__name__)
def test_any_other_error_is_a_bug_that_says_so_in_one_line(error, monkeypatch):
    """With its place; the traceback is there for whoever asks for it. Exit 1 would read as a failed check."""
    monkeypatch.setattr(job, "derive", raising(error))
    monkeypatch.delenv("NAPKIN_DEBUG", raising=False)
    actual = CliRunner().invoke(cli.napkin, ["derive", "x", "--json"])
    monkeypatch.setenv("NAPKIN_DEBUG", "1")
    shown = CliRunner().invoke(cli.napkin, ["derive", "x", "--json"])

    assert (2, "") == (actual.exit_code, actual.stdout)
    line = rf"napkin: a bug of Napkin: {type(error).__name__}.* at test_cli\.py line \d+; please report it, "
    assert re.fullmatch(line + r"with the traceback that NAPKIN_DEBUG=1 shows\n", actual.stderr)
    assert "Traceback (most recent call last):" in shown.stderr
    assert actual.stderr == shown.stderr[-len(actual.stderr) :]


def test_an_interrupt_is_130_and_a_closed_pipe_141(monkeypatch):
    """Without a word."""
    for error, status in ((KeyboardInterrupt(), 130), (BrokenPipeError(32, "Broken pipe"), 141)):
        monkeypatch.setattr(job, "derive", raising(error))
        actual = CliRunner().invoke(cli.napkin, ["derive", "x", "--json"])

        assert (status, "", "") == (actual.exit_code, actual.stdout, actual.stderr)


# -- what would be ignored -----------------------------------------------------------------------------------------------------------------

IDLE = {
    "derive linear --mode infer --optimizer sgd": "--optimizer has no effect in mode infer, which trains nothing",
    "check linear --mode eval --zero-grad zero": "--zero-grad has no effect in mode eval, which trains nothing",
    "sweep linear B=1,2 --mode infer --accumulation 2": "--accumulation has no effect in mode infer, which trains nothing",
    "sweep linear B=1,2 --over B": "--over has no effect without --plot",
    "sweep --expr B B=1,2 --precision bf16": "--precision has no effect beside --expr, which is of no model",
    "sweep --expr B B=1,2 --no-cache": "--no-cache has no effect beside --expr, which is of no model",
    "gradients mlp --json --notation matrix": "--notation has no effect beside --json, which has both notations and every step",
    "gradients mlp --json --steps": "--steps has no effect beside --json, which has both notations and every step",
    "roofline linear --gpu h100-sxm --json --top 3": "--top has no effect beside --json, which has every operator",
    "compare linear mlp --json --explain parameters": "--explain has no effect beside --json, which has every quantity",
    "measure linear --gpu h100-sxm --peak 1e12 --device cuda": "--gpu has no effect beside --peak, which is the peak that counts",
    "measure-matmul --gpu h100-sxm --peak 1e12 --dtype bf16": "--gpu has no effect beside --peak, which is the peak that counts",
    "train-demo --save-every 3": "--save-every has no effect without -o, where checkpoints are kept",
    "storage --tensor 4x4 --attention math": "--attention has no effect without a model",
}


@pytest.mark.parametrize("words", IDLE)
def test_an_option_that_this_call_would_ignore_is_refused(words):
    """Before any work."""
    actual = CliRunner().invoke(cli.napkin, words.split())

    assert (2, "", f"napkin: {IDLE[words]}: leave it out\n") == (actual.exit_code, actual.stdout, actual.stderr)


TWICE = {
    "derive linear -d B=2 -d B=3": "B is given twice, '2' and '3': give it once",
    "derive linear --optimizer sgd --optimizer adamw": "--optimizer is given twice, 'sgd' and 'adamw': give it once",
    "derive gpt2:dropout=0.1,dropout=0.2": "gpt2: dropout is given twice, '0.1' and '0.2': give it once",
    "ask training-time tokens=1 tokens=2": "tokens is given twice, '1' and '2': give it once",
    "shard llama3-8b data=8 data=4": "data is given twice, '8' and '4': give it once",
    "layout llama3-8b devices=8 devices=4": "devices is given twice, '8' and '4': give it once",
    "compare linear mlp B=2 B=3": "B is given twice, '2' and '3': give it once",
    "optimizer adamw lr=1 lr=2 --check": "lr is given twice, '1' and '2': give it once",
    "dtype bf16 --bits 0x1 --bits=0x2": "--bits is given twice, '0x1' and '0x2': give it once",
}


@pytest.mark.parametrize("words", TWICE)
def test_what_is_given_twice_is_refused_with_both_values(words):
    """The last one would be taken in silence."""
    actual = CliRunner().invoke(cli.napkin, words.split())

    assert (2, f"napkin: {TWICE[words]}") == (actual.exit_code, actual.stderr.rstrip("\n").split("\n")[-1])


@pytest.mark.parametrize(
    "words", [["report", "linear", "--template", ""], ["report", "linear", "--template="], ["report", "linear", "--template", " "]]
)
def test_an_option_without_a_value_is_refused(words):
    actual = CliRunner().invoke(cli.napkin, words)

    assert (2, "napkin: --template is given an empty value: leave it out, or give one\n") == (actual.exit_code, actual.stderr)


def test_a_folder_without_templates_is_refused(tmp_path):
    actual = CliRunner().invoke(cli.napkin, ["report", "linear", "--templates", str(tmp_path)])
    said = f"napkin: {tmp_path} holds no template (.j2) and no report.css: leave --templates out, or name the folder that does\n"

    assert (2, said) == (actual.exit_code, actual.stderr)


def test_options_that_a_verified_file_has_no_use_for_are_said(tmp_path, monkeypatch):
    """Of many files some may be reports; the verdict is what it was."""
    monkeypatch.chdir(tmp_path)
    Path("d.md").write_text("3<!--= 3 -->\n")
    Path("r.md").write_text(f"# r\n\n<!-- napkin-inputs {Inputs('report', 'no.py:x', digest='0' * 64).text()} -->\n")
    Path("own").mkdir()
    actual = CliRunner().invoke(cli.napkin, ["verify", "d.md", "r.md", "--require-claims", "1", "--fix", "--templates", "own"])

    assert 1 == actual.exit_code  # the report is not verified, as its model is not here
    assert [
        "d.md: --templates has no effect: the file is a live document",
        "r.md: --fix has no effect: the file is a report",
        "r.md: --require-claims has no effect: the file is a report",
        "r.md: --templates has no effect: the file is made by no templates of your own",
    ] == actual.stderr.rstrip("\n").split("\n")


def test_what_nobody_sees_in_a_name_is_shown_as_its_escape():
    """A zero-width space, a wide one, a control and a direction; a line break is a blank."""
    actual = CliRunner().invoke(cli.napkin, ["derive", "hf:no\u200bwhere\u3000\x1b\u202e\nx"])
    name = "no\\u200bwhere\\u3000\\x1b\\u202e x"

    said = f"napkin: no config at {name}: give the path of a config.json or of its folder (nothing is downloaded)\n"
    assert said == actual.stderr


SELECTING = """
import torch
from calc import Spec

inputs, loss = lambda n: (torch.randn(n.B, 1),), lambda model, x: model(x)[x > 0].sum()
spec = Spec("selecting", {"B": 11}, lambda n: torch.nn.Linear(1, 1), inputs, loss)
"""


@pytest.mark.slow
def test_a_size_that_only_a_trace_names_can_be_set(tmp_path):
    """The assumption says: set another with -d n1; a name that the trace does not declare is refused after it."""
    (tmp_path / "selecting.py").write_text(SELECTING)
    command = ["derive", f"{tmp_path}/selecting.py:spec", "--mode", "eval", "--no-cache", "--json", "-d"]
    results = {size: CliRunner().invoke(cli.napkin, [*command, size]) for size in ("n1=3", "n2=3")}

    assert 3 == json.loads(results["n1=3"].stdout)["dims"]["n1"]["value"]
    assert 2 == results["n2=3"].exit_code
    assert "napkin: this model has no dimension 'n2': it has B, n1\n" in results["n2=3"].stderr

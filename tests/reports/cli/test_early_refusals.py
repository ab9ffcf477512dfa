"""What is refused is refused before any work, under the name of the option that is wrong; help says what a command really takes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import calc
from calc.memory.inference import ByteSum, Inference, InferenceTerm
from calc.pipeline import pipeline
from reports import cli
from reports.jobs import job


@pytest.fixture(autouse=True)
def nothing_is_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Loading a model, recording a step or writing a file fails the test."""

    def work(*_: Any, **__: Any) -> None:
        pytest.fail("work began before the refusal")

    for module, name in ((calc, "load"), (pipeline, "trace"), (job, "derive"), (job, "write_all")):
        monkeypatch.setattr(module, name, work)
    monkeypatch.chdir(tmp_path)
    Path("FILE").write_text("kept", encoding="utf-8")


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, list(words))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("report gpt2 -o FILE", "cannot write a report to FILE: FILE is a file; -o names a folder"),
        ("lecture -o FILE/in", "cannot write a report to FILE/in: {cwd}/FILE is a file; -o names a folder"),
        ("calibrate -o .", "cannot write a report to .: it is a folder"),
        ("measure mlp -o .", "cannot write a report to .: it is a folder"),
        ("measure-matmul -o FILE/in", "cannot write a report to FILE: FILE is a file"),
        ("transfers -o .", "cannot write a report to .: it is a folder"),
        ("roofline mlp --gpu h100-sxm -o .", "cannot write a report to .: it is a folder"),
        ("calibrate -o none/x", "cannot write a report to none/x: there is no folder {cwd}/none"),
        ("roofline mlp --gpu h100-sxm -o none/x.html", "cannot write a report to none/x.html: there is no folder {cwd}/none"),
        ("compare gpt2 T=512 -o /proc/x", "cannot write a report to /proc/x: no file can be made in /proc"),
        ("check gpt2 --kernels cuda", "the step of a CUDA device's kernels does not run on a CPU: napkin measure compares it on a GPU"),
        ("derive gpt2 --kernels gpu", "unknown kernels 'gpu': did you mean cuda? (cpu, cuda)"),
        ("derive gpt2 --precision half", "unknown precision 'half': use one of fp32, bf16-autocast, fp16-autocast, bf16, bf16-master"),
        ("compare gpt2 T=512 -o FILE", "cannot write a report to FILE: FILE is a file; -o names a folder"),
        ("compare gpt2 T=512 --explain memory.peek", "no quantity 'memory.peek': see napkin list quantities; did you mean memory.peak?"),
        ("compare mlp f=7 --quantity memory.peek", "no quantity 'memory.peek': see napkin list quantities; did you mean memory.peak?"),
        ("train-demo -o FILE", "cannot write a report to FILE: FILE is a file; -o names a folder"),
        ("checkpointing gpt2.py:spec", "no file gpt2.py: give the path of the Python file that holds the spec"),
        ("storage mlp B=0", "B = 0 is not positive: sizes are integers from 1 to 2**63 - 1"),
        ("storage --tensor 4x", "cannot read the shape '4x': write 1 to 8 sizes, e.g. 4x4"),
        ("bytes-per-parameter gpt2 --devices 0", "Invalid value for '--devices': 0 is not in the range x>=1."),
        ("train-demo --resume -o d", "there is no checkpoint.pt in d to resume from: train without --resume first"),
        ("initialization gpt2 --draws abc", "Invalid value for '--draws': 'abc' is not a valid integer."),
        ("measure-matmul --seconds abc", "Invalid value for '--seconds': 'abc' is not a valid number."),
        ("checkpoint gpt2 --save-seconds -1 --failure-hours 5", "--save-seconds is -1: give a number above 0"),
        ("checkpoint gpt2 --save-seconds 1 --failure-hours nan", "--failure-hours is nan: give a number above 0"),
    ],
)
def test_what_cannot_be_is_refused_at_once(words: str, said: str) -> None:
    """One line, exit status 2, and nothing recorded, derived or written before."""
    actual = run(*words.split())

    assert (2, f"napkin: {said.format(cwd=os.getcwd())}\n") == (actual.exit_code, actual.stderr)
    assert ["FILE"] == os.listdir()


@pytest.mark.parametrize("command", [("lecture",), ("report", "gpt2")])
def test_an_empty_name_is_no_folder(command: tuple[str, ...]) -> None:
    """It would have been the current one."""
    assert run(*command, "-o", "").stderr == "napkin: --output is given an empty value: leave it out, or give one\n"


def test_help_says_what_a_command_takes() -> None:
    """Every recipe where no --precision is given; no option that is refused when it is used; each format that is made again."""
    recipes, choices, verify = (" ".join(run(name, "--help").stdout.split()) for name in ("bytes-per-parameter", "checkpointing", "verify"))

    assert "--precision NAME Show this recipe only. --" in recipes
    assert "[default: fp32]" in " ".join(run("derive", "--help").stdout.split())
    assert "--checkpointing" not in choices
    assert "A FILE that Napkin wrote (.html, .md, .json, .tex) is regenerated" in verify


def test_a_model_that_keeps_no_cache_says_so_and_that_buffers_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing about it is unknown; what is not counted is named."""
    weights = ByteSum("bf16", "2*K", 4, (InferenceTerm("w", "2*K", 4, "2 bytes each"),))
    made = Inference("net", "here", {"K": 2}, weights, None, "net is not autoregressive: it has no key/value cache", ())
    monkeypatch.setattr(job, "inference", lambda *_, **__: made)

    shown = run("inference", "net").stdout
    assert "\nkeys and values: net is not autoregressive: it has no key/value cache\n" in shown
    assert "\nweights are the parameters: buffers, as the running averages of a batch norm, are not counted\n" in shown

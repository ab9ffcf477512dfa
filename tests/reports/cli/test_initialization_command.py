"""``napkin initialization`` on the command line."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from calc.mathematics.initialization import Initial, ModuleVariance
from calc.mathematics.initialization.comparison import compare
from calc.mathematics.initialization.state import VARIES, WIDE
from reports.cli import napkin
from reports.views.initialization import show
from reports.writers.terminal import Terminal


def _run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(napkin, ["initialization", *words])
    return result.exit_code, result.stdout, result.stderr


def test_the_table_shows_laws_equations_and_a_sample() -> None:
    status, out, _ = _run("cruncher", "--draws", "30")
    assert status == 0
    assert "1/(3·D)" in out
    assert "E[x² of layers.0]" in out
    assert "*" not in out.replace(".*.", "")
    assert "inside" in out


def test_a_verdict_stands_with_the_allowance_that_it_rests_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Within 4 % of a sample's interval as features are many (3 %) and vary by more than an ε (1 %), and each reason with its own."""
    part = ModuleVariance("norm", 2.0, 0.0, "E", None, "", (WIDE, VARIES))
    samples = {"norm": SimpleNamespace(second=2.1, error=0.05 / 3.29, calls=1)}
    actual = Initial("m", {}, (), (part,))
    show(actual, compare(actual, samples), Terminal())
    out = capsys.readouterr().out

    assert "within, 4 % allowed" in out
    assert f"1. {WIDE}; 3 % beyond" in " ".join(out.split())


def test_the_json_holds_the_same() -> None:
    status, out, _ = _run("cruncher", "--json")
    actual = json.loads(out)
    assert status == 0
    assert {part["module_path"]: part["closed"] for part in actual["parts"]}["final"] == "1/27"
    assert actual["compared"] == []


def test_draws_of_one_seed_agree_and_of_another_differ() -> None:
    words = ("linear", "--draws", "30", "--json", "--seed")
    first, repeated, other = ([line["sampled"] for line in json.loads(_run(*words, seed)[1])["compared"]] for seed in ("1", "1", "2"))
    assert first == repeated
    assert first != other


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-such-model"], "no-such-model"),
        (["cruncher", "-d", "D=-3"], "D"),
        (["cruncher", "--draws", "2"], "30"),
        (["cruncher", "--seed", "2"], "--seed has no effect without --draws, which runs real modules: leave it out"),
        (["cruncher", "--draws", "30", "--seed", "4294967296"], "4294967296 is not in the range 0<=x<=4294967295"),
        (["gpt2", "-d", "d=64", "-d", "h=12"], "choose d as a multiple of h, e.g. d = 60"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(words: list[str], said: str) -> None:
    status, out, err = _run(*words)
    assert (status, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1

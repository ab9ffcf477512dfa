"""``napkin published``: a table of a publication beside a model, as text and as JSON, refused in one line."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

import calc
from reports import cli

SMALL = ("gpt2", "B=2", "T=11", "L=3", "V=47", "C=13", "h=5", "d=35")


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, ["published", *words])


def test_a_table_shows_cells_and_the_reasons_of_their_differences() -> None:
    """2·3·11·35 = 2,310 FLOP a token where 4,620 run."""
    done = run("kaplan-1", *SMALL)

    assert done.exit_code == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("Attention: mask"))
    assert row.split() == ["Attention:", "mask", "2·L·T·h·k", "2,310", "FLOP/token", "4,620", "−2,310"]
    assert "Attention: mask: −2,310, −50.0\u00a0% of the exact count; the table counts half of both matmuls" in done.stdout
    assert json.loads(run("kaplan-1", *SMALL, "--json").stdout)["rows"][2]["operation"] == "Attention: mask"


def test_ratios_need_no_model() -> None:
    done = run("chinchilla-a4")

    assert done.exit_code == 0
    assert next(line for line in done.stdout.splitlines() if line.startswith("73M")).split()[:6] == [
        "73M", "73,728,000", "1.03", "1.026", "1.582", "1.300",
    ]  # fmt: skip
    assert "73M                   −0.2700" in done.stdout
    assert done.stdout.endswith("73M is cut off: N is 73,728,000; rounded it is 74M\n")
    assert [row["printed"] for row in json.loads(run("chinchilla-a4", "--json").stdout)["rows"]][:2] == ["1.03", "1.10"]


REFUSED = {
    "kaplan": "unknown table 'kaplan': did you mean kaplan-1? (kaplan-1, chinchilla-f, casson, rees, zero-activations, chinchilla-a4)",
    "kaplan-1": "name a model to compare kaplan-1 with: napkin published kaplan-1 gpt2 T=1024",
    "chinchilla-a4 gpt2": "chinchilla-a4 has models of its own: leave gpt2 out",
    "chinchilla-a4 --optimizer sgd": "--optimizer has no effect beside chinchilla-a4, which has models of its own: leave it out",
    "kaplan-1 linear": "kaplan-1 is stated in B, T, d, h, k, f, L, V, and this model has no T, d, h, k, f, L, V",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_has_no_table_is_refused(words: str) -> None:
    done = run(*words.split())

    assert (done.exit_code, done.stdout, done.stderr.splitlines()[-1]) == (2, "", f"napkin: {REFUSED[words]}")


def test_a_model_without_the_dimensions_of_a_table_is_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its spec alone says so."""
    monkeypatch.setattr(calc, "derive", lambda *_, **__: pytest.fail("work began before the refusal"))

    assert run("kaplan-1", "linear").stderr.splitlines()[-1] == f"napkin: {REFUSED['kaplan-1 linear']}"

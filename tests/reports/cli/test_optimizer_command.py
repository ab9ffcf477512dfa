"""``napkin optimizer``: a rule with its costs as text and as JSON, compared with torch on request, refused in one line."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner, Result

from calc.mathematics.updates import run as run_
from reports import cli


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, list(words))


def test_a_rule_is_compared_with_torch_on_request() -> None:
    """Ten steps of each."""
    done = run("optimizer", "adamw", "--check")

    assert 0 == done.exit_code
    assert re.search(r"^(exact|within): 10 steps", done.stdout, re.MULTILINE)


def test_json_holds_equations_counts_and_the_comparison() -> None:
    """Nothing but JSON on standard output. A machine's square root may round as the equations' does, or otherwise."""
    made = json.loads(run("optimizer", "adagrad-lecture", "--check", "--json", "lr=0.5").stdout)

    assert ["G + g**2", "theta - lr*g/sqrt(G + eps)"] == [e["expr"] for e in made["rule"]["equations"]]
    assert r"G \leftarrow G + g^{2}" == made["rule"]["equations"][0]["latex"]
    assert (7, 4, None) == (*(made["as_written"][k] for k in ("flops_per_parameter", "state_bytes_per_parameter")), made["executed"])
    assert 0.5 == made["check"]["hyperparameters"]["lr"]
    assert ("exact" if made["check"]["difference"] == 0 else "within") == made["check"]["verdict"]


def test_an_optimizer_without_equations_says_why_and_shows_its_costs() -> None:
    """Muon: five rounds of 4 r²c + 2 r³."""
    made = json.loads(run("optimizer", "muon", "--json").stdout)

    assert (None, "4*r*c") == (made["rule"], made["executed"]["state_bytes"])
    assert made["unknown"].startswith("muon orthogonalizes whole matrices")


def test_a_comparison_that_fails_is_exit_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: every right-hand side a tenth too large."""
    right = run_._right_side
    monkeypatch.setattr(run_, "_right_side", lambda *words: right(*words) * 1.1)

    actual = run("optimizer", "sgd", "--check")

    assert (1, True) == (actual.exit_code, "failed: 10 steps" in actual.stdout)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lion"], "napkin: unknown optimizer 'lion': use one of sgd, "),
        (["adam", "lr=0.1"], "napkin: values such as lr=0.1 are for a comparison with torch: add --check"),
        (["adam", "lr=1e999", "--check"], "napkin: cannot read 'lr=1e999': write a hyperparameter as NAME=NUMBER, e.g. lr=0.1"),
        (["adam", "x=1", "--check"], "napkin: adam has no hyperparameter 'x': it has lr, beta1, beta2, eps, wd"),
        (["muon", "--check"], "napkin: muon orthogonalizes whole matrices"),
        (["sgd", "--implementation", "foo"], "napkin: unknown implementation 'foo': use one of loop, foreach, fused"),
    ],
)
def test_what_cannot_be_shown_is_one_line(words: list[str], message: str) -> None:
    """And exit status 2, with nothing on standard output."""
    actual = run("optimizer", *words)

    assert (2, "", 1) == (actual.exit_code, actual.stdout, len(actual.stderr.splitlines()))
    assert actual.stderr.startswith(message)

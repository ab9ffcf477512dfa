"""The ledger of operators in every output: what is not counted is a number, for derivations that are accepted and for those refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from calc.derive.to_json import to_json
from calc.errors import UnknownOperatorError
from calc.graph.coverage import CoverageRow, Ledger, Place, refusal
from reports import cli
from reports.jobs import job
from reports.page.coverage import coverage
from reports.writers import html, markdown
from tests.reports import pages, sample

HOSTILE = pages.HOSTILE
REFUSED = CoverageRow(
    "my.op", "2*L", 4, "refused", "it has no cost rule", unstated=True, places=(Place("h.*.act", "x (B, d) float32", "2*L", 4),)
)
SUMMARY = "2 operators, 29 calls: 1 counted, 1 free, 0 refused. Not counted: 0 operators, 0 calls, 0 FLOP"


def refused() -> Ledger:
    return Ledger((*sample.derivation().coverage, REFUSED))


@pytest.fixture
def run(monkeypatch):
    """The command with the sample, accepted or refused, in place of a traced model."""

    def derive(request, progress):
        if request.model == "linear":
            raise UnknownOperatorError(refusal(refused(), []), refused())
        return sample.derivation()

    monkeypatch.setattr(job, "derive", derive)
    return lambda *words: CliRunner().invoke(cli.napkin, ["derive", *words])


def test_the_ledger_of_an_accepted_derivation_says_that_nothing_is_left_out():
    """8 + 21 calls; all FLOPs under the one operator that is counted."""
    actual = coverage(sample.derivation().ledger)

    assert actual.accepted
    assert SUMMARY == actual.summary
    assert [("8", "27.6\u00a0%", "100.0\u00a0%"), ("21", "72.4\u00a0%", "0\u00a0%"), ("0", "0\u00a0%", "0\u00a0%")] == [
        (k.calls, k.share, k.flops_share) for k in actual.kinds
    ]
    assert ["4·L", "9·L + 3"] == [" ".join(row.runs.plain) for row in actual.rows]


def test_the_ledger_of_a_refused_step_gives_its_share_of_calls_and_no_share_of_flops():
    """4 of 33 calls; FLOPs of a whole that is not known have no parts."""
    actual = coverage(refused())

    assert not actual.accepted
    assert actual.summary.endswith("1 refused. Not counted: 1 operator, 4 calls (12.1\u00a0% of all)")
    assert ("unknown", "–") == (actual.kinds[-1].flops, actual.kinds[0].flops_share)
    assert ("h.*.act: x (B, d) float32, 2·L times (4)",) == actual.rows[-1].places


@pytest.mark.parametrize("write", [markdown.write, html.write])
def test_every_report_holds_the_ledger(write):
    """The sentence, both operators, their calls and shares."""
    text = write(pages.page())

    for words in (SUMMARY, "27.6", "72.4", "declared free, with a reason"):
        assert words.replace("\u00a0", " ") in text.replace("\u00a0", " ")


def test_json_holds_exact_shares_that_add_up_to_one():
    """8/29 and 21/29 of the calls, and nothing refused."""
    document = to_json(sample.derivation())

    assert ["8/29", "21/29"] == [row["share_of_calls"] for row in document["coverage"]]
    assert {"operators": 0, "calls": 0, "share_of_calls": "0", "flops": 0, "share_of_flops": "0"} == document["coverage_summary"]["refused"]
    assert sample.FORWARD == document["coverage"][0]["flops"]["expr"]


def test_a_refused_model_has_a_ledger_too(run):
    """It says refused and where; the refusal follows in one line on standard error, with status 2."""
    actual = run("linear", "--coverage")

    assert 2 == actual.exit_code
    assert actual.stdout.startswith("linear: refused\n")
    assert "my.op runs\n  at h.*.act: x (B, d) float32, 2·L times (4)\n" in actual.stdout
    assert actual.stderr.strip().split("\n")[-1].startswith("napkin: no cost rule for operator my.op at h.*.act, inputs: x (B, d) float32")


@pytest.mark.parametrize(("model", "verdict", "status"), [("tiny", "accepted", 0), ("linear", "refused", 2)])
def test_the_ledger_as_json_says_accepted_or_refused(run, model, verdict, status):
    """Standard output is JSON either way."""
    actual = run(model, "--coverage", "--json")
    document = json.loads(actual.stdout)

    assert status == actual.exit_code
    assert verdict == document["verdict"]
    assert (verdict == "refused") == bool(document["because"])
    assert (0 if status == 0 else 4) == document["coverage_summary"]["refused"]["calls"]


def test_a_refused_operator_is_null_and_not_zero_flops(run):
    """With its places."""
    row = json.loads(run("linear", "--coverage", "--json").stdout)["coverage"][-1]

    assert {"expr": None, "value": None, "share": None} == row["flops"]
    assert [{"module_path": "h.*.act", "inputs": "x (B, d) float32", "runs": "2*L", "value": 4}] == row["places"]


def test_coverage_and_explain_are_not_asked_for_together(run):
    """One of them would be ignored."""
    actual = run("tiny", "--coverage", "--explain", "parameters")

    assert 2 == actual.exit_code
    assert "give one of them" in actual.stderr


def test_names_in_a_ledger_are_inert_on_a_terminal(run, monkeypatch):
    """Operators and sites are somebody's text."""
    row = replace(REFUSED, operator=HOSTILE, because=HOSTILE, places=(Place(HOSTILE, HOSTILE, "1", 1),))

    def derive(request, progress):
        raise UnknownOperatorError("no", Ledger((row,)))

    monkeypatch.setattr(job, "derive", derive)
    actual = run("linear", "--coverage")

    assert "\x1b" not in actual.stdout
    assert "\u202e" not in actual.stdout

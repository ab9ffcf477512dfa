"""The list of rules: everything that is stated of an operator, and the tests that it stands, without any test being installed."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from calc.rules.registry import REGISTRY, Cost, Free, Registry, Rule
from reports import cli
from reports.cli.listing import LISTS
from reports.page import rule_table as rules


def listed(*words: str) -> str:
    actual = CliRunner().invoke(cli.napkin, ["list", *words])
    assert 0 == actual.exit_code, actual.stderr
    return actual.stdout


def test_a_rule_is_shown_with_all_that_is_stated_of_it():
    """Statement, shapes, source, convention, and its tests: calls compared with torch, and the model that an error in it fails."""
    shown = listed("rules", "aten.convolution.default")

    rule = REGISTRY.rules["aten.convolution.default"]
    assert shown.startswith("aten.convolution.default  counted, convolution\n")
    for line in (f"statement    {rule.statement}", f"source       {rule.source}", f"convention   {rule.convention}"):
        assert line in shown
    assert "shapes       x (batch, channels in, *s), w (channels out, channels in / groups, *kernel), b (channels out)" in shown
    assert "calls in tests/rules/cases.py; a planted error in it fails the check of '" in shown


def test_words_narrow_the_list_to_entries_that_hold_all_of_them():
    """By the operator, its family or what is said of it, in any case."""
    family = [e.operator for e in rules.table(["Convolution"])]

    assert {"aten.convolution.default", "aten.convolution_backward.default"} <= set(family)
    assert "aten.mm.default" not in family
    assert ["aten.convolution_backward.default"] == [e.operator for e in rules.table(["convolution", "output_mask"])]
    assert all("free" == e.kind for e in rules.table(["aten.view.", "free"]))


def test_every_operator_is_listed_once_with_its_tests():
    """Counted and free; of each some call is compared with torch."""
    entries = list(rules.table())

    assert sorted([*REGISTRY.rules, *REGISTRY.frees]) == sorted(e.operator for e in entries)
    assert [] == [e.operator for e in entries if e.kind == "counted" and not (e.statement and e.shapes and e.source)]
    assert [] == [e.operator for e in entries if not e.statement]


def test_free_operators_follow_with_their_reason():
    """One line each."""
    shown = listed("rules", "aten.view.default")

    assert f"aten.view.default   free   {REGISTRY.frees['aten.view.default'].because}\n" == shown


def test_a_rule_of_a_users_own_has_no_test_and_says_so(monkeypatch):
    """What this program does not test, it does not claim to."""

    def own(op):
        return Cost()

    registry = Registry({"my.op": Rule("my.op", own, "y = x", "me")}, {"my.view": Free("my.view", "moves nothing")})
    monkeypatch.setattr(rules, "REGISTRY", registry)

    assert ["not tested in this package"] * 2 == [e.test for e in rules.table()]
    assert None is rules.find("aten.mm.default")


def test_the_list_as_json_holds_every_field():
    """For programs."""
    (entry,) = json.loads(listed("rules", "aten.convolution.default", "--json"))["rules"]

    assert {"operator", "kind", "family", "statement", "shapes", "source", "convention", "calls", "model", "test"} <= set(entry)
    assert entry["calls"] >= 1


@pytest.mark.parametrize("what", LISTS)
def test_every_list_is_json_on_request(what):
    """An object for each entry."""
    document = json.loads(listed(what, "--json"))

    entries = document[what.replace("-", "_")]
    assert 2 == document["schema"]
    assert len(entries) >= 4
    assert all(isinstance(entry, dict) for entry in entries)


@pytest.mark.parametrize("what", ["rules", "models"])
def test_words_that_nothing_holds_are_refused(what):
    """An empty list would look like an answer."""
    actual = CliRunner().invoke(cli.napkin, ["list", what, "zebra"])

    assert 2 == actual.exit_code
    assert f"napkin: nothing in the list of {what} contains 'zebra': see napkin list {what}\n" == actual.stderr

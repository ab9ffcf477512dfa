"""The JSON document: schema 2, no digit lost, what is unknown says why."""

from __future__ import annotations

import json
from dataclasses import replace

from calc.derive.result import Quantity
from calc.derive.rules_of_thumb import compare
from calc.derive.to_json import checked_sizes, number, to_json
from calc.graph.guards import TracedDim
from calc.symbolic.algebra import to_sympy
from calc.units import Unit
from reports.jobs.job import json_text
from tests.reports import sample


def _document():
    derivation = sample.derivation()
    return to_json(derivation, sample.checks(), compare(derivation))


def test_integers_beyond_a_double_are_strings():
    """2**53 is the last integer that every JSON reader keeps."""
    assert 2**53 == number(2**53)
    assert "9007199254740993" == number(2**53 + 1)
    assert "-9007199254740993" == number(-(2**53) - 1)
    assert None is number(None)


def test_large_values_survive_a_round_trip():
    """A quantity, its terms and its candidates are written as strings where they are large."""
    big = 2**63 + 1
    quantity = Quantity("parameters", Unit.ELEMENT, "elements", "B", big, ())

    document = json.loads(json_text(to_json(sample.derivation(quantities={"parameters": quantity}))))

    assert str(big) == document["quantities"]["parameters"]["value"]


def test_keys_are_those_of_the_schema():
    """Readers rely on them."""
    document = _document()

    assert 2 == document["schema"]
    expected = {"model", "dims", "options", "assumptions", "quantities", "steps", "checks", "provenance"}
    assert expected <= set(document)
    assert {"id", "quantity", "rule", "before", "after", "because", "check"} <= set(document["steps"][0])
    verdict = {"quantity", "derived", "measured", "instrument", "verdict", "tolerance", "expected_difference", "because"}
    assert verdict == set(document["checks"][0])


def test_an_unknown_quantity_is_null_with_its_reason():
    """Never 0, never blank."""
    unknown = _document()["quantities"]["flops.forward.causal"]

    assert None is unknown["value"]
    assert None is unknown["expr"]
    assert sample.NO_MASK == unknown["because"]


def test_dims_are_the_free_symbols_and_the_derived_ones():
    """k occurs in no expression but is derived (d/h), so it is there with its expression; nothing else is."""
    document = _document()
    free = {str(s) for q in document["quantities"].values() if q["expr"] for s in to_sympy(q["expr"]).free_symbols}

    assert free | {"k"} == set(document["dims"])
    assert "d/h" == document["dims"]["k"]["expr"]


def test_a_dimension_that_occurs_nowhere_is_left_out():
    """A document lists what its expressions need."""
    quantity = sample.quantities()["flops.forward.matmul"]

    document = to_json(sample.derivation(quantities={quantity.name: quantity}))

    assert "C" not in document["dims"]


def test_terms_add_up_to_their_quantity():
    """As SymPy expressions and as integers."""
    summed = {name: q for name, q in _document()["quantities"].items() if q["terms"] and "candidates" not in q}
    assert summed
    for name, quantity in summed.items():
        assert 0 == (to_sympy(quantity["expr"]) - sum(to_sympy(t["expr"]) for t in quantity["terms"])).expand(), name
        assert quantity["value"] == sum(t["value"] for t in quantity["terms"]), name


def test_peak_lists_its_candidates():
    """Each with its expression, its moment, its value and its parts, which add up."""
    candidates = _document()["quantities"]["memory.peak"]["candidates"]

    assert 3 == len(candidates)
    for candidate in candidates:
        assert candidate["value"] == sum(part["value"] for part in candidate["parts"].values())


def test_before_and_after_of_a_step_are_equal():
    """They parse, and their difference expands to 0."""
    steps = _document()["steps"]
    assert steps
    for step in steps:
        assert 0 == (to_sympy(step["before"]) - to_sympy(step["after"])).expand(), step["id"]


def test_equal_derivations_give_equal_bytes():
    """Key order does not depend on anything but the derivation."""
    assert json_text(_document()) == json_text(_document())


def test_json_is_ascii():
    """A control or bidirectional character in a name cannot act on the terminal that shows the JSON."""
    hostile = sample.derivation(model="\x1b[31m\u202eevil")

    text = json_text(to_json(hostile))

    assert text.isascii()
    assert "\x1b" not in text
    assert hostile.model == json.loads(text)["model"]["name"]


def test_without_checks_nothing_is_checked():
    """A document of a derivation alone has no verdicts and no sizes they were reached at."""
    document = to_json(replace(sample.derivation(), notes=()))

    assert [] == document["checks"]
    assert None is document["checked_at"]


def test_a_check_is_at_no_size_that_nothing_depends_on():
    """A dimension that no quantity contains is no symbol of the report, unless its value is said to be fixed."""
    derivation = sample.derivation()
    dim = TracedDim("state_size", "", 5)
    wider = replace(derivation, dims=(*derivation.dims, dim))
    fixed = replace(wider, specialization_reasons={"state_size": "the step uses its value"})
    sizes = {**derivation.sizes, "state_size": 7}

    assert derivation.sizes == checked_sizes(wider, sizes)
    assert sizes == checked_sizes(fixed, sizes)


def test_a_comparison_carries_its_steps():
    """Before, after, reason and check, as those of the derivation; they begin at the rule's value and end at the exact one."""
    entry = next(e for e in _document()["textbook"] if e["rule"] == "2ND")

    assert {"id", "quantity", "rule", "before", "after", "because", "check", "value"} <= set(entry["steps"][0])
    assert (entry["value"], entry["exact"]) == (entry["steps"][0]["value"], entry["steps"][-1]["value"])

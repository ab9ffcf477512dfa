"""The list of third-party modules and its table: what can be said without the packages."""

from __future__ import annotations

from tests.thirdparty.case import ERROR, EXACT, REFUSED, WRONG, Row
from tests.thirdparty.specs import cases
from tests.thirdparty.table import as_json, as_markdown, from_json


def test_the_list_is_long_and_each_module_is_there_once() -> None:
    """At least 60 modules of 25 packages, each with another set of sizes beside its defaults."""
    listed = cases()

    assert len({case.name for case in listed}) == len(listed) >= 60
    assert len({case.package for case in listed}) >= 25
    assert all(case.sizes for case in listed)


def test_the_table_counts_what_it_shows() -> None:
    """One of each verdict: 1 of 4."""
    rows = [Row("p", "1", verdict, verdict, "" if verdict == EXACT else "a | b") for verdict in (EXACT, REFUSED, WRONG, ERROR)]

    text = as_markdown(rows, {"torch": "1"})

    assert "1 of 4 modules from 1 packages" in text
    assert "| p | 1 | refused | refused |  |  |  | 0 | a \\| b |" in text
    assert from_json(as_json(rows, {"torch": "1"})) == rows

"""A measurement on a terminal: ``tests/reports/golden/measured.txt`` has what stands beside a time, and what is unknown and why."""

from __future__ import annotations

from tests.reports.views.measured import shown


def test_a_hostile_name_acts_on_no_terminal() -> None:
    assert shown(name="\x1b[31m[bold]red").startswith(r"\x1b[31m[bold]red: optimizer")

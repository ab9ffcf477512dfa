"""Times in live documents: proposed in days, and never in a unit that has no one length."""

from __future__ import annotations

from fractions import Fraction

import pytest

from reports.live import units
from reports.live.document import read
from reports.live.engine import NamedValues, Scope
from reports.live.language import UnitValue
from reports.live.verify_documents import judge

TIME = UnitValue(Fraction("143.92659") * 86400, units.SECOND)
SCOPE = Scope({"run": NamedValues("run", {"days": TIME})}, {"long": TIME})


def message(text: str) -> str:
    (finding,) = judge(read(text), SCOPE)
    return finding.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("144<!--= long -->", "long = 143.927 days, document says 144: the number has no unit: write one, such as days"),
        ("4.8 months<!--= run.days -->", "run.days = 143.927 days, document says 4.8 months: months differ in length: write days"),
        ("0.4 years<!--= run.days -->", "run.days = 143.927 days, document says 0.4 years: years differ in length: write days"),
        (
            "144 furlongs<!--= run.days -->",
            'run.days = 143.927 days, document says 144 furlongs: unknown unit "furlongs": expected s',
        ),
        ("143.93 days<!--= run.days -->", ""),
    ],
)
def test_a_time_is_proposed_in_days_where_days_are_meant(text: str, said: str) -> None:
    """143.927 days, and not 20.56 weeks; months and years are no units, with the way out."""
    assert said == message(text)

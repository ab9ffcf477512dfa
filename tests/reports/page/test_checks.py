"""The rows of checks and the notes that they refer to."""

from __future__ import annotations

from calc.pipeline.verdict import Verdict
from reports.page import checks


def test_what_verdicts_share_is_one_note() -> None:
    """Each instrument and each reason once; of a verdict without notes the reason is whole, whatever signs are in it."""
    verdicts = (
        Verdict("a", 3, 3, "counter", "in parts", because="one by one", notes=("counter", "one by one")),
        Verdict("b", 8, 8, "counter + reference", "in parts", notes=("counter", "reference", "one by one", "expected")),
        Verdict("c", 5, None, "", "not measured", notes=("no instrument separates them; see b",)),
        Verdict("d", 7, None, "", "not measured"),
        Verdict("e", 7, 7, "reference + counter", "exact", notes=("reference", "counter")),
        Verdict("f", 7, 8, "a + b", "failed", because="x; y"),
    )
    notes = checks.notes(verdicts)

    shared = ["counter", "one by one", "reference", "expected"]
    assert [*shared, "no instrument separates them; see b", "no instrument", "a + b", "x; y"] == notes
    assert ["1, 2", "1, 2, 3, 4", "5", "6", "1, 3", "7, 8"] == [checks.row(verdict, notes).note for verdict in verdicts]


def test_what_is_not_measured_is_named_with_the_reason() -> None:
    """Not a quantity that is not derived either."""
    verdicts = (
        Verdict("a", 5, None, "", "not measured", notes=("no instrument",), because="no instrument separates them"),
        Verdict("b", 7, None, "", "not measured"),
        Verdict("c", None, None, "", "not measured"),
        Verdict("d", 7, 7, "reference", "exact"),
    )

    assert list(checks.unmeasured(verdicts)) == [
        "a is derived but not measured (no instrument separates them).",
        "b is derived but not measured (no instrument).",
    ]

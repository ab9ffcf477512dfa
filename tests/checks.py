"""What a check failed, for tests that expect nothing."""

from __future__ import annotations

from calc.pipeline.check import Report
from calc.pipeline.verdict import FAILED


def failures(report: Report) -> list[str]:
    """Verdicts that failed, as text. A check that compared nothing is an error."""
    assert report.passed + report.failed > 0, f"nothing of {report.model} was measured"
    return [str(verdict) for verdict in report.verdicts if verdict.verdict == FAILED]

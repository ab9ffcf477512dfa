"""Certificates: the closed forms against recordings of the same step at sizes outside their derivation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calc.algebra import Algebra, Poly
from calc.derive import memory
from calc.derive.fold import Folder
from calc.derive.loops import Sites
from calc.derive.memory import Peak
from calc.errors import CertificateError
from calc.graph import Record


def certify(
    record: Record,
    folder: Folder,
    totals: Mapping[str, Poly],
    peaks: Mapping[str, tuple[int, Sequence[Peak]]],
    algebra: Algebra,
    sites: Sites,
) -> int:
    """Number of quantities that agree at the sizes of ``record``; the first that does not is an error.

    ``peaks`` maps a quantity to its step and its candidate moments: each moment is compared, and so is the maximum.
    """
    recorded: dict[str, int] = {}
    for entry in folder.entries(record):
        recorded[entry.quantity] = recorded.get(entry.quantity, 0) + int(entry.count)
    for quantity, poly in totals.items():
        _compare(quantity, algebra.value(poly, record.sizes), recorded.get(quantity, 0), record)
    for quantity, (step, candidates) in peaks.items():
        found = memory.moments(record, step, int)
        labels = memory.labelled(record, found, sites)
        for peak in candidates:
            if peak.label in labels:
                _compare(f"{quantity} at {peak.label}", algebra.value(peak.live, record.sizes), labels[peak.label].live, record)
        _compare(quantity, max(algebra.value(p.live, record.sizes) for p in candidates), max(m.live for m in found), record)
    return len(totals) + len(peaks)


def _compare(what: str, derived: int, recorded: int, record: Record) -> None:
    if derived != recorded:
        sizes = ", ".join(f"{n} = {v}" for n, v in record.sizes.items())
        raise CertificateError(
            what.partition(" at ")[0],
            f"the closed form of {what} gives {derived:,} and a recording gives {recorded:,} at {sizes}: "
            "the step is not the same polynomial at all sizes, so no closed form is given",
            record.sizes,
        )

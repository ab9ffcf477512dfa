"""Certificates: the closed forms against traces of the same step at sizes outside their derivation."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.derive.accumulate import Accumulator
from calc.derive.live_points import AS_THEY_ARE, by_label, live_points
from calc.derive.loops import LoopIndices
from calc.derive.peak import PeakCandidate, place_of
from calc.errors import CertificateError, NapkinError
from calc.graph.step import StepTrace
from calc.symbolic.algebra import Algebra, Poly
from calc.symbolic.assignments import PLAIN, sizes_text


@dataclass(frozen=True, slots=True)
class CertifiedForms:
    """The closed forms of a graph, as certificates are compared with them.

    ``peaks`` maps a quantity to its step and its peak candidates: each candidate is compared, and the maximum. ``trip_counts`` are the
    fewest traced ones: a trace of fewer iterations lacks candidates, and those must never be its maximum. A quantity of a trace without a
    closed form that is not ``unknown`` was derived as 0.
    """

    totals: Mapping[str, Poly]
    peaks: Mapping[str, tuple[int, Sequence[PeakCandidate]]]
    algebra: Algebra
    module_paths: LoopIndices
    trip_counts: Mapping[str, int]
    unknown: Collection[str] = ()


def certify(forms: CertifiedForms, trace: StepTrace, folder: Accumulator) -> int:
    """The number of quantities that agree at the sizes of ``trace``. Raises ``CertificateError`` for the first that does not."""
    counted: dict[str, int] = {}
    derived = forms.algebra.at(trace.sizes)
    for entry in folder.entries(trace):
        counted[entry.quantity] = counted.get(entry.quantity, 0) + int(entry.count)
    failures: dict[str, CertificateError] = {}
    for quantity, poly in forms.totals.items():
        with _noted(failures, quantity):
            _compare(quantity, derived(poly), counted.get(quantity, 0), trace)
    for quantity in counted.keys() - forms.totals.keys() - {*forms.unknown}:
        with _noted(failures, quantity):
            _compare(quantity, 0, counted[quantity], trace)
    for quantity in forms.peaks:
        with _noted(failures, quantity):
            _compare_peak(forms, quantity, trace)
    if failures:
        first, *_ = failures.values()
        reasons = {name: error.failures[name] for name, error in failures.items()}
        raise CertificateError(first.quantity, str(first), trace.sizes, reasons)
    return len(forms.totals) + len(forms.peaks)


@contextlib.contextmanager
def _noted(failures: dict[str, CertificateError], quantity: str) -> Iterator[None]:
    try:
        yield
    except CertificateError as error:
        failures[error.quantity] = error
    except NapkinError as error:  # not an integer at these sizes
        failures[quantity] = CertificateError(quantity, str(error))
    except ZeroDivisionError:
        failures[quantity] = CertificateError(quantity, f"the closed form of {quantity} divides by a size that is 0 there")


def _compare_peak(forms: CertifiedForms, quantity: str, trace: StepTrace) -> None:
    """Compare each peak candidate that ``trace`` has, and the maximum."""
    step, candidates = forms.peaks[quantity]
    derived = forms.algebra.at(trace.sizes)
    points = live_points(trace, step, int)
    distinction = next((peak.distinction for peak in candidates), AS_THEY_ARE)
    labels = by_label(trace, points, forms.module_paths, distinction)
    for peak in candidates:
        if peak.label in labels:
            _compare(quantity, derived(peak.live), labels[peak.label].live, trace, f" at {place_of(peak)}")
    few = {name: trace.sizes[name] for name, least in forms.trip_counts.items() if trace.sizes[name] < least}
    traced = [peak.live for peak in candidates if peak.label in labels]
    for peak in candidates if few else ():
        if peak.label not in labels and not any(_never_less(forms.algebra, live, peak.live, few) for live in traced):
            where = f"{quantity} at {place_of(peak)}"
            raise CertificateError(quantity, _NO_SUCH_CANDIDATE.format(where, sizes_text(few, PLAIN)), trace.sizes)
    _compare(quantity, max(derived(p.live) for p in candidates), max(m.live for m in points), trace)


_NO_SUCH_CANDIDATE = "{} has no such peak candidate at {}, though its closed form would be the largest there at some sizes"


def _never_less(algebra: Algebra, larger: Poly, smaller: Poly, trip_counts: Mapping[str, int]) -> bool:
    """Whether ``larger`` is at least ``smaller`` at all sizes and these ``trip_counts``: no term of their difference is negative."""
    sums: dict[tuple[tuple[str, int], ...], Fraction] = {}
    for coefficient, powers in algebra.terms(larger - smaller):
        unbound = {name: power for name, power in powers.items() if name not in trip_counts}
        if any(not name.isidentifier() for name in unbound):
            return False  # a size inside a function: not checked for trip counts
        counted = math.prod((trip_counts[name] ** power for name, power in powers.items() if name in trip_counts), start=Fraction(1))
        key = tuple(sorted(unbound.items()))
        sums[key] = sums.get(key, Fraction(0)) + coefficient * counted
    return all(value >= 0 for value in sums.values())


def _compare(quantity: str, derived: int, traced: int, trace: StepTrace, where: str = "") -> None:
    if derived != traced:
        why = f"the closed form of {quantity}{where} gives {derived:,} and a trace gives {traced:,} at {sizes_text(trace.sizes, PLAIN)}"
        message = f"{why}: the step is not the same polynomial at all sizes, so no closed form is given"
        raise CertificateError(quantity, message, trace.sizes, {quantity: why})

"""Instants of a step in words."""

from __future__ import annotations

from fractions import Fraction

from calc.derive.live_bytes import Instant, Timeline


def phase_of(timeline: Timeline) -> str:
    """Where in its phase the peak is: ``at the start of the backward``."""
    op = timeline.peak.op
    stretch = next(((phase, first, last) for phase, first, last in timeline.phases if first <= op <= last), None)
    if stretch is None:
        return "before the first operator"
    phase, first, last = stretch
    share = Fraction(op - first, max(last - first, 1))
    where = "at the start of" if share <= Fraction(1, 10) else "at the end of" if share >= Fraction(9, 10) else "during"
    repeats = [p for p, _, _ in timeline.phases].count(phase) > 1
    words = "optimizer step" if phase == "optimizer" else phase.replace("_", " ")
    return f"{where} {'a' if repeats else 'the'} {words}"


def called(instant: Instant) -> str:
    """An instant by its operator: ``mm at lm_head``."""
    if not instant.operator:
        return "no operator has run"
    return f"{short(instant.operator).strip('_')} at {instant.module_path}"


def short(operator: str) -> str:
    """``aten.addmm.default`` → ``addmm``; other names are unchanged."""
    return operator.removeprefix("aten.").rsplit(".", 1)[0] if operator.startswith("aten.") else operator

"""What the live bytes of a peak candidate are, in words: whose outputs are temporary, and how activations relate to their quantity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from calc.derive.analysis import Analysis
from calc.derive.names import MODEL_INPUT
from calc.derive.peak import PeakCandidate
from calc.graph.step import StepTrace, bare_name
from calc.symbolic.algebra import Poly

_LIVE = "the storages allocated and not yet freed when this operator returns are live, each in one role, so the roles add"
_LISTED = 4  # operators of temporary outputs that a reason names


def reasons(analysis: Analysis, peaks: Sequence[PeakCandidate]) -> Iterator[str]:
    """Why each peak candidate is the sum of its roles."""
    trace = analysis.graph.traces[0]
    outputs = dict(_temporaries(trace, {peak.event for peak in peaks}))
    for peak in peaks:
        places = dict.fromkeys(_operator(trace, op, analysis) for op in outputs[peak.event])
        yield "; ".join(filter(None, (_LIVE, _temporary([*places]), _activation(analysis, peak.parts))))


def _temporaries(trace: StepTrace, events: set[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Event → the operators that allocated the temporary storages that are live after it."""
    live: dict[int, int] = {}
    for i, event in enumerate(trace.events[: max(events, default=-1) + 1]):
        if trace.storages[event.storage].role == "temporary":
            live.pop(event.storage, None)
            live |= {event.storage: event.op} if event.change > 0 else {}
        if i in events:
            yield i, tuple(live.values())


def _operator(trace: StepTrace, op: int, analysis: Analysis) -> tuple[str, str]:
    """The operator and its module path; both empty before the first."""
    if not 0 <= op < len(trace.ops):
        return "", ""
    return bare_name(trace.ops[op].name), analysis.module_paths.general(trace.ops[op].module_path)


def _temporary(operators: Sequence[tuple[str, str]]) -> str:
    """Whose outputs the temporary storages are; empty where no operator made one of them."""
    if not operators or ("", "") in operators:
        return ""
    by_path: dict[str, list[str]] = {}
    for operator, path in operators[:_LISTED]:
        by_path.setdefault(path, []).append(operator)
    more = [f"{len(operators) - _LISTED} more"] if len(operators) > _LISTED else []
    return f"temporary: outputs of {_and([*(f'{_and(names)} at {path}' for path, names in by_path.items()), *more])}"


def _and(items: Iterable[str]) -> str:
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last


def _activation(analysis: Analysis, parts: Mapping[str, Poly]) -> str:
    """How the activations relate to ``activations.bytes``, where all of those are live; empty elsewhere."""
    saved = analysis.groups.get("activations.bytes", [])
    inputs = sum((g.total for g in saved if MODEL_INPUT in g.label), start=analysis.algebra.constant(0))
    if "activations.bytes" in analysis.graph.unknown or parts.get("activation", 0) != analysis.totals.get("activations.bytes", 0) - inputs:
        return ""
    if inputs == 0:
        return "activation: all of activations.bytes" if saved else ""
    text = analysis.fold.outer.text(analysis.fold(inputs)).replace("**", "^").replace("*", "·")
    return f"activation: activations.bytes without the {text} bytes of model inputs, which count as input"

"""What the live bytes of a peak candidate are, in words: whose outputs are temporary, and how activations relate to their quantity."""

from __future__ import annotations

from collections import Counter
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
    live = dict(_live(trace, {peak.event for peak in peaks}))
    made = {event.storage: event.op for event in trace.events if event.change > 0}
    saved = _origins(trace, analysis, {each.tensor.storage: made.get(each.tensor.storage, -1) for each in trace.saved})
    for peak in peaks:
        at = live[peak.event]
        places = dict.fromkeys(_operator(trace, at[storage], analysis) for storage in _of_role(trace, at, "temporary"))
        activation = _activation(analysis, peak.parts, saved, _origins(trace, analysis, at))
        yield "; ".join(filter(None, (_LIVE, _temporary([*places]), activation)))


def _live(trace: StepTrace, events: set[int]) -> Iterator[tuple[int, Mapping[int, int]]]:
    """Event → the storages that are live after it, each with the operator that allocated it."""
    live: dict[int, int] = {}
    for i, event in enumerate(trace.events[: max(events, default=-1) + 1]):
        live.pop(event.storage, None)
        live |= {event.storage: event.op} if event.change > 0 else {}
        if i in events:
            yield i, dict(live)


def _of_role(trace: StepTrace, storages: Iterable[int], role: str) -> list[int]:
    return [storage for storage in storages if trace.storages[storage].role == role]


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


_Origin = tuple[str, str, str]  # operator, module path, bytes


def _origins(trace: StepTrace, analysis: Analysis, made: Mapping[int, int]) -> Counter[_Origin]:
    """The activations by what allocated them. The storages of a second step are others than those saved in the first."""
    ops = trace.ops
    places = ((ops[made[s]], trace.storages[s].nbytes) for s in _of_role(trace, made, "activation") if 0 <= made[s] < len(ops))
    algebra = analysis.algebra
    return Counter((bare_name(op.name), op.module_path, algebra.text(algebra.parse(nbytes))) for op, nbytes in places)


def _activation(analysis: Analysis, parts: Mapping[str, Poly], saved: Counter[_Origin], live: Counter[_Origin]) -> str:
    """How the activations relate to ``activations.bytes``, where they are as many bytes; empty elsewhere, and where several storages stand
    for freed ones."""
    groups = analysis.groups.get("activations.bytes", [])
    inputs = sum((g.total for g in groups if MODEL_INPUT in g.label), start=analysis.algebra.constant(0))
    if "activations.bytes" in analysis.graph.unknown or parts.get("activation", 0) != analysis.totals.get("activations.bytes", 0) - inputs:
        return ""
    freed, remaining = saved - live, live - saved
    if not groups or remaining.total() > 1:
        return ""
    all_of_them = f"activations.bytes without the {_written(inputs, analysis)} bytes of model inputs, which count as input"
    whole = f"activation: {all_of_them if inputs != 0 else 'all of activations.bytes'}"
    return "".join((whole, *(_in_place_of(freed, origin, analysis) for origin in remaining)))


def _in_place_of(freed: Counter[_Origin], origin: _Origin, analysis: Analysis) -> str:
    """What is live in place of saved tensors that are freed already: by chance as many bytes."""
    operator, path, _ = origin
    gone = sum((analysis.algebra.parse(nbytes) for _, _, nbytes in freed.elements()), start=analysis.algebra.constant(0))
    where = analysis.module_paths.general(path)
    return f"; {_written(gone, analysis)} of these bytes are freed already, and as many are of the output of {operator} at {where}"


def _written(poly: Poly, analysis: Analysis) -> str:
    return analysis.fold.outer.text(analysis.fold(poly)).replace("**", "^").replace("*", "·")

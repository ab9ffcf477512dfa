"""What the live bytes of a peak candidate are, in words: whose outputs are temporary, and how activations relate to their quantity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from calc.derive.analysis import Analysis
from calc.derive.peak import PeakCandidate
from calc.errors import listed
from calc.graph.step import Op, Size, StepTrace, bare_name
from calc.symbolic.algebra import Poly
from calc.symbolic.readable import readable

_LIVE = "the storages allocated and not yet freed when this operator returns are live, each in one role, so the roles add"
_LISTED = 4  # operators of temporary outputs that a reason names


def reasons(analysis: Analysis, peaks: Sequence[PeakCandidate]) -> Iterator[str]:
    """Why each peak candidate is the sum of its roles."""
    trace = analysis.graph.traces[0]
    live, activations = dict(_live(trace, {peak.event for peak in peaks})), _Activations(analysis, trace)
    for peak in peaks:
        at = live[peak.event]
        places = dict.fromkeys(_operator(trace, at[storage], analysis) for storage in _of_role(trace, at, "temporary"))
        yield "; ".join(filter(None, (_LIVE, _temporary([*places]), activations.compared(peak.parts, at))))


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
    return f"temporary: outputs of {listed([*(f'{listed(names)} at {path}' for path, names in by_path.items()), *more])}"


_Origin = tuple[str, str, str]  # operator, module path, bytes


@dataclass
class _Activations:
    """The activations of a trace beside ``activations.bytes``, at its peak candidates."""

    analysis: Analysis
    trace: StepTrace

    def compared(self, parts: Mapping[str, Poly], live: Mapping[int, int]) -> str:
        """How the activations relate to ``activations.bytes``, where they are as many bytes, or one storage more; empty elsewhere, and
        where several storages stand for freed ones."""
        if self._expected is None:
            return ""
        now = self._origins(live)
        freed, remaining = self._saved - now, now - self._saved
        more = parts.get("activation", self.analysis.algebra.constant(0)) - self._expected
        if remaining.total() > 1 or more != (0 if freed else self._bytes(remaining)):
            return ""
        inputs = f"activations.bytes without the {self._written(self._inputs)} bytes of model inputs, which count as input"
        whole = f"activation: {inputs if self._inputs != 0 else 'all of activations.bytes'}"
        return "".join((whole, *(self._beside(freed, origin) for origin in remaining)))

    @cached_property
    def _inputs(self) -> Poly:
        groups = self.analysis.groups.get("activations.bytes", [])
        return sum((g.total for g in groups if g.label.is_input), start=self.analysis.algebra.constant(0))

    @cached_property
    def _expected(self) -> Poly | None:
        """Bytes of all activations that are no inputs; None where they are unknown, or there are none."""
        if "activations.bytes" in self.analysis.graph.unknown or not self.analysis.groups.get("activations.bytes"):
            return None
        return self.analysis.totals["activations.bytes"] - self._inputs

    @cached_property
    def _saved(self) -> Counter[_Origin]:
        made = {event.storage: event.op for event in self.trace.events if event.change > 0}
        return self._origins({each.tensor.storage: made.get(each.tensor.storage, -1) for each in self.trace.saved})

    def _origins(self, made: Mapping[int, int]) -> Counter[_Origin]:
        """The activations by what allocated them. The storages of a second step are others than those saved in the first."""
        ops = self.trace.ops
        mine = ((ops[made[s]], self.trace.storages[s].nbytes) for s in _of_role(self.trace, made, "activation") if 0 <= made[s] < len(ops))
        return Counter(self._origin(op, nbytes) for op, nbytes in mine)

    def _origin(self, op: Op, nbytes: Size) -> _Origin:
        algebra = self.analysis.algebra
        return bare_name(op.name), op.module_path, algebra.text(algebra.parse(nbytes))

    def _beside(self, freed: Counter[_Origin], origin: _Origin) -> str:
        """What is live that is not saved: beside all saved tensors, or in place of freed ones, by chance as many bytes."""
        operator, path, nbytes = origin
        output = f"the output of {operator} at {self.analysis.module_paths.general(path)}"
        keeps = ", a scalar that keeps its buffer" if origin in self._scalars and not nbytes.isdigit() else ""
        if not freed:
            return f"; beside them {readable(nbytes)} bytes of {output}{keeps}"
        return f"; {self._written(self._bytes(freed))} of these bytes are freed already, and {output}{keeps and f'{keeps},'} takes as many"

    def _bytes(self, origins: Counter[_Origin]) -> Poly:
        algebra = self.analysis.algebra
        return sum((algebra.parse(nbytes) for _, _, nbytes in origins.elements()), start=algebra.constant(0))

    @cached_property
    def _scalars(self) -> set[_Origin]:
        """Outputs without axes, some of them in the buffer of the terms that a kernel adds."""
        first = ((op, op.outputs[0]) for op in self.trace.ops if op.outputs and not op.outputs[0].shape)
        return {self._origin(op, self.trace.storages[tensor.storage].nbytes) for op, tensor in first}

    def _written(self, poly: Poly) -> str:
        return readable(self.analysis.fold.text(poly))

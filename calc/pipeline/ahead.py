"""The special case that the requested sizes probably need, traced by a second process while this one certifies the general graph."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Self

from calc.graph.plan import TracePlan
from calc.graph.specialization import requested_values
from calc.graph.step import Graph, StepTrace
from calc.platform.process_copy import ProcessCopy, copy_of_this_process
from calc.spec import Spec

# A shorter trace is not worth a copy of the process. A longer one may take some times as long where other programs run as well.
_LEAST_SECONDS = 0.3
_PATIENCE = 4


SizesKey = tuple[str, tuple[tuple[str, int], ...], bool]


class Ahead:
    """At most one special case at a time: the concrete trace of the general graph at the requested sizes, the graph of the case, then the
    concrete traces that certify it. Each is what this process would trace."""

    def __init__(self) -> None:
        self._plan: TracePlan | None = None
        self._process: ProcessCopy | None = None
        self._concrete: dict[SizesKey, int] = {}  # the number of each concrete trace among the results

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self, plan: TracePlan, general: Graph, seconds: float) -> None:
        """Trace the special case of ``plan`` beside this process; the ``general`` graph took so many seconds."""
        from calc.trace import case_with_certificates

        self.end()
        if seconds < _LEAST_SECONDS:
            return
        requested = requested_values(general, plan.sizes)[0]
        work = functools.partial(case_with_certificates, plan, general, requested)
        self._process = copy_of_this_process(work, _LEAST_SECONDS + _PATIENCE * seconds)
        self._plan, self._concrete = plan, {sizes_key(plan.spec, general, requested): 0}

    def graph(self, plan: TracePlan) -> Graph | None:
        """The graph by ``plan``, once; None if it was not traced here."""
        if self._process is None or plan != self._plan:
            return None
        self._plan = None
        traced = self._process.result(1)
        if traced is None:
            self.end()
            return None
        graph, certificates = traced
        self._concrete |= {sizes_key(plan.spec, graph, at): number for number, at in enumerate(certificates, 2)}
        return graph  # type: ignore[no-any-return]  # as the other process wrote it

    def trace(self, key: SizesKey) -> StepTrace | None:
        """The concrete trace that ``key`` identifies; None if it is not traced here."""
        if self._process is None or key not in self._concrete:
            return None
        trace: StepTrace | None = self._process.result(self._concrete[key])
        return trace

    def end(self) -> None:
        """Stop what is still being traced."""
        if self._process is not None:
            self._process.end()
        self._process, self._plan, self._concrete = None, None, {}


def sizes_key(spec: Spec, graph: Graph, at: Mapping[str, int]) -> SizesKey:
    """What determines a concrete trace of a model: its dimensions and their sizes, and how views are made."""
    return repr(spec.dimensions), tuple(graph.as_basis().sizes(at).items()), graph.mutates_tracked

"""The special case that the requested sizes probably need, traced by a second process while this one certifies the general graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from calc.graph.plan import TracePlan
from calc.graph.step import Graph, StepTrace
from calc.platform.process_copy import ProcessCopy, copy_of_this_process

# A shorter trace is not worth a copy of the process. A longer one may take some times as long where other programs run as well.
_LEAST_SECONDS = 0.3
_PATIENCE = 4


class Ahead:
    """At most one special case at a time: its graph, then the concrete traces that certify it. Each is what this process would trace."""

    def __init__(self) -> None:
        self._plan: TracePlan | None = None
        self._process: ProcessCopy | None = None
        self._certificates: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self, plan: TracePlan, seconds: float) -> None:
        """Trace the special case of ``plan`` beside this process; the general graph took so many seconds."""
        from calc.trace import case_with_certificates

        self.end()
        if seconds >= _LEAST_SECONDS:
            self._process = copy_of_this_process(lambda: case_with_certificates(plan), _LEAST_SECONDS + _PATIENCE * seconds)
            self._plan = plan

    def graph(self, plan: TracePlan, key: Callable[[Graph, Mapping[str, int]], Any]) -> Graph | None:
        """The graph by ``plan``, once; None if it was not traced here. ``key`` identifies the concrete trace at values of basis symbols."""
        if self._process is None or plan != self._plan:
            return None
        self._plan = None
        traced = self._process.result(0)
        if traced is None:
            self.end()
            return None
        graph, certificates = traced
        self._certificates = [key(graph, at) for at in certificates]
        return graph  # type: ignore[no-any-return]  # as the other process wrote it

    def trace(self, key: Any) -> StepTrace | None:
        """The concrete trace that ``key`` identifies; None if it is not traced here."""
        if self._process is None or key not in self._certificates:
            return None
        trace: StepTrace | None = self._process.result(1 + self._certificates.index(key))
        return trace

    def end(self) -> None:
        """Stop what is still being traced."""
        if self._process is not None:
            self._process.end()
        self._process, self._plan, self._certificates = None, None, []

"""Certificates: additional concrete traces that agree with the closed forms, which prove that the guards do not matter at those sizes.

A derivation is certified at the requested sizes. Degenerate sizes (few iterations, a batch of 1) are certified when requested, or when a
graph is stored without its spec.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calc.errors import CertificateError, SpecError, TraceError
from calc.graph.plan import Refusal, outcome_of
from calc.graph.specialization import degenerate
from calc.graph.step import Graph, Guard, StepTrace
from calc.graph.trip_counts import fewest
from calc.pipeline.ahead import Ahead, SizesKey, sizes_key
from calc.platform.progress import Progress
from calc.rules.registry import REGISTRY
from calc.spec import Spec
from calc.symbolic.assignments import PLAIN, sizes_text

if TYPE_CHECKING:
    from calc.derive.analysis import Analysis


def analysed(graph: Graph) -> Analysis:
    """The closed forms of a graph, by the registered rules."""
    from calc.derive.analysis import analyse
    from calc.rules import families  # noqa: F401  # registers the rules

    return analyse(graph, REGISTRY)


class Certifier:
    """Adds certificates to graphs of one model. Each concrete trace is made once, so that one at which the general closed forms fail
    certifies those of the special case. ``traces`` are those of another certifier of the same model and options; ``ahead`` may make more
    of them."""

    def __init__(self, progress: Progress, traces: dict[SizesKey, StepTrace] | None = None, ahead: Ahead | None = None) -> None:
        self.progress = progress
        self.ahead = ahead or Ahead()
        self._traces = {} if traces is None else traces
        self._probes: list[Mapping[str, int]] = []

    def beside(self) -> Certifier:
        """A certifier that has tried no sizes yet and shares the traces with this one."""
        return Certifier(self.progress, self._traces, self.ahead)

    def with_certificate(self, spec: Spec, graph: Graph, analysis: Analysis, at: Mapping[str, int]) -> Graph | Refusal:
        """The graph with one more concrete trace, if its closed forms agree with that trace; else the refusal."""
        return outcome_of(lambda: self._certified(spec, graph, analysis, at))

    def _certified(self, spec: Spec, graph: Graph, analysis: Analysis, at: Mapping[str, int]) -> Graph:
        trace = self.trace(spec, graph, at)
        analysis.certify(trace)
        return replace(graph, certificates=(*graph.certificates, trace))

    def trace(self, spec: Spec, graph: Graph, at: Mapping[str, int]) -> StepTrace:
        """The concrete trace ``at`` these values of the basis symbols, made once."""
        from calc.trace import concrete_trace

        key = sizes_key(spec, graph, at)
        if key not in self._traces:
            self.progress("tracing a certificate at " + sizes_text(graph.as_basis().independent_sizes(at), PLAIN))
            self._traces[key] = self.ahead.trace(key) or concrete_trace(spec, graph, at)
        return replace(self._traces[key], sizes=dict(at))

    def with_one_certificate(
        self, spec: Spec, graph: Graph, analysis: Analysis, any_of: Sequence[Mapping[str, int]]
    ) -> Graph | Refusal:
        """The graph with one more certificate, at the first of the sizes where its closed forms agree; else why the last one fails."""
        for at in any_of:
            outcome = self.with_certificate(spec, graph, analysis, at)
            if isinstance(outcome, Graph) or not isinstance(outcome.error, CertificateError):
                break
        return outcome

    def probed_like(self, spec: Spec, graph: Graph, at: Mapping[str, int]) -> list[dict[str, int]]:
        """Values of the probes that differ from ``at`` only in trip counts, which are no fewer than those that ``graph`` was traced at."""
        least = {name: fewest([trace.sizes for trace in graph.traces], name) for name in graph.loops}
        counts = [{name: probe.get(name, 0) for name in graph.loops} for probe in self._probes]
        enough = [{**at, **each} for each in counts if all(each[name] >= few for name, few in least.items())]
        return [candidate for candidate in enough if sizes_key(spec, graph, candidate) in self._traces]

    def probed(self, spec: Spec, graph: Graph, analysis: Analysis, probes: Sequence[Mapping[str, int]]) -> Graph:
        """The graph with more certificates: at those of ``probes`` that add information and where its closed forms agree."""
        failed: list[Guard] = []
        for at in probes:
            if any(not c.holds_at(at) for c in failed) or all(_is_covered(c, at, graph) for c in graph.guards):
                continue  # the reason that an earlier probe failed applies here too
            self._probes.append(at)
            outcome = self.with_certificate(spec, graph, analysis, at)
            if isinstance(outcome, Graph):
                graph = outcome
            elif isinstance(outcome.error, TraceError | SpecError):
                # Some models cannot be built at these sizes, or have nothing to recompute there.
                # Guards that flip there and at no certificate stay unmet.
                failed += [c for c in graph.guards if not c.opaque and not _is_covered(c, at, graph)]
            else:
                raise outcome.error
        return graph

    def where_degenerate(self, spec: Spec, graph: Graph, analysis: Analysis | None) -> Graph:
        """The graph and its special cases, also certified at degenerate sizes."""
        analysis = analysis or analysed(graph)
        certified = self.probed(spec, graph, analysis, degenerate(graph))
        cases = (replace(s, graph=self.where_degenerate(spec, s.graph, analysis.special)) for s in graph.special_cases)
        return replace(certified, special_cases=tuple(cases))


def _is_covered(condition: Guard, at: Mapping[str, int], graph: Graph) -> bool:
    return condition.holds_at(at) or any(condition.answered_by(r.sizes, at) for r in graph.certificates)

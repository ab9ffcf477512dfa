"""Certificates: additional concrete traces that agree with the closed forms, which prove that the guards do not matter at those sizes.

A derivation is certified at the requested sizes. Degenerate sizes (few iterations, a batch of 1) are certified when requested, or when a
graph is stored without its spec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calc.errors import CertificateError, SpecError, TraceError
from calc.graph.plan import Refusal, outcome_of
from calc.graph.specialization import degenerate
from calc.graph.step import Graph, Guard
from calc.rules.registry import REGISTRY
from calc.spec import Spec
from calc.symbolic.assignments import PLAIN, sizes_text

if TYPE_CHECKING:
    from calc.derive.analysis import Analysis

Progress = Callable[[str], None]


def analysed(graph: Graph) -> Analysis:
    """The closed forms of a graph, by the registered rules."""
    from calc.derive.analysis import analyse
    from calc.rules import families  # noqa: F401  # registers the rules

    return analyse(graph, REGISTRY)


def with_certificate(spec: Spec, graph: Graph, analysis: Analysis, at: Mapping[str, int], progress: Progress) -> Graph | Refusal:
    """The graph with one more concrete trace, if its closed forms agree with that trace; else the refusal."""
    progress("tracing a certificate at " + sizes_text(at, PLAIN))
    return outcome_of(lambda: _certified(spec, graph, analysis, at))


def _certified(spec: Spec, graph: Graph, analysis: Analysis, at: Mapping[str, int]) -> Graph:
    from calc.trace import concrete_trace

    trace = concrete_trace(spec, graph, at)
    analysis.certify(trace)
    return replace(graph, certificates=(*graph.certificates, trace))


def with_one_certificate(
    spec: Spec, graph: Graph, analysis: Analysis, any_of: Sequence[Mapping[str, int]], progress: Progress
) -> Graph | Refusal:
    """The graph with one more certificate, at the first of the sizes where its closed forms agree; else why the last one fails."""
    for at in any_of:
        outcome = with_certificate(spec, graph, analysis, at, progress)
        if isinstance(outcome, Graph) or not isinstance(outcome.error, CertificateError):
            break
    return outcome


def probed(spec: Spec, graph: Graph, analysis: Analysis, probes: Sequence[Mapping[str, int]], progress: Progress) -> Graph:
    """The graph with more certificates: at those of ``probes`` that add information and where its closed forms agree."""
    failed: list[Guard] = []
    for at in probes:
        if any(not c.holds_at(at) for c in failed) or all(_is_covered(c, at, graph) for c in graph.guards):
            continue  # the reason that an earlier probe failed applies here too
        outcome = with_certificate(spec, graph, analysis, at, progress)
        if isinstance(outcome, Graph):
            graph = outcome
        elif isinstance(outcome.error, TraceError | SpecError):
            # Some models cannot be built at these sizes, or have nothing to recompute there.
            # Guards that flip there and at no certificate stay unmet.
            failed += [c for c in graph.guards if not c.opaque and not _is_covered(c, at, graph)]
        else:
            raise outcome.error
    return graph


def _is_covered(condition: Guard, at: Mapping[str, int], graph: Graph) -> bool:
    return condition.holds_at(at) or any(condition.answered_by(r.sizes, at) for r in graph.certificates)


def where_degenerate(spec: Spec, graph: Graph, analysis: Analysis | None, progress: Progress) -> Graph:
    """The graph and its special cases, also certified at degenerate sizes."""
    analysis = analysis or analysed(graph)
    certified = probed(spec, graph, analysis, degenerate(graph), progress)
    cases = (replace(s, graph=where_degenerate(spec, s.graph, analysis.special, progress)) for s in graph.special_cases)
    return replace(certified, special_cases=tuple(cases))

"""``nn.Module`` → graph, by symbolic execution of the real training step.

Imports torch, the vocabulary, ``platform``, ``experiment``, ``symbolic`` and ``graph``; no rules and no derivation. Start with ``step``
(one run), ``recorder`` (the trace of a run) and ``tracer`` (runs at several trip counts become a graph).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from calc.dimensions import ordered_names
from calc.errors import RoundedShareError
from calc.graph import trip_counts
from calc.graph.basis import basis_of
from calc.graph.plan import Near, Refusal, TracePlan
from calc.graph.step import Graph, Guard, StepTrace
from calc.options import Options
from calc.platform.progress import Progress
from calc.spec import Spec
from calc.symbolic.exact import evaluate_text
from calc.trace import step
from calc.trace.hints import hints, next_composite
from calc.trace.step import FirstForward, trace_step
from calc.trace.tracer import TracedRuns, Tracer, hint_rules, no_closed_form, sides
from calc.trace.tracing import StepSizes

# Larger sizes are not certified at themselves: evaluating what depends on sizes and constants alone would take too long.
_MOST_EVALUATED = 2**18
# Torch counts fewer bytes.
_COUNTED = 2**63


def attempt(
    plan: TracePlan, traces: TracedRuns | None = None, progress: Progress = lambda _: None, unrolls: bool = False
) -> Graph | Refusal:
    """The graph of the training step, traced with symbolic sizes according to ``plan``, without certificates; or the reason why the plan
    does not suffice.

    ``traces`` caches the traces of this spec and special case, so that a deeper plan reuses them. ``unrolls``: see ``Tracer``.
    """
    return Tracer(plan, {} if traces is None else traces, progress, unrolls).graph()


def flipped_guards(spec: Spec, graph: Graph, sizes: Mapping[str, int], equal: Mapping[str, str], near: Near | None) -> list[Guard]:
    """The guards of ``graph`` whose outcome at the hints of a trace of the special case ``equal`` would differ from that at ``sizes``."""
    specialized = {name: str(sizes[name]) for name in graph.specialized if name not in equal}
    basis, general = basis_of(spec.dimensions, {**specialized, **equal}), graph.as_basis()
    loops = [name for name in graph.loops if name in basis.symbols]
    products = sides(spec.dimensions, graph.options.get("optimizer", ""))
    hinted = hints(basis, sizes, replace(hint_rules(spec.dimensions, loops, basis, products), near=near))
    requested = general.values(sizes)
    at_hints = {**general.values(basis.sizes(hinted)), **{name: requested[name] for name in graph.loops}}
    return [c for c in graph.guards if not c.opaque and c.holds_at(at_hints) != c.holds_at(requested)]


def rounded_share_error(spec: Spec, graph: Graph, runs: TracedRuns) -> RoundedShareError | None:
    """The error for a step that is not a polynomial in a trip count, where one of the ``rounded_shares`` of that trip count was read as a
    number."""
    read = next((share for run in runs.values() for share in run.rounded_shares), None)
    return None if read is None else RoundedShareError(no_closed_form(spec, read, graph.as_basis()), read.divided or ())


def certificate_sizes(
    graph: Graph, sizes: Mapping[str, int], attempt: int = 0, nearest_first: bool = False
) -> list[list[dict[str, int]]]:
    """For each certificate of ``graph``, the values of the basis symbols at which to trace it, preferred values first.

    These are the ``sizes`` themselves, numbers with many divisors, or primes other than the hints, at larger trip counts. If guards fail at
    all of these, values near ``sizes`` follow, or come first for a graph that was traced near ``sizes`` because of such guards.
    """
    basis = graph.as_basis()
    dims = {d.name: d for d in graph.dims}
    rules = hint_rules(dims, graph.loops, basis, sides(dims, graph.options.get("optimizer", "")))
    certificates, requested = [], basis.values(sizes)
    for number, counts in enumerate(trip_counts.certified_counts(attempt, graph.loops, trip_counts.limits(graph.loops, dims, graph.basis))):
        # The last is for guards that compare with a constant, such as more than 25 rows.
        shifts = (*(number + 1 + 3 * i for i in range(3)), -2 - number)
        ways = [replace(rules, hint_set=number + 1), *(replace(rules, shift=shift) for shift in shifts)]
        sets = [hints(basis, sizes, way) for way in ways]
        if number or max(requested.values(), default=0) <= _MOST_EVALUATED:
            sets = [hints(basis, sizes, replace(rules, following=next_composite)) if number else requested, *sets]
        sets = [values for values in sets if _fits(graph, {**values, **counts})] or sets
        some = [{**values, **counts} for values in sets]
        some += [_near_to(graph, some[0], sizes, by) for by in (number + 1, -number - 1, 0)]
        nearest = min(some, key=functools.partial(_count_flipped, graph))
        some = [nearest] if nearest in some[: len(sets)] else [some[0], nearest]
        certificates.append(some[::-1] if nearest_first else some)
    return certificates


def _fits(graph: Graph, at: Mapping[str, int]) -> bool:
    """Whether torch can count the bytes of every storage ``at`` these values: a product of widths of a tower may have eight factors."""
    sizes = {storage.nbytes for storage in graph.traces[0].storages if isinstance(storage.nbytes, str)}
    return all(evaluate_text(text, at) < _COUNTED for text in sizes)


def _near_to(graph: Graph, at: Mapping[str, int], sizes: Mapping[str, int], by: int) -> dict[str, int]:
    """``at``, with each symbol of a guard that fails there set to its requested value plus ``by``."""
    moved_to, requested = dict(at), graph.as_basis().values(sizes)
    moved: set[str] = set()
    while True:
        otherwise = {name for c in graph.guards if not c.opaque and not c.holds_at(moved_to) for name in ordered_names(c.expr)}
        to_move = (otherwise & requested.keys()) - moved - {*graph.loops}
        if not to_move:
            return moved_to
        moved |= to_move
        moved_to |= {name: max(1, requested[name] + by) for name in to_move}


def _count_flipped(graph: Graph, at: Mapping[str, int]) -> int:
    """The number of guards that fail at ``at``."""
    return sum(not c.holds_at(at) for c in graph.guards if not c.opaque)


def concrete_trace(spec: Spec, graph: Graph, values: Mapping[str, int]) -> StepTrace:
    """A concrete trace of the step of ``graph``, at the given values of its basis symbols."""
    return trace_step(spec, StepSizes(graph.as_basis(), {}, values), Options(**graph.options), graph.mutates_tracked).trace


def first_forward(spec: Spec, graph: Graph, at: Mapping[str, int]) -> FirstForward:
    """What the first forward of the step of ``graph`` does at the given values of its basis symbols (``calc.trace.step``)."""
    return step.first_forward(spec, StepSizes(graph.as_basis(), {}, at), Options(**graph.options), graph.mutates_tracked)


def case_with_certificates(plan: TracePlan, general: Graph, requested: Mapping[str, int]) -> Iterator[Any]:
    """The concrete trace of the ``general`` graph at its ``requested`` values; the graph of ``plan``, a special case of it, with the values
    at which that is certified, the largest number of iterations first; then the concrete trace at each. Ends where the plan does not
    suffice. For a process of its own: torch computes on one thread from here on."""
    torch.set_num_threads(1)
    yield concrete_trace(plan.spec, general, requested)
    graph = attempt(plan, unrolls=True)
    if isinstance(graph, Graph):
        each = certificate_sizes(graph, plan.sizes, plan.attempt, nearest_first=plan.near is not None)
        certificates = [any_of[0] for any_of in reversed(each)]
        yield graph, certificates
        for at in certificates:
            yield concrete_trace(plan.spec, graph, at)


def trace_at(
    spec: Spec, specialized: Mapping[str, int], sizes: Mapping[str, int], observed: Mapping[str, Sequence[int]], options: Options
) -> StepTrace:
    """A concrete trace at ``sizes``, whose data-dependent sizes take in order the values that a real run ``observed``."""
    basis = basis_of(spec.dimensions, {name: str(value) for name, value in specialized.items()})
    return trace_step(spec, StepSizes(basis, {}, basis.values(sizes), observed=observed), options).trace

"""Graph → derivation: every quantity with the steps that lead to it. Needs SymPy, never torch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import sympy as sp

from calc.derive import cases, coverage, loops
from calc.derive import peak as memory
from calc.derive.accumulate import Accumulator
from calc.derive.analysis import PEAKS, Analysis, analyse
from calc.derive.other_sizes import Trace, TracedGraph, Traces, alone, holds
from calc.derive.part_names import place
from calc.derive.peak import PeakCandidate, place_of
from calc.derive.quantities import NO_ATTENTION, QUANTITIES, Definition, absent, definitions, has_attention
from calc.derive.result import Candidate, Certificate, Derivation, PartAddend, Quantity, QuantityPart, QuantityTerm, Step, TraceCounts
from calc.derive.saved_tensors import saved_tensors
from calc.derive.steps import StepMaker
from calc.derive.timeline import timeline
from calc.graph.coverage import CoverageRow
from calc.graph.guards import assumed, unchecked
from calc.graph.step import Graph, StepTrace
from calc.platform.garbage import rarely_searched
from calc.platform.on_demand import OnDemand
from calc.rules import families  # noqa: F401  # importing the rules registers them
from calc.rules.registry import REGISTRY, Registry
from calc.spec import Spec
from calc.symbolic import algebra
from calc.symbolic.algebra import Poly

ORDER = tuple(QUANTITIES)


def derive(
    graph: Graph,
    sizes: Mapping[str, int] | None = None,
    registry: Registry = REGISTRY,
    *,
    analysis: Analysis | None = None,
) -> Derivation:
    """Derive every quantity of a traced step.

    ``sizes`` overrides values of dimensions (integers from 1 to 2**63 - 1). Raises ``UnknownOperatorError`` for an operator without a rule
    and ``CertificateError`` where a closed form disagrees with the graph's certificates. ``analysis`` is that of this graph, already
    certified, when the caller has it.
    """
    traced = TracedGraph(graph, analysis or certified(graph, registry))
    return Traces(_derived_at, traced).derivation(unchecked(graph, sizes or {}))


def derived_anywhere(spec: Spec, sizes: Mapping[str, int], trace: Trace) -> Derivation:
    """Derive every quantity of the step of ``spec``, here and at any other sizes, from what ``trace`` returns for the requested sizes."""
    first = trace(sizes)
    return Traces(_derived_at, first, trace, spec).derivation(unchecked(first.graph, sizes))


def certified(graph: Graph, registry: Registry) -> Analysis:
    """The analysis of a graph and of its special cases, compared with every certificate."""
    analysis = analyse(graph, registry)
    for trace in graph.certificates:
        analysis.certify(trace)
    return replace(analysis, special=certified(graph.special_cases[0].graph, registry)) if graph.special_cases else analysis


def _derived_at(traced: TracedGraph, values: Mapping[str, int]) -> Derivation:
    return _with_steps(*_by_cases(traced, values))


# The steps of those quantities.
_StepsOf = Callable[[Collection[str]], tuple[Step, ...]]


def _by_cases(traced: TracedGraph, values: Mapping[str, int]) -> tuple[Derivation, _StepsOf]:
    """The derivation by cases, without its steps, which are made for the quantities of the case in force only."""
    graph, analysis = traced.graph, traced.analysis
    special = graph.special_case_at(values)
    in_general = special is not None
    general, of_general = _without_steps(graph, values, replace(analysis, graph=alone(graph, in_general)), traced.spec, in_general)
    if special is None:
        return general, of_general
    inner = analysis.special or certified(special.graph, analysis.registry)
    case, of_case = _by_cases(TracedGraph(special.graph, inner, traced.spec), values)
    differing = cases.differences(general, case, special)

    def steps_of(names: Collection[str]) -> tuple[Step, ...]:
        return cases.steps(of_general({*names} - differing), of_case({*names} & differing), special, [*general])

    return cases.joined(general, case, special, differing), steps_of


def derived_alone(graph: Graph, values: Mapping[str, int], analysis: Analysis, *, in_general: bool) -> Derivation:
    """The derivation of a graph without its special cases, at all ``values``; ``in_general`` where one of those applies."""
    return _with_steps(*_without_steps(graph, values, analysis, None, in_general))


def _with_steps(derivation: Derivation, steps_of: _StepsOf) -> Derivation:
    make = rarely_searched()(partial(steps_of, [*derivation.quantities]))
    return replace(derivation, steps=OnDemand(make))


def _without_steps(
    graph: Graph, values: Mapping[str, int], analysis: Analysis, spec: Any, in_general: bool
) -> tuple[Derivation, _StepsOf]:
    maker = StepMaker(analysis, values)
    compared = sum(name not in graph.unknown for name in (*analysis.totals, *PEAKS))
    built = {q.name: q for q in (*_counted(analysis, values, maker), *_summed(analysis, values, maker), *_peaks(analysis, values, maker))}
    derivation = Derivation(
        model=graph.model,
        source=graph.source,
        dims=tuple(_dim_records(graph, values)),
        options=graph.options,
        assumptions=assumed(graph.assumptions, values, in_general),
        quantities={name: built[name] for name in ORDER},
        steps=(),
        coverage=_coverage(analysis, values),
        certificates=tuple(Certificate(_dimension_sizes(graph, c.sizes), compared) for c in graph.certificates),
        provenance=graph.provenance,
        notes=graph.notes,
        saved=() if "activations.bytes" in graph.unknown else saved_tensors(analysis, values),
        spec=spec,
        specialized={name: value for name, (value, _) in graph.specialized.items()},
        specialization_reasons={name: why for name, (_, why) in graph.specialized.items()},
        trip_counts=graph.trip_counts,
        count_trace=lambda trace: _recounted(trace, analysis),
        replay=lambda trace: timeline(analysis, values, trace),
        _in_general=in_general,
    )
    return derivation, lambda names: tuple(sorted(maker.made(names), key=lambda step: ORDER.index(step.quantity)))


def _coverage(analysis: Analysis, values: Mapping[str, int]) -> tuple[CoverageRow, ...]:
    """The ledger of the step's operators. Where some quantities are unknown, it is empty unless the certificates run each operator as often
    as its closed form says. FLOPs without a closed form are ``None``."""
    unknown = analysis.graph.unknown.keys() - PEAKS.keys()
    rows = coverage.ledger(analysis.frame, analysis.groups, values).rows
    if unknown and not all(coverage.runs_as_derived(analysis.frame, trace) for trace in analysis.graph.certificates):
        return ()
    return rows if unknown.isdisjoint(coverage.FLOPS) else tuple(replace(row, flops=None, flops_value=None) for row in rows)


def _recounted(trace: StepTrace, analysis: Analysis) -> TraceCounts:
    options, peaks = analysis.graph.options, {name: memory.highest(trace, step, analysis.module_paths) for name, step in PEAKS.items()}
    counts = {d.name: 0 for d in definitions(options) if not d.parts and d.step is None}
    counts |= {name: peak.live for name, peak in peaks.items()}
    for entry in Accumulator(int, analysis.registry).entries(trace):
        counts[entry.quantity] = counts.get(entry.quantity, 0) + int(entry.count)
    for definition in definitions(options):
        if definition.parts:
            counts[definition.name] = sum(counts.get(part, 0) for part in definition.parts)
    return TraceCounts(counts, memory.place_of(peaks["memory.peak"]))


# -- sizes ------------------------------------------------------------------------------------------------------------


def _dimension_sizes(graph: Graph, symbols: Mapping[str, int]) -> dict[str, int]:
    return graph.as_basis().sizes(symbols)


def _dim_records(graph: Graph, values: Mapping[str, int]) -> Sequence[Any]:
    return [replace(d, value=values[d.name]) for d in graph.dims]


class _Evaluator:
    """Evaluates a quantity's polynomials at other sizes."""

    def __init__(self, analysis: Analysis, values: Mapping[str, int], polys: Sequence[Poly]) -> None:
        self._analysis, self._values, self._polys = analysis, values, polys

    @property
    def own(self) -> _Evaluator:
        return self

    def sizes(self, values: Mapping[str, int]) -> dict[str, int]:
        """All sizes; those not given are the derivation's."""
        return unchecked(_with_values(self._analysis.graph, self._values), values)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether the closed form holds there."""
        return holds(self._analysis.graph, sizes)

    def value(self, sizes: Mapping[str, int]) -> int:
        return max(map(self._analysis.at(sizes), self._polys))

    def expr(self) -> sp.Expr:
        """The closed form in the model's dimensions."""
        fold = self._analysis.fold
        return algebra.maximum([fold.outer.expr(fold(p)) for p in self._polys])


def _with_values(graph: Graph, values: Mapping[str, int]) -> Graph:
    return replace(graph, dims=tuple(_dim_records(graph, values)))


# -- quantities -------------------------------------------------------------------------------------------------------


def _counted(analysis: Analysis, values: Mapping[str, int], maker: StepMaker) -> list[Quantity]:
    quantities = []
    for definition in definitions(analysis.graph.options):
        if definition.parts or definition.step is not None:
            continue
        reason = _why_unknown(definition.name, analysis)
        if reason:
            quantities.append(Quantity(definition.name, definition.unit, definition.meaning, None, None, unknown=reason))
            continue
        mine = analysis.groups.get(definition.name, [])
        maker.later(definition.name, StepMaker.count, mine)
        quantities.append(_quantity(definition, _total(analysis, definition.name), _terms(mine, analysis, values), analysis, values))
    return quantities


def _total(analysis: Analysis, name: str) -> Poly:
    return analysis.totals.get(name, analysis.algebra.constant(0))


def _why_unknown(name: str, analysis: Analysis) -> str:
    """Why a quantity has no value, or an empty text."""
    reason = absent(name, analysis.graph.options) or analysis.graph.unknown.get(name, "")
    if not reason and name == "parameters.active":
        return min(analysis.unrouted, default="")
    if reason or not name.endswith(".causal"):
        return reason
    if analysis.uncredited:
        return f"not credited: {min(analysis.uncredited)}"
    if not has_attention(group.part for group in analysis.of_parts.get("flops.forward.matmul", ())):
        return NO_ATTENTION
    if not any(call.causal for r in analysis.graph.traces for call in r.calls) and not any(
        op.args and dict(op.args).get("is_causal") is True for r in analysis.graph.traces for op in r.ops
    ):
        return "no attention call of this model declares a causal mask"
    return ""


def _quantity(
    definition: Definition, total: Poly, terms: Sequence[QuantityTerm], analysis: Analysis, values: Mapping[str, int]
) -> Quantity:
    return Quantity(
        definition.name,
        definition.unit,
        definition.meaning,
        analysis.fold.text(total),
        analysis.at(values)(total),
        tuple(terms),
        parts=tuple(_parts(definition, analysis, values)),
        _evaluator=_Evaluator(analysis, values, [total]),
    )


def _parts(definition: Definition, analysis: Analysis, values: Mapping[str, int]) -> Iterator[QuantityPart]:
    """The parts of the model, in the order of a table."""
    zero, text = analysis.algebra.constant(0), analysis.fold.text
    mine = [g for name in _summands(definition) for g in analysis.of_parts.get(name, ())]
    by_part = loops.by(lambda g: g.part, mine)
    for part, members in sorted(by_part.items(), key=lambda each: place(each[0])):
        poly = loops.total(members, zero)
        if poly != 0:
            alike = ((m.module_path, m.label, text(m.total)) for m in loops.by_addend(members))
            yield QuantityPart(part, text(poly), analysis.at(values)(poly), tuple(PartAddend(*addend) for addend in alike))


def _summands(definition: Definition) -> list[str]:
    """The counted quantities that add up to one."""
    return [name for part in definition.parts for name in _summands(QUANTITIES[part])] if definition.parts else [definition.name]


def _terms(mine: Sequence[loops.Group], analysis: Analysis, values: Mapping[str, int]) -> list[QuantityTerm]:
    """The addends by module path, each with its own addends."""
    zero, terms = analysis.algebra.constant(0), []
    for module_path, members in loops.by(lambda g: g.module_path, mine).items():
        poly = loops.total(members, zero)
        if poly != 0:
            parts = ((label, loops.total(alike, zero)) for label, alike in loops.by(lambda g: g.label, members).items())
            term = _term(module_path, poly, ", ".join(dict.fromkeys(str(g.label) for g in members)), analysis, values)
            written = tuple((label, analysis.fold.text(part)) for label, part in parts if part != 0)
            terms.append(replace(term, parts=written))
    return terms


def _term(module_path: str, poly: Poly, because: str, analysis: Analysis, values: Mapping[str, int]) -> QuantityTerm:
    return QuantityTerm(module_path, analysis.fold.text(poly), analysis.at(values)(poly), because)


def _summed(analysis: Analysis, values: Mapping[str, int], maker: StepMaker) -> list[Quantity]:
    totals = {name: _total(analysis, name) for name in QUANTITIES}
    quantities = []
    for definition in definitions(analysis.graph.options):
        reason = absent(definition.name, analysis.graph.options) or _unknown_part(definition, analysis.graph)
        if reason and definition.parts:
            quantities.append(Quantity(definition.name, definition.unit, definition.meaning, None, None, unknown=reason))
        if reason or not definition.parts:
            continue
        total = totals[definition.name] = sum((totals[p] for p in definition.parts), start=analysis.algebra.constant(0))
        parts = [(p, totals[p]) for p in definition.parts]
        maker.later(definition.name, StepMaker.combine, parts, definition.because)
        terms = [_term(p, totals[p], QUANTITIES[p].meaning, analysis, values) for p in definition.parts if totals[p] != 0]
        quantities.append(_quantity(definition, total, terms, analysis, values))
    return quantities


def _unknown_part(definition: Definition, graph: Graph) -> str:
    """The reason of the first addend without a closed form."""
    parts = [part for name in definition.parts for part in (name, *QUANTITIES[name].parts)]
    return next((graph.unknown[part] for part in parts if part in graph.unknown), "")


def _peaks(analysis: Analysis, values: Mapping[str, int], maker: StepMaker) -> list[Quantity]:
    quantities = []
    for definition in definitions(analysis.graph.options):
        if definition.step is None:
            continue
        reason = analysis.graph.unknown.get(definition.name, "")
        if reason:
            quantities.append(Quantity(definition.name, definition.unit, definition.meaning, None, None, unknown=reason))
            continue
        peaks = analysis.peaks[definition.name]
        maker.later(definition.name, StepMaker.peak, peaks)
        candidates = tuple(sorted((_candidate(p, analysis, values) for p in peaks), key=lambda c: -c.value))
        text = candidates[0].expr if len(candidates) == 1 else f"Max({', '.join(c.expr for c in candidates)})"
        evaluator = _Evaluator(analysis, values, [p.live for p in peaks])
        quantities.append(
            Quantity(
                definition.name,
                definition.unit,
                definition.meaning,
                text,
                candidates[0].value,
                candidates=candidates,
                _evaluator=evaluator,
            )
        )
    return quantities


def _candidate(peak: PeakCandidate, analysis: Analysis, values: Mapping[str, int]) -> Candidate:
    text, value = analysis.fold.text, analysis.at(values)
    parts = {role: p for role, p in peak.parts.items() if p != 0}
    return Candidate(
        expr=text(peak.live),
        at=place_of(peak),
        value=value(peak.live),
        parts={role: text(p) for role, p in parts.items()},
        part_values={role: value(p) for role, p in parts.items()},
    )

"""Writes a derivation as a stored form, which ``calc.pipeline.precomputed`` reads without torch or SymPy; writing needs both.

Every number of a form comes from the table written here, so each is first compared with the derivation: the texts of all closed forms, and
the values at the model's own sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, fields, replace
from fractions import Fraction
from typing import Any

import calc
from calc.derive.analysis import Analysis, analyse
from calc.derive.cases import differences
from calc.derive.closed_forms import derive as derived
from calc.derive.closed_forms import derived_alone
from calc.derive.other_sizes import OtherSizes
from calc.derive.peak import place_of
from calc.derive.result import Derivation, Quantity
from calc.derive.rules_of_thumb.exact import ExactCount, inapplicable, incomparable
from calc.derive.rules_of_thumb.rules import RULES
from calc.errors import NapkinError
from calc.graph.guards import settable
from calc.graph.step import Graph, SpecialCase
from calc.options import Options
from calc.pipeline import pipeline
from calc.pipeline.precomputed.forms import Stored
from calc.pipeline.precomputed.index import SCHEMA
from calc.pipeline.precomputed.produced import LIBRARIES
from calc.rules.registry import REGISTRY
from calc.spec import Spec
from calc.symbolic.algebra import Algebra, Poly

_NOT_ONE = 8


@dataclass(frozen=True, slots=True)
class MadeForm:
    """A form of ``spec`` as its file holds it, the rule modules that its costs came from, and whether it accepts all sizes of the model."""

    spec: Spec
    data: dict[str, Any]
    rules: list[str]
    accepts_all: bool


def made(name: str, options: Options, *, cache: bool = True, progress: Callable[[str], None] = lambda _: None) -> MadeForm:
    """The form of a model, derived now."""
    spec = calc.load(name)
    graph = _certified_in_general(spec, pipeline.trace(spec, options=options, cache=cache, progress=progress), options, cache)
    rules = sorted({entry.module for operator in _operators(graph) if (entry := REGISTRY.find(operator))})
    return MadeForm(spec, _made(name, graph), rules, _accepts_all(spec, graph))


def _accepts_all(spec: Spec, graph: Graph) -> bool:
    """Whether a form of ``graph`` accepts all sizes of ``spec``: the trace inferred no limit, such as a divisor, which may be another one,
    or none, at other sizes."""
    own = spec.dimensions
    limits = [(d, own[d.name]) for d in graph.dims if d.name in own]
    return all((d.multiple_of, d.at_most, d.tied) == (dim.multiple_of, dim.at_most, dim.tied) for d, dim in limits)


def _operators(graph: Graph) -> set[str]:
    """The operators of every trace, including those of special cases."""
    own = {op.name for trace in (*graph.traces, *graph.certificates) for op in trace.ops}
    return own.union(*(_operators(special.graph) for special in graph.special_cases))


def made_elsewhere(
    name: str, options: Options, *, cache: bool = True, progress: Callable[[str], None] = lambda _: None
) -> Callable[[Mapping[str, int]], dict[str, Any]]:
    """A function that makes the form that holds at given sizes."""
    graph_at = pipeline.graphs(calc.load(name), options, cache=cache, progress=progress)
    return lambda sizes: _made(name, graph_at(sizes))


def _made(name: str, graph: Graph) -> dict[str, Any]:
    analysis = analysed(graph)
    derivation = derived(graph, analysis=analysis)
    data = {"schema": SCHEMA, **_written(name, graph, analysis, derivation)}
    compare(data, derivation)
    return data


def of_derivation(name: str, derivation: Derivation) -> dict[str, Any] | None:
    """The form of what a derivation from a spec was made of, with the spec's own defaults; None where it would not say all that the
    derivation says, or refuse sizes of the model."""
    around = derivation.other_sizes
    if not isinstance(around, OtherSizes) or around.traced.spec is None or any(_lacks_form(derivation[q]) for q in derivation):
        return None
    if around.traces.spec is None or not _accepts_all(around.traces.spec, around.traced.graph):
        return None
    try:
        defaults = around.traced.spec.sizes()
        graph = replace(around.traced.graph, dims=tuple(replace(d, value=defaults[d.name]) for d in around.traced.graph.dims))
        data = {"schema": SCHEMA, **_written(name, graph, around.traced.analysis, derivation)}
        compare(data, derivation)
    except NapkinError:
        return None
    return data


def _lacks_form(quantity: Quantity) -> bool:
    """Whether a quantity has a value without a closed form."""
    return quantity.text is None and quantity.value is not None


def _certified_in_general(spec: Spec, graph: Graph, options: Options, cache: bool) -> Graph:
    """The graph also certified at the model's own sizes with a larger batch: if these are a special case, only that is known to hold."""
    ones = [name for special in graph.special_cases for name, to in special.equal.items() if to == "1"]
    if not ones:
        return graph
    beside = pipeline.trace(spec, dict.fromkeys(ones, _NOT_ONE), options=options, cache=cache)
    certified = [trace.sizes for trace in graph.certificates]
    return replace(graph, certificates=(*graph.certificates, *(r for r in beside.certificates if r.sizes not in certified)))


def analysed(graph: Graph) -> Analysis:
    """The analysis of a graph, with that of its special case; checks every certificate once more, as they come from several traces."""
    analysis = analyse(graph, REGISTRY)
    for trace in graph.certificates:
        analysis.certify(trace)
    return replace(analysis, special=analysed(graph.special_cases[0].graph)) if graph.special_cases else analysis


def compare(data: Mapping[str, Any], derivation: Derivation) -> None:
    """Refuse a form that differs from the derivation."""
    form = Stored(data)
    stored_derivation = form.derivation(settable(form, derivation.sizes))
    for name in derivation:
        ours, theirs = map(_plain, (stored_derivation[name], derivation[name]))
        if ours != theirs:
            raise NapkinError(f"internal error: the stored form of {data['name']} differs from its derivation in {name}; please report it")


def _plain(quantity: Quantity) -> Quantity:
    """What a form stores of a quantity."""
    terms, parts = (replace(term, parts=()) for term in quantity.terms), (replace(part, addends=()) for part in quantity.parts)
    return replace(quantity, terms=tuple(terms), parts=tuple(parts), _evaluator=None)


def _written(name: str, graph: Graph, analysis: Analysis, derivation: Derivation) -> dict[str, Any]:
    """One form: the closed forms of ``graph`` alone, then those of its special case."""
    general = derivation if not graph.special_cases else derived_alone(graph, derivation.sizes, analysis, in_general=True)
    writer = _PolynomialTable(analysis.fold.outer)
    return {
        **_trace_data(name, graph),
        "quantities": {quantity: _quantity(general[quantity], analysis, writer) for quantity in general},
        "calls": {
            kind: [len({row.operator for row in rows}), writer.sum(row.runs for row in rows)] for kind, rows in _by_kind(general).items()
        },
        "rules_of_thumb": _rules_of_thumb(derivation),
        **writer.table(),
        "cases": [_case(name, special, general, analysis) for special in graph.special_cases],
    }


def _trace_data(name: str, graph: Graph) -> dict[str, Any]:
    """The data of the trace, and the sizes at which it holds; many guards are of one line of code, which is written once."""
    places = {place: i for i, place in enumerate(dict.fromkeys(guard.where for guard in graph.guards))}
    return {
        "name": name,
        "model": graph.model,
        "source": graph.source,
        "options": dict(graph.options),
        # A library that happens to be loaded does not affect a built-in model.
        "versions": {n: v for n, v in graph.provenance.items() if n in LIBRARIES and (n == "torch" or graph.source != "built-in")},
        "dims": [[getattr(d, field.name) for field in fields(d)] for d in graph.dims],
        "assumptions": [[a.expr, a.because, *([a.kind] if a.kind else [])] for a in graph.assumptions],
        "notes": list(graph.notes),
        "symbols": list(graph.symbols),
        "basis": dict(graph.basis),
        "trip_counts": list(graph.trip_counts),
        "folds": [[f.whole, f.part, f.quotient, f.plus] for f in graph.folds],
        "places": list(places),
        "guards": [[g.expr, g.outcome, places[g.where], *([True] if g.opaque else [])] for g in graph.guards],
        "certified": [dict(trace.sizes) for trace in graph.certificates],
        "specialized": {name: list(entry) for name, entry in graph.specialized.items()},
    }


def _case(name: str, special: SpecialCase, general: Derivation, analysis: Analysis) -> dict[str, Any]:
    assert analysis.special is not None  # it was just analysed
    case = derived_alone(special.graph, general.sizes, analysis.special, in_general=True)
    form = _written(name, special.graph, analysis.special, case)
    return {"equal": dict(special.equal), "differing": sorted(differences(general, case, special)), "form": form}


def _by_kind(derivation: Derivation) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {}
    for row in derivation.coverage:
        rows.setdefault(row.kind, []).append(row)
    return rows


def _quantity(quantity: Quantity, analysis: Analysis, writer: _PolynomialTable) -> dict[str, Any]:
    if quantity.text is None:
        return {"unknown": quantity.unknown}
    if quantity.candidates:
        peaks = (([*astuple(place_of(peak))], peak.parts.items()) for peak in analysis.peaks[quantity.name])
        return {"candidates": [[at, [[role, writer.add(analysis.fold(part))] for role, part in parts if part != 0]] for at, parts in peaks]}
    return {
        "is": writer(quantity.text),
        "terms": [[t.module_path, writer(t.expr), t.because] for t in quantity.terms],
        "parts": [[part.part, writer(part.expr)] for part in quantity.parts],
    }


def _rules_of_thumb(derivation: Derivation) -> list[dict[str, Any]]:
    """Rules of thumb that apply to the model."""
    return [
        {
            "name": rule.name,
            "unit": rule.unit.value,
            "stands_for": rule.stands_for,
            "expr": rule.expr,
            "exact": [list(part) for part in rule.exact],
            "size": ExactCount(rule, derivation).size,
        }
        for rule in RULES
        if not (inapplicable(rule, derivation) or incomparable(rule, derivation))
    ]


class _PolynomialTable:
    """Collects polynomials; the table has each once, over monomials in the order in which a sum is written."""

    def __init__(self, ring: Algebra) -> None:
        self._ring = ring
        self._polys: dict[Poly, int] = {}

    def __call__(self, text: str) -> int:
        return self.add(self._ring.parse(text))

    def sum(self, texts: Iterable[str]) -> int:
        return self.add(sum((self._ring.parse(text) for text in texts), start=self._ring.constant(0)))

    def add(self, poly: Poly) -> int:
        return self._polys.setdefault(poly, len(self._polys))

    def table(self) -> dict[str, Any]:
        """Exponents from the highest down are the ring's order of terms, so that sums of polynomials can be written without it."""
        exponents = sorted({exponent for poly in self._polys for exponent, _ in poly.terms()}, reverse=True)
        used = [i for i, _ in enumerate(self._ring.names) if any(e[i] for e in exponents)]
        number = {exponent: i for i, exponent in enumerate(exponents)}
        return {
            "names": [self._ring.names[i] for i in used],
            "monomials": [[n for at, i in enumerate(used) if e[i] for n in (at, e[i])] for e in exponents],
            "polynomials": [_numbers(poly, number) for poly in self._polys],
        }


def _numbers(poly: Poly, number: Mapping[tuple[int, ...], int]) -> list[int]:
    """``[over, monomial, numerator, monomial, numerator, …]``."""
    terms = [(number[e], Fraction(int(c.numerator), int(c.denominator))) for e, c in poly.terms()]
    over = 1
    for _, c in terms:
        over *= Fraction(c.denominator, over).numerator
    return [over, *(n for m, c in terms for n in (m, int(c * over)))]

"""The ``"schema": 2`` document of a derivation: plain data that any JSON reader takes without losing a digit.

Integers beyond 2**53 are strings, because most readers store numbers as doubles. Unknown values are ``null`` with a reason, never 0. Keys
have a fixed order, so equal derivations give equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from calc.derive.cuda_allocator import NOT_MEASURED, WORKSPACES
from calc.derive.result import Candidate, Certificate, Derivation, Quantity, QuantityTerm, SavedTensor, Step
from calc.graph.coverage import KINDS, CoverageRow, Ledger
from calc.graph.exchanges import headlines
from calc.symbolic import tree
from calc.symbolic.parser import free_names
from calc.units import number as number

if TYPE_CHECKING:
    from calc.derive.live_bytes import Instant, Timeline
    from calc.derive.peak_crossovers import PeakCrossovers
    from calc.derive.rules_of_thumb import RuleComparison

SCHEMA = 2


def to_json(
    derivation: Derivation, checks: Any = None, comparisons: Sequence[RuleComparison] | None = None, live: Timeline | None = None
) -> dict[str, Any]:
    """Everything that was derived, with the results of ``checks`` (a check report), the comparisons and the live bytes over the step, where
    available."""
    document: dict[str, Any] = {
        **values_document(derivation),
        **({"exchanged": [*checks.exchanged, *checks.counted_with]} if checks is not None else {}),
        "steps": [_step(step) for step in derivation.steps],
        "checks": [verdict(v) for v in (checks.verdicts if checks is not None else ())],
        "checked_at": {name: number(n) for name, n in checked_sizes(derivation, checks.sizes).items()} if checks is not None else None,
        **coverage(derivation.ledger),
        "saved": [_saved(s) for s in derivation.saved],
        "crossovers": [_peak_crossovers(t) for t in derivation.peak_crossovers],
        "certificates": [_certificate(c) for c in derivation.certificates],
        "provenance": dict(derivation.provenance),
        "notes": list(derivation.notes),
    }
    if comparisons is not None:
        document["textbook"] = [_comparison(c) for c in comparisons]
    if live is not None:
        document["timeline"] = timeline(live)
    return document


def values_document(derivation: Derivation) -> dict[str, Any]:
    """The quantities alone, with their meanings."""
    return {
        "schema": SCHEMA,
        "model": {"name": derivation.model, "source": derivation.source},
        "dims": dims_document(derivation),
        "options": dict(derivation.options),
        "specialized": specialized_document(derivation),
        "exchanged": list(headlines(derivation.assumptions)),
        "assumptions": [{"expr": a.expr, "because": a.because} for a in derivation.assumptions],
        "quantities": {name: quantity_document(derivation[name]) for name in derivation},
    }


def specialized_document(derivation: Derivation) -> dict[str, Any]:
    """The dimensions that no closed form contains: the value at which everything is derived, and why."""
    sizes = derivation.sizes
    return {name: {"value": number(sizes[name]), "because": why} for name, why in derivation.specialization_reasons.items()}


def _unused(derivation: Derivation) -> set[str]:
    """The dimensions that no expression of the quantities contains. Short expressions are read first: they contain most dimensions."""
    texts: set[str] = set()
    for name in derivation:
        quantity = derivation[name]
        if quantity.text is not None and not quantity.candidates:  # the text of several is made of theirs
            texts.add(quantity.text)
        texts.update(term.expr for term in quantity.terms)
        texts.update(part.expr for part in quantity.parts)
        texts.update(candidate.expr for candidate in quantity.candidates)
    unused = {dim.name for dim in derivation.dims if not dim.tied}
    for text in sorted(texts, key=len):
        if not unused:
            break
        unused -= free_names(text)
    return unused


def checked_sizes(derivation: Derivation, sizes: Mapping[str, int]) -> dict[str, int]:
    """The ``sizes`` of a check without dimensions that no quantity contains; those that are specialized stay."""
    unused = _unused(derivation) - derivation.specialized.keys() - derivation.specialization_reasons.keys()
    return {name: size for name, size in sizes.items() if name not in unused}


def dims_document(derivation: Derivation) -> dict[str, Any]:
    """The dimensions in which the quantities are written, and the tied ones."""
    unused = _unused(derivation)
    entries: dict[str, Any] = {}
    for dim in derivation.dims:
        if dim.name not in unused:
            entries[dim.name] = {"meaning": dim.meaning, "value": number(dim.value)}
            if dim.expr is not None:
                entries[dim.name]["expr"] = dim.expr
    return entries


def quantity_document(quantity: Quantity) -> dict[str, Any]:
    """One quantity: its closed form, value, terms by module path, parts of the model and peak candidates."""
    entry: dict[str, Any] = {
        "expr": quantity.text,
        "value": number(quantity.value),
        "unit": str(quantity.unit),
        "meaning": quantity.meaning,
        "terms": [_term(term) for term in quantity.terms],
        "parts": [{"part": p.part, "expr": p.expr, "value": number(p.value)} for p in quantity.parts],
    }
    if quantity.candidates:
        entry["candidates"] = [_candidate(c) for c in quantity.candidates]
    if quantity.text is None:
        entry["because"] = quantity.unknown
    return entry


def _term(term: QuantityTerm) -> dict[str, Any]:
    return {"module_path": term.module_path, "expr": term.expr, "value": number(term.value), "because": term.because}


def _candidate(candidate: Candidate) -> dict[str, Any]:
    parts = {role: {"expr": expr, "value": number(candidate.part_values[role])} for role, expr in candidate.parts.items()}
    return {"expr": candidate.expr, "at": str(candidate.at), "value": number(candidate.value), "parts": parts}


def _saved(tensor: SavedTensor) -> dict[str, Any]:
    return {
        "tensor": str(tensor.tensor),
        "module_path": tensor.module_path,
        "shape": list(tensor.shape),
        "dtype": tensor.dtype,
        "times": {"expr": tensor.times, "value": number(tensor.number)},
        "expr": tensor.expr,
        "value": number(tensor.value),
        "needed_by": tensor.operator,
        "node": tensor.node or None,
        "because": tensor.because,
        "same_storage_as": str(tensor.same_as) if tensor.same_as else None,
        "part_of_its_storage": tensor.part,
    }


def _peak_crossovers(crossover: PeakCrossovers) -> dict[str, Any]:
    """The peak candidates along one size, by interval."""
    intervals = ({"from": number(r.first), "to": number(r.last), "at": str(r.at), "expr": r.expr or None} for r in crossover.intervals)
    return {
        "dim": crossover.dim,
        "intervals": [*intervals],
        "among": [number(n) for n in crossover.among] or None,
        "because": crossover.because or None,
    }


def timeline(line: Timeline) -> dict[str, Any]:
    """Live bytes over the step: the highest instant of each column, in the order of ``roles``."""
    return {
        "sizes": {name: number(size) for name, size in line.sizes.items()},
        "fewer": {name: number(count) for name, count in line.fewer.items()},
        "operators": line.operators,
        "roles": list(line.roles),
        "peak": _instant(line.peak, line),
        "alive": [
            {"role": a.role, "name": str(a.name), "each": number(a.each), "number": a.number, "value": number(a.total)} for a in line.alive
        ],
        **_without_largest(line),
        "landmarks": [{"name": name, **_instant(instant, line)} for name, instant in line.landmarks],
        "phases": [{"phase": phase, "first": first, "last": last} for phase, first, last in line.phases],
        "columns": [[c.first, c.last, *(number(c.high.live.get(role, 0)) for role in line.roles)] for c in line.columns],
        "allocator": _allocator(line),
    }


def _without_largest(line: Timeline) -> dict[str, Any]:
    bound = line.without_largest
    return {"without_largest": {"each": number(bound.each), **_instant(bound.highest, line)}} if bound is not None else {}


def _allocator(line: Timeline) -> dict[str, Any] | None:
    """The simulated peaks of the CUDA allocator, and workspaces of libraries; never a measurement."""
    if not line.allocated:
        return None
    steps = ({key: number(value) for key, value in asdict(step).items()} for step in line.allocated)
    return {
        **dict(zip(("first_step", "steady_step"), steps, strict=True)),
        "workspaces": [{"what": w.label, "value": number(w.nbytes), "when": w.when, "source": w.source} for w in WORKSPACES],
        "verdict": "not measured",
        "because": NOT_MEASURED,
    }


def _instant(instant: Instant, line: Timeline) -> dict[str, Any]:
    return {
        "operator": instant.operator or None,
        "phase": instant.phase or None,
        "module_path": instant.module_path or None,
        "number": instant.op if instant.op >= 0 else None,
        "value": number(instant.total),
        "parts": {role: number(instant.live.get(role, 0)) for role in line.roles},
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "id": step.id,
        "quantity": step.quantity,
        "title": step.title,
        "rule": step.rule,
        "before": tree.text(step.before),
        "after": tree.text(step.after),
        "because": step.because,
        "value": number(step.value),
        "operators": list(step.operators),
        "check": {"kind": step.check.kind, "result": step.check.result},
    }


def verdict(item: Any) -> dict[str, Any]:
    """One result of a check as plain data."""
    return {
        "quantity": item.quantity,
        "derived": number(item.derived),
        "measured": number(item.measured),
        "instrument": item.instrument,
        "verdict": item.verdict,
        "expected_difference": number(item.expected),
        "tolerance": item.tolerance,
        "because": item.because,
    }


def _comparison(comparison: RuleComparison) -> dict[str, Any]:
    return {
        "rule": comparison.rule.name,
        "statement": comparison.rule.statement,
        "source": comparison.rule.source,
        "applies": comparison.applies,
        "because": comparison.reason,
        "expr": comparison.expr,
        "value": number(comparison.value),
        "unit": str(comparison.rule.unit),
        "stands_for": comparison.rule.stands_for,
        "exact": number(comparison.exact),
        "difference": [
            {"expr": d.expr, "value": number(d.value), "kind": d.kind, "module_paths": list(d.module_paths), "because": d.because}
            for d in comparison.differences
        ],
        "steps": [_step(step) for step in comparison.steps],
        "assumptions": [
            {"statement": a.statement, "met": a.judgment.met, "because": a.judgment.because or None,
             "effect": None if a.judgment.effect is None else str(a.judgment.effect)} for a in comparison.assumptions
        ],
        "within": [{"dim": w.dim, "ranges": _runs(w.ranges), "by_cancellation": _runs(w.by_cancellation),
                    "searched": [number(n) for n in w.searched], "step": number(w.step)} for w in comparison.within],
    }  # fmt: skip


def _runs(runs: Iterable[tuple[int, int]]) -> list[list[Any]]:
    return [[number(low), number(high)] for low, high in runs]


def ledger_document(model: str, options: Mapping[str, str], sizes: Mapping[str, int], ledger: Ledger, because: str = "") -> dict[str, Any]:
    """The ledger of a step alone, which a refused step has too: ``because`` is then the error."""
    return {
        "schema": SCHEMA,
        "model": {"name": model},
        "sizes": {name: number(size) for name, size in sizes.items()},
        "options": dict(options),
        "verdict": "accepted" if ledger.accepted else "refused",
        "because": because or None,
        **coverage(ledger),
    }


def coverage(ledger: Ledger) -> dict[str, Any]:
    """The ledger of operators. Shares are exact fractions, as text; ``null`` where the total is unknown or 0."""
    return {
        "coverage": [_coverage(row, ledger) for row in ledger.rows],
        "coverage_summary": {kind: _kind(ledger.of(kind), ledger) for kind in KINDS},
    }


def _coverage(row: CoverageRow, ledger: Ledger) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "operator": row.operator,
        "kind": row.kind,
        "because": row.because,
        "runs": row.runs,
        "value": number(row.value),
        "share_of_calls": _fraction(ledger.share_of_calls(row)),
        "flops": {"expr": row.flops, "value": number(row.flops_value), "share": _fraction(ledger.share_of_flops(row))},
    }
    if row.places:
        entry["places"] = [{"module_path": p.module_path, "inputs": p.inputs, "runs": p.runs, "value": number(p.value)} for p in row.places]
    return entry


def _kind(rows: Sequence[CoverageRow], ledger: Ledger) -> dict[str, Any]:
    """The totals of one kind of rows; FLOPs are ``null`` where one of them is unknown."""
    flops = [row.flops_value for row in rows]
    return {
        "operators": len({row.operator for row in rows}),
        "calls": number(sum(row.value for row in rows)),
        "share_of_calls": _fraction(ledger.share_of_calls(*rows)),
        "flops": number(None if None in flops else sum(n for n in flops if n is not None)),
        "share_of_flops": _fraction(ledger.share_of_flops(*rows)),
    }


def _fraction(share: Fraction | None) -> str | None:
    return None if share is None else str(share)


def _certificate(certificate: Certificate) -> dict[str, Any]:
    sizes: Mapping[str, int] = certificate.sizes
    return {"sizes": {name: number(size) for name, size in sizes.items()}, "quantities": certificate.quantities}

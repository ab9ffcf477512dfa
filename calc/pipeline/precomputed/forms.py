"""A stored derivation: its closed forms, evaluated with plain integers, without torch or SymPy.

A form states at which sizes it holds. At others the step may run other operators: the model is then derived there, which needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from calc.derive.names import PeakPlace
from calc.derive.quantities import Definition, definitions, require_count
from calc.errors import UnknownQuantityError, suggestion
from calc.graph.folds import Basis, Fold
from calc.graph.guards import Assumption, Guard, TracedDim, applies, assumed, failed_guards, settable, unchecked
from calc.symbolic.polynomials import Point, Polynomial, Table

if TYPE_CHECKING:
    import sympy as sp

    from calc.derive.result import Candidate, Derivation, Quantity


@dataclass(frozen=True, slots=True)
class StoredCandidate:
    """One candidate of the memory peak; its live bytes by role add up to ``polynomial``."""

    at: PeakPlace
    polynomial: Polynomial
    parts: tuple[tuple[str, Polynomial], ...]


class StoredQuantity:
    """A quantity of a stored form: a polynomial, or the maximum of several peak candidates. ``unknown`` is the reason if there is none."""

    def __init__(self, definition: Definition, form: Stored, entry: Mapping[str, Any]) -> None:
        polynomials = form.table.polynomials
        self.definition, self.form = definition, form
        self.unknown: str = entry.get("unknown", "")
        self.whole: Polynomial | None = polynomials[entry["is"]] if "is" in entry else None
        self.terms: list[tuple[str, Polynomial, str]] = [(path, polynomials[i], because) for path, i, because in entry.get("terms", ())]
        self.parts: list[tuple[str, Polynomial]] = [(part, polynomials[i]) for part, i in entry.get("parts", ())]
        self.candidates = tuple(_stored_candidate(form.table, at, parts) for at, parts in entry.get("candidates", ()))

    @property
    def name(self) -> str:
        return self.definition.name

    def at(self, **sizes: int) -> int:
        """The exact integer; dimensions not given have the model's defaults. Where the form does not hold, the model is derived."""
        every = self.sizes(sizes)
        return require_count(self.name, self.value(every), every)

    @property
    def own(self) -> StoredQuantity:
        return self

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        """All sizes, with the model's defaults for those not given. Refuses invalid sizes."""
        return unchecked(self.form, given)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether the form holds at all ``sizes``."""
        return not self.form.failed_guards(sizes)

    def value(self, sizes: Mapping[str, int]) -> int:
        """The quantity at all sizes, as ``sizes`` gives them."""
        if not self.holds(sizes):
            return self.form.rederived[self.name].at(**settable(self.form, sizes))
        case = self.form.case_at(sizes)
        if case is not None and self.name in case.differing:
            return case.form.quantity(self.name).value(sizes)
        self._require_known()
        point = self.form.point(sizes)
        return max(point(p) for p in self.polynomials)

    def values_of_parts(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """What each part of the model takes of the quantity, at all ``sizes`` of the form's."""
        case = self.form.case_at(sizes)
        if case is not None and self.name in case.differing:
            return case.form.quantity(self.name).values_of_parts(sizes)
        point = self.form.point(sizes)
        return {part: point(polynomial) for part, polynomial in self.parts}

    @property
    def polynomials(self) -> tuple[Polynomial, ...]:
        """The polynomials whose maximum the quantity is in general: one; for a peak, one per candidate; for an unknown quantity, none."""
        return tuple(m.polynomial for m in self.candidates) if self.candidates else () if self.whole is None else (self.whole,)

    @cached_property
    def expr_text(self) -> str:
        """The closed form in SymPy's syntax; for a peak, candidates are ordered as in a derivation at the model's own sizes."""
        self._require_known()
        return self.form.derived(self.name, self.form.sizes({})).text or ""

    def expr(self) -> sp.Expr:
        """The closed form as a SymPy expression, which imports SymPy."""
        from calc.symbolic.algebra import to_sympy

        return to_sympy(self.expr_text)

    def _require_known(self) -> None:
        if self.unknown:
            raise UnknownQuantityError(f"{self.name} is unknown: {self.unknown}")


@dataclass(frozen=True, slots=True)
class Case:
    """The form at sizes where the step runs other operators: ``equal`` lists the sizes that are 1 or equal.

    Quantities that are not among the ``differing`` are as in general.
    """

    equal: Mapping[str, str]
    form: Stored
    differing: frozenset[str]


@dataclass(frozen=True)
class _StoredAt:
    """What a stored form says at all ``sizes``, computed when it is first read."""

    form: Stored
    sizes: Mapping[str, int]

    @cached_property
    def failed_guards(self) -> list[Guard]:
        return failed_guards(self.sizes, self.form.specialized, self.form.basis, self.form.guards, self.form.certified)

    @cached_property
    def point(self) -> Point:
        return Point(self.form.table, {**self.form.basis.values(self.sizes), **self.sizes})


class Stored:
    """A stored derivation, as in its file: its closed forms, and the sizes at which they hold.

    ``basis``, ``guards``, ``certified`` and ``specialized`` are those of the trace; ``versions`` are those of the libraries. ``calls`` are
    the operators of a step by kind with their counts, ``rules_of_thumb`` those that apply to the model.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.name: str = data["name"]
        self.model: str = data["model"]
        self.source: str = data["source"]
        self.options: Mapping[str, str] = data["options"]
        self.versions: Mapping[str, str] = data["versions"]
        self.dims = tuple(TracedDim(*d) for d in data["dims"])
        self.assumptions = tuple(Assumption(*a) for a in data["assumptions"])
        self.notes: tuple[str, ...] = tuple(data["notes"])
        self.trip_counts: tuple[str, ...] = tuple(data["trip_counts"])
        decided = tuple(d.name for d in self.dims if d.unbacked_at)
        self.basis = Basis(tuple(data["symbols"]), data["basis"], tuple(Fold(*f) for f in data["folds"]), decided)
        self.guards = tuple(Guard(expr, outcome, data["places"][at], *opaque) for expr, outcome, at, *opaque in data["guards"])
        self.certified: tuple[Mapping[str, int], ...] = tuple(data["certified"])
        self.specialized: Mapping[str, tuple[int, str]] = {name: (value, why) for name, (value, why) in data["specialized"].items()}
        self.table = table_of(data)
        self.calls = {kind: (operators, self.table.polynomials[i]) for kind, (operators, i) in data["calls"].items()}
        self.rules_of_thumb: tuple[Mapping[str, Any], ...] = tuple(data["rules_of_thumb"])
        self.cases = tuple(Case(c["equal"], Stored(c["form"]), frozenset(c["differing"])) for c in data["cases"])
        self._entries: Mapping[str, Any] = data["quantities"]
        self._last: _StoredAt | None = None  # every quantity asks, at the same sizes

    def failed_guards(self, sizes: Mapping[str, int]) -> list[Guard]:
        """Guards of the trace that have another outcome at these (complete) ``sizes``."""
        case = self.case_at(sizes)
        if case is not None:
            return case.form.failed_guards(sizes)
        return self._at(sizes).failed_guards

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        """All sizes. Refuses invalid sizes."""
        return unchecked(self, given)

    @cached_property
    def rederived(self) -> Derivation:
        """The derivation of the same model from its spec, for sizes at which the form does not hold."""
        import calc
        from calc.options import made
        from calc.pipeline.pipeline import derive

        return derive(calc.load(self.name), options=made(**self.options))

    def covers(self, given: Mapping[str, int]) -> bool:
        """Whether the form holds at these sizes; at others the model must be derived. Refuses invalid sizes."""
        return not self.failed_guards(unchecked(self, given))

    def case_at(self, sizes: Mapping[str, int]) -> Case | None:
        """The special case that applies at all ``sizes``, if there is one."""
        return next((case for case in self.cases if applies(case.equal, sizes)), None)

    def assumed(self, sizes: Mapping[str, int]) -> tuple[Assumption, ...]:
        """What the form assumes at all ``sizes``."""
        return assumed(self.assumptions, sizes, self.case_at(sizes) is not None)

    def point(self, sizes: Mapping[str, int]) -> Point:
        """Evaluates polynomials at all ``sizes``, as ``self.sizes`` gives them."""
        return self._at(sizes).point

    def _at(self, sizes: Mapping[str, int]) -> _StoredAt:
        if self._last is None or self._last.sizes != sizes:
            self._last = _StoredAt(self, {**sizes})
        return self._last

    @cached_property
    def quantities(self) -> dict[str, StoredQuantity]:
        """Every quantity, in the order of a derivation."""
        return {d.name: StoredQuantity(d, self, self._entries[d.name]) for d in definitions(self.options)}

    def quantity(self, name: str) -> StoredQuantity:
        """One quantity by name."""
        match = self.quantities.get(name)
        if match is None:
            raise UnknownQuantityError(f"unknown quantity {name[:60]!r}: {suggestion(name, self.quantities)}")
        return match

    def calls_at(self, sizes: Mapping[str, int]) -> list[tuple[str, int, int]]:
        """(kind, operators, number of runs) of a step at all ``sizes``. Every operator is counted or free, otherwise no form exists."""
        case, point = self.case_at(sizes), self.point(sizes)
        if case is not None:
            return case.form.calls_at(sizes)
        return [(kind, operators, point(polynomial)) for kind, (operators, polynomial) in self.calls.items()]

    def derivation(self, given: Mapping[str, int]) -> Derivation:
        """The derivation at these sizes as far as it is stored: every quantity with its addends and peak candidates, without worked steps.
        Where the form does not hold, the model is derived."""
        from calc.derive.by_cases import specialized_sizes
        from calc.derive.result import Derivation

        sizes = self.sizes(given)
        if self.failed_guards(sizes):
            return self.rederived.at_sizes(settable(self, sizes))
        case = self.case_at(sizes)
        fixed = {name: value for name, (value, _) in self.specialized.items()}
        return Derivation(
            model=self.model,
            source=self.source,
            dims=tuple(replace(d, value=sizes[d.name]) for d in self.dims),
            options=self.options,
            assumptions=self.assumed(sizes),
            quantities={name: self.derived(name, sizes) for name in self.quantities},
            steps=(),
            coverage=(),
            certificates=(),
            provenance=self.versions,
            notes=self.notes,
            specialized=fixed if case is None else specialized_sizes(fixed, sizes, case.equal),
            specialization_reasons={name: why for name, (_, why) in self.specialized.items()},
            trip_counts=self.trip_counts,
        )

    def derived(self, name: str, sizes: Mapping[str, int]) -> Quantity:
        """One quantity at all ``sizes``, as ``self.sizes`` gives them."""
        case, general = self.case_at(sizes), self._general(self.quantity(name), self.point(sizes))
        if case is None or name not in case.differing:
            return general
        from calc.derive.by_cases import by_cases

        return by_cases(general, case.form.derived(name, sizes), case.equal)

    def _general(self, q: StoredQuantity, point: Point) -> Quantity:
        from calc.derive.result import Quantity, QuantityPart, QuantityTerm

        d = q.definition
        if q.unknown:
            return Quantity(d.name, d.unit, d.meaning, None, None, unknown=q.unknown)
        if not q.candidates:
            whole = q.polynomials[0]
            terms = tuple(QuantityTerm(module_path, self.table.text(p), point(p), because) for module_path, p, because in q.terms)
            parts = tuple(QuantityPart(part, self.table.text(p), point(p)) for part, p in q.parts)
            return Quantity(d.name, d.unit, d.meaning, self.table.text(whole), point(whole), terms, parts=parts, _evaluator=q)
        candidates = tuple(sorted((self._candidate(m, point) for m in q.candidates), key=lambda c: -c.value))
        text = candidates[0].expr if len(candidates) == 1 else f"Max({', '.join(c.expr for c in candidates)})"
        return Quantity(d.name, d.unit, d.meaning, text, candidates[0].value, candidates=candidates, _evaluator=q)

    def _candidate(self, stored: StoredCandidate, point: Point) -> Candidate:
        from calc.derive.result import Candidate

        parts = {role: self.table.text(p) for role, p in stored.parts}
        return Candidate(
            self.table.text(stored.polynomial), stored.at, point(stored.polynomial), parts, {r: point(p) for r, p in stored.parts}
        )


def table_of(data: Mapping[str, Any]) -> Table:
    """The polynomials of a form. A file stores a monomial as [name, power, name, power, …], a polynomial as [over, monomial, numerator, …].
    """
    return Table(
        tuple(data["names"]),
        tuple(tuple(zip(m[::2], m[1::2], strict=True)) for m in data["monomials"]),
        tuple(Polynomial(p[0], tuple(zip(p[1::2], p[2::2], strict=True))) for p in data["polynomials"]),
    )


def _stored_candidate(table: Table, at: list[str], parts: list[tuple[str, int]]) -> StoredCandidate:
    roles = tuple((role, table.polynomials[i]) for role, i in parts)
    return StoredCandidate(PeakPlace(*at), table.added([p for _, p in roles]), roles)

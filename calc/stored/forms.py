"""A derivation that was made before and kept as data: its closed forms, evaluated by plain integers, without torch or SymPy.

A form says for which sizes it stands. At others the step may run otherwise: there it refuses, and the model is derived anew.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from calc import by_cases
from calc.derivation import Candidate, Derivation, Quantity, QuantityTerm
from calc.errors import UnknownQuantityError
from calc.graph import Assumption, DimRecord, Graph, Special
from calc.quantities import Definition, definitions
from calc.resolving import resolve, unchecked
from calc.stored.polynomials import Point, Polynomial, Table

if TYPE_CHECKING:
    import sympy as sp


@dataclass(frozen=True, slots=True)
class Term:
    """One addend of a quantity, by site."""

    site: str
    polynomial: Polynomial
    because: str


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment at which memory may peak; its live bytes by role add up to ``polynomial``."""

    at: str
    polynomial: Polynomial
    parts: tuple[tuple[str, Polynomial], ...]


@dataclass(frozen=True, slots=True)
class Thumb:
    """A rule of thumb that applies to the model: ``expr`` over ``exact``, a signed sum of quantities, in units of ``size`` bytes."""

    name: str
    unit: str
    stands_for: str
    expr: str
    exact: tuple[tuple[int, str], ...]
    size: int


@dataclass(frozen=True, slots=True)
class Calls:
    """Operators of one kind (counted, or free), and how often they run."""

    kind: str
    operators: int
    polynomial: Polynomial


@dataclass(frozen=True)
class StoredQuantity:
    """A quantity of a stored form: a polynomial, or the largest of several moments. ``unknown`` holds the reason where there is none."""

    definition: Definition
    form: Stored
    whole: Polynomial | None
    terms: tuple[Term, ...]
    moments: tuple[Moment, ...]
    unknown: str

    @property
    def name(self) -> str:
        return self.definition.name

    def at(self, **sizes: int) -> int:
        """The exact integer; dimensions not given are the model's own. Sizes for which the form does not stand are refused."""
        return self.value(self.sizes(sizes))

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        """All sizes, those not given as the model has them."""
        return self.form.sizes(given)

    def value(self, sizes: Mapping[str, int]) -> int:
        """The quantity at all sizes, as ``sizes`` gives them."""
        case = self.form.case_at(sizes)
        if case is not None and self.name in case.differing:
            return case.form.quantity(self.name).value(sizes)
        self._require_known()
        point = self.form.point(sizes)
        return max(point(p) for p in self.polynomials)

    @property
    def polynomials(self) -> tuple[Polynomial, ...]:
        """What the quantity is the largest of in general: one polynomial, of a peak one for each moment, of an unknown quantity none."""
        return tuple(m.polynomial for m in self.moments) if self.moments else () if self.whole is None else (self.whole,)

    @cached_property
    def expr_text(self) -> str:
        """The closed form as SymPy reads it; of a peak, moments stand in the order of a derivation at the model's own sizes."""
        self._require_known()
        return self.form.derived(self.name, self.form.sizes({})).text or ""

    def expr(self) -> sp.Expr:
        """The closed form as a SymPy expression, which imports SymPy."""
        from calc.algebra import to_sympy

        return to_sympy(self.expr_text)

    def _require_known(self) -> None:
        if self.unknown:
            raise UnknownQuantityError(f"{self.name} is unknown: {self.unknown}")


@dataclass(frozen=True, slots=True)
class Case:
    """The form at sizes where the step runs otherwise. Quantities that are not among the ``differing`` are as in general."""

    special: Special
    form: Stored
    differing: frozenset[str]


@dataclass(frozen=True)
class Stored:
    """A stored derivation. ``graph`` is that of the recording without its records: dimensions, conditions, what certified them.

    ``calls`` are the operators of a step by kind, ``thumbs`` the rules of thumb that apply to it.
    """

    name: str
    graph: Graph
    table: Table
    entries: Mapping[str, Any]
    calls: tuple[Calls, ...]
    thumbs: tuple[Thumb, ...]
    cases: tuple[Case, ...] = ()

    @property
    def dims(self) -> tuple[DimRecord, ...]:
        """The dimensions with their meaning and the model's own values."""
        return self.graph.dims

    @property
    def options(self) -> Mapping[str, str]:
        return self.graph.options

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        return self.graph.assumptions

    @property
    def versions(self) -> Mapping[str, str]:
        """Of what the recording is: torch, and transformers where the model is one of its."""
        return self.graph.provenance

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        """All sizes. Those that the model cannot have are refused, and those for which the form does not stand."""
        return resolve(self.graph, given)

    def covers(self, given: Mapping[str, int]) -> bool:
        """Whether the form stands for these sizes: at others the model has to be derived anew. Impossible sizes are refused."""
        return not self.graph.unmet(unchecked(self.graph, given))

    def case_at(self, sizes: Mapping[str, int]) -> Case | None:
        """The special case that applies at all ``sizes``, if there is one."""
        return next((case for case in self.cases if case.special.applies(sizes)), None)

    def point(self, sizes: Mapping[str, int]) -> Point:
        """Evaluates polynomials at all ``sizes``, as ``self.sizes`` gives them."""
        return Point(self.table, {**self.graph.as_basis().values(sizes), **sizes})

    @cached_property
    def quantities(self) -> dict[str, StoredQuantity]:
        """Every quantity, in the order of a derivation."""
        return {d.name: self._read(d) for d in definitions(self.options)}

    def quantity(self, name: str) -> StoredQuantity:
        """One quantity by name."""
        found = self.quantities.get(name)
        if found is None:
            near = difflib.get_close_matches(name, self.quantities, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UnknownQuantityError(f"no quantity {name[:60]!r}: there are {', '.join(self.quantities)}{hint}")
        return found

    def derivation(self, given: Mapping[str, int]) -> Derivation:
        """The derivation at these sizes as far as it is stored: every quantity with its addends and moments, and no steps."""
        sizes = self.sizes(given)
        case = self.case_at(sizes)
        held = {name: value for name, (value, _) in self.graph.held.items()}
        return Derivation(
            model=self.graph.model,
            source=self.graph.source,
            dims=tuple(replace(d, value=sizes[d.name]) for d in self.dims),
            options=self.options,
            assumptions=self.assumptions,
            quantities={name: self.derived(name, sizes) for name in self.quantities},
            steps=(),
            coverage=(),
            certificates=(),
            provenance=self.versions,
            notes=self.graph.notes,
            held=held if case is None else by_cases.held(held, sizes, case.special),
        )

    def derived(self, name: str, sizes: Mapping[str, int]) -> Quantity:
        """One quantity at all ``sizes``, as ``self.sizes`` gives them."""
        case, general = self.case_at(sizes), self._general(self.quantity(name), self.point(sizes))
        if case is None or name not in case.differing:
            return general
        return by_cases.by_cases(general, case.form.derived(name, sizes), case.special)

    def _general(self, q: StoredQuantity, point: Point) -> Quantity:
        d = q.definition
        if q.unknown:
            return Quantity(d.name, d.unit, d.meaning, None, None, unknown=q.unknown)
        if not q.moments:
            whole = q.polynomials[0]
            terms = tuple(QuantityTerm(t.site, self.table.text(t.polynomial), point(t.polynomial), t.because) for t in q.terms)
            return Quantity(d.name, d.unit, d.meaning, self.table.text(whole), point(whole), terms, _evaluator=q)
        moments = tuple(sorted((self._candidate(m, point) for m in q.moments), key=lambda c: -c.value))
        text = moments[0].expr if len(moments) == 1 else f"Max({', '.join(m.expr for m in moments)})"
        return Quantity(d.name, d.unit, d.meaning, text, moments[0].value, candidates=moments, _evaluator=q)

    def _candidate(self, moment: Moment, point: Point) -> Candidate:
        parts = {role: self.table.text(p) for role, p in moment.parts}
        return Candidate(
            self.table.text(moment.polynomial), moment.at, point(moment.polynomial), parts, {r: point(p) for r, p in moment.parts}
        )

    def _read(self, definition: Definition) -> StoredQuantity:
        entry, known = self.entries[definition.name], self.table.polynomials
        terms = tuple(Term(site, known[i], because) for site, i, because in entry.get("terms", ()))
        moments = tuple(self._moment(at, parts) for at, parts in entry.get("moments", ()))
        whole = known[entry["is"]] if "is" in entry else None
        return StoredQuantity(definition, self, whole, terms, moments, entry.get("unknown", ""))

    def _moment(self, at: str, parts: list[tuple[str, int]]) -> Moment:
        found = tuple((role, self.table.polynomials[i]) for role, i in parts)
        return Moment(at, self.table.added([p for _, p in found]), found)

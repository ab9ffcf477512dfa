"""Compares two derivations: the difference of each quantity, as a closed form and term by term.

Sizes that both share stay symbols; differing sizes are substituted, so that a difference shows what a change does: ``d*(32 - 8)*k`` where 8
key heads replace 32. Terms are matched by module path. Where a step runs other operators at some sizes (a batch of one), each side has the
closed forms of the case in force at its own sizes. Torch-free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from calc.derive.quantities import absent
from calc.derive.result import Candidate, Derivation, Quantity
from calc.derive.side_by_side import QuantityTable, in_force, parts_document, quantity_table
from calc.derive.to_json import number
from calc.errors import NapkinError
from calc.platform.tables import text_table
from calc.symbolic import branches
from calc.units import Unit

_LONGEST = 20_000  # characters of a closed form up to which a difference is expanded


@dataclass(frozen=True, slots=True)
class TermChange:
    """The change of one term by module path. A side without the term is ``None``; ``expr`` is right minus left, or ``None`` with the reason
    in ``Change.note``."""

    module_path: str
    left: str | None
    right: str | None
    left_value: int
    right_value: int
    expr: str | None
    because: str

    @property
    def value(self) -> int:
        return self.right_value - self.left_value


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one quantity. Values are ``None`` where it is unknown on that side; ``terms`` are those that differ, the largest first;
    they add up to the difference. ``note`` says why there is no closed form, or which peak candidates the terms belong to."""

    quantity: str
    meaning: str
    unit: Unit
    left: int | None
    right: int | None
    expr: str | None
    terms: tuple[TermChange, ...]
    note: str = ""

    @property
    def value(self) -> int | None:
        return None if self.left is None or self.right is None else self.right - self.left


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """``left`` and ``right`` name the sides; ``sizes`` and ``options`` are those in which they differ, ``same`` the sizes that they share.
    ``cases`` are the equalities of sizes (``B = 1``) under which the closed forms of each side hold, unless they are general. ``by_part``:
    each quantity that has parts, with the share of each part on both sides."""

    left: str
    right: str
    same: Mapping[str, int]
    sizes: Mapping[str, tuple[int | None, int | None]]
    options: Mapping[str, tuple[str, str]]
    changes: tuple[Change, ...]
    cases: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    by_part: tuple[QuantityTable, ...] = ()

    def __repr__(self) -> str:
        """Both values of each quantity and their difference, a line each."""
        rows = [(c.quantity, _shown(c.left), _shown(c.right), _shown(c.value), c.expr or c.note) for c in self.changes]
        return text_table(self.title, rows, frozenset({1, 2, 3}))

    @property
    def title(self) -> str:
        """Both sides, then the sizes and options in which they differ: ``gpt2 → gpt2: B 8 → 4``."""
        sizes = (f"{name} {size_or_none(left)} → {size_or_none(right)}" for name, (left, right) in self.sizes.items())
        options = (f"{name} {left} → {right}" for name, (left, right) in self.options.items())
        differing = ", ".join((*sizes, *options))
        return f"{self.left} → {self.right}" + (f": {differing}" if differing else "")


def size_or_none(size: int | None) -> str:
    """A size as text; ``none`` for a dimension that the step does not have."""
    return "none" if size is None else f"{size:,}"


def _shown(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def compare(left: Derivation, right: Derivation, names: tuple[str, str] = ("", "")) -> Comparison:
    """The differences between two derivations; ``names`` defaults to the models' names."""
    sizes = {n: (left.sizes.get(n), right.sizes.get(n)) for n in dict.fromkeys((*left.sizes, *right.sizes))}
    differing = {n: pair for n, pair in sizes.items() if pair[0] != pair[1]}
    options = {n: (str(left.options.get(n, "–")), str(right.options.get(n, "–"))) for n in dict.fromkeys((*left.options, *right.options))}
    return Comparison(
        left=names[0] or left.model,
        right=names[1] or right.model,
        same={n: pair[0] for n, pair in sizes.items() if pair[0] is not None and n not in differing},
        sizes=differing,
        options={n: pair for n, pair in options.items() if pair[0] != pair[1]},
        changes=tuple(_changes(left, right, tuple(differing))),
        cases=(_case(left), _case(right)),
        by_part=tuple(_by_part(left, right)),
    )


def _case(derivation: Derivation) -> tuple[str, ...]:
    return branches.equalities_at((q.text for q in derivation.quantities.values() if q.text is not None), derivation.sizes)


def _by_part(left: Derivation, right: Derivation) -> Iterator[QuantityTable]:
    tables = (quantity_table(name, (left, right)) for name in dict.fromkeys((*left.quantities, *right.quantities)))
    return (table for table in tables if table.parts)


def _changes(left: Derivation, right: Derivation, differing: tuple[str, ...]) -> Iterator[Change]:
    """The changes of all quantities that are part of one of the steps: neither of two fp32 steps has copies of the weights."""
    for name in dict.fromkeys((*left, *right)):
        if absent(name, left.options) and absent(name, right.options):
            continue
        first, second = (in_force(side.quantities.get(name), side.sizes) for side in (left, right))
        if first is not None or second is not None:
            yield _change(name, first, second, _Sides(left.sizes, right.sizes, differing))


@dataclass(frozen=True, slots=True)
class _Sides:
    """Differences of closed forms, with differing sizes substituted by each side's values."""

    left: Mapping[str, int]
    right: Mapping[str, int]
    differing: tuple[str, ...]

    def difference(self, left: str | None, right: str | None) -> str | None:
        """Right minus left; ``None`` where it is too long to expand."""
        if len(left or "") + len(right or "") > _LONGEST:
            return None
        import sympy as sp

        return str(sp.expand(self._at(right, self.right) - self._at(left, self.left)))

    def _at(self, text: str | None, sizes: Mapping[str, int]) -> Any:
        import sympy as sp

        from calc.symbolic.algebra import symbol, to_sympy

        if text is None:
            return 0
        return to_sympy(text).xreplace({symbol(name): sp.Integer(sizes[name]) for name in self.differing if name in sizes})


def _change(name: str, left: Quantity | None, right: Quantity | None, sides: _Sides) -> Change:
    described = left or right
    assert described is not None  # the name is that of one of them
    values = [None if q is None else q.value for q in (left, right)]
    if left is None or right is None or left.text is None or right.text is None:
        unknown = " and ".join(dict.fromkeys(_why(q) for q in (left, right) if q is None or q.text is None))
        return Change(name, described.meaning, described.unit, values[0], values[1], None, (), unknown)
    if values[0] == values[1] and left.text == right.text and not sides.differing:
        return Change(name, described.meaning, described.unit, values[0], values[1], "0", ())
    if left.candidates or right.candidates:
        return _peak_change(left, right, sides)
    first, second = by_module_path(left), by_module_path(right)
    terms = _terms(first, second, sides)
    return _closed(Change(name, described.meaning, described.unit, values[0], values[1], sides.difference(left.text, right.text), terms))


def _why(quantity: Quantity | None) -> str:
    return "it is of one side only" if quantity is None else quantity.unknown


def _closed(change: Change) -> Change:
    """The change, verified: terms that do not add up to it raise an error."""
    if change.terms and sum(term.value for term in change.terms) != change.value:
        raise NapkinError(f"{change.quantity}: the terms of its difference do not add up to it: please report this")
    return change


Places = Mapping[str, tuple[str, int, str]]


def by_module_path(quantity: Quantity) -> Places:
    """Expression, value and reason by module path; a repeated module path is distinguished by its reason."""
    terms: dict[str, tuple[str, int, str]] = {}
    for term in quantity.terms:
        place = term.module_path if term.module_path not in terms else f"{term.module_path} ({term.because})"
        terms[place] = (term.expr, term.value, term.because)
    return terms


def _terms(left: Places, right: Places, sides: _Sides) -> tuple[TermChange, ...]:
    """The terms that differ, the largest change first."""
    changes = []
    for module_path in dict.fromkeys((*left, *right)):
        first, second = left.get(module_path), right.get(module_path)
        values = (first[1] if first else 0, second[1] if second else 0)
        texts = (first[0] if first else None, second[0] if second else None)
        if values[0] != values[1]:
            because = " → ".join(dict.fromkeys(reason for reason in (first[2] if first else "nothing", second[2] if second else "nothing")))
            changes.append(TermChange(module_path, *texts, *values, sides.difference(*texts), because))
    return tuple(sorted(changes, key=lambda term: -abs(term.value)))


def _peak_change(left: Quantity, right: Quantity, sides: _Sides) -> Change:
    """The change of a maximum, by role: of the largest candidate on each side."""
    first, second = (max(q.candidates, key=lambda c: c.value) if q.candidates else None for q in (left, right))
    if first is None or second is None:
        note = "a maximum over several peak candidates on one side only"
        return Change(left.name, left.meaning, left.unit, left.value, right.value, None, (), note)
    terms = _terms(by_role(first), by_role(second), sides)
    candidates = first.at if first.at == second.at else f"{first.at} → {second.at}"
    note = f"of the largest peak candidates at these sizes: {candidates}"
    expr = sides.difference(first.expr, second.expr)
    return _closed(Change(left.name, left.meaning, left.unit, left.value, right.value, expr, terms, note))


def by_role(candidate: Candidate) -> Places:
    """The bytes of a peak candidate by role."""
    return {role: (expr, candidate.part_values[role], role) for role, expr in candidate.parts.items()}


def document(comparison: Comparison) -> dict[str, Any]:
    """The ``"schema": 2`` document of a comparison, as plain data."""
    by_part = {table.quantity: parts_document(table) for table in comparison.by_part}
    return {
        "schema": 2,
        "left": comparison.left,
        "right": comparison.right,
        "same": {name: number(size) for name, size in comparison.same.items()},
        "sizes": {name: [number(left_size), number(right_size)] for name, (left_size, right_size) in comparison.sizes.items()},
        "options": {name: list(pair) for name, pair in comparison.options.items()},
        "cases": [list(comparison.cases[0]), list(comparison.cases[1])],
        "quantities": {change.quantity: {**_document(change), "parts": by_part.get(change.quantity, [])} for change in comparison.changes},
    }


def _document(change: Change) -> dict[str, Any]:
    return {
        "left": number(change.left),
        "right": number(change.right),
        "difference": {"expr": change.expr, "value": number(change.value)},
        "unit": str(change.unit),
        "meaning": change.meaning,
        "terms": [
            {"module_path": t.module_path, "left": t.left, "right": t.right, "expr": t.expr, "value": number(t.value), "because": t.because}
            for t in change.terms
        ],
        "because": change.note or None,
    }

"""Closed forms as SymPy expressions whose ``subs`` refuses names that they do not have. SymPy alone would return them unchanged."""

from __future__ import annotations

from functools import cache
from types import MemberDescriptorType
from typing import Any

import sympy as sp

from calc.errors import BadInputError


def loud(expr: sp.Expr, quantity: str) -> sp.Expr:
    """``expr``, equal to itself in every respect, with a ``subs`` that raises ``BadInputError`` for a name that ``quantity`` does not have.

    What is computed from it is SymPy's own. A number or a single symbol is returned as it is.
    """
    if not expr.args:
        return expr
    kind: Any = type(expr)
    checked = sp.Basic.__new__(_class_of(kind), *expr.args)
    if isinstance(kind.is_commutative, MemberDescriptorType):  # a slot, which each such expression sets
        checked.is_commutative = expr.is_commutative
    checked.plain, checked.quantity = expr, quantity
    return checked


@cache
def _class_of(kind: type[sp.Expr]) -> type[Any]:
    """A class of the same name, by which SymPy orders arguments. What SymPy builds from its expressions is of ``kind``."""
    builds = {"func": property(lambda self: kind), "_from_args": getattr(kind, "_from_args", None)}
    return type(kind.__name__, (_Loud, kind), {"__slots__": ("plain", "quantity"), **builds})


class _Loud:
    __slots__ = ()
    plain: sp.Expr
    quantity: str

    def subs(self, *replacements: Any, **options: Any) -> Any:
        """As SymPy's, but every symbol to be replaced must be in the expression."""
        names = {each.name for each in self.plain.free_symbols}
        for old in _replaced(replacements):
            unknown = {each.name for each in sp.sympify(old).free_symbols} - names
            if unknown:
                listed = ", ".join(sorted(names)) or "no sizes"
                raise BadInputError(f"{self.quantity} has no {min(unknown)[:40]!r}: its closed form has {listed}")
        return self.plain.subs(*replacements, **options)

    def __eq__(self, other: object) -> bool:
        return bool(self.plain == (other.plain if isinstance(other, _Loud) else other))

    def __hash__(self) -> int:
        return hash(self.plain)

    def __reduce__(self) -> Any:
        return loud, (self.plain, self.quantity)


def _replaced(replacements: tuple[Any, ...]) -> list[Any]:
    if len(replacements) == 2:
        return [replacements[0]]
    pairs = replacements[0] if replacements else ()
    return list(pairs) if hasattr(pairs, "keys") else [old for old, _ in pairs]

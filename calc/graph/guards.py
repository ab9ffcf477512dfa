"""At which sizes a traced step holds: its dimensions, its guards, and the sizes at which it was certified.

Separate from the trace, so that a closed form can say whether it holds without loading the trace that it was derived from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from calc import dimensions as dims
from calc.dimensions import Dim
from calc.errors import BadInputError, DimensionError
from calc.graph.folds import Basis
from calc.symbolic.exact import holds, side
from calc.symbolic.expression import Compare, FunctionCall, Not, Remainder, walk
from calc.symbolic.parser import parse
from calc.symbolic.writer import as_text


@dataclass(frozen=True, slots=True)
class TracedDim:
    """A dimension of a traced model with its ``value``. ``expr`` is its default expression; a ``tied`` dimension always equals it."""

    name: str
    meaning: str
    value: int
    expr: str | None = None
    tied: bool = False
    multiple_of: int | str | None = None
    at_most: str | None = None
    plus: int = 0
    unbacked_at: str = ""


def divides(name: str, part: int | str, plus: int = 0) -> str:
    """The guard that ``part`` divides the dimension ``name`` without ``plus``."""
    return f"Eq(Mod({f'{name} - {plus}' if plus else name}, {part}), 0)"


# Kinds of assumptions: at sizes where they do not hold, other operators run, or the closed forms of a special case hold.
BRANCH, SPECIAL_CASE = "branch", "special case"


# Why a step that skips experts which no row chose is traced with all of them.
EVERY_EXPERT = "at least one row chooses each expert"


@dataclass(frozen=True, slots=True)
class Assumption:
    """A guard on sizes, or a value read out of a tensor, that the traced step assumes. ``kind`` is one of the kinds above, or empty."""

    expr: str
    because: str
    kind: str = ""

    def at(self, sizes: Mapping[str, int]) -> Assumption:
        """The assumption as it is true at ``sizes`` of the dimensions. A guard that fails there is negated: a certificate covers it."""
        try:
            if not {*dims.ordered_names(self.expr)} <= sizes.keys() or holds(self.expr, sizes):
                return self
        except (ArithmeticError, BadInputError):  # a sentence, or a guard that has no value there
            return self
        match parse(self.expr):
            case Not(positive):
                negated = as_text(positive)
            case _:
                negated = f"not ({self.expr})"
        return replace(self, expr=negated, because=f"a trace at sizes with this outcome certifies the closed forms there; {self.because}")


def assumed(assumptions: Iterable[Assumption], sizes: Mapping[str, int], in_case: bool) -> tuple[Assumption, ...]:
    """The assumptions as they are true at all ``sizes``. ``in_case`` where a special case is in force: that there is one, and no guard of
    the general graph that fails there, since another graph was traced for it."""
    true_here = ((a, a.at(sizes)) for a in assumptions if in_case or a.kind != SPECIAL_CASE)
    return tuple(stated for a, stated in true_here if not in_case or stated is a)


def has_remainder(text: str) -> bool:
    """Whether an expression has a remainder in it."""
    return any(isinstance(node, Remainder) or (isinstance(node, FunctionCall) and node.function == "Mod") for node in walk(parse(text)))


@dataclass(frozen=True, slots=True)
class Guard:
    """A comparison of sizes (in basis symbols) that the traced step evaluated, its ``outcome``, and the line that evaluated it.

    An ``opaque`` guard stands for code that uses the values of sizes in an unknown way: it holds at no other values of them.
    """

    expr: str
    outcome: bool
    where: str
    opaque: bool = False

    def to_json(self) -> list[str | bool]:
        return [self.expr, self.outcome, self.where, *([True] if self.opaque else [])]

    @property
    def compares(self) -> bool:
        """Whether this is an inequality."""
        return any(isinstance(node, Compare) and node.relation not in ("==", "!=") for node in walk(parse(self.expr)))

    @property
    def divides(self) -> bool:
        """Whether this is about a remainder."""
        return has_remainder(self.expr)

    def holds_at(self, values: Mapping[str, int]) -> bool:
        """Whether the outcome is the traced one at these values of the basis symbols."""
        try:
            return holds(self.expr, values) == self.outcome
        except ZeroDivisionError:
            return False  # a size is 0 there, and was not in the trace

    def answered_by(self, certified: Mapping[str, int], values: Mapping[str, int]) -> bool:
        """Whether a certificate at ``certified`` covers ``values``, at which this guard fails.

        The guard must fail there too, on the same side of the comparison: where ``h*k > d`` was traced, a certificate at ``h*k == d`` does
        not cover ``h*k < d``, since formulas of both sides may agree where the two are equal.
        """
        if self.opaque:
            return all(certified[name] == values[name] for name in dims.ordered_names(self.expr))
        if self.holds_at(certified):
            return False
        try:
            sign = side(self.expr, values)
            return not sign or sign == side(self.expr, certified)
        except ZeroDivisionError:
            return True


def failed_guards(
    sizes: Mapping[str, int],
    specialized: Mapping[str, tuple[int, str]],
    basis: Basis,
    guards: Iterable[Guard],
    certified: Sequence[Mapping[str, int]],
) -> list[Guard]:
    """The guards that fail at ``sizes`` of the dimensions and that no certificate at ``certified`` values of the basis symbols covers.

    ``specialized`` maps dimensions to their only value and the reason: another value fails a guard of its own.
    """
    moved = [Guard(f"{name} == {value}", True, why) for name, (value, why) in specialized.items() if sizes[name] != value]
    if moved:
        return moved
    values = basis.values(sizes)
    changed = [c for c in guards if not c.holds_at(values)]
    return [c for c in changed if not any(c.answered_by(at, values) for at in certified)]


def applies(equal: Mapping[str, str], sizes: Mapping[str, int]) -> bool:
    """Whether a special case applies at ``sizes``: ``equal`` says which dimensions are 1, equal, or a product or a sum of others in it."""
    return all(sizes[name] == dims.evaluate(to, sizes) for name, to in equal.items())


class HasDims(Protocol):
    """An object with dimensions: a graph, a stored form, a derivation."""

    @property
    def dims(self) -> tuple[TracedDim, ...]: ...


class HasGuards(HasDims, Protocol):
    """An object that also knows at which sizes it holds: a graph or a stored form."""

    def failed_guards(self, sizes: Mapping[str, int], /) -> list[Guard]: ...


def resolve(traced: HasGuards, overrides: Mapping[str, int]) -> dict[str, int]:
    """Values of all dimensions, with ``overrides`` in place of theirs; a dimension that equals its default expression follows it.

    Raises ``DimensionError`` for sizes at which a guard fails, and for invalid sizes.
    """
    values = unchecked(traced, overrides)
    if traced.failed_guards(values):
        raise not_traced(traced, values)
    return values


def not_traced(traced: HasGuards, values: Mapping[str, int]) -> DimensionError:
    """The error for sizes at which a guard fails, where there is no spec to trace the step from."""
    for guard in traced.failed_guards(values):
        message = f"the step was traced where {guard.expr} is {guard.outcome}, which it is not at these sizes (evaluated"
        if guard.opaque:
            message = "a value that the step reads is not known at these sizes (read"
        return DimensionError(f"{message} at {guard.where}); a graph cannot be traced again: derive the model from its spec")
    return DimensionError("the model cannot have these sizes: derive it from its spec")


def unchecked(traced: HasDims, values: Mapping[str, int]) -> dict[str, int]:
    """Like ``resolve``, without checking guards. Raises ``DimensionError`` for invalid sizes."""
    return dims.resolve(dimensions(traced), values)


def settable(traced: HasDims, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes to set so that all sizes are ``sizes``: without tied dimensions and unbacked ones at their expected value."""
    free = {d.name: sizes[d.name] for d in traced.dims if not d.tied}
    following = {d.name for d in traced.dims if d.unbacked_at and follows(replace(d, value=sizes[d.name]), sizes)}
    return {name: size for name, size in free.items() if name not in following}


def dimensions(traced: HasDims) -> dict[str, Dim]:
    """The dimensions with their defaults: the default expression where the traced value equals it, else the value itself."""
    values = {d.name: d.value for d in traced.dims}
    return {
        d.name: Dim(
            d.expr if d.expr and follows(d, values) else d.value, d.meaning, d.multiple_of, d.tied, d.at_most, d.plus, d.unbacked_at
        )
        for d in traced.dims
    }


def follows(dim: TracedDim, sizes: Mapping[str, int]) -> bool:
    """Whether the value of a traced dimension equals its default expression at ``sizes``."""
    default = dim.value if dim.expr is None else dim.expr
    return dims.follows(dims.Dim(default, tied=dim.tied, unbacked_at=dim.unbacked_at), dim.value, sizes)

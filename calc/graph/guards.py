"""For which sizes a recorded step stands: its dimensions, the questions about sizes that it asked, and where the answers were tried.

Apart from the record, so that a closed form can say whether it holds without reading what it was derived from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from calc import dimensions as dims
from calc.dimensions import Dim
from calc.errors import DimensionError
from calc.graph.folds import Basis
from calc.symbolic.exact import holds, side


@dataclass(frozen=True, slots=True)
class TracedDim:
    """A dimension of the model. ``expr`` is its default expression; ``tied`` ones always equal it."""

    name: str
    meaning: str
    value: int
    expr: str | None = None
    tied: bool = False
    multiple_of: int | str | None = None
    at_most: str | None = None
    plus: int = 0
    unbacked_at: str = ""


@dataclass(frozen=True, slots=True)
class Assumption:
    """A condition on sizes (or a value read once) that the recorded step took for granted."""

    expr: str
    because: str


@dataclass(frozen=True, slots=True)
class Guard:
    """A question about sizes (in basis symbols) that the recorded step asked, its answer, and the line that asked.

    With ``each``, something was decided there by the values of sizes in no way that is known: no other sizes tell of it.
    """

    expr: str
    outcome: bool
    where: str
    opaque: bool = False

    def to_json(self) -> list[str | bool]:
        return [self.expr, self.outcome, self.where, *([True] if self.opaque else [])]

    @property
    def compares(self) -> bool:
        """Whether it asks which of two sizes is larger."""
        return any(sign in self.expr for sign in (" < ", " > ", " <= ", " >= "))

    @property
    def divides(self) -> bool:
        """Whether it asks for a remainder."""
        return "Mod(" in self.expr

    def holds_at(self, values: Mapping[str, int]) -> bool:
        """Whether the answer is the recorded one at these values of the basis symbols."""
        try:
            return holds(self.expr, values) == self.outcome
        except ZeroDivisionError:
            return False  # a size of 0 there: not what was recorded

    def answered_by(self, certified: Mapping[str, int], values: Mapping[str, int]) -> bool:
        """Whether a record at ``certified`` tells what runs at ``values``, where the answer is another than the recorded one.

        It must have that other answer, on the same side of a comparison: where ``h*k > d`` was recorded, a record at ``h*k == d`` says
        nothing of ``h*k < d``, since formulas of both sides may agree where the two are equal.
        """
        if self.opaque:
            return all(certified[name] == values[name] for name in dims.names_in(self.expr))
        if self.holds_at(certified):
            return False
        try:
            here = side(self.expr, values)
            return not here or here == side(self.expr, certified)
        except ZeroDivisionError:
            return True


def failed_guards(
    sizes: Mapping[str, int],
    specialized: Mapping[str, tuple[int, str]],
    basis: Basis,
    guards: Iterable[Guard],
    certified: Sequence[Mapping[str, int]],
) -> list[Guard]:
    """Conditions that come out otherwise at ``sizes`` (of the dimensions) and at no ``certified`` values of the basis symbols.

    ``specialized`` are dimensions that stayed numbers, and why: the step is that of these values alone.
    """
    moved = [Guard(f"{name} == {value}", True, why) for name, (value, why) in specialized.items() if sizes[name] != value]
    if moved:
        return moved
    values = basis.values(sizes)
    changed = [c for c in guards if not c.holds_at(values)]
    return [c for c in changed if not any(c.answered_by(at, values) for at in certified)]


def applies(equal: Mapping[str, str], sizes: Mapping[str, int]) -> bool:
    """Whether a special case applies at ``sizes``: ``equal`` says which dimensions are 1, equal or a product of others in it."""
    return all(sizes[name] == dims.evaluate(to, sizes) for name, to in equal.items())


class HasDims(Protocol):
    """Whatever knows its dimensions."""

    @property
    def dims(self) -> tuple[TracedDim, ...]: ...


class HasGuards(HasDims, Protocol):
    """What also knows for which sizes it stands: a graph, or a stored form."""

    def failed_guards(self, sizes: Mapping[str, int], /) -> list[Guard]: ...


def resolve(recorded: HasGuards, given: Mapping[str, int]) -> dict[str, int]:
    """Values of all dimensions with some overridden; a default expression that held moves along.

    Sizes at which the step was never traced to run as its closed forms say are refused.
    """
    values = unchecked(recorded, given)
    if recorded.failed_guards(values):
        raise not_traced(recorded, values)
    return values


def not_traced(recorded: HasGuards, values: Mapping[str, int]) -> DimensionError:
    """What to say where closed forms do not hold and there is no spec of which the step could be traced."""
    for guard in recorded.failed_guards(values):
        said = f"the step was traced where {guard.expr} is {guard.outcome}, and at these sizes it is not (asked"
        if guard.opaque:
            said = "a value that the step reads is not known at these sizes (read"
        return DimensionError(f"{said} at {guard.where}); a graph alone cannot be traced there: derive the model from its spec")
    return DimensionError("the model cannot have these sizes: derive it from its spec")


def unchecked(recorded: HasDims, given: Mapping[str, int]) -> dict[str, int]:
    """The same whether or not the step runs there as it was recorded. Sizes that the model cannot have are refused."""
    return dims.resolve(dimensions(recorded), given)


def settable(recorded: HasDims, sizes: Mapping[str, int]) -> dict[str, int]:
    """What to set for all sizes to be ``sizes``: nothing that always follows from others, or is expected by default."""
    free = {d.name: sizes[d.name] for d in recorded.dims if not d.tied}
    following = {d.name for d in recorded.dims if d.unbacked_at and follows(replace(d, value=sizes[d.name]), sizes)}
    return {name: size for name, size in free.items() if name not in following}


def dimensions(recorded: HasDims) -> dict[str, Dim]:
    """The dimensions with their defaults: an expression that held of the recorded values, else the value itself."""
    values = {d.name: d.value for d in recorded.dims}
    return {
        d.name: Dim(
            d.expr if d.expr and follows(d, values) else d.value, d.meaning, d.multiple_of, d.tied, d.at_most, d.plus, d.unbacked_at
        )
        for d in recorded.dims
    }


def follows(dim: TracedDim, sizes: Mapping[str, int]) -> bool:
    """Whether a dimension is what its default expression gives at ``sizes``; an expected value is rounded up to a size."""
    if dim.expr is None or dim.tied:
        return dim.tied
    value = dims.evaluate(dim.expr, sizes)
    return (math.ceil(value) if dim.unbacked_at else value) == dim.value

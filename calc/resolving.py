"""Values of all dimensions of a recorded step at given ones; sizes at which it may run otherwise are refused. SymPy-free."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from calc import dims
from calc.dims import Dim
from calc.errors import DimensionError
from calc.graph import DimRecord, Graph


def resolve(graph: Graph, given: Mapping[str, int]) -> dict[str, int]:
    """Values of all dimensions of a graph with some overridden; a default expression that held moves along.

    Sizes at which the step was never recorded to run as its closed forms say are refused.
    """
    values = unchecked(graph, given)
    for condition in graph.unmet(values):
        raise DimensionError(
            f"the step was recorded where {condition.expr} is {condition.holds}, and at these sizes it is not"
            f" (asked at {condition.where}): record it at these sizes, by deriving the model with them"
        )
    return values


def unchecked(graph: Graph, given: Mapping[str, int]) -> dict[str, int]:
    """The same whether or not the step runs there as it was recorded. Sizes that the model cannot have are refused."""
    recorded = {d.name: d.value for d in graph.dims}
    table: dict[str, Dim] = {}
    for d in graph.dims:
        follows = d.expr is not None and _rounded(d, dims.evaluate(d.expr, recorded)) == d.value
        table[d.name] = Dim(d.expr if follows and d.expr else d.value, d.meaning, d.multiple_of, d.tied, d.at_most, d.plus, d.decided_at)
    return dims.resolve(table, given)


def _rounded(d: DimRecord, value: Fraction) -> Fraction | int:
    """An expected value is rounded up to a size."""
    return math.ceil(value) if d.decided_at else value

"""The sizes that a dimension can have while the others are fixed: those at which whatever follows it is a valid size, too.

Where k = d/h is even, d goes in steps of 2·h; at sizes in between, the model cannot be built.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from calc.graph.guards import HasDims, TracedDim, follows
from calc.symbolic.exact import Exactly, evaluate_text
from calc.symbolic.parser import free_names


def valid_step(traced: HasDims, name: str) -> int:
    """The step between valid sizes of the dimension ``name``: a common multiple of what must divide it and of what makes those that follow
    it valid. A dimension that follows it otherwise than linearly is left out: a search refuses its invalid sizes one by one."""
    current = {dim.name: dim.value for dim in traced.dims}
    dims = {dim.name: dim for dim in traced.dims}
    step = _unit(dims[name], current)
    near = [_following(traced.dims, {**current, name: current[name] + i}, name) for i in range(3)]
    for follower in near[0]:
        first, second, third = (Fraction(sizes[follower]) for sizes in near)
        if third - second == second - first:
            step = math.lcm(step, ((second - first) / _unit(dims[follower], current)).denominator)
    return step


def _unit(dim: TracedDim, sizes: dict[str, int]) -> int:
    """What must divide the dimension."""
    return sizes[dim.multiple_of] if isinstance(dim.multiple_of, str) else dim.multiple_of or 1


def _following(dims: Sequence[TracedDim], sizes: dict[str, int], name: str) -> dict[str, Exactly]:
    """The values, integers or not, of the dimensions that follow ``name`` where its size is that in ``sizes``."""
    traced = {**sizes, name: next(dim.value for dim in dims if dim.name == name)}
    following = {dim.name: dim.expr for dim in dims if dim.expr is not None and dim.name != name and follows(dim, traced)}
    values: dict[str, Exactly] = {}
    while ready := [n for n, expr in following.items() if n not in values and free_names(expr) & {name, *values}]:
        for follower in ready:
            values[follower] = evaluate_text(following[follower], {**sizes, **values})  # type: ignore[dict-item]  # fractions, too
    return values

"""Depths of a model in which only one of every so many blocks is recomputed in the backward.

Such a model repeats a pattern of ``every`` blocks, so its depth is a number of patterns plus a remainder: ``L = 2 n`` or ``L = 2 n + 1``
with ``block/2``. The requested depth selects the remainder; the closed forms hold only for depths with that remainder. Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from calc.dimensions import Dim
from calc.errors import SpecError
from calc.options import Options
from calc.spec import Spec


def in_patterns(spec: Spec, sizes: Mapping[str, int], options: Options) -> Spec:
    """``spec`` with the depths that ``options`` allow, for the requested ``sizes``."""
    if options.every == 1 or not options.trains:
        return spec
    dims = spec.dimensions
    values = spec.sizes({name: value for name, value in sizes.items() if name in dims})
    changed = {name: _in_pattern(spec, name, dims[name], values[name], options.every) for name in spec.trip_counts if not dims[name].tied}
    changed = {name: dim for name, dim in changed.items() if dim != dims[name]}
    if not changed:
        return spec
    check_at = {name: _fitting(changed[name], value) if name in changed else value for name, value in spec.check_at.items()}
    kinds = ", ".join(f"{name} = {dim.multiple_of} n + {dim.plus}" for name, dim in changed.items())
    return replace(spec, dims={**spec.dims, **changed}, check_at=check_at, key=f"{spec.key}, {kinds}" if spec.key else "")


def _in_pattern(spec: Spec, name: str, dim: Dim, value: int, every: int) -> Dim:
    """``dim`` as a number of patterns with the remainder of ``value``; the model's own pattern and ``every`` blocks combine in their common
    multiple."""
    if isinstance(dim.multiple_of, str):
        raise SpecError(f"{spec.name}: {name} is a multiple of {dim.multiple_of}, so it is not a number of patterns of {every} blocks")
    period = dim.multiple_of or 1
    together = math.lcm(period, every)
    plus = dim.plus + (value - dim.plus) % together
    if together == period:
        return dim
    if value <= plus:
        raise SpecError(f"{spec.name}: recomputing one of every {every} blocks needs at least {every} of them, and {name} is {value}")
    default = dim.default if isinstance(dim.default, int) and _fits(dim.default, together, plus) else value
    because = " and ".join(reason for reason in (dim.because, f"one of every {every} blocks is recomputed") if reason)
    return replace(dim, default=default, multiple_of=together, plus=plus, because=because)


def _fits(value: int, together: int, plus: int) -> bool:
    return value > plus and (value - plus) % together == 0


def _fitting(dim: Dim, value: int) -> int:
    """The smallest size ≥ ``value`` that is valid for this dimension."""
    assert isinstance(dim.multiple_of, int)
    patterns = max(1, -((dim.plus - value) // dim.multiple_of))
    return dim.plus + patterns * dim.multiple_of

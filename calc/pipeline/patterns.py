"""Depths of models whose layers repeat a pattern, so that their number is a number of patterns plus a remainder: ``L = 2 n + 1``.

Options may say so, where one of every two blocks is recomputed in the backward (``block/2``); or it shows in a forward, where each eighth
layer runs other operators. The requested depth selects the remainder; closed forms hold for depths with that remainder. Torch-free.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

from calc.dimensions import Dim, smallest_fitting
from calc.errors import SpecError
from calc.graph.periods import period_of
from calc.graph.plan import Period
from calc.graph.step import Op
from calc.graph.unrolling import numbers_in
from calc.options import Options
from calc.spec import Spec

# Patterns of the largest certificate, and the most layers that it may have.
_CERTIFIED = 6
_MOST_LAYERS = 128


def in_patterns(spec: Spec, sizes: Mapping[str, int], options: Options) -> Spec:
    """``spec`` with the depths that ``options`` allow, for the requested ``sizes``."""
    if options.every == 1 or not options.trains:
        return spec
    dims = spec.dimensions
    values = spec.sizes({name: value for name, value in sizes.items() if name in dims})
    changed = {name: _in_pattern(spec, name, dims[name], values[name], options.every) for name in spec.trip_counts if not dims[name].tied}
    changed = {name: dim for name, dim in changed.items() if dim != dims[name]}
    return _with_depths(spec, changed) if changed else spec


def _in_pattern(spec: Spec, name: str, dim: Dim, value: int, every: int) -> Dim:
    """``dim`` as a number of patterns with the remainder of ``value``; the model's own pattern and ``every`` blocks combine in their common
    multiple."""
    if isinstance(dim.multiple_of, str):
        raise SpecError(f"{spec.name}: {name} is a multiple of {dim.multiple_of}, so it is not a number of patterns of {every} blocks")
    together = _grouped(dim, value, Period(every, dim.plus, f"one of every {every} blocks is recomputed"))
    if together.multiple_of == (dim.multiple_of or 1):
        return dim
    if value <= together.plus:
        raise SpecError(f"{spec.name}: recomputing one of every {every} blocks needs at least {every} of them, and {name} is {value}")
    return together


def _grouped(dim: Dim, value: int, period: Period) -> Dim:
    """``dim``, whose value is ``value``, as a number of patterns, which are whole ones of the model's own."""
    every, irregular = math.lcm(int(dim.multiple_of or 1), period.every), max(dim.plus, period.irregular)
    plus = irregular + (value - irregular) % every
    default = dim.default if isinstance(dim.default, int) and _fits(dim.default, every, plus) else value
    because = " and ".join(reason for reason in (dim.because, period.because) if reason)
    return replace(dim, default=default, multiple_of=every, plus=plus, because=because)


def _fits(value: int, together: int, plus: int) -> bool:
    return value > plus and (value - plus) % together == 0


def _with_depths(spec: Spec, changed: Mapping[str, Dim]) -> Spec:
    check_at = {name: smallest_fitting(changed[name], value) if name in changed else value for name, value in spec.check_at.items()}
    kinds = ", ".join(f"{name} = {dim.multiple_of} n + {dim.plus}" for name, dim in changed.items())
    return replace(spec, dims={**spec.dims, **changed}, check_at=check_at, key=f"{spec.key}, {kinds}" if spec.key else "")


# -- patterns that show in a forward ----------------------------------------------------------------------------------------------


def repeated(spec: Spec, values: Mapping[str, int], periods: Mapping[str, Period]) -> Spec | None:
    """``spec`` with depths that are numbers of patterns with the remainder of the requested ``values``, which all dimensions have, by the
    ``periods`` of layers in each dimension; None where these say nothing more, or the requested depth has no whole pattern."""
    dims = spec.dimensions
    free = {name: dim for name, dim in dims.items() if name in periods and not dim.tied and not isinstance(dim.multiple_of, str)}
    grouped = {name: _grouped(dim, values[name], periods[name]) for name, dim in free.items()}
    changed = {name: dim for name, dim in grouped.items() if values[name] > dim.plus}
    more = {name: dim for name, dim in changed.items() if (dim.multiple_of, dim.plus) != (dims[name].multiple_of, dims[name].plus)}
    if not more or any(dim.plus + _CERTIFIED * int(dim.multiple_of or 1) > _MOST_LAYERS for dim in more.values()):
        return None
    return _with_depths(spec, more)


def period_in(ops: Iterable[Op], depth: int) -> Period | None:
    """How ``depth`` layers repeat the operators of a forward; None if they do not, or if all are alike."""
    for path, layers in _layers(ops).items():
        period = period_of([tuple(layers[i]) for i in sorted(layers)]) if len(layers) == depth else None
        if period is not None and period != (0, 1, 0):
            before, every, after = period
            said = f"the operators of {path} repeat every {every}" if every > 1 else f"those of {path} run the same operators"
            apart = f", except in {before + after} of them" if before + after else ""
            return Period(every, before + after, f"in a forward with {depth} layers, {said}{apart}")
    return None


def _layers(ops: Iterable[Op]) -> dict[str, dict[int, list[Hashable]]]:
    """The operators and sizes of each numbered child of a module, by the path of the module: of the outermost one."""
    layers: dict[str, dict[int, list[Hashable]]] = defaultdict(lambda: defaultdict(list))
    for op in ops:
        for path, number, rest in itertools.islice(numbers_in(op.module_path), 1):
            layers[path][number].append((op.name, rest, tuple(tensor.shape for tensor in op.outputs)))
    return layers

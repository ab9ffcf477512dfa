"""Caches size arithmetic: while a step is traced, torch repeats the same few sums and comparisons of sizes a hundred thousand times,
mostly to find out whether a tensor is contiguous. Torch computes each once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from calc.platform.torch_private import SymNode
from calc.trace.kernels.hide_tracing import replaced

# Arithmetic and comparisons of two sizes; the remaining operations of a SymNode are rare.
_BINARY = ("add", "sub", "mul", "mod", "int_floordiv", "eq", "ne", "gt", "lt", "le", "ge", "sym_min", "sym_max", "and_", "or_")


@contextlib.contextmanager
def caching_sizes(known: dict[Any, SymNode]) -> Iterator[None]:
    """Context in which arithmetic on symbolic sizes is cached in ``known``. Sizes have no history, so equal operands give equal results."""
    methods = {f"_{name}": _once(name, getattr(SymNode, f"_{name}"), known) for name in _BINARY if hasattr(SymNode, f"_{name}")}
    # A size's expression never changes here: no symbol is ever replaced by another.
    with replaced(SymNode, expr=property(lambda node: node._expr), **methods):
        yield


def _once(name: str, compute: Callable[[SymNode, SymNode], SymNode], known: dict[Any, SymNode]) -> Callable[[SymNode, SymNode], SymNode]:
    def method(self: SymNode, other: SymNode) -> SymNode:
        key = (name, self._expr, other._expr, self.pytype, other.pytype)
        result = known.get(key)
        if result is None:
            result = known[key] = compute(self, other)
        return result

    return method

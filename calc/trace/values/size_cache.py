"""Caches size arithmetic: while a step is traced, torch repeats the same few sums and comparisons of sizes a hundred thousand times,
mostly to find out whether a tensor is contiguous. Torch computes each once, asks once whether a size is a number, and wraps each number
once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from calc.platform.replaced import replaced
from calc.platform.torch_private import ShapeEnv, SymNode
from calc.trace.symbolic_sizes import SizeEnv

# Arithmetic and comparisons of two sizes; the remaining operations of a SymNode are rare.
_BINARY = ("add", "sub", "mul", "mod", "int_floordiv", "eq", "ne", "gt", "lt", "le", "ge", "sym_min", "sym_max", "and_", "or_")


@contextlib.contextmanager
def caching_sizes(cache: dict[Any, SymNode]) -> Iterator[None]:
    """Context in which arithmetic on symbolic sizes is cached in ``cache``. Sizes have no history, so equal operands give equal results."""
    methods = {f"_{name}": _once(name, getattr(SymNode, f"_{name}"), cache) for name in _BINARY if hasattr(SymNode, f"_{name}")}
    # A size's expression never changes here: no symbol is ever replaced by another.
    with replaced(
        SymNode,
        expr=property(lambda node: node._expr),
        maybe_as_int=_number_of,
        wrap_int=_wrapping(SymNode.wrap_int),
        expect_true=_expecting(SymNode.expect_true),
        **methods,
    ):
        yield


def _once(name: str, compute: Callable[[SymNode, SymNode], SymNode], cache: dict[Any, SymNode]) -> Callable[[SymNode, SymNode], SymNode]:
    def method(self: SymNode, operand: SymNode) -> SymNode:
        key = (name, self._expr, operand._expr, self.pytype, operand.pytype)
        result = cache.get(key)
        if result is None:
            result = compute(self, operand)
            if name == "int_floordiv" and isinstance(self.shape_env, SizeEnv):
                self.shape_env.refuse_nested(result.expr)
            cache[key] = result
        return result

    return method


def _number_of(node: SymNode) -> int | None:
    """The number that a size is, None where it has symbols; computed once for each size."""
    attributes: dict[str, Any] = node.__dict__
    if "napkin_number" not in attributes:
        attributes["napkin_number"] = int(node.expr) if node.expr.is_number else None
    number: int | None = attributes["napkin_number"]
    return number


def _wrapping(wrap: Callable[[SymNode, int], SymNode]) -> Callable[[SymNode, int], SymNode]:
    """``wrap`` of a number for the symbols of a size, once for each number."""
    wrapped: dict[tuple[ShapeEnv | None, int], SymNode] = {}

    def wrapping(node: SymNode, number: int) -> SymNode:
        key = node.shape_env, number
        result = wrapped.get(key)
        if result is None:
            result = wrapped[key] = wrap(node, number)
        return result

    return wrapping


def _expecting(expect: Callable[[SymNode, str, int], bool]) -> Callable[[SymNode, str, int], bool]:
    """``expect``, without torch's search for unbacked symbols: what has a hint contains none."""

    def expecting(node: SymNode, file: str, line: int) -> bool:
        return bool(expect(node, file, line) if node._hint is None else node.guard_bool(file, line))

    return expecting

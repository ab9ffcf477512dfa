"""``int(size)`` and ``math.sqrt(size)`` as models write them, on symbolic sizes.

Python's ``int`` must return a plain integer, so ``int(width * 0.25)`` would read the width as one number. While a model is
built and run, its own files see an ``int`` that leaves symbolic sizes symbolic. A square root or a ``float`` of a size is
a value (an attention scale, a bound of an initialiser), not a size: it is computed at the hint. Were it made a size again,
the closed forms would disagree with their certificates.
"""

from __future__ import annotations

import builtins
import contextlib
import sys
import sysconfig
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import sympy as sp
import torch
from torch.utils._sympy.functions import FloorDiv

from calc.trace.symbols import SizeEnv

_INSTALLED = tuple(f"{Path(__file__).parents[1]}/{folder}" for folder in ("trace", "measure", "derive"))
_LEFT_ALONE = ("torch", "sympy", "numpy", "mpmath", "_pytest", "pytest", "hypothesis")


class _LooksLikeInt(type):
    """``isinstance(x, int)`` and ``type(x) == int`` keep their meaning in files that see our ``int``."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.int)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, builtins.int)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is builtins.int

    def __hash__(cls) -> builtins.int:
        return hash(builtins.int)


class _Int(metaclass=_LooksLikeInt):
    """What a model's files call ``int``."""

    def __new__(cls, value: Any = 0, *base: Any) -> Any:
        if isinstance(value, torch.SymInt):
            return value
        if isinstance(value, torch.SymFloat):
            return _truncated(value)
        return builtins.int(value, *base)


def _truncated(value: torch.SymFloat) -> Any:
    """The integer part of a positive number made of sizes, with its decimal factors as the fractions they stand for."""
    exact, env = _exact(value.node.expr), value.node.shape_env
    if exact is None or not isinstance(env, SizeEnv):
        return builtins.int(value)
    numerator, denominator = sp.fraction(sp.together(sp.expand(exact)))
    whole = sp.expand(numerator) if denominator == 1 else FloorDiv(sp.expand(numerator), denominator)
    return env.create_symintnode(whole, hint=builtins.int(env.hint(value)))


def _exact(expr: Any) -> Any:
    """``expr`` with ``0.25`` as 1/4 and divisions as such, or nothing where it is no such expression."""
    if expr.is_Symbol or expr.is_Integer or expr.is_Rational:
        return expr
    if expr.is_Float:
        fraction = Fraction(repr(builtins.float(expr)))
        return sp.Rational(fraction.numerator, fraction.denominator)
    kind = type(expr).__name__
    if kind not in ("Add", "Mul", "Pow", "ToFloat", "FloatTrueDiv", "IntTrueDiv", "FloorDiv", "CleanDiv"):
        return None
    args = [_exact(a) for a in expr.args]
    if any(a is None for a in args):
        return None
    if kind == "ToFloat":
        return args[0]
    if kind.endswith("TrueDiv"):
        return args[0] / args[1]
    return expr.func(*args)


@contextlib.contextmanager
def symbolic_integers() -> Iterator[None]:
    """Context in which ``int(size)`` in a model's files keeps a symbolic size, and ``float(size)`` is its value at the hint."""
    changed = [module for module in list(sys.modules.values()) if _of_a_model(module) and "int" not in vars(module)]
    for module in changed:
        vars(module)["int"] = _Int
    with_float = "__float__" in vars(torch.SymInt)
    if not with_float:
        torch.SymInt.__float__ = _at_hint  # type: ignore[attr-defined]  # torch leaves it out, and Python then asks for an index
    try:
        yield
    finally:
        for module in changed:
            if vars(module).get("int") is _Int:
                del vars(module)["int"]
        if not with_float:
            del torch.SymInt.__float__  # type: ignore[attr-defined]  # as above


def _at_hint(size: torch.SymInt) -> builtins.float:
    env = size.node.shape_env
    return builtins.float(env.hint(size) if isinstance(env, SizeEnv) else builtins.int(size))


def _of_a_model(module: ModuleType) -> bool:
    """Whether a file may hold a model's code: not torch, not Python's own, not what records and measures."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py") or module.__name__.partition(".")[0] in _LEFT_ALONE:
        return False
    if file.startswith(_INSTALLED):
        return False
    return "site-packages" in file or not file.startswith(sysconfig.get_path("stdlib"))

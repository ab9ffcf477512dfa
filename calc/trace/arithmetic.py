"""``int(size)``, ``float(size)``, ``round(size)`` and ``math.sqrt(size)`` as models write them, on symbolic sizes.

Python's own must return plain numbers, so ``int(width * 0.25)`` would read the width as one number. While a model is built and
run, its own files see an ``int``, a ``float`` and a ``math`` that leave symbolic sizes symbolic. A number that comes out of a
size and never becomes one (an attention scale) does no harm; one that does become a size again must be written in closed form,
or the size it came from is read as a number after all.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import math
import operator
import re
import sys
import sysconfig
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import sympy as sp
import torch

from calc.torch_private import FloorDiv, sym_log2
from calc.trace.symbols import SizeEnv

_INSTALLED = tuple(f"{Path(__file__).parents[1]}/{folder}" for folder in ("trace", "measure", "derive"))
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_ELEMENT_TYPE = re.compile(r"(?:\bdtype\s*=\s*|\.(?:to|type|view)\((?:[^()\n]*,)?\s*)(int|float)\s*[,)]")
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


class _LooksLikeFloat(type):
    """The same for ``float``."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.float)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, builtins.float)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is builtins.float

    def __hash__(cls) -> builtins.int:
        return hash(builtins.float)


class _Float(metaclass=_LooksLikeFloat):
    """What a model's files call ``float``."""

    def __new__(cls, value: Any = 0.0) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.item()  # which stays the number that it is said to be
        return _symbolic_float(value) if _is_symbolic(value) else builtins.float(value)


class _Math(ModuleType):
    """What a model's files call ``math``."""

    def __getattr__(self, name: str) -> Any:
        return getattr(math, name)

    @staticmethod
    def sqrt(x: Any) -> Any:
        return torch.sym_sqrt(x) if _is_symbolic(x) else math.sqrt(x)

    @staticmethod
    def floor(x: Any) -> Any:
        return _truncated(x) if isinstance(x, torch.SymFloat) else math.floor(x)

    @staticmethod
    def ceil(x: Any) -> Any:
        return _truncated(x, up=True) if isinstance(x, torch.SymFloat) else math.ceil(x)

    @staticmethod
    def log2(x: Any) -> Any:
        return _log2(x) if _is_symbolic(x) else math.log2(x)

    @staticmethod
    def log(x: Any, *base: Any) -> Any:
        if not _is_symbolic(x):
            return math.log(x, *base)
        return _log2(x) * (math.log(2) / (math.log(*base) if base else 1.0))


def _symbolic_float(x: Any) -> Any:
    return torch.sym_float(x)  # type: ignore[no-untyped-call]  # untyped in torch


def _log2(x: Any) -> Any:
    return sym_log2(_symbolic_float(x))


def _is_symbolic(x: Any) -> bool:
    return isinstance(x, torch.SymInt | torch.SymFloat)


_MATH = _Math("math")
# NumPy asks an object that it does not know for a method of the function's name. Torch's sizes have none of these.
_AS_METHODS = [(kind, name) for kind in (torch.SymInt, torch.SymFloat) for name in ("sqrt", "log", "log2")]


class _LooksLikeRange(type):
    """``isinstance(x, range)`` keeps its meaning in files that see our ``range``."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.range)


class _Range(metaclass=_LooksLikeRange):
    """What a model's files call ``range``. How many turns of several at a time a size makes is no polynomial in it."""

    def __new__(cls, *bounds: Any) -> Any:
        if len(bounds) == 3 and any(map(_is_symbolic, bounds)) and bounds[2] not in (1, -1):
            start, stop, step = bounds
            count = (stop - start + step - 1) // step if step > 0 else (start - stop - step - 1) // -step
            return builtins.range(start, start + step * builtins.int(count), step)
        return builtins.range(*bounds)


def _truncated(value: torch.SymFloat, up: bool = False) -> Any:
    """The integer part of a positive number made of sizes, or the next integer, with its decimal factors as the fractions they are."""
    made = _fraction(value)
    if made is None:
        return math.ceil(value) if up else builtins.int(value)
    numerator, denominator, env = made
    return _divided(numerator + denominator - 1 if up else numerator, denominator, env)


def _rounded(value: Any, *digits: Any, **named: Any) -> Any:
    """What a model's files call ``round``."""
    if digits or named or not _is_symbolic(value):
        return builtins.round(value, *digits, **named)
    made = None if isinstance(value, torch.SymInt) else _fraction(value)
    if made is None:
        return value if isinstance(value, torch.SymInt) else builtins.round(value)
    numerator, denominator, env = made
    if denominator == 1:
        return _divided(numerator, denominator, env)
    # A half goes to the even side, which no closed form says: that there is none is a condition of the step.
    if denominator % 2 == 0 and _divided(2 * numerator + denominator, 1, env) % (2 * builtins.int(denominator)) == 0:
        return builtins.round(value)
    return _divided(2 * numerator + denominator, 2 * denominator, env)


def _fraction(value: torch.SymFloat) -> tuple[Any, Any, SizeEnv] | None:
    """A number made of sizes as numerator and denominator, or nothing where it is no such number."""
    exact, env = _exact(value.node.expr), value.node.shape_env
    if exact is None or not isinstance(env, SizeEnv):
        return None
    numerator, denominator = sp.fraction(sp.together(sp.expand(exact)))
    return sp.expand(numerator), sp.expand(denominator), env


def _divided(numerator: Any, denominator: Any, env: SizeEnv) -> Any:
    whole = sp.expand(numerator) if denominator == 1 else FloorDiv(sp.expand(numerator), denominator)
    return env.create_symintnode(whole, hint=env.at_hints(whole))


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
def symbolic_numbers() -> Iterator[None]:
    """Context in which ``int``, ``float``, ``range``, ``round`` and ``math`` in a model's files, and NumPy's functions, keep sizes as
    symbols."""
    changed: list[tuple[dict[str, Any], str, Any]] = []
    for names in _FILES.of_models([*sys.modules.values()]):
        taken = _element_types(names["__file__"])
        changed += [(names, name, None) for name in ("int", "float") if name not in names and name not in taken]
        changed += [(names, name, None) for name in ("range", "round") if name not in names]
        changed += [(names, "math", math)] if names.get("math") is math else []
    for names, name, _ in changed:
        names[name] = {"int": _Int, "float": _Float, "math": _MATH, "range": _Range, "round": _rounded}[name]
    for kind, name in _AS_METHODS:
        setattr(kind, name, getattr(_MATH, name))
    power = torch.SymInt.__rpow__
    torch.SymInt.__rpow__ = _power_of_a_number  # type: ignore[method-assign]  # put back below
    try:
        yield
    finally:
        for names, name, old in changed:
            if old is None:
                names.pop(name, None)
            else:
                names[name] = old
        torch.SymInt.__rpow__ = power  # type: ignore[method-assign]  # as it was
        for kind, name in _AS_METHODS:
            delattr(kind, name)


def _power_of_a_number(exponent: torch.SymInt, base: Any) -> Any:
    """``2 ** size`` grows beyond any polynomial: the size is read as a number."""
    return base ** builtins.int(exponent)


@functools.cache
def _element_types(file: str) -> frozenset[str]:
    """Which of ``int`` and ``float`` a file hands to torch as an element type: torch takes Python's own there and nothing else."""
    try:
        source = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:  # a module without its source
        return frozenset()
    return frozenset(_ELEMENT_TYPE.findall(source))


class _Files:
    """The names of modules that may hold a model's code. Of the thousands that are loaded, most are asked about once."""

    def __init__(self) -> None:
        self._loaded: list[ModuleType] = []
        self._found: list[dict[str, Any]] = []

    def of_models(self, loaded: list[ModuleType]) -> list[dict[str, Any]]:
        if len(loaded) != len(self._loaded) or not all(map(operator.is_, loaded, self._loaded)):
            self._loaded, self._found = loaded, [vars(module) for module in loaded if _of_a_model(module)]
        return self._found


_FILES = _Files()


def _of_a_model(module: ModuleType) -> bool:
    """Whether a file may hold a model's code: not torch, not Python's own, not what records and measures."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and _is_of_a_model(module.__name__, file)


@functools.cache
def _is_of_a_model(name: str, file: str) -> bool:
    if not file.endswith(".py") or name.partition(".")[0] in _LEFT_ALONE:
        return False
    if file.startswith(_INSTALLED):
        return False
    return "site-packages" in file or not file.startswith(_STANDARD_LIBRARY)

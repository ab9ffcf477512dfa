"""``int(size)``, ``float(size)`` and ``math.sqrt(size)`` as models write them, on symbolic sizes.

Python's own must return plain numbers, so ``int(width * 0.25)`` would read the width as one number. While a model is built and
run, its own files (and two of torch's) see an ``int``, a ``float`` and a ``math`` that leave symbolic sizes symbolic. A number that
comes out of a size and never becomes one (an attention scale) does no harm; one that does become a size again must be written in
closed form, or the size it came from is read as a number after all.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import sympy as sp
import torch

from calc.platform.model_files import FILES
from calc.platform.replaced import replaced
from calc.platform.torch_private import sym_log2
from calc.trace.symbolic_sizes import SizeEnv

_WORD = re.compile(r"\b(?:int|float|range|len|type)\b")
# Each begins with a literal, which a search finds several times as fast.
_ELEMENT_TYPES = [
    re.compile(rf"{before}(int|float)\s*[,)]")
    for before in (r"dtype(?<=\bdtype)\s*=\s*", *(rf"\.{name}\((?:[^()\n]*,)?\s*" for name in ("to", "type", "view")))
]


class _LooksLike(type):
    """The metaclass of types that replace Python's in a model's files: ``isinstance`` and comparisons of types behave as before, and accept
    sizes as well."""

    python_type: type
    symbolic: tuple[type, ...] = ()

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, (cls.python_type, *cls.symbolic))

    def __subclasscheck__(cls, other: type) -> bool:
        return other is cls or issubclass(other, (cls.python_type, *cls.symbolic))

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.python_type

    def __hash__(cls) -> builtins.int:
        return hash(cls.python_type)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.python_type, name)


class _Int(metaclass=_LooksLike):
    """What a model's files call ``int``."""

    python_type, symbolic = builtins.int, (torch.SymInt,)

    def __new__(cls, value: Any = 0, *base: Any) -> Any:
        if isinstance(value, torch.SymInt):
            return value
        if isinstance(value, torch.SymFloat):
            return math.trunc(value)
        return builtins.int(value, *base)


class _Float(metaclass=_LooksLike):
    """What a model's files call ``float``."""

    python_type, symbolic = builtins.float, (torch.SymFloat,)

    def __new__(cls, value: Any = 0.0) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.item()  # may be a ``ScalarRead``, which ``builtins.float`` would convert
        return _symbolic_float(value) if _is_symbolic(value) else builtins.float(value)


_MEANT: Mapping[type, type] = {
    **{kind: kind for kind in (builtins.int, builtins.float, bool)},
    torch.SymInt: builtins.int,
    torch.SymFloat: builtins.float,
    torch.SymBool: bool,
}


class _Type:
    """What a model's files call ``type``: that of a size is ``int``, as the file sees it. Its attributes are those of ``type``
    (``type.__hash__(cls)`` in a metaclass), except for operators, which Python looks up in this class."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def __call__(self, value: Any, *parts: Any, **options: Any) -> Any:
        if parts or options:
            return type(value, *parts, **options)
        kind = type(value)
        if kind not in _MEANT:
            return self if kind is type else kind
        return object.__getattribute__(self, "_names").get(_MEANT[kind].__name__, _MEANT[kind])

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, type)

    def __subclasscheck__(self, other: type) -> bool:
        return issubclass(other, type)

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:
        return (type,)

    def __getitem__(self, kind: Any) -> Any:
        return type[kind]

    def __or__(self, other: Any) -> Any:
        return type | other

    def __eq__(self, other: object) -> bool:
        return other is self or other is type

    def __hash__(self) -> builtins.int:
        return hash(type)

    def __getattribute__(self, name: str) -> Any:
        return getattr(type, name)


class _Math(ModuleType):
    """What a model's files call ``math``."""

    def __getattr__(self, name: str) -> Any:
        return getattr(math, name)

    @staticmethod
    def sqrt(x: Any) -> Any:
        root = _whole_root(x)
        return _symbolic_float(root) if root is not None else torch.sym_sqrt(x) if _is_symbolic(x) else math.sqrt(x)

    @staticmethod
    def log2(x: Any) -> Any:
        return _log2(x) if _is_symbolic(x) else math.log2(x)

    @staticmethod
    def log(x: Any, *base: Any) -> Any:
        if not _is_symbolic(x):
            return math.log(x, *base)
        return _log2(x) * (math.log(2) / (math.log(*base) if base else 1.0))

    @staticmethod
    def gcd(*numbers: Any) -> Any:
        return functools.reduce(_common_divisor, numbers, 0) if any(map(_is_symbolic, numbers)) else math.gcd(*numbers)

    @staticmethod
    def isqrt(n: Any) -> Any:
        root = _whole_root(n)
        return math.isqrt(n) if root is None else root


def _symbolic_float(x: Any) -> Any:
    return torch.sym_float(x)  # type: ignore[no-untyped-call]  # untyped in torch


def _log2(x: Any) -> Any:
    return sym_log2(_symbolic_float(x))


def _is_symbolic(x: Any) -> bool:
    return isinstance(x, torch.SymInt | torch.SymFloat)


_MATH = _Math("math")
# The replacements of Python's functions in a model's files, under whatever name: the table goes by identity, since any object may be there.
_INSTEAD: dict[int, Any] = {id(math): _MATH} | {
    id(getattr(math, name)): getattr(_MATH, name) for name in vars(_Math) if not name.startswith("_") and hasattr(math, name)
}
# NumPy calls a method with the function's name on an object that it does not support. Torch's sizes have none of these.
_AS_METHODS = [(kind, name) for kind in (torch.SymInt, torch.SymFloat) for name in ("sqrt", "log", "log2")]


class _Range(metaclass=_LooksLike):
    """What a model's files call ``range``. The trip count of a range with a step is not a polynomial in its end; where the step is a size,
    so are the members."""

    python_type = builtins.range

    def __new__(cls, *bounds: Any) -> Any:
        if len(bounds) == 3 and any(map(_is_symbolic, bounds)) and bounds[2] not in (1, -1):
            start, stop, step = bounds
            count = (stop - start + step - 1) // step if step > 0 else (start - stop - step - 1) // -step
            if _is_symbolic(step):
                return [start + i * step for i in builtins.range(builtins.int(count))]
            return builtins.range(start, start + step * builtins.int(count), step)
        return builtins.range(*bounds)


def _common_divisor(a_size: Any, b_size: Any) -> Any:
    """The greatest common divisor of two sizes, where it has one form at all sizes: one cofactor is 1, or both are numbers."""
    size = a_size if isinstance(a_size, torch.SymInt) else b_size
    if not isinstance(size, torch.SymInt):
        return math.gcd(a_size, b_size)
    a, b = (n.node.expr if isinstance(n, torch.SymInt) else sp.Integer(n) for n in (a_size, b_size))
    divisor = sp.gcd(a, b)
    left = [sp.cancel(n / divisor) for n in (a, b)]
    if 1 in left or not any(n.free_symbols for n in left):
        return _size(divisor * sp.gcd(*left), size.node.shape_env)
    return math.gcd(a_size, b_size)


def _whole_root(size: Any) -> Any:
    """The root of a size that is a square, or None."""
    if not isinstance(size, torch.SymInt):
        return None
    root = sp.sqrt(sp.factor(size.node.expr))
    return _size(root, size.node.shape_env) if root.is_polynomial(*root.free_symbols) else None


def _index(value: Any) -> Any:
    """``operator.index``."""
    return value if isinstance(value, torch.SymInt) else value.__index__()


def _size(expr: Any, env: SizeEnv) -> Any:
    return env.create_symintnode(sp.expand(expr), hint=env.at_hints(sp.expand(expr)))


def _length(value: Any) -> Any:
    """What a model's files call ``len``. Python's own must return a plain number."""
    return value.shape[0] if isinstance(value, torch.Tensor) and value.dim() else builtins.len(value)


_INSTEAD[id(operator.index)] = _index
_BUILTINS: Mapping[str, Any] = {"int": _Int, "float": _Float, "range": _Range, "len": _length}
# What torch's own layers calculate with sizes: the bound of Bilinear's weights, the scale of attention that returns its weights.
_OF_TORCH: Mapping[ModuleType, tuple[str, ...]] = {
    torch.nn.modules.linear: ("math",),
    torch.nn.functional: ("math", "float"),
}
_MISSING = object()
for _name, _kind in _BUILTINS.items():
    _kind.__name__ = _name  # what ``type(x).__name__`` returns


@contextlib.contextmanager
def symbolic_numbers() -> Iterator[None]:
    """Context in which ``int``, ``float``, ``range``, ``len`` and ``math`` in a model's files, and NumPy's functions, keep sizes as
    symbols."""
    changed: list[tuple[dict[str, Any], str, Any]] = []
    modules = FILES.names()
    for names in modules:
        changed += [(names, name, _BUILTINS.get(name)) for name in _replaced_in(names["__file__"]) if name not in names]
    changed += [(names, name, _INSTEAD[id(value)]) for names, name, value in _from_python(modules)]
    changed += [(vars(file), name, _MATH if name == "math" else _BUILTINS[name]) for file, seen in _OF_TORCH.items() for name in seen]
    before = [(names, name, names.get(name, _MISSING)) for names, name, _ in changed]
    for names, name, replacement in changed:
        names[name] = replacement
    for names in modules:
        if names.get("type", _MISSING) is None:
            names["type"] = _Type(names)  # of the types that the file sees now
    for kind, name in _AS_METHODS:
        setattr(kind, name, getattr(_MATH, name))
    powers = {"__pow__": _rooting(torch.SymInt.__pow__), "__rpow__": _power_of_a_number}
    try:
        with replaced(operator, index=_index), replaced(torch.SymInt, **powers):
            yield
    finally:
        for names, name, old in before:
            if old is _MISSING:
                names.pop(name, None)
            else:
                names[name] = old
        for kind, name in _AS_METHODS:
            delattr(kind, name)


def _rooting(power: Callable[[torch.SymInt, Any], Any]) -> Callable[[torch.SymInt, Any], Any]:
    """``power``, with the root of a square as its size: ``n`` for ``(n * n) ** 0.5``, which doubles make of it as well."""

    def rooting(size: torch.SymInt, exponent: Any) -> Any:
        root = _whole_root(size) if type(exponent) is builtins.float and exponent == 0.5 else None
        return power(size, exponent) if root is None else _symbolic_float(root)

    return rooting


def _power_of_a_number(exponent: torch.SymInt, base: Any) -> Any:
    """``2 ** size`` exceeds any polynomial: the size is read as a number."""
    return base ** builtins.int(exponent)


@functools.cache
def _replaced_in(file: str) -> frozenset[str]:
    """Which of ``int``, ``float``, ``range``, ``len`` and ``type`` a file uses, without an ``int`` or ``float`` that it passes to torch as
    a dtype: torch accepts only Python's own there."""
    try:
        source = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:  # a module without its source
        return frozenset((*_BUILTINS, "type"))
    dtypes = {name for pattern in _ELEMENT_TYPES for name in pattern.findall(source)}
    return frozenset(_WORD.findall(source)) - dtypes


def _from_python(loaded: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], str, Any]]:
    """Functions of Python that ``loaded`` files import under their own names (``from math import sqrt``)."""
    if _NAMED[0] is not loaded:
        _NAMED[:] = loaded, [(names, name, value) for names in loaded for name, value in [*names.items()] if id(value) in _INSTEAD]
    return [(names, name, value) for names, name, value in _NAMED[1] if names.get(name) is value]


_NAMED: list[Any] = [None, []]  # the list of files scanned last, and the names in them

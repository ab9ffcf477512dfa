"""Symbolic sizes as the integers that Python code takes them for.

``isinstance(size, int)`` is true in a model's code, in the libraries that it calls, and in torch's layers: otherwise a size would take
another branch, or raise an error. Only torch's symbolic machinery must see its own classes. A size can also be formatted, hashed, and
passed to ``divmod``; its copy is the size itself.

A hash cannot be a function of a symbol's value, and a table may contain numbers as well as sizes. All sizes of a trace have one hash, so
two of them in a table are compared, which is a guard. Whether a number in the table equals the size is only known at the hints of each
trace, so the line that hashes is noted with those that read values (``SizeEnv.number_reads``).
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import torch

from calc.platform.replaced import replaced
from calc.trace.symbolic_sizes import SizeEnv

_PYTHON_TYPES = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
# Layers and optimizers are written for integers; the rest of torch distinguishes sizes from integers by class, as does this package.
_WRITTEN_FOR_INTEGERS = ("torch.nn.", "torch.optim.", "torch.distributions.", "torch.backends.", "calc.models.")
_TELLS_APART = ("torch", "sympy", "calc")
_OF_ABSTRACT_CLASSES = ("abc", "typing", "numbers")
# Most of those that distinguish sizes from integers, for speed.
_MOSTLY = frozenset({"torch.fx.experimental.sym_node", "torch.fx.experimental.symbolic_shapes", "torch"})


@contextlib.contextmanager
def like_integers() -> Iterator[None]:
    """Context in which symbolic sizes are instances of ``int`` (other symbolic values of ``float`` and ``bool``), hashed and formatted."""
    methods = {
        "__hash__": _hash,
        "__format__": _formatted,
        "__repr__": functools.partialmethod(_written, torch.SymInt.__repr__),
        "__divmod__": lambda self, other: (self // other, self % other),
        "__rdivmod__": lambda self, other: (other // self, other % self),
        "__invert__": lambda self: -self - 1,
        "__and__": functools.partialmethod(_masked, torch.SymInt.__and__),
        "__floor__": _itself,
        "__ceil__": _itself,
        "__trunc__": _itself,
        "__round__": _rounded,
        "real": property(_itself),
        "numerator": property(_itself),
        "imag": 0,
        "denominator": 1,
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(_with(torch.SymInt, methods))
        for kind, python_type in _PYTHON_TYPES.items():
            # A deep copy of the class's own has an environment of its own, in which its guards would be lost.
            stack.enter_context(_with(kind, {"__copy__": _itself, "__deepcopy__": _itself}))
            stack.enter_context(_instances_of(kind, python_type))
        stack.enter_context(replaced(json.encoder, _make_iterencode=_encoding_sizes, c_make_encoder=None))
        stack.enter_context(replaced(json.JSONEncoder, encode=functools.partialmethod(_encode, json.JSONEncoder.encode)))
        yield


_iterencode = json.encoder._make_iterencode  # type: ignore[attr-defined]  # private
_encoded: list[torch.SymInt] = []


def _encoding_sizes(*args: Any, **kwargs: Any) -> Any:
    """The encoder of JSON, which writes a size as its expression. Python's own calls a method of ``int`` on it."""

    def written(number: Any) -> str:
        if not isinstance(number, torch.SymInt):
            return int.__repr__(number)
        _encoded.append(number)
        return str(number)

    return _iterencode(*args, **kwargs, _intstr=written)


def _encode(encoder: json.JSONEncoder, original: Callable[..., str], value: Any) -> str:
    """The JSON of a value. As of a size alone, comparing the text of sizes reads their numbers."""
    before = len(_encoded)
    text = original(encoder, value)
    sizes = [size for size in _encoded[before:] if isinstance(size.node.shape_env, SizeEnv)]
    del _encoded[before:]
    return _Text(text, lambda: [size.node.shape_env.note_number_read(size.node.expr) for size in sizes]) if sizes else text


@contextlib.contextmanager
def _with(kind: type, methods: Mapping[str, Any]) -> Iterator[None]:
    """Context in which ``kind`` has these attributes."""
    added = [name for name in methods if not hasattr(kind, name)]
    for name in added:
        setattr(kind, name, None)  # to be replaced and restored
    try:
        with replaced(kind, **methods):
            yield
    finally:
        for name in added:
            delattr(kind, name)


@contextlib.contextmanager
def _instances_of(kind: type, python_type: type) -> Iterator[None]:
    """Context in which ``isinstance`` takes objects of ``kind`` for ``python_type``: it reads ``__class__`` where the types differ.
    Assigning that attribute would change the class of ``kind`` itself."""
    (attributes,) = gc.get_referents(kind.__dict__)
    attributes["__class__"] = property(functools.partial(_class, kind, python_type))
    _forget_looked_up(kind)
    try:
        yield
    finally:
        del attributes["__class__"]
        _forget_looked_up(kind)


def _forget_looked_up(kind: type) -> None:
    """Invalidate Python's attribute cache of ``kind``, by assigning an attribute."""
    kind.__doc__ = kind.__doc__


def _class(kind: type, python_type: type, _: Any) -> type:
    caller = sys._getframe(1)
    if caller.f_globals.get("__name__", "") in _MOSTLY:
        return kind
    frame: FrameType | None = caller
    while frame is not None and frame.f_globals.get("__name__") in _OF_ABSTRACT_CLASSES:
        frame = frame.f_back
    return kind if frame is not None and _tells_apart(frame.f_globals.get("__name__", "")) else python_type


@functools.cache
def _tells_apart(module: str) -> bool:
    return module.partition(".")[0] in _TELLS_APART and not f"{module}.".startswith(_WRITTEN_FOR_INTEGERS)


def _itself(size: Any, *_: Any) -> Any:
    return size


def _rounded(size: torch.SymInt, digits: int | None = None) -> Any:
    """``round(size)``. Rounding to tens or hundreds reads the size as a number."""
    return size if digits is None or digits >= 0 else builtins.round(builtins.int(size), digits)


def _hash(size: torch.SymInt) -> int:
    env, expr = size.node.shape_env, size.node.expr
    if not isinstance(env, SizeEnv) or not expr.free_symbols:
        return hash(builtins.int(expr))
    return env.hash_of_sizes(size)


class _Text(str):
    """A size as text: its expression. Using it in a name or a message reads no number; measuring or comparing it does."""

    def __new__(cls, text: str, read: Callable[[], Any]) -> _Text:
        made = super().__new__(cls, text)
        made._read = read
        return made

    _read: Callable[[], Any]

    def __len__(self) -> int:
        self._read()
        return super().__len__()

    def __eq__(self, other: object) -> bool:
        self._read()
        return super().__eq__(other)

    def __hash__(self) -> int:
        self._read()
        return super().__hash__()


def _formatted(size: torch.SymInt, _: str) -> str:
    """``format(size)``, whatever the format specification."""
    return str(size)


def _written(size: torch.SymInt, original: Callable[[Any], str]) -> str:
    env, text = size.node.shape_env, original(size)
    return _Text(text, functools.partial(env.note_number_read, size.node.expr)) if isinstance(env, SizeEnv) else text


def _masked(size: torch.SymInt, original: Callable[..., Any], mask: Any) -> Any:
    """``size & 7`` is the remainder by 8."""
    if type(mask) is int and mask >= 0 and mask & (mask + 1) == 0:
        return size % (mask + 1)
    return original(size, mask)

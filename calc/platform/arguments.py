"""Checks of the arguments of public functions. An error names the argument, the value given and what to give, in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from types import UnionType
from typing import Any, NoReturn

from calc.errors import BadInputError, DimensionError

_SHOWN = (bool, int, float, str, bytes, type(None))
_LONGEST = 128  # bits of an integer


def shown(value: object) -> str:
    """A value in a few words. No code of the value's class runs."""
    return written(value) or _sort(value)


def written(value: object) -> str:
    """A value as Python writes it; empty if it is of a type that would run code to be written, or too long a number."""
    if type(value) not in _SHOWN or (isinstance(value, int) and value.bit_length() > _LONGEST):
        return ""
    text = repr(value[:60] if isinstance(value, str | bytes) else value)
    return text if len(text) <= 42 else f"{text[:41]}…"


def _sort(value: object) -> str:
    return f"of {value.bit_length():,} bits" if type(value) is int else f"of type {type(value).__name__[:60]}"


def given(name: str, value: object) -> str:
    """An argument and its value, for a message: ``B = -1``, ``model is of type Foo``."""
    text = written(value)
    return f"{name} = {text}" if text else f"{name} is {_sort(value)}"


def refuse(name: str, value: object, give: str) -> NoReturn:
    """Raises ``BadInputError`` with the argument's name and value, and what to ``give``."""
    raise BadInputError(f"{given(name, value)}: give {give}")


def instance(name: str, value: object, kind: type | UnionType, give: str) -> None:
    """Raises ``BadInputError`` unless ``value`` is of type ``kind``."""
    if not isinstance(value, kind):
        refuse(name, value, give)


def flag(name: str, value: object) -> None:
    """Raises ``BadInputError`` unless ``value`` is a bool."""
    instance(name, value, bool, "True or False")


def seed(value: object) -> None:
    """Raises ``BadInputError`` unless ``value`` is an integer of 32 bits without sign, which every random generator takes."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**32:
        refuse("seed", value, "an integer from 0 to 4294967295")


def count(name: str, value: object, give: str) -> None:
    """Raises ``BadInputError`` unless ``value`` is a number of at least 0."""
    if not isinstance(value, int | float | Fraction) or isinstance(value, bool) or not value >= 0:
        refuse(name, value, give)


def progress(value: object) -> Callable[[str], None]:
    """The function that receives progress lines; for ``None``, one that ignores them."""
    if value is None:
        return _silent
    if not callable(value):
        refuse("progress", value, "a function of one line of text, e.g. print, or leave it out")
    return value


def _silent(_: str) -> None:
    pass


def sizes(value: object, name: str = "sizes") -> dict[str, int]:
    """Sizes by dimension, as integers; their range is checked where they are used. Raises ``DimensionError`` for a non-integer."""
    if value is None:
        return {}
    by_name = keys(name, value, "a dictionary of integers by dimension, e.g. {'B': 8}")
    for dimension, size in by_name.items():
        if isinstance(size, bool) or not isinstance(size, int):
            ending = " is not an integer" if type(size) in _SHOWN else ", not an integer"
            raise DimensionError(f"{given(dimension[:60], size)}{ending}: sizes are integers from 1 to 2**63 - 1")
    return by_name


def keys(name: str, value: object, give: str) -> dict[str, Any]:
    """``value`` as a dictionary whose keys are dimension names. Raises ``BadInputError`` for anything else."""
    if not isinstance(value, Mapping):
        refuse(name, value, give)
    for key in value:
        if not isinstance(key, str):
            refuse(f"a key of {name}", key, "the name of a dimension, e.g. 'B'")
    return dict(value)


def names(name: str, value: object, example: str) -> tuple[str, ...]:
    """A list of names as a tuple. Raises ``BadInputError`` for a single string or a non-string item."""
    give = f"a list of names, e.g. [{example!r}]"
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        refuse(name, value, give)
    items = tuple(value)
    for item in items:
        instance(f"an item of {name}", item, str, f"a name, e.g. {example!r}")
    return items

"""Readers that validate untrusted data: parsed JSON and TOML.

A reader takes a value and returns the validated one, or raises ``Wrong``, to which each level adds its key. Readers compose,
``each(row(text, whole(1)))``, and the type checker infers the result. Nothing is converted: neither ``"3"`` nor true is an integer,
and integers of any size are exact.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from typing import Any, NoReturn, TypeVar

from calc.errors import suggestion

T = TypeVar("T")
Read = Callable[[Any], T]
NUMBER = 10**60  # no integer is larger
TEXT = 1_000_000


class Wrong(Exception):
    """An invalid value. ``place`` lists the keys that lead to it, innermost first."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.place: list[str | int] = []

    def __str__(self) -> str:
        path = "".join(f"[{key}]" if isinstance(key, int) else f".{clipped(key, 40)}" for key in reversed(self.place))
        return f"{path.lstrip('.') or 'it'} {self.args[0]}"


def clipped(text: str, most: int) -> str:
    """``text`` in at most ``most`` characters, with … where it was longer."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def refuse(value: Any, expected: str) -> NoReturn:
    """Raises ``Wrong``, which says what the value is and what is ``expected``."""
    match value:
        case list() | dict():
            shown = f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
        case int() if abs(value) >= NUMBER and not isinstance(value, bool):
            shown = f"a number of about {value.bit_length() * 3 // 10} digits"
        case str():
            shown = repr(clipped(value, 60))
        case None | bool() | int() | float():
            shown = json.dumps(value)
        case _:  # types of TOML that JSON lacks: exact decimals, dates
            shown = clipped(str(value), 60)
    raise Wrong(f"is {shown}, expected {expected}")


def text(value: Any) -> str:
    """A reader of text."""
    if type(value) is not str or len(value) > TEXT:
        refuse(value, "text")
    return value


def short(most: int) -> Read[str]:
    """A reader of text of at most ``most`` characters."""

    def read(value: Any) -> str:
        if type(value) is not str or len(value) > most:
            refuse(value, f"text of at most {most:,} characters")
        return value

    return read


def flag(value: Any) -> bool:
    """A reader of true and false."""
    if type(value) is not bool:
        refuse(value, "true or false")
    return value


def whole(least: int, below: int = NUMBER, label: str = "an integer") -> Read[int]:
    """A reader of an integer from ``least`` up to, but not including, ``below``; true and false are not integers."""
    expected = f"{label} from {least} on" if below == NUMBER else f"{label} from {least} to {_power(below - 1)}"

    def read(value: Any) -> int:
        if type(value) is not int or not least <= value < below:
            refuse(value, expected if below > least else "nothing: there is none to refer to")
        return value

    return read


def _power(number: int) -> str:
    """A number for a message: a power of ten from 10^6 on as ``10^n``, others as digits."""
    digits = str(number)
    return f"10^{len(digits) - 1}" if len(digits) > 6 and digits.strip("0") == "1" else digits


def written(read: Read[int]) -> Read[int]:
    """A reader of an integer that may also be written as a string of digits, as integers beyond 2**53 are in JSON."""

    def digits(value: Any) -> int:
        return read(int(value) if type(value) is str and value.isascii() and value.isdigit() and len(value) < 40 else value)

    return digits


def one_of(choices: Collection[Any], label: str) -> Read[Any]:
    """A reader of one of ``choices``; ``label`` names them."""
    def read(value: Any) -> Any:
        if type(value) not in (str, int) or value not in choices:
            refuse(value, f"{label}: {', '.join(map(str, choices))}" if choices else f"{label}, of which there is none")
        return value

    return read


def positive(value: Any) -> Fraction:
    """A number above 0 as the exact fraction of its decimal digits."""
    if type(value) not in (int, float) or not 0 < value < math.inf:
        refuse(value, "a number above 0")
    return Fraction(str(value))


def maybe(read: Read[T]) -> Read[T | None]:
    """A reader of null or what ``read`` reads."""
    return lambda value: None if value is None else read(value)


def each(read: Read[T], least: int = 0) -> Read[tuple[T, ...]]:
    """A reader of a list of ``least`` or more entries."""

    def entries(value: Any) -> tuple[T, ...]:
        if type(value) is not list or len(value) < least:
            refuse(value, f"a list of at least {least}" if least else "a list")
        values: list[T] = []
        try:
            for item in value:
                values.append(read(item))
        except Wrong as wrong:
            wrong.place.append(len(values))
            raise
        return tuple(values)

    return entries


def row(*reads: Read[Any], least: int | None = None) -> Read[list[Any]]:
    """A reader of a list with one entry per reader; entries after the first ``least`` may be left out."""
    most = len(reads)
    fewest = most if least is None else least

    def entries(value: Any) -> list[Any]:
        if type(value) is not list or not fewest <= len(value) <= most:
            refuse(value, f"a list of {most}")
        values: list[Any] = []
        try:
            for read, item in zip(reads, value, strict=False):
                values.append(read(item))
        except Wrong as wrong:
            wrong.place.append(len(values))
            raise
        return values

    return entries


def mapping(key: Read[str], read: Read[T]) -> Read[dict[str, T]]:
    """A reader of an object with any keys."""
    def entries(value: Any) -> dict[str, T]:
        if type(value) is not dict:
            refuse(value, "an object")
        values: dict[str, T] = {}
        name = ""
        try:
            for name, item in value.items():
                values[key(name)] = read(item)
        except Wrong as wrong:
            wrong.place.append(name)
            raise
        return values

    return entries


def part(data: Any, key: str, read: Read[T]) -> T:
    """The value of a required key. Raises ``Wrong`` if ``data`` is not an object or lacks the key."""
    if type(data) is not dict:
        refuse(data, "an object")
    if key not in data:
        raise Wrong(f"lacks {key!r}")
    try:
        return read(data[key])
    except Wrong as wrong:
        wrong.place.append(key)
        raise


def at(data: Any, path: str, read: Read[T]) -> T:
    """The value at a required path of keys, e.g. ``"time.measured.clock"``."""
    key, _, inner_path = path.partition(".")
    return part(data, key, (lambda inner: at(inner, inner_path, read)) if inner_path else read)


def optional(data: Any, key: str, read: Read[T]) -> T | None:
    """The value of a key; ``None`` if it is missing or null."""
    return None if type(data) is dict and key not in data else part(data, key, maybe(read))


def table(value: Any, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    """An object with all of ``required``, some of ``optional``, and no other key."""
    if type(value) is not dict:
        refuse(value, f"a table with {', '.join(required)}")
    for key in required:
        if key not in value:
            raise Wrong(f"lacks {key}: an entry needs {', '.join(required)}")
    for key in value:
        if key not in required and key not in optional:
            raise Wrong(f"has an unknown key {clipped(key, 40)!r}: {suggestion(key, (*required, *optional))}")
    return value

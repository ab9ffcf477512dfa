"""Units as a type: only amounts of the same unit add up, and only ``byte_size * elements`` makes bytes.

FLOP is an amount, FLOP/s a rate; bytes are exact integers; GB = 10**9 and GiB = 2**30 are never confused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

from calc.errors import BadInputError, UnitError, suggestion


class Unit(Enum):
    """What a number counts. The value is how the unit is written beside it."""

    ELEMENT = "element"
    BYTE = "byte"
    FLOP = "FLOP"

    def __str__(self) -> str:
        return self.value


def _is_zero(operand: object) -> bool:
    """Whether it is the plain 0 with which ``sum`` begins."""
    return type(operand) is int and operand == 0


class QuantityValue(int):
    """An exact integer that knows its unit: an ``int`` everywhere, printed as ``11,322,408,536 bytes``; a format with a specification,
    ``f"{value:d}"``, has its digits.

    Sums and differences of such values keep the unit, and raise ``UnitError`` if the units differ; a plain 0 fits every unit, so that
    ``sum`` works. All further arithmetic, also with plain integers, gives plain numbers.
    """

    unit: Unit

    def __new__(cls, value: int, unit: Unit = Unit.ELEMENT) -> QuantityValue:
        number = super().__new__(cls, value)
        number.unit = unit
        return number

    def __str__(self) -> str:
        return f"{self:,} {self.unit}{'s' if self != 1 and self.unit is not Unit.FLOP else ''}"

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec else str(self)

    def __add__(self, other: int) -> int:
        return self._with_unit(super().__add__(other), other, "add")

    def __radd__(self, other: int) -> int:
        return self._with_unit(super().__radd__(other), other, "add")

    def __sub__(self, other: int) -> int:
        return self._with_unit(super().__sub__(other), other, "subtract")

    def _with_unit(self, result: int, operand: int, verb: str) -> int:
        """``result`` in the common unit; plain where ``operand`` is a number without a unit."""
        if isinstance(operand, QuantityValue) and operand.unit is not self.unit:
            raise UnitError(f"cannot {verb} {operand.unit} and {self.unit}: {operand} with {self}")
        return QuantityValue(result, self.unit) if isinstance(operand, QuantityValue) or _is_zero(operand) else result


@dataclass(frozen=True, slots=True)
class Amount:
    """A count with its unit. The count is an ``int`` or a polynomial; both add and multiply alike."""

    count: Any
    unit: Unit

    def __add__(self, other: Amount) -> Amount:
        self._require_same_unit(other, "add")
        return Amount(self.count + other.count, self.unit)

    def __sub__(self, other: Amount) -> Amount:
        self._require_same_unit(other, "subtract")
        return Amount(self.count - other.count, self.unit)

    def _require_same_unit(self, second: Amount, verb: str) -> None:
        if not isinstance(second, Amount):
            raise UnitError(f"cannot {verb} a bare number and {self.unit}: give the number a unit, e.g. Amount(n, Unit.{self.unit.name})")
        if second.unit is not self.unit:
            raise UnitError(f"cannot {verb} {second.unit} and {self.unit}: {second.count} {second.unit} with {self.count} {self.unit}")


def bytes_of(elements: Amount, byte_size: int) -> Amount:
    """Bytes taken by ``elements`` of ``byte_size`` bytes each: the one way from elements to bytes."""
    if elements.unit is not Unit.ELEMENT:
        raise UnitError(f"only elements have a byte size, not {elements.unit}: {elements.count} {elements.unit}")
    return Amount(elements.count * byte_size, Unit.BYTE)


def singular(unit: str) -> str:
    """``devices`` is one device, ``micro-batches`` one micro-batch, ``kinds of operators`` one kind of operators."""
    first, space, tail = unit.partition(" ")
    return (first.removesuffix("es") if first.endswith("ches") else first.removesuffix("s")) + space + tail


EXACT_IN_A_DOUBLE = 2**53


def number(value: int | None) -> int | str | None:
    """``value`` as JSON can carry it: an integer beyond 2**53 becomes a string of its digits."""
    if value is None or abs(value) <= EXACT_IN_A_DOUBLE:
        return value
    return f"{value:d}"


def fraction(value: Fraction) -> int | str | None:
    """``value`` as JSON can carry it: an integer as ``number`` writes it, another fraction as ``"a/b"``."""
    return number(int(value)) if value.denominator == 1 else str(value)


ITEM_SIZE: dict[str, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "complex128": 16, "complex64": 8, "complex32": 4,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
}  # fmt: skip


def item_size(dtype: str) -> int:
    """Bytes of one element of ``dtype`` (``"float32"`` → 4)."""
    try:
        return ITEM_SIZE[dtype]
    except KeyError:
        raise BadInputError(f"unknown number format {dtype!r}: {suggestion(dtype, sorted(ITEM_SIZE))}") from None


PREFIXES = {"k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6, "Z": 7}  # powers of 1000
_HOUR = 3600
_DAY = 24 * _HOUR
_POUND = Fraction(45359237, 100000)  # grams
Words = dict[str, Fraction]


def _prefixed(*stems: str, unit: Fraction = Fraction(1)) -> Words:
    """The value of each unit in ``stems``, without a prefix and with every prefix."""
    return {f"{prefix}{stem}": unit * 1000**power for stem in stems for prefix, power in {"": 0, **PREFIXES}.items()}


def _bytes(behind: str = "") -> Words:
    binary = {f"{prefix.replace('k', 'K')}iB{behind}": Fraction(1024**power) for prefix, power in PREFIXES.items()}
    words = {f"byte{behind}": Fraction(1), f"bytes{behind}": Fraction(1)}
    return {**_prefixed(f"B{behind}"), f"KB{behind}": Fraction(1000), **binary, **words}


def _each(pairs: Iterable[tuple[str, int | Fraction]]) -> Words:
    """The value of each unit; names separated by spaces (``"day days"``) are synonyms."""
    return {word: Fraction(size) for names, size in pairs for word in names.split()}


# Units by dimension, as multiples of the first one; those of time as multiples of s, counts and shares of 1.
WORDS: dict[str, Words] = {
    "memory": _bytes(),
    "bandwidth": _bytes("/s"),
    "work": _prefixed("FLOP", "FLOPs"),
    "rate": _prefixed("FLOP/s", "FLOPs/s"),
    "time": _each([
        ("ns", Fraction(1, 10**9)), ("µs us", Fraction(1, 10**6)), ("ms", Fraction(1, 1000)), ("s second seconds", 1),
        ("min minute minutes", 60), ("h hour hours", _HOUR), ("day days", _DAY), ("week weeks", 7 * _DAY),
    ]),
    "count": _each([
        ("k K", 10**3), ("M", 10**6), ("B", 10**9), ("T", 10**12),
        ("thousand", 10**3), ("million", 10**6), ("billion", 10**9), ("trillion", 10**12),
    ]),
    "share": _each([("%", Fraction(1, 100))]),
    "money": _each([("USD $", 1), ("k$", 10**3), ("M$", 10**6), ("B$", 10**9)]),
    "money/h": _each([("USD/h", 1)]),
    "power": _prefixed("W"),
    "energy": {**_prefixed("Wh"), **_prefixed("J", unit=Fraction(1, _HOUR))},
    "mass": _each([("g", 1), ("kg", 1000), ("t", 10**6), ("kt", 10**9), ("lb", _POUND)]),
    "intensity": _each([("g/kWh", 1), ("kg/kWh", 1000), ("kg/MWh", 1), ("t/MWh", 1000), ("lb/kWh", _POUND), ("lb/MWh", _POUND / 1000)]),
    "number": {},
}  # fmt: skip
# Accepted unambiguous synonyms; documents use the units above.
TYPED: dict[str, Words] = {
    "bandwidth": {f"{prefix}bit/s": Fraction(1000**power, 8) for prefix, power in PREFIXES.items()},
    "work": {**_prefixed("flop", "flops"), **_each([("PFdays PF-days", _DAY * 10**15)])},
    "rate": _prefixed("FLOPS", "flop/s", "OP/s", "OPS"),
    "time": _each([("sec", 1), ("d", _DAY), ("kh", 10**3 * _HOUR), ("Mh", 10**6 * _HOUR)]),
    "energy": _prefixed("WH"),
    "intensity": _each([("g/KWh", 1), ("kg/KWh", 1000)]),
    "count": _each([("Ki", 2**10), ("Mi", 2**20)]),
    "money/h": _each([("$/h $/hour $", 1)]),
}

"""Units as a type: only amounts of the same unit add up, and only ``byte_size * elements`` makes bytes.

FLOP is an amount, FLOP/s a rate; bytes are exact integers; GB = 10**9 and GiB = 2**30 are never confused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from calc.errors import BadInputError, UnitError


class Unit(Enum):
    """What a number counts. The value is how the unit is written beside it."""

    ELEMENT = "element"
    BYTE = "byte"
    FLOP = "FLOP"

    def __str__(self) -> str:
        return self.value


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

    def _require_same_unit(self, other: Amount, verb: str) -> None:
        if not isinstance(other, Amount):
            raise UnitError(f"cannot {verb} a bare number and {self.unit}: give the number a unit, e.g. Amount(n, Unit.{self.unit.name})")
        if other.unit is not self.unit:
            raise UnitError(f"cannot {verb} {other.unit} and {self.unit}: {other.count} {other.unit} with {self.count} {self.unit}")


def total(amounts: Iterable[Amount], unit: Unit) -> Amount:
    """Sum of ``amounts``, all of which must be of ``unit``. The sum of nothing is 0 of that unit."""
    result = Amount(0, unit)
    for amount in amounts:
        result = result + amount
    return result


def bytes_of(elements: Amount, byte_size: int) -> Amount:
    """Bytes taken by ``elements`` of ``byte_size`` bytes each: the one way from elements to bytes."""
    if elements.unit is not Unit.ELEMENT:
        raise UnitError(f"only elements have a byte size, not {elements.unit}: {elements.count} {elements.unit}")
    return Amount(elements.count * byte_size, Unit.BYTE)


EXACT_IN_A_DOUBLE = 2**53


def number(value: int | None) -> int | str | None:
    """``value`` as JSON can carry it: an integer beyond 2**53 becomes a string of its digits."""
    if value is None or abs(value) <= EXACT_IN_A_DOUBLE:
        return value
    return str(value)


_WRITTEN = re.compile(r"(\d{1,18})(?:\.(\d{1,9}))?\s*([kKMGTP]?)(i?)B")
_POWER = {prefix: power for power, prefix in enumerate(("", "k", "M", "G", "T", "P"))}


def bytes_in(text: str) -> int:
    """``"80GB"`` is 80 * 1000**3 bytes, ``"80GiB"`` 80 * 1024**3; a fraction of a byte is left out.

    >>> bytes_in("1.5KiB")
    1536
    """
    found = _WRITTEN.fullmatch(text.strip())
    if found is None or (found[4] and not found[3]):
        raise BadInputError(f"cannot read {text[:40]!r} as an amount of memory: write it as 80GB (10**9 bytes) or 80GiB (2**30)")
    whole, fraction, prefix, binary = found[1], found[2] or "", found[3].replace("K", "k"), found[4]
    scale: int = (1024 if binary else 1000) ** _POWER[prefix]
    parts: int = 10 ** len(fraction)
    return int(whole + fraction) * scale // parts

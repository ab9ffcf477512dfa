"""Reads entries of accelerators from TOML, and refuses in one line what cannot be one: the catalogue's own file and a user's alike.

Every key is known and of its kind, every rate positive, a sparse rate never below its dense one. Decimals keep the digits that are written.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from calc.errors import BadInputError
from calc.hardware.accelerators import Accelerator, PeakRate, Price
from calc.platform import files

_TERA = 10**12
_LARGEST = 10**18  # of any amount: a device of 10**18 bytes, bytes/s or TFLOP/s is a slip of the pen
_FILE = files.Kind(10**6, "the accelerators of")
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_FORMAT = re.compile(r"[a-z][a-z0-9_]{0,23}")
_REQUIRED = ("name", "vendor", "architecture", "year", "memory", "bandwidth", "source", "peak")
_OPTIONAL = (
    "memory_reported", "memory_note", "link", "inter_node", "watts", "boost_mhz",
    "price", "device_names", "corrections", "note", "recalled",
)  # fmt: skip


def read(path: Path) -> dict[str, Accelerator]:
    """The entries of a user's file, by id."""
    return parse(_FILE.read_text(path), str(path))


def parse(text: str, where: str) -> dict[str, Accelerator]:
    """The entries of ``text``, by id; ``where`` names the file in refusals."""
    try:
        entries = tomllib.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError, ArithmeticError) as error:
        raise BadInputError(f"{where} is not TOML: {error}") from None
    if not entries:
        raise BadInputError(f"{where} has no entry: write one as [my-gpu] with {', '.join(_REQUIRED)}")
    return {name: _accelerator(_Table(where, f"[{name[:40]}]", entry), name) for name, entry in entries.items()}


@dataclass(frozen=True, slots=True)
class _Table:
    """One table of a file, whose values are asked for by kind; refusals name the file, the table and the key."""

    where: str
    path: str
    values: Any

    def refuse(self, words: str) -> BadInputError:
        return BadInputError(f"{self.where}: {self.path} {words}")

    def keys(self, required: tuple[str, ...], optional: tuple[str, ...]) -> None:
        """Refuses what is no table, lacks a key, or has one that is not known."""
        if not isinstance(self.values, Mapping):
            raise self.refuse(f"must be a table with {', '.join(required)}, not {_shown(self.values)}")
        for key in required:
            if key not in self.values:
                raise self.refuse(f"lacks {key}: an entry needs {', '.join(required)}")
        for key in self.values:
            if key not in required and key not in optional:
                raise self.refuse(f"has an unknown key {key[:40]!r}: there are {', '.join((*required, *optional))}")

    def table(self, key: str) -> _Table:
        return _Table(self.where, f"{self.path} {key}", self.values[key])

    def text(self, key: str) -> str:
        value = self.values.get(key, "")
        if not isinstance(value, str) or len(value) > 1000:
            raise self.refuse(f"{key} must be text of at most 1,000 characters, not {_shown(value)}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        items = self.values.get(key, [])
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise self.refuse(f"{key} must be a list of texts, not {_shown(items)}")
        return tuple(items)

    def flag(self, key: str) -> bool:
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise self.refuse(f"{key} must be true or false, not {_shown(value)}")
        return value

    def whole(self, key: str, unit: str) -> int:
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _LARGEST:
            raise self.refuse(f"{key} must be a whole number of {unit} from 1 to 10^18, not {_shown(value)}")
        return value

    def optional_whole(self, key: str, unit: str) -> int | None:
        return self.whole(key, unit) if key in self.values else None

    def amount(self, key: str, unit: str) -> Fraction:
        """A positive number, exactly as its decimal digits are written."""
        value = self.values[key]
        number = value if isinstance(value, Decimal) else Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else None
        if number is None or not number.is_finite() or not Decimal("1e-9") <= number <= _LARGEST:
            raise self.refuse(f"{key} must be a number of {unit} above 0, not {_shown(value)}")
        return Fraction(number)


def _shown(value: object) -> str:
    return (str(value) if isinstance(value, Decimal) else repr(value))[:40]


def _accelerator(entry: _Table, name: str) -> Accelerator:
    if not _ID.fullmatch(name):
        raise entry.refuse("is no id: write small letters, digits, '.', '_' and '-', at most 40")
    entry.keys(_REQUIRED, _OPTIONAL)
    entry.text("memory_note")
    link, link_name = _link(entry, "link")
    inter_node, inter_node_name = _link(entry, "inter_node")
    return Accelerator(
        id=name,
        name=entry.text("name"),
        vendor=entry.text("vendor"),
        architecture=entry.text("architecture"),
        year=entry.whole("year", "years"),
        memory=entry.whole("memory", "bytes"),
        bandwidth=entry.whole("bandwidth", "bytes/s"),
        peaks=_peaks(entry.table("peak")),
        link=link,
        watts=entry.optional_whole("watts", "watts"),
        source=_source(entry),
        recalled=entry.flag("recalled"),
        note=entry.text("note"),
        link_name=link_name,
        inter_node=inter_node,
        inter_node_name=inter_node_name,
        memory_reported=_reported(entry),
        boost_mhz=entry.optional_whole("boost_mhz", "MHz"),
        price=_price(entry.table("price")) if "price" in entry.values else None,
        device_names=entry.texts("device_names"),
        corrections=entry.texts("corrections"),
    )


def _source(entry: _Table) -> str:
    """Where the figures were read: a figure without a source is refused."""
    source = entry.text("source")
    if not source.strip():
        raise entry.refuse("source is empty: say where the figures were read")
    return source


def _reported(entry: _Table) -> int | None:
    """What the driver shows: near the marketed size, which is a low reading (the same number of GiB is 7 % more)."""
    reported, marketed = entry.optional_whole("memory_reported", "bytes"), entry.whole("memory", "bytes")
    if reported is not None and not 9 * marketed <= 10 * reported <= 12 * marketed:
        raise entry.refuse(f"memory_reported = {reported} is not near memory = {marketed}: both are bytes of one device")
    return reported


def _link(entry: _Table, key: str) -> tuple[int | None, str]:
    if key not in entry.values:
        return None, ""
    link = entry.table(key)
    link.keys(("name", "per_direction"), ())
    return link.whole("per_direction", "bytes/s"), link.text("name")


def _price(entry: _Table) -> Price:
    entry.keys(("low", "high", "as_of"), ("basis",))
    low, high = entry.amount("low", "USD per hour"), entry.amount("high", "USD per hour")
    if low > high:
        raise entry.refuse(f"low = {_shown(entry.values['low'])} is above high = {_shown(entry.values['high'])}")
    if not entry.text("as_of").strip():
        raise entry.refuse("as_of is empty: a price is an assumption of a date")
    return Price(low, high, entry.text("as_of"), entry.text("basis"))


def _peaks(entry: _Table) -> dict[str, PeakRate]:
    if not isinstance(entry.values, Mapping) or not entry.values:
        raise entry.refuse('must have a rate of at least one format, as in peak.bf16 = { dense = 312, engine = "tensor" }')
    for dtype in entry.values:
        if not _FORMAT.fullmatch(dtype):
            raise entry.refuse(f"has a format {dtype[:40]!r}: write small letters, digits and '_'")
    return {dtype: _peak(entry.table(dtype)) for dtype in entry.values}


def _peak(entry: _Table) -> PeakRate:
    entry.keys(("dense", "engine"), ("sparse", "recalled", "accumulate"))
    dense = entry.amount("dense", "TFLOP/s")
    sparse = entry.amount("sparse", "TFLOP/s") if "sparse" in entry.values else None
    if sparse is not None and sparse < dense:
        written = {key: _shown(entry.values[key]) for key in ("sparse", "dense")}
        raise entry.refuse(f"sparse = {written['sparse']} is below dense = {written['dense']}: were they swapped?")
    return PeakRate(
        dense * _TERA,
        None if sparse is None else sparse * _TERA,
        entry.text("engine"),
        entry.flag("recalled"),
        entry.text("accumulate"),
    )

"""Reads accelerator entries from TOML, the catalogue and user files alike, and refuses invalid ones in one line.

Every key must be known and of its type, every rate positive, a sparse rate at least the dense one. Decimals keep their digits.
"""

from __future__ import annotations

import re
import tomllib
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from calc.errors import BadInputError
from calc.hardware.accelerators import Accelerator, PeakRate, Price
from calc.platform import files
from calc.platform.reading import Read, Wrong, each, flag, mapping, optional, part, refuse, short, table, text, whole

_TERA = 10**12
_LARGEST = 10**18  # upper limit of any amount: a device of 10**18 bytes, bytes/s or TFLOP/s is a typing error
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
    """The entries of ``text``, by id; ``where`` names the file in error messages."""
    try:
        entries = tomllib.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError, ArithmeticError) as error:
        raise BadInputError(f"{where} is not TOML: {error}") from None
    if not entries:
        raise BadInputError(f"{where} has no entry: write one as [my-gpu] with {', '.join(_REQUIRED)}")
    try:
        return {name: part(entries, name, partial(_accelerator, name)) for name in entries}
    except Wrong as wrong:
        raise BadInputError(f"{where}: {wrong}") from None


def _accelerator(name: str, value: Any) -> Accelerator:
    if not _ID.fullmatch(name):
        raise Wrong("is not an id: write small letters, digits, '.', '_' and '-', at most 40")
    entry = table(value, _REQUIRED, _OPTIONAL)
    optional(entry, "memory_note", _WORDS)
    link, link_name = optional(entry, "link", _link) or (None, "")
    inter_node, inter_node_name = optional(entry, "inter_node", _link) or (None, "")
    return Accelerator(
        id=name,
        name=part(entry, "name", _WORDS),
        vendor=part(entry, "vendor", _WORDS),
        architecture=part(entry, "architecture", _WORDS),
        year=part(entry, "year", _whole("years")),
        memory=part(entry, "memory", _whole("bytes")),
        bandwidth=part(entry, "bandwidth", _whole("bytes/s")),
        peaks=part(entry, "peak", _peaks),
        link=link,
        watts=optional(entry, "watts", _whole("watts")),
        source=part(entry, "source", _said("say where the figures were read")),
        recalled=optional(entry, "recalled", flag) or False,
        note=optional(entry, "note", _WORDS) or "",
        link_name=link_name,
        inter_node=inter_node,
        inter_node_name=inter_node_name,
        memory_reported=_reported(entry),
        boost_mhz=optional(entry, "boost_mhz", _whole("MHz")),
        price=optional(entry, "price", _price),
        device_names=optional(entry, "device_names", each(_WORDS)) or (),
        corrections=optional(entry, "corrections", each(_WORDS)) or (),
    )


_WORDS = short(1000)


def _whole(unit: str) -> Read[int]:
    return whole(1, _LARGEST + 1, f"a whole number of {unit}")


def _said(advice: str) -> Read[str]:
    """A text that is not empty."""

    def read(value: Any) -> str:
        if not _WORDS(value).strip():
            raise Wrong(f"is empty: {advice}")
        return str(value)

    return read


def _amount(unit: str) -> Read[Fraction]:
    """A positive number, exactly as its decimal digits are written."""

    def read(value: Any) -> Fraction:
        number = Decimal(value) if type(value) in (int, Decimal) else None
        if number is None or not number.is_finite() or not Decimal("1e-9") <= number <= _LARGEST:
            refuse(value, f"a number of {unit} above 0")
        return Fraction(number)

    return read


def _reported(entry: Any) -> int | None:
    """Bytes of memory that the driver reports, near the marketed decimal GB (as many GiB are 7 % more); refused if far off."""
    reported, marketed = optional(entry, "memory_reported", _whole("bytes")), part(entry, "memory", _whole("bytes"))
    if reported is not None and not 9 * marketed <= 10 * reported <= 12 * marketed:
        raise Wrong(f"has memory_reported = {reported}, which is not near memory = {marketed}: both are bytes of one device")
    return reported


def _link(value: Any) -> tuple[int, str]:
    entry = table(value, ("name", "per_direction"))
    return part(entry, "per_direction", _whole("bytes/s")), part(entry, "name", _WORDS)


def _price(value: Any) -> Price:
    entry = table(value, ("low", "high", "as_of"), ("basis",))
    low, high = (part(entry, key, _amount("USD per hour")) for key in ("low", "high"))
    if low > high:
        raise Wrong(f"has low = {entry['low']} above high = {entry['high']}")
    return Price(low, high, part(entry, "as_of", _said("a price is an assumption of a date")), optional(entry, "basis", _WORDS) or "")


def _peaks(value: Any) -> dict[str, PeakRate]:
    if type(value) is not dict or not value:
        refuse(value, 'a rate of at least one format, as in peak.bf16 = { dense = 312, engine = "tensor" }')
    for dtype in value:
        if not _FORMAT.fullmatch(dtype):
            raise Wrong(f"has a format {dtype[:40]!r}: write small letters, digits and '_'")
    return mapping(text, _peak)(value)


def _peak(value: Any) -> PeakRate:
    entry = table(value, ("dense", "engine"), ("sparse", "recalled", "accumulate"))
    dense, sparse = part(entry, "dense", _amount("TFLOP/s")), optional(entry, "sparse", _amount("TFLOP/s"))
    if sparse is not None and sparse < dense:
        raise Wrong(f"has sparse = {entry['sparse']} below dense = {entry['dense']}: were they swapped?")
    return PeakRate(
        dense * _TERA,
        None if sparse is None else sparse * _TERA,
        part(entry, "engine", _WORDS),
        optional(entry, "recalled", flag) or False,
        optional(entry, "accumulate", _WORDS) or "",
    )

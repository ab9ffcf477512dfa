"""``napkin list hardware``: accelerators with their rates, sizes and prices, as a table and as plain data. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from calc.derive.to_json import number
from calc.hardware.accelerators import Accelerator, PeakRate, Price, available
from reports.typeset.numbers import significant

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN = ("bf16", "fp32", "fp8")
CONVENTION = (
    "dense TFLOP/s; memory in GB of 10^9 bytes, and in GiB as the driver reports it; bandwidths in GB/s, links per direction; "
    "a rate of which nobody says the format is dense bf16; prices are assumptions of their date, not figures of the maker"
)


def rows(words: Sequence[str] = (), file: str | None = None) -> list[Accelerator]:
    """The accelerators in whose data every one of ``words`` occurs."""
    return [found for found in available(file).values() if all(word.lower() in _text(found) for word in words)]


def document(words: Sequence[str] = (), file: str | None = None) -> dict[str, Any]:
    """All that is known of each, with the convention of the figures; what is not known is ``null``."""
    return {"schema": 1, "convention": CONVENTION, "hardware": [entry(found) for found in rows(words, file)]}


def entry(found: Accelerator) -> dict[str, Any]:
    """One accelerator: amounts in bytes, bytes/s, FLOP/s, watts and USD per hour."""
    return {
        "id": found.id,
        "name": found.name,
        "vendor": found.vendor,
        "architecture": found.architecture,
        "year": found.year,
        "memory": {"bytes": number(found.memory), "reported_by_driver": number(found.memory_reported)},
        "bandwidth": number(found.bandwidth),
        "peaks": {dtype: _peak(peak) for dtype, peak in found.peaks.items()},
        "link": _link(found.link, found.link_name),
        "inter_node": _link(found.inter_node, found.inter_node_name),
        "watts": found.watts,
        "boost_mhz": found.boost_mhz,
        "price": _price(found.price),
        "device_names": list(found.device_names),
        "source": found.source,
        "recalled": found.recalled,
        "corrections": list(found.corrections),
        "note": found.note or None,
    }


def show(words: Sequence[str], out: Console, file: str | None = None) -> int:
    """The table; returns how many rows there were."""
    from rich.text import Text

    from reports.typeset.escape import visible
    from reports.writers.columns import columns

    names = ("year", "GB", "GiB", "GB/s", *_SHOWN, "link", "USD/h")
    made = columns("id", "name", *((name, "right") for name in names))
    chosen = rows(words, file)
    for found in chosen:
        cells = (
            str(found.year),
            _printed(found.memory, 10**9),
            "-" if found.memory_reported is None else significant(Fraction(found.memory_reported, 2**30)),
            _printed(found.bandwidth, 10**9),
            *(_printed(found.peaks[dtype].dense if dtype in found.peaks else None, 10**12) for dtype in _SHOWN),
            _printed(found.link, 10**9),
            _range(found.price),
        )
        made.add_row(Text(found.id), Text(visible(found.name)), *(Text(cell) for cell in cells))
    if chosen:
        out.print(made)
        out.print(Text(CONVENTION, style="dim"))
    return len(chosen)


def _text(found: Accelerator) -> str:
    named = (found.id, found.name, found.vendor, found.architecture, str(found.year), found.link_name, found.note, found.source)
    return "\n".join((*named, *found.peaks)).lower()


def _exact(value: Fraction) -> int | str | None:
    return number(value.numerator) if value.denominator == 1 else str(value)


def _peak(found: PeakRate) -> dict[str, Any]:
    return {
        "dense": _exact(found.dense),
        "sparse": None if found.sparse is None else _exact(found.sparse),
        "engine": found.engine,
        "accumulate": found.accumulate or None,
        "recalled": found.recalled,
    }


def _link(per_direction: int | None, name: str) -> dict[str, Any] | None:
    return None if per_direction is None else {"name": name, "per_direction": number(per_direction)}


def _price(found: Price | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"low": float(found.low), "high": float(found.high), "as_of": found.as_of, "because": found.assumption}


def _printed(value: int | Fraction | None, unit: int) -> str:
    """A published figure with all the digits that were published."""
    return "-" if value is None else f"{float(Fraction(value) / unit):,.9g}"


def _range(found: Price | None) -> str:
    if found is None:
        return "-"
    return f"{float(found.low):g}" if found.low == found.high else f"{float(found.low):g}–{float(found.high):g}"

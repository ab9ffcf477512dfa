"""``napkin list hardware``: accelerators with their rates, sizes and prices, as a table and as plain data. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from calc.derive.to_json import number
from calc.hardware.accelerators import Accelerator, PeakRate, Price, available
from reports.typeset.numbers import significant
from reports.writers.terminal import Terminal, right

_SHOWN = ("bf16", "fp32", "fp8")
CONVENTION = (
    "dense TFLOP/s; memory in GB of 10^9 bytes, and in GiB as the driver reports it; bandwidths in GB/s, links per direction; "
    "rates without a number format are those of dense bf16; prices are dated assumptions, not the maker's"
)


def rows(search_words: Sequence[str] = (), file: str | None = None) -> list[Accelerator]:
    """The accelerators in whose data every one of ``search_words`` occurs."""
    return [each for each in available(file).values() if all(word.lower() in _text(each) for word in search_words)]


def document(search_words: Sequence[str] = (), file: str | None = None) -> dict[str, Any]:
    """All that is known of each, with the convention of the figures; what is not known is ``null``."""
    return {"schema": 2, "convention": CONVENTION, "hardware": [entry(accelerator) for accelerator in rows(search_words, file)]}


def entry(accelerator: Accelerator) -> dict[str, Any]:
    """One accelerator: amounts in bytes, bytes/s, FLOP/s, watts and USD per hour."""
    return {
        "id": accelerator.id,
        "name": accelerator.name,
        "vendor": accelerator.vendor,
        "architecture": accelerator.architecture,
        "year": accelerator.year,
        "memory": {"bytes": number(accelerator.memory), "reported_by_driver": number(accelerator.memory_reported)},
        "bandwidth": number(accelerator.bandwidth),
        "peaks": {dtype: _peak(peak) for dtype, peak in accelerator.peaks.items()},
        "link": _link(accelerator.link, accelerator.link_name),
        "inter_node": _link(accelerator.inter_node, accelerator.inter_node_name),
        "watts": accelerator.watts,
        "boost_mhz": accelerator.boost_mhz,
        "price": _price(accelerator.price),
        "device_names": list(accelerator.device_names),
        "source": accelerator.source,
        "recalled": accelerator.recalled,
        "corrections": list(accelerator.corrections),
        "note": accelerator.note or None,
    }


def show(search_words: Sequence[str], out: Terminal, file: str | None = None) -> int:
    """Write the table; return the number of its rows."""
    chosen = rows(search_words, file)
    if chosen:
        numbers = ("year", "GB", "driver GiB", "GB/s", *_SHOWN, "link", "USD/h")
        out.table(("id", "name", *right(*numbers)), [_cells(accelerator) for accelerator in chosen])
        out.line(CONVENTION, style="dim")
    return len(chosen)


def _cells(accelerator: Accelerator) -> tuple[str, ...]:
    reported, peaks = accelerator.memory_reported, accelerator.peaks
    return (
        accelerator.id,
        accelerator.name,
        str(accelerator.year),
        _printed(accelerator.memory, 10**9),
        "-" if reported is None else significant(Fraction(reported, 2**30)),
        _printed(accelerator.bandwidth, 10**9),
        *(_printed(peaks[dtype].dense if dtype in peaks else None, 10**12) for dtype in _SHOWN),
        _printed(accelerator.link, 10**9),
        _range(accelerator.price),
    )


def _text(accelerator: Accelerator) -> str:
    a = accelerator
    return "\n".join((a.id, a.name, a.vendor, a.architecture, str(a.year), a.link_name, a.note, a.source, *a.peaks)).lower()


def _exact(value: Fraction) -> int | str | None:
    return number(value.numerator) if value.denominator == 1 else str(value)


def _peak(peak: PeakRate) -> dict[str, Any]:
    return {
        "dense": _exact(peak.dense),
        "sparse": None if peak.sparse is None else _exact(peak.sparse),
        "engine": peak.engine,
        "accumulate": peak.accumulate or None,
        "recalled": peak.recalled,
    }


def _link(per_direction: int | None, name: str) -> dict[str, Any] | None:
    return None if per_direction is None else {"name": name, "per_direction": number(per_direction)}


def _price(price: Price | None) -> dict[str, Any] | None:
    if price is None:
        return None
    return {"low": float(price.low), "high": float(price.high), "as_of": price.as_of, "because": price.assumption}


def _printed(value: int | Fraction | None, unit: int) -> str:
    """A published figure to five digits, as many as makers print: 34.36 GB are the 32 GiB of a TPU v4."""
    return "-" if value is None else f"{float(Fraction(value) / unit):,.5g}"


def _range(price: Price | None) -> str:
    if price is None:
        return "-"
    return f"{float(price.low):g}" if price.low == price.high else f"{float(price.low):g}–{float(price.high):g}"

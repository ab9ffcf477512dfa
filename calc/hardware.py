"""Accelerators by id: peak rates by number format, memory and bandwidth as their makers publish them. Torch-free.

The figures stand in ``calc/data/hardware.toml``, each entry with its source. They are published, never measured here.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import resources
from typing import Any

from calc.errors import BadInputError

_TERA = 10**12


@dataclass(frozen=True, slots=True)
class Peak:
    """FLOP/s (operations/s for integers) of one format. ``sparse`` is with two of four elements zero; ``engine`` reaches the rate."""

    dense: Fraction
    sparse: Fraction | None
    engine: str
    recalled: bool


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device. Bytes and bytes/s; ``link`` is per direction, all links together. ``recalled``: not read off ``source``."""

    id: str
    name: str
    vendor: str
    architecture: str
    year: int
    memory: int
    bandwidth: int
    peaks: Mapping[str, Peak]
    link: int | None
    watts: int | None
    source: str
    recalled: bool
    note: str

    def peak(self, dtype: str, *, sparse: bool = False) -> Fraction:
        """FLOP/s of dense products in ``dtype``, or with 2:4 sparsity."""
        found = self.peaks.get(dtype)
        if found is None:
            raise BadInputError(f"{self.name} has no published rate in {dtype[:40]!r}: it has {', '.join(self.peaks)}")
        if not sparse:
            return found.dense
        if found.sparse is None:
            raise BadInputError(f"{self.name} has no published rate in {dtype} with sparsity")
        return found.sparse


@cache
def catalogue() -> Mapping[str, Accelerator]:
    """All accelerators, in the order of the data file."""
    text = resources.files("calc").joinpath("data/hardware.toml").read_text(encoding="utf-8")
    return {name: _read(name, entry) for name, entry in tomllib.loads(text).items()}


def accelerator(name: str) -> Accelerator:
    """The accelerator of that id."""
    known = catalogue()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise BadInputError(
            f"unknown accelerator {name[:40]!r}: {f'did you mean {near[0]!r}, or ' if near else ''}one of {', '.join(known)}"
        )
    return known[name]


def _read(name: str, entry: Mapping[str, Any]) -> Accelerator:
    return Accelerator(
        id=name,
        name=entry["name"],
        vendor=entry["vendor"],
        architecture=entry["architecture"],
        year=entry["year"],
        memory=entry["memory"],
        bandwidth=entry["bandwidth"],
        peaks={dtype: _peak(peak) for dtype, peak in entry["peak"].items()},
        link=entry["link"]["per_direction"] if "link" in entry else None,
        watts=entry.get("watts"),
        source=entry["source"],
        recalled=entry.get("recalled", False),
        note=entry.get("note", ""),
    )


def _peak(entry: Mapping[str, Any]) -> Peak:
    sparse = entry.get("sparse")
    return Peak(_rate(entry["dense"]), None if sparse is None else _rate(sparse), entry["engine"], entry.get("recalled", False))


def _rate(tera: float) -> Fraction:
    """The decimal digits as they are written, not their nearest double."""
    return Fraction(str(tera)) * _TERA

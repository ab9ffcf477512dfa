"""Accelerators by id: peak rates by number format, memory and bandwidth as their makers publish them. Torch-free.

The figures are in ``calc/data/hardware.toml``, each entry with its source. They are published, never measured here. A user's own entries
are in a file of the same layout, named on the command line or in the environment variable ``NAPKIN_HARDWARE``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

from calc.errors import BadInputError, suggestion

DEFAULT_DTYPE = "bf16"
"""The number format of a rate by default: dense matmuls in it. An answer that uses the default says so."""

VARIABLE = "NAPKIN_HARDWARE"
_FEW = 5  # accelerators that a message suggests


@dataclass(frozen=True, slots=True)
class PeakRate:
    """FLOP/s (operations/s for integers) of one format. ``sparse`` is with two of four elements zero; ``engine`` reaches the rate.

    ``accumulate``: what sums are kept in at that rate, empty where it is not stated.
    """

    dense: Fraction
    sparse: Fraction | None
    engine: str
    recalled: bool
    accumulate: str = ""


@dataclass(frozen=True, slots=True)
class Price:
    """USD per device and hour: an assumption of the date ``as_of``, from ``basis``, never a published property."""

    low: Fraction
    high: Fraction
    as_of: str
    basis: str

    @property
    def assumption(self) -> str:
        """The note to show with any number that uses this price."""
        return f"ASSUMPTION of {self.as_of}, on demand ({self.basis})" if self.basis else f"ASSUMPTION of {self.as_of}"


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device. Bytes and bytes/s; links are per direction, all together. ``recalled``: not read off ``source``.

    ``memory`` takes the marketed GB as 10**9 bytes, a low reading; ``memory_reported`` is what the driver shows, where it is known.
    ``link`` joins devices of a node, ``inter_node`` is a typical network per device. ``device_names`` are the driver's for it.
    """

    id: str
    name: str
    vendor: str
    architecture: str
    year: int
    memory: int
    bandwidth: int
    peaks: Mapping[str, PeakRate]
    link: int | None
    watts: int | None
    source: str
    recalled: bool
    note: str
    link_name: str = ""
    inter_node: int | None = None
    inter_node_name: str = ""
    memory_reported: int | None = None
    boost_mhz: int | None = None
    price: Price | None = None
    device_names: tuple[str, ...] = ()
    corrections: tuple[str, ...] = ()

    def peak(self, dtype: str = DEFAULT_DTYPE, *, sparse: bool = False) -> Fraction:
        """FLOP/s of dense matmuls in ``dtype``, or with 2:4 sparsity."""
        rate = self.peaks.get(dtype)
        if rate is None:
            raise BadInputError(f"{self.name} has no published rate in {dtype[:40]!r}: it has {', '.join(self.peaks)}")
        if not sparse:
            return rate.dense
        if rate.sparse is None:
            raise BadInputError(f"{self.name} has no published rate in {dtype} with sparsity")
        return rate.sparse


_FILE = (Path(__file__).parent.parent / "data") / "hardware.toml"


@cache
def catalogue() -> Mapping[str, Accelerator]:
    """All accelerators that come with Napkin, in the order of the data file."""
    from calc.hardware.accelerator_file import parse

    return parse(_text(), "calc/data/hardware.toml")


@cache
def _text() -> str:
    return _FILE.read_text(encoding="utf-8")


@cache
def entry(name: str) -> Accelerator | None:
    """One accelerator of the catalogue, without reading the others."""
    from calc.hardware.accelerator_file import parse

    if "\n" in name or f"\n[{name}]\n" not in _text():
        return None
    start = _text().index(f"\n[{name}]\n")
    end = _text().find("\n[", start + 1)
    return parse(_text()[start : end if end > 0 else None], "calc/data/hardware.toml")[name]


def available(file: str | Path | None = None) -> Mapping[str, Accelerator]:
    """The catalogue and the user's entries: those of the file that ``NAPKIN_HARDWARE`` names, and before them those of ``file``."""
    from calc.hardware.accelerator_file import read

    accelerators = dict(catalogue())
    for path in (os.environ.get(VARIABLE), file):
        if not path:
            continue
        own = read(Path(path))
        for duplicate in own.keys() & catalogue().keys():
            raise BadInputError(f"{path}: [{duplicate}] is the id of an accelerator that comes with Napkin: give yours another one")
        accelerators.update(own)
    return accelerators


def accelerator(name: str, file: str | Path | None = None) -> Accelerator:
    """The accelerator of that id; reads a user's entries only if the catalogue does not have it."""
    built_in = entry(name) if file is None else None
    if built_in is not None:
        return built_in
    accelerators = available(file)
    if name not in accelerators:
        near = _with_words_of(name, accelerators)
        hint = f"did you mean {' or '.join(near)}?" if near else suggestion(name, accelerators)
        raise BadInputError(f"unknown accelerator {name[:40]!r}: {hint}")
    return accelerators[name]


def _with_words_of(name: str, accelerators: Mapping[str, Accelerator]) -> list[str]:
    """The ids of accelerators with every word of ``name`` in their id or name: two for ``A100 80GB``. Empty if none has, or many do."""
    words = re.findall(r"[a-z0-9]+", name[:40].lower())
    texts = {id: re.sub("[^a-z0-9]", "", f"{id} {entry.name}".lower()) for id, entry in accelerators.items()}
    near = [id for id, text in texts.items() if words and all(word in text for word in words)]
    return near if len(near) <= _FEW else []


def of_device(device_name: str, file: str | Path | None = None) -> Accelerator | None:
    """The entry for the driver's name ``device_name``; None unless it matches exactly, since similar names are other devices."""
    return next((entry for entry in available(file).values() if device_name in entry.device_names), None)

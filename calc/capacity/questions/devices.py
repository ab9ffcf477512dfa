"""Values that a device of the catalogue supplies: its dense peak, memory, bandwidth, link, power and price, each with its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from calc.capacity.questions.quantities import quantity
from calc.capacity.questions.question import Variable
from calc.errors import BadInputError
from calc.hardware.accelerators import DEFAULT_DTYPE, Accelerator, Price, accelerator, available

_YES, _NO = ("yes", "true", "1"), ("no", "false", "0")


@dataclass(frozen=True, slots=True)
class Device:
    """A device, and the number format and sparsity that select its peak."""

    accelerator: Accelerator
    dtype: str
    dtype_given: bool
    sparse: bool

    @property
    def rate(self) -> str:
        """The name of the rate."""
        kind = "peak with 2:4 sparsity" if self.sparse else "dense peak"
        return f"{kind} of {self.accelerator.name} in {self.dtype}"


def device(given: Mapping[str, str]) -> Device | None:
    """The device named by ``gpu``, with its dense peak in ``dtype`` (default bf16)."""
    if "gpu" not in given:
        for word in ("sparse", "hardware"):
            if word in given:
                raise BadInputError(f"{word} goes with gpu: give gpu=…, or the rate itself as peak=…")
        return None
    sparse = given.get("sparse", "no").lower()
    if sparse not in _YES + _NO:
        raise BadInputError(f"sparse = {sparse[:40]!r}: write sparse=yes for the rate with 2:4 sparsity")
    if "sparse" in given.get("dtype", ""):
        raise BadInputError(
            f"dtype = {given['dtype'][:40]!r}: a format has no sparsity; for the rate with 2:4 sparsity say sparse=yes beside it"
        )
    entry = accelerator(given["gpu"], given.get("hardware"))
    return Device(entry, given.get("dtype", DEFAULT_DTYPE), "dtype" in given, sparse in _YES)


def of_device(from_: Device, variable: Variable) -> tuple[Fraction, str, str]:
    """The value that a device supplies for a variable, with its meaning and its source."""
    entry = from_.accelerator
    match variable.device:
        case "peak":
            if not from_.dtype_given and from_.dtype not in entry.peaks:
                raise BadInputError(f"{entry.name} has no published rate in {from_.dtype}, the default: give dtype={'|'.join(entry.peaks)}")
            return entry.peak(from_.dtype, sparse=from_.sparse), from_.rate, entry.source
        case "memory":
            return Fraction(entry.memory), f"memory of {entry.name}, a GB as 10^9 bytes", entry.source
        case "item":
            return item_bytes(from_.dtype), f"{variable.meaning} in {from_.dtype}", "its bits over 8"
        case "bandwidth":
            return Fraction(entry.bandwidth), f"memory bandwidth of {entry.name}", entry.source
        case "link":
            return _specified(entry.link, entry, "link", variable), f"links of {entry.name}, per direction, all together", entry.source
        case "power":
            return _specified(entry.watts, entry, "power", variable), f"power of {entry.name}", entry.source
        case "price":
            if entry.price is None:
                raise BadInputError(f"{entry.name} has no price in the catalogue: give {variable.key}=2$/h")
            value, because = middle(entry.price)
            return value, f"price of {entry.name}", because
    raise BadInputError(f"a device has no {variable.device}")


def item_bytes(dtype: str) -> Fraction:
    """Bytes of an element in the format of a rate: the bits that its name has, ``fp8``, ``bf16``, ``tf32`` (stored in 32), over 8."""
    bits = re.search(r"\d+", dtype)
    if bits is None:
        raise BadInputError(f"dtype = {dtype[:40]!r} has no number of bits: give item-bytes=2")
    return Fraction(int(bits[0]), 8)


def _specified(value: int | None, entry: Accelerator, specification: str, variable: Variable) -> Fraction:
    if value is None:
        raise BadInputError(f"{entry.name} has no {specification} in the catalogue: give {variable.key}=…")
    return Fraction(value)


# -- notes and errors on a rate or a memory -------------------------------------------------------------------------------------------


def notes(from_: Device, used: set[str]) -> list[str]:
    """Notes on the specifications in ``used``, by kind."""
    sentences = []
    if "peak" in used and not from_.dtype_given:
        sentences.append(f"dtype was not given: the rate is that of dense {from_.dtype} matmuls; another one is dtype=…")
    if "peak" in used and from_.sparse:
        sentences.append("this is the rate with 2:4 sparsity: no dense matmul reaches it")
    if "memory" in used and from_.accelerator.memory_reported is not None:
        sentences.append(
            f"memory is the maker's number of GB as 10^9 bytes; the driver shows {from_.accelerator.memory_reported:,} bytes"
            f" ({from_.accelerator.memory_reported / 2**30:.1f} GiB)"
        )
    return sentences


def middle(price: Price) -> tuple[Fraction, str]:
    """The price in USD an hour, the middle of the range, and the caveat to show with it."""
    if price.low == price.high:
        return price.low, price.assumption
    return (price.low + price.high) / 2, f"{price.assumption}; the middle of {_dollars(price.low)} to {_dollars(price.high)} an hour"


def _dollars(amount: Fraction) -> str:
    return f"{float(amount):g} $"


def wrongly_dense(peak: Fraction, dtype: str, of: Accelerator | None) -> str:
    """Why a given peak cannot be dense in ``dtype``: it equals the rate of a device with sparsity. Empty otherwise."""
    accelerators = (of,) if of is not None else tuple(available().values())
    if any(dtype in a.peaks and _about(peak, a.peaks[dtype].dense) for a in accelerators):
        return ""
    sparse = [(name, a) for a in accelerators for name, rate in a.peaks.items() if _about(peak, rate.sparse)]
    sparse.sort(key=lambda x: x[0].startswith("int"))  # floating-point formats first
    dense = any(_about(peak, rate.dense) for a in accelerators for rate in a.peaks.values())
    name, near = next((x for x in sparse if x[0] == dtype), ("", None) if dense or not sparse else sparse[0])
    if near is None:
        return ""
    return (
        f"peak = {_tera(peak)} is the rate of {near.name} in {name} with 2:4 sparsity, and {_tera(near.peaks[name].dense)} is the dense one"
    )


def other_peak(peak: Fraction, dtype: str, of: Accelerator) -> str:
    """A note if a given peak differs from that of the device in ``dtype``."""
    if dtype not in of.peaks or _about(peak, of.peaks[dtype].dense):
        return ""
    sentence = f"peak = {_tera(peak)} is not the peak of {of.name} in {dtype}, {_tera(of.peaks[dtype].dense)} dense"
    matching = next((name for name, rate in of.peaks.items() if _about(peak, rate.dense)), "")
    return f"{sentence}; it is that of {matching}: say dtype={matching}" if matching else f"{sentence}: the given value is used"


def _about(typed: Fraction, published: Fraction | None) -> bool:
    """Whether two rates are equal up to a dropped digit: 989 for 989.5."""
    return published is not None and abs(typed - published) * 1000 <= published


def _tera(rate: Fraction) -> str:
    return f"{float(rate) / 1e12:g} TFLOP/s"


_EARLY = "the time was taken before the device had finished, or fewer FLOPs ran"


def above_peak(rate: Fraction, dtype: str, of: Accelerator | None) -> str:
    """The error for a measured rate above the peak in ``dtype``: names the dtypes whose peak allows it, if the device is given."""
    if of is None:
        return (
            f"no device outruns its peak, so the peak is not that of {dtype}, {_EARLY};"
            " give the dense peak of the format and synchronize before timing"
        )
    floating = {name: peak.dense for name, peak in of.peaks.items() if not name.startswith("int")}
    allowing = [f"{name} ({quantity(dense, 'FLOP/s')})" for name, dense in floating.items() if dense >= rate]
    if not allowing:
        return f"{_cannot(rate, dtype, of)}, nor in any other format: {_EARLY}; synchronize before timing"
    formats = allowing[0] if len(allowing) == 1 else f"{', '.join(allowing[:-1])} or {allowing[-1]}"
    ran = f"the matmuls ran in {formats}, with a peak of their own, or {_EARLY}"
    return f"{_cannot(rate, dtype, of)}, whose dense peak is {quantity(of.peak(dtype), 'FLOP/s')}; {ran}"


def beyond_peak(rate: Fraction, dtype: str, of: Accelerator | None) -> str:
    """The error for a planned rate above the peak."""
    if of is None:
        return f"{quantity(rate, 'FLOP/s')} would be needed of each device; take more devices or more time"
    return f"{_cannot(rate, dtype, of)}, whose dense peak is {quantity(of.peak(dtype), 'FLOP/s')}; take more devices or more time"


def _cannot(rate: Fraction, dtype: str, of: Accelerator) -> str:
    return f"{of.name} cannot do {quantity(rate, 'FLOP/s')} in {dtype}"

"""Parses numbers with unit suffixes exactly, and their products: ``70e9``, ``1,082,990``, ``15T``, ``80GB``, ``50%``, ``3.35TB/s``,
``400e3*1024*1024``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from calc.errors import BadInputError
from calc.units import TYPED, WORDS

Typed = str | int | float | Fraction

_LARGEST_EXPONENT = 40  # so that products of several numbers can still be shown as doubles
_LONGEST = 400
_RANGE = f"from 1e-{_LARGEST_EXPONENT} to 1e{_LARGEST_EXPONENT}"


# Unit suffixes by dimension, each as a multiple of the dimension's first unit.
_SUFFIXES = {name: {**words, **TYPED.get(name, {})} for name, words in WORDS.items()}

# For each unit of a variable: its dimension, and how many of the dimension's first unit it is. A number without a suffix is in this unit.
UNITS: dict[str, tuple[str, Fraction]] = {
    "s": ("time", Fraction(1)), "h": ("time", Fraction(3600)), "days": ("time", Fraction(86400)),
    "bytes": ("memory", Fraction(1)), "bytes/s": ("bandwidth", Fraction(1)),
    "FLOP": ("work", Fraction(1)), "FLOP/s": ("rate", Fraction(1)),
    "share": ("share", Fraction(1)), "USD": ("money", Fraction(1)), "USD/h": ("money/h", Fraction(1)),
    "W": ("power", Fraction(1)), "kWh": ("energy", Fraction(1000)), "kg": ("mass", Fraction(1000)), "g/kWh": ("intensity", Fraction(1)),
    "1": ("number", Fraction(1)),
}  # fmt: skip


def dimension(unit: str) -> tuple[str, Fraction]:
    """The dimension of a unit and its factor; a unit outside the table counts things (parameters, devices, layers)."""
    return UNITS.get(unit, ("count", Fraction(1)))


@dataclass(frozen=True, slots=True)
class ParsedValue:
    """A positive number in the unit of its variable, with the suffix as typed."""

    value: Fraction
    suffix: str = ""


_TIMES = re.compile(r"[*·×]")
_CO2 = re.compile(r"\s*CO[2₂]\s?-?(e|eq|equivalent)?\b")  # kgCO2eq/kWh
_SUM = re.compile(r"[^eE\s]\s*\+\s*\d")  # 1e+25 is none
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)\$?(?P<number>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d[\d_]*)(?:\.\d*)?|\.\d+)"
    r"(?:[eE](?P<exponent>[+-]?\d+))?(?:/(?P<below>\d+)(?!\w))?"
)


def read(name: str, typed: Typed, unit: str, *, integer: bool = False) -> ParsedValue:
    """The typed value of ``name`` in ``unit``. Raises BadInputError if it is not positive or its unit is unknown or wrong."""
    number = _read(name, typed if isinstance(typed, str) else _text(name, typed), unit)
    if number.value <= 0:
        raise BadInputError(f"{name} = {_clip(typed)} must be more than 0")
    if not Fraction(1, 10**_LARGEST_EXPONENT) <= number.value <= 10**_LARGEST_EXPONENT:
        raise BadInputError(f"{name} = {_clip(typed)} is out of range: numbers are {_RANGE}")
    if unit == "share" and number.value > 1:
        raise BadInputError(f"{name} = {_clip(typed)} is above 1: {_meant(number)}")
    if integer and number.value.denominator != 1:
        raise BadInputError(f"{name} = {_clip(typed)} is not an integer number of {unit}")
    return number


def device_memory(name: str, typed: str) -> Fraction:
    """Bytes of a device's memory. Raises BadInputError for a number without a unit: it may be meant in GB."""
    size = read(name, typed, "bytes")
    if not size.suffix:
        raise BadInputError(f"{name} {typed[:40]!r} has no unit: write it as 80GB (10**9 bytes) or 80GiB (2**30)")
    return size.value


def _meant(typed: ParsedValue) -> str:
    if 2 <= typed.value <= 100 and not typed.suffix:
        return f"did you mean {float(typed.value / 100):g}, or {float(typed.value):g}%?"
    return "give a share above 0, at most 1 or 100%"


def _text(name: str, typed: int | float | Fraction) -> str:
    """A float counts as its shortest decimal text: 0.1 is exactly one tenth. A value with a unit of its own counts as its digits."""
    if isinstance(typed, bool) or not isinstance(typed, int | float | Fraction):
        raise BadInputError(f"{name} = {_clip(typed)} is not a number")
    if isinstance(typed, int) and typed.bit_length() > 4 * _LONGEST // 2:
        raise BadInputError(f"{name} has too many digits: numbers are {_RANGE}")
    return str(int(typed)) if isinstance(typed, int) else str(typed)


def _read(name: str, text: str, unit: str) -> ParsedValue:
    """A number, or a product of numbers, ``400e3*1024*1024``, of which one may have a unit."""
    text = text.strip()
    if len(text) > _LONGEST:
        raise BadInputError(f"{name} = {_clip(text)} is too long for a number")
    if _SUM.search(text):
        raise BadInputError(f"{name} = {_clip(text)} is a sum: add it up, only products are read, as in 400e3*1024*1024")
    texts = [factor.strip() for factor in _TIMES.split(text)]
    if len(texts) > 1 and not all(texts):
        raise BadInputError(f"{name} = {_clip(text)} lacks a factor: write a product as 400e3*1024*1024")
    factors = [_number(name, factor, unit) for factor in texts]
    if len(factors) == 1:
        return factors[0]
    suffixes = [factor.suffix for factor in factors if factor.suffix]
    if len(suffixes) > 1 and dimension(unit)[0] != "count":
        raise BadInputError(f"{name} = {_clip(text)} has {len(suffixes)} units: give one of the factors a unit")
    if any(factor.value <= 0 for factor in factors):
        raise BadInputError(f"{name} = {_clip(text)}: every factor must be more than 0")
    return ParsedValue(math.prod((factor.value for factor in factors), start=Fraction(1)), suffixes[0] if suffixes else "")


def _number(name: str, text: str, unit: str) -> ParsedValue:
    match = _NUMBER.match(text)
    if match is None:
        raise BadInputError(f"{name} = {_clip(text)} is not a number: write it as 70e9, 15T, 80GB, 30days, 50% or 3.35TB/s")
    exponent = match["exponent"] or "0"
    if len(exponent.lstrip("+-").lstrip("0")) > 2 or abs(int(exponent)) > _LARGEST_EXPONENT:
        raise BadInputError(f"{name} = {_clip(text)} has too large an exponent: numbers are {_RANGE}")
    value = Fraction(re.sub("[_,]", "", match["number"]).rstrip(".") or "0") * Fraction(10) ** int(exponent)
    if match["below"]:
        value = _divided(name, text, value, int(match["below"]))
    suffix = text[match.end() :].strip()
    if text.lstrip("+-").startswith("$"):  # $5M is 5M$, and $2/h is 2$/h
        suffix = f"{suffix}$" if suffix.isalpha() else f"${suffix}"
    value = -value if match["sign"] == "-" else value
    return ParsedValue(value * _factor(name, text, suffix, unit, value), suffix)


def _divided(name: str, text: str, value: Fraction, below: int) -> Fraction:
    if not below:
        raise BadInputError(f"{name} = {_clip(text)} divides by 0")
    return value / below


def _factor(name: str, text: str, suffix: str, unit: str, value: Fraction) -> Fraction:
    """The factor from ``suffix`` to ``unit``."""
    kind, size = dimension(unit)
    if not suffix or suffix == unit:
        return Fraction(1)
    suffixes = _SUFFIXES[kind]
    plain = _CO2.sub("", suffix) if kind in ("mass", "intensity") else suffix
    if plain in suffixes:
        return suffixes[plain] / size
    if unit == "h" and suffix in _SUFFIXES["count"]:  # 2.788M device hours, as papers have them
        return _SUFFIXES["count"][suffix]
    if kind == "bandwidth" and suffix in _SUFFIXES["memory"]:
        raise BadInputError(f"{name} = {_clip(text)} is an amount of memory: {name} is in {unit}, write {float(value):g}{suffix}/s")
    if kind == "memory" and (suffix in _SUFFIXES["bandwidth"] or suffix.endswith(("b/s", "bps"))):
        raise BadInputError(f"{name} = {_clip(text)} is a rate: give an amount of memory, e.g. 80GB")
    if kind in ("memory", "bandwidth"):
        _refuse_ambiguous(name, text, suffix, value)
    elsewhere = [kind for kind, names in _SUFFIXES.items() if suffix in names]
    if elsewhere:
        raise BadInputError(f"{name} = {_clip(text)} is {_NAMES[elsewhere[0]]}: {_expected(name, unit, kind)}")
    near = [word for word in suffixes if word.lower() == suffix.lower()]
    hint = f"did you mean {near[0]}? " if len(near) == 1 else ""
    raise BadInputError(f"{name} = {_clip(text)}: unknown unit {_clip(suffix)}; {hint}{_expected(name, unit, kind)}")


def _refuse_ambiguous(name: str, text: str, suffix: str, value: Fraction) -> None:
    """Refuse the ambiguous suffixes G, Gb and gb."""
    stem = suffix.removesuffix("/s").rstrip("Bbps").upper()
    if stem in ("K", "M", "G", "T", "P") and suffix.lower().rstrip("bps/") == stem.lower():
        shown, per_second = f"{float(value):g}", "/s" if suffix.endswith(("/s", "ps")) else ""
        bits = f" or {shown}{stem}bit/s (bits)" if per_second else ""
        raise BadInputError(
            f"{name} = {_clip(text)} can be read in several ways: write {shown}{stem}B{per_second} (powers of 1000),"
            f" {shown}{stem}iB{per_second} (powers of 1024){bits}"
        )


_NAMES = {
    "memory": "an amount of memory", "bandwidth": "a bandwidth", "work": "an amount of FLOPs", "rate": "a rate of FLOPs", "time": "a time",
    "count": "a count", "share": "a share", "money": "an amount of money", "money/h": "a price an hour", "power": "a power",
    "energy": "an energy", "mass": "a mass", "intensity": "a mass for an energy",
}  # fmt: skip
_EXAMPLES = {
    "count": "70e9, 70B, 15T", "time": "30days, 12h, 5min, 3ms", "memory": "80GB, 80GiB", "bandwidth": "3.35TB/s, 400Gbit/s",
    "work": "1e25, 3640PFdays", "rate": "989.5TFLOP/s", "share": "0.5, 50%", "money": "5e6, $2", "money/h": "2$/h, 2USD/h",
    "power": "700W, 1.2MW", "energy": "500MWh", "mass": "552t", "intensity": "429g/kWh",
    "number": "1.5",
}  # fmt: skip


def _expected(name: str, unit: str, kind: str) -> str:
    is_ = "a plain number: leave its unit out" if unit == "1" else f"in {unit}"
    return f"{f'give a number of {unit}' if name == unit else f'{name} is {is_}'}{_examples(kind)}"


def _examples(kind: str) -> str:
    return f", e.g. {_EXAMPLES[kind]}"


def _clip(typed: object) -> str:
    """A typed text, shortened for a message. Huge integers show no digits: Python refuses to convert them."""
    if isinstance(typed, int) and typed.bit_length() > 1000:
        return f"a number of {typed.bit_length()} bits"
    text = str(typed)
    return repr(text if len(text) <= 40 else f"{text[:30]}…") if isinstance(typed, str) else text[:60]

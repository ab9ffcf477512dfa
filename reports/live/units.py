"""Units in documents, as powers of base units (byte, FLOP, s, USD, W), and the words that name them.

Counts of things (parameters, tokens, devices) have no unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from calc.units import TYPED, WORDS

Kind = tuple[tuple[str, int], ...]
"""(base unit, power) in the order of the names; empty for a number without a unit."""

NUMBER: Kind = ()


def kind(**powers: int) -> Kind:
    """``kind(FLOP=1, s=-1)``: FLOP per second."""
    return tuple(sorted((name, power) for name, power in powers.items() if power))


def times(left: Kind, right: Kind, sign: int = 1) -> Kind:
    """The unit of a product; with ``sign`` = -1 of a quotient."""
    powers = dict(left)
    for name, power in right:
        powers[name] = powers.get(name, 0) + sign * power
    return kind(**powers)


def raised(unit: Kind, power: int) -> Kind:
    """The unit of a power."""
    return kind(**{name: each * power for name, each in unit})


def named(unit: Kind) -> str:
    """The name of a unit: ``FLOP/s``; empty for a number without a unit."""
    above = [_power(name, power) for name, power in unit if power > 0]
    below = [_power(name, -power) for name, power in unit if power < 0]
    return "·".join(above or ["1"] * bool(below)) + ("/" + "/".join(below) if below else "")


def _power(name: str, power: int) -> str:
    return name if power == 1 else f"{name}^{power}"


BYTE, FLOP, SECOND, MONEY, WATT = kind(byte=1), kind(FLOP=1), kind(s=1), kind(USD=1), kind(W=1)
FLOP_RATE, BYTE_RATE, ENERGY = times(FLOP, SECOND, -1), times(BYTE, SECOND, -1), times(WATT, SECOND)

_HOUR = 3600


@dataclass(frozen=True, slots=True)
class UnitWord:
    """A word for a unit: ``GB``. ``kind``: its base units; ``scale``: how many of them it is."""

    text: str
    kind: Kind
    scale: Fraction


# Dimension of calc.units → (base units, how many of them its own unit is). The first meaning of a word is preferred.
_COUNTED: Mapping[str, tuple[Kind, Fraction]] = {
    "memory": (BYTE, Fraction(1)),
    "bandwidth": (BYTE_RATE, Fraction(1)),
    "work": (FLOP, Fraction(1)),
    "rate": (FLOP_RATE, Fraction(1)),
    "time": (SECOND, Fraction(1)),
    "count": (NUMBER, Fraction(1)),
    "share": (NUMBER, Fraction(1)),
    "money": (MONEY, Fraction(1)),
    "money/h": (times(MONEY, SECOND, -1), Fraction(1, _HOUR)),
    "power": (WATT, Fraction(1)),
    "energy": (ENERGY, Fraction(_HOUR)),
}
_FACTORS = ("x", "×", "times")  # 3x
# Counts have no unit.
THINGS = [
    f"{thing}{s}"
    for thing in ("element", "parameter", "param", "weight", "token", "device", "GPU", "node", "sequence", "layer", "head", "step")
    for s in ("", "s")
]


def _words() -> Iterator[UnitWord]:
    for dimension, (unit, size) in _COUNTED.items():
        for text, scale in WORDS[dimension].items():
            yield UnitWord(text, unit, scale * size)
    for name in THINGS:
        yield UnitWord(name, NUMBER, Fraction(1))
        yield UnitWord(f"{name}/s", kind(s=-1), Fraction(1))
    for name in _FACTORS:
        yield UnitWord(name, NUMBER, Fraction(1))


_BY_TEXT: dict[str, list[UnitWord]] = {}
for _word in _words():
    _BY_TEXT.setdefault(_word.text, []).append(_word)


SCALES = ("k", "K", "M", "B", "T", "thousand", "million", "billion", "trillion")
"""Words for a power of ten that may precede another unit: 15 trillion tokens."""
_OF_DEVICES = re.compile(r"\b(?:GPU|device)[- ](?=(?:hour|day)s?$)")


def meanings(text: str) -> list[UnitWord]:
    """The possible meanings of a unit: ``B`` is bytes or billions, ``million hours`` is 3.6e9 s, a ``GPU hour`` is an hour."""
    scale, _, unit = _OF_DEVICES.sub("", text).partition(" ")
    if not unit:
        return list(_BY_TEXT.get(scale, ()))
    scales = [word.scale for word in _BY_TEXT.get(scale, ()) if scale in SCALES and word.kind == NUMBER]
    return [UnitWord(text, word.kind, scales[0] * word.scale) for word in _BY_TEXT.get(unit, ()) if scales]


@lru_cache(maxsize=256)
def words_of(unit: Kind) -> tuple[UnitWord, ...]:
    """The words for a unit, smallest scale first."""
    return tuple(sorted((w for several in _BY_TEXT.values() for w in several if w.kind == unit), key=lambda w: w.scale))


def nearest(text: str, unit: Kind) -> str:
    """The word for ``unit`` that differs from ``text`` only in case, or by an S, or means the same; empty if there is none."""
    names = {word.text.lower(): word.text for word in words_of(unit)}
    short = _abbreviated(text.lower())
    spellings = (spelling for whole in (text.lower(), short) for spelling in (whole, whole.removesuffix("s"), f"{short}/s"))
    return next((names[spelling] for spelling in spellings if spelling in names), "") or _synonym(text, unit)


_ABBREVIATIONS = {
    **dict.fromkeys(("bn", "bln", "bil", "billions"), "billion"), **dict.fromkeys(("mn", "mln", "mio", "mil", "millions"), "million"),
    **dict.fromkeys(("tn", "trn", "trillions"), "trillion"), "thousands": "thousand", "percent": "%", "pct": "%", "dollars": "usd",
}  # fmt: skip
_SPELLED = re.compile(r"(kilo|mega|giga|tera|peta|exa|zetta|kibi|mebi|gibi|tebi|pebi|exbi|zebi)(byte|flop|watt)(s?)(/s|ps|/second)?")
_STEMS = {"byte": "b", "flop": "flop", "watt": "w"}


def _abbreviated(text: str) -> str:
    """A unit in lower case as documents write it: ``gb`` of ``gigabytes``, ``billion`` of ``bn``; the text if it is no spelled unit."""
    spelled = _SPELLED.fullmatch(text)
    if spelled is None:
        return _ABBREVIATIONS.get(text, text)
    prefix = spelled[1][0] + ("i" if spelled[1].endswith("bi") else "")
    return f"{prefix}{_STEMS[spelled[2]]}{'/s' if spelled[4] else ''}"


def _synonym(text: str, unit: Kind) -> str:
    """The word for what only the command line takes as ``text``: ``days`` for ``d``; empty if there is none."""
    for dimension, words in TYPED.items():
        kind_, size = _COUNTED.get(dimension, (None, Fraction(1)))
        scale = words[text] * size if kind_ == unit and text in words else None
        equal = [word.text for word in words_of(unit) if word.scale == scale]
        if equal:
            return f"{equal[0]}s" if f"{equal[0]}s" in equal else equal[0]
    return ""


def binary_scale(text: str) -> Fraction | None:
    """How many ``Ki`` and ``Mi`` of the command line are; ``None`` for another word."""
    return TYPED["count"].get(text)


def per_word(text: str) -> tuple[Kind, Fraction] | None:
    """(base units, scale) of a unit as results write it (``days``, ``FLOP/s``); ``None`` for an unknown one."""
    candidates = meanings(text) or meanings(text.replace("bytes/s", "B/s"))
    return (candidates[0].kind, candidates[0].scale) if candidates else None

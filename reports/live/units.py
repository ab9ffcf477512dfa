"""Units in documents: what a number counts, as powers of a few base units, and the words that write it.

Bytes, FLOP, seconds, dollars, watts; what only counts things (parameters, tokens, devices) is a bare number. ``GB`` is 10⁹ bytes and
``GiB`` 2³⁰, and neither passes for the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

Kind = tuple[tuple[str, int], ...]
"""Base units with their powers, in the order of their names; empty for a bare number."""

NUMBER: Kind = ()


def kind(**powers: int) -> Kind:
    """``kind(FLOP=1, s=-1)``: FLOP per second."""
    return tuple(sorted((name, power) for name, power in powers.items() if power))


def times(left: Kind, right: Kind, sign: int = 1) -> Kind:
    """The unit of a product; with ``sign`` -1, of a quotient."""
    powers = dict(left)
    for name, power in right:
        powers[name] = powers.get(name, 0) + sign * power
    return kind(**powers)


def raised(unit: Kind, power: int) -> Kind:
    return kind(**{name: each * power for name, each in unit})


def named(unit: Kind) -> str:
    """``FLOP/s``; a bare number has no name."""
    above = [_power(name, power) for name, power in unit if power > 0]
    below = [_power(name, -power) for name, power in unit if power < 0]
    return "·".join(above or ["1"] * bool(below)) + ("/" + "/".join(below) if below else "")


def _power(name: str, power: int) -> str:
    return name if power == 1 else f"{name}^{power}"


BYTE, FLOP, SECOND, MONEY, WATT = kind(byte=1), kind(FLOP=1), kind(s=1), kind(USD=1), kind(W=1)
FLOP_RATE, BYTE_RATE, ENERGY = times(FLOP, SECOND, -1), times(BYTE, SECOND, -1), times(WATT, SECOND)

_DECIMAL = {"k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6, "Z": 7}
_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Word:
    """A word behind a number: what it counts, and how many of the base unit one of it is."""

    text: str
    kind: Kind
    scale: Fraction


def _prefixed(stem: str, unit: Kind, one: Fraction = Fraction(1)) -> Iterator[Word]:
    yield Word(stem, unit, one)
    for prefix, power in _DECIMAL.items():
        yield Word(f"{prefix}{stem}", unit, one * 1000**power)


def _bytes(suffix: str, unit: Kind) -> Iterator[Word]:
    yield from _prefixed(f"B{suffix}", unit)
    yield Word(f"KB{suffix}", unit, Fraction(1000))
    for prefix, power in _DECIMAL.items():
        yield Word(f"{'K' if prefix == 'k' else prefix}iB{suffix}", unit, Fraction(1024**power))
    for stem in ("byte", "bytes"):
        yield Word(f"{stem}{suffix}", unit, Fraction(1))


_TIMES: Mapping[str, Fraction | int] = {
    "ns": Fraction(1, 10**9),
    "µs": Fraction(1, 10**6),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": 1,
    "second": 1,
    "seconds": 1,
    "min": 60,
    "minute": 60,
    "minutes": 60,
    "h": _HOUR,
    "hour": _HOUR,
    "hours": _HOUR,
    "day": 24 * _HOUR,
    "days": 24 * _HOUR,
    "week": 168 * _HOUR,
    "weeks": 168 * _HOUR,
}
_COUNTS: Mapping[str, int] = {
    "k": 10**3,
    "K": 10**3,
    "M": 10**6,
    "B": 10**9,
    "T": 10**12,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
# What counts things is a bare number, whatever the things are called.
_THINGS = [
    f"{thing}{s}" for thing in ("element", "parameter", "weight", "token", "device", "GPU", "sequence", "layer", "step") for s in ("", "s")
]


def _words() -> Iterator[Word]:
    yield from _bytes("", BYTE)
    yield from _bytes("/s", BYTE_RATE)
    for stem in ("FLOP", "FLOPs"):
        yield from _prefixed(stem, FLOP)
    for stem in ("FLOP/s", "FLOPs/s"):
        yield from _prefixed(stem, FLOP_RATE)
    for name, size in _TIMES.items():
        yield Word(name, SECOND, Fraction(size))
    for name, count in _COUNTS.items():
        yield Word(name, NUMBER, Fraction(count))
    for name in _THINGS:
        yield Word(name, NUMBER, Fraction(1))
        yield Word(f"{name}/s", kind(s=-1), Fraction(1))
    yield Word("%", NUMBER, Fraction(1, 100))
    for name, dollars in (("USD", 1), ("$", 1), ("k$", 10**3), ("M$", 10**6)):
        yield Word(name, MONEY, Fraction(dollars))
    yield Word("USD/h", times(MONEY, SECOND, -1), Fraction(1, _HOUR))
    yield from _prefixed("W", WATT)
    yield from _prefixed("Wh", ENERGY, Fraction(_HOUR))
    yield from _prefixed("J", ENERGY)


_BY_TEXT: dict[str, list[Word]] = {}
for _word in _words():
    _BY_TEXT.setdefault(_word.text, []).append(_word)


def meanings(text: str) -> list[Word]:
    """What a word behind a number can mean: ``B`` is bytes, or billions."""
    return list(_BY_TEXT.get(text, ()))


def words_of(unit: Kind) -> list[Word]:
    """The words that write a unit, the smallest first."""
    return sorted((w for several in _BY_TEXT.values() for w in several if w.kind == unit), key=lambda w: w.scale)


def per_word(text: str) -> tuple[Kind, Fraction] | None:
    """A unit as results write it (``days``, ``FLOP/s``, ``tokens/s``); ``None`` if it is not known."""
    found = meanings(text) or meanings(text.replace("bytes/s", "B/s"))
    return (found[0].kind, found[0].scale) if found else None

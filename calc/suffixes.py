"""Words behind a number, by what they measure, each as a multiple of one unit: of numbers in questions and in documents.

``GB`` is 10⁹ bytes and ``GiB`` 2³⁰, and neither passes for the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

PREFIXES = {"k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6, "Z": 7}  # powers of 1000
_HOUR = 3600
_DAY = 24 * _HOUR
Words = dict[str, Fraction]


def _prefixed(*stems: str, one: Fraction = Fraction(1)) -> Words:
    """Each of the stems alone, and behind every prefix."""
    return {f"{prefix}{stem}": one * 1000**power for stem in stems for prefix, power in {"": 0, **PREFIXES}.items()}


def _bytes(behind: str = "") -> Words:
    binary = {f"{prefix.replace('k', 'K')}iB{behind}": Fraction(1024**power) for prefix, power in PREFIXES.items()}
    whole = {f"byte{behind}": Fraction(1), f"bytes{behind}": Fraction(1)}
    return {**_prefixed(f"B{behind}"), f"KB{behind}": Fraction(1000), **binary, **whole}


def _each(pairs: Iterable[tuple[str, int | Fraction]]) -> Words:
    """``"day days"`` are two words for the same."""
    return {word: Fraction(size) for words, size in pairs for word in words.split()}


# By dimension; the first word of each is the unit that the others are multiples of, but of time, counts and shares.
WORDS: dict[str, Words] = {
    "memory": _bytes(),
    "bandwidth": _bytes("/s"),
    "work": _prefixed("FLOP", "FLOPs"),
    "rate": _prefixed("FLOP/s", "FLOPs/s"),
    "time": _each([
        ("ns", Fraction(1, 10**9)), ("µs us", Fraction(1, 10**6)), ("ms", Fraction(1, 1000)), ("s second seconds", 1),
        ("min minute minutes", 60), ("h hour hours", _HOUR), ("day days", _DAY), ("week weeks", 7 * _DAY),
    ]),
    "count": _each([
        ("k K", 10**3), ("M", 10**6), ("B", 10**9), ("T", 10**12),
        ("thousand", 10**3), ("million", 10**6), ("billion", 10**9), ("trillion", 10**12),
    ]),
    "share": _each([("%", Fraction(1, 100))]),
    "money": _each([("USD $", 1), ("k$", 10**3), ("M$", 10**6), ("B$", 10**9)]),
    "money/h": _each([("USD/h", 1)]),
    "power": _prefixed("W"),
    "energy": {**_prefixed("Wh"), **_prefixed("J", one=Fraction(1, _HOUR))},
    "number": {},
}  # fmt: skip
# What people type for the same, where it is clear what is meant: a document writes the words above.
TYPED: dict[str, Words] = {
    "bandwidth": {f"{prefix}bit/s": Fraction(1000**power, 8) for prefix, power in PREFIXES.items()},
    "work": {**_prefixed("flop", "flops"), **_each([("PFdays PF-days", _DAY * 10**15)])},
    "rate": _prefixed("FLOPS", "flop/s", "OP/s", "OPS"),
    "time": _each([("sec", 1), ("d", _DAY)]),
    "money/h": _each([("$/h $/hour $", 1)]),
}

"""Derived numbers at the sizes that data decided in a real run.

Where such a size came out the same each time it was met, every quantity is taken there. Where it did not (each expert had its
own number of tokens), a quantity that is linear in it is exact at the mean, and of others nothing can be said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from calc.derivation import Derivation, Quantity
from calc.errors import DimensionError


@dataclass(frozen=True, slots=True)
class Observed:
    """Numbers by quantity; ``open_`` says of those without one why."""

    numbers: Mapping[str, int | None]
    open_: Mapping[str, str]


def at_observed(derivation: Derivation, sizes: Mapping[str, int], decided: Mapping[str, tuple[int, ...]]) -> Observed:
    """Every quantity at ``sizes``, with the sizes that data decide as they came out: place in the code → one each time."""
    seen = {d.name: decided.get(d.decided_at, ()) for d in derivation.dims if d.decided_at}
    numbers: dict[str, int | None] = {}
    open_: dict[str, str] = {}
    for name, quantity in derivation.quantities.items():
        if quantity.text is None:
            numbers[name] = None
            continue
        try:
            numbers[name] = _number(quantity, sizes, seen)
        except (DimensionError, _Undecided) as error:
            numbers[name], open_[name] = None, str(error)
    return Observed(numbers, open_)


class _Undecided(Exception):
    """No number follows from what was observed."""


def _number(quantity: Quantity, sizes: Mapping[str, int], seen: Mapping[str, tuple[int, ...]]) -> int:
    varied = {name: counts for name, counts in seen.items() if len(set(counts)) != 1 or min(counts) < 1}
    if varied and quantity.candidates:
        raise _Undecided(f"{', '.join(varied)} came out differently each time it was met, and a maximum is not that of means")
    base = {**sizes, **{name: counts[0] for name, counts in seen.items() if name not in varied}}
    for name, counts in varied.items():
        base[name] = max(1, min(counts, default=1))
    value = Fraction(quantity.at(**base))
    for name, counts in varied.items():
        slope = _slope(quantity, base, name, sorted(set(varied) - {name}))
        if slope and not counts:
            raise _Undecided(f"the real run never came to where {name} is decided")
        value += slope * (Fraction(sum(counts), len(counts)) - base[name]) if slope else 0
    if value.denominator != 1:
        raise _Undecided(f"it is no integer at the mean of {', '.join(varied)}")
    return int(value)


def _slope(quantity: Quantity, base: Mapping[str, int], name: str, others: list[str]) -> int:
    """By how much the quantity grows with ``name``: the same at small and large sizes, whatever the others, or nothing is said."""
    found = {
        quantity.at(**{**at, name: start + 1}) - quantity.at(**{**at, name: start})
        for at in [dict(base), *({**base, other: base[other] + 1} for other in others)]
        for start in _starts(base, name)
    }
    if len(found) > 1:
        raise _Undecided(f"{name} came out differently each time it was met, and this is not linear in it")
    return found.pop()


def _starts(base: Mapping[str, int], name: str) -> tuple[int, ...]:
    return (base[name], base[name] + 1, base[name] + 2)

"""Derived numbers at the sizes that data decided in a real run.

Where such a size came out the same each time it was met, every quantity is taken there. Where it did not (each expert had its
own number of tokens), a quantity that is linear in it is exact at the mean, and of others nothing can be said.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import sympy as sp

from calc.derive.result import Derivation, Quantity
from calc.errors import DimensionError, NapkinError

Counts = Mapping[str, tuple[int, ...]]

# A sum of n elements is n - 1 additions, and reads its result's place in memory only if there is one.
_FROM_ONE = ("elementwise", "total", "bytes_moved")


@dataclass(frozen=True, slots=True)
class Observed:
    """Numbers by quantity; ``open_`` says of those without one why."""

    numbers: Mapping[str, int | None]
    open_: Mapping[str, str]


def at_observed(
    derivation: Derivation, sizes: Mapping[str, int], decided: Counts, first: Counts, recount: Callable[[], Mapping[str, int]]
) -> Observed:
    """Every quantity at ``sizes`` (all of them), with the sizes that data decide as they came out: place in the code → one each time.

    ``decided`` are those of the second step, which is the one that counts, ``first`` those of the step before. ``recount`` counts a
    recording in which each size comes out as it did: a mean says the same only if every time counts alike, as it does not where the
    first of several layers needs no gradient for its input.
    """
    both = {step: _Met.of(derivation, sizes, counts) for step, counts in ((1, first), (2, decided))}
    recounted = functools.cache(lambda: _or_error(recount))
    numbers: dict[str, int | None] = {}
    open_: dict[str, str] = {}
    for name, quantity in derivation.quantities.items():
        numbers[name] = None
        if quantity.text is None:
            continue
        try:
            numbers[name] = both[1 if name.endswith("first_step") else 2].number(derivation, quantity, recounted)
        except NapkinError as error:
            open_[name] = str(error)
    return Observed(numbers, open_)


@dataclass(frozen=True, slots=True)
class _Met:
    """What one step met: the sizes that were the same throughout, and those that varied."""

    constant: Mapping[str, int]
    varied: Counts

    @classmethod
    def of(cls, derivation: Derivation, sizes: Mapping[str, int], decided: Counts) -> _Met:
        seen = {d.name: decided.get(d.unbacked_at, ()) for d in derivation.dims if d.unbacked_at}
        constant = {name: counts[0] for name, counts in seen.items() if len(set(counts)) == 1 and counts[0] > 0}
        varied = {name: counts for name, counts in seen.items() if name not in constant}
        return cls({**{name: size for name, size in sizes.items() if name not in varied}, **constant}, varied)

    def number(self, derivation: Derivation, quantity: Quantity, recount: Callable[[], Mapping[str, int] | NapkinError]) -> int:
        if not self.varied:
            try:
                return quantity.at(**_free(derivation, self.constant))
            except DimensionError:
                if quantity.candidates:
                    raise
        # Also where the step was never recorded with so few: the recount says whether it runs alike.
        value = _at_means(quantity, self.constant, self.varied)
        recounted = recount()
        if isinstance(recounted, NapkinError):
            raise recounted
        if recounted.get(quantity.name) != value:
            why = f"{_came_out(self.varied)}, and not every time counts alike" if self.varied else "the step runs otherwise at such numbers"
            raise _Undecided(why)
        return value


class _Undecided(NapkinError):
    """No number follows from what was observed."""


def _or_error(recount: Callable[[], Mapping[str, int]]) -> Mapping[str, int] | NapkinError:
    try:
        return recount()
    except NapkinError as error:
        return error


def _free(derivation: Derivation, sizes: Mapping[str, int]) -> dict[str, int]:
    free = {d.name for d in derivation.dims if not d.tied}
    return {name: size for name, size in sizes.items() if name in free}


def _at_means(quantity: Quantity, constant: Mapping[str, int], varied: Counts) -> int:
    """The quantity where its every addend holds at most one of the sizes that varied, and that once."""
    if quantity.candidates:
        raise _Undecided(f"{_came_out(varied)}, and a maximum is not that of means")
    symbols = {str(symbol): symbol for symbol in quantity.expr.free_symbols}
    here = [symbols[name] for name in varied if name in symbols]
    none = [str(symbol) for symbol in here if 0 in varied[str(symbol)]]
    if none and any(part in quantity.name for part in _FROM_ONE):
        raise _Undecided(f"{', '.join(none)} came out as 0 too, and a sum of no elements is not what its rule counts")
    rest = quantity.expr.subs({symbols[name]: size for name, size in constant.items() if name in symbols})
    if not here:
        return int(rest)
    never = [str(symbol) for symbol in here if not varied[str(symbol)]]
    if never:
        raise _Undecided(f"the real run never came to where {', '.join(never)} is decided")
    if not rest.is_polynomial(*here) or sp.Poly(rest, *here).total_degree() > 1:
        raise _Undecided(f"{_came_out(varied)}, and this is not linear in it")
    means = {symbol: Fraction(sum(varied[str(symbol)]), len(varied[str(symbol)])) for symbol in here}
    value = rest.subs({symbol: sp.Rational(mean.numerator, mean.denominator) for symbol, mean in means.items()})
    if not value.is_Integer:
        raise _Undecided(f"it is no integer at the mean of {_names(varied)}")
    return int(value)


def _came_out(varied: Counts) -> str:
    alike = all(len(set(counts)) < 2 for counts in varied.values())
    return f"{_names(varied)} came out {'as 0' if alike else 'differently each time it was met'}"


def _names(varied: Counts) -> str:
    return ", ".join(varied)

"""Derived numbers at the sizes that data decided in a real run.

Where such a size came out the same each time it was met, every quantity is taken there. Where it did not (each expert had its
own number of tokens), a quantity that is linear in it is exact at the mean, and of others nothing can be said.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import sympy as sp

from calc.derivation import Derivation, Quantity
from calc.errors import DimensionError

Counts = Mapping[str, tuple[int, ...]]

# A sum of n elements is n - 1 additions, and reads its result's place in memory only if there is one.
_FROM_ONE = ("elementwise", "total", "bytes_moved")


@dataclass(frozen=True, slots=True)
class Observed:
    """Numbers by quantity; ``open_`` says of those without one why."""

    numbers: Mapping[str, int | None]
    open_: Mapping[str, str]


def at_observed(derivation: Derivation, sizes: Mapping[str, int], decided: Counts) -> Observed:
    """Every quantity at ``sizes`` (all of them), with the sizes that data decide as they came out: place in the code → one each time."""
    seen = {d.name: decided.get(d.decided_at, ()) for d in derivation.dims if d.decided_at}
    constant = {name: counts[0] for name, counts in seen.items() if len(set(counts)) == 1 and counts[0] > 0}
    varied = {name: counts for name, counts in seen.items() if name not in constant}
    known = {**{name: size for name, size in sizes.items() if name not in varied}, **constant}
    numbers: dict[str, int | None] = {}
    open_: dict[str, str] = {}
    apart = _otherwise(derivation, known, varied)
    for name, quantity in derivation.quantities.items():
        numbers[name] = None
        if quantity.text is None:
            continue
        try:
            if apart:
                raise _Undecided(apart)
            numbers[name] = _at_means(quantity, known, varied) if varied else quantity.at(**_free(derivation, known))
        except (DimensionError, _Undecided) as error:
            open_[name] = str(error)
    return Observed(numbers, open_)


class _Undecided(Exception):
    """No number follows from what was observed."""


def _free(derivation: Derivation, sizes: Mapping[str, int]) -> dict[str, int]:
    free = {d.name for d in derivation.dims if not d.tied}
    return {name: size for name, size in sizes.items() if name in free}


def _otherwise(derivation: Derivation, known: Mapping[str, int], varied: Counts) -> str:
    """Why the step may run otherwise than its closed forms say at some of the counts that were met, if it may.

    A question is asked about one such size or two, so all pairs are tried."""
    asked = next((q for q in derivation.quantities.values() if q.text is not None), None)
    for name, counts in varied.items():
        if 0 in counts and all(c.sizes.get(name) != 0 for c in derivation.certificates):
            return f"{name} came out as 0, and the step was not recorded there"
    met = {name: sorted({*counts} - {0}) for name, counts in varied.items()}
    tried = [name for name, counts in met.items() if counts]
    base = {name: met[name][-1] for name in tried}
    for pair in itertools.combinations(tried, 2) if len(tried) > 1 else [tuple(tried)]:
        for counts in itertools.product(*(met[name] for name in pair)):
            try:
                if asked is not None:
                    asked.at(**_free(derivation, {**known, **base, **dict(zip(pair, counts, strict=True))}))
            except DimensionError as error:
                return str(error)
    return ""


def _at_means(quantity: Quantity, known: Mapping[str, int], varied: Counts) -> int:
    """The quantity where its every addend holds at most one of the sizes that varied, and that once."""
    if quantity.candidates:
        raise _Undecided(f"{_came_out(varied)}, and a maximum is not that of means")
    symbols = {str(symbol): symbol for symbol in quantity.expr.free_symbols}
    here = [symbols[name] for name in varied if name in symbols]
    none = [str(symbol) for symbol in here if 0 in varied[str(symbol)]]
    if none and any(part in quantity.name for part in _FROM_ONE):
        raise _Undecided(f"{', '.join(none)} came out as 0 too, and a sum of no elements is not what its rule counts")
    rest = quantity.expr.subs({symbols[name]: size for name, size in known.items() if name in symbols})
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

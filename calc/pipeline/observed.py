"""Derived numbers at the data-dependent sizes of a real run.

If such a size had the same value every time, every quantity is evaluated there. If it varied (each expert had its own number of tokens), a
quantity linear in it is exact at the mean. Others have the number of a trace with every size as observed: certificates compare the closed
forms with traces of equal sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import sympy as sp

from calc.derive.quantities import QUANTITIES
from calc.derive.result import Derivation, Quantity
from calc.errors import DimensionError, NapkinError
from calc.graph.guards import EVERY_EXPERT

Counts = Mapping[str, tuple[int, ...]]

# A sum of n elements costs n - 1 additions and reads its result's memory only if n ≥ 1.
_FROM_ONE = ("elementwise", "total", "bytes_moved")

# What the module has, whichever operators a step runs.
_OF_THE_MODULE = ("parameters", "parameters.non_embedding", "parameters.bytes", "master_weights.bytes")


@dataclass(frozen=True, slots=True)
class Observed:
    """Numbers by quantity; ``open_`` gives the reason for each quantity without one, ``traced`` that of each whose number is a trace's."""

    numbers: Mapping[str, int | None]
    open_: Mapping[str, str]
    traced: Mapping[str, str]


def at_observed(
    derivation: Derivation, sizes: Mapping[str, int], decided: Counts, first: Counts, recount: Callable[[], Mapping[str, int]]
) -> Observed:
    """Every quantity at ``sizes`` (all of them) and at the observed data-dependent sizes: location in the code → one value per occurrence.

    ``decided`` are those of the second step, which counts; ``first`` those of the step before. ``recount`` counts a trace with every size
    of the second step as observed: a mean is valid only if all occurrences cost the same, which fails e.g. if the first of several layers
    needs no gradient for its input.
    """
    both = {step: _ObservedSizes.of(derivation, sizes, counts, recounts=counts == decided) for step, counts in ((1, first), (2, decided))}
    skips = any(a.because == EVERY_EXPERT for a in derivation.assumptions)
    recounted = functools.cache(lambda: _or_error(recount))
    numbers: dict[str, int | None] = {}
    open_: dict[str, str] = {}
    traced: dict[str, str] = {}
    for name, quantity in derivation.quantities.items():
        numbers[name] = None
        if quantity.text is None:
            continue
        try:
            if name in _OF_THE_MODULE:
                numbers[name] = quantity.at(**_free(derivation, sizes))
                continue
            numbers[name], because = both[QUANTITIES[name].step or 2].number(derivation, quantity, recounted, skips)
        except NapkinError as error:
            open_[name] = str(error)
        else:
            traced |= {name: f"derived by a trace with the counts of the run: {because}"} if because else {}
    return Observed(numbers, open_, traced)


@dataclass(frozen=True, slots=True)
class _ObservedSizes:
    """The sizes observed in one step: those that were constant, and those that varied; whether a recount has them too."""

    constant: Mapping[str, int]
    varied: Counts
    recounts: bool

    @classmethod
    def of(cls, derivation: Derivation, sizes: Mapping[str, int], decided: Counts, recounts: bool) -> _ObservedSizes:
        seen = {d.name: decided.get(d.unbacked_at, ()) for d in derivation.dims if d.unbacked_at}
        constant = {name: counts[0] for name, counts in seen.items() if len(set(counts)) == 1 and counts[0] > 0}
        varied = {name: counts for name, counts in seen.items() if name not in constant}
        return cls({**{name: size for name, size in sizes.items() if name not in varied}, **constant}, varied, recounts)

    def number(
        self, derivation: Derivation, quantity: Quantity, recount: Callable[[], Mapping[str, int] | NapkinError], skips: bool
    ) -> tuple[int, str]:
        """The quantity at the observed sizes, and why it is that of the recount; empty if it is that of the closed form. ``skips``: a real
        run may skip an expert, which a recount notices."""
        if not self.varied:
            if skips and isinstance(recounted := recount(), NapkinError):
                raise recounted
            try:
                return quantity.at(**_free(derivation, self.constant)), ""
            except DimensionError:
                if quantity.candidates:
                    raise
        # Also valid if the step was never traced at such small sizes: the recount checks whether it runs the same.
        try:
            value, because = _at_means(quantity, self.constant, self.varied), "not every occurrence costs the same"
        except _NoMean as error:
            value, because = None, str(error)
        recounted = recount()
        if isinstance(recounted, NapkinError):
            raise recounted
        number = recounted.get(quantity.name)
        if value is not None and number == value:
            return value, ""
        if not self.varied:
            raise _Undecided("the step runs other operators at these numbers")
        if number is None or not self.recounts or not all(self.varied.values()):  # a recount has no counts that the run does not show
            raise _Undecided(f"{_variation(self.varied)}, and {because}")
        return number, f"{_variation(self.varied)}, and {because}"


class _Undecided(NapkinError):
    """No number follows from what was observed."""


class _NoMean(_Undecided):
    """The closed form has no number at the mean of sizes that varied."""


def _or_error(recount: Callable[[], Mapping[str, int]]) -> Mapping[str, int] | NapkinError:
    try:
        return recount()
    except NapkinError as error:
        return error


def _free(derivation: Derivation, sizes: Mapping[str, int]) -> dict[str, int]:
    free = {d.name for d in derivation.dims if not d.tied}
    return {name: size for name, size in sizes.items() if name in free}


def _at_means(quantity: Quantity, constant: Mapping[str, int], varied: Counts) -> int:
    """The quantity at the mean sizes, valid if every addend contains at most one varying size, to the first power."""
    if quantity.candidates:
        raise _NoMean("a maximum is not the maximum of means")
    symbols = {str(symbol): symbol for symbol in quantity.expr.free_symbols}
    varying = [symbols[name] for name in varied if name in symbols]
    none = [str(symbol) for symbol in varying if 0 in varied[str(symbol)]]
    if none and any(part in quantity.name for part in _FROM_ONE):
        raise _Undecided(f"{', '.join(none)} was also 0, and rules for sums need at least one element")
    rest = quantity.expr.subs({symbols[name]: size for name, size in constant.items() if name in symbols})
    if not varying:
        return int(rest)
    never = [str(symbol) for symbol in varying if not varied[str(symbol)]]
    if never:
        raise _Undecided(f"the real run never reached the line that determines {', '.join(never)}")
    if not rest.is_polynomial(*varying) or sp.Poly(rest, *varying).total_degree() > 1:
        raise _NoMean("this is not linear in it")
    means = {symbol: Fraction(sum(varied[str(symbol)]), len(varied[str(symbol)])) for symbol in varying}
    value = rest.subs({symbol: sp.Rational(mean.numerator, mean.denominator) for symbol, mean in means.items()})
    if not value.is_Integer:
        raise _NoMean(f"it is not an integer at the mean of {', '.join(varied)}")
    return int(value)


def _variation(varied: Counts) -> str:
    if not any(varied.values()):
        return f"the real run does not show {', '.join(varied)}"
    alike = all(len(set(counts)) < 2 for counts in varied.values())
    return f"{', '.join(varied)} {'was 0' if alike else 'differed between occurrences'}"

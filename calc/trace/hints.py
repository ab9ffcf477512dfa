"""Hints: the numbers at which a trace evaluates guards, distinct and in the order of the sizes that were asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import sympy as sp

from calc.dimensions import ordered_names
from calc.graph.basis import Basis
from calc.graph.plan import Near
from calc.symbolic.exact import evaluate_text

_SMALLEST, _LARGE_ENOUGH = 11, 61
_BOUNDED = (2, 3)


@dataclass(frozen=True, slots=True)
class HintRules:
    """How hints are chosen.

    Symbols ``bounded`` by a trip count or a number are no larger than it, none is smaller than its ``least`` expressions or larger than its
    ``shares`` expression: as many rows as each of several experts has. With
    ``products``, a symbol also exceeds each smaller dimension that is a product (f exceeds d = h*k), and each smaller one of ``products``
    (d exceeds g*k). The symbols of ``near``, and all smaller ones, are as near to their values as distinct primes, or distinct numbers,
    allow: torch specializes equal hints to one symbol, and 1 to a number.

    For certificates, ``hint_set`` selects further sets: no symbol has the same prime twice. ``shift`` moves the hints by that many primes
    (down, if negative). ``following`` gives the next hint; by default it is the next prime.
    """

    bounded: Mapping[str, int] = field(default_factory=dict)
    products: Sequence[str] | None = None
    near: Near | None = None
    hint_set: int = 0
    shift: int = 0
    following: Callable[[int], int] = sp.nextprime
    least: Mapping[str, Sequence[str]] = field(default_factory=dict)
    shares: Mapping[str, str] = field(default_factory=dict)


def hints(basis: Basis, sizes: Mapping[str, int], rules: HintRules = HintRules()) -> dict[str, int]:
    """Distinct primes for the symbols, in the order of their values at ``sizes``, so that comparisons have the same outcome.

    They are small, but no smaller than constants in models (a kernel of 7, a patch of 16), as far as the requested sizes allow.
    """
    values = basis.values(sizes)
    bounded, near, shift = rules.bounded, rules.near, rules.shift
    close = max((values[name] for name in near.symbols if name in values), default=0) if near else 0
    primes: dict[str, int] = {}
    start = _SMALLEST
    for _ in range(abs(shift)):
        start = int(sp.nextprime(start) if shift > 0 else sp.prevprime(start))
    # An unbacked size is at most its upper bound, and may equal it at these sizes.
    for name in sorted(values, key=lambda n: (values[n], n not in basis.unbacked)):
        if name in bounded:
            continue  # set below
        last = max(primes.values(), default=0)
        if rules.products is not None:
            last = max(last, *_made_of(basis, rules.products, primes, below=values[name], values=values), 0)
        if near and values[name] <= close:
            nearest = max(last, values[name] - 1, 1)
            primes[name] = nearest + 1 if near.exactly else int(sp.nextprime(nearest))
            continue
        least = (int(evaluate_text(text, primes)) for text in rules.least.get(name, ()) if set(ordered_names(text)) <= primes.keys())
        at = max(last, start, min(values[name], _LARGE_ENOUGH) if not shift else 0, *(number - 1 for number in least))
        for _ in range(rules.hint_set + 1):
            at = int(rules.following(at))
        primes[name] = at
    hinted = {name: primes[name] if name in primes else min(_BOUNDED[(rules.hint_set or shift) % 2], bounded[name]) for name in values}
    return hinted | _within_shares(hinted, rules.shares)


def _within_shares(hinted: Mapping[str, int], shares: Mapping[str, str]) -> dict[str, int]:
    """Smaller hints of unbacked sizes that exceed their shares: the largest distinct numbers that do not."""
    smaller: dict[str, int] = {}
    for name, share in shares.items():
        most = int(evaluate_text(share, hinted))
        if hinted[name] > most:
            used = {*hinted.values(), *smaller.values()}
            smaller[name] = next((number for number in range(most, 1, -1) if number not in used), 1)
    return smaller


_FACTORS = (2, 3, 5, 7)


def next_composite(n: int) -> int:
    """The next number that is divisible by three of 2, 3, 5 and 7, for code that rounds differently at multiples than at primes."""
    while True:
        n += 1
        if sum(n % factor == 0 for factor in _FACTORS) >= 3:
            return n


def _made_of(basis: Basis, products: Sequence[str], values_so_far: Mapping[str, int], below: int, values: Mapping[str, int]) -> list[int]:
    """The values of dimensions and ``products`` that consist of ``values_so_far`` and are smaller than ``below`` at the sizes."""
    factors = ([f"({basis.define[name]})" for name in product.split("*")] for product in products)
    texts = [text for text in (*basis.define.values(), *map("*".join, factors)) if set(ordered_names(text)) <= values_so_far.keys()]
    return [int(evaluate_text(text, values_so_far)) for text in texts if evaluate_text(text, values) < below]

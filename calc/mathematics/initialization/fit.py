"""E[w²] of a parameter as an expression in the sizes, fitted to builds at several sizes.

An initializer computes a number from sizes. Which sizes, and with what power, shows when one of them is changed at a time: a
variance that is halved where d is doubled goes with 1/d. The expression is used only if it gives every build's number; one that is not a
product of powers is tried as one over a sum of two sides (Xavier), and else the number at the given sizes is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from calc.symbolic.laws import Law

Laws = Mapping[str, Law | None]
Draw = Callable[[Mapping[str, int]], Laws]

_NEAR = 1e-9
_POWERS = (-4, -3, -2, -1, 0, 1, 2)


def expressions(draw: Draw, sizes: Mapping[str, int], doubled: Sequence[str]) -> dict[str, str]:
    """Text for each parameter that is in every build. ``doubled`` are the sizes that may be changed, each by itself."""
    laws_here = draw(sizes)
    moved = [(name, {**sizes, name: 2 * sizes[name]}) for name in doubled]
    builds = [(name, at, laws) for name, at in moved if (laws := _tried(draw, at)) is not None]
    texts: dict[str, str] = {}
    for parameter, law in laws_here.items():
        builds_of = [(name, at, laws.get(parameter)) for name, at, laws in builds]
        if law is None or any(each is None for _, _, each in builds_of):
            continue
        seconds = [(name, at, each.second) for name, at, each in builds_of if each is not None]
        text = _monomial(law.second, sizes, seconds)
        if text is not None:
            texts[parameter] = text
    return texts


def _tried(draw: Draw, sizes: Mapping[str, int]) -> Laws | None:
    try:
        return draw(sizes)
    except Exception:  # a size the model does not take, whatever its code then raises
        return None


def _monomial(value: float, sizes: Mapping[str, int], moved: Sequence[tuple[str, Mapping[str, int], float]]) -> str | None:
    if value == 0:
        return "0" if all(moved_value == 0 for _, _, moved_value in moved) else None
    powers: dict[str, int] = {}
    for name, _, moved_value in moved:
        power = next((p for p in _POWERS if math.isclose(moved_value / value, 2.0**p, rel_tol=_NEAR)), None)
        if power is None:
            return None
        if power:
            powers[name] = power
    factor = value / math.prod(float(sizes[name]) ** power for name, power in powers.items())
    return _written(factor, powers)


def _written(factor: float, powers: Mapping[str, int]) -> str:
    """``factor`` as a fraction where it is a plain one, times the sizes."""
    plain = Fraction(factor).limit_denominator(100_000)
    number = plain if math.isclose(plain, factor, rel_tol=_NEAR) else None
    above = [_power(name, p) for name, p in powers.items() if p > 0]
    below = [_power(name, -p) for name, p in powers.items() if p < 0]
    if number is not None:
        above = ([str(number.numerator)] if number.numerator != 1 or not above else []) + above
        below = ([str(number.denominator)] if number.denominator != 1 else []) + below
    else:
        above = [f"{factor:.6g}", *above]
    text = "*".join(above) or "1"
    return f"{text}/({'*'.join(below)})" if len(below) > 1 else f"{text}/{below[0]}" if below else text


def _power(name: str, power: int) -> str:
    return name if power == 1 else f"{name}**{power}"

"""E[w²] of a parameter as an expression in the sizes, fitted to builds at several sizes.

An initializer computes a number from sizes. Which sizes, and with what power, shows when one of them is changed at a time: a
variance that is halved where d is doubled goes with 1/d. One that is no product of powers is tried as a factor over the fan-in, the
fan-out, or their sum (Xavier), which the traced shape gives in sizes. An expression is used only if it gives every build's number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import sympy as sp

from calc.symbolic.algebra import symbol
from calc.symbolic.laws import Law


@dataclass(frozen=True, slots=True)
class Build:
    """The laws of the parameters of a module that was built at ``sizes``, tied ones included."""

    sizes: Mapping[str, int]
    laws: Mapping[str, Law | None]


Draw = Callable[[Mapping[str, int]], Build]
Fans = tuple[sp.Expr, sp.Expr]  # fan-in and fan-out of a weight, in sizes

_NEAR = 1e-9
_POWERS = (-4, -3, -2, -1, 0, 1, 2)


def expressions(draw: Draw, sizes: Mapping[str, int], doubled: Sequence[str], fans: Mapping[str, Fans] | None = None) -> dict[str, str]:
    """Text for each parameter that is in every build. ``doubled`` are the sizes that may be changed, each by itself."""
    base = draw(sizes)
    moved = [(name, build) for name in doubled if (build := _tried(draw, {**sizes, name: 2 * sizes[name]})) is not None]
    texts: dict[str, str] = {}
    for parameter, law in base.laws.items():
        laws = [build.laws.get(parameter) for _, build in moved]
        if law is None or None in laws:
            continue
        seconds = [each.second for each in laws if each is not None]
        text = _monomial(law.second, sizes, [(name, second) for (name, _), second in zip(moved, seconds, strict=True)])
        if text is None and parameter in (fans or {}):
            points = [(base.sizes, law.second), *((build.sizes, second) for (_, build), second in zip(moved, seconds, strict=True))]
            text = _over_fans((fans or {})[parameter], points)
        if text is not None:
            texts[parameter] = text
    return texts


def fans_of(shape: Sequence[sp.Expr]) -> Fans:
    """Fan-in and fan-out of a weight of two or more dimensions, as ``torch.nn.init`` counts them: (out, in, kernel…)."""
    kernel = sp.prod(shape[2:])
    return sp.expand(shape[1] * kernel), sp.expand(shape[0] * kernel)


def _tried(draw: Draw, sizes: Mapping[str, int]) -> Build | None:
    try:
        return draw(sizes)
    except Exception:  # a size the model does not take, whatever its code then raises
        return None


def _over_fans(fans: Fans, points: Sequence[tuple[Mapping[str, int], float]]) -> str | None:
    """A factor over the fan-in, the fan-out or their sum, if one factor gives the value at every point."""
    for below in (fans[0] + fans[1], *fans):
        factors = [value * float(below.subs({symbol(name): size for name, size in sizes.items()})) for sizes, value in points]
        if all(math.isclose(factor, factors[0], rel_tol=_NEAR) for factor in factors):
            return _written(factors[0], {f"({below})": -1})
    return None


def _monomial(value: float, sizes: Mapping[str, int], moved: Sequence[tuple[str, float]]) -> str | None:
    """A factor times powers of sizes. ``moved`` has the value with one size doubled."""
    if value == 0:
        return "0" if all(moved_value == 0 for _, moved_value in moved) else None
    powers: dict[str, int] = {}
    for name, moved_value in moved:
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

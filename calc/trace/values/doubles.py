"""Doubles computed from sizes as Python computes them: each operation is noted in order until the double is rounded to a size.

A rounded double is written as the fraction that a reader expects, ``floor(8*d/3)`` for ``int(d * (8/3))``, where rounding provably cannot
change the result. Otherwise their equality is a guard, evaluated at every size by computing the double.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, ClassVar

import sympy as sp
import torch

from calc.platform.replaced import replaced
from calc.platform.torch_private import CeilToInt, FloorDiv, FloorToInt, RoundToInt, SymNode, TruncToInt
from calc.trace.symbolic_sizes import SizeEnv

_ROUNDINGS = {"trunc": TruncToInt, "floor": FloorToInt, "ceil": CeilToInt, "round": RoundToInt}

_BY_TORCH = {how: getattr(torch.SymFloat, f"__{how}__") for how in _ROUNDINGS}

# A double is approximated by the fraction with the smallest of these denominator bounds.
_DENOMINATORS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 32, 64, 100, 128, 1000, 10_000, 10**6)
# Numerators below this leave eight of a double's 53 bits to spare, so that no rounding reaches the next integer.
_PROVED_BELOW = 2**45
# A constant this near to its fraction gives the exact double of an integral product: half the gap to the next lower double.
_NEAR = Fraction(1, 2**54)


class _Operation(sp.Function):  # type: ignore[misc]  # SymPy has no types
    """Two doubles combined. SymPy would collect factors and terms, and round differently from Python."""

    is_real = True
    nargs = 2
    python: ClassVar[Callable[[float, float], float]]

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        return sp.Float(cls.python(float(a), float(b))) if a.is_Number and b.is_Number else None


class Plus(_Operation):
    python = operator.add


class Minus(_Operation):
    python = operator.sub


class Times(_Operation):
    python = operator.mul


class WholeQuotient(_Operation):
    python = operator.floordiv


class Rest(_Operation):
    python = operator.mod


_OF_NODES = {"add": Plus, "sub": Minus, "mul": Times, "mod": Rest}


@contextlib.contextmanager
def preserving_order() -> Iterator[None]:
    """Context in which arithmetic on doubles computed from sizes keeps its order."""
    methods: dict[str, Any] = {f"_{name}": _combining(kind, getattr(SymNode, f"_{name}")) for name, kind in _OF_NODES.items()}
    negated = SymNode._neg  # type: ignore[attr-defined]  # torch makes these methods by name

    def neg(self: SymNode) -> SymNode:
        return _made(Times, self, self.wrap_float(-1.0)) if self.pytype is float else negated(self)

    with (
        replaced(SymNode, _neg=neg, **methods),
        replaced(torch.SymFloat, __floordiv__=_floordiv, __rfloordiv__=_rfloordiv),
        replaced(torch.SymInt, **{name: _by_double(name) for name in ("__floordiv__", "__rfloordiv__")}),
        replaced(torch.SymFloat, **{f"__{name}__": functools.partialmethod(rounded, name) for name in _ROUNDINGS}),
    ):
        yield


def _combining(kind: type[_Operation], compute: Callable[[SymNode, SymNode], SymNode]) -> Callable[[SymNode, SymNode], SymNode]:
    def method(self: SymNode, operand: SymNode) -> SymNode:
        return _made(kind, self, operand) if self.pytype is float or operand.pytype is float else compute(self, operand)

    return method


def _made(kind: type[_Operation], a: SymNode, b: SymNode) -> SymNode:
    at: Any = (a.hint, b.hint)
    return SymNode(kind(a._expr, b._expr), a.shape_env, float, kind.python(*at))


def _floordiv(a: Any, b: Any) -> Any:
    return _divided_down(a, b)


def _rfloordiv(b: Any, a: Any) -> Any:
    return _divided_down(a, b)


def _by_double(name: str) -> Callable[[torch.SymInt, Any], Any]:
    by_torch, of_doubles = getattr(torch.SymInt, name), {"__floordiv__": _floordiv, "__rfloordiv__": _rfloordiv}[name]

    def method(self: torch.SymInt, operand: Any) -> Any:
        return of_doubles(self, operand) if isinstance(operand, float | torch.SymFloat) else by_torch(self, operand)

    return method


def _divided_down(a: Any, b: Any) -> Any:
    both = [torch.sym_float(x) for x in (a, b)]  # type: ignore[no-untyped-call]  # untyped in torch
    symbolic = next(x for x in both if isinstance(x, torch.SymFloat))
    nodes = [x.node if isinstance(x, torch.SymFloat) else symbolic.node.wrap_float(x) for x in both]
    return torch.SymFloat(_made(WholeQuotient, *nodes))  # type: ignore[no-untyped-call]  # as above


# -- rounded to a size ------------------------------------------------------------------------------------------------


def rounded(value: torch.SymFloat, how: str, *digits: Any) -> Any:
    """The size that a double computed from sizes is rounded to. Where the double is not a quotient of sizes, a plain number under the guard
    that the size equals it."""
    env, expr = value.node.shape_env, value.node.expr
    if not isinstance(env, SizeEnv):
        return _BY_TORCH[how](value, *digits)
    if any(d is not None for d in digits):
        return round(float(value), *digits)
    double = _ROUNDINGS[how](expr)
    at, fraction = env.at_hints(double), _fraction(expr)
    if fraction is None:
        env.assume(sp.Eq(double, at, evaluate=False))
        return at
    whole = _whole(*fraction, how)
    if _is_proved(expr) and not any(map(_may_be_negative, fraction)):  # rounding towards zero is neither floor nor ceiling
        env.assume(sp.Lt(sp.expand(_bound(expr)[0]), _PROVED_BELOW, evaluate=False))
    else:
        whole += at - env.at_hints(whole)
        env.assume(sp.Eq(double, whole, evaluate=False))
    return env.create_symintnode(whole, hint=at)


def _whole(numerator: Any, denominator: Any, how: str) -> Any:
    if how == "round" and denominator.is_Integer and denominator % 2:
        return _quotient(2 * numerator + denominator, 2 * denominator)
    if how == "round":  # half to even: up to x there are ⌈(2x - 1)/4⌉ odd numbers and ⌊(2x + 1)/4⌋ even ones, without 0
        half = sp.Rational(1, 2) if denominator.is_Integer else 1
        odd = (2 * numerator - denominator) * half + (4 * half * denominator - 1)
        return _quotient(odd, 4 * half * denominator) + _quotient((2 * numerator + denominator) * half, 4 * half * denominator)
    return _quotient(numerator + denominator - 1 if how == "ceil" else numerator, denominator)


def _quotient(numerator: Any, denominator: Any) -> Any:
    return sp.expand(numerator) if denominator == 1 else FloorDiv(sp.expand(numerator), sp.expand(denominator))


def _fraction(expr: Any) -> tuple[Any, Any] | None:
    """A double computed from sizes as numerator and denominator, with each constant replaced by its simplest fraction; None where it is no
    quotient."""
    whole: dict[Any, Any] = {}
    exact = _exact(expr, whole)
    if exact is None:
        return None
    numerator, denominator = sp.fraction(sp.together(sp.expand(exact)))
    back = {dummy: size for size, dummy in whole.items()}
    return sp.expand(numerator).xreplace(back), sp.expand(denominator).xreplace(back)


def _exact(e: Any, whole: dict[Any, Any]) -> Any:
    """``e`` with exact fractions as constants. ``whole`` collects the size expressions inside, each replaced by one symbol."""
    if e.is_Float:
        simple = _simplest(float(e))
        return sp.Rational(simple.numerator, simple.denominator)
    if e.is_Rational:
        return e
    if e.is_integer:
        inside = {call: whole.setdefault(call, sp.Dummy(integer=True)) for call in _outermost(e)}
        return e.xreplace(inside)
    kind = type(e).__name__
    if kind not in _EXACTLY:
        return None
    args = [_exact(a, whole) for a in e.args]
    return None if None in args else _EXACTLY[kind](*args)


_EXACTLY: dict[str, Callable[..., Any]] = {
    "ToFloat": lambda a: a, "Plus": operator.add, "Minus": operator.sub, "Times": operator.mul, "FloatTrueDiv": operator.truediv,
    "IntTrueDiv": operator.truediv,
}  # fmt: skip


def _outermost(e: Any) -> Iterator[Any]:
    """Functions in an expression of sizes that are not inside another one."""
    if isinstance(e, sp.Function):
        yield e
    else:
        for a in e.args:
            yield from _outermost(a)


@functools.cache
def _simplest(number: float) -> Fraction:
    """The fraction with the smallest denominator whose nearest double this is: 8/3 of 2.6666666666666665."""
    exact = Fraction(number)
    tried = (exact.limit_denominator(most) for most in _DENOMINATORS)
    return next((fraction for fraction in tried if float(fraction) == number), exact)


# -- proofs -----------------------------------------------------------------------------------------------------------


def _is_proved(e: Any) -> bool:
    """Whether the double of ``e`` is rounded to the same size as the exact fraction, wherever numerators are below the bound.

    This holds if all but the last operation are exact, and the last one divides, or multiplies by a constant so near its fraction that an
    integral product stays integral; any other value is further from the next integer than the rounding error.
    """
    while _is_scaling(e):
        e = e.args[0] if not e.args[0].is_Float else e.args[1]
    if _is_dyadic(e):
        return True
    kind = type(e).__name__
    if kind in ("FloatTrueDiv", "IntTrueDiv"):
        return all(map(_is_dyadic, e.args))
    if kind == "Times":
        (constant, *_), rest = [a for a in e.args if a.is_Float] or [None], [a for a in e.args if not a.is_Float]
        return constant is not None and all(map(_is_dyadic, rest)) and _is_near(float(constant))
    return False


def _may_be_negative(e: Any) -> bool:
    return any(term.could_extract_minus_sign() for term in sp.Add.make_args(e))


def _is_near(number: float) -> bool:
    simple = _simplest(number)
    return abs(Fraction(number) / simple - 1) <= _NEAR


def _is_scaling(e: Any) -> bool:
    """Whether a double is multiplied or divided by a power of two."""
    kind = type(e).__name__
    factors = [a for a in e.args if a.is_Float and _is_power_of_two(float(a))]
    return bool(factors) and (kind == "Times" or (kind == "FloatTrueDiv" and e.args[1] == factors[-1]))


def _is_power_of_two(number: float) -> bool:
    over, under = number.as_integer_ratio() if number > 0 else (3, 1)
    return over & (over - 1) == 0 and under & (under - 1) == 0


def _is_dyadic(e: Any) -> bool:
    """Whether a number is computed without any rounding: from integers and constants with few bits."""
    if e.is_Float:
        return abs(float(e).as_integer_ratio()[0]) < 2**12 and float(e).as_integer_ratio()[1] < 2**12
    if e.is_integer:
        return True
    kind = type(e).__name__
    if kind == "IntTrueDiv":
        return bool(e.args[1].is_Integer) and _is_power_of_two(float(e.args[1]))
    if kind == "FloatTrueDiv":
        return _is_scaling(e) and _is_dyadic(e.args[0])
    return kind in ("ToFloat", "Plus", "Minus", "Times") and all(map(_is_dyadic, e.args))


def _bound(e: Any) -> tuple[Any, int]:
    """(bound of the numerator of ``e`` and of all intermediate numerators, denominator)."""
    if e.is_Float:
        simple = _simplest(float(e))
        return max(abs(simple.numerator), 1), simple.denominator
    if e.is_integer:
        return sp.Add(*(-term if term.could_extract_minus_sign() else term for term in sp.Add.make_args(sp.expand(e)))), 1
    parts = [_bound(a) for a in e.args]
    if len(parts) == 1:
        return parts[0]
    (a, below_a), (b, below_b) = parts
    match type(e).__name__:
        case "Plus" | "Minus":
            return a * below_b + b * below_a, below_a * below_b
        case "Times":
            return a * b, below_a * below_b
    return a * below_b, below_a * int(b) if sp.sympify(b).is_Integer else below_a

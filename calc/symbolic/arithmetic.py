"""Evaluate expressions with roots exactly, and solve them for one of their variables. Without SymPy, whose import is slow.

Values are fractions. An irrational root is truncated to 42 digits and marked as inexact. An expression is solved for a variable that occurs
in it once, or in a quotient of two sums linear in it; other cases have no solution here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import MAX_EMAX, MIN_EMIN, ROUND_DOWN, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from calc.errors import BadInputError
from calc.symbolic.evaluation import Arithmetic
from calc.symbolic.expression import (
    Expression,
    FunctionCall,
    Name,
    Negative,
    Number,
    Power,
    Product,
    Quotient,
    Sum,
    children,
    names,
    with_children,
)
from calc.symbolic.parser import parse
from calc.symbolic.writer import as_text

_PRECISION = Context(prec=42, rounding=ROUND_DOWN, Emax=MAX_EMAX, Emin=MIN_EMIN)
_LARGEST_POWER = 8192


# -- values ----------------------------------------------------------------------------------------------------------------------


class Fractions(Arithmetic[Fraction]):
    """Fractions with roots and powers. ``rounded`` is True once a root was truncated."""

    def __init__(self, values: Mapping[str, Fraction]) -> None:
        self.values, self.rounded = values, False

    def number(self, node: Number) -> Fraction:
        return _as_written(node.value)

    def quotient(self, node: Quotient) -> Fraction:
        return node.top.value_in(self) / node.bottom.value_in(self)

    def power(self, node: Power) -> Fraction:
        return self._power(node.base.value_in(self), node.exponent.value_in(self))

    def call(self, node: FunctionCall) -> Fraction:
        match node:
            case FunctionCall("sqrt", (inside,)):
                return self._power(inside.value_in(self), Fraction(1, 2))
            case FunctionCall("Max", (_, *_) as arguments):
                return max(argument.value_in(self) for argument in arguments)
            case FunctionCall("Min", (_, *_) as arguments):
                return min(argument.value_in(self) for argument in arguments)
        raise self.refused(node)

    def _power(self, base: Fraction, exponent: Fraction) -> Fraction:
        if max(abs(exponent.numerator), exponent.denominator) > _LARGEST_POWER:
            raise BadInputError(f"the exponent {exponent} is too large to be worked out")
        if exponent.denominator == 1:
            return base ** int(exponent)
        if base < 0:
            raise BadInputError("a root of a negative number has no value here")
        value, exact = power(base, exponent)
        self.rounded = self.rounded or not exact
        return value

    def refused(self, node: Expression) -> BadInputError:
        return BadInputError(f"cannot work out {as_text(node)[:60]!r}")


@lru_cache(maxsize=1024)
def _as_written(number: int | float) -> Fraction:
    """A decimal as it is written: 0.1 is a tenth."""
    return Fraction(str(number))


def evaluate(expression: str, values: Mapping[str, Fraction]) -> Fraction:
    """The value of an expression at ``values``. Raises KeyError for a name without a value."""
    return parse(expression).value_in(Fractions(values))


@lru_cache(maxsize=1024)  # an answer needs the same powers many times
def power(base: Fraction, exponent: Fraction) -> tuple[Fraction, bool]:
    """(``base**exponent`` for base ≥ 0, whether it is exact). An inexact value is truncated to 42 digits: its relative error is below
    10⁻⁴¹."""
    if exponent < 0:
        base, exponent = 1 / base, -exponent
    k = exponent.denominator
    top, bottom = _whole_root(base.numerator, k), _whole_root(base.denominator, k)
    if top**k == base.numerator and bottom**k == base.denominator:
        return Fraction(top, bottom) ** exponent.numerator, True
    return _irrational(base, exponent), False


def _irrational(base: Fraction, exponent: Fraction) -> Fraction:
    """``base**exponent`` truncated to 42 digits, by logarithms; the number of guard digits doubles until all 42 are certain."""
    guard_digits = 20
    while True:
        with localcontext(Context(prec=_PRECISION.prec + guard_digits, Emax=MAX_EMAX, Emin=MIN_EMIN)):
            log = (Decimal(base.numerator) / base.denominator).ln() * exponent.numerator / exponent.denominator
            approximation = log.exp()
            # Each errs by half a unit in the last place: the quotient (times the exponent), the three operations after it, and exp.
            error = approximation * (math.ceil(exponent) + 4 * abs(log) + 4) * Decimal(10) ** (1 - _PRECISION.prec - guard_digits)
            low, high = _PRECISION.plus(approximation - error), _PRECISION.plus(approximation + error)
        if low == high:
            return Fraction(low)
        guard_digits *= 2


def _whole_root(n: int, k: int) -> int:
    """⌊n^(1/k)⌋, by Newton's iteration from above. It takes few iterations, as it starts from the root in double precision."""
    if n < 2:
        return n
    bits = math.log2(n) / k
    shift = max(0, int(bits) - 40)
    guess = (int(2.0 ** (bits - shift) * (1 + 2.0**-20)) + 1) << shift
    while True:
        better = ((k - 1) * guess + n // guess ** (k - 1)) // k
        if better >= guess:
            return guess
        guess = better


# -- trees, built without terms of 0 and factors of 1 -------------------------------------------------------------------------------

_ZERO, _ONE = Number(0), Number(1)
_MINUS_ONE = Negative(_ONE)


def _plus(a: Expression, b: Expression) -> Expression:
    return b if a == _ZERO else a if b == _ZERO else Sum((a, b))


def _minus(a: Expression, b: Expression) -> Expression:
    return a if b == _ZERO else Negative(b) if a == _ZERO else Sum((a, Negative(b)))


def _times(a: Expression, b: Expression) -> Expression:
    if _ZERO in (a, b):
        return _ZERO
    return b if a == _ONE else a if b == _ONE else Product((a, b))


def _over(a: Expression, b: Expression) -> Expression:
    return a if a == _ZERO or b == _ONE else Quotient(a, b)


def tidy(node: Expression) -> Expression:
    """``node`` with nested products and nested quotients flattened: ``a*(b*c)/d/e`` becomes ``a*b*c/(d*e)``."""
    if isinstance(node, Product | Quotient):
        above, below = _gathered(node)
        return _over(_product([*map(tidy, above)], sort=False), _product([*map(tidy, below)], sort=False))
    return with_children(node, [*map(tidy, children(node))])


# -- rearranging -----------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)  # the equations of an answer are tried for each of its variables
def isolated(expression: str, variable: str, value: str) -> tuple[str, ...]:
    """The expressions for ``variable`` that solve ``value`` = ``expression``: one, or one per argument of a Max or Min; () if none.

    >>> isolated("C/(86400*u*n*P)", "n", "t")
    ('C/(86400*t*u*P)',)
    """
    return tuple(dict.fromkeys(as_text(tidy(solution)) for solution in _isolated(parse(expression), variable, Name(value))))


def _isolated(node: Expression, x: str, y: Expression) -> Sequence[Expression]:
    match node:
        case Name(name) if name == x:
            return (y,)
        case Negative(body):
            return _isolated(body, x, Negative(y))
        case Product() | Quotient() if _factors(node, x) is not None:
            return _out_of_product(node, x, y)
        case Sum() | Product() | Quotient() | Power():
            left, right = _halves(node)
            if x in names(left) and x in names(right):
                return _from_quotient(node, x, y)
            return _out_of_left(node, left, right, x, y) if x in names(left) else _out_of_right(node, left, right, x, y)
        case FunctionCall("sqrt", (inside,)):
            return _isolated(inside, x, Power(y, Number(2)))
        case FunctionCall("Max" | "Min", arguments):
            return [solution for side in arguments if x in names(side) for solution in _isolated(side, x, y)]
    return ()


def _halves(node: Sum | Product | Quotient | Power) -> tuple[Expression, Expression]:
    """The last operand, and all before it as one."""
    *before, last = children(node)
    return before[0] if len(before) == 1 else with_children(node, before), last


def _gathered(node: Expression) -> tuple[list[Expression], list[Expression]]:
    """The factors of a product: (of the numerator, of the denominator)."""
    above: list[Expression] = []
    below: list[Expression] = []

    def gather(part: Expression, up: list[Expression], down: list[Expression]) -> None:
        match part:
            case Product(factors):
                for factor in factors:
                    gather(factor, up, down)
            case Quotient(top, bottom):
                gather(top, up, down)
                gather(bottom, down, up)
            case _:
                up.append(part)

    gather(node, above, below)
    return above, below


def _factors(node: Expression, x: str) -> tuple[list[Expression], list[Expression]] | None:
    """The factors (of the numerator, of the denominator) of a product of several, if ``x`` is in exactly one of them; else None."""
    above, below = _gathered(node)
    with_x = [f for f in (*above, *below) if x in names(f)]
    return (above, below) if len(with_x) == 1 and len(above) + len(below) > 1 else None


def _product(factors: Sequence[Expression], *, sort: bool = True) -> Expression:
    """The product of ``factors``, with numbers first if ``sort``."""
    product: Expression = _ONE
    for factor in sorted(factors, key=lambda f: not isinstance(f, Number)) if sort else factors:
        product = _times(product, factor)
    return product


def _out_of_product(node: Expression, x: str, y: Expression) -> Sequence[Expression]:
    """y = a·f/b gives f = y·b/a, and y = a/(f·b) gives f = a/(y·b)."""
    parts = _factors(node, x)
    if parts is None:
        return ()
    above, below = parts
    rest_above, rest_below = ([f for f in side if x not in names(f)] for side in (above, below))
    for f in above:
        if x in names(f):
            return _isolated(f, x, _over(_product((y, *rest_below)), _product(rest_above)))
    (f,) = (f for f in below if x in names(f))
    return _isolated(f, x, _over(_product(rest_above), _product((y, *rest_below))))


def _out_of_left(node: Expression, left: Expression, right: Expression, x: str, y: Expression) -> Sequence[Expression]:
    match node:
        case Sum():
            return _isolated(left, x, _plus(y, right.body) if isinstance(right, Negative) else _minus(y, right))
        case Product():
            return _isolated(left, x, _over(y, right))
        case Quotient():
            return _isolated(left, x, _product((y, right)))
        case Power() if not names(right):
            return _isolated(left, x, Power(y, _number(1 / right.value_in(Fractions({})))))
    return ()


def _out_of_right(node: Expression, left: Expression, right: Expression, x: str, y: Expression) -> Sequence[Expression]:
    match node:
        case Sum():
            return _isolated(right.body, x, _minus(left, y)) if isinstance(right, Negative) else _isolated(right, x, _minus(y, left))
        case Product():
            return _isolated(right, x, _over(y, left))
        case Quotient():
            return _isolated(right, x, _over(left, y))
    return ()


def _number(value: Fraction) -> Expression:
    top: Expression = Number(abs(value.numerator))
    top = Negative(top) if value < 0 else top
    return top if value.denominator == 1 else Quotient(top, Number(value.denominator))


# (a·x + b) / (c·x + d), each of the four without x.
_Linear = tuple[Expression, Expression, Expression, Expression]


def _from_quotient(node: Expression, x: str, y: Expression) -> Sequence[Expression]:
    """y = (a·x + b)/(c·x + d) gives x = (d·y − b)/(a − c·y)."""
    coefficients = _linear(node, x)
    if coefficients is None:
        return ()
    a, b, c, d = coefficients
    return (_over(_minus(_times(d, y), b), _minus(a, _times(c, y))),)


def _linear(node: Expression, x: str) -> _Linear | None:
    if x not in names(node):
        return _ZERO, node, _ZERO, _ONE
    match node:
        case Name():
            return _ONE, _ZERO, _ZERO, _ONE
        case Negative(body):
            inside = _linear(body, x)
            return None if inside is None else _scaled(inside, _MINUS_ONE)
        case Sum() | Product() | Quotient():
            left, right = _halves(node)
            first = _linear(left, x)
            if isinstance(node, Sum) and isinstance(right, Negative):
                second = _linear(right.body, x)
                second = None if second is None else _scaled(second, _MINUS_ONE)
            else:
                second = _linear(right, x)
            return None if first is None or second is None else _combined(node, first, second)
    return None


def _scaled(form: _Linear, by: Expression) -> _Linear:
    a, b, c, d = form
    return _times(by, a), _times(by, b), c, d


def _combined(node: Sum | Product | Quotient, first: _Linear, second: _Linear) -> _Linear | None:
    match node:
        case Sum():
            return _added(first, second)
        case Product():
            if _free(first):
                return _scaled(second, _over(first[1], first[3]))
            return _scaled(first, _over(second[1], second[3])) if _free(second) else _cancelled(first, second) or _cancelled(second, first)
        case Quotient():
            a, b, c, d = second
            if _free(first):
                return _scaled((c, d, a, b), _over(first[1], first[3]))
            if first[2] == _ZERO and c == _ZERO:
                return _times(first[0], d), _times(first[1], d), _times(a, first[3]), _times(b, first[3])
    return None


def _cancelled(first: _Linear, second: _Linear) -> _Linear | None:
    """The product of a·x/d and (e·x + f)/(g·x), in which one x cancels; None for other forms."""
    a, b, c, d = first
    e, f, g, h = second
    return (_times(a, e), _times(a, f), _ZERO, _times(d, g)) if b == c == h == _ZERO else None


def _free(form: _Linear) -> bool:
    return form[0] == form[2] == _ZERO


def _added(first: _Linear, second: _Linear) -> _Linear | None:
    """The sum of two forms; None where its numerator or denominator would be quadratic in x."""
    if first[2] != _ZERO:
        first, second = second, first
    if first[2] != _ZERO:
        return None
    a, b, _, d = first
    e, f, g, h = second
    if g == _ZERO:
        return _plus(_times(a, h), _times(e, d)), _plus(_times(b, h), _times(f, d)), _ZERO, _times(d, h)
    if a != _ZERO:
        return None
    ratio = _over(b, d)
    return _plus(e, _times(ratio, g)), _plus(f, _times(ratio, h)), g, h

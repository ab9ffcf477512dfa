"""Exact arithmetic on expressions in letters, and their rearrangement for one of them. Without SymPy: questions are answered at once.

Values are fractions. A root that is no fraction is cut after 42 digits, and whoever asks is told that it was. An expression is solved for
a letter that stands in it once, or in a quotient of two sums in which it is nowhere squared; for others the answer is that there is none.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_DOWN, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from calc.errors import BadInputError

_KEPT = Context(prec=42, rounding=ROUND_DOWN, Emax=MAX_EMAX, Emin=MIN_EMIN)
_LARGEST_POWER = 8192
_FUNCTIONS = ("Max", "Min", "sqrt", "Mod")  # the last one in conditions only


@lru_cache(maxsize=1024)
def parsed(text: str) -> ast.expr:
    """The tree of an expression made of numbers, letters, ``+ - * / **``, Max, Min and sqrt."""
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        raise BadInputError(f"cannot read the expression {text[:60]!r}") from None


def written(node: ast.expr) -> str:
    """A tree as one line, that SymPy and ``parsed`` read."""
    return ast.unparse(node).replace(" * ", "*").replace(" / ", "/").replace(" ** ", "**")


def letters(node: ast.expr) -> set[str]:
    """The letters of an expression, functions apart."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - set(_FUNCTIONS)


@lru_cache(maxsize=1024)
def letters_of(text: str) -> frozenset[str]:
    """The letters of an expression as it is written."""
    return frozenset(letters(parsed(text)))


# -- values ----------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Evaluation:
    """Works out expressions at ``values``. ``rounded`` tells whether a root on the way was cut off."""

    values: Mapping[str, Fraction]
    rounded: bool = False

    def of(self, node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=int() | float() as number):
                return Fraction(str(number))
            case ast.Name(id=name):
                return self.values[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.of(operand)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return self._power(self.of(left), self.of(right))
            case ast.BinOp(left=left, op=op, right=right):
                return self._sum_or_product(op, self.of(left), self.of(right))
            case ast.Call(func=ast.Name(id="sqrt"), args=[inside]):
                return self._power(self.of(inside), Fraction(1, 2))
            case ast.Call(func=ast.Name(id="Max"), args=args) if args:
                return max(map(self.of, args))
            case ast.Call(func=ast.Name(id="Min"), args=args) if args:
                return min(map(self.of, args))
        raise BadInputError(f"cannot work out {written(node)[:60]!r}")

    @staticmethod
    def _sum_or_product(op: ast.operator, left: Fraction, right: Fraction) -> Fraction:
        match op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():
                return left / right
        raise BadInputError(f"there is no {type(op).__name__} in these expressions")

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


def evaluate(text: str, values: Mapping[str, Fraction]) -> Fraction:
    """The value of an expression at ``values``; a letter without one raises KeyError."""
    return Evaluation(values).of(parsed(text))


@lru_cache(maxsize=1024)  # an answer asks for the same power again and again
def power(base: Fraction, exponent: Fraction) -> tuple[Fraction, bool]:
    """A base that is not negative to a power, and whether it is exact; else it is cut after 42 digits, so it is below by less than
    10⁻⁴¹ of it."""
    if exponent < 0:
        base, exponent = 1 / base, -exponent
    k = exponent.denominator
    top, bottom = _whole_root(base.numerator, k), _whole_root(base.denominator, k)
    if top**k == base.numerator and bottom**k == base.denominator:
        return Fraction(top, bottom) ** exponent.numerator, True
    return _irrational(base, exponent), False


def _irrational(base: Fraction, exponent: Fraction) -> Fraction:
    """By logarithms, with digits enough that those which are kept are certain: the number is none that they end in, so some are."""
    more = 20
    while True:
        with localcontext(Context(prec=_KEPT.prec + more, Emax=MAX_EMAX, Emin=MIN_EMIN)):
            log = (Decimal(base.numerator) / base.denominator).ln() * exponent.numerator / exponent.denominator
            approximation = log.exp()
            # Half a unit in the last place each: the quotient, which counts as often as the exponent says, three steps on, and exp.
            error = approximation * (math.ceil(exponent) + 4 * abs(log) + 4) * Decimal(10) ** (1 - _KEPT.prec - more)
            low, high = _KEPT.plus(approximation - error), _KEPT.plus(approximation + error)
        if low == high:
            return Fraction(low)
        more *= 2


def _whole_root(n: int, k: int) -> int:
    """⌊n^(1/k)⌋, by Newton's iteration from above: a few turns, as a double's digits of the root are the beginning."""
    if n < 2:
        return n
    bits = math.log2(n) / k
    whole = max(0, int(bits) - 40)
    guess = (int(2.0 ** (bits - whole) * (1 + 2.0**-20)) + 1) << whole
    while True:
        better = ((k - 1) * guess + n // guess ** (k - 1)) // k
        if better >= guess:
            return guess
        guess = better


# -- trees, built without zeros and ones that say nothing ---------------------------------------------------------------------------

_ZERO, _ONE = ast.Constant(0), ast.Constant(1)


def _is(node: ast.expr, number: int) -> bool:
    return isinstance(node, ast.Constant) and node.value == number


def _binary(left: ast.expr, op: ast.operator, right: ast.expr) -> ast.expr:
    return ast.BinOp(left, op, right)


def _plus(a: ast.expr, b: ast.expr) -> ast.expr:
    return b if _is(a, 0) else a if _is(b, 0) else _binary(a, ast.Add(), b)


def _minus(a: ast.expr, b: ast.expr) -> ast.expr:
    return a if _is(b, 0) else ast.UnaryOp(ast.USub(), b) if _is(a, 0) else _binary(a, ast.Sub(), b)


def _times(a: ast.expr, b: ast.expr) -> ast.expr:
    if _is(a, 0) or _is(b, 0):
        return _ZERO
    return b if _is(a, 1) else a if _is(b, 1) else _binary(a, ast.Mult(), b)


def _over(a: ast.expr, b: ast.expr) -> ast.expr:
    return a if _is(a, 0) or _is(b, 1) else _binary(a, ast.Div(), b)


def substituted(node: ast.expr, replacements: Mapping[str, ast.expr]) -> ast.expr:
    """The tree with letters replaced by what they stand for."""
    match node:
        case ast.Name(id=name):
            return replacements.get(name, node)
        case ast.UnaryOp(op=op, operand=operand):
            return ast.UnaryOp(op, substituted(operand, replacements))
        case ast.BinOp(left=left, op=op, right=right):
            return ast.BinOp(substituted(left, replacements), op, substituted(right, replacements))
        case ast.Call(func=func, args=args):
            return ast.Call(func, [substituted(a, replacements) for a in args], [])
    return node


def tidy(node: ast.expr) -> ast.expr:
    """Products of products as one, and quotients of quotients as one: ``a*(b*c)/d/e`` becomes ``a*b*c/(d*e)``."""
    match node:
        case ast.BinOp(op=ast.Mult() | ast.Div()):
            above, below = _gathered(node)
            over, under = ([tidy(f) for f in side] for side in (above, below))
            return _over(_product(over, sort=False), _product(under, sort=False))
        case ast.BinOp(left=left, op=op, right=right):
            return ast.BinOp(tidy(left), op, tidy(right))
        case ast.UnaryOp(op=op, operand=operand):
            return ast.UnaryOp(op, tidy(operand))
        case ast.Call(func=func, args=args):
            return ast.Call(func, [tidy(a) for a in args], [])
    return node


# -- rearranging -----------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)  # what leads to an answer is tried for each letter
def isolated(text: str, letter: str, left: str) -> tuple[str, ...]:
    """What ``letter`` can be where ``left`` = ``text``. One expression, or one for each side of a Max; none where no rule here finds it.

    >>> isolated("C/(86400*u*n*P)", "n", "t")
    ('C/(86400*t*u*P)',)
    """
    return tuple(dict.fromkeys(written(tidy(solution)) for solution in _isolated(parsed(text), letter, ast.Name(left))))


def _isolated(node: ast.expr, x: str, y: ast.expr) -> Sequence[ast.expr]:
    match node:
        case ast.Name(id=name) if name == x:
            return (y,)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _isolated(operand, x, ast.UnaryOp(ast.USub(), y))
        case ast.BinOp(op=ast.Mult() | ast.Div()) if _factors(node, x) is not None:
            return _out_of_product(node, x, y)
        case ast.BinOp(left=left, op=op, right=right) if x in letters(left) and x in letters(right):
            return _from_quotient(node, x, y)
        case ast.BinOp(left=left, op=op, right=right) if x in letters(left):
            return _out_of_left(left, op, right, x, y)
        case ast.BinOp(left=left, op=op, right=right):
            return _out_of_right(left, op, right, x, y)
        case ast.Call(func=ast.Name(id="sqrt"), args=[inside]):
            return _isolated(inside, x, _binary(y, ast.Pow(), ast.Constant(2)))
        case ast.Call(func=ast.Name(id="Max" | "Min"), args=args):
            return [solution for side in args if x in letters(side) for solution in _isolated(side, x, y)]
    return ()


def _gathered(node: ast.expr) -> tuple[list[ast.expr], list[ast.expr]]:
    """The factors of a product, above the line and below it."""
    above: list[ast.expr] = []
    below: list[ast.expr] = []

    def gather(part: ast.expr, up: list[ast.expr], down: list[ast.expr]) -> None:
        match part:
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                gather(left, up, down)
                gather(right, up, down)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                gather(left, up, down)
                gather(right, down, up)
            case _:
                up.append(part)

    gather(node, above, below)
    return above, below


def _factors(node: ast.expr, x: str) -> tuple[list[ast.expr], list[ast.expr]] | None:
    """A product of several factors, over others, with ``x`` in one of them only; else nothing."""
    above, below = _gathered(node)
    holding = [f for f in (*above, *below) if x in letters(f)]
    return (above, below) if len(holding) == 1 and len(above) + len(below) > 1 else None


def _product(factors: Sequence[ast.expr], *, sort: bool = True) -> ast.expr:
    """Numbers first, as one writes it."""
    product: ast.expr = _ONE
    for factor in sorted(factors, key=lambda f: not isinstance(f, ast.Constant)) if sort else factors:
        product = _times(product, factor)
    return product


def _out_of_product(node: ast.expr, x: str, y: ast.expr) -> Sequence[ast.expr]:
    """y = a·f/b gives f = y·b/a, and y = a/(f·b) gives f = a/(y·b)."""
    parts = _factors(node, x)
    if parts is None:
        return ()
    above, below = parts
    rest_above, rest_below = ([f for f in side if x not in letters(f)] for side in (above, below))
    for f in above:
        if x in letters(f):
            return _isolated(f, x, _over(_product((y, *rest_below)), _product(rest_above)))
    (f,) = (f for f in below if x in letters(f))
    return _isolated(f, x, _over(_product(rest_above), _product((y, *rest_below))))


def _out_of_left(left: ast.expr, op: ast.operator, right: ast.expr, x: str, y: ast.expr) -> Sequence[ast.expr]:
    match op:
        case ast.Add():
            return _isolated(left, x, _minus(y, right))
        case ast.Sub():
            return _isolated(left, x, _plus(y, right))
        case ast.Mult():
            return _isolated(left, x, _over(y, right))
        case ast.Div():
            return _isolated(left, x, _product((y, right)))
        case ast.Pow() if not letters(right):
            exponent = 1 / Evaluation({}).of(right)
            return _isolated(left, x, _binary(y, ast.Pow(), _number(exponent)))
    return ()


def _out_of_right(left: ast.expr, op: ast.operator, right: ast.expr, x: str, y: ast.expr) -> Sequence[ast.expr]:
    match op:
        case ast.Add():
            return _isolated(right, x, _minus(y, left))
        case ast.Sub():
            return _isolated(right, x, _minus(left, y))
        case ast.Mult():
            return _isolated(right, x, _over(y, left))
        case ast.Div():
            return _isolated(right, x, _over(left, y))
    return ()


def _number(value: Fraction) -> ast.expr:
    top: ast.expr = ast.Constant(abs(value.numerator))
    top = ast.UnaryOp(ast.USub(), top) if value < 0 else top
    return top if value.denominator == 1 else _binary(top, ast.Div(), ast.Constant(value.denominator))


# (a·x + b) / (c·x + d), each of the four without x.
_Linear = tuple[ast.expr, ast.expr, ast.expr, ast.expr]


def _from_quotient(node: ast.expr, x: str, y: ast.expr) -> Sequence[ast.expr]:
    """y = (a·x + b)/(c·x + d) gives x = (d·y − b)/(a − c·y)."""
    coefficients = _linear(node, x)
    if coefficients is None:
        return ()
    a, b, c, d = coefficients
    return (_over(_minus(_times(d, y), b), _minus(a, _times(c, y))),)


def _linear(node: ast.expr, x: str) -> _Linear | None:
    if x not in letters(node):
        return _ZERO, node, _ZERO, _ONE
    match node:
        case ast.Name():
            return _ONE, _ZERO, _ZERO, _ONE
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inside = _linear(operand, x)
            return None if inside is None else _scaled(inside, ast.UnaryOp(ast.USub(), _ONE))
        case ast.BinOp(left=left, op=op, right=right):
            one, second = _linear(left, x), _linear(right, x)
            return None if one is None or second is None else _combined(one, op, second)
    return None


def _scaled(form: _Linear, by: ast.expr) -> _Linear:
    a, b, c, d = form
    return _times(by, a), _times(by, b), c, d


def _combined(one: _Linear, op: ast.operator, second: _Linear) -> _Linear | None:
    match op:
        case ast.Add():
            return _added(one, second)
        case ast.Sub():
            return _added(one, _scaled(second, ast.UnaryOp(ast.USub(), _ONE)))
        case ast.Mult():
            if _free(one):
                return _scaled(second, _over(one[1], one[3]))
            return _scaled(one, _over(second[1], second[3])) if _free(second) else _cancelled(one, second) or _cancelled(second, one)
        case ast.Div():
            a, b, c, d = second
            if _free(one):
                return _scaled((c, d, a, b), _over(one[1], one[3]))
            if _is(one[2], 0) and _is(c, 0):
                return _times(one[0], d), _times(one[1], d), _times(a, one[3]), _times(b, one[3])
    return None


def _cancelled(one: _Linear, second: _Linear) -> _Linear | None:
    """a·x/d times (e·x + f)/(g·x): x is above and below the line."""
    a, b, c, d = one
    e, f, g, h = second
    return (_times(a, e), _times(a, f), _ZERO, _times(d, g)) if _is(b, 0) and _is(c, 0) and _is(h, 0) else None


def _free(form: _Linear) -> bool:
    return _is(form[0], 0) and _is(form[2], 0)


def _added(one: _Linear, second: _Linear) -> _Linear | None:
    """Of two quotients with x below the line no sum is made: it would have a square of x."""
    if not _is(one[2], 0):
        one, second = second, one
    if not _is(one[2], 0):
        return None
    a, b, _, d = one
    e, f, g, h = second
    if _is(g, 0):
        return _plus(_times(a, h), _times(e, d)), _plus(_times(b, h), _times(f, d)), _ZERO, _times(d, h)
    if not _is(a, 0):
        return None
    rest = _over(b, d)
    return _plus(e, _times(rest, g)), _plus(f, _times(rest, h)), g, h

"""Named dimensions: the one table of what each letter means, and how their values are resolved.

A dimension's default is an integer or an expression in other dimensions (``f = 4*d``): setting ``d`` changes ``f``
unless ``f`` is given too. A *tied* dimension always equals its expression (``k = d/h`` in GPT-2) and cannot be set.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.errors import DimensionError, SpecError
from calc.symbolic.assignments import PLAIN, assignment, sizes_text
from calc.symbolic.evaluation import Arithmetic
from calc.symbolic.expression import Expression, FloorQuotient, Name, Number, Power, Product, Quotient, Sum, names
from calc.symbolic.parser import ExpressionError, parse
from calc.symbolic.writer import as_text

LARGEST = 2**63 - 1

MEANINGS: dict[str, str] = {
    "B": "batch size",
    "T": "sequence length",
    "d": "model width",
    "h": "attention heads",
    "g": "key/value heads",
    "k": "head width",
    "f": "feed-forward width",
    "L": "layers",
    "V": "vocabulary size",
    "C": "maximum positions",
    "E": "experts",
    "e": "experts per token",
}


@dataclass(frozen=True, slots=True)
class Dim:
    """One named size of a model.

    ``default``      an integer, or an expression of other dimensions such as ``"4*d"``.
    ``meaning``      text for the symbol table; by default that of ``MEANINGS``.
    ``multiple_of``  an integer or the name of a dimension that must divide this one (``d`` by ``h``).
    ``plus``         with an integer ``multiple_of``: this one is ``n*multiple_of + plus`` (n periods of 6 layers, and 2 other layers).
    ``tied``         always equal to its default expression, so it cannot be set.
    ``at_most``      the name of a dimension that bounds this one (``T`` by ``C`` where positions are learned), or an expression of several.
    ``because``      why ``multiple_of`` holds: what in the model needs it, or the trace that inferred it.
    ``unbacked_at``  of a data-dependent size: the place in the model's code that creates it; ``default`` is its expected value, rounded up.
    """

    default: int | str
    meaning: str = ""
    multiple_of: int | str | None = None
    tied: bool = False
    at_most: str | None = None
    plus: int = 0
    unbacked_at: str = ""
    because: str = ""


def meaning_of(name: str, dim: Dim) -> str:
    """The dimension's meaning for the symbol table: the spec's own, else that of ``MEANINGS``."""
    return dim.meaning or MEANINGS.get(name, f"dimension {name}")


def evaluate(text: str, values: Mapping[str, int]) -> Fraction:
    """Exact value of an expression made of integers, names and ``+ - * / ** ( )``.

    >>> evaluate("4*d", {"d": 768})
    Fraction(3072, 1)
    """
    return _parsed(text).value_in(_BoundedFractions(values, text))


def ordered_names(text: str) -> tuple[str, ...]:
    """Names that an expression or a guard mentions, in order of appearance. Of any length: a guard on sizes may be long."""
    return names(parse(text))


def quotient(default: int | str | None) -> tuple[str, str] | None:
    """Dividend and divisor of a default that is a dimension over another, or over a number: of ``d/h`` and of ``d//h``. Else None."""
    match parse(default) if isinstance(default, str) else None:
        case Quotient(Name(top), Name() | Number() as bottom) | FloorQuotient(Name(top), Name() | Number() as bottom):
            return top, as_text(bottom)
    return None


def _mentioned(text: str) -> tuple[str, ...]:
    """The same for an expression in a spec. Raises SpecError if it is too long or cannot be parsed."""
    return names(_parsed(text))


_LONGEST = 2_000  # characters of an expression
_MOST_BITS = 4_096  # of an intermediate value; a size has 63


def _parsed(text: str) -> Expression:
    if len(text) > _LONGEST:
        raise SpecError(f"the dimension expression {_clip(text)!r} is too long: write it with at most {_LONGEST:,} characters")
    try:
        return parse(text)
    except ExpressionError:
        raise SpecError(_unreadable(text)) from None


def _unreadable(text: str) -> str:
    return f"cannot read the dimension expression {_clip(text)!r}: write it with + - * / and dimension names"


class _BoundedFractions(Arithmetic[Fraction]):
    """Fractions of at most ``_MOST_BITS`` bits; a longer one raises SpecError."""

    def __init__(self, values: Mapping[str, int], text: str) -> None:
        self.values = _Mentioned(values, text)
        self._text = text

    def number(self, node: Number) -> Fraction:
        if not isinstance(node.value, int):
            raise self.refused(node)
        return self._bounded(Fraction(node.value))

    def sum(self, node: Sum) -> Fraction:
        total = Fraction(0)
        for term in node.terms:
            total = self._bounded(total + term.value_in(self))
        return total

    def product(self, node: Product) -> Fraction:
        total = Fraction(1)
        for factor in node.factors:
            total = self._bounded(total * factor.value_in(self))
        return total

    def quotient(self, node: Quotient) -> Fraction:
        bottom = node.bottom.value_in(self)
        if not bottom:
            raise self.refused(node)
        return self._bounded(node.top.value_in(self) / bottom)

    def power(self, node: Power) -> Fraction:
        exponent = node.exponent.value_in(self)
        if exponent.denominator != 1 or not 0 <= exponent <= 8:
            raise self.refused(node)
        return self._bounded(Fraction(node.base.value_in(self) ** int(exponent)))

    def refused(self, node: Expression) -> SpecError:
        return SpecError(_unreadable(self._text))

    def _bounded(self, value: Fraction) -> Fraction:
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_BITS:
            raise SpecError(f"the dimension expression {_clip(self._text)!r} is too large: sizes are integers from 1 to 2**63 - 1")
        return value


class _Mentioned(dict[str, Fraction]):
    """Values of a model's dimensions by name; any other name raises SpecError."""

    def __init__(self, values: Mapping[str, int], text: str) -> None:
        super().__init__()
        self._given, self._text = values, text

    def __missing__(self, name: str) -> Fraction:
        if name in self._given:
            return Fraction(self._given[name])
        raise SpecError(f"the dimension expression {self._text!r} mentions {name!r}, which is not a dimension of this model")


def follows(dim: Dim, value: int, sizes: Mapping[str, int]) -> bool:
    """Whether a dimension's value is what its default expression gives at ``sizes``, rounded up if unbacked."""
    if dim.tied or isinstance(dim.default, int):
        return dim.tied
    if not all(name in sizes for name in _mentioned(dim.default)):
        return False
    default = evaluate(dim.default, sizes)
    return (math.ceil(default) if dim.unbacked_at else default) == value


ASSIGNMENT = "a dimension as NAME=INTEGER, e.g. B=8"


def parse_assignment(text: str) -> tuple[str, int]:
    """``"B=8"`` → ``("B", 8)``. Raises DimensionError unless the value is an integer from 1 to 2**63 - 1."""
    name, number = assignment(text, ASSIGNMENT, DimensionError)
    return name, parse_size(name, number)


_NUMBER = re.compile(r"([+-]?\d{1,40})(?:\.(\d{1,9}))?(?:e(\d{1,2}))?(Ki|Mi|k|M|G)?")
_SCALE = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20}


def number_in(text: str) -> Fraction | None:
    """The number written in ``text``: ``1024``, ``1_024``, ``1e3``, ``4k`` (4,000), ``4Ki`` (4,096); None if it is none of these."""
    match = _NUMBER.fullmatch(text.strip().replace("_", ""))
    if match is None:
        return None
    digits, decimals, exponent, unit = match.groups(default="")
    return Fraction(int(digits + decimals) * 10 ** int(exponent or 0) * _SCALE[unit], 10 ** len(decimals))


def parse_size(name: str, text: str) -> int:
    """The integer written in ``text`` for dimension ``name``, in a form of ``number_in``."""
    if text.strip().lstrip("+-").isdecimal() and len(text) > 40:
        raise DimensionError(f"{name} = {_clip(text)} is too large: sizes are integers from 1 to 2**63 - 1")
    number = number_in(text)
    if number is None:
        raise DimensionError(f"{name} = {_clip(text)} is not a size: write an integer from 1 to 2**63 - 1, as 1024, 1e3 or 1Ki")
    return size_of(name, number, text)


def size_of(name: str, number: Fraction, text: str) -> int:
    """``number``, written as ``text``, as the size of dimension ``name``. Raises DimensionError unless it is one."""
    if number.denominator != 1:
        raise DimensionError(f"{name} = {_clip(text)} is not an integer: sizes are integers from 1 to 2**63 - 1")
    return check_size(name, int(number))


def check_size(name: str, value: object) -> int:
    """``value``. Raises DimensionError unless it is an integer from 1 to 2**63 - 1."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise DimensionError(f"{name} = {_clip(str(value))} is not an integer: sizes are integers from 1 to 2**63 - 1")
    if value < 1:
        raise DimensionError(f"{name} = {value} is not positive: sizes are integers from 1 to 2**63 - 1")
    if value > LARGEST:
        raise DimensionError(f"{name} is too large (about 10**{value.bit_length() * 3 // 10}): sizes are integers from 1 to 2**63 - 1")
    return value


def _names_of(name: str, dim: Dim) -> list[str]:
    """The words for which someone may type a dimension: its name in lower case, and those of its meaning."""
    return [name.lower(), *meaning_of(name, dim).lower().split()]


def resolve(dims: Mapping[str, Dim], sizes: Mapping[str, int]) -> dict[str, int]:
    """Values of all dimensions: ``sizes``, and defaults evaluated at them. Checks names, divisibility and bounds (DimensionError)."""
    for name, value in sizes.items():
        if name not in dims:
            import difflib  # takes 1 ms, which every start would pay

            near = difflib.get_close_matches(name, dims, n=1) or [d for d in dims if name.lower() in _names_of(d, dims[d])]
            hint = f"; did you mean {near[0]}?" if near else ""
            raise DimensionError(f"this model has no dimension {_clip(name)!r}: it has {', '.join(dims)}{hint}")
        if dims[name].tied:
            raise DimensionError(
                f"{name} cannot be set: in this model {name} = {dims[name].default}; set {' or '.join(_mentioned(str(dims[name].default)))}"
            )
        check_size(name, value)
    values: dict[str, int] = {}
    for name in _in_order(dims):
        values[name] = sizes[name] if name in sizes else _default(name, dims[name], values)
    for name, dim in dims.items():
        _check_divides(name, dim, values)
        _check_bound(name, dim, values)
    return {name: values[name] for name in dims}


def _default(name: str, dim: Dim, values: Mapping[str, int]) -> int:
    if not isinstance(dim.default, str):
        return check_size(name, dim.default)
    value = evaluate(dim.default, values)
    if dim.unbacked_at:
        return check_size(name, math.ceil(value))
    if value.denominator != 1:
        used = sizes_text({n: values[n] for n in _mentioned(dim.default)}, PLAIN)
        raise DimensionError(f"{name} = {dim.default} is not an integer at {used}: {_divisible(dim.default, values)}")
    return check_size(name, int(value))


def _divisible(quotient: str, values: Mapping[str, int]) -> str:
    """What to choose so that a quotient is an integer: ``choose d as a multiple of h, e.g. d = 768``."""
    match parse(quotient):
        case Quotient(Name(top), Name(bottom)):
            several = max(values[top] // values[bottom], 1) * values[bottom]
            return f"choose {top} as a multiple of {bottom}, e.g. {top} = {several}"
    return "choose sizes that divide"


def _check_divides(name: str, dim: Dim, values: Mapping[str, int]) -> None:
    match dim.multiple_of:
        case None:
            return
        case int() as divisor if dim.plus:
            _check_pattern(name, values[name], divisor, dim.plus)
            return
        case int() as divisor:
            by = str(divisor)
        case part:
            divisor = _value_of(part, values, f"{name} is declared a multiple of {part!r}")
            by = f"{part} = {divisor}"
    if divisor < 1:
        raise SpecError(f"dimension {name} is declared a multiple of {divisor}: give a positive integer or the name of a dimension")
    if values[name] % divisor:
        raise DimensionError(
            f"{name} = {values[name]} is not divisible by {by}: this model needs {name} to be a multiple of {dim.multiple_of}"
        )


def smallest_fitting(dim: Dim, value: int) -> int:
    """The smallest size ≥ ``value`` that is a number of patterns of this dimension; ``value`` itself where it has none."""
    if not isinstance(dim.multiple_of, int):
        return value
    return dim.plus + max(1, -((dim.plus - value) // dim.multiple_of)) * dim.multiple_of


def size_steps(multiple_of: int | str | None, plus: int, sizes: Mapping[str, int]) -> tuple[int, int]:
    """``(first, step)``: a dimension can have the sizes ``first``, ``first + step``, and so on, where the others have ``sizes``."""
    step = sizes[multiple_of] if isinstance(multiple_of, str) else multiple_of or 1
    return step + plus, step


def _check_pattern(name: str, value: int, divisor: int, plus: int) -> None:
    if value <= plus or (value - plus) % divisor:
        several = f"a multiple of {divisor} and {plus} more" if divisor > 1 else f"more than {plus}"
        raise DimensionError(f"{name} = {value} does not fit: this model needs {name} to be {several}, e.g. {plus + divisor}")


def _check_bound(name: str, dim: Dim, values: Mapping[str, int]) -> None:
    if dim.at_most is None:
        return
    for used in _mentioned(dim.at_most):
        _value_of(used, values, f"{name} is declared at most {dim.at_most!r}")
    bound = evaluate(dim.at_most, values)
    if values[name] > bound:
        limits = " or ".join(ordered_names(dim.at_most))
        ways = f"lower {name} or raise {limits}" if limits else f"lower {name}"
        problem = f"{name} = {values[name]} is more than {dim.at_most} = {bound}"
        raise DimensionError(f"{problem}: this model needs {name} <= {dim.at_most}: {ways}")


def _value_of(name: str, values: Mapping[str, int], problem: str) -> int:
    if name not in values:
        raise SpecError(f"dimension {problem}, which is not a dimension of this model")
    return values[name]


def _in_order(dims: Mapping[str, Dim]) -> Sequence[str]:
    """Dimension names in topological order: each after those in its default."""
    return _ordered(tuple((name, dim.default if isinstance(dim.default, str) else "") for name, dim in dims.items()))


@functools.lru_cache(maxsize=64)
def _ordered(expressions: tuple[tuple[str, str], ...]) -> Sequence[str]:
    """The same for names with their default expressions; cached, since a search resolves the same dimensions at thousands of sizes."""
    defaults = dict(expressions)
    done: list[str] = []
    waiting: set[str] = set()

    def visit(name: str) -> None:
        if name in done:
            return
        if name in waiting:
            raise SpecError(f"the default of dimension {name!r} depends on itself: give one of them a number")
        if name not in defaults:
            raise SpecError(f"a dimension expression mentions {name!r}, which is not a dimension of this model")
        waiting.add(name)
        for needed in _mentioned(defaults[name]) if defaults[name] else ():
            visit(needed)
        waiting.discard(name)
        done.append(name)

    for name in defaults:
        visit(name)
    return tuple(done)


def _clip(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:18]}…{text[-8:]} ({len(text)} characters)"

"""Limits of a format, each derived from the layout: an expression, the expression with numbers, its exact value, and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from calc.mathematics.dtypes.layouts import Float, Format, IntegerFormat
from calc.symbolic.exact import evaluate_text
from calc.symbolic.expression import Number, substitute
from calc.symbolic.parser import parse
from calc.symbolic.writer import as_text


@dataclass(frozen=True, slots=True)
class Limit:
    """One step: ``text`` in the variables of the layout, the same with numbers, its value, and the reason."""

    name: str
    text: str
    put_in: str
    value: Fraction
    because: str


@cache
def limits(layout: Format) -> tuple[Limit, ...]:
    """Every limit of a format, in the order in which they follow from one another."""
    return _of_integer(layout) if isinstance(layout, IntegerFormat) else _of_float(layout)


@cache
def limit(layout: Format, name: str) -> Fraction:
    """One of them by its name."""
    return next(entry.value for entry in limits(layout) if entry.name == name)


class _Steps:
    """Consecutive steps: the value of one is a variable of the next."""

    def __init__(self, **letters: int) -> None:
        self.letters: dict[str, int] = dict(letters)
        self.limits: list[Limit] = []

    def add(self, name: str, text: str, because: str, letter: str = "") -> Fraction:
        value = evaluate_text(text, self.letters)
        self.limits.append(Limit(name, text, _put_in(text, self.letters), value, because))
        if letter:
            self.letters[letter] = int(value)
        return value

    def state(self, name: str, text: str, value: Fraction, because: str) -> None:
        self.limits.append(Limit(name, text, _put_in(text, self.letters), value, because))


def _put_in(text: str, letters: Mapping[str, int]) -> str:
    """``text`` with numbers for its variables."""
    return as_text(substitute(parse(text), {name: Number(value) for name, value in letters.items()}))


_TOP = {
    "ieee": ("2**e - 2", "the code of all ones is reserved for infinities and NaN"),
    "fn": ("2**e - 1", "every exponent code holds numbers"),
    "fnuz": ("2**e - 1", "every exponent code holds numbers"),
    "finite": ("2**e - 1", "every exponent code holds numbers"),
}
_BEYOND = {
    "ieee": ("2**(e + m + 1) - 2**(m + 1)", "all codes but those with the highest exponent"),
    "fn": ("2**(e + m + 1) - 2", "all codes but the two of all ones, which are NaN"),
    "fnuz": ("2**(e + m + 1) - 1", "all codes but that of -0, which is NaN"),
    "finite": ("2**(e + m + 1)", "all codes"),
}


def _of_float(layout: Float) -> tuple[Limit, ...]:
    steps = _Steps(e=layout.exponent, m=layout.fraction)
    if layout.specials == "fnuz":
        steps.add("bias", "2**(e - 1)", "one more than in IEEE 754, so that the highest code holds numbers", "bias")
    else:
        steps.add("bias", "2**(e - 1) - 1", "exponents are about symmetric around 0", "bias")
    text, because = _TOP[layout.specials]
    steps.add("largest exponent code", text, because, "top")
    steps.add("largest exponent", "top - bias", "the exponent is the code minus the bias", "emax")
    steps.add("smallest exponent", "1 - bias", "code 0 is reserved for 0 and subnormals, which have the exponent of code 1", "emin")
    if layout.specials == "fn":
        steps.add("largest", "(2 - 2*2**(-m))*2**emax", "a fraction of all ones but the last bit: all ones are NaN")
    else:
        steps.add("largest", "(2 - 2**(-m))*2**emax", "a fraction of all ones under the largest exponent")
    steps.add("smallest normal", "2**emin", "a fraction of 0 under the smallest exponent")
    steps.add("smallest subnormal", "2**(emin - m)", "the last bit of the fraction alone, without the leading 1")
    steps.add("epsilon", "2**(-m)", "from 1 to the next larger number: the last bit of the fraction")
    steps.add("rounding error, at most", "2**(-m - 1)", "half of epsilon, relative, where a number is normal")
    steps.add("integers without a gap up to", "2**(m + 1)", "m bits of the fraction and the leading 1")
    _digits(steps, layout.fraction)
    steps.add("finite codes", *_BEYOND[layout.specials])
    return tuple(steps.limits)


def _digits(steps: _Steps, m: int) -> None:
    """Decimal digits. Those kept are what C calls DIG, those needed DECIMAL_DIG; torch's resolution is a unit of the last digit kept."""
    digits = _log10(2**m)
    steps.state(
        "decimal digits kept",
        "floor(m*log10(2))",
        Fraction(digits),
        "this many survive a round trip through the format: 10^digits ≤ 2^m",
    )
    distinguishing = _log10(2 ** (m + 1)) + 2
    steps.state("decimal digits needed", "1 + ceiling((m + 1)*log10(2))", Fraction(distinguishing), "this many distinguish any two numbers")
    share = Fraction(_log10(2 ** (100 * (m + 1))), 100)
    steps.state("decimal digits, about", "(m + 1)*log10(2)", share, "significant bits as digits, cut off after two places")
    steps.state("resolution", "10**(-floor(m*log10(2)))", Fraction(1, 10**digits), "a unit of the last preserved decimal digit")


def _log10(power_of_two: int) -> int:
    """The largest n with 10**n at most a power of two above 1."""
    digits = 0
    while 10 ** (digits + 1) <= power_of_two:
        digits += 1
    return digits


def _of_integer(layout: IntegerFormat) -> tuple[Limit, ...]:
    steps = _Steps(b=layout.bits)
    if layout.signed:
        steps.add("largest", "2**(b - 1) - 1", "half of the codes are below 0, one is 0")
        steps.add("smallest", "-2**(b - 1)", "two's complement: the highest bit has a negative weight")
    else:
        steps.add("largest", "2**b - 1", "all ones")
        steps.add("smallest", "0*b", "no sign")
    steps.add("step", "1 + 0*b", "whole numbers")
    steps.add("finite codes", "2**b", "all codes")
    return tuple(steps.limits)

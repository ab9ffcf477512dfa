"""Expressions as a person writes them on one line, ``6·N·D/(86400·R)``: for reasons and screens, not to be pasted into Python."""

from __future__ import annotations

from collections.abc import Mapping

from calc.symbolic.expression import Expression, Negative, Number
from calc.symbolic.parser import parse
from calc.symbolic.writer import TextWriter

MINUS = "−"
_FUNCTIONS = {"Max": "max", "Min": "min", "Mod": "mod"}
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def superscript(number: float) -> str:
    """Digits and sign raised: ``⁻¹²``."""
    return str(number).translate(_SUPERSCRIPTS)


class ReadableWriter(TextWriter):
    """With raised powers, and texts in the place of the names in ``values``."""

    def __init__(self, times: str = "·", over: str = "/", values: Mapping[str, str] | None = None) -> None:
        super().__init__(times, over, "^", MINUS)
        self._values = values or {}

    def name(self, name: str) -> str:
        return self._values.get(name) or _FUNCTIONS.get(name, name)

    def exponent(self, exponent: Expression) -> str:
        match exponent:
            case Number(int() as power):
                return superscript(power)
            case Negative(Number(int() as power)):
                return superscript(-power)
        return super().exponent(exponent)


def readable(expr: str | Expression) -> str:
    """``6*N*D/(86400*R)`` as 6·N·D/(86400·R), and powers raised."""
    return ReadableWriter().written(parse(expr) if isinstance(expr, str) else expr)[0]

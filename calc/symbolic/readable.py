"""Expressions as a person writes them on one line, ``6·N·D/(86400·R)``: for reasons and screens, not to be pasted into Python."""

from __future__ import annotations

from collections.abc import Mapping

from calc.symbolic.expression import Expression, FunctionCall, Negative, Number, Piecewise
from calc.symbolic.parser import parse
from calc.symbolic.writer import ATOM, TextWriter

MINUS = "−"
_FUNCTIONS = {"Max": "max", "Min": "min", "Mod": "mod"}
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def superscript(number: float) -> str:
    """Digits and sign raised: ``⁻¹²``."""
    return str(number).translate(_SUPERSCRIPTS)


class ReadableWriter(TextWriter):
    """With raised powers, cases with their conditions, and texts in the place of the names in ``values``."""

    def __init__(self, times: str = "·", over: str = "/", values: Mapping[str, str] | None = None) -> None:
        super().__init__(times, over, "^", MINUS)
        self._values = values or {}

    def written(self, expr: Expression) -> tuple[str, int]:
        match expr:
            case Piecewise():
                return f"[{self.cases(expr)}]", ATOM
            case FunctionCall("Eq", (left, right)):
                return f"{self.written(left)[0]} = {self.written(right)[0]}", ATOM
        return super().written(expr)

    def cases(self, expr: Piecewise) -> str:
        """``x where x > 0; else 0``."""
        writer = ReadableWriter(over=" / ", values=self._values)
        *first, (last, _) = expr.cases
        parts = [f"{writer.written(value)[0]} where {writer.written(condition)[0]}" for value, condition in first]
        return "; ".join([*parts, f"else {writer.written(last)[0]}"])

    def name(self, name: str) -> str:
        return self._values.get(name) or _FUNCTIONS.get(name, name)

    def exponent(self, exponent: Expression) -> str:
        match exponent:
            case Number(int() as power):
                return superscript(power)
            case Negative(Number(int() as power)):
                return superscript(-power)
        return super().exponent(exponent)


def readable(expr: str | Expression, signs: Mapping[str, str] | None = None) -> str:
    """``6*N*D/(86400*R)`` as 6·N·D/(86400·R), and powers raised. ``signs`` replace names: ``β₁`` for ``beta1``."""
    writer, tree = ReadableWriter(values=signs), parse(expr) if isinstance(expr, str) else expr
    return writer.cases(tree) if isinstance(tree, Piecewise) else writer.written(tree)[0]

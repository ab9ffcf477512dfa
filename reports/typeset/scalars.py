"""Scalar expressions in text and in LaTeX: SymPy's printers with the signs that people use."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Protocol

import sympy as sp
from sympy.printing.latex import LatexPrinter
from sympy.printing.str import StrPrinter

from calc.mathematics.autodiff.names import LOSS
from calc.mathematics.autodiff.scalar import WHOLE_NAMES, Sigmoid, Whole

_CLOSE, _PRODUCT, _SUM = 90, 51, 20
_PLAIN = {
    "Sigmoid": "σ",
    "Softplus": "softplus",
    "Floor": "floor",
    "Ceiling": "ceil",
    "Round": "round",
    "Truncate": "trunc",
    "Sign": "sign",
}
_LATEX = {"Sigmoid": r"\sigma", **{name: rf"\mathrm{{{text}}}" for name, text in _PLAIN.items() if name != "Sigmoid"}}


class Style(Protocol):
    """How names, sums, gradients and scalar expressions are written."""

    transposed: str
    at_most: str
    at_least: str

    def name(self, name: str) -> str: ...
    def gradient(self, name: str) -> str: ...
    def sum(self, letters: Sequence[str]) -> str: ...
    def over(self, kind: str, letters: Sequence[str]) -> str: ...
    def word(self, word: str) -> str: ...
    def where(self, text: str) -> str: ...
    def cases(self, text: str, conditions: Sequence[tuple[str, str, str]], otherwise: str) -> str: ...
    def times(self, between: str) -> str: ...
    def scalar(self, expr: sp.Expr, parts: Mapping[sp.Symbol, str], matrix: bool) -> tuple[str, int, list[str]]: ...


def _binds(expr: sp.Expr) -> int:
    if expr.is_Add or (expr.is_Mul and expr.could_extract_minus_sign()):
        return _SUM
    return _PRODUCT if expr.is_Mul else _CLOSE


def raised(expr: sp.Expr) -> set[sp.Symbol]:
    """The symbols that stand in a power or behind a division sign, where a product needs brackets: 10^(a/b)."""
    sides = (side for power in expr.atoms(sp.Pow) for side in power.args if not side.is_Add)
    return {factor for side in sides for factor in sp.Mul.make_args(side) if factor.is_Symbol}


class Prime(sp.Function):  # type: ignore[misc]  # SymPy publishes no types
    """The derivative of a named function at its argument, where that is too long to be read inside an equation."""


_LONG = 14


def _shortened(expr: sp.Expr, printer: Any) -> tuple[sp.Expr, list[str]]:
    """Long derivatives by their function's name, and what each of them and the sigmoid is."""
    u, write = sp.Symbol("u", real=True), printer({"order": "none"}).doprint
    notes = [f"{write(Sigmoid(u))} = {write(1 / (1 + sp.exp(-u)))}"] if expr.has(Sigmoid) else []
    for call in expr.atoms(Whole):
        inside, number = call.args
        arguments = sorted((s for s in inside.free_symbols if s.is_real and not s.is_positive), key=str)
        if sp.count_ops(inside) < _LONG or len(arguments) != 1:
            continue
        name = WHOLE_NAMES[int(number)]
        notes.append(f"{name}'(u) = {write(inside.xreplace({arguments[0]: u}))}")
        expr = expr.xreplace({call: Prime(sp.Symbol(name), arguments[0])})
    return expr, notes


_DIGITS = 10  # of a number that has no end


def _decimal(number: sp.Float, further: str) -> str:
    """The shortest decimals of a double, or its first digits and ``further``."""
    text = f"{float(number):.{_DIGITS}g}"
    return text if float(text) == float(number) else f"{text}{further}"


def _with_fractions(expr: sp.Expr) -> sp.Expr:
    """``expr`` in which a double without short decimals is the fraction that it is the nearest to: dropout's 1/(1 − 0.1) is 10/9."""
    exact = {number: Fraction(float(number)).limit_denominator(999) for number in expr.atoms(sp.Float) if _decimal(number, "…")[-1] == "…"}
    return expr.xreplace({n: sp.Rational(f.numerator, f.denominator) for n, f in exact.items() if float(f) == float(n)})


def _signs(text: str) -> str:
    """SymPy's text with the signs of mathematics; the exponent of a double keeps its hyphen."""
    return _MINUS.sub("−", text).replace("**", "^").replace("*", "·").replace("sqrt(", "√(")


_MINUS = re.compile(r"(?<!\de)-")


class _TextPrinter(StrPrinter):  # type: ignore[misc]  # SymPy publishes no types
    def _print_Float(self, expr: Any) -> str:
        return _decimal(expr, "…")

    def _print_Pi(self, expr: Any) -> str:
        return "π"

    def _print_Whole(self, expr: Any) -> str:
        return f"({self._print(expr.args[0])})"

    def _print_Prime(self, expr: Any) -> str:
        return f"{expr.args[0]}'({self._print(expr.args[1])})"

    def _print_Piecewise(self, expr: Any) -> str:
        cases = [f"{self._print(e)} where {self._print(c)}" for e, c in expr.args[:-1]]
        return "{" + "; ".join([*cases, f"else {self._print(expr.args[-1][0])}"]) + "}"

    def _print_Abs(self, expr: Any) -> str:
        return f"|{self._print(expr.args[0])}|"

    def _print_Function(self, expr: Any) -> str:
        name = type(expr).__name__
        return f"{_PLAIN.get(name, name)}({', '.join(self._print(a) for a in expr.args)})"

    def _print_Relational(self, expr: Any) -> str:
        sign = {"==": "=", "!=": "≠", "<=": "≤", ">=": "≥"}.get(expr.rel_op, expr.rel_op)
        return f"{self._print(expr.lhs)} {sign} {self._print(expr.rhs)}"


def _is_enclosed(text: str) -> bool:
    """Whether a text is in brackets of its own, as an argument is: √(a + b)."""
    depths = list(itertools.accumulate((sign == "(") - (sign == ")") for sign in text))
    return text.startswith("(") and 0 not in depths[:-1] and depths[-1] == 0


class Text:
    """As text for a terminal."""

    transposed, at_most, at_least = "ᵀ", "≤", "≥"

    def name(self, name: str) -> str:
        return name

    def gradient(self, name: str) -> str:
        return f"∂{LOSS}/∂{name}"

    def sum(self, letters: Sequence[str]) -> str:
        return f"Σ_{','.join(letters)}"

    def over(self, kind: str, letters: Sequence[str]) -> str:
        return f"{kind}_{','.join(letters)}"

    def word(self, word: str) -> str:
        return word

    def where(self, text: str) -> str:
        return f" with {text}"

    def cases(self, text: str, conditions: Sequence[tuple[str, str, str]], otherwise: str) -> str:
        return f"{{{text} where {' and '.join(' '.join(c) for c in conditions)}; else {otherwise}}}"

    def times(self, between: str) -> str:
        return between

    def scalar(self, expr: sp.Expr, parts: Mapping[sp.Symbol, str], matrix: bool) -> tuple[str, int, list[str]]:
        symbols = {s: sp.Symbol(f"q{i}q", real=True) for i, s in enumerate(parts)}
        names = {symbols[s].name: text for s, text in parts.items()}
        names["infinity"] = "∞"
        expr, notes = _shortened(_with_fractions(expr).xreplace(symbols), _TextPrinter)
        text = _TextPrinter({"order": "none"}).doprint(expr)
        text = text.replace("**", "^")
        if matrix:  # numbers multiply, tensors multiply element by element
            text = re.sub(r"(?<=[q)])\*(?=q|\()", " ⊙ ", text)
        text = re.sub(r"\((q\d+q)\)", lambda m: m[1] if _is_enclosed(names[m[1]]) else m[0], _signs(text))
        return re.sub(r"q\d+q|infinity", lambda m: names[m[0]], text), _binds(expr), [_signs(note) for note in notes]


class _Printer(LatexPrinter):  # type: ignore[misc]  # as above
    def _print_Float(self, expr: Any) -> str:
        return _decimal(expr, r"\ldots")

    def _print_Whole(self, expr: Any, exp: Any = None) -> str:
        return rf"\left({self._print(expr.args[0])}\right)" + (f"^{{{exp}}}" if exp else "")

    def _print_Prime(self, expr: Any, exp: Any = None) -> str:
        return rf"\mathrm{{{expr.args[0]}}}'\left({self._print(expr.args[1])}\right)"

    def _print_Function(self, expr: Any, exp: Any = None) -> str:
        name = type(expr).__name__
        if name not in _LATEX:
            return str(super()._print_Function(expr, exp))
        return f"{_LATEX[name]}{f'^{{{exp}}}' if exp else ''}\\left({', '.join(self._print(a) for a in expr.args)}\\right)"


class Latex:
    """As LaTeX."""

    transposed, at_most, at_least = r"^{\top}", r"\le ", r"\ge "

    def name(self, name: str) -> str:
        owner, _, letter = name.rpartition(".")
        escaped = owner.replace("_", r"\_")
        shown = _letter(letter)
        return rf"{shown}_{{\mathrm{{{escaped}}}}}" if owner else shown

    def gradient(self, name: str) -> str:
        return rf"\frac{{\partial \mathcal{{L}}}}{{\partial {name}}}"

    def sum(self, letters: Sequence[str]) -> str:
        return rf"\sum_{{{','.join(letters)}}}"

    def over(self, kind: str, letters: Sequence[str]) -> str:
        return rf"\mathrm{{{kind}}}_{{{','.join(letters)}}}"

    def word(self, word: str) -> str:
        return rf"\mathrm{{{word}}}"

    def where(self, text: str) -> str:
        return rf"\quad ({text})"

    def cases(self, text: str, conditions: Sequence[tuple[str, str, str]], otherwise: str) -> str:
        written = r" \wedge ".join(f"{left} {_RELATIONS[sign]} {right}" for left, sign, right in conditions)
        return rf"\begin{{cases}} {text} & \text{{for}}\: {written} \\ {otherwise} & \text{{otherwise}} \end{{cases}}"

    def times(self, between: str) -> str:
        return r"\, "

    def scalar(self, expr: sp.Expr, parts: Mapping[sp.Symbol, str], matrix: bool) -> tuple[str, int, list[str]]:
        names = {**parts, sp.Symbol("infinity", positive=True): r"\infty"}
        settings = {"symbol_names": names, "order": "none", "mul_symbol": r" \odot " if matrix else " "}
        expr, notes = _shortened(_with_fractions(expr), _Printer)
        return _Printer(settings).doprint(expr), _binds(expr), notes


_RELATIONS = {"≥": r"\ge", "<": "<"}
_SIGNS = {"μ": r"\mu", "σ": r"\sigma", "θ": r"\theta", "x̂": r"\hat{x}", "ℒ": r"\mathcal{L}"}


def _letter(letter: str) -> str:
    stem = letter.rstrip("0123456789")
    number = letter[len(stem) :]
    shown = _SIGNS.get(stem, stem)
    if (len(stem) > 2 or (len(stem) > 1 and stem.isalpha())) and stem not in _SIGNS:
        shown = rf"\mathrm{{{stem.replace('_', chr(92) + '_')}}}"
    return f"{shown}^{{({number})}}" if number and stem else shown

"""Scalar expressions in text and in LaTeX: SymPy's printers with the signs that people use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Protocol

import sympy as sp
from sympy.printing.latex import LatexPrinter
from sympy.printing.str import StrPrinter

from calc.mathematics.autodiff.names import LOSS
from calc.mathematics.autodiff.scalar import WHOLE_NAMES, Sigmoid, Whole
from calc.mathematics.autodiff.sizes import INFINITY
from reports.typeset.sympy_text import CLOSE, FUNCTIONS, Prime, SympyText, Written, decimal

_PRODUCT, _SUM = 51, 20
_LATEX = {"Sigmoid": r"\sigma", **{name: rf"\mathrm{{{text}}}" for name, text in FUNCTIONS.items() if name != "Sigmoid"}}


class Style(Protocol):
    """How names, sums, gradients and scalar expressions are written."""

    at_most: str
    at_least: str

    def name(self, name: str) -> str: ...
    def gradient(self, name: str) -> str: ...
    def transposed(self, factor: str, in_brackets: bool) -> str: ...
    def sum(self, letters: Sequence[str]) -> str: ...
    def over(self, kind: str, letters: Sequence[str]) -> str: ...
    def word(self, word: str) -> str: ...
    def where(self, text: str) -> str: ...
    def cases(self, text: str, conditions: Sequence[tuple[str, str, str]], otherwise: str) -> str: ...
    def times(self, between: str) -> str: ...
    def scalar(self, expr: sp.Expr, parts: Mapping[sp.Symbol, Written], matrix: bool) -> tuple[Written, list[str]]: ...


def _binds(expr: sp.Expr) -> int:
    if expr.is_Add or (expr.is_Mul and expr.could_extract_minus_sign()):
        return _SUM
    return _PRODUCT if expr.is_Mul else CLOSE


def raised(expr: sp.Expr) -> set[sp.Symbol]:
    """The symbols that stand in a power or behind a division sign, where a product needs brackets: 10^(a/b)."""
    sides = (side for power in expr.atoms(sp.Pow) for side in power.args if not side.is_Add)
    return {factor for side in sides for factor in sp.Mul.make_args(side) if factor.is_Symbol}


_LONG = 14


def _shortened(expr: sp.Expr, printer: StrPrinter | LatexPrinter) -> tuple[sp.Expr, list[str]]:
    """Long derivatives by their function's name, and what each of them and the sigmoid is."""
    u, write = sp.Symbol("u", real=True), printer.doprint
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


def _with_fractions(expr: sp.Expr) -> sp.Expr:
    """``expr`` in which a double without short decimals is the fraction that it is the nearest to: dropout's 1/(1 − 0.1) is 10/9."""
    exact = {number: Fraction(float(number)).limit_denominator(999) for number in expr.atoms(sp.Float) if decimal(number, "…")[-1] == "…"}
    return expr.xreplace({n: sp.Rational(f.numerator, f.denominator) for n, f in exact.items() if float(f) == float(n)})


class Text:
    """As text for a terminal."""

    at_most, at_least = "≤", "≥"

    def name(self, name: str) -> str:
        return name

    def gradient(self, name: str) -> str:
        return f"∂{LOSS}/∂{name}"

    def transposed(self, factor: str, in_brackets: bool) -> str:
        return f"({factor})ᵀ" if in_brackets else f"{factor}ᵀ"

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

    def scalar(self, expr: sp.Expr, parts: Mapping[sp.Symbol, Written], matrix: bool) -> tuple[Written, list[str]]:
        expr, notes = _shortened(_with_fractions(expr), SympyText())
        text = SympyText(parts, matrix).write(expr)
        return Written(text, _binds(expr), isinstance(expr, Whole)), notes


class _Printer(LatexPrinter):  # type: ignore[misc]  # SymPy publishes no types
    def _print_Float(self, expr: Any) -> str:
        return decimal(expr, r"\ldots")

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

    at_most, at_least = r"\le ", r"\ge "

    def name(self, name: str) -> str:
        owner, _, letter = name.rpartition(".")
        escaped = owner.replace("_", r"\_")
        shown = _letter(letter)
        return rf"{shown}_{{\mathrm{{{escaped}}}}}" if owner else shown

    def gradient(self, name: str) -> str:
        return rf"\frac{{\partial \mathcal{{L}}}}{{\partial {name}}}"

    def transposed(self, factor: str, in_brackets: bool) -> str:
        return rf"\left({factor}\right)^{{\top}}" if in_brackets else rf"{{{factor}}}^{{\top}}"  # a name may have a superscript

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

    def scalar(self, expr: sp.Expr, parts: Mapping[sp.Symbol, Written], matrix: bool) -> tuple[Written, list[str]]:
        names = {**{symbol: part.text for symbol, part in parts.items()}, INFINITY: r"\infty"}
        expr, notes = _shortened(_with_fractions(expr), _Printer({"order": "none"}))
        settings = {"symbol_names": names, "order": "none", "mul_symbol": r" \odot " if matrix else " "}
        return Written(_Printer(settings).doprint(expr), _binds(expr)), notes


_RELATIONS = {"≥": r"\ge", "<": "<"}
_SIGNS = {"μ": r"\mu", "σ": r"\sigma", "θ": r"\theta", "x̂": r"\hat{x}", "ℒ": r"\mathcal{L}"}


def _letter(letter: str) -> str:
    stem = letter.rstrip("0123456789")
    number = letter[len(stem) :]
    stem = stem.removesuffix("_") if number else stem
    shown = _SIGNS.get(stem, stem)
    if (len(stem) > 2 or (len(stem) > 1 and stem.isalpha())) and stem not in _SIGNS:
        shown = rf"\mathrm{{{stem.replace('_', chr(92) + '_')}}}"
    return f"{shown}^{{({number})}}" if number and stem else shown

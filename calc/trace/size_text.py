"""Torch's symbolic expressions as the texts of sizes and guards, simplified where no size changes the result."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import sympy as sp

from calc.platform.torch_private import FloorDiv

# Tokens of a size; any other text is a function of values.
_SIZE_TEXT = re.compile(r"\b(?:floor|ceiling|Max|Min|Mod)\b|\b[A-Za-z_]\w*\b(?!\()|[\d\s()*/+,-]")

# A guard may also compare doubles computed from sizes.
_GUARD_TEXT = re.compile(rf"\b(?:float|int|round|sqrt|log2)\b|\d\.\d|\de[+-]?\d|%|{_SIZE_TEXT.pattern}")
_RELATIONS = {"Equality": "==", "Unequality": "!=", "StrictLessThan": "<", "LessThan": "<=", "StrictGreaterThan": ">", "GreaterThan": ">="}
_LOGIC = {"And": " and ", "Or": " or "}


def guard_text(e: Any, names: Mapping[sp.Symbol, str]) -> str | None:
    """A comparison as text; None where it is about values rather than sizes (the sign of a scale, say)."""
    kind = type(e).__name__
    if kind in _RELATIONS:
        sides = [_text(_rounded_up(side), names) for side in e.args]
        return None if any(_GUARD_TEXT.sub("", side).strip() for side in sides) else f"{sides[0]} {_RELATIONS[kind]} {sides[1]}"
    parts = [guard_text(part, names) for part in e.args]
    if not parts or None in parts:
        return None
    operands = [f"({part})" for part in parts]
    return f"not {operands[0]}" if kind == "Not" else _LOGIC[kind].join(operands) if kind in _LOGIC else None


def size_text(expr: sp.Expr, names: Mapping[sp.Symbol, str]) -> int | str:
    """A size: an integer, or its text in ``names``."""
    if expr.is_Integer:
        return int(expr)
    return _text(_rounded_up(expr), names)


def has_other_text(size: str) -> bool:
    """Whether the text of a size contains a function of values."""
    return bool(_SIZE_TEXT.sub("", size).strip())


@functools.lru_cache(maxsize=65536)
def simplified(e: Any) -> Any:
    """``e`` with floor quotients simplified whose remainder is less than the divisor at all sizes: ``floor((k*n + k - 1)/k)``, the number
    of chunks of ``k*n`` elements, is n."""
    whole = {call: _quotient(*call.args) for call in e.atoms(FloorDiv)}
    return e.xreplace({call: quotient for call, quotient in whole.items() if quotient is not None})


def _quotient(numerator: Any, denominator: Any) -> sp.Expr | None:
    whole = _whole_quotient(numerator, denominator)
    if whole is not None:
        return whole
    terms = sp.Add.make_args(sp.expand(numerator))
    parts = {term: part for term in terms if (part := _whole_quotient(term, denominator)) is not None}
    rest = sp.Add(*(term for term in terms if term not in parts))
    if never_below_one(rest + 1) and never_below_one(denominator - rest):
        return sp.Add(*parts.values())
    if never_below_one(-rest) and never_below_one(denominator + rest + 1):
        return sp.Add(*parts.values(), -1)
    return None


# ``-(-n // k)``, Python's idiom for rounding up, as a separate function: the terms of ``n`` keep their signs.
_CEILING = sp.Function("CeilDiv", integer=True)


@functools.lru_cache(maxsize=65536)
def _rounded_up(e: Any) -> Any:
    """``e`` with floors of negative quotients written as ceilings of positive ones."""
    below = {call: -_CEILING(-call.args[0], call.args[1]) for call in e.atoms(FloorDiv) if _is_below_nought(call.args[0])}
    return e.xreplace(below) if below else e


def _is_below_nought(e: Any) -> bool:
    return all(term.could_extract_minus_sign() for term in sp.Add.make_args(e))


# Doubles computed from sizes, as ``calc.symbolic.exact`` evaluates them: with Python's arithmetic, in the order of the step.
_OF_DOUBLES = {
    "ToFloat": "float", "TruncToInt": "int", "FloorToInt": "floor", "CeilToInt": "ceiling", "RoundToInt": "round",
    "OpaqueUnaryFn_sqrt": "sqrt", "OpaqueUnaryFn_log2": "log2",
    "Plus": "+", "Minus": "-", "Times": "*", "WholeQuotient": "//", "Rest": "%", "FloatTrueDiv": "/", "FloatPow": "**",
}  # fmt: skip


def _text(e: Any, names: Mapping[sp.Symbol, str]) -> str:
    if e.is_Symbol:
        return names.get(e, str(e))
    if e.is_Integer:
        return str(int(e))
    if e.is_Rational:
        return f"{e.p}/{e.q}"
    if e.is_Float:
        return repr(float(e))
    args = [_text(a, names) for a in e.args]
    kind = type(e).__name__
    if e.is_Add:
        return "(" + " + ".join(args) + ")"
    if e.is_Mul:
        return "*".join(a if _atomic(a) else f"({a})" for a in args)
    if e.is_Pow and e.exp.is_Integer and e.exp > 0:
        return f"({args[0]})**{args[1]}"
    match kind:
        case "FloorDiv" | "CleanDiv":
            whole = _whole_quotient(*e.args)
            return f"floor(({args[0]})/({args[1]}))" if whole is None else _text(whole, names)
        case "CeilDiv":
            return f"ceiling(({args[0]})/({args[1]}))"
        case "CeilToInt" | "TruncToInt" | "FloorToInt" | "RoundToInt" | "ToFloat" | "OpaqueUnaryFn_sqrt" | "OpaqueUnaryFn_log2":
            return f"{_OF_DOUBLES[kind]}({args[0]})"
        case "IntTrueDiv":  # Python divides integers exactly and rounds once
            return f"float(({args[0]})/({args[1]}))"
        case "Plus" | "Minus" | "Times" | "WholeQuotient" | "Rest" | "FloatTrueDiv" | "FloatPow":
            return f"({args[0]}) {_OF_DOUBLES[kind]} ({args[1]})"
        case "Mod" | "PythonMod":
            return f"Mod({args[0]}, {args[1]})"
        case "Max" | "Min":
            return _max_of_sizes(e, args, kind)
        case "floor" | "ceiling":
            return f"{kind}({args[0]})"
    return f"{kind}({', '.join(args)})"


@functools.lru_cache(maxsize=65536)
def _whole_quotient(numerator: Any, denominator: Any) -> sp.Expr | None:
    """The quotient if it is a polynomial with integer coefficients, such as s where a view splits s**2 into s and the rest; else None. A
    rounded size, such as the T // 8 tokens that a layer keeps, may be the s."""
    if not denominator.free_symbols <= numerator.free_symbols or not numerator.free_symbols:
        return None
    named = {call: sp.Dummy(integer=True) for call in _outermost(numerator) | _outermost(denominator)}
    quotient = sp.cancel(numerator.xreplace(named) / denominator.xreplace(named))
    symbols = sorted(numerator.free_symbols | {*named.values()}, key=str)
    whole = quotient.is_polynomial(*symbols) and all(c.is_Integer for c in sp.Poly(quotient, *symbols).coeffs())
    return quotient.xreplace({name: call for call, name in named.items()}) if whole else None


def _outermost(e: Any) -> set[Any]:
    """The floor quotients in ``e`` that are in no other one."""
    return {e} if isinstance(e, FloorDiv) else {call for part in e.args for call in _outermost(part)}


def _atomic(text: str) -> bool:
    return text.isidentifier() or text.isdigit() or text.startswith("(")


def _max_of_sizes(e: Any, args: list[str], kind: str) -> str:
    """The text of a maximum; ``Max(1, n)``, which torch writes where a stride must not be 0, is n where n is at least 1."""
    if kind == "Max":
        rest = [(a, t) for a, t in zip(e.args, args, strict=True) if a != 1]
        if len(rest) == 1 and never_below_one(rest[0][0]):
            return rest[0][1]
    return f"{kind}({', '.join(args)})"


def never_below_one(e: Any) -> bool:
    """Whether an expression is at least 1 at all sizes of at least 1: its value at 1 is, and it decreases with no size."""
    e = _rounded_up(simplified(e))
    e = e.xreplace({call: sp.S.One for call in e.atoms(_CEILING) if all(map(never_below_one, call.args))})  # each ceiling is at least 1
    if any(part.could_extract_minus_sign() and not part.is_number for added in e.atoms(sp.Add) for part in added.args):
        return False
    for call in e.atoms(sp.Function):
        kind = type(call).__name__
        if kind != "CleanDiv" and (kind != "FloorDiv" or call.args[1].free_symbols):
            return False
    return bool(e.subs(dict.fromkeys(e.free_symbols, 1)) >= 1)

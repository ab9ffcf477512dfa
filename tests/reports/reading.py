r"""Printed formulas read back: the LaTeX of a report evaluated as it stands on the page, by a reader that shares nothing with the writers.

It knows sums, products written side by side, powers, fractions, braces with a label, sums over layers, maxima, floors and remainders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from math import ceil, floor

_TOKENS = re.compile(
    r"\\mathrm\{(?P<word>(?:\\_|[^{}\\])*)\}|(?P<number>\d+(?:\{,\}\d{3})*)|(?P<letter>[A-Za-z])(?:_\{(?P<index>\d+)\})?"
    r"|(?:\\text\{(?:\\.|[^{}\\])*\}|\\[_#%&])+|(?P<command>\\(?:[A-Za-z]+|,))|(?P<sign>[-+(){}^_,=])|\s+"
)


_BEGIN = ("(", "{", r"\frac", r"\sum", r"\max", r"\min", r"\underbrace", r"\lfloor", r"\lceil")


class Unreadable(ValueError):
    """What is printed is no formula."""


def names(latex: str) -> set[str]:
    """The symbols of a formula, ``M_1`` for an M with an index."""
    return {name for kind, name in _tokens(latex) if kind == "name"} - {"ℓ"}


def evaluate(latex: str, values: Mapping[str, Fraction]) -> Fraction:
    """What a formula comes to where its symbols have these values."""
    reader = _Reader(_tokens(latex), values)
    actual = reader.sum()
    if reader.next != ("end", ""):
        raise Unreadable(f"{reader.next[1]!r} follows in {latex!r}")
    return actual


def _tokens(latex: str) -> list[tuple[str, str]]:
    actual: list[tuple[str, str]] = []
    at = 0
    while at < len(latex):
        match = _TOKENS.match(latex, at)
        if match is None:
            raise Unreadable(f"{latex[at : at + 20]!r} in {latex!r}")
        at = match.end()
        if match["word"] is not None:
            actual.append(("name", match["word"].replace(r"\_", "_")))
        elif match["number"]:
            actual.append(("number", match["number"].replace("{,}", "")))
        elif match["letter"]:
            actual.append(("name", f"{match['letter']}_{match['index']}" if match["index"] else match["letter"]))
        elif match["command"] and match["command"] not in (r"\,", r"\left", r"\right"):
            actual.append(("command", match["command"]))
        elif match["sign"]:
            actual.append(("sign", match["sign"]))
    return actual


class _Reader:
    def __init__(self, tokens: list[tuple[str, str]], values: Mapping[str, Fraction]) -> None:
        self.tokens = [*tokens, ("end", "")]
        self.values = values
        self.at = 0

    @property
    def next(self) -> tuple[str, str]:
        return self.tokens[self.at]

    def take(self) -> tuple[str, str]:
        self.at += 1
        return self.tokens[self.at - 1]

    def require(self, text: str) -> None:
        if self.take()[1] != text:
            raise Unreadable(f"{text!r} is missing before {self.tokens[self.at - 1][1]!r}")

    def sum(self) -> Fraction:
        actual = Fraction(0)
        sign = 1
        if self.next[1] in ("+", "-"):
            sign = -1 if self.take()[1] == "-" else 1
        while True:
            actual += sign * self.product()
            if self.next[1] not in ("+", "-"):
                return actual
            sign = -1 if self.take()[1] == "-" else 1

    def product(self) -> Fraction:
        actual = self.power()
        while True:
            kind, text = self.next
            if text == r"\cdot":
                self.take()
                sign = -1 if self.next[1] == "-" else 1
                if sign < 0:
                    self.take()
                actual *= sign * self.power()
            elif text == r"\bmod":
                self.take()
                right = self.power()
                actual = actual - right * floor(actual / right)
            elif kind in ("number", "name") or text in _BEGIN:
                actual *= self.power()
            else:
                return actual

    def power(self) -> Fraction:
        base = self.atom()
        while self.next[1] == "^":
            self.take()
            exponent = self.braced()
            if exponent.denominator != 1:
                raise Unreadable(f"a power of {exponent}")
            base = base ** int(exponent)
        return base

    def braced(self) -> Fraction:
        self.require("{")
        actual = self.sum()
        self.require("}")
        return actual

    def atom(self) -> Fraction:
        kind, text = self.take()
        match kind, text:
            case "number", _:
                return Fraction(text)
            case "name", _:
                name = text if text in self.values else text.replace("_", "")
                if name not in self.values:
                    raise Unreadable(f"{text} is not defined before")
                return self.values[name]
            case _, "{":
                self.at -= 1
                return self.braced()
            case _, "(":
                actual = self.sum()
                self.require(")")
                return actual
            case _, r"\frac":
                return self.braced() / self.braced()
            case _, r"\underbrace":
                actual = self.braced()
                if self.next[1] == "_":  # its label, of which the tokens leave the braces
                    self.take(), self.require("{"), self.require("}")
                return actual
            case _, r"\sum":
                return self.layers()
            case _, (r"\max" | r"\min"):
                values = self.listed()
                return max(values) if text == r"\max" else min(values)
            case _, (r"\lfloor" | r"\lceil"):
                actual = self.sum()
                self.require(r"\rfloor" if text == r"\lfloor" else r"\rceil")
                return Fraction(floor(actual) if text == r"\lfloor" else ceil(actual))
        raise Unreadable(f"{text!r} begins nothing")

    def layers(self) -> Fraction:
        """The number of layers: what is summed is the same for each."""
        self.require("_"), self.require("{"), self.take(), self.require("="), self.require("1"), self.require("}"), self.require("^")
        return self.braced()

    def listed(self) -> list[Fraction]:
        """Values with commas between them; dots stand for those of one letter between the second and the last."""
        self.require("(")
        values = [self.sum()]
        while self.next[1] == ",":
            self.take()
            if self.next[1] == r"\ldots":
                self.take(), self.require(",")
                letter, _, last = self.next[1].partition("_")
                values += [self.values[f"{letter}_{i}"] for i in range(len(values) + 1, int(last))]
            values.append(self.sum())
        self.require(")")
        return values

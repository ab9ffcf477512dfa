"""Table A4 of the Chinchilla paper: its FLOPs over 6·N·D for six models, and which terms the printed ratios leave out.

The appendix counts embeddings and logits, and the printed ratios are those of the layers alone. Every printed number is compared with the
exact one: the ratio with that of the matmuls that run, the parameters with N of table A9.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

SOURCE = "Hoffmann et al. 2022, Training Compute-Optimal Large Language Models (arXiv 2203.15556), tables A4 and A9, appendix F"
LENGTH, VOCABULARY = 2048, 32000
_SCALES = {"M": 10**6, "B": 10**9}


@dataclass(frozen=True, slots=True)
class PrintedTerm:
    """A term of a printed number less the exact one. ``kind``: dropped, added, rounded or cut off."""

    name: str
    value: Fraction
    kind: str
    because: str


@dataclass(frozen=True, slots=True)
class RatioRow:
    """A model of table A9, with the ratio that table A4 prints."""

    model: str
    d: int
    L: int
    h: int
    k: int
    f: int
    printed: str

    @property
    def parameters(self) -> int:
        """N of table A9: the embedding, five projections a layer (one of relative positions) and both of the feed-forward."""
        return VOCABULARY * self.d + self.L * (5 * self.d * self.h * self.k + 2 * self.d * self.f)

    @property
    def terms(self) -> dict[str, Fraction]:
        """Forward FLOPs of a token by operation of appendix F, over 2·N; forward and backward are three times both."""
        width = self.h * self.k
        flops = {
            "embeddings": 2 * VOCABULARY * self.d,
            "projections": self.L * (6 * self.d * width + 2 * width * self.d),
            "attention matmuls": self.L * 4 * LENGTH * width,
            "softmax": self.L * 3 * self.h * LENGTH,
            "dense blocks": self.L * 4 * self.d * self.f,
            "final logits": 2 * self.d * VOCABULARY,
        }
        return {name: Fraction(value, 2 * self.parameters) for name, value in flops.items()}

    @property
    def as_written(self) -> Fraction:
        """The ratio with all operations of appendix F."""
        return sum(self.terms.values(), start=Fraction(0))

    @property
    def of_layers(self) -> Fraction:
        """The ratio without embeddings and final logits."""
        return self.as_written - self.terms["embeddings"] - self.terms["final logits"]

    @property
    def executed(self) -> Fraction:
        """The ratio of the matmuls that run: logits, and neither a lookup nor the softmax."""
        return self.as_written - self.terms["embeddings"] - self.terms["softmax"]

    @property
    def differences(self) -> tuple[PrintedTerm, ...]:
        """The terms of the printed ratio less ``executed``."""
        rounding = Fraction(self.printed) - self.of_layers
        return (
            PrintedTerm("final logits", -self.terms["final logits"], "dropped", "the printed ratio leaves out the matmul of the head"),
            PrintedTerm("softmax", self.terms["softmax"], "added", "the appendix counts three operations a score, and none is a matmul"),
            PrintedTerm("two decimals", rounding, "rounded", f"the layers alone are {self.of_layers}"),
        )

    @property
    def parameters_printed(self) -> PrintedTerm:
        """The printed parameters less N: rounded, or cut off where they differ by more than half of the last digit."""
        digits, scale = self.model[:-1], _SCALES[self.model[-1]]
        place = Fraction(scale, 10 ** len(digits.partition(".")[2]))
        difference = Fraction(digits) * scale - self.parameters
        if abs(difference) * 2 <= place:
            return PrintedTerm("digits", difference, "rounded", f"N is {self.parameters:,}")
        rounded = float(round(self.parameters / place) * place / scale)
        return PrintedTerm("digits", difference, "cut off", f"N is {self.parameters:,}; rounded it is {rounded:g}{self.model[-1]}")


ROWS = (
    RatioRow("73M", 640, 10, 10, 64, 2560, "1.03"),
    RatioRow("305M", 1024, 20, 16, 64, 4096, "1.10"),
    RatioRow("552M", 1280, 24, 10, 128, 5120, "1.08"),
    RatioRow("1.1B", 1792, 26, 14, 128, 7168, "1.04"),
    RatioRow("1.6B", 2048, 28, 16, 128, 8192, "1.03"),
    RatioRow("6.8B", 3584, 40, 28, 128, 14336, "0.99"),
)


def document() -> dict[str, Any]:
    """The ``"schema": 1`` document of the table, as plain data; ratios are exact fractions in text."""
    return {
        "schema": 1,
        "table": "chinchilla-a4",
        "source": SOURCE,
        "rows": [
            {
                "model": row.model,
                "sizes": {"d": row.d, "L": row.L, "h": row.h, "k": row.k, "f": row.f, "T": LENGTH, "V": VOCABULARY},
                "parameters": row.parameters,
                "printed": row.printed,
                "appendix_f": str(row.as_written),
                "layers_only": str(row.of_layers),
                "matmuls_executed": str(row.executed),
                "terms": {name: str(value) for name, value in row.terms.items()},
                "cells": {
                    "Parameters": _cell(row.model, Fraction(row.parameters), (row.parameters_printed,)),
                    "FLOPs over 6·N·D": _cell(row.printed, row.executed, row.differences),
                },
            }
            for row in ROWS
        ],
    }


def _cell(printed: str, exact: Fraction, terms: tuple[PrintedTerm, ...]) -> dict[str, Any]:
    return {
        "printed": printed,
        "exact": str(exact),
        "difference": str(sum((term.value for term in terms), start=Fraction(0))),
        "terms": [{"term": t.name, "value": str(t.value), "kind": t.kind, "because": t.because} for t in terms],
    }

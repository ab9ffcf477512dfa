"""Published formulas as data: an expression in named variables, its unit, its error, and its source.

They cover what a trace cannot show: how often to save, or the state of a recipe that torch does not run here. Everything else is derived;
these are listed beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy as sp

from calc.errors import BadInputError
from calc.symbolic.algebra import SympyFunctions
from calc.symbolic.parser import parse


@dataclass(frozen=True, slots=True)
class Formula:
    """``text`` in ``letters`` (letter → meaning with its unit), which are positive. ``error`` says how far it holds."""

    name: str
    text: str
    unit: str
    letters: Mapping[str, str]
    error: str
    source: str

    @property
    def expr(self) -> sp.Expr:
        """The expression in positive symbols."""
        symbols = {letter: sp.Symbol(letter, positive=True) for letter in self.letters}
        return parse(self.text).value_in(SympyFunctions(symbols, {"sqrt": sp.sqrt, "exp": sp.exp}))

    def at(self, **values: float) -> float:
        """The value; every variable must be given, and positive."""
        unknown, missing = sorted(values.keys() - self.letters.keys()), sorted(self.letters.keys() - values.keys())
        if unknown or missing:
            raise BadInputError(f"{self.name} needs {', '.join(self.letters)}: {', '.join(unknown or missing)} is missing or unknown")
        for letter, value in values.items():
            if not (value > 0 and math.isfinite(value)):
                raise BadInputError(f"{self.name}: {letter} = {value} is not a positive number")
        return float(self.expr.subs({sp.Symbol(letter, positive=True): value for letter, value in values.items()}))


# -- how often to save -----------------------------------------------------------------------------------------------------

_INTERVAL = {"delta": "time to write a checkpoint, s", "M": "mean time between failures, s"}

SAVING_INTERVAL = Formula(
    name="saving interval, first order",
    text="sqrt(2*delta*M)",
    unit="s",
    letters=_INTERVAL,
    error="least time lost, to first order in delta/M; failures are independent, at a constant rate. Use it while delta is below M/2",
    source="Young 1974, A first order approximation to the optimum checkpoint interval, CACM 17(9), 530-531",
)
TIME_LOST = Formula(
    name="share of time lost to saving and to failures",
    text="delta/tau + tau/(2*M)",
    unit="1",
    letters={"tau": "time between checkpoints, s", **_INTERVAL},
    error="first order in tau/M: a failure loses half an interval on average; the restart itself is not in it",
    source="Young 1974, CACM 17(9), the sum of both; smallest at sqrt(2*delta*M)",
)

# -- a recipe that is stated, not run --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecipePart:
    """Bytes per parameter of one thing that a recipe keeps."""

    label: str
    per_parameter: sp.Rational
    because: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a precision recipe keeps per parameter. ``error`` says what is left out."""

    name: str
    parts: tuple[RecipePart, ...]
    error: str
    source: str
    notes: tuple[str, ...] = field(default=())

    @property
    def total(self) -> sp.Rational:
        """Bytes per parameter."""
        return sum((part.per_parameter for part in self.parts), start=sp.Integer(0))

    def to_json(self) -> dict[str, Any]:
        parts = [{"what": p.label, "per_parameter": str(p.per_parameter), "because": p.because} for p in self.parts]
        return {"name": self.name, "total": str(self.total), "parts": parts, "error": self.error, "source": self.source}


_BYTE, _TWO, _FOUR = sp.Integer(1), sp.Integer(2), sp.Integer(4)

FP8_LM = Recipe(
    name="FP8-LM, all three levels",
    parts=(
        RecipePart("master weights", _TWO, "fp16 with one scale a tensor"),
        RecipePart("gradients", _BYTE, "fp8, with one scale a tensor"),
        RecipePart("first moment", _BYTE, "fp8, with one scale a tensor"),
        RecipePart("second moment", _TWO, "fp16: its square roots need the range"),
    ),
    error="the scales of the tensors (4 bytes each) and the fp8 copies that matmuls read are left out",
    source="Peng et al. 2023, FP8-LM (arXiv 2310.18313), section 2.2: 6 bytes where mixed precision keeps 16",
)
ONLY_LINEAR = "only matrices of linear layers have fp8 copies"
TRANSFORMER_ENGINE = Recipe(
    name="fp8 matmuls over bf16 weights",
    parts=(
        RecipePart("weights", _TWO, "bf16"),
        RecipePart("gradients", _TWO, "bf16"),
        RecipePart("master weights", _FOUR, "fp32"),
        RecipePart("first moment", _FOUR, "fp32"),
        RecipePart("second moment", _FOUR, "fp32"),
        RecipePart("fp8 weights and their transposes", _TWO, "e4m3, both cast from the weights and kept until the backward"),
    ),
    error=f"{ONLY_LINEAR}: norms, biases and embeddings have none, so this is an upper bound;"
    " scales and their histories (4 bytes a tensor and an entry) are left out",
    source="NVIDIA Transformer Engine user guide, 'Using FP8 with Transformer Engine': fp8_autocast with the weights in bf16",
)
RECIPES = (FP8_LM, TRANSFORMER_ENGINE)

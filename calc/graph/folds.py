"""The basis: a model's dimensions in the free symbols of a trace, and the values of each given values of the other. SymPy-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calc.symbolic.exact import evaluate_text
from calc.symbolic.expression import Name, Number, Quotient
from calc.symbolic.parser import free_names


@dataclass(frozen=True, slots=True)
class Fold:
    """``whole = part * quotient + plus``: ``whole`` is substituted for ``part*quotient`` in a result. ``part`` may be an integer, and is
    one where ``plus`` is not 0."""

    whole: str
    part: str | int
    quotient: str
    plus: int = 0


@dataclass(frozen=True, slots=True)
class Basis:
    """``symbols`` are free; ``define`` writes each dimension in them; ``folds`` are in order of application. Those of ``unbacked`` are
    data-dependent, so each is at most a product of others."""

    symbols: tuple[str, ...]
    define: Mapping[str, str]
    folds: tuple[Fold, ...]
    unbacked: tuple[str, ...] = ()

    def values(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Values of the symbols at given values of the dimensions."""
        values = {name: sizes[name] for name in self.symbols if name in sizes}
        for fold in self.folds:
            part = fold.part if isinstance(fold.part, int) else sizes[fold.part]
            values[fold.quotient] = (sizes[fold.whole] - fold.plus) // part
        return {name: values[name] for name in self.symbols}

    def sizes(self, values: Mapping[str, int]) -> dict[str, int]:
        """Values of the dimensions at given values of the symbols."""
        return {name: int(evaluate_text(text, values)) for name, text in self.define.items()}

    def independent_sizes(self, values: Mapping[str, int]) -> dict[str, int]:
        """Values of the dimensions that follow from no other dimension, as far as ``values`` of some of the symbols determine them."""
        quotients, wholes = {f.quotient for f in self.folds}, {f.whole for f in self.folds}
        independent = {n: text for n, text in self.define.items() if n in wholes or (text == n and n not in quotients)}
        return {n: int(evaluate_text(text, values)) for n, text in independent.items() if free_names(text) <= {*values}}

    def dimension(self, symbol: str) -> str:
        """The dimension that equals a symbol, or whose quotient the symbol is."""
        return symbol if symbol in self.define else next((f.whole for f in self.folds if f.quotient == symbol), symbol)

    @property
    def hidden(self) -> dict[str, str]:
        """Quotients that are no dimension of the model, each with its expression, with spaces around operators."""
        return {f.quotient: _quotient(f) for f in self.folds if f.quotient not in self.define}


_PER = "_per_"


def quotient_name(whole: str, part: str | int) -> str:
    """The name ``d_per_h`` of the quotient ``d/h`` in a trace, where the model has no dimension for it."""
    return f"{whole}{_PER}{part}"


def named_quotient(name: str) -> Quotient | None:
    """The quotient ``d/h`` that ``quotient_name`` names ``d_per_h``; None for any other name."""
    whole, per, part = name.rpartition(_PER)
    return Quotient(Name(whole), Number(int(part)) if part.isdecimal() else Name(part)) if per and name.isidentifier() else None


def _quotient(fold: Fold) -> str:
    if fold.part == 1:
        return f"{fold.whole} - {fold.plus}"
    return f"({fold.whole} - {fold.plus}) / {fold.part}" if fold.plus else f"{fold.whole} / {fold.part}"

"""The state of a value right after initialization: moments of one of its elements.

Averages are over the draw of parameters and inputs and over the elements of the value, as they are in a sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from calc.symbolic.expression import Expression, Name, substitute
from calc.symbolic.parser import parse
from calc.symbolic.writer import as_text

# What a number rests on where it is not exact.
WIDE = "features are many: a mean over them is its expectation, a sum of them is normal (He et al. 2015; error O(1/width))"
FLAT = "attention scores are small and normal, and all positions are alike: E[Σ p²] to second order in the scores' spread"
DISTINCT_ROWS = "two positions read different rows of a table as often as two random tokens differ"
VARIES = "the variance of the input of a norm is much larger than its ε"
REUSED_MATRIX = "a matrix that is used twice counts as independent each time"
TIED_TABLE = "the head's weights are the token table, which is also in x: taken as independent"

# How far off a number may be that rests on each of them, relative to it. Seen in samples at widths from 48 on, and doubled.
# A tied table is off by about the width over the vocabulary, for which no sample needed an allowance of its own.
OFF = {WIDE: 0.03, FLAT: 0.3, DISTINCT_ROWS: 0.01, VARIES: 0.01, REUSED_MATRIX: 0.1, TIED_TABLE: 0.0}


@dataclass(frozen=True, slots=True)
class Moments:
    """``mean`` = E[x], ``second`` = E[x²], ``shared`` = E[x y] for the same feature at two positions (tokens, pixels, samples).

    ``normal``   whether an element is close to normal with mean 0, which an activation's moments need.
    ``sources``  the draws that its elements depend on without an independent matrix in between: two values that share one are not
    independent. ``because``  how it follows from the operands, in numbers. ``rests`` are assumptions made on the way. ``equation`` E[x²] in
    sizes, laws and the E[x²] of the operands by their sites; ``closed`` in sizes and laws alone, while short. ``even``     whether it is a
    mean over many features, and so close to its expectation. ``angle``    (``cos`` or ``sin``, of which value, second moment of what it
    multiplies), inside a rotation.
    """

    mean: float
    second: float
    shared: float
    normal: bool = False
    sources: frozenset[int] = frozenset()
    because: str = ""
    rests: tuple[str, ...] = ()
    module_path: str = ""
    equation: Expression | None = None
    closed: Expression | None = None
    even: bool = False
    angle: tuple[str, int, float] | None = None

    @property
    def variance(self) -> float:
        return self.second - self.mean**2

    def scaled(self, by: float) -> Moments:
        return replace(self, mean=self.mean * by, second=self.second * by**2, shared=self.shared * by**2)

    def saying(self, template: str, **parts: Moments | WeightLaw | str) -> Moments:
        """With its equation and closed form: ``template`` in terms of ``parts``, and without a closed form once that is long."""
        form = parse(template)
        inside = {name: part.closed if isinstance(part, Moments | WeightLaw) else parse(part) for name, part in parts.items()}
        forms = {name: part for name, part in inside.items() if part is not None}
        closed = substitute(form, forms) if len(forms) == len(parts) else None
        short = closed is not None and len(as_text(closed, spaced=True)) <= _LONGEST
        equation = substitute(form, {name: _named(part) for name, part in parts.items()})
        return replace(self, equation=equation, closed=closed if short else None)

    def without_closed_form(self) -> Moments:
        """Its equation has numbers that depend on the sizes, or integrals, or moments that are not of one value."""
        return replace(self, closed=None)

    def resting(self, *assumptions: str) -> Moments:
        return replace(self, rests=tuple(dict.fromkeys((*self.rests, *assumptions))))


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value without moments: the operator without a rule, and its module path.

    After an independent matrix it is at least normal and independent of earlier values: the result of a norm is then known again.
    """

    why: str
    normal: bool = False
    sources: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value that depends on no draw: positions, angles, masks. ``angle`` is (``cos`` or ``sin``, of which value); ``distinct``
    means that all its numbers differ."""

    number: float | None = None
    angle: tuple[str, int] | None = None
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class WeightLaw:
    """A parameter, as the operand of a product: its law's moments, E[w²], the same as ``closed`` where it is one at all sizes, whether it
    has been multiplied by before, and whether it is a ``table`` that an embedding has read."""

    name: str
    mean: float
    second: float
    shape: tuple[int, ...]
    law: Expression
    closed: Expression | None
    reused: bool = False
    table: bool = False


_LONGEST = 160


def moment_of(module_path: str) -> Name:
    """E[x²] of a module's output, in an equation."""
    return Name(f"E[x² of {module_path}]")


def _named(part: Moments | WeightLaw | str) -> Expression:
    if isinstance(part, str):
        return parse(part)
    return part.law if isinstance(part, WeightLaw) else moment_of(part.module_path)

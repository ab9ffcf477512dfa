"""The data of a question: variables with units, equations with reasons, choices, conditions and notes.

Equations are solved in either direction, so one system answers for any of its variables; several questions share a system
and differ in the variable that they solve for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calc.capacity.questions.answer import FurtherResult
    from calc.capacity.questions.models import QuestionModel

Values = Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class Letter:
    """One variable. ``key`` is its name on the command line, where the letter itself serves as well, and ``also``.

    ``whole``: rounded "up" or "down", to the side on which what was asked still holds. ``default`` is taken where nothing else gives it,
    and is an assumption, because of ``because``; a ``firm`` one also where something else would lead to it. ``device`` and ``model`` name
    what a device or a model gives for it. ``multiple_of`` is a letter that divides it: as an answer it is rounded down to a
    multiple.
    """

    letter: str
    key: str
    unit: str
    meaning: str
    whole: str = ""
    default: str = ""
    because: str = ""
    device: str = ""
    model: str = ""
    also: tuple[str, ...] = ()
    firm: bool = False
    multiple_of: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.key, self.letter, *self.also)


@dataclass(frozen=True, slots=True)
class Equation:
    """``letter`` = ``expr``, with the reason why it holds."""

    letter: str
    expr: str
    because: str


@dataclass(frozen=True, slots=True)
class QuestionChoice:
    """One of several ways to fill in a part of the system: a number format, an optimizer, a law. The first one is the default."""

    key: str
    meaning: str
    options: Mapping[str, tuple[Equation, ...]]
    because: str
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def default(self) -> str:
        return next(iter(self.options))


@dataclass(frozen=True, slots=True)
class Requirement:
    """A relation that the values must satisfy, and the error or the flag if they do not."""

    holds: str
    otherwise: str
    refuse: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """``answer`` is the variable it solves for by default. ``limit`` bounds a rounded answer.

    ``with_model`` replaces the equations of its letters where a model is given: exact counts in place of a rule of thumb.
    ``fills``: with a model, the peak of its own step is put in the place of the equations; ``laid``: its account of a layout. ``table``
    makes further rows from all values, and from the model where one is given; ``also`` are letters that belong to the answer.
    """

    name: str
    summary: str
    letters: tuple[Letter, ...]
    equations: tuple[Equation, ...]
    answer: str
    limit: str = ""
    choices: tuple[QuestionChoice, ...] = ()
    conditions: tuple[Requirement, ...] = ()
    notes: tuple[str, ...] = ()
    notes_without_model: tuple[str, ...] = ()
    with_model: tuple[Equation, ...] = ()
    also: tuple[str, ...] = ()
    source: str = ""
    fills: bool = False
    laid: bool = False
    table: Callable[[Values, QuestionModel | None], Sequence[FurtherResult]] | None = None

    def letter(self, name: str) -> Letter:
        """The variable of that name."""
        return next(x for x in self.letters if x.letter == name)

    @property
    def of_model(self) -> bool:
        """Whether a model can supply some of its variables."""
        return any(x.model for x in self.letters)

    @property
    def of_device(self) -> bool:
        return any(x.device for x in self.letters)

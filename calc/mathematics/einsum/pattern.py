"""Patterns of named dimensions, ``"b s d, d f -> b s f"``: parsed by einops; an invalid one is refused in one line."""

from __future__ import annotations

import difflib
import keyword
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from calc.dimensions import parse_assignment
from calc.errors import BadInputError

_LONGEST = 400
_MOST_OPERANDS = 10  # every order of them is compared
_MOST_NAMES = 40  # letters that torch.einsum has for a run of it are 52
ELLIPSIS = "rest_"  # no name of einops ends so


@dataclass(frozen=True, slots=True)
class Axes:
    """One tensor: its axes in order, each a tuple of dimensions that are merged in it. An axis of size 1 has none."""

    groups: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The dimensions in memory order."""
        return tuple(name for group in self.groups for name in group)

    @property
    def merged(self) -> bool:
        return any(len(group) != 1 for group in self.groups)

    @property
    def text(self) -> str:
        """As it is written in a pattern."""
        return " ".join(_group(group) for group in self.groups) or "()"

    def shape(self, sizes: Mapping[str, int]) -> tuple[int | str, ...]:
        """Sizes of the axes, as products of names where they are not known."""
        return tuple(_size(group, sizes) for group in self.groups)


def _group(group: tuple[str, ...]) -> str:
    shown = ["..." if name == ELLIPSIS else name for name in group]
    return shown[0] if len(shown) == 1 else f"({' '.join(shown)})" if shown else "1"


def _size(group: tuple[str, ...], sizes: Mapping[str, int]) -> int | str:
    factor, unknown = 1, []
    for name in group:
        if name in sizes:
            factor *= sizes[name]
        else:
            unknown.append(name)
    if not unknown:
        return factor
    return "*".join([str(factor)] * (factor != 1) + unknown)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern: operands on the left of the arrow, the result on its right."""

    text: str
    operands: tuple[Axes, ...]
    result: Axes

    @property
    def names(self) -> tuple[str, ...]:
        """Every dimension once, in order of appearance."""
        return tuple(dict.fromkeys(name for axes in (*self.operands, self.result) for name in axes.names))


def read(text: str) -> Pattern:
    """The pattern that ``text`` writes. Raises ``BadInputError``."""
    if len(text) > _LONGEST:
        raise BadInputError(f"a pattern of {len(text)} characters is too long: at most {_LONGEST}")
    left, arrow, right = text.partition("->")
    if not arrow or "->" in right:
        raise BadInputError(
            f'cannot read the pattern {_clip(text)!r}: write operands, one arrow and the result, e.g. "b s d, d f -> b s f"'
        )
    operands = tuple(_axes(part, text) for part in left.split(","))
    pattern = Pattern(text, operands, _axes(right, text))
    _require(pattern)
    return pattern


def _axes(part: str, text: str) -> Axes:
    from einops import EinopsError
    from einops.parsing import AnonymousAxis, ParsedExpression

    if not part.isascii():
        raise BadInputError(f"cannot read the pattern {_clip(text)!r}: names are made of the letters A to z, digits and _")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about keywords, which are refused below
            parsed = ParsedExpression(part)
    except EinopsError as error:
        raise BadInputError(f"cannot read the pattern {_clip(text)!r}: {_refused(str(error))}") from None
    groups: list[tuple[str, ...]] = []
    for group in parsed.composition:
        names = [group] if isinstance(group, str) else group
        for name in names:
            if isinstance(name, AnonymousAxis):
                raise BadInputError(
                    f"the pattern {_clip(text)!r} has a number for a dimension: give it a name and its size, e.g. k={name.value}"
                )
            if keyword.iskeyword(name):
                raise BadInputError(f"the pattern {_clip(text)!r} has {name!r} for a dimension, a word of Python: choose another name")
        groups.append(tuple(ELLIPSIS if name == "…" else name for name in names))
    return Axes(tuple(groups))


_FIXES = (
    (r'duplicate dimension "(.+?)"', "{} appears twice on one side: give each dimension its own name"),
    (r"Unknown character '(.+?)'", "{!r} is not allowed: separate names by blanks, operands by commas left of the arrow"),
    (r"Imbalanced parentheses|Brackets are not balanced", "a parenthesis is not closed: write each ( with its ), as in (h k)"),
    (r"brackets inside brackets", "parentheses are nested: write one level, as in (h k)"),
    (r"dots only inside ellipsis", "a dot stands alone: write three, ..., for any number of dimensions"),
    (r"Invalid axis identifier: (\S+)", "{!r} is not a name: begin with a letter, and neither begin nor end with _"),
)
"""What einops says, and what is wrong with what to write instead."""


def _refused(message: str) -> str:
    for pattern, fix in _FIXES:
        match = re.search(pattern, message, re.DOTALL)
        if match:
            return fix.format(*match.groups())
    return " ".join(message.split())


def _require(pattern: Pattern) -> None:
    several, text = len(pattern.operands) > 1, _clip(pattern.text)
    if len(pattern.operands) > _MOST_OPERANDS or len(pattern.names) > _MOST_NAMES:
        raise BadInputError(f"the pattern {text!r} is too large: at most {_MOST_OPERANDS} operands and {_MOST_NAMES} dimensions")
    named_axes = {name for axes in pattern.operands for name in axes.names}
    new = [name for name in pattern.result.names if name not in named_axes]
    if several and new:
        raise BadInputError(f"the pattern {text!r} has {', '.join(new)} in the result but in no operand: leave it out or add it to one")
    if several and any(axes.merged for axes in (*pattern.operands, pattern.result)):
        raise BadInputError(f"the pattern {text!r} merges dimensions of several operands: rearrange one tensor at a time, then contract")
    if new and named_axes - set(pattern.result.names):
        raise BadInputError(f"the pattern {text!r} both sums dimensions and makes new ones ({', '.join(new)}): do them one at a time")


def sizes_of(pattern: Pattern, assignments: Sequence[str]) -> dict[str, int]:
    """``["b=2", "...=6"]`` → sizes of the pattern's dimensions; an ellipsis has the product of the dimensions it covers."""
    sizes: dict[str, int] = {}
    for word in assignments:
        if word.startswith("...="):
            word = f"{ELLIPSIS}={word[4:]}"
        name, size = parse_assignment(word)
        if name not in pattern.names:
            raise BadInputError(f"the pattern {_clip(pattern.text)!r} has no dimension {_clip(name)!r}{_hint(name, pattern.names)}")
        if name in sizes:
            raise BadInputError(f"the size of {name} is given twice: give it once")
        sizes[name] = size
    return sizes


def _hint(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]}?" if near else f": it has {', '.join(names) or 'none'}"


def _clip(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:60]}…{text[-12:]}"


# -- patterns as einsum writes them: a letter for each name -----------------------------------------------------------


_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def letters(names: Sequence[str]) -> dict[str, str]:
    """A letter for each name."""
    return dict(zip(names, _LETTERS, strict=False))


def equation(pattern: Pattern) -> str:
    """The pattern in letters: ``abc,cd->abd``."""
    letter = letters(pattern.names)
    parts = ["".join(letter[name] for name in axes.names) for axes in (*pattern.operands, pattern.result)]
    return f"{','.join(parts[:-1])}->{parts[-1]}"

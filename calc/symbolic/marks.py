"""A formula as a row of marks, each of which is written in LaTeX and, where it is simple enough, as text of a page."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple


class MarkKind(Enum):
    """What a mark is to its neighbors: whether space, a dot or nothing is between them."""

    DIGITS = auto()
    LETTER = auto()
    WORD = auto()
    SCRIPT = auto()  # raised or lowered
    OPEN = auto()
    CLOSE = auto()  # a parenthesis
    SOLIDUS = auto()  # a quotient in parentheses
    SIGN = auto()
    SPACE = auto()  # between factors
    GROUP = auto()  # LaTeX's own braces
    PLAIN = auto()


class Mark(NamedTuple):
    """``text`` is HTML, escaped, and ``None`` where only MathML can show the mark. ``width`` is about the characters that it takes.
    ``tall``: parentheses around it grow. ``apart`` is its LaTeX for MathJax, where that differs (``latex.text``)."""

    latex: str
    text: str | None = None
    width: int = 0
    kind: MarkKind = MarkKind.PLAIN
    tall: bool = False
    apart: str = ""


Marks = tuple[Mark, ...]

NO_BREAK, NARROW = "\N{NO-BREAK SPACE}", "\N{NARROW NO-BREAK SPACE}"
THIN = Mark(r"\,", NARROW, 0, MarkKind.SPACE)
SPACE = Mark(" ", "")
GAP = Mark(" ", NARROW, 0, MarkKind.SPACE)  # behind a sum sign
DOT = Mark(r" \cdot ", "·", 1)
OPEN, CLOSE = Mark("(", "(", 1, MarkKind.OPEN), Mark(")", ")", 1, MarkKind.CLOSE)
PLUS, MINUS = Mark("+", "+", 3, MarkKind.SIGN), Mark("-", "−", 3, MarkKind.SIGN)
COMMA = Mark(",", ",", 1)
MAX, DOTS = Mark(r"\max", "max", 4), Mark(r"\ldots", "…", 6)
GROWING = Mark(r"\left(", "(", 1, MarkKind.OPEN, True), Mark(r"\right)", ")", 1, MarkKind.CLOSE, True)
# What may be raised in a line of text, and what may be over a solidus.
_LEVEL = {MarkKind.DIGITS, MarkKind.LETTER, MarkKind.OPEN, MarkKind.CLOSE, MarkKind.SIGN, MarkKind.SPACE}
_OVER = _LEVEL | {MarkKind.SCRIPT}


def as_latex(marks: Iterable[Mark], *, apart: bool = False) -> str:
    """The marks in LaTeX; ``apart`` as MathJax shows it."""
    return "".join((apart and mark.apart) or mark.latex for mark in marks)


def width(marks: Iterable[Mark]) -> int:
    """Characters that the marks are set in, about; an operator takes its space on both sides."""
    return sum(mark.width for mark in marks)


def number(value: int) -> Marks:
    """Digits in groups of three: ``124{,}439{,}808``."""
    digits = f"{abs(value):,}"
    mark = Mark(digits.replace(",", "{,}"), digits, len(digits), MarkKind.DIGITS)
    return (MINUS, mark) if value < 0 else (mark,)


def exponent(value: float) -> Marks:
    """Digits without groups."""
    digits = str(abs(value))
    mark = Mark(digits, digits, len(digits), MarkKind.DIGITS) if digits.isdigit() else command(digits)
    return (MINUS, mark) if value < 0 else (mark,)


def letter(name: str) -> Mark:
    """A name of one letter, in italics."""
    return Mark(name, name if name.isascii() and name.isalpha() else None, 1, MarkKind.LETTER)


def word(name: str) -> Mark:
    """An upright name."""
    letters = "".join(c for c in unicodedata.normalize("NFKC", name) if c.isalnum() or c == "_")
    if len(letters) == 1:
        return letter(letters)
    return Mark(rf"\mathrm{{{letters.replace('_', chr(92) + '_')}}}", letters, len(letters), MarkKind.WORD)


def command(latex: str) -> Mark:
    """A command that a line of text has no sign for."""
    return Mark(latex, None, len(latex.replace(" ", "").replace("_", "")))


def lowered(digits: str) -> Mark:
    """A subscript."""
    return Mark(f"_{{{digits}}}", f"<sub>{digits}</sub>", len(digits), MarkKind.SCRIPT)


def raised(power: Marks) -> Mark:
    """A superscript."""
    text = f"<sup>{power[0].text}</sup>" if [mark.kind for mark in power] == [MarkKind.DIGITS] else None
    return Mark(f"^{{{as_latex(power)}}}", text, width(power), MarkKind.SCRIPT)


def grouped(marks: Marks) -> Marks:
    """As the base of a power, in LaTeX's braces."""
    return (Mark("{", "", 0, MarkKind.GROUP), *marks, Mark("}", "", 0, MarkKind.GROUP))


def bracketed(marks: Marks) -> Marks:
    """In parentheses, which grow only around what is tall."""
    opening, closing = GROWING if any(mark.tall for mark in marks) else (OPEN, CLOSE)
    return (opening, *marks, closing)


def fraction(top: Marks, bottom: Marks) -> Mark:
    """A quotient with a bar; as text, only over a number."""
    latex, wide = rf"\frac{{{as_latex(top)}}}{{{as_latex(bottom)}}}", width(top) + width(bottom)
    above = text(top) if all(mark.kind in _OVER and not mark.tall for mark in top) else None
    if above is None or [mark.kind for mark in bottom] != [MarkKind.DIGITS]:
        return Mark(latex, None, wide, tall=True)
    if [mark.kind for mark in top] == [MarkKind.DIGITS]:
        return Mark(latex, f"<sup>{above}</sup>⁄<sub>{bottom[0].text}</sub>", wide, MarkKind.SCRIPT, True)
    return Mark(latex, f"({above}/{bottom[0].text})", wide, MarkKind.SOLIDUS, True)


def over(index: Mark, upper: Marks) -> Mark:
    """The sum sign over the layers."""
    top = level_text(upper)
    text = None if top is None or index.text is None else f"∑<sub>{index.text}=1</sub><sup>{top}</sup>"
    return Mark(rf"\sum_{{{index.latex}=1}}^{{{as_latex(upper)}}}", text, index.width + width(upper) + 4, MarkKind.SCRIPT, True)


def level_text(marks: Marks) -> str | None:
    """The text of marks of which none is raised, lowered or upright, else ``None``."""
    return text(marks) if all(mark.kind in _LEVEL for mark in marks) else None


def text(marks: Iterable[Mark], *, leads: bool = True) -> str | None:
    """The marks as HTML in which no line breaks, or ``None`` where they are more than sums, products and powers. Not ``leads``: the first
    sign stands between two terms."""
    shown = [mark for mark in marks if mark.text != ""]
    if any(mark.text is None for mark in shown):
        return None
    spaced = [mark for i, mark in enumerate(shown) if mark.kind is not MarkKind.SPACE or not _touching(shown[i - 1], shown[i + 1])]
    out: list[str] = []
    for i, mark in enumerate(spaced):
        before = spaced[i - 1].kind if i else None
        after = spaced[i + 1].kind if i + 1 < len(spaced) else None
        out.append(_set(mark, before, after, leads=leads))
    return "".join(out)


def _touching(before: Mark, after: Mark) -> bool:
    """Whether two factors need no space: letters side by side stand in one element, whose style sets them apart."""
    if after.kind is MarkKind.LETTER and before.kind is MarkKind.LETTER:
        return True
    ends = (MarkKind.DIGITS, MarkKind.CLOSE, MarkKind.SCRIPT, MarkKind.SOLIDUS)
    return before.kind in ends and after.kind in (MarkKind.LETTER, MarkKind.OPEN, MarkKind.SOLIDUS)


def _set(mark: Mark, before: MarkKind | None, after: MarkKind | None, *, leads: bool) -> str:
    if mark.kind is MarkKind.LETTER:
        return f"{'' if before is MarkKind.LETTER else '<i>'}{mark.text}{'' if after is MarkKind.LETTER else '</i>'}"
    if mark.kind is MarkKind.SIGN:
        if before is None and leads:
            return str(mark.text)
        return f"{'' if before in (None, MarkKind.OPEN) else NO_BREAK}{mark.text}{NO_BREAK}"
    return str(mark.text)


def joined(rows: Sequence[Marks], by: Mark) -> Marks:
    """Several rows in one, with ``by`` between them."""
    return tuple(mark for i, row in enumerate(rows) for mark in ((by, *row) if i else row))

"""Lines and tables on a terminal: whatever a command prints for people is folded, aligned and colored here.

A number or a name is never cut: text breaks between words, a long product behind one of its dots. A table that does not fit side by side
is written as records, one cell to a line. Text of users passes through ``visible``, so nothing in it acts.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TextIO

import click

from reports.typeset.escape import visible

PIPE_WIDTH = 140  # columns of a file or a pipe, which have no width: wide enough to read
_UNKNOWN_WIDTH = 80  # columns of a terminal that does not tell its width
_WORD = re.compile(" *([^ ]+)")
_NARROWEST = 20  # columns that folded text has at least
_LONG = 24  # columns of a word beyond which it may break behind a multiplication dot
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


@dataclass(frozen=True, slots=True)
class Styled:
    """Text in a style: words of ``_CODES``, as in ``"bold red"``."""

    text: str
    style: str


Part = str | Styled
Line = Part | tuple[Part, ...]
Cell = Line | list[Line]
"""A line, or lines that stand under one another."""
Head = str | tuple[str, str]
"""The title of a column; ``(title, "right")`` for a column of numbers."""

_Spans = list[tuple[str, str]]
"""Pieces of one line, each with its style."""


def bold(text: str) -> Styled:
    """``text`` in bold."""
    return Styled(text, "bold")


def dim(text: str) -> Styled:
    """``text`` in a faint color."""
    return Styled(text, "dim")


def right(*titles: str) -> tuple[Head, ...]:
    """The heads of columns of numbers."""
    return tuple((title, "right") for title in titles)


def width_of(terminal: TextIO) -> int:
    """The columns of this terminal. ``shutil.get_terminal_size`` asks descriptor 1, which is standard error while a command runs: in
    ``napkin derive gpt2 2>errors.txt`` that is a file."""
    if columns := _columns_given():
        return columns
    try:
        return os.get_terminal_size(terminal.fileno()).columns or _UNKNOWN_WIDTH
    except OSError:
        return _UNKNOWN_WIDTH


def _columns_given() -> int:
    """The value of ``COLUMNS``; 0 where it is not set."""
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() else 0


class Terminal:
    """Writes to ``file``, by default standard output, in lines of at most ``width`` columns: by default ``COLUMNS`` where that is set, else
    those of the terminal."""

    def __init__(self, width: int | None = None, file: TextIO | None = None) -> None:
        self._file = sys.stdout if file is None else file
        self.is_terminal = self._file.isatty()
        self._colored = self.is_terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        self.width = width or (width_of(self._file) if self.is_terminal else _columns_given() or PIPE_WIDTH)

    def line(self, *parts: Part, style: str = "", hang: int | None = None, fold: bool = True) -> None:
        """One line of text, a blank one without ``parts``. Where it is folded, further lines are indented by ``hang`` columns, by default
        as far as the first, and less where a name would be split."""
        spans = _spans(parts, style)
        text = _text(spans)
        indent = min(len(text) - len(text.lstrip(" ")) if hang is None else hang, self.width // 2)
        if fold and _columns(text) > self.width and (longest := _longest_word(text, 0)) <= self.width:
            indent = min(indent, self.width - longest)  # a name is not split to be indented
        first, *further = _folded(spans, self.width, indent) if fold else [spans]
        self._write(first)
        for spans in further:
            self._write([(" " * indent, ""), *spans])

    def lines(self, *lines: Line, style: str = "") -> None:
        """Each on a line of its own."""
        for each in lines:
            self.line(*_parts(each), style=style)

    def table(self, heads: Sequence[Head], rows: Iterable[Sequence[Cell]]) -> None:
        """A table under its heads and a rule; without ``heads``, rows of aligned cells."""
        cells = [[_cell(cell) for cell in row] for row in rows]
        titles = [visible(head if isinstance(head, str) else head[0]) for head in heads]
        numbers = {i for i, head in enumerate(heads) if not isinstance(head, str)}
        if not cells and not titles:
            return
        everything = [[[[(title, "")]] for title in titles], *cells] if titles else cells
        natural = [max(_columns(_text(line)) for cell in column for line in cell) for column in zip(*everything, strict=True)]
        gap = 3 if sum(natural) + 3 * (len(natural) - 1) <= self.width else 2
        widths = _shrunk(natural, _least(everything, numbers, bool(titles)), self.width - gap * (len(natural) - 1))
        if widths is None:
            self._records(titles, cells, numbers)
            return
        if titles:
            self._row([[[(title, "dim")]] for title in titles], widths, gap, numbers)
            self._write([("─" * (sum(widths) + gap * (len(widths) - 1)), "dim")])
        for row in cells:
            self._row(row, widths, gap, numbers)

    def _row(self, row: Sequence[list[_Spans]], widths: Sequence[int], gap: int, numbers: set[int]) -> None:
        folded = [[part for line in cell for part in _folded(line, width)] for cell, width in zip(row, widths, strict=True)]
        for height in range(max(map(len, folded))):
            line: _Spans = []
            for i, cell in enumerate(folded):
                spans = cell[height] if height < len(cell) else []
                blank = (" " * (widths[i] - _columns(_text(spans))), "")
                line += [*([(" " * gap, "")] if i else []), *([blank, *spans] if i in numbers else [*spans, blank])]
            self._write(line)

    def _records(self, titles: Sequence[str], rows: Sequence[Sequence[list[_Spans]]], numbers: set[int]) -> None:
        """Each row as lines: its first cell, then the others with their titles, indented."""
        for row in rows:
            for i, cell in enumerate(row):
                title = f"{titles[i]}: " if titles and titles[i] and (i or i in numbers) else ""
                parts = [Styled(text, style) for text, style in cell[0]]
                if i == 0:
                    self.line(title, *parts)
                elif _text(cell[0]):
                    self.line("  ", dim(title), *parts, hang=4)
                for spans in cell[1:]:
                    self.line("    ", *(Styled(text, style) for text, style in spans))

    def _write(self, spans: _Spans) -> None:
        text = _text(spans).rstrip(" ")
        click.echo("".join(_painted(*span) for span in _cut(spans, 0, len(text))) if self._colored else text, self._file)


# -- text in columns -------------------------------------------------------------------------------------------------------------------


def _parts(line: Line) -> tuple[Part, ...]:
    return line if isinstance(line, tuple) else (line,)


def _spans(parts: Iterable[Part], style: str = "") -> _Spans:
    styled = (part if isinstance(part, Styled) else Styled(part, "") for part in parts)
    return [(visible(part.text), part.style or style) for part in styled if part.text]


def _cell(cell: Cell) -> list[_Spans]:
    return [_spans(_parts(line)) for line in (cell if isinstance(cell, list) else [cell])] or [[]]


def _text(spans: _Spans) -> str:
    return "".join(text for text, _ in spans)


def _cut(spans: _Spans, start: int, end: int) -> _Spans:
    """The characters from ``start`` to ``end``."""
    pieces: _Spans = []
    for text, style in spans:
        piece = text[max(start, 0) : max(end, 0)]
        if piece:
            pieces.append((piece, style))
        start, end = start - len(text), end - len(text)
    return pieces


def _painted(text: str, style: str) -> str:
    codes = ";".join(_CODES[word] for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and text.strip() else text


def _columns(text: str) -> int:
    """How many columns a text takes: two for each wide character, none for a combining one."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


@lru_cache(1024)
def _columns_of(c: str) -> int:
    return 0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1


# -- folding ---------------------------------------------------------------------------------------------------------------------------


def _folded(spans: _Spans, width: int, indent: int = 0) -> list[_Spans]:
    """The line in lines of at most ``width`` columns, all but the first ``indent`` shorter."""
    text = _text(spans)
    if _columns(text) <= width:
        return [spans]
    return [_cut(spans, start, end) for start, end in _breaks(text, width, max(width - indent, 1))]


def _breaks(text: str, width: int, further: int) -> Iterator[tuple[int, int]]:
    """Where each line begins and ends; the first has ``width`` columns, the others ``further``."""
    start = end = 0
    for word in _WORD.finditer(text):
        if _columns(text[start : word.end()]) > width and end > start:
            yield start, end
            start, width = word.start(1), further
        while _columns(text[start : word.end()]) > width:
            end = start + _fitting(text[start : word.end()], width)
            yield start, end
            start, width = end, further
        end = word.end()
    yield start, end


def _fitting(word: str, width: int) -> int:
    """How many characters of a word that is too long for a line go on it: up to a multiplication dot, if there is one."""
    most = columns = 0
    for c in word:
        columns += _columns_of(c)
        if columns > width:
            break
        most += 1
    return word.rfind("·", 0, most) + 1 or max(most, 1)


def _least(rows: Sequence[Sequence[list[_Spans]]], numbers: set[int], headed: bool) -> list[int]:
    """The columns that each column of a table needs: of numbers all, of text the longest word and some room. Heads are text."""
    return [
        max(
            _columns(text) if i in numbers and not (headed and row == 0) else _longest_word(text, 0 if headed and row == 0 else _NARROWEST)
            for row, cell in enumerate(column)
            for text in map(_text, cell)
        )
        for i, column in enumerate(zip(*rows, strict=True))
    ]


def _longest_word(text: str, room: int) -> int:
    return max(min(_columns(text), room), *(_unbroken(word) for word in text.split(" ")))


def _unbroken(word: str) -> int:
    width = _columns(word)
    return width if width <= _LONG else min(width, max(_LONG, *(_columns(piece) + 1 for piece in word.split("·"))))


def _shrunk(natural: Sequence[int], least: Sequence[int], room: int) -> list[int] | None:
    """Widths that add up to ``room`` at most: the widest columns that may shrink do; nothing if they cannot shrink so far."""
    widths = list(natural)
    while sum(widths) > room:
        shrinking = [i for i, width in enumerate(widths) if width > least[i]]
        if not shrinking:
            return None
        widths[max(shrinking, key=widths.__getitem__)] -= 1
    return widths

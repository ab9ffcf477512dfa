"""Text in the width of a terminal, as ``reports.writers.terminal`` sets it through rich, for answers that come before rich is imported.

Lines break between words, and a word that is longer than a line within it; of a table, the widest column that may break gives way.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence, Set

PIPE_WIDTH = 140  # a file or a pipe has no width: wide enough to read
_GAP = 3
_WORD = re.compile(r"\s*\S+\s*")


def width() -> int:
    """The width of the terminal, where standard output is one."""
    return max(os.get_terminal_size(sys.stdout.fileno()).columns, 1) if sys.stdout.isatty() else PIPE_WIDTH


def folded(text: str, width: int) -> list[str]:
    """The lines of ``text``, none longer than ``width``. An empty text is one empty line."""
    return [line.rstrip() for line in _lines(text, width)] or [""]


def _lines(text: str, width: int) -> Iterator[str]:
    line = ""
    for word in _WORD.findall(text):
        if len(line) + len(word.rstrip()) <= width:
            line += word
            continue
        if line:
            yield line
        *pieces, line = [word[i : i + width] for i in range(0, len(word), width)] if len(word.rstrip()) > width else [word]
        yield from pieces
    if line:
        yield line


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int, numbers: Set[int] = frozenset()) -> list[str]:
    """The lines of a table under a heading and a rule. Columns whose place is among ``numbers`` stand right and never break."""
    widths = _widths([heads, *rows], width, numbers)
    rule = "─" * (sum(widths) + _GAP * (len(widths) - 1))
    return [*_row(heads, widths, numbers), rule, *(line for row in rows for line in _row(row, widths, numbers))]


def grid(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The lines of a table without a heading."""
    widths = _widths(rows, width, frozenset())
    return [line for row in rows for line in _row(row, widths, frozenset())]


def _row(cells: Sequence[str], widths: Sequence[int], numbers: Set[int]) -> Iterator[str]:
    """One row, as many lines as its highest cell."""
    made = [[cell] if i in numbers else folded(cell, widths[i]) for i, cell in enumerate(cells)]
    for line in range(max(map(len, made))):
        parts = [lines[line] if line < len(lines) else "" for lines in made]
        placed = (part.rjust(widths[i]) if i in numbers else part.ljust(widths[i]) for i, part in enumerate(parts))
        yield (" " * _GAP).join(placed).rstrip()


def _widths(rows: Sequence[Sequence[str]], width: int, numbers: Set[int]) -> list[int]:
    """Each column as wide as its widest cell; if that is too much, the widest of those that may break gives way, to one character."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    breaking = [i for i in range(len(widths)) if i not in numbers]
    excess = sum(widths) + _GAP * (len(widths) - 1) - width
    while excess > 0 and any(widths[i] > 1 for i in breaking):
        widest = max(widths[i] for i in breaking)
        at_it = [i for i in breaking if widths[i] == widest]
        next_ = max((widths[i] for i in breaking if widths[i] < widest), default=1)
        cut = min(widest - next_, -(-excess // len(at_it)))
        for i in at_it:
            widths[i] -= min(cut, max(excess, 0))
            excess -= cut
    return widths

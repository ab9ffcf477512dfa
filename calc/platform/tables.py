"""Aligned text: how a result looks when Python prints it. A screen at most, and nothing of a user's names acts on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from calc.platform.reading import clipped

_WIDTH = 120
_MOST_ROWS = 40


def text_table(title: str, rows: Iterable[Sequence[str]], numbers: frozenset[int] = frozenset()) -> str:
    """``title`` above rows of aligned cells; the columns ``numbers`` are aligned at their right, and the last column is clipped."""
    cells = [[_visible(cell) for cell in row] for row in rows]
    omitted, cells = cells[_MOST_ROWS:], cells[:_MOST_ROWS]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.rjust(w) if i in numbers else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
             for row in cells]  # fmt: skip
    note = [f"… and {len(omitted):,} more"] if omitted else []
    return "\n".join([clipped(_visible(title), 2 * _WIDTH), *(clipped(line.rstrip(), _WIDTH) for line in lines), *note])


def _visible(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)

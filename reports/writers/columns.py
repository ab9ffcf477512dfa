"""A plain table on a terminal: a dim heading, columns of text that fold and columns of numbers that do not."""

from __future__ import annotations

from rich.box import Box
from rich.padding import PaddingDimensions
from rich.table import Table


def columns(*heads: str | tuple[str, str], box: Box | None = None, padding: PaddingDimensions = (0, 2, 0, 0)) -> Table:
    """A table with these heads; ``(head, "right")`` is a column of numbers."""
    table = Table(box=box, padding=padding, pad_edge=False, show_edge=False, header_style="dim")
    for head in heads:
        if isinstance(head, tuple):
            table.add_column(head[0], justify="right", no_wrap=True)
        else:
            table.add_column(head, overflow="fold")
    return table

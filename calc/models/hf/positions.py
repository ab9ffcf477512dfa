"""Positions of a config: how many there are, of which kind, and how many of them a sequence can have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from calc.dimensions import Dim
from calc.models.hf.layers import without_memory
from calc.models.hf.source import Source, quiet
from calc.models.hf.table import FIELDS, is_size


def positions(config: Any) -> int | None:
    """The largest length of a sequence, where the config has one."""
    stored = config.__dict__
    return next((stored[name] for name in FIELDS.dimensions["C"] if is_size(stored.get(name))), None)


def rotary(config: Any) -> bool:
    """Whether the config has rotary positions."""
    return any(config.__dict__.get(name) for name in FIELDS.rotary)


def learned_positions(config: Any) -> bool:
    """Whether the positions are learned: neither rotary nor a bias of the attention."""
    return not rotary(config) and not any(config.__dict__.get(name) for name in FIELDS.biased)


def own_padding(source: Source, rows: int) -> int:
    """The row for padding in the tables of ``rows`` positions, by the file's own padding token, in whose place ``source.config`` puts
    another; the last one of several tables."""
    with quiet():
        config = source.config_class(**source.raw)
    return max(int(table.padding_idx) for table in padded_tables(without_memory(source, config), rows))


def padded_tables(module: Any, rows: int) -> list[Any]:
    """The tables of ``rows`` rows, one of them for padding."""
    tables = (part for part in module.modules() if isinstance(getattr(part, "padding_idx", None), int))
    return [table for table in tables if len(getattr(table, "weight", ())) == rows]


def notes_on_padding(bounded: Mapping[str, Dim]) -> tuple[str, ...]:
    """A note on the lengths that such a table bounds, if there are any."""
    most = next(iter(bounded.values())).at_most if bounded else ""
    return (f"the rows of the table of positions up to that for padding are for no token, so that {most} are left",) if most else ()


def begins_after_padding(module: Any, rows: int, length: int, run: Callable[[int], object]) -> bool:
    """Whether the positions of ``module`` begin after the row for padding, by the last row that a sequence of ``length`` tokens reads.
    ``run`` runs the module with one token throughout, here one that is no padding."""
    tables = padded_tables(module, rows)
    after: list[bool] = []

    def look_up(table: Any, arguments: tuple[Any, ...]) -> None:
        after.append(int(arguments[0].max()) == table.padding_idx + length)

    handles = [table.register_forward_pre_hook(look_up) for table in tables]
    try:
        run(1 + max(table.padding_idx for table in tables))
    finally:
        for handle in handles:
            handle.remove()
    return any(after)

"""Patterns as einsum writes them: a letter for each name."""

from __future__ import annotations

from collections.abc import Sequence

from calc.mathematics.einsum.pattern import Pattern

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def letters(names: Sequence[str]) -> dict[str, str]:
    """A letter for each name."""
    return dict(zip(names, _LETTERS, strict=False))


def equation(pattern: Pattern) -> str:
    """The pattern in letters: ``abc,cd->abd``."""
    letter = letters(pattern.names)
    parts = ["".join(letter[name] for name in axes.names) for axes in (*pattern.operands, pattern.result)]
    return f"{','.join(parts[:-1])}->{parts[-1]}"

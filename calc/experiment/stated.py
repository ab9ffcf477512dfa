"""Operators outside torch's own library whose cost a rule states."""

from __future__ import annotations

# Names, e.g. "mine.attention.default". The derivation and the measurement take such an operator as one, without what it runs inside.
STATED: set[str] = set()

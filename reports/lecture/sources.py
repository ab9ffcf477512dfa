"""Facts that only a publication can give (dates, thresholds, others' measurements), each with its address.

The year of a paper is read off its arXiv identifier, whose first four digits are year and month.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from calc.errors import BadInputError

YEAR = "year"  # the unit of a number that names a year and is no amount


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication. ``facts``: the numbers and texts that claims are compared with."""

    id: str
    title: str
    where: str
    facts: Mapping[str, float | int | str | list[str]]

    @property
    def year(self) -> int:
        """The year in an arXiv identifier: 2014 for ``1412.6980``. Raises ``BadInputError`` for other addresses."""
        digits = self.where.removeprefix("arXiv ")[:4]
        if not self.where.startswith("arXiv ") or not digits.isdigit():
            raise BadInputError(f"{self.title}: {self.where!r} is not an arXiv identifier, so it has no year")
        return 2000 + int(digits[:2])

    @property
    def words(self) -> str:
        return f"{self.title} ({self.where})"


@cache
def sources() -> Mapping[str, Publication]:
    """The publications that the lecture cites, by name."""
    text = resources.files("calc").joinpath("data/lecture_sources.toml").read_text(encoding="utf-8")
    return {name: Publication(name, entry.pop("title"), entry.pop("where"), entry) for name, entry in tomllib.loads(text).items()}


def source(name: str) -> Publication:
    """One publication that the lecture cites."""
    return sources()[name]


@cache
def notes() -> Mapping[str, tuple[str, ...]]:
    """Claim id → sets of notes (000 to 004) that make the claim."""
    text = resources.files("calc").joinpath("data/lecture_notes.toml").read_text(encoding="utf-8")
    return {name: tuple(sets) for name, sets in tomllib.loads(text).items()}

"""Claims and topics. A claim has an id, a restatement, and the function that computes its finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from calc.errors import BadInputError
from reports.lecture.lab import Lab
from reports.lecture.verdicts import ClaimFinding

FindingFunction = Callable[[Lab], ClaimFinding]


@dataclass(frozen=True, slots=True)
class LectureClaim:
    """One claim of the notes. ``says``: our own sentence, never the text of the notes."""

    id: str
    says: str
    find: FindingFunction


@dataclass(slots=True)
class Topic:
    """Claims on one subject, in the order in which they are registered."""

    title: str
    claims: list[LectureClaim] = field(default_factory=list)

    def claim(self, name: str, says: str) -> Callable[[FindingFunction], FindingFunction]:
        """A decorator that registers a function as the one that computes a claim's finding.
        Raises ``BadInputError`` for a second claim of that name."""
        if any(c.id == name for c in self.claims):
            raise BadInputError(f"two claims of {self.title!r} are called {name!r}")

        def enter(find: FindingFunction) -> FindingFunction:
            self.claims.append(LectureClaim(name, says, find))
            return find

        return enter

    def __iter__(self) -> Iterator[LectureClaim]:
        return iter(self.claims)

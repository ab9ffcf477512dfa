"""The twenty systems of the lecture, each computed by Napkin and checked against real runs."""

from __future__ import annotations

from calc.errors import BadInputError
from reports.lecture.system import LectureSystem
from reports.lecture.systems import learning, models, operations, scale

SYSTEMS: tuple[LectureSystem, ...] = tuple(
    sorted((*scale.SYSTEMS, *operations.SYSTEMS, *models.SYSTEMS, *learning.SYSTEMS), key=lambda system: system.number)
)


def system(number: int) -> LectureSystem:
    """The system with that number. Raises ``BadInputError`` for an unknown one."""
    for candidate in SYSTEMS:
        if candidate.number == number:
            return candidate
    raise BadInputError(f"no system {number}: there are 1 to {len(SYSTEMS)}")

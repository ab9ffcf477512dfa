"""The verdict on a quantity that is both derived and measured: every comparison of the two routes yields one. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Generic, TypeVar

EXACT, IN_PARTS, WITHIN, FAILED, NOT_MEASURED = "exact", "in parts", "within", "failed", "not measured"
PASSED = (EXACT, IN_PARTS, WITHIN)
VERDICTS = (EXACT, WITHIN, IN_PARTS, FAILED, NOT_MEASURED)

Value = TypeVar("Value", covariant=True)


@dataclass(frozen=True, slots=True)
class Verdict(Generic[Value]):
    """A derived value and a measured one; ``None`` if there is none, with the reason in ``because``.

    ``verdict`` is one of ``VERDICTS``: "in parts" if torch has no instrument for the whole quantity and its parts were measured one by one.
    ``expected`` is what derived − measured must be: the part of the quantity that the instrument cannot see. ``tolerance`` is the largest
    deviation from it that passes, in the quantity's unit: 0 for every integer. A text value describes several numbers. ``sizes`` are those
    of the run, if a comparison has several. ``notes`` are the instruments and reasons one by one, if there may be several of them.
    """

    quantity: str
    derived: Value | None
    measured: Value | None
    instrument: str
    verdict: str
    tolerance: float = 0
    because: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    expected: int = 0
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether both values agree. An unmeasured value neither passes nor fails."""
        return self.verdict in PASSED

    @property
    def failed(self) -> bool:
        """Whether both values exist and differ."""
        return self.verdict == FAILED

    def __str__(self) -> str:
        numbers = f"derived {_written(self.derived)}, measured {_written(self.measured)}"
        origin = "; ".join(part for part in (self.instrument, self.because) if part)
        return f"{self.verdict:<12}  {self.quantity:<28}  {numbers}  [{origin}]"


def judged(
    quantity: str, derived: Value | None, measured: Value | None, instrument: str = "", *, tolerance: float = 0, because: str = ""
) -> Verdict[Value]:
    """The verdict on two values: exact if equal, within if they differ by at most ``tolerance``, else failed; not measured if one is
    missing."""
    if derived is None or measured is None:
        word = NOT_MEASURED
    elif derived == measured:
        word = EXACT
    else:
        word = WITHIN if _distance(derived, measured) <= tolerance else FAILED
    return Verdict(quantity, derived, measured, instrument, word, tolerance, because)


def _distance(derived: object, measured: object) -> float:
    """The difference of two numbers; texts that differ are infinitely far apart."""
    return abs(float(derived) - float(measured)) if isinstance(derived, Real) and isinstance(measured, Real) else math.inf


def _written(value: object) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, Real) else str(value)

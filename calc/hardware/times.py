"""Repetitions of one timed operation and their exact statistics. Plain data. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from calc.errors import BadInputError

BILLION = 10**9


@dataclass(frozen=True, slots=True)
class Timings:
    """All repetitions of one operation, in order, in nanoseconds, each of ``calls`` calls. ``warm_up`` are the untimed ones."""

    nanoseconds: tuple[int, ...]
    calls: int = 1
    warm_up: tuple[int, ...] = ()

    @property
    def median(self) -> Fraction:
        """Nanoseconds of one call."""
        return self.quantile(Fraction(1, 2))

    @property
    def quartiles(self) -> tuple[Fraction, Fraction]:
        """The first and third quartiles, in nanoseconds of one call."""
        return self.quantile(Fraction(1, 4)), self.quantile(Fraction(3, 4))

    @property
    def least(self) -> Fraction:
        return Fraction(min(self.nanoseconds), self.calls)

    @property
    def most(self) -> Fraction:
        return Fraction(max(self.nanoseconds), self.calls)

    @property
    def seconds(self) -> Fraction:
        """The median in seconds."""
        return self.median / BILLION

    def quantile(self, share: Fraction) -> Fraction:
        """Linear interpolation between the ordered repetitions, minimum at 0 and maximum at 1 (Hyndman and Fan 1996, definition 7)."""
        ordered = sorted(self.nanoseconds)
        place = share * (len(ordered) - 1)
        below = place.numerator // place.denominator
        above = min(below + 1, len(ordered) - 1)
        return (ordered[below] + (place - below) * (ordered[above] - ordered[below])) / self.calls

    def to_json(self) -> dict[str, Any]:
        """Plain data: all repetitions, and their statistics in seconds."""
        low, high = self.quartiles
        numbers = {"median": self.median, "lower_quartile": low, "upper_quartile": high, "least": self.least, "most": self.most}
        seconds = {name: float(value / BILLION) for name, value in numbers.items()}
        return {"nanoseconds": list(self.nanoseconds), "calls": self.calls, "warm_up": list(self.warm_up), "seconds": seconds}


# -- how a benchmark runs ---------------------------------------------------------------------------------------------
# How a benchmark runs: how often, and in which variants. Plain data for callers and for the measuring code. Torch-free.


@dataclass(frozen=True, slots=True)
class Repeat:
    """Repetitions: ``warm_up`` untimed runs, then at least ``count`` timed ones until they took ``seconds`` together, at most ``most``."""

    warm_up: int = 3
    count: int = 5
    seconds: float = 0.5
    most: int = 1000

    def __post_init__(self) -> None:
        if self.warm_up < 0 or self.count < 1 or self.most < self.count or not 0 <= self.seconds < float("inf"):
            raise BadInputError(f"{self} is invalid: warm_up must be at least 0, count at least 1, most at least count")


_LEAST_BYTES, _MOST_BYTES = 2**16, 2**34


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """What is copied and loaded: ``nbytes`` bytes, those of a file of tokens, and batches from it of ``batch`` sequences of ``length``
    tokens, at offsets drawn from ``seed``. ``workers`` of a data loader load ``prefetch`` batches ahead each; None: no data loaders."""

    nbytes: int
    batch: int
    length: int
    workers: int | None = None
    prefetch: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse sizes that cannot be timed, or a batch that does not fit the file."""
        if not _LEAST_BYTES <= self.nbytes <= _MOST_BYTES:
            least, most = f"{_LEAST_BYTES:,}", f"{_MOST_BYTES:,}"
            raise BadInputError(f"{self.nbytes:,} bytes are too few or too many to time a copy: give {least} to {most}")
        tokens = self.nbytes // 2
        if self.batch < 1 or self.length < 1 or self.length + 1 > tokens or self.batch * self.length > tokens:
            size = f"{self.batch} × {self.length} tokens"
            raise BadInputError(f"a batch of {size} is not in a file of {tokens:,}: give a smaller batch or more bytes")


STEPS = Repeat(warm_up=3, count=5, seconds=1.0)


@dataclass(frozen=True, slots=True)
class How:
    """How a step is timed: repetitions, whether fp32 matmuls use tf32, whether torch compiles the model, whether each module is timed."""

    repeat: Repeat = STEPS
    tf32: bool = False
    compiled: bool = False
    per_module: bool = True

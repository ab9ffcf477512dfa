"""How a benchmark runs: how often, and in which variants. Plain data for callers and for the measuring code. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

from calc.errors import BadInputError


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


STEPS = Repeat(warm_up=3, count=5, seconds=1.0)


@dataclass(frozen=True, slots=True)
class How:
    """How a step is timed: repetitions, whether fp32 matmuls use tf32, whether torch compiles the model, whether each module is timed."""

    repeat: Repeat = STEPS
    tf32: bool = False
    compiled: bool = False
    per_module: bool = True

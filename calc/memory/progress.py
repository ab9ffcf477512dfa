"""What a checkpoint keeps besides tensors of the model and the optimizer: iteration, random generators, and the state of a scheduler.

Generators are fixed structures of bytes. A scheduler's state is a dictionary of numbers, so its bytes are those of its pickle, counted here
by the rules of the format; a real file of ``torch.save`` is what they are compared with. Torch-free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from calc.errors import BadInputError, suggestion

ITERATION = 8  # bytes of an int64


@dataclass(frozen=True, slots=True)
class GeneratorState:
    """A random generator's state: its bytes as a sum, with the source."""

    name: str
    parts: tuple[int, ...]
    because: str
    source: str

    @property
    def nbytes(self) -> int:
        return sum(self.parts)


_WORDS = 624  # of the Mersenne twister MT19937
GENERATORS = (
    GeneratorState(
        "torch, CPU",
        (8, 4, 4, 8, 8 * _WORDS, 3 * 8, 4 + 4, 4, 1 + 3),
        "seed, two counts, place, 624 words in 8 bytes each, cached normal numbers in fp64 and fp32, padded to 8 and 4 bytes",
        "aten/src/ATen/CPUGeneratorImpl.cpp, CPUGeneratorImplStateLegacy and CPUGeneratorImplState",
    ),
    GeneratorState("torch, each CUDA device", (8, 8), "seed and Philox offset", "aten/src/ATen/cuda/CUDAGeneratorImpl.cpp, get_state"),
    GeneratorState("NumPy, global", (4 * _WORDS,), "624 words; place and kind are a few bytes more", "numpy.random.MT19937.state"),
    GeneratorState("Python", (4 * _WORDS,), "624 words; place and version are a few bytes more", "random.getstate"),
)


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A learning-rate scheduler of torch. ``arguments`` are those of a run of N steps; ``before`` and ``after`` are the parts of its state
    that it adds to that of every scheduler, the second with one entry per group of parameters."""

    kind: str
    arguments: Callable[[int], Mapping[str, Any]]
    before: Callable[[int], Mapping[str, Any]]
    after: Mapping[str, Any]

    def state(self, step: int, steps: int, groups: int = 1) -> dict[str, Any]:
        """The state after ``step`` of ``steps`` steps; learning rates are any doubles. Source: ``torch/optim/lr_scheduler.py``."""
        rates = [0.0] * groups
        common = {"base_lrs": rates, "last_epoch": step, "_step_count": step + 1, "_is_initial": False}
        calls = {"_get_lr_called_within_step": False, "_last_lr": [0.0] * groups}
        return {**self.before(steps), **common, **calls, **{key: [value] * groups for key, value in self.after.items()}}


def _nothing(_: int) -> Mapping[str, Any]:
    return {}


def _decaying(step: int) -> float:
    return 1 / (1 + step)


SCHEDULERS: Mapping[str, Scheduler] = {
    "cosine": Scheduler("CosineAnnealingLR", lambda n: {"T_max": n}, lambda n: {"T_max": n, "eta_min": 0.0}, {}),
    "linear": Scheduler(
        "LinearLR", lambda n: {"total_iters": n}, lambda n: {"start_factor": 1 / 3, "end_factor": 1.0, "total_iters": n}, {}
    ),
    "step": Scheduler("StepLR", lambda n: {"step_size": max(1, n // 3)}, lambda n: {"step_size": max(1, n // 3), "gamma": 0.1}, {}),
    "exponential": Scheduler("ExponentialLR", lambda n: {"gamma": 0.9}, lambda n: {"gamma": 0.9}, {}),
    "lambda": Scheduler("LambdaLR", lambda n: {"lr_lambda": _decaying}, _nothing, {"lr_lambdas": None}),
}


def scheduler(name: str) -> Scheduler:
    """The scheduler of that name. Raises ``BadInputError`` for an unknown one."""
    if name not in SCHEDULERS:
        raise BadInputError(f"unknown scheduler {name[:40]!r}: {suggestion(name, SCHEDULERS)}")
    return SCHEDULERS[name]


# -- the pickle of plain data ------------------------------------------------------------------------------------------------

_SHORT_MEMO = 256  # entries of the memo with a number of one byte
_BATCH = 1000  # items between one mark and its end


def pickled(value: Any) -> int:
    """Bytes of the pickle, in protocol 2, of plain data: lists and dictionaries of ``None``, booleans, 32-bit integers, doubles, text.

    Two bytes of protocol and one of the end. Lists, dictionaries and text get a number in the memo; a text is written once and then
    referred to. Source: Python's ``pickletools``.
    """
    return 2 + _Pickle().size(value) + 1


class _Pickle:
    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.count = 0

    def size(self, value: Any) -> int:
        match value:
            case None | bool():
                return 1
            case int():
                return _integer(value)
            case float():
                return 1 + 8
            case str():
                return self._text(value)
            case list():
                return 1 + self._memo() + self._batches([(item,) for item in value])
            case dict():
                return 1 + self._memo() + self._batches(list(value.items()))
        raise BadInputError(f"a {type(value).__name__} is not plain data of a scheduler")

    def _memo(self) -> int:
        self.count += 1
        return 2 if self.count <= _SHORT_MEMO else 5

    def _text(self, text: str) -> int:
        if text in self.texts:
            return 2 if self.texts[text] <= _SHORT_MEMO else 5
        written = 1 + 4 + len(text.encode())
        memo = self._memo()
        self.texts[text] = self.count
        return written + memo

    def _batches(self, items: list[tuple[Any, ...]]) -> int:
        """Items of a list or dictionary: a mark before and an end after each thousand; a single item has only the end."""
        marks = 1 if len(items) == 1 else 2 * -(-len(items) // _BATCH)
        return marks + sum(self.size(part) for item in items for part in item)


def _integer(value: int) -> int:
    """1 byte and those of the integer: 1 or 2 without a sign, else 4."""
    if 0 <= value < 2**8:
        return 2
    if 0 <= value < 2**16:
        return 3
    if -(2**31) <= value < 2**31:
        return 5
    raise BadInputError(f"{value} has more than 32 bits")

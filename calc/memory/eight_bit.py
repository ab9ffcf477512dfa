"""What an 8-bit optimizer keeps, as a stated formula: no run of one is derived or measured here, since torch has none.

Block-wise quantization (Dettmers et al. 2022) keeps 1 byte for each element of a state, and for each block of elements their largest
absolute value in fp32. Tensors of few elements keep an fp32 state. What a byte stands for is a table of 256 fp32 numbers, one for a
state with a sign and one for a state without, which all tensors share. Counts of steps are Python's own numbers and take no tensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from calc.errors import BadInputError

SOURCE = "Dettmers, Lewis, Shleifer, Zettlemoyer 2022, 8-bit Optimizers via Block-wise Quantization, ICLR, arXiv:2110.02861"
BLOCK = 256
BLOCK_OF_THE_PAPER = 2048
FEWEST = 4096
_ABSMAX = 4
_FP32 = 4
_TABLE = 256 * 4


@dataclass(frozen=True, slots=True)
class EightBit:
    """One optimizer. ``states`` per parameter: 2 for Adam and AdamW, 1 for SGD with momentum, RMSprop, Adagrad and Lion.

    ``block`` elements have one fp32 maximum: 256 in bitsandbytes since its release 0.44, 2048 before and in the paper. A tensor of fewer
    than ``fewest`` elements keeps fp32 states.
    """

    states: int = 2
    block: int = BLOCK
    fewest: int = FEWEST

    def __post_init__(self) -> None:
        for name, value, least in (("states", self.states, 1), ("block", self.block, 1), ("fewest", self.fewest, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise BadInputError(f"{name} = {value!r} of an 8-bit optimizer is no integer from {least}")

    @property
    def text(self) -> str:
        """Bytes of the state of one tensor of n elements, n at least ``fewest``."""
        return f"{self.states}*(n + {_ABSMAX}*ceiling(n/{self.block}))"

    @property
    def small(self) -> str:
        """The same of one with fewer elements."""
        return f"{_FP32 * self.states}*n"

    def of_tensor(self, elements: int) -> int:
        """Bytes of the state of a parameter tensor."""
        if elements < self.fewest:
            return _FP32 * self.states * elements
        return self.states * (elements + _ABSMAX * -(-elements // self.block))

    def of_tensors(self, elements: Iterable[int]) -> int:
        """Bytes of the state of all parameter tensors, with a table for each state where one of them has bytes to be looked up."""
        sizes = tuple(elements)
        tables = self.states * _TABLE if any(n >= self.fewest for n in sizes) else 0
        return sum(map(self.of_tensor, sizes)) + tables


# States that 8-bit optimizers keep in this way, by the names that this project has for the optimizers.
_STATES = {"adam": 2, "adamw": 2, "momentum": 1, "nesterov": 1, "rmsprop": 1, "adagrad": 1}


def eight_bit(optimizer: str) -> EightBit | None:
    """The optimizer in 8 bits; ``None`` where the paper and its library have none."""
    return EightBit(_STATES[optimizer]) if optimizer in _STATES else None

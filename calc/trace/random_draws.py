"""Numbers that a step draws, as to skip a layer: what runs must not depend on them.

A trace sees one draw of each number. So the steps of a trace draw the least number that the generators of Python and NumPy give, again and
again; a step that draws any is traced once more with the largest ones, and must run the same operators. A number between 0 and 1 is drawn
as 0 so seldom (once in 2**53) that the least is the next one: a layer that is skipped where a draw is no larger than 0 is never skipped.
Numbers that torch draws are data; a comparison with a bound that they are always on one side of is decided.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from calc.errors import DataDependentError
from calc.graph.step import Op, StepTrace, tensors
from calc.platform.replaced import replaced

# The outputs of a Mersenne twister are its words, tempered: 0 and 64 come out as they are, the other word as 32 ones. A number between 0
# and 1 takes two of them: the upper 27 bits of the first, then the upper 26 of the second.
_WORDS, _LEAST, _LARGEST = 624, (0, 64), (0x12DD9BB3, 0x12DD9BB3)
_BELOW = "_randbelow"  # by which Python draws a whole number or an element
# After so many draws come others: code may draw until a number fits.
_EXTREME = 600


@contextmanager
def extreme(largest: bool) -> Iterator[Callable[[], bool]]:
    """Context in which the global generators of Python and NumPy give the least numbers, or the ``largest``, for a while. Yields a function
    that returns whether any was drawn since."""
    python, numpy = random.getstate(), _legacy()
    words = [*(_LARGEST if largest else _LEAST)] * (_EXTREME // 2) + [number + 1 for number in range(_WORDS - _EXTREME)]
    random.setstate((3, (*words, 0), None))
    np.random.set_state(("MT19937", np.array(words, dtype=np.uint32), 0, 0, 0.0))
    below_of: list[int] = []
    generator: Any = getattr(random.random, "__self__")  # noqa: B009  # the global one: others are seeded, also Napkin's own
    draw: Callable[[int], int] = getattr(generator, _BELOW)

    def below(n: int) -> int:
        """A whole number below ``n``, of which the usual algorithm would draw another one as long as it gets the largest."""
        below_of.append(n)
        return (n - 1 if largest else 0) if len(below_of) <= _EXTREME else draw(n)

    try:
        with replaced(generator, **{_BELOW: below}):
            yield lambda: bool(below_of) or random.getstate()[1][-1] != 0 or _legacy()[2] != 0
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _legacy() -> tuple[Any, ...]:
    """The state of NumPy's global generator: its name, words, place, and a number that it holds back."""
    state: Any = np.random.get_state()
    return tuple(state)


def refused(who: str) -> DataDependentError:
    """The error for a step that runs other operators where draws are others; ``who`` draws them."""
    return DataDependentError(
        f"{who} draws random numbers, and runs other operators where these are others: no closed form follows; draw a mask with torch and"
        " multiply by it, or set that probability to 0"
    )


def same_operators(trace: StepTrace, second: StepTrace) -> bool:
    """Whether two traces run the same operators on tensors of the same shapes, whatever numbers these are given."""
    return [*map(_without_numbers, trace.ops)] == [*map(_without_numbers, second.ops)] and trace.events == second.events


def _without_numbers(op: Op) -> tuple[object, ...]:
    return op.name, op.phase, op.step, (*tensors(value for _, value in op.args),), op.outputs

"""Compares ten steps of a rule's equations with ten steps of the real optimizer on the same gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calc.errors import BadInputError
from calc.mathematics.updates.run import Array, letters, run
from calc.mathematics.updates.table import UpdateRule
from calc.options import NAMED_OPTIMIZERS
from calc.pipeline.verdict import Verdict, judged

STEPS = 10
_MATRIX = (5, 7)
# Both calculate in fp64, in another order: a few roundings a step, each half a unit of the last place.
_UNITS = 256


@dataclass(frozen=True, slots=True)
class UpdateCheck:
    """The verdict on the number with the largest difference, after ``steps`` steps with values of ``variables``; ``scale`` is the largest
    number of the same tensor."""

    verdict: Verdict[float]
    steps: int
    difference: float
    scale: float
    letters: Mapping[str, float]

    @property
    def ok(self) -> bool:
        return not self.verdict.failed


def check(rule: UpdateRule, overrides: Mapping[str, float] | None = None, seed: int = 0) -> UpdateCheck:
    """Runs both on random gradients of changing scale; compares the parameter and the state after every step.

    Equal up to rounding: 256 units in fp64's last place of the largest number. Raises ``BadInputError`` if the steps overflow.
    """
    from calc.measure.updates import trajectory

    values = letters(rule, overrides or {})
    numbers = np.random.default_rng(seed)
    shape = _MATRIX if rule.of_matrix else (math.prod(_MATRIX),)
    start = numbers.normal(size=shape).tolist()
    # Of another scale in each element, and growing: what bounds a step by those before it then comes into play.
    scales = np.logspace(-3, 1, math.prod(shape)).reshape(shape) * np.logspace(-0.5, 0.5, STEPS).reshape(-1, *(1 for _ in shape))
    gradients = (numbers.normal(size=(STEPS, *shape)) * scales).tolist()
    keys = {"theta": "", **rule.keys}
    fixed = _fixed(rule, values)
    theirs = trajectory(rule.kind, {**rule.given(values), **fixed}, start, gradients, tuple(rule.keys.values()))
    ours = run(rule, start, gradients, overrides or {})
    pairs = [(np.array(a[letter]), np.array(b[key])) for a, b in zip(ours, theirs, strict=True) for letter, key in keys.items()]
    if not all(np.isfinite(x).all() for pair in pairs for x in pair):
        listed = ", ".join(f"{letter}={value:g}" for letter, value in values.items())
        raise BadInputError(f"{rule.name} overflows fp64 within {STEPS} steps at {listed}: choose other values")
    return _judged(pairs, values)


def _judged(pairs: Sequence[tuple[Array, Array]], values: Mapping[str, float]) -> UpdateCheck:
    """Each pair against its own scale: a parameter of 1 must not hide an error in a moment of a millionth."""
    worst = max(pairs, key=lambda pair: _difference(pair) / _tolerance(pair))
    place = np.unravel_index(np.abs(worst[0] - worst[1]).argmax(), worst[0].shape)
    ours, theirs = (float(array[place]) for array in worst)
    because = "both in fp64, rounded in another order"
    verdict = judged("parameter and state", ours, theirs, tolerance=_tolerance(worst), because=because)
    return UpdateCheck(verdict, STEPS, _difference(worst), float(np.abs(worst[1]).max()), values)


def _difference(pair: tuple[Array, Array]) -> float:
    return float(np.abs(pair[0] - pair[1]).max())


def _tolerance(pair: tuple[Array, Array]) -> float:
    return float(_UNITS * 2.0**-52 * max(np.abs(pair[1]).max(), 2.0**-900))


def _fixed(rule: UpdateRule, values: Mapping[str, float]) -> dict[str, object]:
    """Keywords without a variable, such as switches; all variables for the lecture's own class."""
    if rule.name not in NAMED_OPTIMIZERS:
        return dict(values)
    return {keyword: value for keyword, value in NAMED_OPTIMIZERS[rule.name].arguments.items() if isinstance(value, bool)}

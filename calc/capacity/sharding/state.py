"""Bytes per parameter by kind, from the names of a recipe and an optimizer; multiplied by the elements on a rank. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

from calc.errors import BadInputError
from calc.options import MASTER, NAMED_OPTIMIZERS, PRECISIONS, made

# Bytes of a weight, of its gradient, of its fp32 copy.
_FORMATS = {"fp32": (4, 4, 0), "bf16-autocast": (4, 4, 0), "fp16-autocast": (4, 4, 0), "bf16": (2, 2, 0), MASTER: (2, 2, 4)}


@dataclass(frozen=True, slots=True)
class State:
    """Bytes stored per parameter, and ``counter`` bytes per parameter tensor. ``source`` names the recipe."""

    weights: int
    gradients: int
    optimizer: int
    master: int
    source: str
    counter: int = 0


def state_of(precision: str = MASTER, optimizer: str = "adamw") -> State:
    """The bytes of a recipe, from ``calc.options``; tests compare them with real optimizers.

    Raises ``BadInputError`` for an optimizer whose state does not follow from the number of parameters alone.
    """
    made(precision=precision, optimizer=optimizer)
    if precision not in _FORMATS or optimizer not in NAMED_OPTIMIZERS:
        raise BadInputError(f"{precision} with {optimizer} has no table of bytes: use {', '.join(PRECISIONS)} and a named optimizer")
    weights, gradients, master = _FORMATS[precision]
    rule = NAMED_OPTIMIZERS[optimizer]
    if rule.factored:
        raise BadInputError(
            f"{optimizer} keeps rows and columns of a matrix, not bytes per parameter: use adamw, sgd, momentum or the like"
        )
    per_parameter = rule.values * (master or weights)
    return State(weights, gradients, per_parameter, master, f"{precision}, {optimizer}", rule.counters)

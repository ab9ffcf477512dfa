"""What torch's optimizer step executes and stores for one parameter tensor, from a derivation, compared with the minimum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from calc.derive.result import Step
from calc.errors import BadInputError
from calc.mathematics.updates.run import equations_with_work, operations
from calc.mathematics.updates.table import UpdateEquation, UpdateRule
from calc.options import NAMED_OPTIMIZERS
from calc.symbolic.expression import Labelled, Sum
from calc.symbolic.tree import text

# Whose step looks at a whole matrix: counted for one of r rows and c columns. The others take any shape, of n elements.
_OF_MATRICES = ("adafactor", "muon")


class ExecutedPart(NamedTuple):
    """An operation of an ``operator``, and its FLOPs as an expression."""

    operator: str
    operation: str
    flops: str


@dataclass(frozen=True, slots=True)
class UpdateCost:
    """For one tensor in fp32, as expressions of its sizes: what torch's step executes, moves and keeps.

    ``parts`` are the operations executed, each with its FLOPs; they add up to ``flops``.
    """

    implementation: str
    tensor: str
    flops: str
    moved: str
    state: str
    parts: tuple[ExecutedPart, ...]


def executed(name: str, implementation: str = "loop") -> UpdateCost:
    """The second step of torch's class with its defaults, for one tensor, from a trace of it."""
    if name not in NAMED_OPTIMIZERS:
        raise BadInputError(f"torch has no {name[:40]}: only the steps of torch's own optimizers are traced")
    import calc
    from calc.models import one_tensor

    of_matrix = name in _OF_MATRICES
    spec = one_tensor.matrix() if of_matrix else one_tensor.vector()
    derivation = calc.derive(spec, optimizer=name, implementation=implementation)
    quantities = ("flops.optimizer.total", "bytes_moved.optimizer", "optimizer_state.bytes")
    flops, moved, state = (_text(derivation[quantity].text, quantity) for quantity in quantities)
    parts = tuple(part for step in derivation.steps if step.quantity in _EXECUTED and step.rule != "sum" for part in _parts(step))
    return UpdateCost(implementation, "a matrix of r x c elements, r < c" if of_matrix else "n elements", flops, moved, state, parts)


_EXECUTED = ("flops.optimizer.elementwise", "flops.optimizer.matmul")


def _parts(step: Step) -> Iterator[ExecutedPart]:
    """The addends of a step of the derivation."""
    for addend in step.before.terms if isinstance(step.before, Sum) else (step.before,):
        if isinstance(addend, Labelled):
            yield ExecutedPart(addend.operator or addend.label, addend.text, text(addend.body))
        else:
            yield ExecutedPart(step.rule, step.rule, text(addend))


def _text(text: str | None, quantity: str) -> str:
    if text is None:
        raise BadInputError(f"{quantity} of one tensor is unknown")
    return text


@dataclass(frozen=True, slots=True)
class AsWritten:
    """For each element: ``operations`` of the ``equations``, those with a weight decay of 0 left out; bytes that must be moved in fp32."""

    operations: int
    state: int
    least_moved: int
    equations: tuple[UpdateEquation, ...]


def as_written(rule: UpdateRule) -> AsWritten:
    """Counts of the equations. Minimum traffic: parameter, gradient and state read once, parameter and state written once. Raises
    ``BadInputError`` if the state is not per element."""
    if rule.of_matrix:
        raise BadInputError(f"{rule.name} keeps means of rows and columns: it has no counts per element")
    defaults: Mapping[str, float] = rule.defaults()
    zeros = [letter for letter, value in defaults.items() if value == 0]
    buffers = len(rule.state)
    moved = 4 * (2 + buffers) + 4 * (1 + buffers)
    return AsWritten(operations(rule, zeros), 4 * buffers, moved, equations_with_work(rule, zeros))

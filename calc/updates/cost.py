"""What torch executes and keeps for one parameter tensor in an optimizer's step, as a derivation has it, beside what it must."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calc.errors import BadInputError
from calc.optimizers import KNOWN
from calc.updates.rules import Rule
from calc.updates.run import operations

# Whose step looks at a whole matrix: counted for one of r rows and c columns. The others take any shape, of n elements.
_OF_MATRICES = ("adafactor", "muon")


@dataclass(frozen=True, slots=True)
class Cost:
    """For one tensor in fp32, as expressions of its sizes: what torch's step executes, moves and keeps."""

    implementation: str
    tensor: str
    flops: str
    moved: str
    state: str


def executed(name: str, implementation: str = "loop") -> Cost:
    """The second step of torch's class with its defaults, for one tensor, from a recording of it."""
    if name not in KNOWN:
        raise BadInputError(f"torch has no {name[:40]}: what its step executes is known for torch's own optimizers only")
    import calc
    from calc.models import one_tensor

    of_matrix = name in _OF_MATRICES
    spec = one_tensor.matrix() if of_matrix else one_tensor.vector()
    found = calc.derive(spec, optimizer=name, implementation=implementation)
    quantities = ("flops.optimizer.total", "bytes_moved.optimizer", "optimizer_state.bytes")
    texts = [_text(found[quantity].text, quantity) for quantity in quantities]
    return Cost(implementation, "a matrix of r x c elements, r < c" if of_matrix else "n elements", *texts)


def _text(found: str | None, quantity: str) -> str:
    if found is None:
        raise BadInputError(f"{quantity} of one tensor is unknown")
    return found


@dataclass(frozen=True, slots=True)
class AsWritten:
    """For each element: ``operations`` of the equations, those with a weight decay of 0 left out; bytes that must be moved in fp32."""

    operations: int
    state: int
    least_moved: int


def as_written(rule: Rule) -> AsWritten:
    """Counts of the equations. Least moved: parameter, gradient and state read once, parameter and state written once."""
    defaults: Mapping[str, float] = rule.defaults()
    zeros = [letter for letter, value in defaults.items() if value == 0]
    kept = len(rule.state)
    return AsWritten(operations(rule, zeros), 4 * kept, 4 * (2 + kept) + 4 * (1 + kept))

"""What the integer inputs of a step are, by the equations that read them: ids that index an embedding, targets of the loss."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from calc.graph.step import bare_name
from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.ir import Equations, Node, argument

IDS, TARGETS = "ids", "targets"
_UNKNOWN = "input"


def integer_names(equations: Equations, readers: Mapping[int, Sequence[Node]], inputs: Collection[int]) -> Mapping[int, str]:
    """The name of each integer input, with its number where several are alike: ids1, ids2."""
    roles = {index: _role(equations, readers, index) for index in inputs}
    names: dict[int, str] = {}
    for role in dict.fromkeys(roles.values()):
        alike = [index for index in inputs if roles[index] == role]
        names.update({index: role if len(alike) == 1 else f"{role}{i}" for i, index in enumerate(alike, 1)})
    return names


def lookups(equations: Equations, readers: Mapping[int, Sequence[Node]], index: int) -> Iterator[ir.Gather]:
    """The embeddings that an input indexes."""
    for node, reader in _readings(equations, readers, index):
        if isinstance(reader.op, ir.Gather) and bare_name(reader.operator).startswith("embedding") and reader.op.source != node:
            yield reader.op


def _role(equations: Equations, readers: Mapping[int, Sequence[Node]], index: int) -> str:
    if any(lookups(equations, readers, index)):
        return IDS
    loss = (isinstance(reader.op, ir.Delta) and _is_of_loss(reader) for _, reader in _readings(equations, readers, index))
    return TARGETS if any(loss) else _UNKNOWN


def _readings(equations: Equations, readers: Mapping[int, Sequence[Node]], index: int) -> Iterator[tuple[int, Node]]:
    """Each node that has the values of an input, with each of its readers."""
    reached, waiting = {index}, [index]
    while waiting:
        node = waiting.pop()
        for reader in readers.get(node, ()):
            yield node, reader
            if reader.index not in reached and _has_its_values(reader, node):
                reached.add(reader.index)
                waiting.append(reader.index)


def _has_its_values(reader: Node, node: int) -> bool:
    """Whether a node holds the integers of another one: shifted, padded, reshaped, or with those of ignored rows cleared by the loss."""
    match reader.op:
        case ir.Gather(source, _):
            return source == node
        case ir.Map(expr, _):
            return expr == argument(0) or (reader.integral and _is_of_loss(reader))
    return isinstance(reader.op, ir.Split | ir.Merge | ir.Concatenate | ir.Hold)


def _is_of_loss(node: Node) -> bool:
    return "loss" in bare_name(node.operator)

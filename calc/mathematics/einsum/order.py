"""The order in which several operands are contracted, two at a time, with the fewest FLOPs as counted here.

Every order is compared, by sets of operands: the cost of a set does not depend on how the others are contracted. Napkin does not use
opt_einsum: torch.einsum takes its order from it if it is installed, so installing it would change what users' models run; and its cost
omits that a dimension of one operand alone is summed first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from calc.mathematics.einsum.pattern import Pattern
from calc.mathematics.einsum.steps import Count, EinsumStep, contract, operand_names, total

Tree = str | tuple["Tree", "Tree"]


@dataclass(frozen=True, slots=True)
class ContractionOrder:
    """The pairwise contractions in order; ``how`` names the search that chose the order."""

    steps: tuple[EinsumStep, ...]
    how: str


def left_to_right(pattern: Pattern) -> tuple[EinsumStep, ...]:
    """The first two operands, then their result with the next."""
    names = operand_names(pattern)
    tree: Tree = names[0]
    for name in names[1:]:
        tree = (tree, name)
    return _steps(pattern, tree)


def best(pattern: Pattern, sizes: Mapping[str, int]) -> ContractionOrder:
    """The cheapest order at ``sizes``; left to right if one of them is unknown."""
    names = operand_names(pattern)
    if len(names) < 3:
        return ContractionOrder(left_to_right(pattern), "two operands have a single order")
    if any(name not in sizes for name in pattern.names):
        return ContractionOrder(left_to_right(pattern), "from left to right: the best order depends on sizes that are not given")
    pairs = _least(pattern, sizes, names)
    return ContractionOrder(_steps(pattern, pairs), "the cheapest order at these sizes")


def alternatives(pattern: Pattern) -> tuple[tuple[str, Count], ...]:
    """Every order of three operands with its FLOPs as an expression; the sizes determine which is cheapest."""
    names = operand_names(pattern)
    if len(names) != 3:
        return ()
    trees: list[tuple[Tree, Tree]] = [((a, b), c) for c in reversed(names) for a, b in [[n for n in names if n != c]]]
    return tuple((_written(tree), total(step.flops for step in _steps(pattern, tree))) for tree in trees)


def _written(tree: Tree) -> str:
    return tree if isinstance(tree, str) else f"({_written(tree[0])} {_written(tree[1])})"


def _least(pattern: Pattern, sizes: Mapping[str, int], names: tuple[str, ...]) -> Tree:
    """By sets of operands, from small ones to large ones; among equals the first that is met."""
    everything = (1 << len(names)) - 1
    trees: dict[int, Tree] = {1 << at: name for at, name in enumerate(names)}
    costs: dict[int, int] = {1 << at: 0 for at in range(len(names))}
    axes_of = {chosen: _axes_needed(pattern, chosen) for chosen in range(1, everything + 1)}
    for chosen in sorted(range(1, everything + 1), key=int.bit_count):
        if chosen in trees:
            continue
        # Cheap halves first: once one division is known, most others cost more than it before their own product is counted.
        for left in sorted(_halves(chosen), key=lambda half: costs[half] + costs[chosen & ~half]):
            right = chosen & ~left
            before = costs[left] + costs[right]
            if chosen in costs and before >= costs[chosen]:
                break
            step = contract("", "", "", axes_of[left], axes_of[right], axes_of[chosen])
            cost = before + (step.flops.at(sizes) or 0)
            if chosen not in costs or cost < costs[chosen]:
                costs[chosen], trees[chosen] = cost, (trees[left], trees[right])
    return trees[everything]


def _halves(chosen: int) -> Iterator[int]:
    """Every part of a set that holds its first member, but the whole: each division in two comes once."""
    lowest = chosen & -chosen
    part = chosen
    while part := (part - 1) & chosen:
        if part & lowest:
            yield part


def _axes_needed(pattern: Pattern, chosen: int) -> tuple[str, ...]:
    """Dimensions of a set of operands that are needed after their contraction; for a single operand, all of them."""
    inside = [axes.names for at, axes in enumerate(pattern.operands) if chosen >> at & 1]
    if len(inside) == 1:
        return inside[0]
    outside = {name for at, axes in enumerate(pattern.operands) if not chosen >> at & 1 for name in axes.names}
    outer = outside | set(pattern.result.names)
    return tuple(name for name in dict.fromkeys(name for names in inside for name in names) if name in outer)


def _steps(pattern: Pattern, tree: Tree) -> tuple[EinsumStep, ...]:
    names = operand_names(pattern)
    steps: list[EinsumStep] = []

    def visit(node: Tree) -> tuple[str, int]:
        if isinstance(node, str):
            return node, 1 << names.index(node)
        (left, of_left), (right, of_right) = visit(node[0]), visit(node[1])
        chosen = of_left | of_right
        last = chosen == (1 << len(names)) - 1
        out = "Y" if last else f"T{len(steps) + 1}"
        axes = pattern.result.names if last else _axes_needed(pattern, chosen)
        steps.append(contract(left, right, out, _axes_needed(pattern, of_left), _axes_needed(pattern, of_right), axes))
        return out, chosen

    visit(tree)
    return tuple(steps)

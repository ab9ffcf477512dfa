"""An operation over named dimensions: what a pattern computes, its counts step by step, and the gradient of every operand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from calc.errors import BadInputError, suggestion
from calc.mathematics.einsum.order import best, left_to_right
from calc.mathematics.einsum.pattern import Pattern
from calc.mathematics.einsum.steps import REDUCTIONS, Count, EinsumStep, operand_names, product, rearrange, reduce, repeat, total

CONVENTION = (
    "one multiply-add is 2 FLOP, a reduction of n elements n - 1; bytes: every step reads each of its operands once and writes its result"
    " once, views move nothing"
)


@dataclass(frozen=True, slots=True)
class Gradient:
    """∂ℒ/∂operand as an equation. ``flops`` are those of the equation on its own, its products two at a time."""

    operand: str
    equation: str
    flops: Count
    because: str


@dataclass(frozen=True, slots=True)
class Operation:
    """A pattern at ``sizes`` (those given), in elements of ``item_size`` bytes.

    Bytes are moved once for each operand and result of every step; ``plain`` are the FLOPs of contracting from left to right.
    """

    pattern: Pattern
    sizes: Mapping[str, int]
    item_size: int
    reduction: str
    equation: str
    steps: tuple[EinsumStep, ...]
    how: str
    plain: Count
    gradients: tuple[Gradient, ...]

    @property
    def flops(self) -> Count:
        return total(step.flops for step in self.steps)

    @property
    def matmul(self) -> Count:
        return total(step.matmul for step in self.steps)

    @property
    def backward_matmul(self) -> Count:
        """Matrix multiplications autograd executes for all gradients, along the same order backwards."""
        return total(step.backward_matmul for step in self.steps)

    @property
    def bytes(self) -> Count:
        return total(step.elements for step in self.steps).times(self.item_size)

    @property
    def intensity(self) -> Fraction | None:
        """FLOP per byte, where both are known and something is moved."""
        flops, moved = self.flops.at(self.sizes), self.bytes.at(self.sizes)
        return Fraction(flops, moved) if flops is not None and moved else None

    @property
    def missing(self) -> tuple[str, ...]:
        """Dimensions without a size."""
        return tuple(name for name in self.pattern.names if name not in self.sizes)


def operation(pattern: Pattern, sizes: Mapping[str, int], item_size: int = 4, reduction: str = "") -> Operation:
    """What the pattern computes. ``reduction`` is how dropped dimensions of a single operand are reduced: sum by default."""
    if reduction and reduction not in REDUCTIONS:
        raise BadInputError(f"unknown reduction {reduction[:40]!r}: {suggestion(reduction, REDUCTIONS)}")
    if len(pattern.operands) > 1:
        if reduction not in ("", "sum"):
            raise BadInputError(f"several operands are contracted by sums: reduce by {reduction} in a pattern of one operand")
        order = best(pattern, sizes)
        plain = total(step.flops for step in left_to_right(pattern))
        equation = f"Y[{_index(pattern.result.names)}] = {_sum(_summed(pattern))}{_product(pattern)}"
        return Operation(pattern, sizes, item_size, "sum", equation, order.steps, order.how, plain, _contracted(pattern, sizes))
    step, equation, gradient, kind = _of_one(pattern, sizes, reduction)
    return Operation(pattern, sizes, item_size, kind, equation, (step,), "one operand", step.flops, (gradient,))


# -- several operands --------------------------------------------------------------------------------------------------------------


def _contracted(pattern: Pattern, sizes: Mapping[str, int]) -> tuple[Gradient, ...]:
    """∂ℒ/∂A = Σ over what A has not of ∂ℒ/∂Y times all other operands: a pattern of its own, contracted in its own best order."""
    gradients = []
    for at, name in enumerate(operand_names(pattern)):
        mine = pattern.operands[at].names
        factors_ = [(n, axes) for n, axes in zip(operand_names(pattern), pattern.operands, strict=True) if n != name]
        reached = {d for _, axes in factors_ for d in axes.names} | set(pattern.result.names)
        alone = tuple(d for d in mine if d not in reached)
        inner = Pattern(
            "", (pattern.result, *(axes for _, axes in factors_)), type(pattern.result)(tuple((d,) for d in mine if d in reached))
        )
        factors = " ".join([f"dY[{_index(pattern.result.names)}]", *(f"{n}[{_index(axes.names)}]" for n, axes in factors_)])
        equation = f"d{name}[{_index(mine)}] = {_sum(_summed(inner))}{factors}"
        because = f"the derivative of a product by one factor is the product of the others; {_why(_summed(inner))}"
        because += f"; the same for every {', '.join(alone)}" if alone else ""
        flops = total(step.flops for step in best(inner, sizes).steps)
        gradients.append(Gradient(name, equation, flops, because))
    return tuple(gradients)


def _why(summed: tuple[str, ...]) -> str:
    return f"each element counts for every {', '.join(summed)}, which add up" if summed else "each element counts once"


def _summed(pattern: Pattern) -> tuple[str, ...]:
    return tuple(name for name in pattern.names if name not in pattern.result.names)


def _product(pattern: Pattern) -> str:
    return " ".join(f"{n}[{_index(axes.names)}]" for n, axes in zip(operand_names(pattern), pattern.operands, strict=True))


# -- one operand -------------------------------------------------------------------------------------------------------------------


def _of_one(pattern: Pattern, sizes: Mapping[str, int], reduction: str) -> tuple[EinsumStep, str, Gradient, str]:
    before, after = pattern.operands[0].names, pattern.result.names
    gone = tuple(name for name in before if name not in after)
    new = tuple(name for name in after if name not in before)
    y, x = f"Y[{_index(after)}]", f"A[{_index(before)}]"
    if gone:
        how = reduction or "sum"
        equation, gradient, flops, because = _reduced(how, before, after, gone, y, x)
        return reduce(pattern, how), equation, Gradient("A", gradient, flops, because), how
    if reduction:
        raise BadInputError(f"nothing is reduced by {reduction}: the pattern {pattern.text[:80]!r} keeps every dimension")
    if new:
        flops = total((product(after), product(before, -1)))
        because = f"every element is used {' * '.join(new)} times: its gradients add up"
        return repeat(pattern, sizes), f"{y} = {x}", Gradient("A", f"d{x} = {_sum(new)}d{y}", flops, because), ""
    because = "the same elements in the other order"
    return rearrange(pattern, sizes), f"{y} = {x}", Gradient("A", f"d{x} = d{y}", Count(), because), ""


def _reduced(
    how: str, before: tuple[str, ...], after: tuple[str, ...], gone: tuple[str, ...], y: str, x: str
) -> tuple[str, str, Count, str]:
    """Equation, gradient, the gradient's FLOPs and why."""
    count = gone[0] if len(gone) == 1 else f"({'*'.join(gone)})"
    index = f"_{{{','.join(gone)}}}" if len(gone) > 1 else f"_{gone[0]}"
    match how:
        case "sum":
            return f"{y} = {_sum(gone)}{x}", f"d{x} = d{y}", Count(), "each addend has derivative 1"
        case "mean":
            divided = product(after)
            return f"{y} = 1/{count} {_sum(gone)}{x}", f"d{x} = d{y} / {count}", divided, "each addend has derivative 1/n"
        case "prod":
            equation, gradient = f"{y} = Π{index} {x}", f"d{x} = d{y} {y} / {x}"
            return equation, gradient, total((product(after), product(before))), "the product of the other elements, where no element is 0"
    equation, gradient = f"{y} = {how}{index} {x}", f"d{x} = d{y} where {x} = {y}, else 0"
    return equation, gradient, Count(), "the extreme element has derivative 1; equal ones share it"


def _sum(names: tuple[str, ...]) -> str:
    return f"Σ_{{{','.join(names)}}} " if len(names) > 1 else f"Σ_{names[0]} " if names else ""


def _index(names: tuple[str, ...]) -> str:
    return ", ".join(names)

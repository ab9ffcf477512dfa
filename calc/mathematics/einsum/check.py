"""Compares an operation with a real run: FLOPs with torch's counter, the gradient equations in numpy with autograd."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from calc.errors import BadInputError
from calc.mathematics.einsum.operation import Operation
from calc.mathematics.einsum.pattern import ELLIPSIS, Axes, Pattern, equation, letters
from calc.mathematics.einsum.steps import operand_names
from calc.pipeline.verdict import EXACT, FAILED, NOT_MEASURED, WITHIN, Verdict, judged

Array = np.ndarray[Any, np.dtype[np.float64]]
_RELATIVE = 1e-12
_LARGEST = 2**25


def check(op: Operation) -> tuple[Verdict[str], ...]:
    """Runs the operation at its sizes, all of which must be given. Raises ``BadInputError`` where one is missing."""
    _require_small(op)
    from calc.measure.einsum import Pair, run

    several = len(op.pattern.operands) > 1
    pairs = [Pair(s.inputs[0][0], s.inputs[1][0], s.out[0], _dotted(s.pattern)) for s in op.steps] if several else []
    new = {n: op.sizes[n] for n in op.pattern.names if n != ELLIPSIS}
    single = None if several else (op.pattern.text, op.reduction, new)
    shapes = {n: [int(x) for x in axes.shape(op.sizes)] for n, axes in zip(operand_names(op.pattern), op.pattern.operands, strict=True)}
    ran = run(shapes, pairs, single)
    verdicts = [_equal("shape of the result", tuple(op.pattern.result.shape(op.sizes)), tuple(ran.result.shape), "")]
    verdicts += _flops(op, ran.forward, ran.backward) if several else [_view(op, ran.view)]
    x = [_apart(array, axes, op) for array, axes in zip(ran.inputs, op.pattern.operands, strict=True)]
    y, dy = (_apart(array, op.pattern.result, op) for array in (ran.result, ran.upstream))
    verdicts.append(_near("result", forward(op, x), y, "the equation in numpy, and torch"))
    for at, gradient in enumerate(op.gradients):
        theirs = _apart(ran.gradients[at], op.pattern.operands[at], op)
        verdicts.append(_near(f"gradient of {gradient.operand}", backward(op, at, x, y, dy), theirs, "the equation in numpy, and autograd"))
    return tuple(verdicts)


def _require_small(op: Operation) -> None:
    missing = ["..." if name == ELLIPSIS else name for name in op.missing]
    if missing:
        raise BadInputError(f"a run needs every size: give {', '.join(missing)} too, e.g. {missing[0]}=7")
    # numpy goes through all combinations of dimensions at once; what lies between two products may be larger than every operand.
    largest = max(math.prod(op.sizes[name] for name in op.pattern.names), *(step.elements.at(op.sizes) or 0 for step in op.steps))
    if largest > _LARGEST:
        raise BadInputError(f"a run would compute {largest:,} combinations, more than {_LARGEST:,}: check at smaller sizes")


def _dotted(text: str) -> str:
    return text.replace(ELLIPSIS, "...")


def _apart(array: Array, axes: Axes, op: Operation) -> Array:
    """The array with one axis per dimension."""
    return array.reshape([op.sizes[name] for name in axes.names])


def _flops(op: Operation, forward: int, backward: int) -> list[Verdict[str]]:
    pairs = ("forward", op.matmul, forward), ("backward", op.backward_matmul, backward)
    alone = [n for n, size in op.sizes.items() if size == 1]
    if alone:
        because = f"torch leaves dimensions of size 1 ({', '.join(alone)}) out of its matmuls"
        unequal = [(f"FLOP of the matmuls of the {name}", str(count.at(op.sizes)), str(measured)) for name, count, measured in pairs]
        return [Verdict(*numbers, "", NOT_MEASURED, because=because) for numbers in unequal]
    instrument = "torch.utils.flop_counter, over all matmuls"
    return [_equal(f"FLOP of the matmuls of the {name}", count.at(op.sizes), measured, instrument) for name, count, measured in pairs]


def _view(op: Operation, view: bool) -> Verdict[str]:
    derived = not op.steps[0].elements.terms
    return judged("shares the operand's storage", _yes(derived), _yes(view), because="the address of the result's storage")


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _equal(quantity: str, derived: object, measured: object, because: str) -> Verdict[str]:
    return judged(quantity, str(derived), str(measured), because=because)


def _near(quantity: str, ours: Array, theirs: Array, because: str) -> Verdict[str]:
    scale = float(np.abs(theirs).max(initial=0.0))
    difference = float(np.abs(ours - theirs).max(initial=0.0))
    verdict = EXACT if difference == 0 else WITHIN if difference <= _RELATIVE * scale else FAILED
    largest = float(np.abs(ours).max(initial=0.0))
    reason = f"{because}; the largest numbers are shown, the largest difference is {difference:.2g}"
    return Verdict(quantity, f"{largest:.6g}", f"{scale:.6g}", "", verdict, _RELATIVE * scale, reason)


# -- the equations in numpy ---------------------------------------------------------------------------------------------------------


def forward(op: Operation, x: list[Array]) -> Array:
    """The result with an axis for each dimension, all operands at once."""
    if len(x) > 1:
        return np.asarray(np.einsum(equation(op.pattern), *x, optimize=False))
    before, after = op.pattern.operands[0].names, op.pattern.result.names
    if op.reduction:
        axes = tuple(at for at, name in enumerate(before) if name not in after)
        return _ordered(getattr(np, op.reduction)(x[0], axis=axes), tuple(n for n in before if n in after), after, op)
    return _ordered(x[0], before, after, op)


def backward(op: Operation, at: int, x: list[Array], y: Array, dy: Array) -> Array:
    """The gradient equation of an operand, with an axis for each dimension."""
    mine, after = op.pattern.operands[at].names, op.pattern.result.names
    if len(x) > 1:
        reached = {d for k, axes in enumerate(op.pattern.operands) if k != at for d in axes.names} | set(after)
        axes_left = tuple(d for d in mine if d in reached)
        operands = [axes for k, axes in enumerate(op.pattern.operands) if k != at]
        inner = Pattern("", (op.pattern.result, *operands), Axes(tuple((d,) for d in axes_left)))
        product = np.einsum(equation(inner), dy, *(a for k, a in enumerate(x) if k != at), optimize=False)
        return _ordered(np.asarray(product), axes_left, mine, op)
    new = tuple(n for n in after if n not in mine)
    if new:
        summed = dy.sum(axis=tuple(k for k, n in enumerate(after) if n in new))
        return _ordered(summed, tuple(n for n in after if n in mine), mine, op)
    spread, result = _ordered(dy, after, mine, op), _ordered(y, after, mine, op)
    match op.reduction:
        case "mean":
            return spread / np.prod([op.sizes[n] for n in mine if n not in after])
        case "prod":
            return spread * result / x[0]
        case "max" | "min":
            return np.where(x[0] == result, spread, 0.0)
    return spread


def _ordered(array: Array, names: tuple[str, ...], target: tuple[str, ...], op: Operation) -> Array:
    """The axes in the order wanted, repeated along those that it has not."""
    letter = letters(op.pattern.names)
    both = [n for n in target if n in names]
    moved = np.einsum(f"{''.join(letter[n] for n in names)}->{''.join(letter[n] for n in both)}", array)
    placed = moved.reshape([op.sizes[n] if n in names else 1 for n in target])
    return np.broadcast_to(placed, [op.sizes[n] for n in target])

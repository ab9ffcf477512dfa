"""Steps for a device's temporaries: gradients of activations, the largest at the loss, and the optimizer's.

Every peak candidate counts as if all saved tensors were allocated then, so the sum is an upper bound. Tensor ranks divide the parts that
depend on the vocabulary, heads or feed-forward width; all else counts whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from calc.capacity.sharding.model import FIRST, LAST, LAYER, STEPS, ShardedModel, ShardedTensor, TransientBytes
from calc.capacity.sharding.parts import FILLED, ONLY, WHOLE_RANK, LayoutChoice, elements, of_rank, outside, parameters, product, total
from calc.capacity.sharding.state import State
from calc.symbolic.exact import evaluate_text
from calc.symbolic.parser import free_names
from calc.symbolic.worked import WorkedStep

AT_LOSS = "Xa"  # beside all saved tensors
_PLACES = (
    ("Xl", LAYER, False, "of a layer's backward"),
    ("Xf", FIRST, False, "at the embedding"),
    (AT_LOSS, LAST, True, "at the loss, when all saved tensors are allocated"),
    ("Xo", LAST, False, "at the end of the model"),
)


def temporaries(model: ShardedModel, choice: LayoutChoice, stage: str, state: State, share: bool) -> list[WorkedStep]:
    """Steps for the largest temporaries on a stage; empty if unknown. ``share``: with ZeRO, the optimizer steps a shard of the parameters.
    """
    if not model.temporaries:
        return []
    lines = []
    for symbol, where, beside_all, description in _PLACES:
        candidates = [m for m in model.temporaries if (m.where, m.beside_all) == (where, beside_all) and _is_on(where, stage)]
        if candidates:
            byte_counts = list(dict.fromkeys(_bytes(candidate, choice, stage) for candidate in candidates))
            lines.append(WorkedStep(symbol, _largest(byte_counts), "bytes", f"temporary, {description}", _described(candidates)))
    stepping = _stepping(model, choice, stage, state, share)
    lines.append(stepping)
    why = "the largest of these: they are not allocated at the same time, and saved tensors are freed before the optimizer step"
    symbols = [line.symbol for line in lines if line is not stepping]
    return [*lines, WorkedStep("X", f"Max({', '.join([*symbols, 'Xs - A'])}, 0)", "bytes", "temporaries", why)]


def _is_on(where: str, stage: str) -> bool:
    return where == LAYER or stage in (ONLY, where)


def _bytes(candidate: TransientBytes, choice: LayoutChoice, stage: str) -> str:
    """Bytes of temporaries on a stage. The gradient of a tied head (``d*V``), allocated during layers, exists only on the stage of the
    head.
    """
    headless = candidate.where == LAYER and stage not in (ONLY, LAST)
    return total(of_rank(expr, under, choice) for expr, under in candidate.parts if not (headless and "V" in free_names(expr)))


def _largest(of: Sequence[str]) -> str:
    return of[0] if len(of) == 1 else f"Max({', '.join(of)})"


def _described(temporaries: Iterable[TransientBytes]) -> str:
    return "; ".join(dict.fromkeys(candidate.label for candidate in temporaries))


def _stepping(model: ShardedModel, choice: LayoutChoice, stage: str, state: State, share: bool) -> WorkedStep:
    """Temporaries of the optimizer: gradients cast to the format of the master weights, and temporaries of the largest tensor."""
    per_parameter, of_largest = model.stepped or (max(0, state.master - state.gradients), 2 * (state.master or state.weights))
    how = FILLED if share else WHOLE_RANK
    tensors = parameters(model, choice)
    at = tensors if model.only_data else [t for t in tensors if t.where == LAYER or t in outside(tensors, stage, model.tied)]
    alone = [replace(tensor, times=1) for tensor in at] if model.own else at  # a decoder's entry may be one module tensor: gate and up
    sizes = dict.fromkeys(elements([tensor], choice, how) for tensor in _largest_of(alone, model.values))
    parts = [product(str(per_parameter), "S" if share else "N")] if per_parameter else []
    parts += [product(str(of_largest), _largest(list(sizes)))] if of_largest and sizes else []
    parts += [_bytes(candidate, choice, stage) for candidate in model.temporaries if candidate.where == STEPS]
    why = "gradients in the format that is stepped, beside their own; what is made of the largest tensor; inputs"
    return WorkedStep("Xs", total(parts), "bytes", "temporary, in the optimizer step", why)


def _largest_of(tensors: Iterable[ShardedTensor], values: Mapping[str, int]) -> list[ShardedTensor]:
    """The tensors that are not smaller, in both rows and row length, than another one divided the same way."""
    sides = {t: (evaluate_text(t.rows, values), t.times * evaluate_text(t.row_length, values)) for t in tensors}
    largest: list[ShardedTensor] = []
    for tensor, (rows, row_length) in sorted(sides.items(), key=lambda of: of[1], reverse=True):
        alike = [sides[t] for t in largest if (t.divided, t.experts) == (tensor.divided, tensor.experts)]
        if not any(rows <= taller and row_length <= wider for taller, wider in alike):
            largest.append(tensor)
    return largest

"""Temporaries of a step, from the candidates of its derived peak: the bytes that are neither state, nor gradients, nor saved tensors.

``calc.capacity.sharding.peaks`` adds the largest of them to all saved tensors. Needs no torch: it reads a finished derivation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil

from calc.capacity.sharding.model import DIVIDED, FIRST, LAST, LAYER, SAME, STEPS, ShardedModel, ShardedTensor, TransientBytes
from calc.capacity.sharding.parts import FILLED, ONLY, WHOLE_RANK, LayoutChoice, elements, of_rank, outside, parameters, product, total
from calc.capacity.sharding.state import State
from calc.derive.result import Candidate, Derivation
from calc.symbolic.algebra import Algebra
from calc.symbolic.branches import at_hand
from calc.symbolic.exact import evaluate_text
from calc.symbolic.parser import free_names
from calc.symbolic.worked import WorkedStep
from calc.symbolic.writer import substituted

_STATE = frozenset({"parameter", "master weight", "optimizer state", "gradient", "buffer"})  # which have steps of their own, or a note
_SIDES = frozenset("hgfV")
Parts = dict[str, int]


def temporaries_of(derivation: Derivation, symbols: Iterable[str]) -> tuple[TransientBytes, ...]:
    """The temporaries of each peak candidate, as expressions in ``symbols`` and B; other sizes are numbers. Empty if the peak or the saved
    bytes are unknown.
    """
    saved, variables = derivation["activations.bytes"].text, {*symbols, "B"}
    parts_at: dict[tuple[str, str], Parts] = {}
    full: set[str] = set()
    for candidate in derivation["memory.peak"].candidates if saved is not None else ():
        for text in candidate.parts.values():
            if any("B" in free_names(name) for name in _atoms(text, derivation)):
                return ()  # the factor depends on B otherwise than as a product, so it would be wrong at another batch
        parts_at[candidate.at, _location(candidate.at, derivation)] = _beside(candidate, saved or "0", derivation, variables)
        full |= {candidate.at} if _has_all(candidate, derivation) else set()
    most = {at: parts for at, parts in parts_at.items() if not _dominated(*at, parts, parts_at)}
    return tuple(_temporary(operator, where, parts, operator in full) for (operator, where), parts in most.items())


def _has_all(candidate: Candidate, derivation: Derivation) -> bool:
    """Whether all tensors saved for backward are allocated at a peak candidate."""
    allocated = sum(size for role, size in candidate.part_values.items() if role not in {*_STATE, "temporary"})
    return allocated == derivation["activations.bytes"].value


def stepped_of(derivation: Derivation, own: Iterable[ShardedTensor]) -> tuple[int, int] | None:
    """Temporary bytes of the optimizer: per parameter beside its gradient, and per element of the largest tensor.

    None if no peak candidate is in the optimizer; on a stage without a loss it might still be the peak.
    """
    number, gradients = derivation["parameters"].value or 1, derivation["gradients.bytes"].value or 0
    largest = max((int(t.rows) * int(t.row_length) for t in own), default=number)
    steps = [c.part_values for c in derivation["memory.peak"].candidates if _steps(c.at)]
    if not steps:
        return None
    per_parameter = max(Fraction(values.get("gradient", 0) - gradients, number) for values in steps)
    return max(0, ceil(per_parameter)), max(-(-values.get("temporary", 0) // largest) for values in steps)


def _steps(at: str) -> bool:
    return at.startswith("optimizer")


def _module_path_of(at: str) -> str:
    return at.rpartition(" at ")[2].partition(", ")[0]


def _location(at: str, derivation: Derivation) -> str:
    """In a layer if the module path has a ``*``; before the layers if a parameter there comes before them; else after them."""
    if _steps(at):
        return STEPS
    module_path = _module_path_of(at)
    if "*" in module_path:
        return LAYER
    module_paths = [term.module_path for term in derivation["parameters"].terms]
    first = next((i for i, of in enumerate(module_paths) if "*" in of), 0)
    return FIRST if module_path in module_paths[:first] else LAST


def _beside(candidate: Candidate, saved: str, derivation: Derivation, variables: Iterable[str]) -> Parts:
    """Bytes of a peak candidate by product of variables: temporaries, plus whatever else exceeds all saved tensors.

    State and gradients have steps of their own. In the optimizer no tensor is saved for backward, so everything left counts.
    """
    temporary = "temporary"
    beside = " + ".join(f"({text})" for role, text in candidate.parts.items() if role not in {*_STATE, temporary}) or "0"
    if _steps(candidate.at):
        return _products(beside, derivation, variables)
    beyond = f"{at_hand(beside, derivation.sizes)} - ({at_hand(saved, derivation.sizes)})"
    if "L" in variables:  # with at least one layer, its saved tensors cover as much
        beyond = substituted(beyond, {"L": "L + 1"})
    excess = _products(beyond, derivation, variables)
    parts = _products(candidate.parts.get(temporary, "0"), derivation, variables)
    return {name: parts.get(name, 0) + excess.get(name, 0) for name in dict.fromkeys((*parts, *excess))}


def _products(text: str, derivation: Derivation, variables: Iterable[str]) -> Parts:
    """Coefficients, rounded up, by product of known variables. Negative terms are dropped: the sum is an upper bound."""
    sizes = derivation.sizes
    chosen = at_hand(text, sizes)
    algebra = Algebra(sorted(free_names(chosen)), [chosen])
    coefficients: dict[str, Fraction] = {}
    for coefficient, powers in algebra.terms(algebra.parse(chosen)):
        number, symbols = coefficient, []
        for name, power in powers.items():
            if name in variables:
                symbols += [name] * power
            else:
                number *= evaluate_text(name, sizes) ** power
        key = "*".join(sorted(symbols, key=lambda symbol: (symbol == "V", symbol)))  # the side that is rounded up comes last
        coefficients[key] = coefficients.get(key, Fraction(0)) + number
    return {key: ceil(number) for key, number in coefficients.items() if number > 0}


def _atoms(text: str, derivation: Derivation) -> list[str]:
    """The factors of an expression that are not variables, e.g. ``floor(T/2)``."""
    chosen = at_hand(text, derivation.sizes)
    return [name for name in Algebra(sorted(free_names(chosen)), [chosen]).names if not name.isidentifier()]


def _dominated(label: str, where: str, parts: Parts, parts_at: Mapping[tuple[str, str], Parts]) -> bool:
    """Whether another candidate of the same location has at least as much of everything; of equal ones the first stays."""
    before = True  # until the loop reaches this candidate itself
    for (operator, at), competitor in parts_at.items():
        before &= (operator, at) != (label, where)
        enough = at == where and operator != label and all(competitor.get(name, 0) >= number for name, number in parts.items())
        if enough and (before or competitor != parts):
            return True
    return False


def _temporary(operator: str, where: str, parts: Parts, full: bool) -> TransientBytes:
    """The temporaries as data. They are certain if all saved tensors are allocated then and ranks divide every part that has variables."""
    products = [("*".join([str(number), *([name] if name else [])]), name) for name, number in parts.items()]
    certain = where == LAST and all(not name or _SIDES & set(name.split("*")) for name in parts)
    return TransientBytes(
        operator, tuple((expr, DIVIDED if _SIDES & set(name.split("*")) else SAME) for expr, name in products), where, full and certain
    )


# -- steps ------------------------------------------------------------------------------------------------------------
# Steps for a device's temporaries: gradients of activations, the largest at the loss, and the optimizer's.
#
# Every peak candidate counts as if all saved tensors were allocated then, so the sum is an upper bound. Tensor ranks divide the parts that
# depend on the vocabulary, heads or feed-forward width; all else counts whole.


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
    return total(of_rank(expr, under, choice) for expr, under in candidate.parts if not (headless and "V" in expr.split("*")))


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

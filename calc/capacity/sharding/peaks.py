"""Temporaries of a step, from the candidates of its derived peak: the bytes that are neither state, nor gradients, nor saved tensors.

``calc.capacity.sharding.temporaries`` adds the largest of them to all saved tensors. Needs no torch: it reads a finished derivation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil

from calc.capacity.sharding.model import DIVIDED, FIRST, LAST, LAYER, SAME, STEPS, ShardedTensor, TransientBytes
from calc.derive.names import PeakPlace
from calc.derive.result import Candidate, Derivation
from calc.symbolic.algebra import Algebra
from calc.symbolic.branches import at_hand
from calc.symbolic.exact import evaluate_text
from calc.symbolic.parser import free_names
from calc.symbolic.writer import substituted

_STATE = frozenset({"parameter", "master weight", "optimizer state", "gradient", "buffer"})  # which have steps of their own, or a note
_SIDES = frozenset("hgfV")
Parts = dict[tuple[str, ...], int]  # coefficients by product of variables


def temporaries_of(derivation: Derivation, symbols: Iterable[str]) -> tuple[TransientBytes, ...]:
    """The temporaries of each peak candidate, as expressions in ``symbols`` and B; other sizes are numbers. Empty if the peak or the saved
    bytes are unknown.
    """
    saved, variables = derivation["activations.bytes"].text, {*symbols, "B"}
    parts_at: dict[tuple[PeakPlace, str], Parts] = {}
    full: set[PeakPlace] = set()
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


def _steps(at: PeakPlace) -> bool:
    return at.phase == "optimizer"


def _location(at: PeakPlace, derivation: Derivation) -> str:
    """In a layer if the module path has a ``*``; before the layers if a parameter there comes before them; else after them."""
    if _steps(at):
        return STEPS
    if "*" in at.module_path:
        return LAYER
    module_paths = [term.module_path for term in derivation["parameters"].terms]
    first = next((i for i, of in enumerate(module_paths) if "*" in of), 0)
    return FIRST if at.module_path in module_paths[:first] else LAST


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
    coefficients: dict[tuple[str, ...], Fraction] = {}
    for coefficient, powers in algebra.terms(algebra.parse(chosen)):
        number, symbols = coefficient, []
        for name, power in powers.items():
            if name in variables:
                symbols += [name] * power
            else:
                number *= evaluate_text(name, sizes) ** power
        key = tuple(sorted(symbols, key=lambda symbol: (symbol == "V", symbol)))  # the side that is rounded up comes last
        coefficients[key] = coefficients.get(key, Fraction(0)) + number
    return {key: ceil(number) for key, number in coefficients.items() if number > 0}


def _atoms(text: str, derivation: Derivation) -> list[str]:
    """The factors of an expression that are not variables, e.g. ``floor(T/2)``."""
    chosen = at_hand(text, derivation.sizes)
    return [name for name in Algebra(sorted(free_names(chosen)), [chosen]).names if not name.isidentifier()]


def _dominated(label: PeakPlace, where: str, parts: Parts, parts_at: Mapping[tuple[PeakPlace, str], Parts]) -> bool:
    """Whether another candidate of the same location has at least as much of everything; of equal ones the first stays."""
    before = True  # until the loop reaches this candidate itself
    for (operator, at), competitor in parts_at.items():
        before &= (operator, at) != (label, where)
        enough = at == where and operator != label and all(competitor.get(name, 0) >= number for name, number in parts.items())
        if enough and (before or competitor != parts):
            return True
    return False


def _temporary(operator: PeakPlace, where: str, parts: Parts, full: bool) -> TransientBytes:
    """The temporaries as data. They are certain if all saved tensors are allocated then and ranks divide every part that has variables."""
    products = [("*".join((str(number), *symbols)), SAME if _SIDES.isdisjoint(symbols) else DIVIDED) for symbols, number in parts.items()]
    certain = where == LAST and not any(symbols and _SIDES.isdisjoint(symbols) for symbols in parts)
    return TransientBytes(str(operator), tuple(products), where, full and certain)

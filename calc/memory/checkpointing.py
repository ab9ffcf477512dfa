"""Chooses activation checkpointing under a memory limit: the choice that fits and recomputes the least.

Each choice has its own derivation of the same step, so its savings and its recomputation are differences of two closed forms. The best
choice changes where the limit equals a peak: each is best from its own peak up to the lowest peak of the choices that recompute less.
Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from calc.derive.result import Derivation
from calc.derive.to_json import number
from calc.errors import BadInputError, NapkinError
from calc.symbolic import search
from calc.symbolic.algebra import to_sympy
from calc.symbolic.branches import at_hand

NONE = "none"
CHOICES = (NONE, "block/2", "attention", "block")
_LARGEST = 2**40


@dataclass(frozen=True, slots=True)
class CheckpointingChoice:
    """One activation checkpointing choice at the sizes of its derivation; ``refused`` says why it has no values.

    ``saved`` and ``recomputed`` are closed forms relative to ``none``: bytes of activations saved, FLOPs added to the step. It is the best
    choice for limits from ``best_from`` to below ``best_below`` (``None``: no upper end); never if ``best_from`` is ``None``.
    ``largest_batch`` is its largest batch under the limit, if one was given.
    """

    checkpointing: str
    peak: int = 0
    activations: int = 0
    flops: int = 0
    extra: int = 0
    saved: str = ""
    recomputed: str = ""
    fits: bool | None = None
    best_from: int | None = None
    best_below: int | None = None
    largest_batch: int | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointingComparison:
    """Every choice of one step, those that recompute less first. ``best`` is the best one under ``limit``, if any fits."""

    model: str
    sizes: Mapping[str, int]
    limit: int | None
    choices: tuple[CheckpointingChoice, ...]
    best: str | None


def compared(derivations: Mapping[str, Derivation], refused: Mapping[str, str], limit: int | None = None) -> CheckpointingComparison:
    """The choices of ``derivations`` by checkpointing name, at their common sizes; ``none`` must be among them."""
    if NONE not in derivations:
        raise BadInputError(f"nothing to compare with: the step without checkpointing is refused ({refused.get(NONE, 'not derived')})")
    plain = derivations[NONE]
    by_work = sorted(derivations, key=lambda name: (_flops(derivations[name]), _peak(derivations[name])))
    lowest: int | None = None
    choices: list[CheckpointingChoice] = []
    for name in by_work:
        peak = _peak(derivations[name])
        interval = lowest is None or peak < lowest
        choices.append(_choice(name, derivations[name], plain, limit, (peak, lowest) if interval else (None, None)))
        lowest = peak if interval else lowest
    fitting = [choice.checkpointing for choice in choices if choice.fits]
    choices += [CheckpointingChoice(name, refused=why) for name, why in refused.items()]
    return CheckpointingComparison(plain.model, plain.sizes, limit, tuple(choices), fitting[0] if fitting else None)


def _choice(
    name: str, derivation: Derivation, plain: Derivation, limit: int | None, interval: tuple[int | None, int | None]
) -> CheckpointingChoice:
    return CheckpointingChoice(
        name,
        peak=_peak(derivation),
        activations=derivation["activations.bytes"].at(),
        flops=_flops(derivation),
        extra=_flops(derivation) - _flops(plain),
        saved=_difference(plain, derivation, "activations.bytes"),
        recomputed=_difference(derivation, plain, "flops.step.total"),
        fits=None if limit is None else _peak(derivation) <= limit,
        best_from=interval[0],
        best_below=interval[1],
        largest_batch=None if limit is None or "B" not in derivation.sizes else largest(derivation, "B", limit),
    )


def _peak(derivation: Derivation) -> int:
    return derivation["memory.peak"].at()


def _flops(derivation: Derivation) -> int:
    return derivation["flops.step.total"].at()


def _difference(minuend_side: Derivation, subtrahend_side: Derivation, quantity: str) -> str:
    """The difference of two closed forms, each in the case that holds at its sizes."""
    minuend, subtrahend = (to_sympy(at_hand(side[quantity].text or "0", side.sizes)) for side in (minuend_side, subtrahend_side))
    return str(sp.factor_terms(sp.expand(minuend - subtrahend)))


def largest(derivation: Derivation, dim: str, limit: int) -> int | None:
    """The largest size of ``dim`` whose peak is at most ``limit``, 0 if none is: a peak only grows with a size. ``None`` if the closed form
    is refused during the search."""
    peak = derivation["memory.peak"]

    def fits(size: int) -> bool:
        if size > 1 and dim not in derivation.specialized and not derivation.holds_at({dim: size}):  # the next size is traced if necessary
            raise NapkinError("the step runs other operators there")
        return peak.at(**{dim: size}) <= limit

    try:
        return search.largest(fits, _LARGEST)
    except NapkinError:
        return None


def document(comparison: CheckpointingComparison) -> dict[str, Any]:
    """The ``"schema": 1`` document of a comparison, as plain data."""
    return {
        "schema": 1,
        "model": {"name": comparison.model},
        "dims": {name: {"value": number(value)} for name, value in comparison.sizes.items()},
        "limit": number(comparison.limit),
        "taken": comparison.best,
        "choices": [_entry(choice) for choice in comparison.choices],
    }


def _entry(choice: CheckpointingChoice) -> dict[str, Any]:
    if choice.refused:
        return {"checkpointing": choice.checkpointing, "refused": choice.refused}
    return {
        "checkpointing": choice.checkpointing,
        "memory.peak": number(choice.peak),
        "activations.bytes": number(choice.activations),
        "flops.step.total": number(choice.flops),
        "extra": {"expr": choice.recomputed, "value": number(choice.extra), "unit": "FLOP"},
        "saved": {"expr": choice.saved, "unit": "byte"},
        "fits": choice.fits,
        "taken": {"from": number(choice.best_from), "below": number(choice.best_below)},
        "largest": {"B": number(choice.largest_batch)},
    }

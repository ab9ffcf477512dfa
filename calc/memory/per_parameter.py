"""Bytes per parameter of the state of a training step, term by term, from a derivation: the rule of thumb with its remainder.

Weights, copies, gradients and optimizer state of a derivation, each divided by the number of parameters. The remainder (an optimizer's step
counters, a parameter without a gradient) is listed with its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from calc.derive.result import Derivation
from calc.derive.to_json import number
from calc.errors import BadInputError
from calc.memory.formulas import RECIPES, Recipe
from calc.options import PRECISIONS

# Quantities of the state, with what they are in words.
TERMS = {
    "parameters.bytes": "weights",
    "master_weights.bytes": "fp32 copies of the weights, which the optimizer updates",
    "gradients.bytes": "gradients",
    "optimizer_state.bytes": "optimizer state",
}


@dataclass(frozen=True, slots=True)
class RecipeTerm:
    """``per_parameter`` bytes for each parameter plus ``remainder`` bytes: together exactly the quantity."""

    quantity: str
    label: str
    per_parameter: int
    remainder: int
    because: str


@dataclass(frozen=True, slots=True)
class PerParameter:
    """The terms of one derivation at its sizes, in bytes."""

    model: str
    precision: str
    optimizer: str
    parameters: int
    terms: tuple[RecipeTerm, ...]

    @property
    def per_parameter(self) -> int:
        """The rule of thumb: bytes per parameter without the remainder."""
        return sum(term.per_parameter for term in self.terms)

    @property
    def remainder(self) -> int:
        return sum(term.remainder for term in self.terms)

    @property
    def bytes(self) -> int:
        """Bytes of the whole state."""
        return self.per_parameter * self.parameters + self.remainder

    @property
    def exact(self) -> Fraction:
        """Bytes per parameter, remainder included."""
        return Fraction(self.bytes, self.parameters)

    def to_json(self) -> dict[str, Any]:
        terms = [{"quantity": t.quantity, "per_parameter": t.per_parameter, "rest": t.remainder, "because": t.because} for t in self.terms]
        head = {"model": self.model, "precision": self.precision, "optimizer": self.optimizer, "parameters": self.parameters}
        return {**head, "per_parameter": self.per_parameter, "rest": self.remainder, "terms": terms}


# What each ZeRO stage divides among the devices, in addition to the stage before it.
_DIVIDED = (
    (),
    ("optimizer_state.bytes", "master_weights.bytes"),
    ("gradients.bytes",),
    ("parameters.bytes",),
)


def sharded(recipe: PerParameter, devices: int, stage: int) -> Fraction:
    """Bytes per parameter and device of the state under a ZeRO stage (0: each device has all of it), by the rule of thumb.

    Published formula, not a run: no step on several devices is traced. Excludes temporarily gathered tensors and padding. Source:
    Rajbhandari et al. 2020, ZeRO (arXiv 1910.02054), section 5 and figure 1.
    """
    if devices < 1 or not 0 <= stage < len(_DIVIDED):
        raise BadInputError(f"stage {stage} on {devices} devices: stages are 0 to {len(_DIVIDED) - 1}, on at least one device")
    divided = {name for names in _DIVIDED[: stage + 1] for name in names}
    return sum((Fraction(t.per_parameter, devices if t.quantity in divided else 1) for t in recipe.terms), start=Fraction(0))


def per_parameter(derivation: Derivation) -> PerParameter:
    """Bytes per parameter in a derivation's step, at its own sizes."""
    count = derivation["parameters"].at()
    terms = tuple(_term(derivation, name, count) for name in TERMS if derivation[name].text is not None)
    if not any(t.quantity == "gradients.bytes" for t in terms):
        raise BadInputError(f"mode {derivation.options.get('mode')} keeps no gradients and no optimizer state: use mode train")
    options = derivation.options
    return PerParameter(derivation.model, options["precision"], options.get("optimizer", ""), count, terms)


def _term(derivation: Derivation, name: str, count: int) -> RecipeTerm:
    """Rounds to nearest: a parameter without a gradient then leaves a negative remainder, not one byte too few for all parameters."""
    nbytes = derivation[name].at()
    per_parameter = (2 * nbytes + count) // (2 * count)
    remainder = nbytes - per_parameter * count
    return RecipeTerm(name, TERMS[name], per_parameter, remainder, _because(name, per_parameter, remainder, derivation.options))


def _because(name: str, per_parameter: int, remainder: int, options: Mapping[str, str]) -> str:
    precision = options["precision"]
    each = f"{per_parameter} bytes each"
    match name:
        case "parameters.bytes":
            reason = f"{each}: {'bf16' if precision in ('bf16', 'bf16-master') else 'fp32'} weights"
            return f"{reason}; autocast's casts live in the forward only" if precision.endswith("autocast") else reason
        case "master_weights.bytes":
            return f"{each}: one fp32 copy, which the optimizer updates and which is rounded into the weights"
        case "optimizer_state.bytes":
            reason = f"{each}: what {options.get('optimizer', 'the optimizer')} keeps per weight, in the dtype of what it updates"
            return f"{reason}; plus {remainder:,} bytes, mostly step counters" if remainder > 0 else reason
        case "gradients.bytes" if not per_parameter and not remainder:
            return "none between backward and step: each is cast into its copy's and released"
    reason = f"{each}: one for every weight, in the weight's format" if name == "gradients.bytes" else each
    return f"{reason}; {-remainder:,} bytes fewer, of parameters without a gradient" if remainder < 0 else reason


# -- all recipes ------------------------------------------------------------------------------------------------------
# Bytes per parameter of every precision recipe, compared: derived if the step can be traced, else from published formulas.
#
# Each derived recipe has its own derivation. fp8 recipes, which torch does not run here, are published formulas with their source; they are
# never mixed with derived numbers. Importing this module does not import torch.


@dataclass(frozen=True, slots=True)
class Recipes:
    """All recipes of one model and optimizer. ``refused`` has the reasons of the others; ``devices`` share the state, if any do."""

    model: str
    optimizer: str
    sizes: Mapping[str, int]
    recipes: tuple[PerParameter, ...]
    refused: Mapping[str, str]
    devices: int | None
    stated: tuple[Recipe, ...] = RECIPES

    def sharded(self, recipe: PerParameter) -> tuple[Fraction, ...]:
        """Bytes per parameter and device in stages 1 to 3 of ZeRO, by the rule of thumb."""
        return () if self.devices is None else tuple(sharded(recipe, self.devices, stage) for stage in (1, 2, 3))


def gathered(derivations: Mapping[str, Derivation], refused: Mapping[str, str], devices: int | None = None) -> Recipes:
    """The recipes of ``derivations``, by their precision."""
    if not derivations:
        raise BadInputError(next(iter(refused.values()), f"no recipe given: use one of {', '.join(PRECISIONS)}"))
    if devices is not None and devices < 1:
        raise BadInputError(f"{devices} devices cannot shard the state: give 1 or more")
    first = next(iter(derivations.values()))
    recipes = tuple(per_parameter(derivation) for derivation in derivations.values())
    optimizer = first.options.get("optimizer", "")
    return Recipes(first.model, optimizer, first.sizes, recipes, dict(refused), devices)


def document(recipes: Recipes) -> dict[str, Any]:
    """The ``"schema": 1`` document of the recipes, as plain data. Fractions of a byte are text: ``"33/16"``."""
    return {
        "schema": 1,
        "model": {"name": recipes.model},
        "dims": {name: {"value": number(value)} for name, value in recipes.sizes.items()},
        "optimizer": recipes.optimizer,
        "recipes": [_entry(recipe, recipes) for recipe in recipes.recipes],
        "refused": dict(recipes.refused),
        "stated": [recipe.to_json() for recipe in recipes.stated],
        "devices": recipes.devices,
    }


def _entry(recipe: PerParameter, recipes: Recipes) -> dict[str, Any]:
    entry = recipe.to_json()
    shares = {f"stage_{stage}": str(share) for stage, share in enumerate(recipes.sharded(recipe), 1)}
    numbers = {"parameters": number(recipe.parameters), "bytes": number(recipe.bytes), "rest": number(recipe.remainder)}
    return {**entry, **numbers, "terms": [{**term, "rest": number(term["rest"])} for term in entry["terms"]], "sharded": shares or None}


def precisions(precision: str | None) -> Sequence[str]:
    """The precision recipes to derive: the given one, or all."""
    return PRECISIONS if precision is None else (precision,)

"""Bytes per parameter of every precision recipe, compared: derived if the step can be traced, else from published formulas.

Each derived recipe has its own derivation. fp8 recipes, which torch does not run here, are published formulas with their source; they are
never mixed with derived numbers. Importing this module does not import torch.
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
from calc.memory.per_parameter import PerParameter, per_parameter, sharded
from calc.options import PRECISIONS


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

"""Why an optimizer keeps the tensors of its state: the updates that read them, which are a table, ``why_state.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

from calc.options import NAMED_OPTIMIZERS

_EACH, _BYTES = "each element of the parameter", "bytes of one value times number of values"


def in_words(optimizer: str, keys: Sequence[str]) -> str:
    """Why ``optimizer`` keeps the tensors of these keys for a parameter; empty where the table does not say that of each."""
    updates = {key: update(optimizer, key) for key in keys}
    if not all(updates.values()):
        return ""
    by_place: dict[str, list[str]] = {}
    for key, text in updates.items():
        place = _table()[key].get("of", _EACH)
        by_place.setdefault(place, []).append(f"{text} ({key})" if place else f"{key} is {text}")
    numbers = by_place.pop("", [])
    parts = [f"{' and '.join(texts)} for {place}" for place, texts in by_place.items()]
    return "; ".join([*([f"{_who(optimizer)} updates {', '.join(parts)}"] if parts else []), *numbers, _BYTES])


def update(optimizer: str, key: str) -> str:
    """What the optimizer does with the tensor of ``key``, as an equation or in words; empty where the table does not say."""
    entry = _table().get(key, {})
    return entry.get(optimizer, entry.get("any", ""))


def _who(optimizer: str) -> str:
    """The class of the optimizer; one that leaves some parameters to another, and that of a spec, is just the optimizer."""
    named = NAMED_OPTIMIZERS.get(optimizer)
    return "the optimizer" if named is None or named.about else named.kind


@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads(resources.files("calc").joinpath("data/why_state.toml").read_text(encoding="utf-8"))

"""The table ``calc/data/hf_fields.toml``: which field of a config is which dimension."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources


@dataclass(frozen=True)
class Fields:
    """The table, section by section."""

    dimensions: Mapping[str, Sequence[str]]
    when_null: Mapping[str, str]
    endings: tuple[str, ...]
    not_with: Sequence[str]
    pairs: Sequence[tuple[str, str]]
    groups_of_experts: Sequence[str]
    rotary: Sequence[str]
    biased: Sequence[str]
    shares: Sequence[str]
    in_pairs: Sequence[str]
    inputs: Sequence[str]
    tasks: Mapping[str, Sequence[str]]
    skipped_layers: Sequence[str]
    hidden_inputs: Sequence[str]
    masks: Sequence[str]
    ignored: Sequence[str]
    layers: Sequence[str]
    not_layers: Sequence[str]

    @property
    def of_whole_models(self) -> frozenset[str]:
        """Fields of a config that has layers or inputs of its own."""
        return frozenset((*self.dimensions["L"], *self.dimensions["V"], *self.inputs))

    @property
    def experts(self) -> frozenset[str]:
        """Fields that say how many experts there are, and how many a token has: 0 in a config of a model without."""
        return frozenset((*self.dimensions["E"], *self.dimensions["e"]))

    @cached_property
    def sizes(self) -> frozenset[str]:
        """Fields of all dimensions."""
        return frozenset(name for names in self.dimensions.values() for name in names)

    def counts_layers(self, field: str) -> bool:
        """Whether a field says by its name how many layers of some kind there are."""
        return field in self.dimensions["L"] or (
            any(word in field for word in self.layers) and not any(word in field for word in self.not_layers)
        )

    def is_named_as_size(self, field: str) -> bool:
        """Whether a field of no dimension is a size by its name."""
        return field.endswith(self.endings) and not any(word in field for word in self.not_with)


def _read() -> Fields:
    table = tomllib.loads(resources.files("calc").joinpath("data/hf_fields.toml").read_text(encoding="utf-8"))
    sizes, multiples, positions = table["sizes"], table["multiples"], table["positions"]
    return Fields(
        dimensions=table["dimensions"],
        when_null=table["when_null"],
        endings=tuple(sizes["endings"]),
        not_with=sizes["not_with"],
        pairs=[(part, whole) for part, whole in multiples["pairs"]],
        groups_of_experts=multiples["groups_of_experts"],
        rotary=positions["rotary"],
        biased=positions["biased"],
        shares=positions["shares"],
        in_pairs=table["pairs"]["words"],
        inputs=table["inputs"]["fields"],
        tasks=table["tasks"],
        skipped_layers=table["chance"]["layers"],
        hidden_inputs=table["chance"]["inputs"],
        masks=table["chance"]["masks"],
        ignored=table["ignored"]["fields"],
        layers=table["layers"]["words"],
        not_layers=table["layers"]["not_with"],
    )


FIELDS = _read()


def is_size(value: object) -> bool:
    """Whether a value of a config is a positive integer."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0

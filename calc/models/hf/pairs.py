"""Lists in a config's rotary parameters with a number for each pair of positions that is rotated: they grow with the width of a head.

The numbers scale frequencies. No size and no count depends on them, but their number does on the width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from calc.models.hf.source import Source, stored
from calc.models.hf.table import FIELDS, is_size
from calc.platform.sized_list import of_size


@dataclass(frozen=True, slots=True)
class PairLists:
    """The ``field`` of a config with such ``lists``. Each has ``per`` numbers for an element of ``width``: the name of a dimension, or two
    whose quotient it is."""

    field: str
    parameters: Mapping[str, Any]
    lists: tuple[str, ...]
    width: tuple[str, ...]
    per: Fraction

    def changes(self, n: Any) -> dict[str, Any]:
        """{field: its value with lists for the sizes ``n``}; empty if ``n`` has no such width."""
        if not all(hasattr(n, name) for name in self.width):
            return {}
        width = getattr(n, self.width[0]) // (getattr(n, self.width[1]) if len(self.width) > 1 else 1)
        count = width * self.per.numerator // self.per.denominator
        return {self.field: {**self.parameters, **{name: of_size(self.parameters[name], count) for name in self.lists}}}


def share_of(config: Any) -> Fraction:
    """The share of a head's width that rotates."""
    parameters = config.__dict__.get("rope_parameters")
    places = [config.__dict__, *(p for p in [parameters] if isinstance(p, dict))]
    shares = [place.get(name) for place in places for name in FIELDS.shares]
    return next((Fraction(str(s)) for s in shares if isinstance(s, int | float) and 0 < s <= 1), Fraction(1))


def pair_lists(source: Source, config: Any, fields: Mapping[str, tuple[str, ...]]) -> PairLists | None:
    """The lists of the file with a number for each pair; None if it has none. ``fields`` are those of the dimensions."""
    per = share_of(config) / 2
    for name in FIELDS.rotary:
        parameters = source.raw.get(name)
        if not isinstance(parameters, dict):
            continue
        for width, size in _widths(stored(config), fields):
            lists = tuple(key for key, value in parameters.items() if _is_numbers(value) and len(value) == size * per)
            if lists:
                return PairLists(name, parameters, lists, width, per)
    return None


def _widths(value: Mapping[str, Any], fields: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Dimensions that may be the width which rotates: parts with a width of their own, then the head width, which may be d/h."""
    names = [name for name in fields if any(word in name for word in FIELDS.in_pairs)]
    for name in (*names, "k"):
        if name in fields and is_size(value[fields[name][0]]):
            yield (name,), value[fields[name][0]]
    sizes = [value[fields[name][0]] for name in ("d", "h") if name in fields]
    if "k" not in fields and len(sizes) == 2 and all(map(is_size, sizes)):
        yield ("d", "h"), sizes[0] // sizes[1]


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(number) in (int, float) for number in value)

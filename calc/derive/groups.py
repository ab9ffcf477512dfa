"""Equal addends of all traces, grouped: the amount of one instance, and their number as a function of depth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calc.derive.accumulate import CountedAddend
from calc.derive.loops import Interpolation, LoopIndices
from calc.symbolic.algebra import Poly
from calc.units import Unit


@dataclass(frozen=True, slots=True)
class Group:
    """Equal addends of one quantity: same module path (loop indices as ``*``), rule, label, amount and part of the model.

    ``each`` is the amount of one, ``times`` their number (a polynomial in the trip counts).
    """

    quantity: str
    module_path: str
    rule: str
    label: str
    factors: tuple[Any, ...]
    each: Poly
    times: Poly
    unit: Unit
    part: str = ""

    @property
    def total(self) -> Poly:
        return self.each * self.times


def group(runs: Sequence[Sequence[CountedAddend]], module_paths: LoopIndices, interpolate: Interpolation, unit: Poly) -> list[Group]:
    """Groups of the entries of several traces, in the order of the first trace that has them."""
    counts: dict[Any, list[int]] = {}
    samples: dict[Any, CountedAddend] = {}
    for i, entries in enumerate(runs):
        for entry in entries:
            part = module_paths.general(entry.part)
            key = (entry.quantity, module_paths.general(entry.module_path), entry.rule, entry.label, part, entry.count)
            if key not in counts:
                counts[key] = [0] * len(runs)
                samples[key] = entry
            counts[key][i] += 1
    return [
        Group(
            key[0],
            key[1],
            key[2],
            key[3],
            samples[key].factors,
            unit * samples[key].count,
            interpolate([unit * n for n in number]),
            samples[key].amount.unit,
            key[4],
        )
        for key, number in counts.items()
    ]


def without_parts(groups: Iterable[Group]) -> list[Group]:
    """The groups of equal addends of whichever part."""
    joined: dict[Any, Group] = {}
    for g in groups:
        key = (g.quantity, g.module_path, g.rule, g.label, g.each)
        first = joined.get(key)
        joined[key] = replace(first or g, times=first.times + g.times if first else g.times, part="")
    return [*joined.values()]


def by_part(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups of each part of the model, in order."""
    groups_by_part: dict[str, list[Group]] = {}
    for g in groups:
        groups_by_part.setdefault(g.part, []).append(g)
    return groups_by_part


def staged(groups: Sequence[Group]) -> list[Group]:
    """The groups with the modules of a numbered container as one part: ``layer1`` for ``layer1.0.conv1`` beside ``layer2.0.conv1``, and
    ``stages.0`` for ``stages.0.conv1`` where there is one such container."""
    stages = {g.part: g.part.split(".") for g in groups}
    numbers = {part: i for part, path in stages.items() for i, name in reversed([*enumerate(path)]) if name.isdigit()}
    several = len({tuple(stages[part][:i]) for part, i in numbers.items()}) > 1
    names = {part: ".".join(stages[part][: i or 1] if several else stages[part][: i + 1]) for part, i in numbers.items()}
    return [replace(g, part=names.get(g.part, g.part)) for g in groups]


def by_quantity(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups of each quantity."""
    groups_by_quantity: dict[str, list[Group]] = {}
    for g in groups:
        groups_by_quantity.setdefault(g.quantity, []).append(g)
    return groups_by_quantity


def total(groups: Sequence[Group], zero: Poly) -> Poly:
    """Sum over the groups of one quantity."""
    result = zero
    for g in groups:
        result = result + g.total
    return result


def by_module_path(groups: Sequence[Group]) -> Mapping[str, list[Group]]:
    """The groups of each module path, in order."""
    groups_by_module_path: dict[str, list[Group]] = {}
    for g in groups:
        groups_by_module_path.setdefault(g.module_path, []).append(g)
    return groups_by_module_path


def by_label(groups: Sequence[Group]) -> Mapping[str, list[Group]]:
    """The groups of each kind of addend, in order."""
    groups_by_label: dict[str, list[Group]] = {}
    for g in groups:
        groups_by_label.setdefault(g.label, []).append(g)
    return groups_by_label


def by_addend(groups: Sequence[Group]) -> list[Group]:
    """One group for each module path and kind of addend, whose total is theirs together."""
    joined: dict[tuple[str, str], Group] = {}
    for g in groups:
        first = joined.get((g.module_path, g.label))
        joined[g.module_path, g.label] = g if first is None else replace(first, each=first.total + g.total, times=g.times**0)
    return [*joined.values()]

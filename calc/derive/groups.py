"""Equal addends of all traces, grouped: the amount of one instance, and their number as a function of depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calc.derive.accumulate import CountedAddend
from calc.derive.loops import Interpolation, LoopIndices
from calc.symbolic.algebra import Poly
from calc.units import Unit


@dataclass(frozen=True, slots=True)
class Group:
    """Equal addends of one quantity: same module path (loop indices as ``*``), rule, label and amount.

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

    @property
    def total(self) -> Poly:
        return self.each * self.times


def group(runs: Sequence[Sequence[CountedAddend]], module_paths: LoopIndices, interpolate: Interpolation, unit: Poly) -> list[Group]:
    """Groups of the entries of several traces, in the order of the first trace that has them."""
    counts: dict[Any, list[int]] = {}
    samples: dict[Any, CountedAddend] = {}
    for i, entries in enumerate(runs):
        for entry in entries:
            key = (entry.quantity, module_paths.general(entry.module_path), entry.rule, entry.label, entry.count)
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
        )
        for key, number in counts.items()
    ]


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

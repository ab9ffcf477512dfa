"""Trip counts: interpolates traces at a few depths to every depth.

A depth is a Python loop, so each trace has it as a number. Every amount is a polynomial in it; the traces at 3 and 4 determine a linear
one, more traces a higher degree. Certificates at other depths verify the degree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sympy.polys.domains import QQ

from calc.derive.accumulate import CountedAddend
from calc.derive.names import AddendLabel, WorkKind
from calc.derive.saved_for import SavedAs
from calc.graph.step import StepTrace
from calc.graph.unrolling import numbered_children
from calc.symbolic.algebra import Algebra, Poly
from calc.units import Unit


class Interpolation:
    """Newton interpolation over the trip counts of ``traces``, which form a full grid, one loop after the other.

    Amounts of two depths differ in few terms, and only those are multiplied.
    """

    def __init__(self, traces: Sequence[StepTrace], loops: Sequence[str], algebra: Algebra) -> None:
        counts = [tuple(trace.sizes[name] for name in loops) for trace in traces]
        self._order = sorted(range(len(counts)), key=counts.__getitem__)
        self._loops = [_Points.of(algebra.gen(name), sorted({at[i] for at in counts})) for i, name in enumerate(loops)]
        self._polynomials: dict[tuple[Poly, ...], Poly] = {}

    def __call__(self, values: Sequence[Poly]) -> Poly:
        """The polynomial with these ``values``, one for each trace."""
        if all(v == values[0] for v in values):
            return values[0]
        ordered = tuple(values[i] for i in self._order)
        polynomial = self._polynomials.get(ordered)
        if polynomial is None:
            polynomial = self._polynomials[ordered] = _through(ordered, self._loops)
        return polynomial


@dataclass(frozen=True, slots=True)
class _Points:
    """The trip counts of one loop, and what its trip count exceeds each of them by."""

    counts: Sequence[int]
    excess: Sequence[Poly]

    @classmethod
    def of(cls, count: Poly, counts: Sequence[int]) -> _Points:
        return cls(counts, [count - traced for traced in counts])


def polynomial_at(count: int, counts: Sequence[int], values: Sequence[int]) -> int:
    """The polynomial of least degree through these ``values`` at the trip ``counts`` of one loop, at another trip count."""
    return int(_through(values, [_Points.of(count, counts)]))


def _through(values: Sequence[Poly], loops: Sequence[_Points]) -> Poly:
    """The polynomial through the values on a grid, those of the innermost loop next to each other."""
    if not loops:
        return values[0]
    points, *inner = loops
    share = len(values) // len(points.counts)
    differences = [_through(values[i * share : (i + 1) * share], inner) for i in range(len(points.counts))]
    for order in range(1, len(points.counts)):
        for i in reversed(range(order, len(points.counts))):
            change = differences[i] - differences[i - 1]
            apart = points.counts[i] - points.counts[i - order]
            differences[i] = change if apart == 1 else change * QQ(1, apart)
    total = differences[-1]
    for excess, difference in zip(points.excess[-2::-1], differences[-2::-1], strict=True):
        total = total * excess + difference if total else difference
    return total


class LoopIndices:
    """Which numbers in module paths are loop indices: those of containers whose length differs between traces."""

    def __init__(self, traces: Sequence[StepTrace]) -> None:
        self._cache: dict[str, str] = {}
        self.looped: set[str] = set()
        children = [_children(trace) for trace in traces]
        for level in range(1 + max(map(_level, children[0]), default=0)):
            self.looped |= self._of_other_lengths([{p: c for p, c in each.items() if _level(p) == level} for each in children])
        self._places: dict[str, tuple[str, tuple[int, ...]]] = {}
        numbered = [_numbered_names(trace) for trace in traces]
        self._numbered = {names for names in numbered[0] if any(n.get(names) != numbered[0][names] for n in numbered)}

    def _of_other_lengths(self, children: Sequence[Mapping[str, frozenset[int]]]) -> set[str]:
        """Containers, by their paths with ``*``, whose children differ between traces. Those of one such path are one: where each layer
        has a list with one child, at the number of that layer, the lists together grow."""
        together: list[dict[str, frozenset[int]]] = []
        for of_trace in children:
            together.append({})
            for prefix, numbers in of_trace.items():
                path = self.general(prefix)
                together[-1][path] = together[-1].get(path, frozenset()) | numbers
        return {path for path, numbers in together[0].items() if any(each.get(path) != numbers for each in together)}

    def general(self, module_path: str) -> str:
        """``"h.0.mlp"`` → ``"h.*.mlp"`` where ``h`` is looped over."""
        path = self._cache.get(module_path)
        if path is None:
            parts: list[str] = []
            for part in module_path.split("."):
                parts.append("*" if part.isdigit() and ".".join(parts) in self.looped else part)
            path = self._cache[module_path] = ".".join(parts)
        return path

    def place(self, module_path: str) -> tuple[str, tuple[int, ...]]:
        """A module path with all loop indices as ``*``, and those indices, the outermost first, including numbers in names of which deeper
        traces have more (``unit0``, ``unit1``)."""
        position = self._places.get(module_path)
        if position is None:
            parts, indices = self.general(module_path).split("."), list[int]()
            own = module_path.split(".")
            for i, part in enumerate(own):
                stem, number = _split(part)
                if parts[i] == "*":
                    indices.append(int(part))
                elif number is not None and (".".join(own[:i]), stem) in self._numbered:
                    parts[i] = f"{stem}*"
                    indices.append(number)
            position = self._places[module_path] = ".".join(parts), tuple(indices)
        return position

    def instances(self, trace: StepTrace) -> Mapping[str, int]:
        """Number of children of each looped container in ``trace``."""
        return {prefix: len(c) for prefix, c in _children(trace).items() if self.general(prefix) in self.looped}


def _level(prefix: str) -> int:
    """The number of names in the path of a container; 0 for the model itself."""
    return prefix.count(".") + 1 if prefix else 0


def _split(part: str) -> tuple[str, int | None]:
    """``"unit2"`` → ``("unit", 2)``; the number is None for a name that does not end in one, or is one."""
    stem = part.rstrip("0123456789")
    return (stem, int(part[len(stem) :])) if stem and stem != part else (part, None)


def _numbered_names(trace: StepTrace) -> dict[tuple[str, str], frozenset[int]]:
    """Numbers in the names of each container's children that end in one, by the container's path and the rest of the name."""
    numbers_by_name: dict[tuple[str, str], set[int]] = {}
    for module_path in {op.module_path for op in trace.ops} | {name for name, _ in trace.parameters}:
        parts = module_path.split(".")
        for i, part in enumerate(parts):
            stem, number = _split(part)
            if number is not None:
                numbers_by_name.setdefault((".".join(parts[:i]), stem), set()).add(number)
    return {names: frozenset(numbers) for names, numbers in numbers_by_name.items()}


def _children(trace: StepTrace) -> dict[str, frozenset[int]]:
    """Numbered children of each container, by the container's path."""
    return numbered_children([*(op.module_path for op in trace.ops), *(name for name, _ in trace.parameters)])


# -- equal addends, grouped -------------------------------------------------------------------------------------------
# Equal addends of all traces, grouped: the amount of one instance, and their number as a function of depth.


@dataclass(frozen=True, slots=True)
class Group:
    """Equal addends of one quantity: same module path (loop indices as ``*``), rule, label, amount and part of the model.

    ``each`` is the amount of one, ``times`` their number (a polynomial in the trip counts). ``uses``: as what operators
    save a tensor for their backwards. ``work``: what of an operator; none of a tensor.
    """

    quantity: str
    module_path: str
    rule: str
    label: AddendLabel
    factors: tuple[Any, ...]
    each: Poly
    times: Poly
    unit: Unit
    part: str = ""
    uses: tuple[SavedAs, ...] = ()
    work: WorkKind | None = None

    @property
    def total(self) -> Poly:
        return self.each * self.times


def group(runs: Sequence[Sequence[CountedAddend]], module_paths: LoopIndices, interpolate: Interpolation, unit: Poly) -> list[Group]:
    """Groups of the entries of several traces, in the order of the first trace that has them."""
    counts: dict[Any, list[int]] = {}
    samples: dict[Any, CountedAddend] = {}
    uses: dict[Any, dict[SavedAs, None]] = {}
    for i, entries in enumerate(runs):
        for entry in entries:
            part = module_paths.general(entry.part)
            key = (entry.quantity, module_paths.general(entry.module_path), entry.rule, entry.label, part, entry.count)
            if key not in counts:
                counts[key] = [0] * len(runs)
                samples[key] = entry
            counts[key][i] += 1
            if entry.uses:
                uses.setdefault(key, {}).update(dict.fromkeys(entry.uses))
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
            tuple(uses.get(key, ())),
            samples[key].work,
        )
        for key, number in counts.items()
    ]


def without_parts(groups: Iterable[Group]) -> list[Group]:
    """The groups of equal addends of whichever part."""
    joined: dict[Any, Group] = {}
    for g in groups:
        key = (g.quantity, g.module_path, g.rule, g.label, g.each)
        first = joined.get(key)
        uses = tuple(dict.fromkeys((*(first.uses if first else ()), *g.uses)))
        joined[key] = replace(first or g, times=first.times + g.times if first else g.times, part="", uses=uses)
    return [*joined.values()]


_Key = TypeVar("_Key", str, AddendLabel)


def by(name: Callable[[Group], _Key], groups: Sequence[Group]) -> dict[_Key, list[Group]]:
    """The groups of each ``name``: part of the model, quantity, module path or label, in order."""
    named: dict[_Key, list[Group]] = {}
    for g in groups:
        named.setdefault(name(g), []).append(g)
    return named


def staged(groups: Sequence[Group]) -> list[Group]:
    """The groups with the modules of a numbered container as one part: ``layer1`` for ``layer1.0.conv1`` beside ``layer2.0.conv1``, and
    ``stages.0`` for ``stages.0.conv1`` where there is one such container."""
    stages = {g.part: g.part.split(".") for g in groups}
    numbers = {part: i for part, path in stages.items() for i, name in reversed([*enumerate(path)]) if name.isdigit()}
    several = len({tuple(stages[part][:i]) for part, i in numbers.items()}) > 1
    names = {part: ".".join(stages[part][: i or 1] if several else stages[part][: i + 1]) for part, i in numbers.items()}
    return [replace(g, part=names.get(g.part, g.part)) for g in groups]


def total(groups: Sequence[Group], zero: Poly) -> Poly:
    """Sum over the groups of one quantity."""
    result = zero
    for g in groups:
        result = result + g.total
    return result


def by_addend(groups: Sequence[Group]) -> list[Group]:
    """One group for each module path and kind of addend, whose total is theirs together."""
    joined: dict[tuple[str, AddendLabel], Group] = {}
    for g in groups:
        first = joined.get((g.module_path, g.label))
        joined[g.module_path, g.label] = g if first is None else replace(first, each=first.total + g.total, times=g.times**0)
    return [*joined.values()]

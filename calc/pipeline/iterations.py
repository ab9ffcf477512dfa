"""Iterations beyond the traced ones: one forward with as many as requested shows whether they run the same operators.

A model of 3 and of 4 layers is traced, one of 5 and of 6 certified. Where every eighth layer is another one, all of these agree with
closed forms that are wrong for 24 layers. A forward takes a fraction of the time of a trace; where it is not what fewer iterations say, the
closed forms are certified with that many iterations. Torch-free at load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import prod

from calc.errors import NapkinError
from calc.graph import trip_counts
from calc.graph.step import Graph
from calc.pipeline.cache import Cache
from calc.spec import Spec

# A longer forward might take longer than all traces: of such a loop, over positions, fewer iterations are run.
_MOST_OPERATORS = 20_000


class Iterations:
    """Up to which numbers of iterations the closed forms of a graph hold. What forwards have shown is kept, also on disk."""

    def __init__(self, store: Callable[[str], Cache]) -> None:
        self._store = store
        self._alike: dict[str, int] = {}
        self._affordable: dict[str, int] = {}

    def are_alike(self, spec: Spec, graph: Graph, sizes: Mapping[str, int]) -> bool:
        """Whether the closed forms hold with as many iterations as at ``sizes``."""
        return self.unlike(spec, graph, sizes) is None

    def unlike(self, spec: Spec, graph: Graph, sizes: Mapping[str, int]) -> dict[str, int] | None:
        """Values of the basis symbols at which the forward is not what the traced numbers of iterations say, with no more iterations than
        at ``sizes``; None if there are none."""
        requested = graph.as_basis().values(sizes)
        for loop in graph.loops:
            certified = max(trace.sizes[loop] for trace in graph.certificates)
            count = min(requested[loop], self._affordable.get(loop, requested[loop]))
            if count > max(certified, self._alike.get(loop, 0)):
                differing = self._unlike(spec, graph, requested, loop)
                if differing:
                    return differing
                self._alike[loop] = count
        return None

    def _unlike(self, spec: Spec, graph: Graph, requested: Mapping[str, int], loop: str) -> dict[str, int]:
        store = self._store(f"iterations {loop} = {requested[loop]}")
        differing = store.read_values()
        if differing is None:
            try:
                differing = self._differing(spec, graph, requested, loop)
            except ModuleNotFoundError:  # without torch, what was traced is believed
                return {}
            store.write_values(differing)
        return differing

    def _differing(self, spec: Spec, graph: Graph, requested: Mapping[str, int], loop: str) -> dict[str, int]:
        """The values of the basis symbols where it differs; empty where it does not."""
        from calc.trace import first_forward

        for at in _values(graph, requested, loop):
            few = sorted({trace.sizes[loop] for trace in graph.traces})
            try:
                made = [first_forward(spec, graph, {**at, loop: count}) for count in few]
                more = (made[-1]["operators"] - made[-2]["operators"]) // (few[-1] - few[-2])
                self._affordable[loop] = few[-1] + (_MOST_OPERATORS - made[-1]["operators"]) // max(more, 1)
                many = {**at, loop: min(at[loop], self._affordable[loop])}
                return {} if first_forward(spec, graph, many) == _continued(few, made, many[loop]) else many
            except NapkinError:  # so many iterations do not go with these other sizes
                continue
        return {}


def _values(graph: Graph, requested: Mapping[str, int], loop: str) -> Iterator[dict[str, int]]:
    """Values of the basis symbols that take the traced path with as many iterations as requested: those of a certificate, whose tensors are
    small, then the requested ones; each with few iterations of the other loops."""
    certified = graph.certificates[-1].sizes
    few = {name: certified[name] for name in graph.loops}
    limits = trip_counts.limits(graph.loops, {dim.name: dim for dim in graph.dims}, graph.basis)
    for values in (certified, requested):
        at = {**values, **few, loop: requested[loop]}
        at |= {bound: max(at[bound], at[name]) for name, bound in limits.items() if bound in at}
        if all(guard.holds_at(at) for guard in graph.guards if not guard.opaque):
            yield at


def _continued(counts: Sequence[int], made: Sequence[Mapping[str, int]], count: int) -> dict[str, int]:
    """The polynomials through what was ``made`` at ``counts``, at another ``count``; without those that are 0 there."""
    weights = [prod((Fraction(count - other, own - other) for other in counts if other != own), start=Fraction(1)) for own in counts]
    names = {name for each in made for name in each}
    continued = {name: sum(weight * each.get(name, 0) for weight, each in zip(weights, made, strict=True)) for name in names}
    return {name: int(value) for name, value in continued.items() if value}

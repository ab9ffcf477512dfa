"""Iterations beyond the traced ones: one forward with as many as requested shows whether they run the same operators.

A model of 3 and of 4 layers is traced, one of 5 and of 6 certified. Where every eighth layer is another one, all of these agree with
closed forms that are wrong for 24 layers. A forward takes a fraction of the time of a trace; where it is not what fewer iterations say, the
closed forms are certified with that many iterations. Torch-free at load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from calc.errors import NapkinError
from calc.graph import trip_counts
from calc.graph.plan import Unlike
from calc.graph.step import Graph
from calc.pipeline.cache import Cache, Forward
from calc.pipeline.patterns import period_in
from calc.spec import Spec

# Operators of the longest forward that is run: a longer one, of a loop over positions, might take longer than all traces.
_MOST_OPERATORS = 12_000
# The same where a derivation is evaluated at other sizes than its own, which takes no time otherwise.
_MOST_ELSEWHERE = 4_000
# Further forwards with a size that is read as a number of iterations: bytes are no line in it, but at most a cubic polynomial.
_FURTHER = 2
_BYTES = frozenset(("bytes", "bytes_alive"))


class Iterations:
    """Up to which numbers of iterations the closed forms of a graph hold. What forwards have shown is kept, also on disk."""

    def __init__(self, store: Callable[[str], Cache], case: str) -> None:
        self._store, self._case = store, case
        self._alike: dict[str, int] = {}
        self._few: dict[str, _Few] = {}

    def are_alike(self, spec: Spec, graph: Graph, sizes: Mapping[str, int]) -> bool:
        """Whether the closed forms hold with as many iterations as at ``sizes``, which are others than those that they were derived for."""
        return self.unlike(spec, graph, sizes, _MOST_ELSEWHERE) is None

    def unlike(self, spec: Spec, graph: Graph, sizes: Mapping[str, int], most: int = _MOST_OPERATORS) -> Unlike | None:
        """Where the forward is not what the traced numbers of iterations say, with no more iterations than at ``sizes``; None if it is.
        The forward has ``most`` operators or fewer."""
        basis = graph.as_basis()
        requested = basis.values(sizes)
        for loop in graph.loops:
            certified = max(trace.sizes[loop] for trace in graph.certificates)
            count = self._affordable(loop, requested[loop], most)
            if count > max(certified, self._alike.get(loop, 0)):
                forward = self._forward(spec, graph, {**requested, loop: count}, loop, most)
                if not forward.alike:
                    return Unlike(forward.at, {basis.dimension(loop): forward.period} if forward.period else {})
                self._alike[loop] = forward.at[loop]
        return None

    def _affordable(self, loop: str, count: int, most: int) -> int:
        return count if loop not in self._few else min(count, self._few[loop].affordable(most))

    def _forward(self, spec: Spec, graph: Graph, requested: Mapping[str, int], loop: str, most: int) -> Forward:
        store = self._store(f"{self._case} iterations {loop} = {requested[loop]}, {most}")
        forward = store.read_forward()
        if forward is None:
            try:
                forward = self._run(spec, graph, requested, loop, most)
            except ModuleNotFoundError:  # without torch, what was traced is believed
                return Forward(requested, alike=True)
            store.write_forward(forward)
        return forward

    def _run(self, spec: Spec, graph: Graph, requested: Mapping[str, int], loop: str, most: int) -> Forward:
        """The forward with as many iterations as requested, or with those that ``most`` operators suffice for."""
        from calc.trace import first_forward

        counts = sorted({trace.sizes[loop] for trace in graph.traces})
        for at in _values(graph, requested, loop):
            try:
                few = self._few[loop] = _made(spec, graph, at, loop, counts)
                many = {**at, loop: min(at[loop], few.affordable(most))}
                forward = first_forward(spec, graph, many)
                unlike = _unlike(forward.made, few.continued(many[loop]))
                if unlike and unlike <= _BYTES:  # the number of iterations is a size as well
                    more = _made(spec, graph, at, loop, [*counts, *range(counts[-1] + 1, counts[-1] + 1 + _FURTHER)])
                    unlike = _unlike(forward.made, more.continued(many[loop]))
                alike, basis = not unlike, graph.as_basis()
                return Forward(many, alike, None if alike else period_in(forward.ops, basis.sizes(many)[basis.dimension(loop)]))
            except NapkinError:  # so many iterations do not go with these other sizes
                continue
        return Forward(requested, alike=True)


@dataclass(frozen=True, slots=True)
class _Few:
    """What forwards with the traced ``counts`` of iterations ``made``."""

    counts: Sequence[int]
    made: Sequence[Mapping[str, int]]

    def affordable(self, operators: int) -> int:
        """The number of iterations with about so many operators."""
        before, last = (each["operators"] for each in self.made[-2:])
        more = (last - before) // (self.counts[-1] - self.counts[-2])
        return self.counts[-1] + (operators - last) // max(more, 1)

    def continued(self, count: int) -> dict[str, int]:
        """The polynomials through what was made, at another ``count``; without those that are 0 there."""
        from calc.derive.loops import polynomial_at

        names = {name for each in self.made for name in each}
        continued = {name: polynomial_at(count, self.counts, [each.get(name, 0) for each in self.made]) for name in names}
        return {name: value for name, value in continued.items() if value}


def _unlike(made: Mapping[str, int], continued: Mapping[str, int]) -> set[str]:
    """What a forward makes more or less of than was ``continued``."""
    return {name for name in made.keys() | continued.keys() if made.get(name, 0) != continued.get(name, 0)}


def _made(spec: Spec, graph: Graph, at: Mapping[str, int], loop: str, counts: Sequence[int]) -> _Few:
    """What forwards ``at`` these values make, with each of the ``counts`` of iterations of the ``loop``."""
    from calc.trace import first_forward

    return _Few(counts, [first_forward(spec, graph, {**at, loop: count}).made for count in counts])


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

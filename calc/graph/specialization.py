"""Sizes at which a step may run otherwise than recorded: a batch of 1, few turns of a loop, sizes that happen to be equal.

A graph keeps every question that its step asked about sizes. Here is which sizes to try, and which dimensions to fix, or to leave as
numbers, where an answer comes out otherwise. Torch-free.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from calc.dimensions import evaluate, names_in
from calc.graph.step import Graph, Guard
from calc.graph.trip_counts import fewest
from calc.spec import Spec


def trip_counts_to_specialize(spec: Spec, graph: Graph, values: Mapping[str, int]) -> dict[str, str]:
    """Loop counts that may stay numbers, and do at ``values``: there the step branches otherwise than at the few turns recorded."""
    why: dict[str, str] = {}
    sizes, few = graph.as_basis().values(values), {name: fewest(_counts(graph), name) for name in graph.pins}
    for guard in graph.failed_guards(values):
        names = [n for n in names_in(guard.expr) if n in spec.walked and n in few and values[n] >= few[n]]
        names = [n for n in names if guard.holds_at({**sizes, n: few[n]})]  # else it is other sizes that it comes out otherwise by
        why |= dict.fromkeys(names, f"{guard.expr} is asked at {guard.where}, and comes out otherwise for the few turns recorded")
    return why


def _counts(graph: Graph) -> list[Mapping[str, int]]:
    return [trace.sizes for trace in graph.traces]


_ALIKE = 6


def degenerate(graph: Graph) -> list[dict[str, int]]:
    """Sizes at which conditions may come out otherwise than recorded: few turns of a loop, a batch of 1, all sizes alike, one element
    chosen by each mask."""
    counts = {name: fewest(_counts(graph), name) for name in graph.loops}
    certified = {**graph.certificates[0].sizes, **counts}  # no more turns than a closed form needs: each is recorded
    most = max(counts.values(), default=0)
    few_turns = [{**certified, **dict.fromkeys(graph.loops, few)} for few in range(most - 1, 0, -1)]
    batch_of_one = {**certified, **({"B": 1} if "B" in graph.symbols else {})}
    alike = {**certified, **{name: _ALIKE for name in graph.symbols if name not in graph.loops}}
    chosen = [name for name in graph.as_basis().unbacked if name in graph.symbols and name not in graph.loops]
    one_chosen = [{**certified, **dict.fromkeys(chosen, 1)}] if chosen else []
    return [_within_bounds(graph, at) for at in (*few_turns, batch_of_one, alike, *one_chosen)]


def certificates_may_answer(graph: Graph, sizes: Mapping[str, int]) -> bool:
    """Whether certificates at degenerate sizes can answer all that the graph is not known to do at ``sizes`` of its dimensions."""
    special = graph.special_case_at(sizes)
    if special is not None:
        return certificates_may_answer(special.graph, sizes)
    if any(sizes[name] != value for name, (value, _) in graph.specialized.items()):
        return False
    requested, tried = graph.as_basis().values(sizes), degenerate(graph)
    return all(any(guard.answered_by(at, requested) for at in tried) for guard in graph.failed_guards(sizes))


def _within_bounds(graph: Graph, at: Mapping[str, int]) -> dict[str, int]:
    """Sizes of which none that data decide is more than what it is chosen from."""
    sizes = graph.as_basis().sizes(at)
    most = {d.name: int(evaluate(d.at_most, sizes)) for d in graph.dims if d.unbacked_at and d.at_most}
    return {name: min(value, most.get(name, value)) for name, value in at.items()}


def requested_values(graph: Graph, values: Mapping[str, int]) -> list[dict[str, int]]:
    """The very sizes asked for, with no more turns of a loop than were recorded at least; and first, if there are fewer, with as many: few
    turns may be a case of their own where the other sizes are none. What is read as a number and counts no turns is what is asked for."""
    requested = graph.as_basis().values(values)
    widths = {name for c in graph.guards if c.opaque for name in names_in(c.expr)}
    loops = [name for name in graph.loops if name not in widths]
    deep = {**requested, **{name: fewest(_counts(graph), name) for name in loops}}
    few = {**requested, **{name: min(requested[name], deep[name]) for name in loops}}
    return [few] if few == deep else [deep, few]


def without_ones(graph: Graph, values: Mapping[str, int]) -> list[dict[str, int]]:
    """The sizes asked for with another number for each that is 1, where those were tried in vain: what else they have of their own (a
    vocabulary beyond the number of a token) then stands for every batch."""
    at = requested_values(graph, values)[0]
    ones = [name for name, value in at.items() if value == 1 and name not in graph.loops]
    if not ones or not graph.failed_guards(values):
        return []
    others = (number for number in itertools.count(2) if number not in at.values())
    return [{**at, **dict(zip(ones, others, strict=False))}]


def partly_answering(graph: Graph, values: Mapping[str, int]) -> list[dict[str, int]]:
    """Of the degenerate sizes, those that may tell some of what the graph is not known to do at ``values``, where it was tried in vain:
    of several conditions each may stand alone where they do not together."""
    failed, requested = graph.failed_guards(values), graph.as_basis().values(values)
    if len(failed) < 2:
        return []
    return [at for at in degenerate(graph) if 0 < sum(guard.answered_by(at, requested) for guard in failed) < len(failed)]


def with_requested_comparisons(graph: Graph, values: Mapping[str, int], names: Collection[str]) -> list[dict[str, int]]:
    """Degenerate sizes of another kind, which tell whether anything hangs on what the basis symbols ``names`` are compared with: those of a
    certificate, but for these symbols, which are as asked for."""
    requested = graph.as_basis().values(values)
    turns = {name: fewest(_counts(graph), name) for name in graph.loops}
    return [{**graph.certificates[0].sizes, **turns, **{name: requested[name] for name in names if requested[name] > 1}}]


def _is_failed(graph: Graph, loop: str, values: Mapping[str, int], turns: int) -> bool:
    return any(c.expr == f"{loop} != {turns}" for c in graph.failed_guards(values))


def special_case_candidates(graph: Graph, values: Mapping[str, int], changed: Sequence[Guard]) -> list[dict[str, str]]:
    """Dimensions to fix for sizes at which the step runs otherwise: few turns of a loop, sizes of 1, equal ones. First only those
    that the ``changed`` conditions are about, then all; at last few turns that are no case of their own with other sizes than these."""
    basis = graph.as_basis()
    turns = basis.values(values)
    shallow = [name for name in graph.loops if turns[name] < fewest(_counts(graph), name)]
    failed = [name for name in shallow if _is_failed(graph, name, values, turns[name])]
    few, fewer = (dict(_fixed(graph, basis.dimension(name), turns[name], values) for name in names) for names in (failed, shallow))
    compared = {name for guard in changed for name in names_in(guard.expr)}
    about = [name for name, text in graph.basis.items() if compared & set(names_in(text))]
    some, all_ = (few | _equal_sizes(graph, values, names) for names in (about, list(values)))
    attempts = [some | _products(graph, values, changed, some), some, all_, fewer | all_]
    return [attempt for i, attempt in enumerate(attempts) if attempt not in attempts[:i]]


def _fixed(graph: Graph, name: str, turns: int, values: Mapping[str, int]) -> tuple[str, str]:
    """A dimension of few turns with what it is: so many times another, where it is a multiple of that."""
    part = next(dim.multiple_of for dim in graph.dims if dim.name == name)
    if isinstance(part, str) and values[name] == turns * values[part]:
        return name, part if turns == 1 else f"{turns}*{part}"
    return name, str(values[name])


def _products(graph: Graph, values: Mapping[str, int], changed: Sequence[Guard], fixed: Mapping[str, str]) -> dict[str, str]:
    """Dimensions that are a product of two others at ``values`` because a default says so (``k`` is ``d/h``, so ``d`` is ``h*k``), where
    a ``changed`` condition compares the two sides."""
    products: dict[str, str] = {}
    free = {dim.name for dim in graph.dims if not dim.tied} - fixed.keys()
    for dim in graph.dims:
        whole, sign, part = (dim.expr or "").replace(" ", "").partition("/")
        if not sign or not {dim.name, whole, part} <= free or values[whole] != values[part] * values[dim.name]:
            continue
        sides = {name for side in (dim.name, whole, part) for name in names_in(graph.basis[side])}
        if graph.basis[whole] == whole and any(sides <= set(names_in(c.expr)) for c in changed):
            products[whole] = f"{part}*{dim.name}"
    return products


def _equal_sizes(graph: Graph, values: Mapping[str, int], names: Sequence[str]) -> dict[str, str]:
    """Of ``names``, those that are 1, equal to an earlier one, or just the number that they are multiples of, and what they equal."""
    tied = {dim.name for dim in graph.dims if dim.tied}
    parts = {dim.name: dim.multiple_of for dim in graph.dims if isinstance(dim.multiple_of, int) and not dim.plus}
    whole = {dim.name: dim.multiple_of for dim in graph.dims}
    first: dict[int, str] = {1: "1"}
    equal_to: dict[str, str] = {}
    for name in values:
        turns = set(names_in(graph.basis[name])) & set(graph.loops)
        if name not in names or name in tied or turns:
            continue
        to = str(values[name]) if values[name] == parts.get(name) else _end(equal_to, first.setdefault(values[name], name))
        if to != name:
            equal_to |= {to: name} if _leads(whole, equal_to, name, to) else {name: to}
    return equal_to


def _leads(whole: Mapping[str, int | str | None], equal_to: Mapping[str, str], name: str, to: str) -> bool:
    """Whether, of two equal dimensions, the earlier one is to be tied to the later: a multiple is tied to its part, once which it is;
    and what is no multiple to what is one of a third."""
    if name in (_end(equal_to, part) for part in _divisors(whole, to)):
        return True
    third = isinstance(whole.get(name), str) and to in whole and not isinstance(whole[to], str)
    return third and to not in (_end(equal_to, part) for part in _divisors(whole, name))


def _end(equal_to: Mapping[str, str], name: str) -> str:
    """What a dimension equals in the end."""
    while name in equal_to:
        name = equal_to[name]
    return name


def _divisors(whole: Mapping[str, int | str | None], name: str) -> list[str]:
    """The dimensions that one is a multiple of, that those are multiples of, and so on."""
    divisors: list[str] = []
    part = whole.get(name)
    while isinstance(part, str) and part not in divisors:
        divisors.append(part)
        part = whole.get(part)
    return divisors


def dimensions_to_specialize(spec: Spec, graph: Graph, changed: Sequence[Guard], values: Mapping[str, int]) -> dict[str, str]:
    """Dimensions to leave as numbers where no symbol has the property that was asked for (a product that is even): the fewest of those
    that may give way such that each ``changed`` condition is about one by whose size it comes out otherwise, beside those that did
    already. Nothing where that brings no more."""
    may = {name for names in spec.gives_way for name in names} - graph.specialized.keys()
    about = {name: {*names_in(text)} & {*graph.symbols} for name, text in graph.basis.items() if name in may}
    requested, usual = graph.as_basis().values(values), graph.certificates[0].sizes
    left = [c for c in changed if any(symbols & {*names_in(c.expr)} for symbols in about.values())]

    def by(guard: Guard, symbols: Collection[str]) -> bool:
        """Whether a condition comes out as recorded once these symbols are as usual, the others as asked for."""
        return not guard.opaque and guard.holds_at({**requested, **{s: usual[s] for s in symbols if s in usual}})

    others = [{name} for name in graph.symbols if not any(name in symbols for symbols in about.values())]
    left = [c for c in left if not any(by(c, single) for single in others)] or left  # a batch of one is no reason to fix what it multiplies
    why: dict[str, str] = {}
    while left:
        blamed = {name: [c for c in left if by(c, symbols & {*names_in(c.expr)})] for name, symbols in about.items()}
        name = max(blamed, key=lambda name: len(blamed[name]))
        if not blamed[name]:
            why |= {n: _specialization_reason(c) for c in left for n, symbols in about.items() if symbols & {*names_in(c.expr)}}
            break
        why[name] = _specialization_reason(blamed[name][0])
        left = [c for c in left if c not in blamed[name]]
    return {**{name: why for name, (_, why) in graph.specialized.items()}, **why} if why else {}


def _specialization_reason(c: Guard) -> str:
    return f"the step goes by its number, at {c.where}" if c.opaque else f"{c.expr} is {not c.outcome} there, asked at {c.where}"

"""Size specialization: sizes at which a step may run other operators than in the trace: a batch of 1, few layers, equal sizes.

The guards of a graph determine these sizes. The functions here choose the sizes of certificates, the dimensions that a special case fixes,
and the dimensions to specialize where a guard fails. Torch-free.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from calc.dimensions import evaluate, ordered_names, quotient
from calc.graph.step import Graph, Guard
from calc.graph.trip_counts import fewest
from calc.spec import Spec


def trip_counts_to_specialize(spec: Spec, graph: Graph, values: Mapping[str, int]) -> dict[str, str]:
    """Trip counts to specialize at ``values``, by name with the reason: a guard fails there that holds at the few iterations traced."""
    why: dict[str, str] = {}
    sizes, few = graph.as_basis().values(values), {name: fewest(_counts(graph), name) for name in graph.trip_count_reads}
    for guard in graph.failed_guards(values):
        names = [n for n in ordered_names(guard.expr) if n in spec.may_unroll and n in few and values[n] >= few[n]]
        names = [n for n in names if guard.holds_at({**sizes, n: few[n]})]  # else the guard fails because of other sizes
        why |= dict.fromkeys(names, f"{guard.expr}, evaluated at {guard.where}, has another outcome at the few iterations traced")
    return why


def _counts(graph: Graph) -> list[Mapping[str, int]]:
    return [trace.sizes for trace in graph.traces]


_ALIKE = 6


def degenerate(graph: Graph) -> list[dict[str, int]]:
    """Values of the basis symbols at which guards may fail: few iterations of a loop, a batch of 1, all sizes equal, one element chosen
    by each mask."""
    counts = {name: fewest(_counts(graph), name) for name in graph.loops}
    certified = {**graph.certificates[0].sizes, **counts}  # no more iterations than a closed form needs, since each is traced
    most = max(counts.values(), default=0)
    few_iterations = [{**certified, **dict.fromkeys(graph.loops, few)} for few in range(most - 1, 0, -1)]
    batch_of_one = {**certified, **({"B": 1} if "B" in graph.symbols else {})}
    alike = {**certified, **{name: _ALIKE for name in graph.symbols if name not in graph.loops}}
    chosen = [name for name in graph.as_basis().unbacked if name in graph.symbols and name not in graph.loops]
    one_chosen = [{**certified, **dict.fromkeys(chosen, 1)}] if chosen else []
    return [_within_bounds(graph, at) for at in (*few_iterations, batch_of_one, alike, *one_chosen)]


def certificates_may_answer(graph: Graph, sizes: Mapping[str, int]) -> bool:
    """Whether certificates at degenerate sizes can cover every guard that fails at ``sizes`` of the dimensions."""
    special = graph.special_case_at(sizes)
    if special is not None:
        return certificates_may_answer(special.graph, sizes)
    if any(sizes[name] != value for name, (value, _) in graph.specialized.items()):
        return False
    requested, tried = graph.as_basis().values(sizes), degenerate(graph)
    return all(any(guard.answered_by(at, requested) for at in tried) for guard in graph.failed_guards(sizes))


def _within_bounds(graph: Graph, at: Mapping[str, int]) -> dict[str, int]:
    """Values of the basis symbols at which no unbacked size exceeds its bound."""
    sizes = graph.as_basis().sizes(at)
    most = {d.name: int(evaluate(d.at_most, sizes)) for d in graph.dims if d.unbacked_at and d.at_most}
    return {name: min(value, most.get(name, value)) for name, value in at.items()}


def requested_values(graph: Graph, values: Mapping[str, int]) -> list[dict[str, int]]:
    """The requested values, with at most the fewest traced iterations of each loop. If fewer are requested, values with exactly the fewest
    traced come first: few iterations may be a special case where the other sizes are none. A size that is read as a number but is no
    trip count keeps its requested value."""
    requested = graph.as_basis().values(values)
    widths = {name for c in graph.guards if c.opaque for name in ordered_names(c.expr)}
    loops = [name for name in graph.loops if name not in widths]
    deep = {**requested, **{name: fewest(_counts(graph), name) for name in loops}}
    few = {**requested, **{name: min(requested[name], deep[name]) for name in loops}}
    return [few] if few == deep else [deep, few]


def without_ones(graph: Graph, values: Mapping[str, int]) -> list[dict[str, int]]:
    """The requested values with another number in place of each 1, for use where the requested ones did not suffice: the other guards that
    fail there (a vocabulary larger than a token id) are then certified for every batch."""
    at = requested_values(graph, values)[0]
    ones = [name for name, value in at.items() if value == 1 and name not in graph.loops]
    if not ones or not graph.failed_guards(values):
        return []
    numbers = (number for number in itertools.count(2) if number not in at.values())
    return [{**at, **dict(zip(ones, numbers, strict=False))}]


def partly_answering(graph: Graph, values: Mapping[str, int]) -> list[dict[str, int]]:
    """The degenerate sizes that cover some but not all of the guards that fail at ``values``: the failures may be independent."""
    failed, requested = graph.failed_guards(values), graph.as_basis().values(values)
    if len(failed) < 2:
        return []
    return [at for at in degenerate(graph) if 0 < sum(guard.answered_by(at, requested) for guard in failed) < len(failed)]


def with_requested_comparisons(
    graph: Graph, values: Mapping[str, int], names: Collection[str], certified: Mapping[str, int]
) -> dict[str, int]:
    """The values of a ``certified`` trace with the requested ones for the basis symbols ``names``: they show whether a quantity depends on
    the numbers that these symbols are compared with."""
    requested = graph.as_basis().values(values)
    trip_count = {name: fewest(_counts(graph), name) for name in graph.loops}
    return {**certified, **trip_count, **{name: requested[name] for name in names if requested[name] > 1}}


def _is_failed(graph: Graph, loop: str, values: Mapping[str, int], trip_count: int) -> bool:
    return any(c.expr == f"{loop} != {trip_count}" for c in graph.failed_guards(values))


def special_case_candidates(graph: Graph, values: Mapping[str, int], changed: Sequence[Guard]) -> list[dict[str, str]]:
    """Candidates for a special case that covers ``values``, each as dimension → what it equals: few iterations, sizes of 1, equal sizes, a
    product or a sum of two others. Those with dimensions of the ``changed`` guards only come first, then those with all; last, few
    iterations that are no special case at other sizes."""
    basis = graph.as_basis()
    trip_count = basis.values(values)
    shallow = [name for name in graph.loops if trip_count[name] < fewest(_counts(graph), name)]
    failed = [name for name in shallow if _is_failed(graph, name, values, trip_count[name])]
    few, fewer = (dict(_fixed(graph, basis.dimension(name), trip_count[name], values) for name in names) for names in (failed, shallow))
    compared = {name for guard in changed for name in ordered_names(guard.expr)}
    about = [name for name, text in graph.basis.items() if compared & set(ordered_names(text))]
    few_equal, all_equal = (
        few | _least_multiples(graph, values, names) | _equal_sizes(graph, values, names) for names in (about, list(values))
    )
    products, sums = _products(graph, values, changed, few_equal), _sums(graph, values, changed, few_equal)
    added = {name for text in sums.values() for name in ordered_names(text)}  # equal or not, their sum is what the guard is about
    unequal = {name: text for name, text in few_equal.items() if name not in added}
    attempts = [unequal | products | sums, few_equal | products, few_equal, all_equal, fewer | all_equal]
    return [attempt for i, attempt in enumerate(attempts) if attempt not in attempts[:i]]


def _fixed(graph: Graph, name: str, trip_count: int, values: Mapping[str, int]) -> tuple[str, str]:
    """A trip count with what it equals: a multiple of another dimension, where it is divisible by that; else its value."""
    part = next(dim.multiple_of for dim in graph.dims if dim.name == name)
    if isinstance(part, str) and values[name] == trip_count * values[part]:
        return name, part if trip_count == 1 else f"{trip_count}*{part}"
    return name, str(values[name])


def _products(graph: Graph, values: Mapping[str, int], changed: Sequence[Guard], fixed: Mapping[str, str]) -> dict[str, str]:
    """Dimensions that equal a product of two others at ``values`` by a default (``k`` is ``d/h``, so ``d`` is ``h*k``), where a ``changed``
    guard compares the two sides."""
    products: dict[str, str] = {}
    free = {dim.name for dim in graph.dims if not dim.tied} - fixed.keys()
    for dim in graph.dims:
        dividend, part = quotient(dim.expr) or ("", "")
        if not {dim.name, dividend, part} <= free or values[dividend] != values[part] * values[dim.name]:
            continue
        sides = {name for side in (dim.name, dividend, part) for name in ordered_names(graph.basis[side])}
        if graph.basis[dividend] == dividend and any(sides <= set(ordered_names(c.expr)) for c in changed):
            products[dividend] = f"{part}*{dim.name}"
    return products


def _sums(graph: Graph, values: Mapping[str, int], changed: Sequence[Guard], fixed: Mapping[str, str]) -> dict[str, str]:
    """Dimensions that equal the sum of two others at ``values``, where a ``changed`` guard is about these three: the width of a head's
    values, which may be that of its keys, of which a part is rotated."""
    free = [dim.name for dim in graph.dims if not dim.tied and values[dim.name] > 1]
    symbols = {name: frozenset(ordered_names(graph.basis[name])) for name in free}
    compared = {frozenset(ordered_names(guard.expr)) for guard in changed}
    for one, two in itertools.combinations(free, 2):
        for name in free:
            if name not in fixed and values[name] == values[one] + values[two] and symbols[name] | symbols[one] | symbols[two] in compared:
                return {name: f"{one} + {two}"}
    return {}


def _least_multiples(graph: Graph, values: Mapping[str, int], names: Collection[str]) -> dict[str, str]:
    """Dividends of those quotients among ``names`` that are no larger than they must be: ``h`` is ``2*g`` where ``h/g``, a multiple of 2,
    is 2."""
    free = {dim.name for dim in graph.dims if not dim.tied}
    least: dict[str, str] = {}
    for dim in graph.dims:
        dividend, part = quotient(dim.expr) or ("", "")
        if dim.tied and dim.name in names and {dividend, part} <= free and values[dim.name] == dim.multiple_of != 1 and not dim.plus:
            least[dividend] = f"{dim.multiple_of}*{part}"
    return least


def _equal_sizes(graph: Graph, values: Mapping[str, int], names: Sequence[str]) -> dict[str, str]:
    """Of ``names``, the dimensions that are 1, equal to an earlier one, or equal to their ``multiple_of``; and what they equal."""
    tied = {dim.name for dim in graph.dims if dim.tied}
    parts = {dim.name: dim.multiple_of for dim in graph.dims if isinstance(dim.multiple_of, int) and not dim.plus}
    multiples = {dim.name: dim.multiple_of for dim in graph.dims}
    first: dict[int, str] = {1: "1"}
    equal_to: dict[str, str] = {}
    for name in values:
        loops = set(ordered_names(graph.basis[name])) & set(graph.loops)
        if name not in names or name in tied or loops:
            continue
        to = str(values[name]) if values[name] == parts.get(name) else _end(equal_to, first.setdefault(values[name], name))
        if to != name:
            equal_to |= {to: name} if _leads(multiples, equal_to, name, to) else {name: to}
    return equal_to


def _leads(multiples: Mapping[str, int | str | None], equal_to: Mapping[str, str], name: str, to: str) -> bool:
    """Whether, of two equal dimensions, the earlier one is tied to the later: a dimension is tied to its divisor, and one that is no
    multiple to one that is a multiple of a third."""
    if name in (_end(equal_to, part) for part in _divisors(multiples, to)):
        return True
    third = isinstance(multiples.get(name), str) and to in multiples and not isinstance(multiples[to], str)
    return third and to not in (_end(equal_to, part) for part in _divisors(multiples, name))


def _end(equal_to: Mapping[str, str], name: str) -> str:
    """The dimension or number at the end of a chain of equalities."""
    while name in equal_to:
        name = equal_to[name]
    return name


def _divisors(multiples: Mapping[str, int | str | None], name: str) -> list[str]:
    """The dimensions that one is a multiple of, that those are multiples of, and so on."""
    divisors: list[str] = []
    part = multiples.get(name)
    while isinstance(part, str) and part not in divisors:
        divisors.append(part)
        part = multiples.get(part)
    return divisors


def dimensions_to_specialize(spec: Spec, graph: Graph, changed: Sequence[Guard], values: Mapping[str, int]) -> dict[str, str]:
    """Dimensions to specialize, with reasons, where no symbol has a required property (a product that is even): the smallest set of
    dimensions that may be specialized such that each ``changed`` guard fails because of one of them, with those specialized already. Of two
    that explain as many, that of fewer basis symbols. Empty where no further dimension helps."""
    may = {name for names in spec.may_specialize for name in names} - graph.specialized.keys()
    about = {name: {*ordered_names(text)} & {*graph.symbols} for name, text in graph.basis.items() if name in may}
    requested, usual = graph.as_basis().values(values), graph.certificates[0].sizes
    unexplained = [c for c in changed if any(symbols & {*ordered_names(c.expr)} for symbols in about.values())]

    def by(guard: Guard, symbols: Collection[str]) -> bool:
        """Whether the guard holds with the certified values of these symbols and the requested values of the others."""
        return not guard.opaque and guard.holds_at({**requested, **{s: usual[s] for s in symbols if s in usual}})

    singles = [{name} for name in graph.symbols if not any(name in symbols for symbols in about.values())]
    unexplained = [
        c for c in unexplained if not any(by(c, single) for single in singles)
    ] or unexplained  # a batch of one is no reason to fix what it multiplies
    why: dict[str, str] = {}
    while unexplained:
        blamed = {name: [c for c in unexplained if by(c, symbols & {*ordered_names(c.expr)})] for name, symbols in about.items()}
        name = max(blamed, key=lambda name: (len(blamed[name]), -len(about[name])))
        if not blamed[name]:
            why |= {n: _specialization_reason(c) for c in unexplained for n in _narrowest(about, {*ordered_names(c.expr)})}
            break
        why[name] = _specialization_reason(blamed[name][0])
        unexplained = [c for c in unexplained if c not in blamed[name]]
    return {**{name: why for name, (_, why) in graph.specialized.items()}, **why} if why else {}


def _narrowest(about: Mapping[str, set[str]], symbols: set[str]) -> list[str]:
    """Of dimensions, each with its basis symbols, those in ``symbols`` alone; if there are none, those with any of ``symbols``."""
    alone = [name for name, own in about.items() if own and own <= symbols]
    return alone or [name for name, own in about.items() if own & symbols]


def _specialization_reason(c: Guard) -> str:
    return f"the step uses its value, at {c.where}" if c.opaque else f"{c.expr} is {not c.outcome} there, evaluated at {c.where}"

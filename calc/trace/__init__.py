"""``nn.Module`` → graph, by symbolic execution of the real training step."""

from __future__ import annotations

import functools
import itertools
import platform
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from calc.dimensions import Dim, meaning_of, names_in
from calc.errors import DividedError, PinnedSizeError, SizesError, TraceError, UndecidedSizeError, line_in
from calc.graph import trip_counts, unbacked_sizes
from calc.graph.exchanges import EXCHANGES
from calc.graph.step import Assumption, Condition, DimRecord, Graph, Record
from calc.options import Options
from calc.platform.torch_private import torch_version
from calc.spec import Spec
from calc.symbolic.basis import Basis, basis_of
from calc.trace import guards
from calc.trace.step import Traced, record_step
from calc.trace.symbolic_sizes import Near, hints, next_composite

Progress = Callable[[str], None]
Recordings = dict[tuple[tuple[str, int], ...], Traced]

# Each loop count doubles the number of recordings.
_MOST_LOOPS = 3
# What a step fails with where one size exceeds another, a loop count.
_MAY_EXCEED = (TraceError, SizesError)
# Sizes up to this are certified at themselves: of larger ones, what depends on sizes and constants alone takes long to evaluate.
_MOST_EVALUATED = 2**18
# No loop is recorded with fewer turns.
_MOST_BOUNDED = 3


def record(
    spec: Spec,
    sizes: Mapping[str, int],
    options: Options,
    attempt: int = 0,
    progress: Progress = lambda _: None,
    equal: Mapping[str, str] | None = None,
    known: Recordings | None = None,
    held: Mapping[str, str] | None = None,
    near: Near | None = None,
) -> Graph:
    """Record the training step of ``spec`` with symbolic sizes; the graph has no certificates yet.

    ``sizes`` are the values of all dimensions (``spec.sizes``): they choose the order of the hints. A dimension that is
    read as a number is taken as a loop count: it is recorded at several, the more the higher ``attempt`` is. ``equal`` fixes
    dimensions to 1 or to another one, for sizes at which the step runs otherwise. ``held`` names dimensions that stay numbers,
    at their value, and says why. ``near`` are symbols to record near the sizes. ``known`` keeps what was recorded for this spec, options
    and ``equal``, so that recording deeper does not record the same again.
    """
    held = {name: why for name, why in (held or {}).items() if name not in (equal or {})}
    basis = basis_of(spec.dimensions, {**{name: str(sizes[name]) for name in held}, **(equal or {})})
    loops = [name for pinned in spec.pinned for name in names_in(basis.define[pinned])]
    pins: dict[str, str] = {}
    known = {} if known is None else known
    while True:
        try:
            runs = _symbolic_runs(spec, basis, sizes, loops, pins, attempt, options, progress, known, near)
            break
        except PinnedSizeError as pin:
            name = basis.dimension(pin.dimension)
            if any(name in names for names in spec.gives_way) and not (pin.counts and name in spec.walked):
                raise PinnedSizeError(name, pin.where, str(pin)) from None
            if pin.dimension in loops or len(loops) == _MOST_LOOPS:
                said = _pinned(spec, pin, basis)
                raise (PinnedSizeError(name, pin.where, said) if pin.divided is None else DividedError(said, pin.divided)) from None
            if options.every > 1 and name not in (*spec.pinned, *spec.walked):
                # It may count the blocks of which only some run again: so many patterns, as any depth is then.
                known_now = replace(spec, pinned=(*spec.pinned, name))
                why = f"{name} is read as a number at {pin.where}: taking it as so many patterns"
                raise unbacked_sizes.Declared(known_now, why) from None
            loops.append(pin.dimension)
            pins[pin.dimension] = pin.where
            progress(f"{basis.hidden.get(pin.dimension, pin.dimension)} is read as a number at {pin.where}: taking it as a loop count")
        except TraceError as error:
            if type(error) in _MAY_EXCEED:
                _require_unbounded(spec, basis, sizes, loops, attempt, options, error)
            raise
    graph = _graph(spec, basis, sizes, loops, attempt, options, runs, pins)
    kept = {name: (sizes[name], why) for name, why in held.items()}
    return replace(graph, held=kept, assumptions=(*graph.assumptions, *_held(held, sizes)))


def answered_otherwise(spec: Spec, graph: Graph, sizes: Mapping[str, int], equal: Mapping[str, str], near: Near | None) -> list[Condition]:
    """Conditions of ``graph`` that a trace of the case where ``equal`` dimensions are 1 or equal would answer otherwise than they come out
    at ``sizes``, by the hints it would have."""
    held = {name: str(sizes[name]) for name in graph.held if name not in equal}
    basis, general = basis_of(spec.dimensions, {**held, **equal}), graph.as_basis()
    loops = [name for name in graph.loops if name in basis.symbols]
    bounded, products = bounded_by(spec.dimensions, loops, basis), _sides(spec.dimensions, graph.options.get("optimizer", ""))
    there = hints(basis, sizes, bounded=bounded, products=products, near=near)
    asked = general.values(sizes)
    at_hints = {**general.values(basis.sizes(there)), **{name: asked[name] for name in graph.loops}}
    return [c for c in graph.conditions if not c.each and c.same_at(at_hints) != c.same_at(asked)]


def divided_in(spec: Spec, graph: Graph, known: Recordings) -> DividedError | None:
    """What to say where the step is no polynomial in the turns of a loop, and a share of these, rounded, was read as a number."""
    read = next((share for run in known.values() for share in run.shares), None)
    return None if read is None else DividedError(_pinned(spec, read, graph.as_basis()), read.divided or ())


def _require_unbounded(
    spec: Spec, basis: Basis, sizes: Mapping[str, int], loops: Sequence[str], attempt: int, options: Options, error: TraceError
) -> None:
    """Start anew where the step fails for no other reason than that a dimension exceeds a loop count, which is small here:
    as a router that chooses more experts than there are."""
    dims = spec.dimensions
    fixed = {name: counts[0] for name, counts in trip_counts.recorded(attempt, loops).items()}
    may = [
        (loop, name)
        for loop, name in itertools.product(loops, basis.symbols)
        if name not in loops and name in dims and loop in dims and not dims[name].at_most and sizes[name] <= sizes[loop]
    ]
    if not may or _records(spec, basis, sizes, fixed, options):
        return  # it is at other counts that it fails
    for loop, name in may:
        declared = unbacked_sizes.with_bound(spec, name, loop)
        try:
            record_step(spec, basis, hints(basis, sizes, bounded={name: _MOST_BOUNDED}), fixed, options)
        except UndecidedSizeError:
            raise declared from None
        except TraceError as again:
            if type(again) in _MAY_EXCEED and _place(again) != _place(error):
                raise declared from None
        else:
            raise declared from None


def _place(error: TraceError) -> str:
    """The line that an error names: the same line says something else for other hints. Of an error without one, what it says."""
    return line_in(str(error)) or str(error)


def _records(spec: Spec, basis: Basis, sizes: Mapping[str, int], fixed: Mapping[str, int], options: Options) -> bool:
    try:
        record_step(spec, basis, hints(basis, sizes), fixed, options)
    except TraceError:
        return False
    return True


def bounded_by(dims: Mapping[str, Any], loops: Sequence[str], basis: Basis) -> dict[str, int]:
    """Dimensions that are at most a loop count, or one that is a number here, each with what it may be at most."""
    found = {}
    for name, dim in dims.items():
        limit = basis.define.get(dim.at_most or "", "")
        if dim.at_most in loops or limit.isdigit():
            found[name] = int(limit) if limit.isdigit() else _MOST_BOUNDED
    return found


def _held(held: Mapping[str, str], sizes: Mapping[str, int]) -> list[Assumption]:
    """What stays a number, together where it does so for one reason."""
    together: dict[str, list[str]] = {}
    for name, why in held.items():
        together.setdefault(why, []).append(f"{name} = {sizes[name]}")
    return [Assumption(f"{', '.join(names)} throughout", f"a number, not a symbol: {why}") for why, names in together.items()]


def _symbolic_runs(
    spec: Spec,
    basis: Basis,
    sizes: Mapping[str, int],
    loops: Sequence[str],
    pins: Mapping[str, str],
    attempt: int,
    options: Options,
    progress: Progress,
    known: Recordings,
    near: Near | None,
) -> list[Traced]:
    bounded, products = bounded_by(spec.dimensions, loops, basis), _sides(spec.dimensions, options.optimizer)
    hint_of = hints(basis, sizes, bounded=bounded, products=products, near=near)
    counts = [dict(zip(loops, each, strict=True)) for each in itertools.product(*trip_counts.recorded(attempt, loops).values())]
    return [_recorded(spec, basis, hint_of, fixed, pins, options, known, progress) for fixed in counts]


def _recorded(
    spec: Spec,
    basis: Basis,
    hint_of: Mapping[str, int],
    fixed: Mapping[str, int],
    pins: Mapping[str, str],
    options: Options,
    known: Recordings,
    progress: Progress,
) -> Traced:
    """The recording with those symbols fixed, made now unless it is known."""
    key = tuple(fixed.items())
    if key not in known:
        at = ", ".join(f"{n} = {v}" for n, v in fixed.items())
        progress(f"recording the step with symbolic sizes{f' at {at}' if at else ''}")
        try:
            rewrites = any(run.rewrites for run in known.values()) if known else True
            like = next((run.repeats for run in known.values()), None)
            known[key] = record_step(spec, basis, hint_of, fixed, options, tuple(pins), rewrites=rewrites, like=like)
        except UndecidedSizeError as found:
            raise unbacked_sizes.with_size(spec, _at_any_count(found, spec, basis, hint_of, fixed, pins, options), basis) from None
    return known[key]


_OTHER_COUNTS = (5, 7, 11)


def _at_any_count(
    found: UndecidedSizeError,
    spec: Spec,
    basis: Basis,
    hint_of: Mapping[str, int],
    fixed: Mapping[str, int],
    pins: Collection[str],
    options: Options,
) -> UndecidedSizeError:
    """``found`` with the loop counts that are numbers in this run told from other numbers, by a run at other counts."""
    if not fixed:
        return found
    others = dict(zip(fixed, _OTHER_COUNTS, strict=False))
    try:
        record_step(spec, basis, hint_of, others, options, tuple(pins))
    except UndecidedSizeError as again:
        if again.place == found.place and len(again.shape) == len(found.shape) and len(again.ways) == len(found.ways):
            shape = tuple(_named(a, b, fixed, others) for a, b in zip(found.shape, again.shape, strict=True))
            ways = tuple(_named(a, b, fixed, others) for a, b in zip(found.ways, again.ways, strict=True))
            if None not in shape and None not in ways:
                return UndecidedSizeError(found.place, found.where, shape, ways, found.share)  # type: ignore[arg-type]  # none is None
    said = f"{found}, and how large it can be depends on {', '.join(fixed)} in no simple way"
    raise PinnedSizeError([*fixed][-1], found.where, said)


def _named(size: int | str, again: int | str, fixed: Mapping[str, int], others: Mapping[str, int]) -> int | str | None:
    """A size that two runs at different loop counts have: the same, or one of the counts; nothing where it is neither."""
    if size == again:
        return size
    return next((name for name in fixed if size == fixed[name] and again == others[name]), None)


# Muon multiplies a matrix from its shorter side, so which of two widths is larger must come out as at the sizes asked for.
_BY_SIDES = ("muon",)


def _sides(dims: Mapping[str, Dim | DimRecord], optimizer: str) -> tuple[str, ...] | None:
    """Widths that are products of dimensions: where a default says that k is d/h, so many heads of that width, of either kind."""
    if optimizer not in _BY_SIDES:
        return None
    found = []
    for name, dim in dims.items():
        text = dim.expr if isinstance(dim, DimRecord) else dim.default
        _, sign, part = str(text or "").replace(" ", "").partition("/")
        while sign and part in dims:
            found.append(f"{part}*{name}")
            part = str(dims[part].multiple_of)
    return tuple(found)


def certificate_sizes(graph: Graph, sizes: Mapping[str, int], attempt: int = 0) -> list[list[dict[str, int]]]:
    """Values of the basis symbols for the certificates of ``graph``: the ``sizes`` themselves, numbers with many divisors, else
    other primes than the hints; further loop counts.

    Each may be made at any of several: where questions come out as recorded at no primes, these may still tell of the other answers.
    If they do not, it is made near the ``sizes``.
    """
    basis = graph.as_basis()
    at = functools.partial(
        hints,
        basis,
        sizes,
        bounded=bounded_by({d.name: d for d in graph.dims}, graph.loops, basis),
        products=_sides({d.name: d for d in graph.dims}, graph.options.get("optimizer", "")),
    )
    found, asked = [], basis.values(sizes)
    for number, counts in enumerate(trip_counts.certified(attempt, graph.loops)):
        # The last is for questions about a number, as whether rows are more than 25.
        shifts = (*(number + 1 + 3 * i for i in range(3)), -2 - number)
        sets = [at(turn=number + 1), *(at(shift=shift) for shift in shifts)]
        if number or max(asked.values(), default=0) <= _MOST_EVALUATED:
            sets = [at(following=next_composite) if number else asked, *sets]
        some = [{**values, **counts} for values in sets]
        some += [_near_to(graph, some[0], sizes, by) for by in (number + 1, -number - 1, 0)]
        nearest = min(some, key=functools.partial(_answered_otherwise, graph))
        found.append([nearest] if nearest in some[: len(sets)] else [some[0], nearest])
    return found


def _near_to(graph: Graph, at: Mapping[str, int], sizes: Mapping[str, int], by: int) -> dict[str, int]:
    """``at`` with those symbols ``by`` from the ``sizes`` asked for of which questions come out otherwise than recorded."""
    found, asked = dict(at), graph.as_basis().values(sizes)
    moved: set[str] = set()
    while True:
        otherwise = {name for c in graph.conditions if not c.each and not c.same_at(found) for name in names_in(c.expr)}
        more = (otherwise & asked.keys()) - moved - {*graph.loops}
        if not more:
            return found
        moved |= more
        found |= {name: max(1, asked[name] + by) for name in more}


def _answered_otherwise(graph: Graph, at: Mapping[str, int]) -> int:
    """How many guards about sizes come out otherwise there than in the trace."""
    return sum(not c.same_at(at) for c in graph.conditions if not c.each)


def probe(spec: Spec, graph: Graph, values: Mapping[str, int]) -> Record:
    """One more concrete record of the step of ``graph``, at the given values of its basis symbols."""
    return record_step(spec, graph.as_basis(), {}, values, Options(**graph.options), rewrites=graph.rewrites).record


def again(spec: Spec, held: Mapping[str, int], sizes: Mapping[str, int], met: Mapping[str, Sequence[int]], options: Options) -> Record:
    """A concrete record at ``sizes`` in which the sizes that data decide come one after the other as a real run ``met`` them."""
    basis = basis_of(spec.dimensions, {name: str(value) for name, value in held.items()})
    return record_step(spec, basis, {}, basis.values(sizes), options, met=met).record


def _pinned(spec: Spec, pin: PinnedSizeError, basis: Basis) -> str:
    return (
        f"{spec.name}: {pin}, so no closed form in {basis.hidden.get(pin.dimension, pin.dimension)} can be read off; "
        "use the size as it is, or give the model as one with that size fixed"
    )


def _graph(
    spec: Spec,
    basis: Basis,
    sizes: Mapping[str, int],
    loops: Sequence[str],
    attempt: int,
    options: Options,
    runs: Sequence[Traced],
    pins: Mapping[str, str],
) -> Graph:
    kept = guards.kept(runs, pins, spec.dimensions)
    of_zeros = guards.of_zeros(kept, runs, basis.symbols)
    of_values = (*guards.of_values(runs, pins), *guards.of_numbers(kept, runs, pins))
    branches = guards.branches(kept, runs, pins, basis, spec.dimensions)
    return Graph(
        model=spec.name,
        source=spec.source,
        dims=tuple(
            DimRecord(
                n,
                meaning_of(n, d),
                sizes[n],
                d.default if isinstance(d.default, str) else None,
                d.tied,
                d.multiple_of,
                d.at_most,
                d.plus,
                d.decided_at,
            )
            for n, d in spec.dimensions.items()
        ),
        basis=dict(basis.define),
        symbols=basis.symbols,
        folds=basis.folds,
        loops=tuple(loops),
        options=options.to_json(),
        assumptions=(*unbacked_sizes.assumptions(spec), *_assumptions(runs, pins, basis), *branches),
        conditions=(*guards.of_depths(trip_counts.recorded(attempt, loops)), *kept, *of_zeros, *of_values),
        records=tuple(r.record for r in runs),
        certificates=(),
        provenance=_provenance(),
        notes=tuple(spec.notes),
        pins=dict(pins),
        rewrites=any(run.rewrites for run in runs),
        reads_numbers=any(run.numbers_read for run in runs),
    )


def _provenance() -> dict[str, str]:
    """Versions of what the recording depends on: of transformers only where the model uses it."""
    versions = {**torch_version(), "python": platform.python_version()}
    if "transformers" in sys.modules:
        versions["transformers"] = sys.modules["transformers"].__version__
    return versions


def _assumptions(runs: Sequence[Traced], pins: Mapping[str, str], basis: Basis) -> list[Assumption]:
    found: dict[str, Assumption] = {}
    for name, where in pins.items():
        values = ", ".join(str(n) for n in sorted({run.record.sizes[name] for run in runs}))
        because = f"read as a number at {where}; recorded at {values}, interpolated, and certified at values not used"
        found[name] = Assumption(f"the step is a polynomial in {basis.hidden.get(name, name)}", because)
    for run in runs:
        for line, (answer, because) in run.answers.items():
            found[line] = Assumption(f"the value read at {line} is {answer}", because)
        for line, names in run.asked.items():
            because = f"it depends on {_listed(names, basis)} and constants only; evaluated for real"
            found[line] = Assumption(f"the value read at {line} is that of these sizes", because)
        for line, names in run.by_value.items():
            because = f"a table, or a function of Python's, may take {_listed(names, basis)} for a number; traced at these sizes too"
            found[line] = Assumption(f"what is looked up or computed at {line} is that of these sizes", because)
        for who in run.numbers_read:
            because = "no branch and no size hangs on them: traced with one number, certified with another"
            found[who] = Assumption(f"what {who} reads out of tensors are numbers only", because)
    exchanged = {key for run in runs for key in run.exchanged}
    return [*(exchange.assumption for exchange in EXCHANGES.values() if exchange.key in exchanged), *found.values()]


def _listed(names: Collection[str], basis: Basis) -> str:
    return ", ".join(sorted(basis.hidden.get(n, n) for n in names))

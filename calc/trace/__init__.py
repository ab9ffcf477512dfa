"""``nn.Module`` → graph, by symbolic execution of the real training step."""

from __future__ import annotations

import itertools
import platform
import random
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from calc import decided, turns
from calc.basis import Basis, basis_of
from calc.dims import Dim, evaluate, meaning_of, names_in
from calc.errors import DataDependentError, PinnedSizeError, TraceError, UndecidedSizeError
from calc.graph import Assumption, Condition, DimRecord, Graph, Record
from calc.options import Options
from calc.spec import Spec
from calc.trace.step import Traced, record_step
from calc.trace.symbols import hints

Progress = Callable[[str], None]
Recordings = dict[tuple[tuple[str, int], ...], Traced]

# Each loop count doubles the number of recordings.
_MOST_LOOPS = 3
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
) -> Graph:
    """Record the training step of ``spec`` with symbolic sizes; the graph has no certificates yet.

    ``sizes`` are the values of all dimensions (``spec.sizes``): they choose the order of the hints. A dimension that is
    read as a number is taken as a loop count: it is recorded at several, the more the higher ``attempt`` is. ``equal`` fixes
    dimensions to 1 or to another one, for sizes at which the step runs otherwise. ``held`` names dimensions that stay numbers,
    at their value, and says why. ``known`` keeps what was recorded for this spec, options and ``equal``, so that recording
    deeper does not record the same again.
    """
    held = {name: why for name, why in (held or {}).items() if name not in (equal or {})}
    basis = basis_of(spec.dimensions, {**{name: str(sizes[name]) for name in held}, **(equal or {})})
    loops = [name for pinned in spec.pinned for name in names_in(basis.define[pinned])]
    pins: dict[str, str] = {}
    known = {} if known is None else known
    while True:
        try:
            runs = _symbolic_runs(spec, basis, sizes, loops, pins, attempt, options, progress, known)
            break
        except PinnedSizeError as pin:
            name = _whole(pin.dimension, basis)
            if any(name in names for names in spec.gives_way) and not (pin.counts and name in spec.walked):
                raise PinnedSizeError(name, pin.where, str(pin)) from None
            if pin.dimension in loops or len(loops) == _MOST_LOOPS:
                raise TraceError(_pinned(spec, pin, basis)) from None
            if options.every > 1 and name not in (*spec.pinned, *spec.walked):
                # It may count the blocks of which only some run again: so many patterns, as any depth is then.
                known_now = replace(spec, pinned=(*spec.pinned, name))
                raise decided.Declared(known_now, f"{name} is read as a number at {pin.where}: taking it as so many patterns") from None
            loops.append(pin.dimension)
            pins[pin.dimension] = pin.where
            progress(f"{basis.hidden.get(pin.dimension, pin.dimension)} is read as a number at {pin.where}: taking it as a loop count")
        except TraceError as error:
            if type(error) is TraceError:
                _require_unbounded(spec, basis, sizes, loops, attempt, options, error)
            raise
    graph = _graph(spec, basis, sizes, loops, attempt, options, runs, pins)
    kept = {name: (sizes[name], why) for name, why in held.items()}
    return replace(graph, held=kept, assumptions=(*graph.assumptions, *_held(held, sizes)))


def _require_unbounded(
    spec: Spec, basis: Basis, sizes: Mapping[str, int], loops: Sequence[str], attempt: int, options: Options, error: TraceError
) -> None:
    """Start anew where the step fails for no other reason than that a dimension exceeds a loop count, which is small here:
    as a router that chooses more experts than there are."""
    dims = spec.dimensions
    fixed = {name: counts[0] for name, counts in turns.recorded(attempt, loops).items()}
    for loop, name in itertools.product(loops, basis.symbols):
        if name in loops or name not in dims or loop not in dims or dims[name].at_most or sizes[name] > sizes[loop]:
            continue
        declared = decided.with_bound(spec, name, loop)
        try:
            record_step(spec, basis, hints(basis, sizes, bounded={name: _MOST_BOUNDED}), fixed, options)
        except UndecidedSizeError:
            raise declared from None
        except TraceError as again:
            if type(again) is TraceError and str(again) != str(error):
                raise declared from None
        else:
            raise declared from None


def bounded_by(dims: Mapping[str, Any], loops: Sequence[str], basis: Basis) -> dict[str, int]:
    """Dimensions that are at most a loop count, or one that is a number here, each with what it may be at most."""
    found = {}
    for name, dim in dims.items():
        limit = basis.define.get(dim.at_most or "", "")
        if dim.at_most in loops or limit.isdigit():
            found[name] = int(limit) if limit.isdigit() else _MOST_BOUNDED
    return found


def _whole(symbol: str, basis: Basis) -> str:
    """The dimension that a symbol of the basis stands in."""
    return next((fold.whole for fold in basis.folds if fold.quotient == symbol and symbol not in basis.define), symbol)


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
) -> list[Traced]:
    hint_of = hints(basis, sizes, bounded=bounded_by(spec.dimensions, loops, basis), products=options.optimizer in _BY_SIDES)
    counts = [dict(zip(loops, each, strict=True)) for each in itertools.product(*turns.recorded(attempt, loops).values())]
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
            known[key] = record_step(spec, basis, hint_of, fixed, options, tuple(pins))
        except UndecidedSizeError as found:
            raise decided.with_size(spec, _at_any_count(found, spec, basis, hint_of, fixed, pins, options), basis) from None
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
    raise DataDependentError(f"{spec.name}: {found}, and how large it can be depends on {', '.join(fixed)} in no simple way")


def _named(size: int | str, again: int | str, fixed: Mapping[str, int], others: Mapping[str, int]) -> int | str | None:
    """A size that two runs at different loop counts have: the same, or one of the counts; nothing where it is neither."""
    if size == again:
        return size
    return next((name for name in fixed if size == fixed[name] and again == others[name]), None)


# Muon multiplies a matrix from its shorter side, so which of two widths is larger must come out as at the sizes asked for.
_BY_SIDES = ("muon",)


def certificate_sizes(graph: Graph, sizes: Mapping[str, int], attempt: int = 0) -> list[dict[str, int]]:
    """Values of the basis symbols for the certificates of ``graph``: other primes than the hints, further loop counts."""
    basis = graph.as_basis()
    found = []
    for number, counts in enumerate(turns.certified(attempt, graph.loops)):
        bounded = bounded_by({d.name: d for d in graph.dims}, graph.loops, basis)
        ordered = graph.options.get("optimizer") in _BY_SIDES
        sets = [
            hints(basis, sizes, turn=number + 1, bounded=bounded, products=ordered),
            *(hints(basis, sizes, shift=number + 1 + 3 * i, bounded=bounded, products=ordered) for i in range(3)),
            # Where a question is about a number, as whether rows are more than 25.
            hints(basis, sizes, shift=-2 - number, bounded=bounded, products=ordered),
        ]
        found.append(next((at for at in sets if _as_recorded(graph, {**at, **counts})), sets[0]) | counts)
    return found


def _as_recorded(graph: Graph, at: Mapping[str, int]) -> bool:
    """Whether every question asked about sizes has there the answer that was recorded."""
    return all(c.same_at(at) for c in graph.conditions)


def probe(spec: Spec, graph: Graph, values: Mapping[str, int]) -> Record:
    """One more concrete record of the step of ``graph``, at the given values of its basis symbols."""
    return record_step(spec, graph.as_basis(), {}, values, Options(**graph.options)).record


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
    conditions = _conditions(runs, pins, spec.dimensions)
    branches = _branches([c for c in conditions if not _asked_of_every_count(c, runs, pins)], basis, spec.dimensions)
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
        assumptions=(*decided.assumptions(spec), *_assumptions(runs, pins, basis), *branches),
        conditions=(*_depth_conditions(turns.recorded(attempt, loops)), *conditions),
        records=tuple(r.record for r in runs),
        certificates=(),
        provenance=_provenance(),
        notes=tuple(spec.notes),
        pins=dict(pins),
    )


def _provenance() -> dict[str, str]:
    """Versions of what the recording depends on: of transformers only where the model uses it."""
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    if "transformers" in sys.modules:
        versions["transformers"] = sys.modules["transformers"].__version__
    return versions


def _conditions(runs: Sequence[Traced], pins: Collection[str], dims: Mapping[str, Dim]) -> list[Condition]:
    """The questions of all runs, but for those about the number of turns that a run happened to have."""
    asked = [(c, run) for run in runs if run.env is not None for c in run.env.conditions()]
    kept = {c.expr: c for c, run in asked if not _about_one_count(c, run, runs, pins) and not _is_bound(c, run, dims)}
    return list(kept.values())


def _is_bound(condition: Condition, run: Traced, dims: Mapping[str, Dim]) -> bool:
    """Whether this is what the bound of a dimension says where the bound is a number: ``e <= 5`` in a run of 5 experts."""
    asked = re.fullmatch(r"(\w+) <= (\d+)", condition.expr)
    if asked is None or not condition.holds or asked[1] not in dims:
        return False
    return run.record.sizes.get(dims[asked[1]].at_most or "") == int(asked[2])


_ANY_COUNT = 2**63


def _about_one_count(condition: Condition, run: Traced, runs: Sequence[Traced], pins: Collection[str]) -> bool:
    """Whether the count of this run decides the question, and that of another run decides it otherwise: as when torch compares the
    length of a sequence with the number of its parts. What holds between the counts recorded is for the certificates to say."""
    names = {*names_in(condition.expr)}
    if not names & {*pins}:
        return False
    generator = random.Random(0)
    points = [{name: generator.randint(2, 10**6) for name in sorted(names)} for _ in range(8)]

    def as_asked(at: Mapping[str, int]) -> set[bool]:
        return {condition.same_at({**point, **{name: at[name] for name in pins}}) for point in points}

    if as_asked(run.record.sizes) != {True}:
        return False
    if any(as_asked(other.record.sizes) != {True} for other in runs):
        return True
    # Each part that is looked at lies within the length: so it is at every larger count, and fewer turns are seen to by themselves.
    most = dict.fromkeys(pins, _ANY_COUNT)
    return re.fullmatch(r"\w+ (>|>=|<|<=) \d+", condition.expr) is not None and as_asked(most) == {True}


def _asked_of_every_count(condition: Condition, runs: Sequence[Traced], pins: Collection[str]) -> bool:
    """Whether every run asked this with its own number of turns in it, as torch does where it takes a sequence apart: nobody's branch."""
    asked = [({c.expr for c in run.env.conditions()}, run.record.sizes) for run in runs if run.env is not None]
    for name in {*names_in(condition.expr)} & {*pins}:
        for exprs, sizes in asked:
            own = re.compile(rf"\b{sizes[name]}\b")
            alike = [(own.sub(str(others[name]), condition.expr), theirs) for theirs, others in asked]
            if condition.expr in exprs and own.search(condition.expr) and all(text in theirs for text, theirs in alike):
                return True
    return False


def _branches(conditions: Sequence[Condition], basis: Basis, dims: Mapping[str, Dim]) -> list[Assumption]:
    """Conditions that other sizes of at least 2, within their bounds, would answer otherwise: the model, or torch, branches on them."""
    generator = random.Random(0)
    tried = [{name: generator.randint(2, 10 ** generator.randint(1, 5)) for name in basis.symbols} for _ in range(40)]
    points = [_within_bounds(at, basis, dims) for at in tried]
    found = [c for c in conditions if any(not c.same_at(at) for at in points)]
    return [Assumption(_in_dimensions(c, basis), f"asked at {c.where}; other sizes are recorded apart or refused") for c in found]


def _within_bounds(at: Mapping[str, int], basis: Basis, dims: Mapping[str, Dim]) -> dict[str, int]:
    found = dict(at)
    for name, dim in dims.items():
        if dim.at_most and name in found:
            found[name] = min(found[name], int(evaluate(dim.at_most, basis.sizes(found))))
    return found


def _in_dimensions(condition: Condition, basis: Basis) -> str:
    """The condition as it holds, with quotients that are no dimension written as such: ``2*(k/2) <= 256``."""
    text = condition.expr
    for name, quotient in basis.hidden.items():
        text = re.sub(rf"\b{name}\b", f"({quotient})", text)
    return text if condition.holds else f"not ({text})"


def _depth_conditions(counts: Mapping[str, Sequence[int]]) -> list[Condition]:
    """A loop of few turns has no turn between the first and the last, so the closed forms must not be taken for granted there."""
    return [Condition(f"{name} != {few}", True, _COUNTS) for name, recorded in counts.items() for few in range(1, min(recorded))]


_COUNTS = "the loop counts that were recorded"


def _assumptions(runs: Sequence[Traced], pins: Mapping[str, str], basis: Basis) -> list[Assumption]:
    found: dict[str, Assumption] = {}
    for name, where in pins.items():
        values = ", ".join(str(n) for n in sorted({run.record.sizes[name] for run in runs}))
        because = f"read as a number at {where}; recorded at {values}, interpolated, and certified at values not used"
        found[name] = Assumption(f"the step is a polynomial in {basis.hidden.get(name, name)}", because)
    for run in runs:
        for line, answer in run.answers.items():
            found[line] = Assumption(f"the value read at {line} is {answer}", "it depends on sizes and constants only; evaluated for real")
        if run.numbers_read:
            because = "no branch and no size hangs on them: recorded with one number, certified with another"
            found[run.numbers_read] = Assumption(f"what {run.numbers_read} reads out of tensors are numbers only", because)
    return list(found.values())

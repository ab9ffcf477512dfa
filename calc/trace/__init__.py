"""``nn.Module`` → graph, by symbolic execution of the real training step."""

from __future__ import annotations

import itertools
import platform
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from calc.basis import Basis, basis_of
from calc.dims import meaning_of, names_in
from calc.errors import PinnedSizeError, TraceError
from calc.graph import Assumption, Condition, DimRecord, Graph, Record
from calc.options import Options
from calc.spec import Spec
from calc.trace.step import Traced, record_step
from calc.trace.symbols import hints

Progress = Callable[[str], None]
Recordings = dict[tuple[tuple[str, int], ...], Traced]

# Each loop count doubles the number of recordings.
_MOST_LOOPS = 3


def record(
    spec: Spec,
    sizes: Mapping[str, int],
    options: Options,
    depths: Sequence[int] = (3, 4),
    progress: Progress = lambda _: None,
    equal: Mapping[str, str] | None = None,
    known: Recordings | None = None,
    held: Mapping[str, str] | None = None,
) -> Graph:
    """Record the training step of ``spec`` with symbolic sizes; the graph has no certificates yet.

    ``sizes`` are the values of all dimensions (``spec.sizes``): they choose the order of the hints. A dimension that is
    read as a number is taken as a loop count: it is recorded at each of ``depths``. ``equal`` fixes dimensions to 1 or to
    another one, for sizes at which the step runs otherwise. ``held`` names dimensions that stay numbers, at their value, and
    says why. ``known`` keeps what was recorded for this spec, options and
    ``equal``, so that recording deeper does not record the same again.
    """
    held = {name: why for name, why in (held or {}).items() if name not in (equal or {})}
    basis = basis_of(spec.dimensions, {**{name: str(sizes[name]) for name in held}, **(equal or {})})
    loops = [name for pinned in spec.pinned for name in names_in(basis.define[pinned])]
    pins: dict[str, str] = {}
    known = {} if known is None else known
    while True:
        try:
            runs = _symbolic_runs(spec, basis, sizes, loops, depths, options, progress, known)
            break
        except PinnedSizeError as pin:
            name = _whole(pin.dimension, basis)
            if any(name in names for names in spec.gives_way):
                raise PinnedSizeError(name, pin.where, str(pin)) from None
            if pin.dimension in loops or len(loops) == _MOST_LOOPS:
                raise TraceError(_pinned(spec, pin, basis)) from None
            loops.append(pin.dimension)
            pins[pin.dimension] = pin.where
            progress(f"{basis.hidden.get(pin.dimension, pin.dimension)} is read as a number at {pin.where}: taking it as a loop count")
    graph = _graph(spec, basis, sizes, loops, depths, options, runs, pins)
    kept = {name: (sizes[name], why) for name, why in held.items()}
    return replace(graph, held=kept, assumptions=(*graph.assumptions, *_held(held, sizes)))


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
    depths: Sequence[int],
    options: Options,
    progress: Progress,
    known: Recordings,
) -> list[Traced]:
    hint_of = hints(basis, sizes)
    counts = [dict(zip(loops, turns, strict=True)) for turns in itertools.product(depths, repeat=len(loops))]
    return [_recorded(spec, basis, hint_of, fixed, options, known, progress) for fixed in counts]


def _recorded(
    spec: Spec,
    basis: Basis,
    hint_of: Mapping[str, int],
    fixed: Mapping[str, int],
    options: Options,
    known: Recordings,
    progress: Progress,
) -> Traced:
    """The recording with those symbols fixed, made now unless it is known."""
    key = tuple(fixed.items())
    if key not in known:
        at = ", ".join(f"{n} = {v}" for n, v in fixed.items())
        progress(f"recording the step with symbolic sizes{f' at {at}' if at else ''}")
        known[key] = record_step(spec, basis, hint_of, fixed, options)
    return known[key]


def certificate_sizes(graph: Graph, sizes: Mapping[str, int], depths: Sequence[int]) -> list[dict[str, int]]:
    """Values of the basis symbols for the certificates of ``graph``: other primes than the hints, loop counts of ``depths``."""
    basis = graph.as_basis()
    found = []
    for number in range(len(depths)):
        turns = {name: depths[(number + i) % len(depths)] for i, name in enumerate(graph.loops)}
        sets = [hints(basis, sizes, turn=number + 1), *(hints(basis, sizes, shift=number + 1 + 3 * i) for i in range(3))]
        found.append(next((at for at in sets if _as_recorded(graph, {**at, **turns})), sets[0]) | turns)
    return found


def _as_recorded(graph: Graph, at: Mapping[str, int]) -> bool:
    """Whether every question asked about sizes has there the answer that was recorded."""
    return all(c.same_at(at) for c in graph.conditions)


def probe(spec: Spec, graph: Graph, values: Mapping[str, int]) -> Record:
    """One more concrete record of the step of ``graph``, at the given values of its basis symbols."""
    return record_step(spec, graph.as_basis(), {}, values, Options(**graph.options)).record


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
    depths: Sequence[int],
    options: Options,
    runs: Sequence[Traced],
    pins: Mapping[str, str],
) -> Graph:
    return Graph(
        model=spec.name,
        source=spec.source,
        dims=tuple(
            DimRecord(
                n, meaning_of(n, d), sizes[n], d.default if isinstance(d.default, str) else None, d.tied, d.multiple_of, d.at_most, d.plus
            )
            for n, d in spec.dimensions.items()
        ),
        basis=dict(basis.define),
        symbols=basis.symbols,
        folds=basis.folds,
        loops=tuple(loops),
        options=options.to_json(),
        assumptions=(*_assumptions(runs, pins, basis), *_branches(runs, basis)),
        conditions=(*_depth_conditions(loops, depths), *_conditions(runs)),
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


def _conditions(runs: Sequence[Traced]) -> list[Condition]:
    return list({c.expr: c for run in runs if run.env is not None for c in run.env.conditions()}.values())


def _branches(runs: Sequence[Traced], basis: Basis) -> list[Assumption]:
    """Conditions that other sizes of at least 2 would answer otherwise: the model, or torch, branches on them."""
    generator = random.Random(0)
    points = [{name: generator.randint(2, 10 ** generator.randint(1, 5)) for name in basis.symbols} for _ in range(40)]
    found = [c for c in _conditions(runs) if any(not c.same_at(at) for at in points)]
    return [Assumption(_in_dimensions(c, basis), f"asked at {c.where}; other sizes are recorded apart or refused") for c in found]


def _in_dimensions(condition: Condition, basis: Basis) -> str:
    """The condition as it holds, with quotients that are no dimension written as such: ``2*(k/2) <= 256``."""
    text = condition.expr
    for name, quotient in basis.hidden.items():
        text = re.sub(rf"\b{name}\b", f"({quotient})", text)
    return text if condition.holds else f"not ({text})"


def _depth_conditions(loops: Sequence[str], depths: Sequence[int]) -> list[Condition]:
    """A loop of few turns has no turn between the first and the last, so the closed forms must not be taken for granted there."""
    return [Condition(f"{name} != {few}", True, "the loop counts that were recorded") for name in loops for few in range(1, min(depths))]


def _assumptions(runs: Sequence[Traced], pins: Mapping[str, str], basis: Basis) -> list[Assumption]:
    found: dict[str, Assumption] = {}
    for name, where in pins.items():
        values = ", ".join(str(n) for n in sorted({run.record.sizes[name] for run in runs}))
        because = f"read as a number at {where}; recorded at {values}, interpolated, and certified at values not used"
        found[name] = Assumption(f"the step is a polynomial in {basis.hidden.get(name, name)}", because)
    for run in runs:
        for line, answer in run.answers.items():
            found[line] = Assumption(f"the value read at {line} is {answer}", "it depends on sizes and constants only; evaluated for real")
    return list(found.values())

"""``gradients``: from a spec to the equations of its gradients, compared with autograd at random sizes."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import sympy as sp

from calc.errors import BadInputError, NapkinError
from calc.graph.basis import basis_of
from calc.graph.forward import Program
from calc.graph.plan import Refusal, outcome_of
from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.derived import Derived, derived
from calc.mathematics.autodiff.numeric import needed
from calc.options import Options
from calc.platform.progress import Progress
from calc.spec import Spec
from calc.symbolic.assignments import TYPED, sizes_text

# Depths in a derivation of gradients are plain numbers; two layers show what repeats.
_LAYERS = 2
_SETS = 3
_LEAST_TOP = 6  # four values even for a model with one size: enough for sets that differ
# Both calculate in float64, in another order: far above rounding, far below a wrong term.
TOLERANCE = 1e-9
SLOPE_TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class Trial:
    """One comparison with autograd at ``sizes``. Errors are the largest difference over ``scale``, the module's largest gradient (or 1e-3).
    ``places`` have a central difference too; ``kinks`` (near a kink) and ``constant`` (to torch) ones do not."""

    sizes: Mapping[str, int]
    scale: float
    worst: float
    where: str
    slope: float
    places: int
    kinks: int
    constant: int

    @property
    def ok(self) -> bool:
        return self.worst <= TOLERANCE and self.slope <= SLOPE_TOLERANCE


@dataclass(frozen=True, slots=True)
class FlopsCheck:
    """FLOPs of the derived equations and those of a real step, at ``sizes``."""

    phase: str
    sizes: Mapping[str, int]
    equations: int
    executed: int
    because: str

    @property
    def ok(self) -> bool:
        return self.equations == self.executed or bool(self.because)


@dataclass(frozen=True, slots=True)
class Checked:
    trials: tuple[Trial, ...]
    flops: tuple[FlopsCheck, ...]

    @property
    def ok(self) -> bool:
        return all(t.ok for t in self.trials) and all(f.ok for f in self.flops)


def gradients(
    spec: Spec, sizes: Mapping[str, int] | None = None, options: Options | None = None, progress: Progress | None = None
) -> Derived:
    """The equations of a forward and of the gradients of its loss, with symbols for sizes. Depths are numbers: those of ``sizes``, else 2.

    Raises a ``NapkinError`` if the forward cannot be traced or runs an operator without an equation.
    """
    if options is not None and not options.trains:
        raise BadInputError(f"mode {options.mode} takes no gradients: use mode train")
    program = traced(spec, sizes, options, progress)
    (progress or _silent)("deriving gradients")
    return derived(program)


def traced(
    spec: Spec, sizes: Mapping[str, int] | None = None, options: Options | None = None, progress: Progress | None = None
) -> Program:
    """The forward of a step: to the loss or, in mode infer, to the model's prediction. Raises a ``NapkinError`` if it cannot be traced."""
    from calc.trace.forward import trace_program

    options = options or Options()
    if options.precision != "fp32":
        raise BadInputError("equations are over the real numbers: gradients have no dtype; leave --precision out")
    (progress or _silent)("tracing the forward with symbolic sizes")
    at = chosen(spec, sizes or {})
    program = trace_program(spec, at, options)
    if program.fixed.keys() < {*program.symbols}:
        return program
    # No size can be a symbol: perhaps one has to be a multiple of another.
    inferred = outcome_of(lambda: _with_multiples(spec, at, options, progress))
    return program if isinstance(inferred, Refusal) or inferred == spec else trace_program(inferred, chosen(inferred, sizes or {}), options)


def _with_multiples(spec: Spec, sizes: Mapping[str, int], options: Options, progress: Progress | None) -> Spec:
    """``spec`` with the multiples that a derivation of the step infers."""
    from calc.pipeline import pipeline

    return pipeline.traced(spec, sizes, pipeline.Run(options, progress=progress or _silent)).spec


def _as_traced(derived: Derived, spec: Spec, fixed: Mapping[str, int], options: Options, progress: Progress | None = None) -> Spec:
    """``spec`` with the multiples that its forward was traced with."""
    same = derived.program.define == basis_of(spec.dimensions).define
    return spec if same else _with_multiples(spec, chosen(spec, fixed), options, progress)


def chosen(spec: Spec, fixed: Mapping[str, int]) -> dict[str, int]:
    """Sizes for tracing: the given ones, depths of 2, and the small ones of the spec's own checks where compatible."""
    depths = {name: _LAYERS for name in spec.trip_counts if name not in fixed and not spec.dimensions[name].tied}
    wishes: Sequence[Mapping[str, int]] = ({**spec.check_at, **depths}, depths, spec.check_at, {})
    for wish in wishes:
        try:
            return spec.sizes({**wish, **fixed})
        except NapkinError:
            continue
    return spec.sizes(fixed)


def check(
    derived: Derived, spec: Spec, sizes: Mapping[str, int] | None = None, options: Options | None = None, progress: Progress | None = None
) -> Checked:
    """Compare with autograd and with central differences at three random sets of small sizes, or at those that are given, and the
    FLOPs with those of a derived step."""
    options, say = options or Options(), progress or _silent
    spec = _as_traced(derived, spec, sizes or {}, options, say)
    trials = []
    for seed, at in enumerate(trial_sizes(derived.program, spec, sizes or {})):
        say(f"comparing with autograd at {sizes_text(at, TYPED)}")
        trials.append(trial(derived, spec, at, options, seed))
    return Checked(tuple(trials), _flops(derived, spec, trials[0].sizes, options, say))


def trial(derived: Derived, spec: Spec, sizes: Mapping[str, int], options: Options, seed: int) -> Trial:
    """One comparison."""
    from calc.measure.gradients import observe, scale_of

    real = observe(spec, sizes, options, seed)
    leaves = {**real.leaves, **_drawn(derived, real.drawn)}
    _, mine = derived.values(basis_of(spec.dimensions).values(sizes), leaves)
    scale = scale_of(real.gradients)
    errors = {n: _furthest(mine.get(n), g) / scale for n, g in real.gradients.items()}
    errors |= {n: float(np.abs(g).max()) / scale for n, g in mine.items() if n not in real.gradients and g.size}
    where = max(errors, key=lambda n: errors[n], default="")
    constant_parts = _partly_constant(derived)
    slopes = {(n, at): abs(_at(mine.get(n), at) - slope) / scale for n, at, slope in real.slopes if n not in constant_parts}
    return Trial(
        dict(sizes),
        scale,
        errors.get(where, 0.0),
        where,
        max(slopes.values(), default=0.0),
        len(slopes),
        real.kinks,
        len(real.slopes) - len(slopes),
    )


def _furthest(mine: np.ndarray | None, real: np.ndarray) -> float:
    if not real.size:
        return 0.0
    if mine is not None and mine.shape != real.shape:
        return float("inf")
    mine = np.zeros_like(real) if mine is None else mine
    # Where a loss has no gradient (an angle at its end), both say so.
    difference = np.where(np.isnan(mine) & np.isnan(real), 0.0, np.abs(mine - real))
    return float(np.where(np.isnan(difference), np.inf, difference).max())


def _at(mine: np.ndarray | None, place: tuple[int, ...]) -> float:
    return 0.0 if mine is None else float(mine[place])


def _partly_constant(derived: Derived) -> set[str]:
    """Parameters that are partly constants to torch (detached, padding rows): a central difference includes what the gradient omits."""
    nodes = derived.equations.nodes[: derived.forward]
    constants = set(needed(derived.equations, [n.op.source for n in nodes if isinstance(n.op, ir.Hold) and not n.op.free]))
    return {name for name, node in derived.parameters.items() if node in constants}


def _drawn(derived: Derived, drawn: Sequence[tuple[str, np.ndarray]]) -> dict[tuple[str, str], np.ndarray]:
    """The random numbers of the run, for the leaves that represent them: the same operators in the same order."""
    leaves = derived.drawn()
    kinds = [leaf.operator.rstrip("_") for leaf in leaves]
    real = [(name.rstrip("_"), array) for name, array in drawn if name.rstrip("_") in kinds]
    if len(real) != len(leaves):
        return {}
    return {("random", leaf.name): array for leaf, (_, array) in zip(leaves, real, strict=True)}


def trial_sizes(program: Program, spec: Spec, fixed: Mapping[str, int]) -> list[dict[str, int]]:
    """Sets of small sizes to compare at, each different where the model leaves that open."""
    sets: list[dict[str, int]] = []
    for seed in range(_SETS):
        sets.append(_sizes(program, spec, seed, fixed, sets))
    return sets


def _sizes(program: Program, spec: Spec, seed: int, fixed: Mapping[str, int], used: Collection[Mapping[str, int]] = ()) -> dict[str, int]:
    """Small random sizes at which the model runs as traced, different from ``used`` if possible. Specialized and given sizes are fixed."""
    basis, generator = basis_of(spec.dimensions), random.Random(seed)
    otherwise: dict[str, int] | None = None
    repeated: dict[str, int] | None = None
    for values in _drawn_sizes(basis.symbols, program.fixed, generator):
        sizes = {**basis.sizes(values), **fixed}
        try:
            full = spec.sizes({n: v for n, v in sizes.items() if not spec.dimensions[n].tied})
        except NapkinError:
            continue
        at = basis.values(full)
        if any(at[n] != v for n, v in program.fixed.items()):
            continue
        if not all(c.holds_at(at) for c in program.guards):
            otherwise = full
        elif full in used:
            repeated = full
        else:
            return full
    if repeated is not None:
        return repeated
    if fixed and otherwise is not None:
        return otherwise  # asked for: whether the equations hold there too is what the comparison says
    at = {**program.hints, **program.fixed}
    if all(c.holds_at(at) for c in program.guards):
        return basis.sizes(at)
    raise BadInputError(f"{spec.name}: no small sizes satisfy the guards of the trace: give sizes with -d")


def _drawn_sizes(symbols: Sequence[str], fixed: Mapping[str, int], generator: random.Random) -> Iterator[dict[str, int]]:
    """Sets of values, small ones first; different ones where that is possible, from each other and from those that are fixed, so that two
    sizes cannot stand for each other."""
    count = len(symbols)
    for top in (max(count + 2, _LEAST_TOP), max(count + 4, _LEAST_TOP), 16, 24, 40):
        apart = [v for v in range(2, max(top, count + 2) + len(fixed)) if v not in fixed.values()]
        for _ in range(80):
            yield {**dict(zip(symbols, generator.sample(apart, count), strict=True)), **fixed}
        for _ in range(80):
            yield {**{n: generator.randint(2, top) for n in symbols}, **fixed}


def _flops(derived: Derived, spec: Spec, sizes: Mapping[str, int], options: Options, say: Progress) -> tuple[FlopsCheck, ...]:
    """Compared with the derivation of the whole step, which counts what autograd executes."""
    from calc.pipeline.pipeline import derive

    say("counting what a step executes")
    free = {n: v for n, v in sizes.items() if not spec.dimensions[n].tied}
    step = derive(spec, free, options=options)
    at = basis_of(spec.dimensions).values(sizes)

    def value(flops: sp.Expr) -> int:
        return int(sp.sympify(flops).xreplace({s: sp.Integer(at[s.name]) for s in flops.free_symbols}))

    checks = []
    for phase, expr in (("forward", derived.forward_flops), ("backward", derived.backward_flops)):
        executed = step[f"flops.{phase}.matmul"].at(**free)
        checks.append(FlopsCheck(phase, dict(sizes), value(expr), executed, ""))
    backward = checks[-1]
    if backward.equations != backward.executed:
        because = _why(backward, step["flops.backward.recompute"].at(**free), value(derived.outer_flops))
        functions = sorted({i.function for i in derived.program.instructions} - {""})
        if not because and functions and backward.executed == value(derived.backward_flops_with_inputs):
            because = f"the backward of {', '.join(functions)} computes the gradient of an input too, which nothing needs"
        checks[-1] = replace(backward, because=because)
    return tuple(checks)


def _why(check: FlopsCheck, recomputed: int, outer: int) -> str:
    """Why autograd executes another number of FLOPs, if known."""
    repeated = f"{recomputed:,} FLOP repeat the forward (fused attention makes query keyᵀ once more), which equations need not"
    numbers = f"{outer:,} FLOP are a vector times a number, which autograd multiplies element by element and no matmul counter sees"
    if check.equations == check.executed - recomputed:
        return repeated
    if check.equations - outer == check.executed:
        return numbers
    return f"{repeated}; {numbers}" if check.equations - outer == check.executed - recomputed else ""


def _silent(_: str) -> None:
    pass

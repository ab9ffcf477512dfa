"""Selects the guards of traced steps that a graph keeps, and those that it lists as assumptions."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from calc.dimensions import Dim, evaluate, ordered_names
from calc.graph.basis import Basis
from calc.graph.guards import BRANCH, Assumption, Guard, has_remainder
from calc.graph.plan import TracePlan
from calc.graph.step import Op, Tensor
from calc.symbolic.evaluation import Arithmetic, ByName
from calc.symbolic.exact import DOUBLES, evaluate_text
from calc.symbolic.expression import (
    And,
    Compare,
    Expression,
    FloorQuotient,
    FunctionCall,
    Name,
    Negative,
    Not,
    Number,
    Or,
    Power,
    Product,
    Quotient,
    Remainder,
    Sum,
    rewritten,
    substitute,
    walk,
)
from calc.symbolic.lower_bounds import holds_from
from calc.symbolic.parser import parse
from calc.symbolic.writer import as_text
from calc.trace.step import TracedRun

_COUNTS = "the traced trip counts"
_ANY_COUNT = 2**63


def graph_guards(runs: Sequence[TracedRun], trip_counts: Collection[str], dims: Mapping[str, Dim]) -> list[Guard]:
    """The guards of all runs, except those about the trip count that a run happens to have."""
    own = [(_as_in_every_run(c, run, runs, trip_counts), run) for run in runs for c in run.guards]
    outcomes = [({c.expr: c.outcome for c in run.guards}, run.trace.sizes) for run in runs]
    by_run = _guards_by_run(runs)
    guards = (
        _at_any_count(c, run.trace.sizes, outcomes, trip_counts)
        for c, run in own
        if c.expr and not _is_of_one_trip_count(c, run, runs, trip_counts) and not _is_bound(c, run, dims)
        if not _is_of_last_part(c, run, by_run, trip_counts)
    )
    return list({c.expr: c for c in guards}.values())


def _as_in_every_run(guard: Guard, run: TracedRun, runs: Sequence[TracedRun], trip_counts: Collection[str]) -> Guard:
    """The guard with trip counts divided out, if every run has it with its own trip count: at trip count 3 ``(3*k)//g == 1`` and at 4
    ``(4*k)//g == 1`` are both ``k == 1``. ``B//g == 1`` and ``g//10 == 0``, which have no trip count, remain."""
    divided = run.divided.get(guard.expr)
    if divided is not None and all(_divides_itself(divided, compared, trip_counts) for compared in runs):
        return divided
    return guard


def _at_any_count(
    guard: Guard, sizes: Mapping[str, int], runs: Sequence[tuple[Mapping[str, bool], Mapping[str, int]]], trip_counts: Collection[str]
) -> Guard:
    """A guard that equates sizes, with the trip count in place of the number of iterations of its run, if every run has it with its own:
    in 3 iterations ``T == 3*B`` and in 4 ``T == 4*B`` are both ``T == T*B``. ``runs`` has the outcomes of each run by guard, and its sizes.
    """
    expr, loops = parse(guard.expr), {*ordered_names(guard.expr)} & {*trip_counts}
    if len(loops) != 1 or not isinstance(expr, Compare) or expr.relation not in ("==", "!="):
        return guard  # trip counts of two loops may be equal
    (loop,) = loops
    own = sizes[loop]
    if Number(own) not in walk(expr) or all(others[loop] == own for _, others in runs):
        return guard
    if any(outcomes.get(as_text(_at_count(guard.expr, own, others[loop]))) is not guard.outcome for outcomes, others in runs):
        return guard
    return replace(guard, expr=as_text(rewritten(expr, lambda node: Name(loop) if node == Number(own) else None)))


def _divides_itself(divided: Guard, run: TracedRun, trip_counts: Collection[str]) -> bool:
    return any(own == divided and _equals_at_any_trip_count(expr, divided, run, trip_counts) for expr, own in run.divided.items())


_TRIP_COUNTS = (2, 5, 6, 13, 30, 1009, 10**6 + 3)


def _equals_at_any_trip_count(expr: str, divided: Guard, run: TracedRun, trip_counts: Collection[str]) -> bool:
    """Whether ``expr``, with any trip count in place of the run's own, is equivalent to ``divided``; tested at random sizes."""
    names = {*ordered_names(expr)}
    loops = sorted(names & {*trip_counts})
    if len(loops) != 1:
        return False  # trip counts of two loops may be equal
    (loop,) = loops
    generator = random.Random(0)
    for count in _TRIP_COUNTS:
        general = replace(divided, expr=as_text(_at_count(expr, run.trace.sizes[loop], count)))
        for _ in range(8):
            at = {name: generator.randint(1, 10 ** generator.randint(1, 6)) for name in sorted(names)} | {loop: count}
            if general.holds_at(at) != (not divided.expr or divided.holds_at(at)):
                return False
    return True


def _at_count(expr: str, own: int, count: int) -> Expression:
    """A guard with another trip count in place of the run's own."""
    return rewritten(parse(expr), lambda node: Number(count) if node == Number(own) else None)


def of_values(runs: Sequence[TracedRun], trip_counts: Collection[str]) -> list[Guard]:
    """Guards that sizes equal those of the runs, where the step read values of tensors that depend on sizes in an unknown way."""
    guards: dict[str, Guard] = {}
    for run in runs:
        hints = run.repeats.env.hint_of if run.repeats.env is not None else {}
        for line, names in run.value_reads.items():
            expr = " and ".join(f"{name} == {hints[name]}" for name in sorted(names - {*trip_counts}))
            if expr:
                guards.setdefault(expr, Guard(expr, True, line, opaque=True))
        for line, names in run.number_reads.items():
            # A dictionary may lack a symbol that it contains as a number, and a Python function may compute anything from one.
            expr = " and ".join(f"{name} == 0" for name in sorted(names - {*trip_counts}))
            if expr:
                guards.setdefault(expr, Guard(expr, True, line, opaque=True))
    return list(guards.values())


def _at_none(names: Collection[str]) -> str:
    """A guard that fails at all sizes, so that closed forms need a trace at each size they are evaluated at."""
    return " and ".join(f"{name} < 1" for name in sorted(names))


def of_numbers(guards: Sequence[Guard], runs: Sequence[TracedRun], trip_counts: Mapping[str, str]) -> list[Guard]:
    """Guards for sizes without a proof, so that each of their values is traced: sizes rounded from doubles, and sizes read as numbers that
    are no trip counts, since a larger value runs no more operators."""
    places = {_at_none({*ordered_names(c.expr)} - {*trip_counts}): c.where for c in guards if _of_doubles(c)}
    places |= {_at_none([name]): where for name, where in trip_counts.items() if _is_width(name, runs)}
    return [Guard(expr, True, where, opaque=True) for expr, where in places.items() if expr]


def _of_doubles(guard: Guard) -> bool:
    """Whether the guard equates a size with a rounded double. A comparison of two doubles is an ordinary guard."""
    return any(f"{function}(" in guard.expr for function in DOUBLES) and " == " in guard.expr and guard.outcome


def _is_width(name: str, runs: Sequence[TracedRun]) -> bool:
    operators: dict[tuple[int, ...], set[int]] = {}
    for run in runs:
        others = tuple(size for another, size in run.trace.sizes.items() if another != name)
        operators.setdefault(others, set()).add(len(run.trace.ops))
    return len(runs) > 1 and all(len(counts) == 1 for counts in operators.values())


def _is_bound(guard: Guard, run: TracedRun, dims: Mapping[str, Dim]) -> bool:
    """Whether the guard only states a dimension's bound that is a number: ``e <= 5`` in a run with 5 experts."""
    match parse(guard.expr):
        case Compare(Name(name), "<=", Number(bound)) if guard.outcome and name in dims:
            return run.trace.sizes.get(dims[name].at_most or "") == bound
    return False


def _is_of_one_trip_count(guard: Guard, run: TracedRun, runs: Sequence[TracedRun], trip_counts: Collection[str]) -> bool:
    """Whether the guard is true only at the trip count of this run, as where torch compares the length of a sequence with the number of its
    parts. Certificates verify what holds between the traced trip counts."""
    if not {*ordered_names(guard.expr)} & {*trip_counts} or not _holds_throughout(guard, run.trace.sizes, trip_counts):
        return False
    if any(not _holds_throughout(guard, another.trace.sizes, trip_counts) for another in runs):
        return True
    # Each accessed part lies within the length; that holds at every larger trip count, and smaller ones have guards of their own.
    match parse(guard.expr):
        case Compare(Name(), ">" | ">=" | "<" | "<=", Number()):
            return _holds_throughout(guard, dict.fromkeys(trip_counts, _ANY_COUNT), trip_counts)
    return False


def _is_of_last_part(guard: Guard, run: TracedRun, guards_by_run: Sequence[_GuardsOfRun], trip_counts: Collection[str]) -> bool:
    """Whether the guard is about the part that is left after all iterations but the last: of 5 parts ``T - 4*b``, which is a part like the
    others at this trip count, and not empty at a larger one. Smaller ones have guards of their own."""
    if not _has_every_trip_count(guard, guards_by_run, trip_counts, before_last=1):
        return False
    return all(_holds_throughout(guard, at, trip_counts) for at in (run.trace.sizes, dict.fromkeys(trip_counts, _ANY_COUNT)))


def _holds_throughout(guard: Guard, counts: Mapping[str, int], trip_counts: Collection[str]) -> bool:
    """Whether the guard holds at these trip counts, tested at random other sizes."""
    generator = random.Random(0)
    points = [{name: generator.randint(2, 10**6) for name in sorted({*ordered_names(guard.expr)})} for _ in range(8)]
    return all(guard.holds_at({**point, **{name: counts[name] for name in trip_counts}}) for point in points)


def _guards_by_run(runs: Sequence[TracedRun]) -> list[_GuardsOfRun]:
    return [({parse(c.expr) for c in run.guards if c.expr}, run.trace.sizes) for run in runs]


# The guards of a run and its trip counts.
_GuardsOfRun = tuple[set[Expression], Mapping[str, int]]


def _has_every_trip_count(
    guard: Guard, guards_by_run: Sequence[_GuardsOfRun], trip_counts: Collection[str], before_last: int = 0
) -> bool:
    """Whether every run has this guard with its own trip count in it, less ``before_last``, as where torch splits a sequence: the model
    does not branch on it."""
    expr = parse(guard.expr)
    for name in {*ordered_names(guard.expr)} & {*trip_counts}:
        for exprs, sizes in guards_by_run:
            own = sizes[name] - before_last
            alike = [(_at_count(guard.expr, own, others[name] - before_last), theirs) for theirs, others in guards_by_run]
            if expr in exprs and Number(own) in walk(expr) and all(expected in theirs for expected, theirs in alike):
                return True
    return False


def branches(
    plan: TracePlan, guards: Sequence[Guard], of_zeros: Sequence[Guard], runs: Sequence[TracedRun], basis: Basis
) -> list[Assumption]:
    """Guards whose outcome differs at some sizes of at least 2 within their bounds: the model, or torch, branches on them. Those that only
    say from which size on they hold are listed as one ``T >= 3``, without the guards that follow from it."""
    generator = random.Random(0)
    tried = [{name: generator.randint(2, 10 ** generator.randint(1, 5)) for name in basis.symbols} for _ in range(40)]
    points = [_within_bounds(at, basis, plan.spec.dimensions) for at in tried]
    guards_by_run = _guards_by_run(runs)
    differing = [c for c in guards if any(not c.holds_at(at) for at in points)]
    branching = [c for c in differing if not _has_every_trip_count(c, guards_by_run, plan.trip_counts)]
    because = "the step branches on it at {}; sizes with the other outcome are traced separately or refused"
    bounds = {name: _lower_bound(name, [*guards, *of_zeros]) for name in basis.symbols if name not in basis.hidden}
    rounded = _rounded_sizes([*guards, *of_zeros])
    lines: dict[str, str] = {}
    for guard in _without_implied(branching, bounds, rounded):
        lines.setdefault(_in_dimensions(guard, basis), guard.where)
    return [Assumption(text, because.format(where), BRANCH) for text, where in lines.items()]


_LEAST_LISTED = 2  # what differs at a size of 1 only is no branch of the model
_LARGEST_LEAST = 16


def _lower_bound(name: str, guards: Sequence[Guard]) -> tuple[int, str]:
    """The least value of the size ``name`` from which on those of its own guards hold that hold from some value on, and the guard that
    says so. 1 where all of them hold at a lower one."""
    own = [c for c in guards if ordered_names(c.expr) == (name,)]
    least = {c.expr: next((n for n in range(1, _LARGEST_LEAST) if holds_from(c.expr, c.outcome, {name: n})), 1) for c in own}
    most = max(least.values(), default=1)
    if not all(any(not c.holds_at({name: below}) for c in own) for below in range(1, most)):
        return 1, f"{name} >= 1"
    as_written = (c.expr for c in own if c.outcome and least[c.expr] == most and _is_lower_bound(c.expr, name))
    return most, next(as_written, f"{name} >= {most}")


def _is_lower_bound(text: str, name: str) -> bool:
    match parse(text):
        case Compare(Name(left), ">" | ">=", _):
            return left == name
    return False


def _rounded_sizes(guards: Sequence[Guard]) -> dict[Expression, int]:
    """The rounded sizes of which guards give a lower bound, such as ``floor(T/8)`` in ``floor(T/8) > 1``, each with its least value at
    which all guards hold that are about it alone."""
    own: dict[Expression, list[Guard]] = {}
    for guard in (part for c in guards if not c.opaque for part in _parts(c)):
        for size in {node for node in walk(parse(guard.expr)) if _is_rounded(node)}:
            text = _with_names(guard.expr, {size: _ROUNDED})
            if not any(map(_is_rounded, walk(parse(text)))):
                own.setdefault(size, []).append(replace(guard, expr=text))
    least = {size: _least_rounded(guards_of_size) for size, guards_of_size in own.items()}
    return {size: bound for size, bound in least.items() if bound is not None}


_ROUNDED, _LESS = "_rounded", "_less"


def _parts(guard: Guard) -> Iterator[Guard]:
    """The guards that all hold where this one does: the parts of ``a and b``."""
    match parse(guard.expr), guard.outcome:
        case Not(body), outcome:
            yield from _parts(replace(guard, expr=as_text(body), outcome=not outcome))
        case (And(parts), True) | (Or(parts), False):
            for part in parts:
                yield from _parts(replace(guard, expr=as_text(part)))
        case _:
            yield guard


def _with_names(text: str, sizes: Mapping[Expression, str]) -> str:
    """A guard with names in place of sizes; as it is without any of these sizes."""
    expr = parse(text)
    new = rewritten(expr, lambda node: Name(sizes[node]) if node in sizes else None)
    return text if new is expr else as_text(new)


def _is_rounded(node: Expression) -> bool:
    return isinstance(node, FloorQuotient) or (isinstance(node, FunctionCall) and node.function == "floor")


def _least_rounded(guards: Sequence[Guard]) -> int | None:
    """The least value of a rounded size at which these guards hold; None where none of them gives a lower bound. Unlike a dimension, it
    may be 0 or less, so that ``floor(T/8) != 0`` is no bound."""
    alone = [c for c in guards if ordered_names(c.expr) == (_ROUNDED,)]
    first = max((_stated_bound(c, _LARGEST_LEAST if c in alone else 1) for c in guards), default=0)
    from_first = range(first, first + _LARGEST_LEAST)
    return next((n for n in from_first if all(c.holds_at({_ROUNDED: n}) for c in alone)), first) if first else None


def _stated_bound(guard: Guard, most: int) -> int:
    """The largest number up to ``most`` below which the guard fails at every value of the rounded size, whatever the other sizes: 2 for
    ``n > 1``, 1 for ``Max(1, B*n) == B*n``; 0 for none."""
    expr = parse(guard.expr)
    for bound in range(most, 0, -1):
        below = substitute(expr, {_ROUNDED: Sum((Number(bound), Negative(Name(_LESS))))})
        if holds_from(as_text(below), not guard.outcome, {}):
            return bound
    return 0


def _without_implied(branching: Sequence[Guard], bounds: Mapping[str, tuple[int, str]], rounded: Mapping[Expression, int]) -> list[Guard]:
    """``branching`` with each lower bound in place of the first guard that follows from it, and without the others that do. A rounded size
    with a least value in ``rounded`` counts as a size of its own."""
    named = {size: f"{_ROUNDED}{place}" for place, size in enumerate(rounded)}
    of_names = {name: size for size, name in named.items()}
    bounds = {**bounds, **{named[size]: (least, f"{as_text(size)} >= {least}") for size, least in rounded.items()}}
    least = {name: bound for name, (bound, _) in bounds.items()}
    listed: dict[str, Guard] = {}
    for guard in branching:
        text = _with_names(guard.expr, named)
        names = [name for name in ordered_names(text) if least.get(name, 1) > _LEAST_LISTED or name in of_names]
        implied = not guard.opaque and holds_from(text, guard.outcome, least)
        followed = [replace(guard, expr=bounds[name][1], outcome=True) for name in names] if implied else [guard]
        for one in followed:
            listed.setdefault(one.expr, one)
    return list(listed.values())


def _within_bounds(at: Mapping[str, int], basis: Basis, dims: Mapping[str, Dim]) -> dict[str, int]:
    bounded = dict(at)
    for name, dim in dims.items():
        if dim.at_most and name in bounded:
            bounded[name] = min(bounded[name], int(evaluate(dim.at_most, basis.sizes(bounded))))
    return bounded


def _in_dimensions(guard: Guard, basis: Basis) -> str:
    """The guard as a true statement, with quotients that are no dimension written as expressions: ``k/2 <= 256``. ``2*(k/2)``, a size that
    the trace split, is ``k``: the trace lists that 2 divides it."""
    written, hidden = parse(guard.expr), {name: parse(quotient) for name, quotient in basis.hidden.items()}
    expr = _without_minus(written)
    changed = expr is not written or hidden.keys() & {*ordered_names(guard.expr)} or any(map(_is_rounded, walk(expr)))
    text = as_text(rewritten(substitute(expr, hidden), _joined)) if changed else guard.expr
    return text if guard.outcome else f"not ({text})"


_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}


def _without_minus(expr: Expression) -> Expression:
    """``m <= S`` for ``-1*m >= -1*S``, as torch compares what is counted from the end."""
    match expr:
        case Compare(Product((Negative(Number(1)), *left)), relation, Product((Negative(Number(1)), *right))):
            first, second = (factors[0] if len(factors) == 1 else Product(tuple(factors)) for factors in (left, right))
            return Compare(first, _MIRRORED[relation], second)
    return expr


def _joined(node: Expression) -> Expression | None:
    if not isinstance(node, Product):
        return None
    for place, pair in enumerate(itertools.pairwise(node.factors)):
        match pair:
            case part, Quotient(Name() as whole, bottom) if part == bottom:
                factors = (*node.factors[:place], whole, *node.factors[place + 2 :])
                return Product(factors) if len(factors) > 1 else whole
    return None


# -- sizes that may be 0 -------------------------------------------------------------------------------------------------------


def of_zeros(guards_so_far: Sequence[Guard], runs: Sequence[TracedRun], symbols: Sequence[str]) -> list[Guard]:
    """Guards that sizes of tensors are not 0, where a size may be 0 and no guard in ``guards_so_far`` excludes it. Closed forms count n - 1
    operations for a reduction, and bytes for an expanded tensor; a tensor without elements has neither."""
    guards: list[Guard] = []
    for run in runs:
        at = {**(run.repeats.env.hint_of if run.repeats.env is not None else {}), **run.trace.sizes}
        places: dict[str, str] = {}
        for op in run.trace.ops:
            for text in _sizes_of(op):
                places.setdefault(text, f"{op.name} at {op.module_path}")
        for text in sorted(places, key=lambda text: (len(text), text)):
            if parse(text).value_in(_Least()) <= 0 and _may_be_zero(text, [*guards_so_far, *guards], symbols):
                guards.append(Guard(f"{text} != 0", evaluate_text(text, at) != 0, places[text]))
    return guards


def _sizes_of(op: Op) -> Iterator[str]:
    """The symbolic sizes of an operator's tensors."""
    values = [value for _, value in op.args]
    tensors = [t for value in values for t in (value if isinstance(value, tuple) else (value,)) if isinstance(t, Tensor)]
    for tensor in (*tensors, *op.outputs):
        yield from (size for size in tensor.shape if isinstance(size, str))


class _Least(Arithmetic[Fraction | float]):
    """Computes a lower bound of a size, where every symbol is at least 1; minus infinity where the form of the expression gives none."""

    values = ByName[Fraction | float](lambda _: Fraction(1))

    def number(self, node: Number) -> Fraction | float:
        return Fraction(node.value) if isinstance(node.value, int) else -math.inf

    def negative(self, node: Negative) -> Fraction | float:
        return -self.number(node.body) if isinstance(node.body, Number) else -math.inf

    def product(self, node: Product) -> Fraction | float:
        factors = [factor.value_in(self) for factor in node.factors]
        return math.prod(factors) if min(factors) >= 0 else -math.inf

    def power(self, node: Power) -> Fraction | float:
        base = node.base.value_in(self)
        match node.exponent:
            case Number(int() as power) if base >= 0:
                return base**power
        return -math.inf

    def quotient(self, node: Quotient | FloorQuotient) -> Fraction | float:
        top = node.top.value_in(self)
        match node.bottom:
            case Number(int() as number) if number > 0 and top >= 0:
                return top / number
        return Fraction(0) if top >= 0 and node.bottom.value_in(self) > 0 else -math.inf

    def floor_quotient(self, node: FloorQuotient) -> Fraction | float:
        quotient = self.quotient(node)
        return math.floor(quotient) if quotient >= 0 else quotient

    def remainder(self, node: Remainder) -> float:
        return -math.inf

    def call(self, node: FunctionCall) -> Fraction | float:
        arguments = [argument.value_in(self) for argument in node.arguments]
        match node.function, arguments:
            case ("Max", [_, *_]):
                return max(arguments)
            case ("Min", [_, *_]):
                return min(arguments)
            case ("floor" | "ceiling", [size]) if size >= 0:
                return math.floor(size) if node.function == "floor" else math.ceil(size)
        return -math.inf


def _may_be_zero(text: str, guards: Sequence[Guard], symbols: Sequence[str]) -> bool:
    """Whether a size may be 0 where every guard holds; tested with each subset of its symbols at 1 and the others random. A negative value
    implies that it is 0 at sizes in between."""
    names, generator = [*dict.fromkeys(ordered_names(text))], random.Random(0)
    for ones in itertools.product((True, False), repeat=len(names)):
        for largest in (2, 3, 5, 10, 100, 10**6):
            at = {name: generator.randint(2, largest) for name in symbols}
            at |= {name: 1 for name, one in zip(names, ones, strict=True) if one}
            try:
                size = evaluate_text(text, at)
            except ZeroDivisionError:
                return True
            if size < 0 or (size == 0 and all(guard.holds_at(at) for guard in guards)):
                return True
    return has_remainder(text)


def of_depths(counts: Mapping[str, Sequence[int]]) -> list[Guard]:
    """Guards that exclude trip counts below the traced ones: few iterations have none between the first and the last."""
    return [Guard(f"{name} != {few}", True, _COUNTS) for name, traced in counts.items() for few in range(1, min(traced))]

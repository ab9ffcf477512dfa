"""Every valid layout of a model on a number of devices, evaluated as arrays by the same expressions that explain a single layout.

Numbers (ranks, micro-batch, chunks) are arrays; choices that select expressions (ZeRO stage, recomputation, …) are enumerated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from calc.capacity.sharding.account import Account, account
from calc.capacity.sharding.arrays import Array, Sheet, holds
from calc.capacity.sharding.communication import collectives, stream
from calc.capacity.sharding.layout import (
    ATTENTION,
    BLOCK,
    EXCHANGE,
    LARGEST,
    NONE,
    OFF,
    REGATHERED,
    RING,
    SAVED,
    STAGES,
    Constraint,
    Layout,
    conditions,
)
from calc.capacity.sharding.memory import memory
from calc.capacity.sharding.model import ShardedModel
from calc.capacity.sharding.parts import LayoutChoice, stages_of
from calc.capacity.sharding.state import State
from calc.capacity.sharding.timing import Machine, step_lines, time_lines
from calc.errors import BadInputError
from calc.symbolic.parser import free_names
from calc.symbolic.worked import WorkedStep

_NUMBERS = ("n", "t", "p", "c", "x", "v", "b")
NAMES = dict(zip(_NUMBERS, ("data", "tensor", "pipeline", "context", "expert", "interleave", "micro"), strict=True))


@dataclass(frozen=True, slots=True)
class Limits:
    """The search space. ``fewer``: also layouts of fewer devices, if their number divides ``devices``."""

    devices: int
    batch: int
    zero: tuple[int, ...] = STAGES
    sequence: tuple[str, ...] = (OFF, SAVED, REGATHERED)
    checkpointing: tuple[str, ...] = (NONE, ATTENTION, BLOCK)
    exchange: tuple[str, ...] = EXCHANGE
    fixed: tuple[tuple[str, int], ...] = ()
    fewer: bool = False


@dataclass(frozen=True, slots=True)
class SearchProblem:
    """What is laid out: a model with its training state on a machine, within ``limits``."""

    model: ShardedModel
    limits: Limits
    state: State
    machine: Machine

    def account(self, layout: Layout) -> Account:
        """The exact account of one layout."""
        return account(self.model, layout, self.state, self.machine)


class LayoutWays(NamedTuple):
    """What of a layout selects expressions, beside its numbers."""

    zero: int
    checkpointing: str
    sequence: str
    exchange: str


@dataclass(frozen=True, slots=True)
class LayoutTable:
    """All valid layouts: numbers by variable, ``choice`` as an index into ``choices``, bytes of the fullest device, seconds per step.

    ``tried`` is the number of combinations, ``refused`` how many of them each condition refuses.
    """

    numbers: Mapping[str, Array]
    choice: Array
    choices: tuple[LayoutWays, ...]
    memory: Array
    seconds: Array
    devices: Array
    refused: Mapping[str, int]
    tried: int

    def __len__(self) -> int:
        return len(self.memory)

    def layout(self, row: int, batch: int) -> Layout:
        numbers = {NAMES[axis]: int(array[row]) for axis, array in self.numbers.items()}
        zero, checkpointing, sequence, exchange = self.choices[int(self.choice[row])]
        return Layout(**numbers, batch=batch, zero=zero, sequence=sequence, checkpointing=checkpointing, exchange=exchange)


def table(problem: SearchProblem) -> LayoutTable:
    """Every valid layout with its memory and time."""
    model = problem.model
    if model.only_data:
        raise BadInputError(f"{model.name} can be sharded by data parallelism and ZeRO only, which needs no search: {model.only_data}")
    if model.values["L"] > LARGEST:
        raise BadInputError(f"L = {str(model.values['L'])[:40]} is too deep for a search: give 1 to 10**9 layers")
    grid, refused, tried = _grid(model, problem.limits)
    parts = []
    choices: list[LayoutWays] = []
    for mask, structure in _structures(grid):
        numbers = {axis: grid[axis][mask] for axis in _NUMBERS}
        for evaluated in _evaluated(problem, numbers, structure):
            choices.append(evaluated[0])
            parts.append((numbers, np.full(len(numbers["n"]), len(choices) - 1), *evaluated[1:]))
    if not parts:
        return LayoutTable({axis: np.zeros(0) for axis in _NUMBERS}, np.zeros(0), (), np.zeros(0), np.zeros(0), np.zeros(0), refused, tried)
    parts = [_valid_rows(part) for part in parts]
    columns = {axis: np.concatenate([part[0][axis] for part in parts]) for axis in _NUMBERS}
    choice, memory_, seconds = (np.concatenate([part[i] for part in parts]) for i in (1, 2, 3))
    used = columns["n"] * columns["t"] * columns["p"] * columns["c"] * columns["x"]
    return LayoutTable(columns, choice, tuple(choices), memory_, seconds, used, refused, tried)


def _valid_rows(part: Any) -> Any:
    """Without the rows for which the choice is invalid."""
    numbers, choice, memory_, seconds, valid = part
    return ({axis: array[valid] for axis, array in numbers.items()}, choice[valid], memory_[valid], seconds[valid])


# -- numbers ------------------------------------------------------------------------------------------------------------------


def _grid(model: ShardedModel, limits: Limits) -> tuple[dict[str, Array], dict[str, int], int]:
    """All valid combinations of numbers; how many each condition refuses; and how many were tried.

    Conditions without chunks are checked before chunks are enumerated, those on stages and chunks once per pair: of millions of
    combinations, few are created.
    """
    fixed = dict(limits.fixed)
    chunks = [fixed["v"]] if "v" in fixed else sorted({*_divisors(model.values["L"]), *_divisors(model.values["L"] + 2)})
    micros = [fixed["b"]] if "b" in fixed else _divisors(limits.batch)
    count = _number_of_ranks(model, limits)
    if count > MOST_RANKS or count * len(micros) > _MOST_TRIED:
        raise BadInputError(_too_many(model, limits))
    required = conditions(model, sequence=False)
    chunkless = list(takewhile(lambda condition: "v" not in free_names(condition.expr), required))
    paired = list(takewhile(lambda condition: not free_names(condition.expr) & set("ntcxb"), required[len(chunkless) :]))
    last = required[len(chunkless) + len(paired) :]
    tested = _Conditions(model, limits, dict.fromkeys((condition.because for condition in required), 0))
    ranks = np.array(list(_ranks(model, limits)), dtype=np.float64).reshape(-1, 5)
    parts, budget, rows = [np.zeros((0, 7))], _MOST_MADE, max(1, _AT_ONCE // len(micros))
    for start in range(0, len(ranks), rows):
        valid = tested.without_chunks(ranks[start : start + rows], np.array(micros, dtype=np.float64), chunkless, len(chunks))
        for batch in tested.with_chunks(valid, np.array(chunks, dtype=np.float64), paired):
            budget -= len(batch)
            for condition in last:
                valid_rows = tested.holds(condition, dict(zip(_NUMBERS, batch.T, strict=True)))
                tested.refused[condition.because] += int(np.count_nonzero(~valid_rows))
                batch = batch[valid_rows]
            parts.append(batch)
            if budget < 0 or sum(map(len, parts)) > _MOST_VALID:
                raise BadInputError(_too_many(model, limits))
    grid = np.concatenate(parts)
    return {axis: grid[:, column] for column, axis in enumerate(_NUMBERS)}, tested.refused, len(ranks) * len(chunks) * len(micros)


@dataclass(frozen=True, slots=True)
class _Conditions:
    """Tests combinations of numbers; ``refused`` counts how many of them each condition refuses."""

    model: ShardedModel
    limits: Limits
    refused: dict[str, int]

    def holds(self, condition: Constraint, grid: Mapping[str, Array], shape: tuple[int, ...] | None = None) -> Array:
        values = {**{name: float(value) for name, value in self.model.values.items()}, **grid, "B": float(self.limits.batch)}
        return np.broadcast_to(holds(condition.expr, values), grid["n"].shape if shape is None else shape)

    def without_chunks(self, ranks: Array, micros: Array, required: Sequence[Constraint], chunks: int) -> Array:
        """Ranks with each micro-batch where the conditions hold. A failing row counts ``chunks`` times, once per number of chunks."""
        valid = np.ones((len(ranks), len(micros)), dtype=bool)
        grid = {**{axis: ranks[:, column, None] for column, axis in enumerate(_NUMBERS[:5])}, "b": micros[None]}
        for condition in required:
            holding = self.holds(condition, grid, valid.shape)
            self.refused[condition.because] += int(np.count_nonzero(valid & ~holding)) * chunks
            valid &= holding
        row, column = np.nonzero(valid)
        return np.column_stack([ranks[row], micros[column]])

    def with_chunks(self, valid: Array, chunks: Array, required: Sequence[Constraint]) -> Iterator[Array]:
        """The rows with each number of chunks, inserted before the micro-batch, where the conditions on stages and chunks hold; in
        batches."""
        stages, stage = np.unique(valid[:, 2], return_inverse=True)
        allowed = np.ones((len(stages), len(chunks)), dtype=bool)
        several = np.bincount(stage, minlength=len(stages))[:, None]
        for condition in required:
            holding = self.holds(condition, {"p": stages[:, None], "v": chunks[None]}, allowed.shape)
            self.refused[condition.because] += int(np.sum((allowed & ~holding) * several))
            allowed &= holding
        rows = max(1, _AT_ONCE // len(chunks))
        for start in range(0, len(valid), rows):
            part = valid[start : start + rows]
            row, column = np.nonzero(allowed[stage[start : start + rows]])
            batch = np.column_stack([part[row, :5], chunks[column], part[row, 5]])
            # The order of nested loops over ranks, chunks, micro-batches: of completely equal layouts the first one wins.
            same = np.cumsum(np.r_[False, np.any(np.diff(part[:, :5], axis=0) != 0, axis=1)]) if len(part) else np.zeros(0)
            yield batch[np.lexsort((batch[:, 6], batch[:, 5], same[row]))]


# Limits of the search: combinations of ranks, these times micro-batches, combinations created, and valid layouts.
MOST_RANKS, _MOST_TRIED, _MOST_MADE, _MOST_VALID = 1_000_000, 200_000_000, 50_000_000, 250_000
_AT_ONCE = 2**21


def _too_many(model: ShardedModel, limits: Limits) -> str:
    fixed = {axis for axis, _ in limits.fixed}
    free = [NAMES[axis] for axis in "tpcxvb" if axis not in fixed and (axis != "x" or model.has_experts)]
    example = next((f", e.g. {name}=8" for name in free if name == "tensor"), "")
    return (
        f"{limits.devices} devices and batch = {limits.batch} have more layouts than are searched ({MOST_RANKS:,} combinations of ranks,"
        f" {_MOST_VALID:,} valid ones with chunks and micro-batches): give {' or '.join(free) or 'other devices'}{example}"
    )


def _ranks(model: ShardedModel, limits: Limits) -> Iterator[tuple[int, int, int, int, int]]:
    """Data, tensor, pipeline, context and expert ranks that multiply to the devices."""
    fixed = dict(limits.fixed)
    for used in _divisors(limits.devices) if limits.fewer else [limits.devices]:
        for t in _of(fixed, "t", _divisors(used)):
            for p in _of(fixed, "p", _divisors(used // t)):
                for c in _of(fixed, "c", _kinds(model, "c", used // (t * p))):
                    for x in _of(fixed, "x", _kinds(model, "x", used // (t * p * c))):
                        n = used // (t * p * c * x)
                        if fixed.get("n", n) == n:
                            yield n, t, p, c, x


def _number_of_ranks(model: ShardedModel, limits: Limits) -> int:
    """An upper bound on the number of those, counted by the remaining factor instead of one by one."""
    fixed = dict(limits.fixed)

    @cache
    def ways(devices: int, axes: str) -> int:
        if not axes:
            return int(fixed.get("n", devices) == devices)
        return sum(ways(devices // number, axes[1:]) for number in _of(fixed, axes[0], _kinds(model, axes[0], devices)))

    return sum(ways(used, "tpcx") for used in (_divisors(limits.devices) if limits.fewer else [limits.devices]))


def _kinds(model: ShardedModel, axis: str, devices: int) -> Sequence[int]:
    """Possible numbers of ranks of a kind among ``devices`` remaining devices."""
    possible = {"c": model.attention == "fused", "x": model.has_experts}.get(axis, True)
    return _divisors(devices) if possible else [1]


def _of(fixed: Mapping[str, int], axis: str, numbers: Sequence[int]) -> Sequence[int]:
    return [number for number in numbers if fixed.get(axis, number) == number]


@lru_cache(maxsize=4096)
def _divisors(number: int) -> tuple[int, ...]:
    small = [i for i in range(1, math.isqrt(number) + 1) if number % i == 0]
    return tuple(sorted({*small, *(number // i for i in small)}))


# -- choices ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Structure:
    """Which kinds of parallelism divide anything, as far as expressions depend on it."""

    stages: tuple[str, ...]
    interleaved: bool
    tensor: bool
    context: bool
    shared: bool


def _structures(grid: Mapping[str, Array]) -> Iterator[tuple[Array, _Structure]]:
    depth = np.minimum(grid["p"], 3)
    shared = grid["n"] * grid["c"] * grid["x"] > 1
    either = (False, True)
    for p, interleaved, tensor, context, several in itertools.product((1, 2, 3), either, either, either, either):
        kind = (depth == p) & ((grid["v"] > 1) == interleaved) & ((grid["t"] > 1) == tensor) & ((grid["c"] > 1) == context)
        kind &= shared == several
        if kind.any():
            yield kind, _Structure(stages_of(p), interleaved, tensor, context, several)


def _evaluated(
    problem: SearchProblem, numbers: Mapping[str, Array], structure: _Structure
) -> Iterator[tuple[LayoutWays, Array, Array, Array]]:
    """For each choice: its name, bytes, seconds, and where it is valid."""
    model, sheet = problem.model, Sheet(_inputs(problem, numbers))
    for ways in _ways(model, problem.limits, structure):
        choice = _choice(structure, model, ways)
        stages = [sheet.work(_lines(model, choice, stage, problem.state)) for stage in choice.stages]
        timed = {f"t{i}": stage["ts"] for i, stage in enumerate(stages, 1)} | {f"d{i}": stage["td"] for i, stage in enumerate(stages, 1)}
        step = sheet.work(step_lines(choice, len(stages), problem.machine), timed)
        memory = stages[0]["M"][1]
        for stage in stages[1:]:
            memory = np.maximum(memory, stage["M"][1])
        shape = numbers["n"].shape
        valid = np.ones(shape, dtype=bool) if ways.sequence == OFF else np.mod(model.values["T"], numbers["c"] * numbers["t"]) == 0
        yield ways, np.broadcast_to(memory, shape), np.broadcast_to(step["step"][1], shape), valid


def _inputs(problem: SearchProblem, numbers: Mapping[str, Array]) -> dict[str, Any]:
    model, limits, state = problem.model, problem.limits, problem.state
    rates = {g.symbol: float(g.value) for g in problem.machine.inputs}
    sizes_of = {"w": state.weights, "q": state.gradients, "o": state.optimizer, "u": state.master, "j": state.counter}
    micros = limits.batch / (numbers["n"] * numbers["x"] * numbers["b"])
    sizes = {name: float(value) for name, value in model.values.items()}
    return {**sizes, **rates, **{name: float(size) for name, size in sizes_of.items()}, **numbers, "B": float(limits.batch), "m": micros}


def _ways(model: ShardedModel, limits: Limits, structure: _Structure) -> Iterator[LayoutWays]:
    stages = [zero for zero in limits.zero if zero == 0 or structure.shared]
    recomputed = [kind for kind in limits.checkpointing if kind != ATTENTION or model.attention == "math"]
    sequence = [kind for kind in limits.sequence if kind == OFF or structure.tensor]
    exchange = limits.exchange if structure.context else (RING,)
    yield from itertools.starmap(LayoutWays, itertools.product(stages, recomputed, sequence, exchange))


def _choice(structure: _Structure, model: ShardedModel, ways: LayoutWays) -> LayoutChoice:
    axes = {"t": structure.tensor, "c": structure.context, "p": len(structure.stages) > 1, "v": structure.interleaved, "n": True}
    present = {axis for axis, has in axes.items() if has} | ({"x"} if model.has_experts else set())
    uneven = len(structure.stages) > 1
    return LayoutChoice(
        frozenset(present),
        ways.zero if structure.shared else 0,
        ways.sequence,
        ways.checkpointing,
        ways.exchange,
        structure.interleaved,
        uneven,
        structure.stages,
    )


def _lines(model: ShardedModel, choice: LayoutChoice, stage: str, state: State) -> list[WorkedStep]:
    traffic = collectives(model, choice, stage)
    sent = [WorkedStep(c.symbol, c.sent, "bytes", "", "") for c in traffic]
    return [*memory(model, choice, stage, state), stream(model, choice), *sent, *time_lines(model, choice, stage, traffic)]

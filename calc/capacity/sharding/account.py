"""The account of one layout of one model: memory by kind, traffic by collective, time against peak and links. Exact fractions throughout.

Each pipeline stage that differs has its own worked calculation; the step time follows from the slowest stage. The notes list the
assumptions behind a time bound. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from calc.capacity.sharding.communication import Collective, collectives, stream
from calc.capacity.sharding.layout import MEANINGS, SYMBOLS, UNITS, Constraint, Layout, require
from calc.capacity.sharding.memory import KINDS, TOTAL, memory
from calc.capacity.sharding.model import ShardedModel
from calc.capacity.sharding.parts import LayoutChoice, stages_of
from calc.capacity.sharding.state import State
from calc.capacity.sharding.temporaries import AT_LOSS
from calc.capacity.sharding.timing import NOTES, Machine, step_lines, time_lines
from calc.dimensions import MEANINGS as DIMENSIONS
from calc.errors import BadInputError
from calc.symbolic.exact import evaluate_text
from calc.symbolic.worked import WorkedCalculation, WorkedInput, WorkedStep


@dataclass(frozen=True, slots=True)
class Traffic:
    """A collective with its bytes per step and device."""

    collective: Collective
    payload: Fraction
    sent: Fraction


FITS, UNSURE, NOT = "fits", "may not fit", "does not fit"
KEPT_FITS = "state and saved activations fit; temporaries are not counted"
KEPT_UNSURE = "may not fit: state, saved activations and all gradients together do not; temporaries are not counted"
STATE_FITS, STATE_NOT = "the state alone fits", "the state alone does not fit"
_OF_STAGE = "the steps of that stage"
_PASSING = frozenset({"gradients", "unreduced", "gathered", "temporaries"})


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: its evaluated steps, its bytes by kind, its traffic."""

    name: str
    calculation: WorkedCalculation
    traffic: tuple[Traffic, ...]

    @property
    def kinds(self) -> dict[str, int]:
        """Bytes by kind; they add up to ``total``."""
        return {name: int(self.calculation[symbol]) for name, symbol in KINDS.items() if symbol in self.calculation.values}

    @property
    def total(self) -> int:
        return int(self.calculation[TOTAL])

    @property
    def at_once(self) -> int:
        """Lower bound on the bytes allocated at once: state and the tensors saved when a forward ends; at the loss, its temporaries too.

        A recomputed layer allocates later. In interleaved stages the loss need not coincide with the most saved tensors.
        """
        lasting = sum(size for kind, size in self.kinds.items() if kind not in _PASSING)
        values = self.calculation.values
        recomputed = int(values["Al"]) if "Ab" in values else 0
        return lasting - recomputed + (int(values[AT_LOSS]) if AT_LOSS in values and values["v"] == 1 else 0)


@dataclass(frozen=True, slots=True)
class Account:
    """A layout with its memory and traffic per device, in bytes. ``step`` is the time of a step in seconds, if a machine is given."""

    model: ShardedModel
    layout: Layout
    state: State
    machine: Machine | None
    conditions: tuple[Constraint, ...]
    stages: tuple[Stage, ...]
    step: WorkedCalculation | None

    @property
    def fullest(self) -> Stage:
        """The stage whose devices need the most memory; the first of equal ones."""
        return max(self.stages, key=lambda stage: stage.total)

    @property
    def memory(self) -> int:
        """Bytes that the fullest device needs."""
        return self.fullest.total

    @property
    def fit(self) -> str:
        """Whether the layout fits the machine. The total is an upper bound and ``at_once`` a lower one; between the two it is unknown."""
        if self.machine is None:
            return ""
        room = self.machine.memory
        if not self.model.items:
            return STATE_FITS if self.memory <= room else STATE_NOT
        if self.memory <= room:
            return FITS if self.model.temporaries else KEPT_FITS
        if max(stage.at_once for stage in self.stages) > room:
            return NOT
        return UNSURE if self.model.temporaries else KEPT_UNSURE


def choice_of(layout: Layout, layers: int) -> LayoutChoice:
    """The choices of a layout that select its expressions."""
    uneven = layout.pipeline > 1 and layers % (layout.pipeline * layout.interleave) > 0
    return LayoutChoice(
        layout.axes, layout.zero, layout.sequence, layout.checkpointing, layout.exchange, layout.interleave > 1, uneven,
        stages_of(layout.pipeline), layout.rank > 0,
    )  # fmt: skip


def account(model: ShardedModel, layout: Layout, state: State, machine: Machine | None = None) -> Account:
    """The account of the layout. Raises BadInputError with the condition that fails."""
    satisfied = require(model, layout)
    choice = choice_of(layout, model.values.get("L", 1))
    inputs = _inputs(model, layout, state)
    stages = tuple(_stage(model, choice, stage, inputs, state, machine) for stage in choice.stages)
    step = None
    if machine is not None and not model.only_data:
        timed = [
            WorkedInput(f"t{n}", stage.calculation["ts"], "s", f"a step of the {stage.name} stage", _OF_STAGE)
            for n, stage in enumerate(stages, 1)
        ]
        timed += [
            WorkedInput(f"d{n}", stage.calculation["td"], "s", f"data traffic of the {stage.name} stage", _OF_STAGE)
            for n, stage in enumerate(stages, 1)
        ]
        shared = [g for g in inputs if g.symbol in ("p", "v", "m", "B", "T", "n", "t", "c", "x")]
        step = worked("time of a step", (*shared, *machine.inputs, *timed), step_lines(choice, len(stages), machine), NOTES)
    return Account(model, layout, state, machine, satisfied, stages, step)


def _stage(
    model: ShardedModel, choice: LayoutChoice, stage: str, inputs: Sequence[WorkedInput], state: State, machine: Machine | None
) -> Stage:
    traffic = collectives(model, choice, stage)
    steps = [*memory(model, choice, stage, state)]
    if not model.only_data:
        steps.append(stream(model, choice))
    steps += [WorkedStep(c.symbol, c.sent, "bytes", f"sent for {c.axis}, {c.kind}", c.because) for c in traffic]
    if machine is not None and not model.only_data:
        steps += time_lines(model, choice, stage, traffic)
        inputs = (*inputs, *machine.inputs)
    calculation = worked(f"{stage} stage" if stage != "only" else "device", inputs, steps)
    values: Any = calculation.values
    sent = tuple(Traffic(c, evaluate_text(c.payload, values), calculation[c.symbol]) for c in traffic)
    return Stage(stage, calculation, sent)


def _inputs(model: ShardedModel, layout: Layout, state: State) -> tuple[WorkedInput, ...]:
    sizes = [
        WorkedInput(name, Fraction(value), "", DIMENSIONS.get(name, f"dimension {name}"), model.name)
        for name, value in model.values.items()
        if name != "B"
    ]
    ranks = [
        WorkedInput(symbol, Fraction(getattr(layout, name)), UNITS[name], MEANINGS[name], "the layout") for name, symbol in SYMBOLS.items()
    ]
    number = Fraction(layout.batch, layout.replicas * layout.micro)
    micros = WorkedInput("m", number, "micro-batches", "micro-batches of a step, on each data rank", "B/(n*x*b)")
    sizes_of = {
        "w": ("weights", state.weights),
        "q": ("gradients", state.gradients),
        "o": ("optimizer state", state.optimizer),
        "u": ("master weights", state.master),
    }
    if state.counter:
        sizes_of["j"] = ("step counters of a tensor, not", state.counter)
    formats = [
        WorkedInput(symbol, Fraction(size), "bytes", f"{kind} of a parameter", state.source) for symbol, (kind, size) in sizes_of.items()
    ]
    rank = [WorkedInput("r", Fraction(layout.rank), "", "rank among those that share the state", "the layout")] if layout.rank else []
    return (*sizes, *ranks, *rank, micros, *formats)


def worked(name: str, inputs: Sequence[WorkedInput], steps: Sequence[WorkedStep], notes: Sequence[str] = ()) -> WorkedCalculation:
    """The steps evaluated in order, with their roundings and remainders."""
    values: dict[str, Any] = {g.symbol: _plain(g.value) for g in inputs}
    evaluated = []
    for step in steps:
        if step.symbol in values:
            raise BadInputError(f"{name}: {step.symbol} is defined twice")
        value = evaluate_text(step.expr, values)
        values[step.symbol] = _plain(value)
        evaluated.append(WorkedStep(step.symbol, step.expr, step.unit, step.meaning, step.because, value))
    return WorkedCalculation(name, tuple(inputs), tuple(evaluated), tuple(notes))


def _plain(value: Fraction) -> int | Fraction:
    """Whole numbers as ``int``, which is several times faster."""
    return int(value) if value.denominator == 1 else value


def by_axis(traffic: Sequence[Traffic]) -> Mapping[str, Fraction]:
    """Bytes sent by kind of parallelism."""
    sent: dict[str, Fraction] = {}
    for item in traffic:
        sent[item.collective.axis] = sent.get(item.collective.axis, Fraction(0)) + item.sent
    return sent

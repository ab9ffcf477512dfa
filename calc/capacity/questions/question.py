"""The data of a question: variables with units, equations with reasons, choices, conditions and notes.

Equations are solved in either direction, so one system answers for any of its variables; several questions share a system
and differ in the variable that they solve for.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from string import Formatter
from typing import TYPE_CHECKING

from calc.symbolic.parser import free_names

if TYPE_CHECKING:
    from calc.capacity.questions.answer import FurtherResult
    from calc.capacity.questions.models import QuestionModel
from dataclasses import replace

Values = Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable. The command line accepts ``key``, the symbol, or a name in ``also``.

    ``rounding``: the direction of rounding, "up" or "down", in which the answer stays valid. ``default`` is used if nothing else gives a
    value; it is listed as an assumption with the reason ``because``; a ``firm`` default is used even if equations determine the value.
    ``device`` and ``model`` name the property that a device or a model supplies. ``multiple_of``: a variable that divides this one; an
    answer is rounded down to a multiple of it.
    """

    symbol: str
    key: str
    unit: str
    meaning: str
    rounding: str = ""
    default: str = ""
    because: str = ""
    device: str = ""
    model: str = ""
    also: tuple[str, ...] = ()
    firm: bool = False
    multiple_of: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.key, self.symbol, *self.also)


@dataclass(frozen=True, slots=True)
class Equation:
    """``symbol`` = ``expr``, with the reason why it holds."""

    symbol: str
    expr: str
    because: str


@dataclass(frozen=True, slots=True)
class QuestionChoice:
    """Alternatives that complete a part of the system: a number format, an optimizer, a scaling law. The first one is the default."""

    key: str
    meaning: str
    options: Mapping[str, tuple[Equation, ...]]
    because: str
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def default(self) -> str:
        return next(iter(self.options))


@dataclass(frozen=True, slots=True)
class Requirement:
    """A relation that the values must satisfy, and the error or flag otherwise."""

    holds: str
    otherwise: str
    refuse: bool = False

    @property
    def variables(self) -> set[str]:
        """The variables that the condition compares, and those that its message shows."""
        return {*free_names(self.holds), *(name for _, name, _, _ in Formatter().parse(self.otherwise) if name)}


@dataclass(frozen=True, slots=True)
class QuestionTable:
    """Additional rows of an answer, from its values, and from the model if one is given; the symbols in ``needs`` must have values."""

    needs: frozenset[str]
    rows: Callable[[Values, QuestionModel | None], Sequence[FurtherResult]]


@dataclass(frozen=True, slots=True)
class Question:
    """``answer`` is the variable it solves for by default. ``limit`` bounds a rounded answer.

    ``with_model`` replaces the equations of its variables if a model is given: exact counts instead of a rule of thumb.
    ``with_given`` does so where the variable is given, or solved for. ``fills``: with a
    model, the peak of its own step replaces the equations; ``laid``: the account of its layout replaces them. ``also`` are variables shown
    with the answer.
    """

    name: str
    summary: str
    variables: tuple[Variable, ...]
    equations: tuple[Equation, ...]
    answer: str
    limit: str = ""
    choices: tuple[QuestionChoice, ...] = ()
    conditions: tuple[Requirement, ...] = ()
    notes: tuple[str, ...] = ()
    notes_without_model: tuple[str, ...] = ()
    with_model: tuple[Equation, ...] = ()
    with_given: Mapping[str, tuple[Equation, ...]] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    source: str = ""
    fills: bool = False
    laid: bool = False
    table: QuestionTable | None = None

    def variable(self, name: str) -> Variable:
        """The variable of that name."""
        return next(x for x in self.variables if x.symbol == name)

    @property
    def of_model(self) -> bool:
        """Whether a model can supply some of its variables."""
        return any(x.model for x in self.variables)

    @property
    def of_device(self) -> bool:
        return any(x.device for x in self.variables)

    def command(self, inputs: Mapping[str, str]) -> str:
        """The command line that asks it with ``inputs``: ``napkin ask tokens parameters=8e9 flops=2e16``."""
        return " ".join(["napkin ask", self.name, *(shlex.quote(f"{key}={value}") for key, value in inputs.items())])


# -- shared variables -------------------------------------------------------------------------------------------------
# Variables and equations that several questions share.


PARAMETERS = Variable("N", "parameters", "parameters", "parameters", rounding="down", model="parameters")
ACTIVE = replace(PARAMETERS, meaning="active parameters, those that one token uses", model="active")
TOKENS = Variable("D", "tokens", "tokens", "tokens", rounding="down")
DEVICES = Variable("n", "gpus", "devices", "devices", rounding="up", also=("devices",))
ONE_DEVICE = replace(DEVICES, default="1", because="default")
PEAK = Variable("P", "peak", "FLOP/s", "dense peak rate of one device", device="peak")
MFU = Variable("u", "mfu", "share", "model FLOPs utilization")
FLOPS = Variable("C", "flops", "FLOP", "FLOPs of the whole training run")
DAYS = Variable("t", "days", "days", "time")
DEVICE_HOURS = Variable("H", "gpu-hours", "h", "device hours")
MEMORY = Variable("M", "memory", "bytes", "memory of one device", device="memory")
BANDWIDTH = Variable("W", "bandwidth", "bytes/s", "memory bandwidth of one device", device="bandwidth")
BATCH = Variable("B", "batch", "sequences", "batch size", rounding="down")
SEQUENCE = Variable("T", "sequence", "tokens", "tokens of a sequence", rounding="down")
STEPS = Variable("S", "steps", "steps", "steps", rounding="up")
LAYERS = Variable("L", "layers", "layers", "layers", rounding="down")
WIDTH = Variable("d", "width", "elements", "model width", rounding="down")
HEADS = Variable("h", "heads", "heads", "attention heads", rounding="down")
KV_HEADS = Variable("g", "kv-heads", "heads", "key/value heads", rounding="down")
HEAD_WIDTH = Variable("k", "head-width", "elements", "width of a head", rounding="down")
VOCABULARY = Variable("V", "vocabulary", "tokens", "vocabulary size", rounding="down")

SIX = "2 FLOP for each weight and token forward, twice that backward: one matmul for the gradient of the input, one for that of the weight"
KAPLAN = "Kaplan et al. 2020, Scaling Laws for Neural Language Models (arXiv 2001.08361), section 2.1"
SIX_N_D = Equation("C", "6*N*D", SIX)
RATE_OF_ALL = Equation("R", "u*n*P", "utilization is the share of the peak that serves the model")
ACHIEVED = Variable("X", "achieved", "FLOP/s", "rate achieved, each device")
_ALSO = ("tokens-per-second-per-device",)
SPEED_OF_ONE = Variable("v", "tokens-per-second-per-gpu", "tokens/s", "tokens per second, each device", also=_ALSO)
RATE = Variable("R", "rate", "FLOP/s", "model FLOP/s of all devices")

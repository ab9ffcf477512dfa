"""The largest batch, sequence, depth or width of a model whose training step fits a memory, by the exact peak of its own step.

The peak grows with each of these sizes; the answer is the last one that fits, and is shown with the first that does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from calc.capacity.questions.answer import Answer, Bound, FurtherResult, Input, RuleOfThumbAnswer
from calc.capacity.questions.checking import check, say
from calc.capacity.questions.equation_solver import EquationSolver
from calc.capacity.questions.given import keys_of
from calc.capacity.questions.models import QuestionModel, described
from calc.capacity.questions.peak_line import PeakLine
from calc.capacity.questions.problem import SIZES
from calc.capacity.questions.quantities import in_sentence
from calc.capacity.questions.question import QuestionChoice
from calc.capacity.questions.solving import searched, value_of
from calc.dimensions import size_steps
from calc.errors import BadInputError, DimensionError
from calc.options import made
from calc.symbolic import search
from calc.symbolic.worked import WorkedCalculation, WorkedStep
from calc.symbolic.worked import WorkedInput as Put

_MOST = 2**40


@dataclass(frozen=True, slots=True)
class Fit:
    """The largest size that fits, its peak and that of the next size in bytes; ``capped`` names a limit other than memory, if one applies.
    """

    size: int
    peak: int
    form: str
    because: str
    further: int
    next_peak: int | None
    capped: str

    def line(self, symbol: str, size: int) -> WorkedStep:
        at = f"{symbol} = {size:,}" if size else symbol
        because = f"the peak of the step at {at}, {self.because}"
        return WorkedStep("Q", self.form, "bytes", "peak of live bytes of a step", because, Fraction(self.peak))


def _bytes(count: int) -> str:
    """``113,914,864,784 bytes (113.91 GB)``; below a kilobyte ``50 bytes``."""
    exact, short = f"{count:,} bytes", in_sentence(Fraction(count), "bytes")
    return exact if count < 1000 else f"{exact} ({short})"


def filled(model: QuestionModel, dim: str, memory: Fraction) -> Fit:
    """The largest ``dim`` at which the model's step needs at most ``memory`` bytes over all devices."""
    record = model.dimension(dim)
    if record.tied:
        raise BadInputError(f"{dim} cannot be set in {model.name[:40]}: it follows from others")
    first, step = size_steps(record.multiple_of, record.plus, model.all_sizes())
    least = _peak(model, dim, first)
    if least is None or least > memory:
        detail = "" if least is None else f": the step takes {_bytes(least)}, and there are {_bytes(int(memory))}"
        raise BadInputError(f"even {dim} = {first} does not fit{detail}")

    def fits(steps: int) -> bool:
        peak = _peak(model, dim, first + steps * step)
        return peak is not None and peak <= memory

    steps = search.largest(fits, _MOST // step)
    if steps == _MOST // step:
        raise BadInputError(f"the peak of {model.name[:40]} does not grow with {dim}")
    low, high = first + steps * step, first + (steps + 1) * step
    peak_low, form, because = model.peak(**{dim: low})
    peak_high = _peak(model, dim, high)
    return Fit(low, peak_low, form, because, high, peak_high, "" if peak_high is not None else _refusal(model, dim, high))


def _peak(model: QuestionModel, dim: str, size: int) -> int | None:
    """The peak in bytes; None at invalid sizes."""
    try:
        return model.at("memory.peak", **{dim: size})
    except DimensionError:
        return None


def _refusal(model: QuestionModel, dim: str, size: int) -> str:
    try:
        model.at("memory.peak", **{dim: size})
    except DimensionError as error:
        return str(error)
    return ""


class MemorySolver(EquationSolver):
    """Solves a question of memory for a model: the variables are its sizes, the peak of its step replaces the equations."""

    @property
    def choices(self) -> tuple[tuple[QuestionChoice, str], ...]:
        """All choices: the step is derived with the chosen options."""
        return tuple((c, self.chosen[c.key]) for c in self.question.choices)

    def from_model(self) -> None:
        self.chosen = {c.key: self.given.choices.get(c.key, c.default) for c in self.question.choices}
        self.filled = described(self.given.model, self._sizes(), self.progress, made(**self.chosen).to_json())
        self.filled.require_sizes(keys_of(self.question), self.question.name)
        self.inputs.insert(0, Input("model", "", self.filled.name, "", "model", self.filled.source))
        answer = self.question.variable(self.question.answer)
        if self.wanted.symbol not in (answer.symbol, "M"):
            raise BadInputError(f"with a model, {self.question.name} can be solved for {answer.key} or memory")

    def answer(self) -> Answer:
        self.from_model()
        self.from_device()
        self.values.setdefault("n", Fraction(1))
        if self.wanted.symbol == "M":
            fill = Fit(0, *self.filled.peak(), 0, None, "")
        elif "M" in self.values:
            fill = filled(self.filled, self.wanted.symbol, self.values["M"] * self.values["n"])
        else:
            raise self._needs([self.question.variable("M")])
        return self._answered(fill)

    def _answered(self, fill: Fit) -> Answer:
        x, devices = self.wanted, self.values["n"]
        sizes = self.filled.all_sizes(**({x.symbol: fill.size} if fill.size else {}))
        lines = [fill.line(x.symbol if fill.size else "the sizes", fill.size)]
        line = self.filled.peak_line(x.symbol, fill.size) if fill.size else None
        if line is not None:
            lines.append(self._line(line, fill))
        if not fill.size:
            lines.append(WorkedStep("M", "Q/n", "bytes", x.meaning, "evenly divided over the devices", fill.peak / devices))
        value = Fraction(fill.size) if fill.size else fill.peak / devices
        bound = None
        if fill.size and fill.next_peak is not None:
            bound = Bound("memory", "bytes", self.values["M"], fill.peak / devices, fill.further, fill.next_peak / devices)
        self.notes += [f"{x.key} stops here: {fill.capped}"] if fill.capped else []
        say(self, value)
        check(self, {**self.values, "Q": Fraction(fill.peak)})
        puts = [Put(name, Fraction(size), "", self.filled.dimension(name).meaning, self.filled.name) for name, size in sizes.items()]
        puts.append(Put("n", devices, "devices", "devices", "as given"))
        notes = ("the peak of one process that has all the memory: tensors that sharding gathers temporarily are not included",)
        calculation = WorkedCalculation(self.question.name, tuple(puts), tuple(lines))
        return replace(
            self._answer(value, calculation, None if fill.size else f"({fill.form})/n", notes),
            bound=bound,
            rule_of_thumb=None if fill.capped else self._by_rule(sizes),  # its message is about memory only
            also=(FurtherResult("peak of live bytes of the step", Fraction(fill.peak), "bytes", lines[0].because),),
        )

    def _line(self, line: PeakLine, fill: Fit) -> WorkedStep:
        """The same peak in the answer's size alone."""
        symbol = self.wanted.symbol
        because = f"the same with the other sizes as numbers; this is the peak for {line.range(symbol)}"
        return WorkedStep("Q", line.text(symbol), "bytes", "peak of live bytes of a step", because, Fraction(fill.peak))

    def _by_rule(self, sizes: Mapping[str, int]) -> RuleOfThumbAnswer | None:
        """The answer of the equations at the model's sizes; None if a size is missing."""
        names = [name for name in SIZES if name in sizes and name != self.wanted.symbol]
        at = {**self.values, **{name: Fraction(sizes[name]) for name in names}}
        if self.wanted.symbol not in ("L", "d"):
            at["N"] = Fraction(self.filled.at("parameters"))
        value = value_of(self._equations(exact=False), at, self.wanted.symbol)
        if value is None:
            crossing = searched(self._equations(exact=False), at, self.wanted.symbol, "M", "down") if "M" in at else None
            value = crossing.value if crossing is not None else None
        words = "34·B·T·d + 5·B·h·T² a layer, and bytes per parameter"
        return None if value is None else RuleOfThumbAnswer((), Fraction(int(value)), words)

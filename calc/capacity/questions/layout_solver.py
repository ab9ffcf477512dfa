"""Answers a question of sharding for a model exactly, by the account that ``napkin shard`` shows, instead of by even division.

The account shards tensors by rows and includes activations of a micro-batch and gathered temporaries. Deriving needs torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from calc.capacity.questions.answer import Answer, Bound, FurtherResult, Input, RuleOfThumbAnswer
from calc.capacity.questions.checking import say
from calc.capacity.questions.equation_solver import EquationSolver
from calc.capacity.questions.given import WORDS_OF_LAYOUT
from calc.capacity.questions.quantities import in_sentence
from calc.capacity.questions.question import QuestionChoice
from calc.capacity.questions.solving import divisors, value_of
from calc.errors import BadInputError
from calc.symbolic.arithmetic import tidy
from calc.symbolic.expression import Expression, substitute
from calc.symbolic.parser import parse
from calc.symbolic.worked import WorkedCalculation, WorkedStep
from calc.symbolic.writer import as_text

if TYPE_CHECKING:
    from calc.capacity.sharding import Account, ShardedModel, State

_POWERS = 25  # largest exponent of 2 tried as a number of data ranks
_RANKS = {"t": "tensor", "p": "pipeline", "n": "data"}
_RECIPE = ("precision", "optimizer")
_OWN = ("napkin shard MODEL has every other choice of a layout",)


@dataclass(frozen=True, slots=True)
class Steps:
    """A training step to shard: ``batch`` sequences over all devices; if 0, ``micro_batches`` of ``micro`` sequences per rank."""

    model: ShardedModel
    state: State
    zero: int
    micro: int
    micro_batches: int
    batch: int

    def at(self, ranks: Mapping[str, int]) -> Account:
        """The account on these ranks. Raises BadInputError if a condition on the layout fails."""
        from calc.capacity.sharding import Layout, account

        batch = self.batch or ranks["n"] * self.micro * self.micro_batches
        layout = Layout(data=ranks["n"], tensor=ranks["t"], pipeline=ranks["p"], zero=self.zero, micro=self.micro, batch=batch)
        return account(self.model, layout, self.state)

    def tried(self, ranks: Mapping[str, int], symbol: str) -> Iterator[tuple[int, Account]]:
        """Each allowed number of ranks of one kind with its account, ascending. Data ranks are powers of 2 or divisors of the batch."""
        most = self.model.values.get("L" if symbol == "p" else "h", 1)
        data = divisors(self.batch // self.micro) if self.batch else (2**power for power in range(_POWERS))
        for number in data if symbol == "n" else range(1, most + 1):
            try:
                yield number, self.at({**ranks, symbol: number})
            except BadInputError:
                if number == 1:
                    raise


class LayoutSolver(EquationSolver):
    """Solves a question of sharding for a model."""

    @property
    def choices(self) -> tuple[tuple[QuestionChoice, str], ...]:
        """All choices, without their notes: the account includes what the notes list as left out."""
        return tuple((replace(c, notes={}), self.given.choices.get(c.key, c.default)) for c in self.question.choices)

    def answer(self) -> Answer:
        ranks, micro_batches = self._ranks()
        steps = self._steps(micro_batches)
        self.from_device()
        if self.wanted.symbol == "M":
            return self._answered(steps.at(ranks), ranks, None)
        if "M" not in self.values:
            raise self._needs([self.question.variable("M")])
        number, further = self._least(steps, ranks)
        layout = {**ranks, self.wanted.symbol: number}
        bound = None
        if further is not None:
            fewer, memory = further
            bound = Bound("memory", "bytes", self.values["M"], Fraction(steps.at(layout).memory), fewer, Fraction(memory))
        return self._answered(steps.at(layout), layout, bound)

    # -- inputs --------------------------------------------------------------------------------------------------------------------

    def _ranks(self) -> tuple[dict[str, int], int]:
        allowed = {"M", "k", "l", "G", *_RANKS}
        unused = [self.question.variable(name).key for name in self.given.variables if name not in allowed]
        if unused:
            raise BadInputError(f"{', '.join(unused)} follows from model={self.given.model[:40]}: leave it out")
        if self.wanted.symbol not in ("M", *_RANKS):
            raise BadInputError(f"with a model, {self.question.name} can be solved for memory, data, tensor or pipeline")
        ranks = {symbol: int(self.values.get(symbol, 1)) for symbol in _RANKS}
        if "G" in self.values:
            self._divide(ranks)
        return ranks, int(self.values.get("k", 1))

    def _divide(self, ranks: dict[str, int]) -> None:
        """Set the number of data ranks to the number of devices."""
        among, devices = ranks["t"] * ranks["p"], int(self.values["G"])
        if self.wanted.symbol != "M" or ("n" in self.values and ranks["n"] * among != devices):
            raise BadInputError(f"devices = {devices} leaves nothing to solve for, or is not data*tensor*pipeline: leave it out")
        if devices % among:
            raise BadInputError(f"devices = {devices} is not a multiple of {among}, tensor ranks times stages: give one that is")
        ranks["n"] = devices // among

    def _steps(self, micro_batches: int) -> Steps:
        from calc.capacity.sharding.request import read_model

        chosen = {choice.key: name for choice, name in self.choices}
        sizes = {name: str(size) for name, size in self.given.sizes.items() if name not in WORDS_OF_LAYOUT}
        micro, batch = (self.given.sizes.get(word, default) for word, default in (("micro", 1), ("batch", 0)))
        if batch and "k" in self.values:
            raise BadInputError("micro-batches follow from batch, the sequences of a step: leave one of them out")
        model, state = read_model(self.given.model, {**sizes, **{k: chosen[k] for k in _RECIPE}}, micro, self.progress)
        self.inputs.insert(0, Input("model", "", model.name, "", "model", model.source))
        self.notes += model.notes
        self.notes.append(
            f"includes activations of micro-batches of {micro} (micro=… changes that) and the tensors that ZeRO gathers temporarily"
        )
        return Steps(model, state, int(chosen["zero"]), micro, micro_batches, batch)

    # -- the smallest number that fits ---------------------------------------------------------------------------------------------

    def _least(self, steps: Steps, ranks: Mapping[str, int]) -> tuple[int, tuple[int, int] | None]:
        """The fewest ranks that fit, and the next smaller number with its memory in bytes."""
        limit, before = self.values["M"], None
        for number, worked in steps.tried(ranks, self.wanted.symbol):
            if worked.memory <= limit:
                gaps = self.wanted.symbol == "n" and not steps.batch  # the search tries powers of 2 only; numbers in between are possible
                return self._between(steps, ranks, before, number) if gaps and before else (number, before)
            before = (number, worked.memory)
        assert before is not None  # the search always tries one rank
        raise BadInputError(
            f"no number of {self.wanted.meaning} is enough: with {before[0]:,} a device needs"
            f" {in_sentence(Fraction(before[1]), 'bytes')}, and memory = {in_sentence(limit, 'bytes')} is given"
        )

    def _between(self, steps: Steps, ranks: Mapping[str, int], before: tuple[int, int], number: int) -> tuple[int, tuple[int, int]]:
        """Bisect between a number that does not fit and one that does: memory falls as data ranks increase."""
        while number - before[0] > 1:
            middle = (before[0] + number) // 2
            memory = steps.at({**ranks, "n": middle}).memory
            number, before = (middle, before) if memory <= self.values["M"] else (number, (middle, memory))
        return number, before

    # -- the answer ----------------------------------------------------------------------------------------------------------------

    def _answered(self, worked: Account, ranks: Mapping[str, int], bound: Bound | None) -> Answer:
        x, stage = self.wanted, worked.fullest
        value = Fraction(worked.memory if x.symbol == "M" else ranks[x.symbol])
        sent = sum((item.sent for item in stage.traffic), start=Fraction(0))
        also = [FurtherResult("devices, all ranks together", Fraction(worked.layout.devices), "devices", "data*tensor*pipeline")]
        if x.symbol != "M":
            also.append(FurtherResult("memory that a device needs", Fraction(worked.memory), "bytes", f"of the {stage.name} stage"))
        also.append(FurtherResult("bytes that each device sends in a step", sent, "bytes", "all collectives"))
        if "l" in self.values:
            also.append(FurtherResult("time of that traffic", sent / self.values["l"], "s", "bytes over the device's links"))
        say(self, value)
        calculation = WorkedCalculation(self.question.name, stage.calculation.inputs, stage.calculation.steps)
        expr = _closed(stage.calculation.steps) if x.symbol == "M" else None
        return replace(
            self._answer(value, calculation, expr, (*_OWN, self.question.notes[-1])),
            bound=bound,
            rule_of_thumb=self._by_rule(worked, ranks),
            also=tuple(also),
            rows=tuple(_rows(worked)),
            source=self.question.source,
        )

    def _by_rule(self, worked: Account, ranks: Mapping[str, int]) -> RuleOfThumbAnswer | None:
        """The rule of thumb: the state alone, divided evenly, for the model's number of parameters."""
        from calc.capacity.sharding import Layout, account

        parameters = account(worked.model, Layout(), worked.state).fullest.calculation["N"]
        values = {"N": parameters, **{name: Fraction(number) for name, number in ranks.items()}}
        values |= {"M": self.values["M"]} if "M" in self.values else {}
        values.pop(self.wanted.symbol, None)
        value = value_of(self._equations(exact=False), values, self.wanted.symbol)
        if value is None or value <= 0:
            return None
        rounded = value if self.wanted.symbol == "M" else Fraction(-(-value // 1))
        return RuleOfThumbAnswer((), rounded, "state alone, b bytes per parameter, divided evenly")


def _rows(worked: Account) -> Iterator[FurtherResult]:
    """Rows of the memory by kind and the traffic by parallelism."""
    from calc.capacity.sharding.account import by_axis
    from calc.capacity.sharding.memory import WORDS

    for kind, size in worked.fullest.kinds.items():
        yield FurtherResult(WORDS[kind], Fraction(size), "bytes", "on each device")
    for axis, amount in by_axis(worked.fullest.traffic).items():
        yield FurtherResult(f"sent among {axis} ranks", amount, "bytes", "in a step")


def _closed(lines: tuple[WorkedStep, ...]) -> str:
    """The last step as an expression in the inputs."""
    expressions: dict[str, Expression] = {}
    for line in lines:
        expressions[line.symbol] = substitute(parse(line.expr), expressions)
    return as_text(tidy(expressions["M"]))

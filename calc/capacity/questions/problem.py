"""The values of a question: inputs, and those that a device, a model, a choice or a default supplies."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from calc.capacity.questions import devices
from calc.capacity.questions.answer import Input
from calc.capacity.questions.given import QuestionInputs, keys_of
from calc.capacity.questions.question import Equation, Question, QuestionChoice, Variable
from calc.capacity.questions.solving import value_of
from calc.errors import BadInputError, UnknownQuantityError
from calc.hardware.accelerators import DEFAULT_DTYPE
from calc.platform.progress import Progress
from calc.symbolic.parser import free_names

if TYPE_CHECKING:
    from calc.capacity.questions.models import QuestionModel

OPTIONS = ("precision", "optimizer")  # choices that set options of the traced step
FORMAT = "weights"  # the choice that sets the format of the weights in inference
SIZES = ("B", "T", "L", "d", "h", "V")


class Problem:
    """A question with its ``values``, the ``inputs`` they came from, and its active equations."""

    def __init__(self, question: Question, given: QuestionInputs, progress: Progress, device: devices.Device | None = None) -> None:
        self.question, self.given, self.progress = question, given, progress
        self.wanted = question.variable(given.solve or question.answer)
        self.values = {symbol: parsed.value for symbol, parsed in given.variables.items()}
        self.inputs = [self._typed(variable) for variable in question.variables if variable.symbol in self.values]
        self.flags: list[str] = []
        self.notes: list[str] = []
        self.also = question.also
        self.model: QuestionModel | None = None
        self.device = device or devices.device(given.device)
        self.used_of_device: set[str] = set()
        self.equations = self._equations(exact=True)

    def _typed(self, variable: Variable) -> Input:
        return Input(variable.key, variable.symbol, self.values[variable.symbol], variable.unit, variable.meaning, "as given")

    # -- the system ----------------------------------------------------------------------------------------------------------------

    def _equations(self, *, exact: bool) -> tuple[Equation, ...]:
        """Active equations of the question and its choices; a model's exact equations replace a rule of thumb."""
        equations: dict[str, Equation] = {}
        for choice in self.question.choices:
            equations |= {e.symbol: e for e in choice.options[self.given.choices.get(choice.key, choice.default)]}
        equations |= {e.symbol: e for e in self.question.equations}
        if exact and self._counts_exactly():
            equations |= {e.symbol: e for e in self.question.with_model}
        for name, instead in self.question.with_given.items():
            if name in self.given.variables or name == self.wanted.symbol:
                equations |= {e.symbol: e for e in instead}
        constant = {name for name, e in equations.items() if not free_names(e.expr)}
        while True:  # inputs replace values that follow from constants alone
            further = {name for name, e in equations.items() if free_names(e.expr) <= constant} - constant
            if not further:
                break
            constant |= further
        return tuple(e for name, e in equations.items() if not (name in constant and (name in self.values or name == self.wanted.symbol)))

    def _counts_exactly(self) -> bool:
        """Whether the inputs of the exact equations are available: the model, or the number itself."""
        if self.given.model:
            return True
        plain = {name for e in self.question.equations for name in (e.symbol, *free_names(e.expr))}
        special = {name for e in self.question.with_model for name in free_names(e.expr)} - plain
        return bool(special) and special <= self.values.keys() | {self.given.solve}

    @property
    def choices(self) -> tuple[tuple[QuestionChoice, str], ...]:
        """The choices that affect the answer, each with the chosen option: by an active equation in which a value is open, or by the
        options of the traced step."""
        chosen = ((c, self.given.choices.get(c.key, c.default)) for c in self.question.choices)
        open_ = self.part - self.values.keys()

        def counts(choice: QuestionChoice, name: str) -> bool:
            of_model = bool(self.given.model) and choice.key in (*OPTIONS, FORMAT)
            return of_model or any(e in self.equations and open_ & {e.symbol, *free_names(e.expr)} for e in choice.options[name])

        return tuple((c, name) for c, name in chosen if counts(c, name))

    @property
    def part(self) -> set[str]:
        """Variables that the answer or an additional result may depend on, stopping at those with a value."""
        groups = [{e.symbol, *free_names(e.expr)} for e in self.equations]
        symbols: set[str] = {self.wanted.symbol, *self.also}
        while True:
            open_ = symbols - self.values.keys()
            connected = {name for group in groups if group & open_ for name in group}
            if connected <= symbols:
                return symbols
            symbols |= connected

    # -- sources -------------------------------------------------------------------------------------------------------------------

    def from_model(self) -> None:
        if not self.given.model:
            return
        from calc.capacity.questions.models import described
        from calc.options import made

        chosen = {c.key: self.given.choices.get(c.key, c.default) for c in self.question.choices if c.key in OPTIONS}
        options = made(**chosen).to_json() if chosen else None
        formats = [self.given.choices.get(c.key, c.default) for c in self.question.choices if c.key == FORMAT]
        described_by = described(self.given.model, self._sizes(), self.progress, options, *formats)
        self.model = described_by
        described_by.require_sizes(keys_of(self.question), self.question.name)
        for variable in self.question.variables:
            if variable.model and variable.symbol not in self.values and variable is not self.wanted:
                try:
                    self._put(variable, *described_by.gives(variable.model))
                except UnknownQuantityError as error:  # the answer may not need it
                    self.notes.append(str(error))
        if self.wanted.model:
            raise BadInputError(f"{self.wanted.key} follows from model={self.given.model[:40]}: leave the model out to solve for it")
        self.inputs.insert(0, Input("model", "", described_by.name, "", "model", described_by.source))
        self.notes += described_by.notes

    def _sizes(self) -> dict[str, int]:
        """Sizes given for the model, including those that are variables of the question."""
        own = {name: int(self.values[name]) for name in SIZES if name in self.values and self.wanted.symbol != name}
        return {**own, **self.given.sizes}

    def from_device(self) -> None:
        if self.device is None:
            if self.given.device and "peak" not in {x.device for x in self.question.variables if x.symbol in self.values}:
                raise BadInputError(f"{', '.join(self.given.device)} selects a rate of a device: give gpu=… as well")
            self._item_of_dtype()
            return
        for variable in self.question.variables:
            if variable.device and variable.symbol not in self.values and variable is not self.wanted and variable.symbol in self.part:
                value, meaning, source = devices.of_device(self.device, variable)
                self._put(variable, value, meaning, source)
                self.used_of_device.add(variable.device)
        compared = self.wanted.device == "memory" or any(x.device and x.symbol in self.given.variables for x in self.question.variables)
        if not self.used_of_device and not compared:
            name = self.device.accelerator.id
            raise BadInputError(f"gpu={name} is not used: what it supplies is given or solved for; leave it out")

    def _item_of_dtype(self) -> None:
        """Without a device, the format of a given peak still decides the bytes of an element."""
        dtype = self.given.device.get("dtype", "")
        for variable in self.question.variables:
            if dtype and variable.device == "item" and variable.symbol not in self.values and variable is not self.wanted:
                self._put(variable, devices.item_bytes(dtype), f"{variable.meaning} in {dtype}", "its bits over 8")

    def defaults(self) -> None:
        """Add defaults: of each variable that the answer depends on and nothing else determines."""
        for variable in self.question.variables:
            if all(self._reached(x) for x in (self.wanted.symbol, *self.question.also)):
                return
            open_ = variable.default and variable.symbol not in self.values and variable is not self.wanted and variable.symbol in self.part
            if open_ and (variable.firm or not self._reached(variable.symbol)):
                self._assume(variable)

    def _reached(self, symbol: str) -> bool:
        return value_of(self.equations, self.values, symbol) is not None

    def _assume(self, variable: Variable) -> None:
        self._put(variable, Fraction(variable.default), variable.meaning, f"ASSUMPTION: {variable.because}")

    def _put(self, variable: Variable, value: Fraction, meaning: str, source: str) -> None:
        self.values[variable.symbol] = value
        self.inputs.append(Input(variable.key, variable.symbol, value, variable.unit, meaning, source))

    def check_peak(self) -> None:
        for variable in self.question.variables:
            if variable.device == "peak" and variable.symbol in self.given.variables:
                dtype = self.given.device.get("dtype", DEFAULT_DTYPE)
                of = None if self.device is None else self.device.accelerator
                wrong = devices.wrongly_dense(self.values[variable.symbol], dtype, of)
                if wrong and of is not None:
                    raise BadInputError(
                        f"{wrong}: give the one that is meant, or say gpu={of.id} without a peak, with dtype=… and sparse=yes"
                    )
                message = (
                    f"{wrong}: was that one meant?"
                    if wrong
                    else ""
                    if of is None
                    else devices.other_peak(self.values[variable.symbol], dtype, of)
                )
                self.flags += [message] if message else []

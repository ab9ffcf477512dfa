"""Answers a question: collects the values from the inputs, the device, the model and the choices, then solves for the wanted variable."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from calc.capacity.questions.answer import Answer, Bound, FurtherResult, Input, RuleOfThumbAnswer
from calc.capacity.questions.checking import check, flag_beyond, flag_experts, require_all_used, say
from calc.capacity.questions.devices import Device
from calc.capacity.questions.given import QuestionInputs, UnknownKeysError, example, sort
from calc.capacity.questions.problem import SIZES, Problem
from calc.capacity.questions.quantities import in_sentence
from calc.capacity.questions.question import Question, Variable
from calc.capacity.questions.registry import question, taking
from calc.capacity.questions.solving import Crossing, System, divisors, same, searched, to_safe_side, value_of
from calc.capacity.questions.values import Typed
from calc.errors import BadInputError, listed, needs
from calc.platform.progress import Progress
from calc.symbolic.arithmetic import tidy
from calc.symbolic.assignments import read_assignments
from calc.symbolic.exact import holds
from calc.symbolic.expression import Expression, substitute
from calc.symbolic.parser import free_names, parse
from calc.symbolic.worked import WorkedCalculation, WorkedStep
from calc.symbolic.worked import WorkedInput as Put
from calc.symbolic.writer import as_text

_ENDLESS = 10**12  # practically infinite, for a count
_MOST_ROUNDS = 4  # of inputs that turn out to be missing


class MissingInputError(BadInputError):
    """An answer needs further inputs; ``example`` has values for them as they are typed, empty where one of them has none."""

    def __init__(self, message: str, example: str) -> None:
        super().__init__(message)
        self.example = example


def ask(name: str, /, *, progress: Progress = lambda _: None, **given: Typed) -> Answer:
    """The answer to a question by name. ``given`` are its keys (``parameters=70e9``, ``gpu="h100-sxm"``); ``solve="gpus"`` solves for it.

    Raises BadInputError if a number is invalid, an input is missing, or the equations have no solution.
    """
    return answered(question(name), given, progress)


def example_inputs(question: Question) -> dict[str, str]:
    """Inputs that the question can be answered with, as they are typed."""
    typed: dict[str, str] = {}
    for _ in range(_MOST_ROUNDS):
        try:
            answered(question, typed)
            break
        except MissingInputError as error:
            typed |= read_assignments(error.example.split(), "KEY=VALUE")
    return typed


def answered(question: Question, given: Mapping[str, Typed], progress: Progress = lambda _: None, device: Device | None = None) -> Answer:
    """The answer to ``question``; ``device`` is one outside the catalogue."""
    sorted_input = _sorted(question, given)
    if sorted_input.model and question.fills:
        from calc.capacity.questions.memory_solver import MemorySolver

        return MemorySolver(question, sorted_input, progress, device).answer()
    if sorted_input.model and question.laid:
        from calc.capacity.questions.layout_solver import LayoutSolver

        return LayoutSolver(question, sorted_input, progress, device).answer()
    return EquationSolver(question, sorted_input, progress, device).answer()


def _sorted(question: Question, given: Mapping[str, Typed]) -> QuestionInputs:
    """The inputs by kind. The error about unknown keys names the related questions that have all of the keys."""
    try:
        return sort(question, given)
    except UnknownKeysError as error:
        related = taking(given, question)
        if not related or question.name in related:
            raise
        raise BadInputError(f"{error}. All given keys are keys of {listed(related)}") from None


class EquationSolver(Problem):
    """Solves one question by its equations."""

    # -- the answer ----------------------------------------------------------------------------------------------------------------

    def answer(self) -> Answer:
        self.from_model()
        self.from_device()
        self.check_peak()
        self.defaults()
        check(self, self.values)
        system, crossing = self._solved()
        x = self.wanted
        real = system.values[x.symbol]
        value, bound = self._rounded(real, crossing)
        exact = (x.symbol not in system.rounded and crossing is None) or value.denominator == 1
        everything = self._everything(value, rounded=value != real, exact=exact)
        self.also = tuple(name for name in self.also if name in everything.values)
        require_all_used(self, system, everything)
        check(self, everything.values)
        expr = None if crossing is not None else self._closed(system)
        meanings = {y.symbol: (_plain(y.unit), y.meaning) for y in self.question.variables}
        lines = system.lines((x.symbol,), meanings)
        lines = lines if lines else (self._searched_line(crossing, real),)
        shown = {line.symbol: line.value for line in lines} | {x.symbol: value}
        beside = (y for y in everything.lines(self.also, meanings) if not same(shown.get(y.symbol, Fraction(-1)), y.value))
        say(self, value)
        flag_experts(self, value)
        flag_beyond(self, value)
        further = (name for name in self.also if name not in {x.symbol, *self.given.variables})
        notes = (*self.question.notes, *(() if self.given.model else self.question.notes_without_model))
        return replace(
            self._answer(value, WorkedCalculation(self.question.name, self._puts(), lines), expr, notes),
            exact=exact,
            unrounded=real,
            bound=bound,
            rule_of_thumb=self._rule_of_thumb(),
            also=tuple(self._row(name, everything) for name in further),
            beside=tuple(beside),
            rows=self._rows(everything.values),
            source=self.question.source,
        )

    def _answer(self, value: Fraction, calculation: WorkedCalculation, expr: str | None, notes: Sequence[str]) -> Answer:
        """The answer with its inputs, flags and notes; ``notes`` are additional ones."""
        x, question, every = self.wanted, self.question, (*self.notes, *notes)
        of_question = (question.name, question.summary, x.key, x.symbol, value, x.unit, x.meaning)
        return Answer(*of_question, expr, value, self._all_inputs(), replace(calculation, notes=every), tuple(self.flags), every)

    def _everything(self, value: Fraction, *, rounded: bool, exact: bool) -> System:
        """The system with the answer, solved for every variable that follows from it.

        A rounded answer no longer meets its limit exactly: nothing may be rearranged from the limit then, which is put back at the end.
        """
        x, follows = self.wanted.symbol, {e.symbol for e in self.equations}
        limit = next((name for name in (self._goal(), self.question.limit) if rounded and name in follows), "")
        values = {name: of for name, of in self.values.items() if name != limit}
        everything = System(self.equations, {**values, x: value}, [], set() if exact else {x})
        for variable in self.question.variables:
            everything.reach(variable.symbol)
        everything.values |= self.values
        return everything

    def _solved(self) -> tuple[System, Crossing | None]:
        """The system solved for the wanted variable: step by step, by substitution, or by search."""
        system = System.of(self.equations, self.values)
        target = self.wanted.symbol
        if system.reach(target) or system.through(target):
            return system, None
        goal = self._searched_for()
        crossing = searched(self.equations, self.values, target, goal, self.wanted.rounding, self._allowed) if goal else None
        if crossing is None:
            raise self._unsolved(system, goal)
        system.values[target] = crossing.value
        return system, crossing

    def _searched_for(self) -> str:
        """The given variable that a search matches: the limit of the question, else the first that an equation defines."""
        candidates = [e.symbol for e in self.equations if e.symbol in self.values]
        return next(
            (x for x in candidates if x == self.question.limit and self.wanted.symbol == self.question.answer), *candidates[:1] or ("",)
        )

    def _allowed(self, values: Mapping[str, Fraction]) -> bool:
        """Whether the values satisfy the mandatory conditions."""
        conditions = (c.holds for c in self.question.conditions if c.refuse and free_names(c.holds) <= values.keys())
        return all(holds(text, values) for text in conditions)  # type: ignore[arg-type]  # fractions compare as integers do

    def _unsolved(self, system: System, goal: str) -> BadInputError:
        """The error: the missing inputs, or that the equations have no solution."""
        missing = self._missing(system)
        return self._needs(missing) if missing else BadInputError(self._without_solution(goal))

    def _without_solution(self, goal: str) -> str:
        if not goal:
            return f"{self.question.name}: {self.wanted.key} cannot be computed from the given values"
        limit = self.question.variable(goal)
        if self.wanted.rounding == "up" and (never := self._never(goal)):
            return never
        least = self._goal_at(goal, 1) if self.wanted.rounding == "down" else None
        if least is not None and least > self.values[goal]:
            return self._none_fits(goal)
        return (
            f"no {self.wanted.key} gives {limit.key} = {in_sentence(self.values[goal], limit.unit)} with the rest as it is: either"
            f" {limit.key} does not depend on {self.wanted.key}, or even the least one goes beyond"
        )

    def _never(self, goal: str) -> str:
        """Why no number is large enough; empty if one might be."""
        first, last, limit = self._goal_at(goal, 1), self._goal_at(goal, _ENDLESS), self.question.variable(goal)
        if first is None or last is None or last <= self.values[goal] or last > first:
            return ""
        limit_text = f"and {limit.key} = {in_sentence(self.values[goal], limit.unit)} is given"
        if first == last:
            return f"{limit.key} is {in_sentence(first, limit.unit)} with any number of {self.wanted.meaning}, {limit_text}"
        least = in_sentence(Fraction(math.floor(last)) if last > 1 else last, limit.unit)
        return f"no number of {self.wanted.meaning} is enough: {limit.key} stays above {least}, {limit_text}"

    def _missing(self, system: System) -> list[Variable]:
        """The variables without a value that the wanted one needs: what it follows from, or else what a given variable, the limit or the
        answer of the question follows from."""
        x, by = self.wanted, {e.symbol: free_names(e.expr) for e in self.equations}
        counterpart = self.question.answer if x.symbol != self.question.answer else self.question.limit
        followers = {name for name in self.values if name in by and x.symbol in self._reaching({name}, by)}
        roots = {x.symbol} if x.symbol in by else {x.symbol} | (followers or {counterpart} - {""})
        reachable = self._reaching(roots, by)
        return [
            y
            for y in self.question.variables
            if y is not x and y.symbol in reachable and y.symbol not in system.values and (y.symbol not in by or y.symbol in roots)
        ]

    def _reaching(self, roots: set[str], by: Mapping[str, Collection[str]]) -> set[str]:
        """``roots`` and all variables that they follow from, not through one that has a value."""
        reached: set[str] = set()
        waiting = set(roots)
        while waiting:
            name = waiting.pop()
            reached.add(name)
            if name in roots or name not in self.values:
                waiting |= set(by.get(name, ())) - reached
        return reached

    def _needs(self, missing: Sequence[Variable]) -> MissingInputError:
        """The error for ``missing``, with values that work for an example."""
        typed = example(self.question, missing)
        inputs = [self._asked_for(variable) for variable in missing]
        sizes = [place for place, variable in enumerate(missing) if variable.symbol in SIZES]
        if sizes and self.question.fills and not self.given.model:
            last = inputs[sizes[-1]].removesuffix(")")
            inputs[sizes[-1]] = f"{last}{'; ' if '(' in last else ' ('}model=… gives all sizes)"
        return MissingInputError(needs(self.question.name, inputs, typed), typed)

    def _asked_for(self, variable: Variable) -> str:
        ways = [w for w, allowed in (("gpu=…", variable.device), ("model=…", variable.model)) if allowed]
        said = [] if variable.meaning.lower() == variable.key.replace("-", " ") else [variable.meaning]
        note = ", ".join([*said, *([f"or {' or '.join(ways)}"] if ways else [])])
        return f"{variable.key} ({note})" if note else variable.key

    def _rounded(self, real: Fraction, crossing: Crossing | None) -> tuple[Fraction, Bound | None]:
        """The answer rounded to the safe side, and its limit."""
        x = self.wanted
        if not x.rounding:
            return real, None
        if crossing is None:
            number, rounded_up = to_safe_side(real, self._side(real))
            if rounded_up:
                self.notes.append(f"{x.key} is within 10⁻¹⁴ of {number:,} and is rounded to it: a printed double has no more digits")
        else:
            number = int(crossing.value)
        goal, (number, above) = self._goal(), self._whole_parts(number)
        if number < 1:
            raise BadInputError(self._none_fits(goal))
        if not goal or goal not in self.values:
            return Fraction(number), None
        further = number - 1 if number > real or x.rounding == "up" else above
        return Fraction(number), self._bound(goal, number, further)

    def _whole_parts(self, number: int) -> tuple[int, int]:
        """The answer rounded down to a multiple (e.g. a width to a multiple of its heads), and the next multiple (0: none)."""
        x, answer = self.wanted, self.question.variable(self.question.answer)
        if x is answer and x.multiple_of in self.values:
            part, of = int(self.values[x.multiple_of]), self.question.variable(x.multiple_of)
            below, above, description = number - number % part, number - number % part + part, f"a multiple of the {part:,} {of.unit}"
        elif x.symbol == answer.multiple_of and 0 < self.values.get(answer.symbol, 0) < _ENDLESS:
            all_parts = divisors(int(self.values[answer.symbol]))
            below = max((n for n in all_parts if n <= number), default=0)
            above, description = next((n for n in all_parts if n > number), 0), f"a divisor of {answer.key}"
        else:
            return number, number + 1
        if below != number:
            self.notes.append(f"{x.key} is rounded down from {number:,} to {description}")
        return below, above

    def _side(self, real: Fraction) -> str:
        """The side on which valid answers lie: at most the given devices or steps, at least the given tokens."""
        goal = self.question.variable(self._goal()).rounding if self._goal() in self.values else ""
        reached = self._goal_at(self._goal(), math.ceil(real)) if goal and self.wanted.symbol != self.question.answer else None
        if reached is None:
            return self.wanted.rounding
        limit = self.values[self._goal()]
        above = reached <= limit if goal == "up" else reached >= limit
        return "up" if above and (real < 1 or self.wanted.rounding == "up" or not self._keeps(goal, math.floor(real))) else "down"

    def _keeps(self, goal: str, number: int) -> bool:
        reached, limit = self._goal_at(self._goal(), number), self.values[self._goal()]
        return reached is not None and (reached <= limit if goal == "up" else reached >= limit)

    def _goal(self) -> str:
        """The variable that bounds a rounded answer: the given answer, or the limit that the question names."""
        if self.wanted.symbol == self.question.answer:
            return self.question.limit
        if self.question.answer in self.values:
            return self.question.answer
        return next((e.symbol for e in self.equations if e.symbol in self.values), "")

    def _bound(self, goal: str, number: int, further: int) -> Bound | None:
        limit = self.question.variable(goal)
        reached, beyond = self._goal_at(goal, number), self._goal_at(goal, further) if further else None
        if reached is None or beyond is None:
            return None
        return Bound(limit.key, limit.unit, self.values[goal], reached, further, beyond)

    def _goal_at(self, goal: str, number: int) -> Fraction | None:
        inputs = {name: value for name, value in self.values.items() if name != goal}
        return value_of(self.equations, {**inputs, self.wanted.symbol: Fraction(number)}, goal)

    def _none_fits(self, goal: str) -> str:
        x = self.wanted
        least = self._goal_at(goal, 1) if goal in self.values else None
        if least is None:
            return f"not even one of the {x.unit} fits: {x.key} would be less than 1"
        limit = self.question.variable(goal)
        inputs = {name: value for name, value in self.values.items() if name != goal}
        state = next((value_of(self.equations, inputs, y.symbol) for y in self.question.variables if y.key == "state"), None)
        alone = "" if state is None else f", of which the training state alone takes {in_sentence(state, 'bytes')},"
        return (
            f"not even one of the {x.unit} fits: {x.key} = 1 takes {limit.key} = {in_sentence(least, limit.unit)}{alone or ','}"
            f" and there are {in_sentence(self.values[goal], limit.unit)}"
        )

    def _rule_of_thumb(self) -> RuleOfThumbAnswer | None:
        """The answer by the rule of thumb, if the answer uses the exact counts of the model."""
        if not (self.given.model and self.question.with_model) or self.question.with_given.keys() & self.given.variables.keys():
            return None
        plain = self._equations(exact=False)
        value = value_of(plain, self.values, self.wanted.symbol)
        if value is None:
            return None
        if self.wanted.rounding:
            value = Fraction(to_safe_side(value, self.wanted.rounding)[0])
        replaced = {e.symbol for e in self.question.with_model}
        return RuleOfThumbAnswer(tuple(e for e in plain if e.symbol in replaced), value)

    def _closed(self, system: System) -> str:
        """The answer as an expression in the inputs."""
        expressions: dict[str, Expression] = {}
        for equation, _ in system.steps:
            expressions[equation.symbol] = substitute(parse(equation.expr), expressions)
        return as_text(tidy(expressions[self.wanted.symbol]))

    def _searched_line(self, crossing: Crossing | None, real: Fraction) -> WorkedStep:
        x = self.wanted
        assert crossing is not None
        goal = self._searched_for()
        limit = self.question.variable(goal)
        because = (
            f"by search: {limit.key} is {_digits(crossing.at[0])} at {_digits(crossing.value)} and"
            f" {_digits(crossing.at[1])} at {_digits(crossing.beyond)},"
            f" on the other side of {_digits(self.values[goal])}"
        )
        return WorkedStep(x.symbol, x.symbol, x.unit, x.meaning, because, real, exact=bool(x.rounding))

    def _all_inputs(self) -> tuple[Input, ...]:
        shown = list(self.inputs)
        if self.device is not None:
            shown.append(Input("gpu", "", self.device.accelerator.id, "", self.device.accelerator.name, "catalogue"))
            if "peak" in self.used_of_device:
                how = "as given" if self.device.dtype_given else "ASSUMPTION: default"
                shown.append(Input("dtype", "", self.device.dtype, "", "dtype of the matmuls, dense", how))
        for choice, chosen in self.choices:
            how = "as given" if choice.key in self.given.choices else "ASSUMPTION: default"
            shown.append(Input(choice.key, "", chosen, "", choice.meaning, how))
        return tuple(shown)

    def _puts(self) -> tuple[Put, ...]:
        return tuple(Put(i.symbol, i.value, _plain(i.unit), i.meaning, i.source) for i in self.inputs if isinstance(i.value, Fraction))

    def _rows(self, values: Mapping[str, Fraction]) -> tuple[FurtherResult, ...]:
        """The rows of the table; empty unless all that it needs has values."""
        table = self.question.table
        return tuple(table.rows(values, self.model)) if table is not None and table.needs <= values.keys() else ()

    def _row(self, name: str, system: System) -> FurtherResult:
        variable = self.question.variable(name)
        because: Sequence[str] = [e.because for e in self.equations if e.symbol == name]
        return FurtherResult(variable.meaning, system.values[name], variable.unit, "".join(because[:1]), name not in system.rounded)


def _digits(value: Fraction) -> str:
    """A number beside one that differs little: six digits; whole numbers up to 15 digits in full."""
    return f"{int(value):,}" if value.denominator == 1 and abs(value) < 10**15 else f"{float(value):.6g}"


def _plain(unit: str) -> str:
    """A unit as shown: empty for a share."""
    return "1" if unit == "share" else unit

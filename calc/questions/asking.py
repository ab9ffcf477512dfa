"""Asking a question: what is given and what a device, a model or a choice gives, then the way to the letter that is wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from calc.arithmetic import letters, parsed, substituted, tidy, written
from calc.errors import BadInputError
from calc.exact import holds
from calc.hardware import DEFAULT_DTYPE
from calc.questions import devices
from calc.questions.answer import Answer, Bound, Input, Row, Thumb
from calc.questions.given import Given, sort
from calc.questions.question import Equation, Letter, Question
from calc.questions.registry import question
from calc.questions.solving import Found, System, searched, to_safe_side, value_of
from calc.questions.values import Typed
from calc.reckoning import Given as Put
from calc.reckoning import Line, Reckoning


def ask(name: str, /, **given: Typed) -> Answer:
    """The answer to a question by name. ``given`` are its keys (``parameters=70e9``, ``gpu="h100-sxm"``); ``solve="gpus"`` turns it round.

    Raises BadInputError where a number makes no sense, something is missing, or nothing solves it.
    """
    return answered(question(name), given)


def answered(asked: Question, given: Mapping[str, Typed]) -> Answer:
    """The answer to a question that is at hand."""
    return _Asking(asked, sort(asked, given)).answer()


class _Asking:
    """One question on its way to an answer."""

    def __init__(self, asked: Question, given: Given) -> None:
        self.question, self.given = asked, given
        self.wanted = asked.letter(given.solve or asked.answer)
        self.known = {letter: got.value for letter, got in given.letters.items()}
        self.inputs = [self._typed(letter) for letter in asked.letters if letter.letter in self.known]
        self.flags: list[str] = []
        self.notes: list[str] = []
        self.device = devices.device(given.device)
        self.used_of_device: set[str] = set()
        self.equations = self._equations(exact=True)

    def _typed(self, letter: Letter) -> Input:
        return Input(letter.key, letter.letter, self.known[letter.letter], letter.unit, letter.meaning, "as asked")

    # -- the system ----------------------------------------------------------------------------------------------------------------

    def _equations(self, *, exact: bool) -> tuple[Equation, ...]:
        """Those of the question, of its choices, and of a model in place of a rule of thumb."""
        found = {e.letter: e for e in self.question.equations}
        for choice in self.question.choices:
            found |= {e.letter: e for e in choice.options[self.given.choices.get(choice.key, choice.default)]}
        if exact and self._counts_exactly():
            found |= {e.letter: e for e in self.question.with_model}
        constant = {name for name, e in found.items() if not letters(parsed(e.expr))}
        while True:  # what follows from constants alone gives way to what is given
            more = {name for name, e in found.items() if letters(parsed(e.expr)) <= constant} - constant
            if not more:
                break
            constant |= more
        return tuple(e for name, e in found.items() if not (name in constant and name in self.known))

    def _counts_exactly(self) -> bool:
        """Whether what only a model's equations need is there: the model, or the number itself."""
        if self.given.model:
            return True
        plain = {name for e in self.question.equations for name in (e.letter, *letters(parsed(e.expr)))}
        special = {name for e in self.question.with_model for name in letters(parsed(e.expr))} - plain
        return bool(special) and special <= self.known.keys() | {self.given.solve}

    # -- sources -------------------------------------------------------------------------------------------------------------------

    def _from_model(self) -> None:
        if not self.given.model:
            return
        from calc.questions.models import described

        described_by = described(self.given.model, self._sizes())
        for letter in self.question.letters:
            if letter.model and letter.letter not in self.known and letter is not self.wanted:
                value, meaning, source = described_by.gives(letter.model)
                self._put(letter, value, meaning, source)
        if self.wanted.model:
            raise BadInputError(f"{self.wanted.key} is what model={self.given.model[:40]} gives: leave the model out to solve for it")
        self.inputs.insert(0, Input("model", "", described_by.name, "", "model", described_by.source))
        self.notes += described_by.notes

    def _sizes(self) -> dict[str, int]:
        """Dimensions that were given for the model, those among the question's own letters too."""
        own = {name: int(self.known[name]) for name in ("B", "T", "L") if name in self.known and self.wanted.letter != name}
        return {**own, **self.given.sizes}

    def _from_device(self) -> None:
        if self.device is None:
            if self.given.device and "peak" not in {x.device for x in self.question.letters if x.letter in self.known}:
                raise BadInputError(f"{', '.join(self.given.device)} says which rate of a device: give gpu=… as well")
            return
        for letter in self.question.letters:
            if letter.device and letter.letter not in self.known and letter is not self.wanted and self._has_part(letter):
                value, meaning, source = devices.of_device(self.device, letter)
                self._put(letter, value, meaning, source)
                self.used_of_device.add(letter.device)
        if not self.used_of_device and not any(x.device and x.letter in self.given.letters for x in self.question.letters):
            raise BadInputError(f"gpu={self.device.found.id} has no part in this: what it would give is given, or asked for; leave it out")

    def _has_part(self, letter: Letter) -> bool:
        return any(letter.letter in (e.letter, *letters(parsed(e.expr))) for e in self.equations)

    def _defaults(self) -> None:
        for letter in self.question.letters:
            open_ = letter.default and letter.letter not in self.known and letter is not self.wanted and self._has_part(letter)
            if open_ and value_of(self.equations, self.known, letter.letter) is None:
                self._put(letter, Fraction(letter.default), letter.meaning, f"ASSUMPTION: {letter.because}")

    def _put(self, letter: Letter, value: Fraction, meaning: str, source: str) -> None:
        self.known[letter.letter] = value
        self.inputs.append(Input(letter.key, letter.letter, value, letter.unit, meaning, source))

    # -- the answer ----------------------------------------------------------------------------------------------------------------

    def answer(self) -> Answer:
        self._from_model()
        self._from_device()
        self._check_peak()
        self._defaults()
        system, found = self._solved()
        x = self.wanted
        real = system.values[x.letter]
        value, bound = self._rounded(real, found)
        everything = System.of(self.equations, {**self.known, x.letter: value})
        for letter in self.question.letters:
            everything.reach(letter.letter)
        self._require_all_used(system)
        self._check(everything.values)
        expr = None if found is not None else self._closed(system)
        lines = system.lines(x.letter, {y.letter: (y.unit, y.meaning) for y in self.question.letters})
        lines = lines if lines else (self._searched_line(found, real),)
        self._say(value)
        return Answer(
            question=self.question.name,
            summary=self.question.summary,
            key=x.key,
            letter=x.letter,
            value=value,
            unit=x.unit,
            meaning=x.meaning,
            expr=expr,
            exact=(x.letter not in system.rounded and found is None) or value.denominator == 1,
            unrounded=real,
            inputs=self._all_inputs(),
            reckoning=Reckoning(self.question.name, self._puts(), lines, tuple(self.notes)),
            bound=bound,
            thumb=self._thumb(value),
            also=tuple(
                self._row(name, everything.values[name]) for name in self.question.also if name != x.letter and name in everything.values
            ),
            rows=tuple(self.question.table(everything.values)) if self.question.table else (),
            flags=tuple(self.flags),
            notes=(*self.notes, *self.question.notes),
            source=self.question.source,
        )

    def _solved(self) -> tuple[System, Found | None]:
        """The system with the wanted letter known: by steps, by putting lines together, or by search."""
        system = System.of(self.equations, self.known)
        wanted = self.wanted.letter
        if system.reach(wanted) or system.through(wanted):
            return system, None
        goal = next((e.letter for e in self.equations if e.letter in self.known), "")
        found = searched(self.equations, self.known, wanted, goal, self.wanted.whole) if goal else None
        if found is None:
            raise BadInputError(self._unsolved(system, goal))
        system.values[wanted] = found.value
        return system, found

    def _unsolved(self, system: System, goal: str) -> str:
        """What is missing; or that nothing solves it."""
        missing = self._missing(system)
        if missing:
            return f"{self.question.name} needs {', '.join(missing)} as well"
        if not goal:
            return f"{self.question.name}: {self.wanted.key} cannot be found from what is given"
        limit = self.question.letter(goal)
        return (
            f"no {self.wanted.key} gives {limit.key} = {_short(self.known[goal])} {limit.unit} with the rest as it is: either"
            f" {limit.key} does not depend on {self.wanted.key}, or even the least one goes beyond"
        )

    def _missing(self, system: System) -> list[str]:
        """Letters that nothing gives and no equation leads to, and that the wanted one hangs on."""
        by = {e.letter: letters(parsed(e.expr)) for e in self.equations}
        start = {self.wanted.letter, *(name for name in self.known if name in by)}
        seen: set[str] = set()
        while start - seen:
            name = (start - seen).pop()
            seen.add(name)
            start |= by.get(name, set())
        loose = [x for x in self.question.letters if x.letter in seen and x.letter not in system.values and x.letter not in by]
        loose = [x for x in loose if x is not self.wanted]
        if not loose and self.wanted.letter not in by:
            loose = [self.question.letter(self.question.answer)]
        return [self._asked_for(x) for x in loose]

    def _asked_for(self, letter: Letter) -> str:
        ways = [w for w, there in (("gpu=…", letter.device), ("model=…", letter.model)) if there]
        return f"{letter.key} ({letter.meaning}{', or ' + ' or '.join(ways) if ways else ''})"

    def _rounded(self, real: Fraction, found: Found | None) -> tuple[Fraction, Bound | None]:
        """A whole number to the safe side, and the limit that it keeps to."""
        x = self.wanted
        if not x.whole:
            return real, None
        if found is None:
            whole, taken = to_safe_side(real, x.whole)
            if taken:
                self.notes.append(f"{x.key} comes out within 10⁻¹⁴ of {whole:,}, which is taken: the digits of a printed number end there")
        else:
            whole = int(found.value)
        goal = self.question.answer if x.letter != self.question.answer else self.question.limit
        if not goal or goal not in self.known:
            goal = next((e.letter for e in self.equations if e.letter in self.known), goal)
        if whole < 1:
            raise BadInputError(self._none_fits(goal))
        if not goal or goal not in self.known or real == whole == found:
            return Fraction(whole), None
        further = whole - 1 if x.whole == "up" else whole + 1
        return Fraction(whole), self._bound(goal, whole, further)

    def _bound(self, goal: str, whole: int, further: int) -> Bound | None:
        limit = self.question.letter(goal)
        here, there = self._goal_at(goal, whole), self._goal_at(goal, further) if further else None
        if here is None or there is None:
            return None
        return Bound(limit.key, limit.unit, self.known[goal], here, further, there)

    def _goal_at(self, goal: str, whole: int) -> Fraction | None:
        others = {name: value for name, value in self.known.items() if name != goal}
        return value_of(self.equations, {**others, self.wanted.letter: Fraction(whole)}, goal)

    def _none_fits(self, goal: str) -> str:
        x = self.wanted
        least = self._goal_at(goal, 1) if goal in self.known else None
        if least is None:
            return f"not even one of the {x.unit} fits: {x.key} would be less than 1"
        limit = self.question.letter(goal)
        return (
            f"not even one of the {x.unit} fits: {x.key} = 1 takes {limit.key} = {_short(least)} {limit.unit},"
            f" and there are {_short(self.known[goal])}"
        )

    # -- checks and words ----------------------------------------------------------------------------------------------------------

    def _require_all_used(self, system: System) -> None:
        """A number that was typed and leads nowhere would make a reader believe that it counted."""
        by = [{e.letter, *letters(parsed(e.expr))} for e in self.equations]
        part, before = {self.wanted.letter}, set()
        while part != before:
            before = set(part)
            for group in by:
                part |= group if group & part else set()
        idle = [self.question.letter(name).key for name in self.given.letters if name not in part]
        needed = {self.wanted.letter}
        for equation, _ in reversed(system.steps):
            needed |= letters(parsed(equation.expr)) if equation.letter in needed else set()
        inner = {e.letter for e in self.equations}
        settled = [name for name in self.given.letters if name in inner and name in needed and name != self.wanted.letter]
        if settled:
            idle += [self.question.letter(name).key for name in self.given.letters if name not in needed and name not in settled]
        if idle:
            by_what = f" once {' and '.join(self.question.letter(n).key for n in settled)} is given" if settled else ""
            raise BadInputError(f"{', '.join(dict.fromkeys(idle))} has no part in the answer{by_what}: leave it out")

    def _check_peak(self) -> None:
        for letter in self.question.letters:
            if letter.device == "peak" and letter.letter in self.given.letters:
                dtype = self.given.device.get("dtype", DEFAULT_DTYPE)
                of = None if self.device is None else self.device.found
                wrong = devices.wrongly_dense(self.known[letter.letter], dtype, of)
                if wrong and of is not None:
                    raise BadInputError(f"{wrong}: give that one, or say gpu={of.id} sparse=yes without a peak")
                if wrong:
                    self.flags.append(f"{wrong}: was that one meant?")

    def _check(self, values: Mapping[str, Fraction]) -> None:
        for letter in self.question.letters:
            if letter.unit == "share" and values.get(letter.letter, 0) > 1:
                raise BadInputError(self._beyond(letter, values))
        for condition in self.question.conditions:
            if letters(parsed(condition.holds)) <= values.keys() and not holds(condition.holds, values):  # type: ignore[arg-type]  # fractions compare as integers do
                said = condition.otherwise.format(**{name: _short(value) for name, value in values.items()})
                if condition.refuse:
                    raise BadInputError(said)
                self.flags.append(said)

    def _beyond(self, letter: Letter, values: Mapping[str, Fraction]) -> str:
        """A share above 1, with the rate that was likely meant."""
        said = f"{letter.key} = {float(values[letter.letter]):.4g} is more than the whole"
        peak = next((x for x in self.question.letters if x.device == "peak"), None)
        if peak is None or peak.letter not in values:
            return f"{said}: what is asked for is impossible"
        rate = values[letter.letter] * values[peak.letter]
        said += f": no device outruns its peak. {_short(rate / 10**12)} TFLOP/s were needed of each"
        if self.device is None:
            return f"{said}: is {_short(values[peak.letter] / 10**12)} TFLOP/s the dense peak of the format that was multiplied in?"
        said += f", and the {self.device.rate} is {_short(values[peak.letter] / 10**12)} TFLOP/s"
        if letter.letter != self.question.answer:
            return said
        likely = devices.likely_rates(self.device, rate)
        return f"{said}; {likely + ' ' if likely else ''}Give the dtype of the products, and synchronise before the clock is read"

    def _say(self, value: Fraction) -> None:
        """Notes on the device's figures, and flags of a GB that may have been a GiB."""
        if self.device is not None:
            self.notes += devices.notes(self.device, self.used_of_device)
        for choice in self.question.choices:
            if choice.key not in self.given.choices:
                self.notes.append(f"{choice.key} = {choice.default}, as nothing was said: {choice.because}")
            note = choice.notes.get(self.given.choices.get(choice.key, choice.default))
            self.notes += [note] if note else []
        for name, got in self.given.letters.items():
            power = "kMGTPE".find(got.suffix[0]) + 1 if len(got.suffix) == 2 and got.suffix[1] == "B" else 0
            letter = self.question.letter(name)
            if power and letter.unit == "bytes":
                self._flag_gigabytes(letter, got.value, power, got.suffix, value)
        self._flag_other_memory()

    def _flag_gigabytes(self, letter: Letter, value: Fraction, power: int, suffix: str, answer: Fraction) -> None:
        binary = value * Fraction(1024, 1000) ** power
        other = value_of(self.equations, {**self.known, letter.letter: binary}, self.wanted.letter)
        if other is None or other == answer:
            return
        if self.wanted.whole:
            other = Fraction(to_safe_side(other, self.wanted.whole)[0])
        unit = f"{suffix[0].upper()}iB"
        shown = _short(value / 1000**power)
        self.flags.append(
            f"{letter.key} = {shown}{suffix} is read as {shown}·10^{3 * power} bytes;"
            f" were {shown}{unit} meant, {self.wanted.key} would be {_short(other)}"
        )

    def _flag_other_memory(self) -> None:
        if self.device is None:
            return
        for letter in self.question.letters:
            got = self.given.letters.get(letter.letter)
            if letter.device == "memory" and got is not None and got.value != self.device.found.memory:
                self.flags.append(
                    f"{letter.key} = {int(got.value):,} bytes is not what {self.device.found.name} is sold with,"
                    f" {self.device.found.memory:,}: what was typed is taken"
                )

    def _thumb(self, exact: Fraction) -> Thumb | None:
        """The same by the rule of thumb, where the model's own counts were taken."""
        if not (self.given.model and self.question.with_model):
            return None
        value = value_of(self._equations(exact=False), self.known, self.wanted.letter)
        if value is None:
            return None
        if self.wanted.whole:
            value = Fraction(to_safe_side(value, self.wanted.whole)[0])
        replaced = {e.letter for e in self.question.with_model}
        rules = [f"{e.letter} = {e.expr}" for e in self.question.equations if e.letter in replaced]
        return Thumb("; ".join(rules), value)

    def _closed(self, system: System) -> str:
        """The answer in the letters that were put in."""
        known = {}
        for equation, _ in system.steps:
            known[equation.letter] = substituted(parsed(equation.expr), known)
        return written(tidy(known[self.wanted.letter]))

    def _searched_line(self, found: Found | None, real: Fraction) -> Line:
        x = self.wanted
        assert found is not None
        goal = next(e.letter for e in self.equations if e.letter in self.known)
        limit = self.question.letter(goal)
        because = (
            f"by search: {limit.key} is {_short(found.at[0])} at {_short(found.value)} and {_short(found.at[1])} at {_short(found.beyond)},"
            f" on the other side of {_short(self.known[goal])}"
        )
        return Line(x.letter, x.letter, x.unit, x.meaning, because, real, exact=bool(x.whole))

    def _all_inputs(self) -> tuple[Input, ...]:
        shown = list(self.inputs)
        if self.device is not None:
            shown.append(Input("gpu", "", self.device.found.id, "", self.device.found.name, "catalogue"))
            if "peak" in self.used_of_device:
                how = "as asked" if self.device.said else "ASSUMPTION: nothing was said"
                shown.append(Input("dtype", "", self.device.dtype, "", "number format of the products, dense", how))
        for choice in self.question.choices:
            how = "as asked" if choice.key in self.given.choices else "ASSUMPTION: nothing was said"
            shown.append(Input(choice.key, "", self.given.choices.get(choice.key, choice.default), "", choice.meaning, how))
        return tuple(shown)

    def _puts(self) -> tuple[Put, ...]:
        return tuple(Put(i.letter, i.value, i.unit, i.meaning, i.source) for i in self.inputs if isinstance(i.value, Fraction))

    def _row(self, name: str, value: Fraction) -> Row:
        letter = self.question.letter(name)
        because: Sequence[str] = [e.because for e in self.equations if e.letter == name]
        return Row(letter.meaning, value, letter.unit, because[0] if because else "")


def _short(value: Fraction) -> str:
    """A number in a sentence: six digits, whole numbers up to 15 digits in full."""
    if value.denominator == 1 and abs(value) < 10**15:
        return f"{int(value):,}"
    return f"{float(value):.6g}"

"""What is refused and what is flagged in an answer: numbers that play no part, shares above 1, a GB that may have been a GiB."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction

from calc.capacity.questions import devices
from calc.capacity.questions.gathering import OPTIONS, SIZES, Gathered
from calc.capacity.questions.question import Condition, Letter
from calc.capacity.questions.solving import System, to_safe_side, value_of
from calc.errors import BadInputError
from calc.hardware.accelerators import DEFAULT_DTYPE
from calc.symbolic.arithmetic import letters_of
from calc.symbolic.exact import holds

# Parameters of a model and tokens of a training are not as few as this; what is left out then is a suffix.
_SMALL = 10**4
_LARGE = {"N": "B", "D": "T"}


def require_all_used(asked: Gathered, system: System, everything: System) -> None:
    """A number that was typed and leads nowhere would make a reader believe that it counted. ``everything`` leads to what belongs to the
    answer as well."""
    part = asked.part
    of_model = SIZES if asked.given.model else ()
    idle = [asked.question.letter(name).key for name in asked.given.letters if name not in (*part, *of_model)]
    needed = {asked.wanted.letter, *asked.question.also}
    for step, equation in reversed((*system.steps, *everything.steps)):
        needed |= {equation.letter, *letters_of(equation.expr)} if step.letter in needed else set()
    if all(step.letter != asked.wanted.letter for step, _ in system.steps):
        needed |= part  # a search looks at everything
    inner = {e.letter for e in asked.equations}
    settled = [name for name in asked.given.letters if name in inner and name in needed and name != asked.wanted.letter]
    if settled:
        idle += [asked.question.letter(name).key for name in asked.given.letters if name not in needed and name not in settled]
    idle += [key for key in asked.given.choices if key not in {choice.key for choice, _ in asked.choices}]
    if idle:
        by_what = f" once {' and '.join(asked.question.letter(n).key for n in settled)} is given" if settled else ""
        raise BadInputError(f"{', '.join(dict.fromkeys(idle))} has no part in the answer{by_what}: leave it out")


def check(asked: Gathered, values: Mapping[str, Fraction]) -> None:
    """Shares above 1 and unmet conditions: refused, or flagged once."""
    for letter in asked.question.letters:
        if letter.unit == "share" and values.get(letter.letter, 0) > 1:
            raise BadInputError(_beyond(asked, letter, values))
    for condition in asked.question.conditions:
        if not _speaks_of(condition) <= values.keys() or holds(condition.holds, values):  # type: ignore[arg-type]  # fractions compare as integers do
            continue
        said = condition.otherwise.format(**{name: short(value) for name, value in values.items()})
        if condition.refuse:
            raise BadInputError(said)
        asked.flags += [said] if said not in asked.flags else []


def _speaks_of(condition: Condition) -> set[str]:
    """The letters that a condition compares, and those that its message shows."""
    return {*letters_of(condition.holds), *re.findall(r"{(\w+)}", condition.otherwise)}


def _beyond(asked: Gathered, letter: Letter, values: Mapping[str, Fraction]) -> str:
    """A share above 1; of a peak, with the rate that was likely meant."""
    share = values[letter.letter]
    peak = next((x for x in asked.question.letters if x.device == "peak"), None)
    if peak is None or peak.letter not in values:
        return f"{letter.key} = {float(share):.4g} is more than the whole: what is asked for is impossible"
    rate, dtype = share * values[peak.letter], asked.given.device.get("dtype", DEFAULT_DTYPE)
    of = None if asked.device is None else asked.device.found
    why = devices.above_peak if letter.letter == asked.question.answer and not asked.given.solve else devices.beyond_peak
    return f"utilization {float(share):.3g} is above 1: {why(rate, dtype, of)}"


def say(asked: Gathered, value: Fraction) -> None:
    """Notes on the device's figures, and flags of a GB that may have been a GiB."""
    if asked.device is not None:
        asked.notes += devices.notes(asked.device, asked.used_of_device)
    for choice, chosen in asked.choices:
        if choice.key not in asked.given.choices:
            asked.notes.append(f"{choice.key} = {chosen}, as nothing was said: {choice.because}")
        of_model = asked.given.model and choice.key in OPTIONS  # whose own step has what a table leaves out
        asked.notes += [choice.notes[chosen]] if chosen in choice.notes and not of_model else []
    for name, got in asked.given.letters.items():
        power = "kMGTPE".find(got.suffix[0]) + 1 if len(got.suffix) == 2 and got.suffix[1] == "B" else 0
        letter = asked.question.letter(name)
        if power and letter.unit == "bytes":
            _flag_gigabytes(asked, letter, got.value, power, got.suffix, value)
        if letter.letter in _LARGE and got.value < _SMALL and not got.suffix:
            shown = short(got.value)
            asked.flags.append(f"{letter.key} = {shown} is {shown} {letter.unit}: was {shown}{_LARGE[letter.letter]} meant?")
    _flag_other_memory(asked)
    _compare_with_device(asked, value)


def flag_beyond(asked: Gathered, value: Fraction) -> None:
    """A length that formulas lead to, of which the model has no positions."""
    bound = asked.model.bound("T") if asked.model is not None and asked.wanted.letter == "T" else None
    if asked.model is not None and bound is not None and value > bound[1]:
        name, most = bound
        asked.flags.append(f"beyond {name} = {most:,} positions: {asked.model.name} reads no sequence of {short(value)} tokens")


def flag_experts(asked: Gathered, value: Fraction) -> None:
    """Sequences of one turn may need different experts: then more is read than for one, which is the least that any number needs."""
    read = next((x for x in asked.question.letters if x.model == "weights_read"), None)
    if asked.model is None or read is None or not asked.model.in_use.weights(asked.model.format).partial:
        return
    sequences = value if asked.wanted.letter == "B" else asked.known.get("B", Fraction(1))
    least, most = asked.known[read.letter], asked.model.in_use.weights(asked.model.format).read(sequences)
    other = value_of(asked.equations, {**asked.known, read.letter: most}, asked.wanted.letter)
    if most == least or other is None:
        return
    x = asked.wanted
    asked.flags.append(
        f"a mixture of experts: {short(least)} bytes of weights are read if all {short(sequences)} sequences go to the same experts,"
        f" and up to {short(most)} if they go to different ones: then {x.key} is {short(other)} {x.unit}"
    )


def _compare_with_device(asked: Gathered, needed: Fraction) -> None:
    """Memory that was asked for, beside what the device has."""
    if asked.device is None or asked.wanted.device != "memory":
        return
    has = f"{asked.device.found.name} has {asked.device.found.memory:,} bytes"
    if needed > asked.device.found.memory:
        asked.flags.append(f"it does not fit: {short(Fraction(math.ceil(needed)))} bytes are needed, and {has}")
    else:
        asked.notes.append(f"it fits: {has}")


def _flag_gigabytes(asked: Gathered, letter: Letter, value: Fraction, power: int, suffix: str, answer: Fraction) -> None:
    binary = value * Fraction(1024, 1000) ** power
    other = value_of(asked.equations, {**asked.known, letter.letter: binary}, asked.wanted.letter)
    if other is not None and asked.wanted.whole:
        other = Fraction(to_safe_side(other, asked.wanted.whole)[0])
    if other is None or other == answer:
        return
    unit = f"{suffix[0].upper()}iB"
    shown = short(value / 1000**power)
    asked.flags.append(
        f"{letter.key} = {shown}{suffix} is read as {shown}·10^{3 * power} bytes;"
        f" were {shown}{unit} meant, {asked.wanted.key} would be {short(other)}"
    )


def _flag_other_memory(asked: Gathered) -> None:
    if asked.device is None:
        return
    for letter in asked.question.letters:
        got = asked.given.letters.get(letter.letter)
        if letter.device == "memory" and got is not None and got.value != asked.device.found.memory:
            asked.flags.append(
                f"{letter.key} = {int(got.value):,} bytes is not what {asked.device.found.name} is sold with,"
                f" {asked.device.found.memory:,}: what was typed is taken"
            )


def short(value: Fraction) -> str:
    """A number in a sentence: six digits, whole numbers up to 15 digits in full."""
    if value.denominator == 1 and abs(value) < 10**15:
        return f"{int(value):,}"
    return f"{float(value):.6g}"

"""Checks of an answer: unused inputs and shares above 1 are refused; a GB that may have been a GiB is flagged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from calc.capacity.questions import devices
from calc.capacity.questions.problem import OPTIONS, SIZES, Problem
from calc.capacity.questions.quantities import in_sentence, is_measured, short
from calc.capacity.questions.question import Variable
from calc.capacity.questions.solving import System, to_safe_side, value_of
from calc.errors import BadInputError
from calc.hardware.accelerators import DEFAULT_DTYPE
from calc.symbolic.exact import holds
from calc.symbolic.parser import free_names

# Less than this of a variable with a unit is implausible, and the suffix that was probably left out: no grid emits 1 g/kWh or less, and
# papers print kg/kWh.
_LEAST = {("N", "parameters"): (10**4, "B"), ("D", "tokens"): (10**4, "T"), ("i", "g/kWh"): (1, "kg/kWh")}


def require_all_used(problem: Problem, system: System, everything: System) -> None:
    """Refuse inputs that the answer does not use: a reader would believe that they counted.

    ``everything`` is the system that also computes the additional results."""
    part = problem.part
    of_model = SIZES if problem.given.model else ()
    inputs = [name for name in problem.given.variables if name not in of_model]  # a model's numbers are at all of its sizes
    idle = [problem.question.variable(name).key for name in inputs if name not in part]
    used = {problem.wanted.symbol, *problem.also}
    for step, equation in reversed((*system.steps, *everything.steps)):
        used |= {equation.symbol, *free_names(equation.expr)} if step.symbol in used else set()
    if all(step.symbol != problem.wanted.symbol for step, _ in system.steps):
        used |= part  # a search uses every input
    inner = {e.symbol for e in problem.equations}
    settled = [name for name in problem.given.variables if name in inner and name in used and name != problem.wanted.symbol]
    if settled:
        idle += [problem.question.variable(name).key for name in inputs if name not in used and name not in settled]
    idle += [key for key in problem.given.choices if key not in {choice.key for choice, _ in problem.choices}]
    if idle:
        raise BadInputError(_without_effect([*dict.fromkeys(idle)], [problem.question.variable(name).key for name in settled]))


def _without_effect(idle: Sequence[str], settled: Sequence[str]) -> str:
    """The error message for inputs that the answer does not use, because those ``settled`` are given if there are any."""
    by_what = f" once {' and '.join(settled)} {'is' if len(settled) == 1 else 'are'} given" if settled else ""
    verb, pronoun = ("does", "it") if len(idle) == 1 else ("do", "them")
    return f"{' and '.join(idle)} {verb} not affect the answer{by_what}: leave {pronoun} out"


def check(problem: Problem, values: Mapping[str, Fraction]) -> None:
    """Refuse shares above 1 and failed conditions; flag each warning once."""
    for variable in problem.question.variables:
        if variable.unit == "share" and values.get(variable.symbol, 0) > 1:
            raise BadInputError(_beyond(problem, variable, values))
    shown = {x.symbol: _in_message(values[x.symbol], x.unit) for x in problem.question.variables if x.symbol in values}
    for condition in problem.question.conditions:
        if not condition.variables <= values.keys() or holds(condition.holds, values):  # type: ignore[arg-type]  # fractions compare as integers do
            continue
        message = condition.otherwise.format(**shown)
        if condition.refuse:
            raise BadInputError(message)
        problem.flags += [message] if message not in problem.flags else []


def _in_message(value: Fraction, unit: str) -> str:
    """A value for a condition's message, which names what is counted, but leaves the unit of bytes and times to the value."""
    return in_sentence(value, unit if is_measured(unit) else "1")


def _beyond(problem: Problem, variable: Variable, values: Mapping[str, Fraction]) -> str:
    """The error message for a share above 1; for a share of a peak it names the rate that was likely meant."""
    share = values[variable.symbol]
    peak = next((x for x in problem.question.variables if x.device == "peak"), None)
    if peak is None or peak.symbol not in values:
        return f"{variable.key} = {float(share):.4g} is a share above 1: no such value exists"
    rate, dtype = share * values[peak.symbol], problem.given.device.get("dtype", DEFAULT_DTYPE)
    of = None if problem.device is None else problem.device.accelerator
    why = devices.above_peak if variable.symbol == problem.question.answer and not problem.given.solve else devices.beyond_peak
    return f"utilization {float(share):.3g} is above 1: {why(rate, dtype, of)}"


def say(problem: Problem, value: Fraction) -> None:
    """Add notes on the device specifications and on defaults; flag a GB that may have been a GiB."""
    if problem.device is not None:
        problem.notes += devices.notes(problem.device, problem.used_of_device)
    for choice, chosen in problem.choices:
        if choice.key not in problem.given.choices:
            problem.notes.append(f"{choice.key} = {chosen}, by default: {choice.because}")
        of_model = problem.given.model and choice.key in OPTIONS  # the model's own traced step includes what a table leaves out
        problem.notes += [choice.notes[chosen]] if chosen in choice.notes and not of_model else []
    for name, parsed in problem.given.variables.items():
        power = "kMGTPE".find(parsed.suffix[0]) + 1 if len(parsed.suffix) == 2 and parsed.suffix[1] == "B" else 0
        variable = problem.question.variable(name)
        if power and variable.unit == "bytes":
            _flag_gigabytes(problem, variable, parsed.value, power, parsed.suffix, value)
        least, suffix = _LEAST.get((variable.symbol, variable.unit), (0, ""))
        if parsed.value < least and not parsed.suffix:
            shown = short(parsed.value)
            problem.flags.append(f"{variable.key} = {shown} is {shown} {variable.unit}: was {shown}{suffix} meant?")
    _flag_other_memory(problem)
    _compare_with_device(problem, value)


def flag_beyond(problem: Problem, value: Fraction) -> None:
    """Flag a sequence length beyond the positions of the model."""
    x = problem.wanted
    bound = problem.model.bound("T") if problem.model is not None and x.symbol == "T" else None
    if problem.model is not None and bound is not None and value > bound[1]:
        name, most = bound
        problem.flags.append(f"beyond {name} = {most:,} positions: {problem.model.name} reads no sequence of {in_sentence(value, x.unit)}")


def flag_experts(problem: Problem, value: Fraction) -> None:
    """Flag that the sequences of one batch may use different experts: more weights are then read than for one sequence (the lower bound).
    """
    read = next((x for x in problem.question.variables if x.model == "weights_read"), None)
    if problem.model is None or read is None or not problem.model.in_use.weights(problem.model.format).partial:
        return
    sequences = value if problem.wanted.symbol == "B" else problem.values.get("B", Fraction(1))
    least, most = problem.values[read.symbol], problem.model.in_use.weights(problem.model.format).read(sequences)
    at_most = value_of(problem.equations, {**problem.values, read.symbol: most}, problem.wanted.symbol)
    if most == least or at_most is None:
        return
    x = problem.wanted
    problem.flags.append(
        f"a mixture of experts: {in_sentence(least, 'bytes')} of weights are read if all {short(sequences)} sequences go to the same"
        f" experts, and up to {in_sentence(most, 'bytes')} if they go to different ones: then {x.key} is {in_sentence(at_most, x.unit)}"
    )


def _compare_with_device(problem: Problem, required: Fraction) -> None:
    """Note or flag whether the required memory fits the device."""
    if problem.device is None or problem.wanted.device != "memory":
        return
    has = f"{problem.device.accelerator.name} has {in_sentence(Fraction(problem.device.accelerator.memory), 'bytes')}"
    if required > problem.device.accelerator.memory:
        problem.flags.append(f"it does not fit: {in_sentence(required, 'bytes')} are needed, and {has}")
    else:
        problem.notes.append(f"it fits: {has}")


def _flag_gigabytes(problem: Problem, variable: Variable, value: Fraction, power: int, suffix: str, answer: Fraction) -> None:
    binary = value * Fraction(1024, 1000) ** power
    in_binary = value_of(problem.equations, {**problem.values, variable.symbol: binary}, problem.wanted.symbol)
    if in_binary is not None and problem.wanted.rounding:
        in_binary = Fraction(to_safe_side(in_binary, problem.wanted.rounding)[0])
    if in_binary is None or in_binary == answer:
        return
    unit = f"{suffix[0].upper()}iB"
    shown = short(value / 1000**power)
    then = in_sentence(in_binary, problem.wanted.unit).removesuffix(f" {problem.wanted.key}")
    problem.flags.append(
        f"{variable.key} = {shown}{suffix} is read as {shown}·10^{3 * power} bytes;"
        f" were {shown}{unit} meant, {problem.wanted.key} would be {then}"
    )


def _flag_other_memory(problem: Problem) -> None:
    if problem.device is None:
        return
    for variable in problem.question.variables:
        memory = problem.given.variables.get(variable.symbol)
        if variable.device == "memory" and memory is not None and memory.value != problem.device.accelerator.memory:
            problem.flags.append(
                f"{variable.key} = {in_sentence(memory.value, 'bytes')} is not what {problem.device.accelerator.name} is sold with,"
                f" {in_sentence(Fraction(problem.device.accelerator.memory), 'bytes')}: the given value is used"
            )

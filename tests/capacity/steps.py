"""The printed steps of an answer, evaluated by themselves."""

from __future__ import annotations

from fractions import Fraction

from calc.capacity.questions import Answer
from calc.capacity.questions.solving import same
from calc.symbolic.arithmetic import evaluate


def false_steps(answer: Answer) -> list[str]:
    """The steps whose expression, at the inputs and at the steps printed above it, is not the number printed."""
    values = {given.symbol: given.value for given in answer.calculation.inputs}
    values |= {given.symbol: given.value for given in answer.inputs if given.symbol and isinstance(given.value, Fraction)}
    false = []
    for step in (*answer.calculation.steps, *answer.beside):
        value = step.value if step.expr == step.symbol else evaluate(step.expr, values)  # of a search: the number itself
        if value != step.value and (step.exact or not same(value, step.value)):
            false.append(f"{step.symbol} = {step.expr} is {value}, not {step.value}")
        values[step.symbol] = step.value
        if step is answer.calculation.steps[-1]:
            values[answer.symbol] = answer.value  # rounded, as it is printed below the step
    return false

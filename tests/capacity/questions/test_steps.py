"""Every step that an answer prints is evaluated: the expression, at the inputs and the steps before it, is the printed value."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from calc.capacity.questions import ask
from calc.capacity.questions.answer import Answer
from calc.capacity.questions.models import described
from calc.capacity.questions.peak_line import line_through
from calc.capacity.questions.registry import all_names
from calc.errors import BadInputError
from calc.symbolic.arithmetic import evaluate

TRUNCATED = Fraction(1, 10**25)  # roots have some 38 digits


def assert_steps_hold(answer: Answer) -> None:
    values = {i.symbol: i.value for i in answer.calculation.inputs}
    for number, step in enumerate((*answer.calculation.steps, *answer.beside)):
        if number == len(answer.calculation.steps):
            values[answer.symbol] = answer.value  # further results follow from the rounded answer
        if step.expr == step.symbol:  # found by search: the value at the answer is the bound, which is checked below
            assert answer.expr is None
            assert answer.bound is None or answer.bound.value != answer.bound.further_value
        else:
            exact = evaluate(step.expr, values)
            assert exact == step.value or abs(exact - step.value) <= TRUNCATED * abs(exact), (answer.question, step)
        values[step.symbol] = step.value
    printed = answer.to_json()
    assert [step["expr"] for step in printed["steps"]] == [step.expr for step in answer.calculation.steps]


@pytest.mark.parametrize("question", all_names())
def test_each_step_of_an_answer_has_the_value_that_it_prints(question: str) -> None:
    """Of every question, with the inputs of its own example."""
    try:
        answer = ask(question)
    except BadInputError as error:
        pairs = str(error).partition(", e.g. ")[2].split()
        answer = ask(question, **dict(pair.split("=", 1) for pair in pairs))

    assert answer.calculation.steps
    assert_steps_hold(answer)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"model": "linear", "memory": Fraction(600_000)}, "1280*B + 197128"),
        ({"model": "linear", "memory": "9MB"}, "1536*B + 98700"),
        ({"model": "mlp", "memory": Fraction(450_000)}, "264*B + 438452"),
        ({"model": "mlp", "memory": "5MB", "f": 512}, None),
        ({"model": "mlp", "batch": 64, "solve": "memory"}, None),
    ],
)
def test_the_candidate_that_binds_at_the_answer_is_shown(given: dict[str, Any], line: str | None) -> None:
    """As a closed form and as a line in the batch: both have the peak's value, and the line is that of the range with the answer in it."""
    answer = ask("largest-batch", **given)

    assert_steps_hold(answer)
    if line is not None:
        assert answer.calculation.steps[1].expr == line
        assert int(answer.value) * int(line.split("*")[0]) + int(line.split(" + ")[1]) == answer.calculation.steps[0].value


def test_the_range_of_a_line_is_where_the_peak_is_on_it() -> None:
    """Of both candidates of a linear layer: at both ends of the range the peak is the line's, and past them it is above."""
    model = described("linear", {}, lambda _: None)
    below, above = model.peak_line("B", 100), model.peak_line("B", 1000)

    assert below is not None
    assert above is not None
    assert (below.first, below.last, above.first, above.last) == (1, 384, 385, None)
    for line in (below, above):
        for size in (line.first, line.last or 10**6):
            assert model.at("memory.peak", B=size) == line.slope * size + line.offset
    assert model.at("memory.peak", B=385) > below.slope * 385 + below.offset


def test_a_candidate_that_is_no_line_gives_none() -> None:
    """T² of attention is none, and sizes with gaps have none."""

    class Sizes:
        multiple_of = None

    squares = line_through(lambda size: [Fraction(size**2)], Sizes(), 7, lambda size: size**2)
    assert squares is None


def test_the_line_of_a_special_case_is_no_line_of_other_sizes() -> None:
    """Where one sequence runs other operators, its peak says nothing of two."""

    class Sizes:
        multiple_of = None

    assert line_through(lambda size: [Fraction(100)], Sizes(), 1, lambda size: 100 if size == 1 else 60 * size) is None
    assert line_through(lambda size: [Fraction(60 * size)], Sizes(), 1, lambda size: 100 if size == 1 else 60 * size) is None

"""Every question asked for each of its variables: what comes back is what was put in, or leads to the same answer again."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from calc.capacity.questions import Answer, answered
from calc.capacity.questions.question import Question, Variable
from calc.capacity.questions.registry import all_questions
from calc.capacity.questions.solving import same
from calc.errors import BadInputError
from calc.symbolic.parser import free_names
from tests.capacity.steps import false_steps
from tests.quick import few

# Where the usual range of a unit would lead to no answer: a rate above its peak, a memory that nothing fits in.
RANGES: dict[tuple[str, str], tuple[int, int]] = {
    ("mfu", "P"): (10**12, 10**13), ("hfu", "P"): (10**12, 10**13), ("training-mfu", "P"): (10**17, 10**18),
    ("training-mfu", "r"): (1, 1000), ("transformer-mfu", "P"): (10**28, 10**29),
    ("largest-batch", "M"): (10**22, 10**23), ("largest-sequence", "M"): (10**22, 10**23), ("largest-depth", "M"): (10**22, 10**23),
    ("largest-width", "M"): (10**19, 10**20), ("largest-concurrency", "M"): (10**22, 10**23), ("data-parallel-tokens", "n"): (2, 1000),
    ("data-parallel-tokens", "P"): (10**13, 10**15), ("energy", "q"): (1, 2), ("checkpoint-interval", "s"): (1, 100),
    ("checkpoint-interval", "f"): (1000, 10**6), ("saving", "a"): (1, 100), ("saving", "o"): (100, 1000),
    ("carbon", "q"): (1, 2), ("six-nd-error", "N"): (10**9, 10**12),
    ("tokens-in-time", "P"): (10**15, 10**16), ("tokens", "C"): (10**20, 10**24), ("decode-turning-point", "P"): (10**12, 10**15),
    ("decode-turning-point", "W"): (10**6, 10**9), ("compute-optimal", "C"): (10**18, 10**26), ("attention-crossover", "f"): (1000, 9999),
    ("largest-model", "M"): (10**9, 10**12), ("steps", "D"): (10**12, 10**13), ("speed-up", "o"): (1001, 9999),
    ("sharding", "N"): (10**11, 10**13), ("sharding", "n"): (2, 64), ("sharding", "t"): (1, 8), ("sharding", "p"): (1, 16),
    ("fewest-ranks", "N"): (10**10, 10**11), ("fewest-ranks", "M"): (10**11, 10**12), ("fewest-ranks", "t"): (1, 4),
    ("fewest-ranks", "p"): (1, 4), ("tensor-traffic", "t"): (2, 64),
    ("context-traffic", "c"): (2, 64), ("expert-traffic", "x"): (2, 64), ("pipeline-bubble", "p"): (2, 64),
    ("tensor-traffic", "L"): (2, 64),
}  # fmt: skip
NUMBERS = ("precision", "optimizer", "weights", "cache")  # choices that differ in a number only: the first and the last are asked
BY_UNIT = {"bytes": (10**6, 10**12), "FLOP/s": (10**9, 10**15), "bytes/s": (10**9, 10**13), "nats": (2, 8)}


def needed(question: Question, chosen: dict[str, str]) -> tuple[Variable, ...]:
    """Letters that no equation gives, the limit among them where the question is one of how much fits."""
    equations = {e.symbol: e for e in question.equations}
    for choice in question.choices:
        equations |= {e.symbol: e for e in choice.options[chosen[choice.key]]}
    backwards = question.answer not in equations
    start = question.limit if backwards else question.answer
    reached, before = {start}, set[str]()
    while reached != before:
        before = set(reached)
        reached |= {name for e in equations.values() if e.symbol in before for name in free_names(e.expr)}
    free = (x for x in question.variables if x.symbol in reached and x.symbol not in equations and x.symbol != question.answer)
    return (*free, question.variable(question.limit)) if backwards and question.limit in equations else tuple(free)


def cases() -> Iterator[tuple[Question, dict[str, str]]]:
    for question in all_questions():
        for options in product(*(choice.options for choice in question.choices)):
            chosen = dict(zip((choice.key for choice in question.choices), options, strict=True))
            if all(
                c.key not in NUMBERS or name in (c.default, list(c.options)[-1]) for c, name in zip(question.choices, options, strict=True)
            ):
                yield question, chosen


CASES = few(cases(), 45, ids=lambda q, chosen: " ".join((q.name, *chosen.values())))


@st.composite
def values(draw: st.DrawFn, question: Question, wanted: tuple[Variable, ...]) -> dict[str, Fraction]:
    actual = {}
    for variable in wanted:
        if variable.unit == "share":
            actual[variable.key] = draw(st.fractions(Fraction(1, 100), 1, max_denominator=100))
            continue
        low, high = RANGES.get((question.name, variable.symbol), BY_UNIT.get(variable.unit, (1, 1000)))
        whole = bool(variable.rounding) or variable.device == "memory"
        number = draw(st.integers(low, high))
        actual[variable.key] = (
            Fraction(number) if whole else Fraction(number, draw(st.sampled_from((1, 3, 7)) if low > 10**3 else st.just(1)))
        )
    return actual


@settings(max_examples=2, phases=(Phase.generate,), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(st.data())
@pytest.mark.parametrize(("question", "chosen"), CASES)
def test_each_inverse_returns_the_input_it_came_from(question: Question, chosen: dict[str, str], data: st.DataObject) -> None:
    """Asked back from the answer, every variable is what was put in. Where the answer was rounded, or waits for something else,
    another value may lead to the same answer, and does."""
    put = data.draw(values(question, needed(question, chosen)))
    forwards = asked(question, {**put, **chosen})
    assume(forwards is not None)
    assert forwards is not None

    for key, value in put.items():
        others = {name: other for name, other in put.items() if name != key}
        back = asked(question, {**others, **chosen, forwards.key: forwards.value, "solve": key})
        assert back is not None, f"{key} from {forwards.key} = {forwards.value} of {put}"
        if not same(back.value, value):
            again = asked(question, {**others, **chosen, key: back.value})
            assert many_to_one(question, chosen, forwards), f"{key}: {value} came back as {back.value} of {put}"
            assert again is not None
            assert same(again.value, forwards.value), f"{key} = {back.value} gives {again.value}, not {forwards.value} of {put}"


def many_to_one(question: Question, chosen: dict[str, str], answer: Answer) -> bool:
    """Whether several inputs have one answer: it was rounded, or is the longer of two times."""
    return answer.unrounded != answer.value or any("Max" in e.expr for e in question.equations) or bool(answer.bound)


def asked(question: Question, given_: dict[str, Fraction | str]) -> Answer | None:
    """Nothing where the numbers drawn make no sense. Every printed step evaluates to the number printed after it."""
    try:
        answer = answered(question, given_)
    except BadInputError:
        return None
    assert false_steps(answer) == []
    return answer

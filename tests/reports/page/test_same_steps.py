"""A chapter whose steps are those of an earlier one says so, and in what they differ, in place of its steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

import calc
from calc.derive.result import Derivation
from reports.page.build import PageContent, build
from reports.page.model import Chapter
from reports.page.same_steps import with_steps_once
from reports.writers import markdown


@pytest.fixture(scope="module")
def derivation() -> Derivation:
    return calc.derive(calc.load("gpt2"), {"B": 2, "T": 8, "d": 12, "h": 3, "V": 17, "C": 8})


@pytest.fixture(scope="module")
def chapters(derivation: Derivation) -> dict[str, Chapter]:
    return {c.quantity: c for c in build(PageContent(derivation)).chapters}


def test_gradients_have_the_steps_of_the_parameters(derivation: Derivation, chapters: dict[str, Chapter]) -> None:
    """In fp32 each has the bytes of its parameter; the label and the reason are its own, and no step is left out of the count."""
    same = chapters["gradients.bytes"].same_steps

    assert same is not None
    assert ("parameters.bytes", (("float32 gradient", "float32 parameter"),)) == (same.link.words, same.differences[0].labels)
    assert same.differences[0].because.startswith("the backward leaves a gradient of the weight's shape in .grad")
    assert same.count == chapters["parameters.bytes"].count == len([s for s in derivation.steps if s.quantity == "gradients.bytes"])
    assert chapters["gradients.bytes"].steps == ()


def test_the_page_names_what_differs(derivation: Derivation) -> None:
    """As a list, in place of the steps."""
    text = markdown.write(build(PageContent(derivation))).partition("`gradients.bytes`\n")[2].partition("\n### ")[0]

    assert "those of [parameters.bytes](#q-parameters.bytes), with the same formulas and numbers, but for:" in text
    assert "- each tensor: “float32 gradient” in place of “float32 parameter”, because the backward leaves" in text


def test_another_formula_is_another_step(chapters: dict[str, Chapter]) -> None:
    """A chapter that differs in one value, or in the title of one step, keeps its steps."""
    first = chapters["parameters.bytes"]
    step = first.steps[1]
    others = [replace(step, value=first.steps[0].value), replace(step, title="elsewhere")]

    assert first.steps[0].value != step.value
    for other in others:
        second = replace(first, quantity="gradients.bytes", steps=(first.steps[0], other, *first.steps[2:]))
        assert [first, second] == [*with_steps_once((first, second))]


def test_the_closed_form_of_a_chapter_is_written_once_in_markdown(chapters: dict[str, Chapter]) -> None:
    """The last step refers to the equation that has its second side; it keeps both other lines."""
    last = chapters["flops.step.total"].steps[-1]

    assert last.equation is not None
    assert last.after == chapters["flops.step.total"].formula
    assert [last.before, last.substituted] == [formula for _, formula in last.short_lines]
    assert [last.before, last.after, last.substituted] == [formula for _, formula in last.lines]

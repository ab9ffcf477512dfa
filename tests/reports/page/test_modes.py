"""The report of a model that is used speaks of a forward, and only of what it runs."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from click.testing import CliRunner

import calc
from reports.cli import napkin
from reports.page.build import PageContent, build
from reports.page.report import Page
from reports.writers import html, markdown


@pytest.fixture(scope="module", params=["eval", "infer"])
def page(request: pytest.FixtureRequest) -> Page:
    return build(PageContent(calc.derive(calc.load("linear"), mode=request.param, cache=False)))


def test_only_what_runs_has_a_chapter(page: Page) -> None:
    """No section is empty: backward, gradients and optimizer are named once, with the reason."""
    assert not [c.quantity for c in page.chapters if "backward" in c.quantity or "optimizer" in c.quantity or "gradient" in c.quantity]
    assert 3 == sum(" not part of this step: mode " in words for words in page.not_covered)


def test_the_words_fit_what_runs(page: Page) -> None:
    """In every format."""
    for written in (markdown.write(page), html.write(page)):
        assert "one training step" not in written
        assert page.step in written
        assert "per-tensor implementation" not in written


def test_the_step_is_stated_as_a_convention(page: Page) -> None:
    """In place of that of training: evaluation ends with the loss, inference with the prediction."""
    ends = {
        "one forward in evaluation mode": "and nothing else, its loss included",
        "one forward in inference mode": "to the model's prediction, without a loss",
    }
    (words,) = [row.words for row in page.conventions if row.words.startswith("The step is")]

    assert f"The step is one forward {ends[page.step]}; peak memory is that of the second such forward." == words


def test_only_paths_of_what_runs_are_explained(page: Page) -> None:
    """No optimizer runs, and inference has no loss."""
    names = {"one forward in evaluation mode": ["(model)", "(loss)"], "one forward in inference mode": ["(model)"]}

    assert names[page.step] == re.findall(r"\(\w+\)", page.outside_modules)


def test_inference_without_a_prediction_states_the_loss_that_it_runs() -> None:
    """A spec may have none."""
    derivation = calc.derive(replace(calc.load("linear"), predict=None), mode="infer", cache=False)
    page = build(PageContent(derivation))

    assert any(row.words.startswith("The step is one forward and nothing else, its loss included") for row in page.conventions)


def test_asking_for_steps_that_do_not_exist_is_one_line_and_exit_2() -> None:
    """Before any work."""
    result = CliRunner().invoke(napkin, ["derive", "linear", "--mode", "eval", "--explain", "gradients.bytes"])

    assert result.exit_code == 2
    said = "gradients.bytes has no steps to show: mode eval runs no backward; choose another quantity, or --mode train"
    assert f"napkin: {said}\n" == result.stderr

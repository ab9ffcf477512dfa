"""The choice of a checkpointing under a limit of memory."""

from __future__ import annotations

import json
from functools import cache

import pytest
from click.testing import CliRunner

import calc
from calc.derive.result import Derivation
from calc.errors import BadInputError
from calc.memory.checkpointing import CheckpointingChoice, CheckpointingComparison, compared, document, largest
from reports import cli
from reports.jobs import job
from tests.models.test_checkpointing import _spec


@cache
def _derived(choice: str) -> Derivation:
    return calc.derive(_spec(), {"B": 64}, cache=False, optimizer="sgd", checkpointing=choice)


def _compared(limit: int | None = None) -> CheckpointingComparison:
    return compared({name: _derived(name) for name in ("block", "none")}, {"attention": "there is none"}, limit)


def _peak(name: str) -> int:
    return _derived(name)["memory.peak"].value or 0


@pytest.mark.slow
def test_each_choice_is_best_from_its_own_peak_on() -> None:
    """Up to the peak of the next that runs less again; no checkpointing has no end."""
    none, block, refused = _compared().choices

    assert ("none", _peak("none"), None) == (none.checkpointing, none.best_from, none.best_below)
    assert ("block", _peak("block"), _peak("none")) == (block.checkpointing, block.best_from, block.best_below)
    assert CheckpointingChoice("attention", refused="there is none") == refused


@pytest.mark.parametrize(
    ("more", "best"), [(("none", 0), "none"), (("none", -1), "block"), (("block", 0), "block"), (("block", -1), None)]
)
def test_the_limit_decides_to_the_byte(more: tuple[str, int], best: str | None) -> None:
    """A peak that equals the limit fits."""
    assert best == _compared(_peak(more[0]) + more[1]).best


def test_what_is_saved_and_recomputed_is_the_difference_of_the_closed_forms() -> None:
    """Of a linear layer after an attention and of a sigmoid, say: all of it grows with the batch and the depth."""
    _, block, _ = _compared().choices
    plain, again = _derived("none"), _derived("block")

    sizes = {"B": 2, "L": 3, "d": 5, "f": 7}
    for text, more, less in ((block.saved, "none", "block"), (block.recomputed, "block", "none")):
        quantity = "activations.bytes" if more == "none" else "flops.step.total"
        wanted = _derived(more)[quantity].at(**sizes) - _derived(less)[quantity].at(**sizes)
        assert wanted == eval(text, {}, sizes)
    assert block.extra == again["flops.step.total"].at() - plain["flops.step.total"].at() > 0


def test_the_largest_batch_fits_and_one_more_does_not() -> None:
    """To the byte, and a limit below every batch leaves none."""
    derivation = _derived("block")
    limit = derivation["memory.peak"].at(B=37)

    assert (37, 36, 0) == tuple(largest(derivation, "B", most) for most in (limit, limit - 1, 1))


def test_without_the_plain_step_there_is_nothing_to_compare() -> None:
    """The refusal says why it is not there."""
    with pytest.raises(BadInputError) as refusal:
        compared({}, {"none": "no cost of an operator"})
    assert "nothing to compare with: the step without checkpointing is refused (no cost of an operator)" == str(refusal.value)


def test_the_command_prints_one_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a table and as JSON, from the same object."""
    monkeypatch.setattr(job, "derive", lambda request, _: _derived("none" if request.options.checkpointing == "none" else "block"))
    shown = CliRunner().invoke(cli.napkin, ["checkpointing", "mlp", "--memory", "1GB"])
    written = CliRunner().invoke(cli.napkin, ["checkpointing", "mlp", "--memory", "1GB", "--json"])

    assert (0, 0) == (shown.exit_code, written.exit_code)
    assert "none fits and recomputes the least under 1.00\u00a0GB" in shown.stdout
    same = compared(
        {name: _derived("none" if name == "none" else "block") for name in ("none", "block/2", "attention", "block")}, {}, 10**9
    )
    assert document(same) == json.loads(written.stdout)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("80", "--memory '80' has no unit: write it as 80GB (10**9 bytes) or 80GiB (2**30)"),
        ("80G", "--memory = '80G' can be read in several ways: write 80GB (powers of 1000), 80GiB (powers of 1024)"),
    ],
)
def test_a_memory_that_may_be_meant_otherwise_is_refused(text: str, refusal: str) -> None:
    """In one line that shows how to write it; nothing is derived before."""
    refused = CliRunner().invoke(cli.napkin, ["checkpointing", "gpt2", "--memory", text])

    assert (2, f"napkin: {refusal}\n") == (refused.exit_code, refused.stderr)

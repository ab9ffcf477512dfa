"""Commands at sizes at which a step runs other operators: a batch of one, few layers, one position. Each derives at the sizes it is at."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import calc
from calc.capacity.questions.models import QuestionModel
from calc.derive.rules_of_thumb import compare
from calc.options import made
from reports.cli import napkin

# A parameter that is spread over batch and positions: its gradient is a sum over both, and no sum where both are 1.
STACK = """
import torch
from torch import nn
from calc import Spec

class Stack(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.start = nn.Parameter(torch.zeros(1, 1, n.d))
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(n.d, n.d), nn.ReLU()) for _ in range(n.L)])

    def forward(self, x):
        x = x + self.start
        for layer in self.layers:
            x = x + layer(x)
        return x

spec = Spec(
    name="stack", dims={"B": 3, "T": 7, "d": 5, "L": 4}, build=Stack,
    inputs=lambda n: (torch.ones(n.B, n.T, n.d),), loss=lambda model, x: model(x).square().mean(),
)
"""
# A layer has d·d + d = 30 parameters, the start d = 5.
ONE_LAYER = 35


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("degenerate") / "stack.py"
    file.write_text(STACK, encoding="utf-8")
    return f"{file}:spec"


def _run(*words: str) -> Result:
    return CliRunner().invoke(napkin, words)


SIZES = ("-d", "B=1", "-d", "T=1", "-d", "L=1")
COMMANDS = {
    "derive": ("derive", *SIZES, "--explain", "memory.peak"),
    "check": ("check", *SIZES),
    "roofline": ("roofline", *SIZES, "--gpu", "a100-sxm-80"),
    "bytes per parameter": ("bytes-per-parameter", *SIZES),
    "gradients": ("gradients", *SIZES, "--check"),
    "checkpoint": ("checkpoint", *SIZES),
    "shard": ("shard", "data=2", "batch=2", "T=1", "L=1"),
    "the largest depth": ("ask", "largest-depth", "gpu=h100-sxm", "B=1", "T=1"),
    "the largest batch": ("ask", "largest-batch", "gpu=h100-sxm", "L=1"),
    "training time": ("ask", "training-time", "tokens=1e9", "gpu=h100-sxm", "gpus=1", "mfu=0.4", "B=1", "T=1", "L=2"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_derive_at_the_sizes_they_are_at(name: str, stack: str) -> None:
    """Status 0, and nobody is asked to derive anything."""
    command, *words = COMMANDS[name]
    model = (words[0], f"model={stack}", *words[1:]) if command == "ask" else (stack, *words)

    actual = _run(command, *model)

    assert 0 == actual.exit_code, actual.stderr
    assert "derive the model" not in actual.output
    assert "Piecewise" not in actual.stdout


@pytest.mark.slow
def test_of_one_layer_choices_of_checkpointing_that_it_has_not_are_named(stack: str) -> None:
    """Every second of one block is none; the others stand, and their differences are those of the case in force."""
    actual = _run("checkpointing", stack, *SIZES)

    assert 0 == actual.exit_code, actual.stderr
    assert "stack: recomputing one of every 2 blocks needs at least 2 of them, and L is 1" in " ".join(actual.stdout.split())
    assert "Piecewise" not in actual.stdout


@pytest.mark.slow
def test_a_live_document_is_verified_at_a_batch_of_one(stack: str, tmp_path: Path) -> None:
    """Its numbers and those of its questions are of the case that holds there."""
    file = stack.removesuffix(":spec")
    lines = (
        "<!--napkin",
        "model stack.py:spec as s B=1 T=1 L=1",
        "ask training-state model=stack.py:spec B=1 T=1 L=2 as run",
        "-->",
        f"It has {ONE_LAYER}<!--= s.parameters --> parameters, and twice as many layers {ONE_LAYER + 30}<!--= run.parameters -->.",
    )
    (tmp_path / "notes.md").write_text("\n".join(lines) + "\n", encoding="utf-8")

    actual = _run("verify", str(tmp_path / "notes.md"), "--source", file)

    assert 0 == actual.exit_code, actual.output


@pytest.mark.slow
def test_sizes_that_a_question_tried_do_not_stay(stack: str) -> None:
    """A search for the largest depth starts at one layer; what is asked afterwards is of the four that the model has."""
    model = QuestionModel(stack, {"B": 1}, made().to_json(), lambda _: None)

    assert [ONE_LAYER, ONE_LAYER + 3 * 30] == [model.at("parameters", L=1), model.at("parameters")]
    assert "4*B*T*d" not in model.peak(L=1, T=1)[1]


def test_ranges_of_rules_of_thumb_are_of_one_step(stack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At their ends (one layer, one position) other operators may run: a report traces no other step to say how far a rule goes."""
    derivation = calc.derive(calc.load(stack))
    monkeypatch.setattr("calc.pipeline.pipeline.traced", None)

    assert any(c.within for c in compare(derivation) if c.applies)

"""Training resumed from a file is the same to the bit, whatever is in the model; and what a checkpoint forgets is noticed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import calc
from calc.dimensions import Dim
from calc.errors import BadInputError
from calc.measure.resume import STEM, Resumption, measure_safetensors, resume
from calc.measure.training import training
from calc.memory.checkpoint_files import entries_of, safetensors, torch_save
from calc.memory.progress import SCHEDULERS
from calc.models.load import load
from calc.options import Options
from calc.spec import Spec
from calc.trace import trace_at
from tests.measure import tiny
from tests.quick import few

GPT2 = {"L": 2, "d": 12, "h": 3, "B": 2, "T": 5, "V": 17, "C": 7}
DROPPING = "gpt2:dropout=0.1"
TIED = replace(tiny.attention(), dims={"B": 2, "T": 7, "d": Dim(12, multiple_of="h"), "h": 3, "V": 17})


def bitwise_equal(verdict: Resumption) -> bool:
    """Whether all tensors are equal bit for bit."""
    return not verdict.differing and not verdict.chance


@pytest.mark.parametrize("precision", ["fp32", "bf16-autocast", "fp16-autocast", "bf16", "bf16-master"])
def test_training_resumes_bit_for_bit_in_every_precision(precision: str) -> None:
    """Four steps at a stretch, and two, a file and two more: weights, state, copies, loss and the random generator."""
    assert () == resume(load("mlp"), options=Options(precision=precision)).differing


@pytest.mark.parametrize(
    "optimizer", ["sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw", "amsgrad", "adamax", "nadam", "radam", "adafactor"]
)
def test_training_resumes_bit_for_bit_with_every_optimizer(optimizer: str) -> None:
    """Of a layer with two parameters."""
    assert () == resume(tiny.linear(), options=Options(optimizer=optimizer)).differing


@pytest.mark.parametrize("model", [DROPPING, "cruncher"])
def test_models_resume_bit_for_bit(model: str) -> None:
    """Dropout draws from the generator, whose state is in the file."""
    verdict = resume(load(model), GPT2 if model == DROPPING else {}, steps=5, saved_after=3)

    assert bitwise_equal(verdict)
    assert verdict.tensors > 10


@pytest.mark.parametrize("forgotten", ["", "generators"])
def test_training_from_another_seed_resumes_and_a_forgotten_generator_differs(forgotten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every training of the comparison is built from that seed; what is not restored has the numbers of yet another."""
    seeds = []

    def seeded(*args: Any, seed: int, **keywords: Any) -> Any:
        seeds.append(seed)
        return training(*args, seed=seed, **keywords)

    monkeypatch.setattr("calc.measure.resume.training", seeded)
    verdict = resume(load(DROPPING), GPT2, seed=1, corrupt=_without(forgotten) if forgotten else lambda state: None)

    assert (bitwise_equal(verdict), {*seeds}) == (not forgotten, {1})


def test_gradients_that_are_kept_and_added_up_over_batches_resume_too() -> None:
    """Two batches to a step, gradients set to zero rather than released."""
    assert bitwise_equal(resume(load("mlp"), options=Options(accumulation="2", zero_grad="zero")))


def _without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda state: state.pop(name)


@pytest.mark.parametrize("forgotten", ["optimizer", "generators", "master weights"])
def test_what_a_checkpoint_forgets_is_noticed(forgotten: str) -> None:
    """Each part of the state is needed: without it some tensor differs."""
    verdict = resume(load(DROPPING), GPT2, options=Options(precision="bf16-master"), corrupt=_without(forgotten))

    assert not bitwise_equal(verdict)


SCHEDULES = [(kind.kind, kind.arguments(9)) for kind in SCHEDULERS.values()]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=[kind for kind, _ in SCHEDULES])
def test_a_scheduler_resumes_and_without_its_state_training_differs(schedule: tuple[str, Any]) -> None:
    """The learning rate of the last steps depends on how many were done; of an exponential decay, on the rate alone."""
    assert bitwise_equal(resume(tiny.linear(), schedule=schedule))
    forgotten = resume(tiny.linear(), schedule=schedule, corrupt=_without("scheduler"))
    assert bitwise_equal(forgotten) == (schedule[0] == "ExponentialLR")


def test_one_wrong_bit_in_a_checkpoint_is_noticed() -> None:
    """The smallest change of one weight."""

    def nudge(state: dict[str, Any]) -> None:
        weight = next(iter(state["model"].values()))
        weight.view(-1)[0] += 1e-6

    assert not bitwise_equal(resume(load("mlp"), corrupt=nudge))


def test_a_model_that_saving_changes_is_compared_with_one_that_never_saved() -> None:
    """A hook of state_dict that adds to the weight: the run that saved goes on from it, as what is resumed does."""

    class Changing(nn.Linear):
        @torch.no_grad()
        def state_dict(self, *args: Any, **kwargs: Any) -> Any:
            self.weight += 1
            return super().state_dict(*args, **kwargs)

    assert "weight" in resume(tiny.linear(build=lambda s: Changing(s.n, s.m))).differing


def test_every_stage_is_named_and_none_runs_twice() -> None:
    """Two steps, a file, two more of the same model and two of another."""
    told: list[str] = []

    resume(tiny.linear(), progress=told.append)

    assert [
        "building the model",
        "the first step",
        "writing a checkpoint, then 4 steps",
        "training on without interruption: 2 steps",
        "training a new model from the checkpoint: 2 steps",
        "comparing every bit",
    ] == told


def test_a_model_that_differs_from_itself_is_not_said_to_lose_anything() -> None:
    """Numbers from outside the seeded generators: two runs at a stretch differ too, so whether it resumes cannot be told."""
    chance = random.Random()
    spec = tiny.linear(loss=lambda module, x, y: (chance.random() * module(x) - y).square().mean())

    verdict = resume(spec)

    assert () == verdict.differing
    assert {"weight", "bias", "the last loss"} <= set(verdict.chance)
    assert not bitwise_equal(verdict)


def test_muon_beside_adamw_resumes_bit_for_bit() -> None:
    """Both keep their own state in the file."""
    assert bitwise_equal(resume(load("mlp"), options=Options(optimizer="muon")))


def test_saving_before_the_first_step_or_after_the_last_is_refused() -> None:
    """Nothing would be resumed; nor in a mode that trains nothing."""
    with pytest.raises(BadInputError, match=r"^a checkpoint after step 4 of 4 resumes nothing: save between the first and the last$"):
        resume(tiny.linear(), saved_after=4)
    with pytest.raises(BadInputError, match=r"^mode eval trains nothing, so there is nothing to resume: use mode train$"):
        resume(tiny.linear(), options=Options(mode="eval"))


@pytest.mark.parametrize(
    ("spec", "precision"),
    few([(tiny.linear(), "fp32"), (TIED, "fp32"), (load("mlp"), "bf16-master"), (load("cruncher"), "bf16")], 2),
    ids=lambda actual: getattr(actual, "name", actual),
)
def test_files_of_a_checkpoint_have_the_bytes_that_are_counted(spec: Spec, precision: str) -> None:
    """torch.save around its pickle, safetensors altogether; a tied head once in both."""
    options, sizes = Options(precision=precision), spec.sizes()
    saved = resume(spec, options=options)

    assert saved.saved == torch_save(saved.storages, saved.pickled, STEM).total

    counted = safetensors(entries_of(trace_at(spec, {}, sizes, {}, options)))
    with training(spec, sizes, options, "cpu") as run:
        run.step()
        assert measure_safetensors(run) == counted.total
    assert calc.derive(spec, cache=False, precision=precision)["checkpoint.bytes"].value == counted.payload

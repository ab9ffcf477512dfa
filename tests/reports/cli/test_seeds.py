"""Every command that runs something random takes its seed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from calc.measure import training
from reports import cli

SEEDED = {"check", "checkpoint", "initialization", "measure", "train-demo", "transfers"}


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, list(words))


def test_commands_that_draw_random_numbers_have_a_seed() -> None:
    """Of one kind, so that each refuses the same; 0 unless given."""
    context = click.Context(cli.napkin)
    commands = {name: cli.napkin.get_command(context, name) for name in cli.napkin.list_commands(context)}
    every = {name: [p for p in command.params if p.name == "seed"] for name, command in commands.items() if command is not None}

    assert {name for name, options in every.items() if options} == SEEDED
    assert {option.default for options in every.values() for option in options} == {0}


@pytest.mark.parametrize("place", ["calc.measure.training.training", "calc.measure.resume.training"])
def test_the_seed_of_a_command_is_that_of_the_run(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights and inputs of ``measure``, and of each training that ``checkpoint`` compares; its document says which."""
    seeds, own = set(), training.training

    @contextmanager
    def seeded(*args: Any, seed: int = 0, **keywords: Any) -> Iterator[Any]:
        seeds.add(seed)
        with own(*args, seed=seed, **keywords) as made:
            yield made

    monkeypatch.setattr(place, seeded)
    words = ("checkpoint", "linear") if "resume" in place else ("measure", "linear", "--repeat", "1", "--seconds", "0", "--warm-up", "1")
    done = run(*words, "B=3", "D=5", "K=7", "--seed", "11", "--json")

    assert (done.exit_code, seeds) == (0, {11}), done.stderr
    if "resume" in place:
        assert json.loads(done.stdout)["seed"] == 11
        assert ", drawn from seed 11\n" in run(*words, "B=3", "D=5", "K=7", "--seed", "11").stdout


def test_a_transfer_passes_its_seed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []
    monkeypatch.setattr("calc.measure.copies.mapped", lambda *args: seeds.append(args[0].seed) or iter(()))
    monkeypatch.setattr("calc.measure.loading.loaders", lambda *args: seeds.append(args[0].seed) or iter(()))
    words = ("--bytes", "100000", "--batch", "3", "--length", "17", "--workers", "0", "--repeat", "1", "--seconds", "0")

    assert run("transfers", "--device", "cpu", *words, "--seed", "11", "--json").exit_code == 0
    assert seeds == [11, 11]

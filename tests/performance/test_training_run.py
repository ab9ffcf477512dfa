"""Training for real: accounts equal the derivation, the loss falls, and a run goes on from a file bit for bit."""

from __future__ import annotations

import io
import json
import math
import pickle
import sys
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from calc.errors import BadInputError, MeasurementError
from calc.measure import synthetic_data, train
from calc.measure.kinds import tensors_in
from calc.measure.train import StepAccount
from calc.measure.training import seed_of
from calc.performance import training_run
from calc.performance.training_run import DEMOS, TrainingRequest, accounted, demonstrate, expected_of, prepared
from reports import cli
from reports.views.training_run import progress

SMALL = ("--model", "linear", "-d", "D=7", "-d", "B=5", "--device", "cpu")


def wanted(**changes: Any) -> TrainingRequest:
    return TrainingRequest(**{"demo": "linear", "sizes": {"D": 7, "B": 5}, "steps": 8, "every": 4, **changes})


@cache
def ready(width: int) -> training_run.Ready:
    """Derived once for all tests."""
    return prepared(wanted(sizes={"D": width, "B": 5}))


def run(width: int = 7, **changes: Any) -> training_run.TrainingRun:
    return demonstrate(replace(ready(width), request=wanted(**changes)))


def napkin(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, ["train-demo", *words])


def test_every_accounted_step_takes_what_was_derived_and_the_others_are_timed() -> None:
    """Of 8 steps the first, the fourth and the eighth; 5 are timed, of which 3 warm up."""
    result = run()

    assert result.agrees
    assert [1, 4, 8] == [step.step for step in result.accounted]
    assert result.expected["memory.peak.first_step"] == result.accounted[0].account.peak
    assert result.expected["memory.peak"] == result.accounted[1].account.peak == result.accounted[2].account.peak
    assert result.times is not None
    assert (2, 3) == (len(result.times.nanoseconds), len(result.times.warm_up))


@pytest.mark.parametrize("name", [pytest.param("gpt", marks=pytest.mark.slow), "linear"])
def test_the_loss_falls_and_the_accounts_agree_at_the_sizes_of_the_demonstration(name: str) -> None:
    """As the command runs it by default, but shorter."""
    training = demonstrate(prepared(TrainingRequest(name, steps=30, every=15)))
    first, last = training.fell

    assert training.agrees
    assert last < 0.8 * first
    assert 30 == len(training.losses)


def wrong(step: int, account: StepAccount, expected: Mapping[str, int]) -> dict[str, tuple[int | None, int | None]]:
    """What is not as derived, with both numbers."""
    return {v.quantity: (v.derived, v.measured) for v in accounted(step, account, expected).failed}


def test_a_planted_error_is_found_and_named() -> None:
    """One FLOP or one byte more is not equal; the first step is held against a peak of its own."""
    expected = {f"flops.{phase}.matmul": n for n, phase in enumerate(("forward", "backward", "optimizer"))}
    expected |= {"memory.peak": 100, "memory.peak.first_step": 90}
    flops = {"forward": 0, "backward": 1, "optimizer": 2}

    assert {} == wrong(2, StepAccount(flops, 100), expected) == wrong(1, StepAccount(flops, 90), expected)
    assert {"memory.peak": (100, 90)} == wrong(2, StepAccount(flops, 90), expected)
    assert {"flops.backward.matmul": (1, 7)} == wrong(2, StepAccount({**flops, "backward": 7}, 100), expected)


def test_a_run_whose_accounts_differ_fails_and_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 1, with both numbers."""
    monkeypatch.setattr(training_run, "expected_of", lambda derivation: {**expected_of(derivation), "memory.peak": 5})
    result = napkin(*SMALL, "--steps", "4", "--every", "4")

    assert 1 == result.exit_code
    assert "differs in step 4" in result.stdout
    assert "the accounts do not equal the derivation" in result.stdout


def test_a_seed_decides_every_number_and_another_shares_none(tmp_path: Path) -> None:
    """The command twice with seed 7, and once with 8; a checkpoint of one seed is refused with another."""
    words = (*SMALL, "--steps", "4", "--every", "4", "--json")
    first, repeated, other = (json.loads(napkin(*words, "--seed", seed).stdout) for seed in ("7", "7", "8"))
    assert first["losses"] == repeated["losses"]
    assert (7, 8) == (first["seed"], other["seed"])
    assert not set(first["losses"]) & set(other["losses"])

    run(folder=tmp_path, steps=2, seed=7)
    with pytest.raises(BadInputError, match=r"train, seed 7\): resume with its model, sizes, seed and options$"):
        run(folder=tmp_path, resume=True, seed=8)


def test_no_batch_of_one_seed_is_a_batch_of_another() -> None:
    """Of seeds up to 1000 apart no two share one in 10⁶ steps; the CPU's generator ignores what is above 32 bits."""
    multiples = [seed_of(apart, 0) for apart in range(1, 1001)]
    assert min(min(each, 2**32 - each) for each in multiples) > 10**6
    assert (seed_of(0, 41), seed_of(2**32 - 1, 10**6) < 2**32) == (41, True)

    draws = [int(torch.randint(2**62, (), generator=torch.Generator().manual_seed(seed))) for seed in (5, 5 + 2**32)]
    assert draws[0] == draws[1]


def states(folder: Path) -> list[bytes]:
    state = torch.load(folder / train.CHECKPOINT, weights_only=True)
    return [t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for t in tensors_in(state) if t.numel()]


def test_a_run_goes_on_from_its_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    """8 steps at a stretch, and 5 and 3 with a file in between: model, optimizer, losses and generators."""
    straight = run(folder=tmp_path / "straight")
    run(folder=tmp_path / "broken", steps=5)
    resumed = run(folder=tmp_path / "broken", resume=True)

    assert 5 == resumed.begun_at
    assert straight.losses == resumed.losses
    assert states(tmp_path / "straight") == states(tmp_path / "broken")


def test_a_checkpoint_that_forgets_the_optimizer_does_not_resume(tmp_path: Path) -> None:
    """A planted error, which the comparison above must notice."""
    straight = run(folder=tmp_path / "straight")
    run(folder=tmp_path / "broken", steps=5)
    file = tmp_path / "broken" / train.CHECKPOINT
    state = torch.load(file, weights_only=True)
    torch.save({name: part for name, part in state.items() if name != "optimizer"}, file)

    assert straight.losses != run(folder=tmp_path / "broken", resume=True).losses


class Evil:
    def __reduce__(self) -> Any:
        return print, ("a checkpoint must run nothing",)


@pytest.mark.parametrize("content", [b"", b"text", *(pickle.dumps(what, protocol=2) for what in ({"of": 1}, Evil(), [1]))])
def test_a_file_that_is_no_checkpoint_is_refused_and_runs_nothing(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / train.CHECKPOINT).write_bytes(content)

    with pytest.raises(MeasurementError, match=r"checkpoint\.pt is not a checkpoint of this program: \w+$"):
        run(folder=tmp_path, resume=True)
    assert "" == capsys.readouterr().out


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    """It names the run that it is of."""
    run(folder=tmp_path, steps=2)

    with pytest.raises(
        BadInputError, match=r"is of another run \(cruncher at B=5, D=7, L=3 with spec, fp32, fused, train, seed 0\): resume "
    ):
        run(11, folder=tmp_path, resume=True)


def test_what_cannot_be_run_is_refused(tmp_path: Path) -> None:
    """Before anything runs, each in a line with the way out."""
    run(folder=tmp_path / "there", steps=2)
    for changes, said in (
        ({"demo": "bert"}, "unknown model 'bert' of train-demo: use one of linear, gpt"),
        ({"steps": 0}, "--steps = 0 is not a number of steps: give 1 to 1,000,000"),
        ({"resume": True}, "--resume needs the folder of the run to continue: give it with -o"),
        ({"folder": tmp_path / "there"}, f"{tmp_path / 'there'} contains a run already: continue it with --resume, or name another folder"),
        (
            {"folder": tmp_path / "none", "resume": True},
            f"there is no checkpoint.pt in {tmp_path / 'none'} to resume from: train without --resume first",
        ),
        (
            {"folder": tmp_path / "there", "resume": True, "steps": 2},
            "the checkpoint is at step 2 already: give a larger --steps",
        ),
    ):
        with pytest.raises(BadInputError) as caught:
            run(**changes)
        assert said == str(caught.value)


def test_a_folder_that_cannot_be_written_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(BadInputError, match=r"^cannot write a checkpoint to .*file/run: "):
        run(folder=tmp_path / "file" / "run")


def test_the_batch_of_a_step_follows_from_its_number() -> None:
    """Targets are the tokens one on, and nine times in ten 3 t + 7 modulo V; y is x w."""
    sizes = {"B": 64, "T": 31, "V": 97, "D": 5}
    ids, targets = synthetic_data.tokens(sizes)(3)
    x, y = synthetic_data.linear(sizes)(3)
    share = ((3 * ids + 7) % 97 == targets).float().mean()

    assert torch.equal(ids[:, 1:], targets[:, :-1])
    assert 0.87 < share < 0.93
    assert torch.allclose(x @ (torch.arange(5) / 5), y)
    assert all(torch.equal(a, b) for a, b in zip((ids, targets), synthetic_data.tokens(sizes)(3), strict=True))
    assert not torch.equal(ids, synthetic_data.tokens(sizes)(4)[0])


def test_live_numbers_are_those_of_the_timed_steps_so_far() -> None:
    """Throughput and MFU come with the fourth timed step, once three have warmed up: steps 2, 3 and 5 do, and step 6 counts."""
    seen: list[training_run.Progress] = []
    demonstrate(replace(ready(7), request=wanted(peak=Fraction(10**15))), seen.append)

    assert [None] * 5 == [at.per_second for at in seen[:5]]
    assert all(at.per_second is not None and at.mfu is not None and 0 < at.mfu < 1 for at in seen[5:])
    assert [1, 4, 8] == [at.step.step for at in seen if at.accounted is not None]


def test_the_command_trains_and_says_that_the_accounts_agree() -> None:
    """Progress goes to standard error, data to standard output."""
    result = napkin(*SMALL, "--steps", "8", "--every", "4")

    assert 0 == result.exit_code, result.stderr
    assert "every accounted step took exactly what was derived" in result.stdout
    assert "step 8 of 8: loss " in result.stderr
    assert "step 8 of 8" not in result.stdout


def test_on_a_terminal_a_bar_moves_on_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last words are those of the last step; standard output gets nothing."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, output = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", output)
    with progress(8, "samples") as told:
        demonstrate(replace(ready(7), request=wanted()), told)

    assert "8/8" in terminal.getvalue()
    assert "accounts equal the derivation" in terminal.getvalue()
    assert "" == output.getvalue()


def test_the_command_as_json_holds_every_loss_and_account() -> None:
    made = json.loads(napkin(*SMALL, "--steps", "4", "--every", "2", "--json").stdout)

    assert (1, 4, [1, 2, 4]) == (made["schema"], len(made["losses"]), [a["step"] for a in made["accounts"]])
    assert made["agrees"]
    assert all(math.isfinite(loss) for loss in made["losses"])
    assert made["accounts"][1]["memory.peak"] == made["derived"]["memory.peak"]


def test_each_demonstration_names_its_own_data() -> None:
    assert all(callable(getattr(synthetic_data, demo.data)) for demo in DEMOS.values())


@pytest.mark.gpu
def test_a_gpu_trains_and_its_loss_falls() -> None:
    """Live bytes there may differ where its kernels are others; the products are the same."""
    training = demonstrate(prepared(TrainingRequest("gpt", steps=30, device="cuda")))

    assert training.fell[1] < training.fell[0]
    assert all(not name.startswith("flops") for step in training.accounted for name in (v.quantity for v in step.failed))

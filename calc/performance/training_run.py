"""An accounted training run: real steps on synthetic data, whose FLOPs and live bytes must equal the derived values.

Importing this module does not import torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calc.capacity.utilization import utilization
from calc.derive.result import Derivation
from calc.derive.to_json import number
from calc.errors import BadInputError, suggestion
from calc.hardware.times import Timings
from calc.models.load import load
from calc.options import Options
from calc.performance.mfu import DensePeak, Throughput, ceiling_of, throughput_of, work_of
from calc.pipeline.pipeline import derive
from calc.pipeline.verdict import Verdict, judged
from calc.spec import Spec

if TYPE_CHECKING:
    from calc.measure.train import Done, StepAccount

KIND = "training run"
CHECKPOINT = "checkpoint.pt"
_MOST_STEPS = 10**6
_WARM_UP = 3  # timed steps that do not count


@dataclass(frozen=True, slots=True)
class Demo:
    """A model of the catalogue at sizes that train within seconds on a CPU. ``data`` names its function in
    ``calc.measure.synthetic_data``."""

    model: str
    sizes: Mapping[str, int]
    options: Options
    data: str


# Math attention: torch's counter does not see the matmuls inside a fused kernel.
DEMOS = {
    "linear": Demo("cruncher", {"B": 64, "D": 32, "L": 3}, Options(optimizer="spec"), "linear"),
    "gpt": Demo("gpt2", {"B": 8, "T": 32, "d": 64, "h": 4, "L": 2, "V": 97, "C": 32}, Options(attention="math"), "tokens"),
}


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """A run of ``steps`` steps, of which every ``every``-th is accounted for, the first always. With ``folder``, it writes a checkpoint at
    the end and after each ``save_every`` steps; ``resume`` continues from the existing one."""

    demo: str = "gpt"
    sizes: Mapping[str, int] | None = None
    steps: int = 50
    every: int = 10
    folder: Path | None = None
    save_every: int = 25
    resume: bool = False
    device: str = "cpu"
    peak: Fraction | None = None
    gpu: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.demo not in DEMOS:
            raise BadInputError(f"unknown model {self.demo[:40]!r} of train-demo: {suggestion(self.demo, DEMOS)}")
        for name, value in (("--steps", self.steps), ("--every", self.every), ("--save-every", self.save_every)):
            if not 1 <= value <= _MOST_STEPS:
                raise BadInputError(f"{name} = {value} is not a number of steps: give 1 to {_MOST_STEPS:,}")
        if self.resume and self.folder is None:
            raise BadInputError("--resume needs the folder of the run to continue: give it with -o")
        if self.folder is not None and self.resume and not (self.folder / CHECKPOINT).is_file():
            raise BadInputError(f"there is no {CHECKPOINT} in {self.folder} to resume from: train without --resume first")
        if self.folder is not None and not self.resume and os.path.exists(self.folder / CHECKPOINT):
            raise BadInputError(f"{self.folder} contains a run already: continue it with --resume, or name another folder")

    def accounts_for(self, step: int) -> bool:
        """Whether a step is accounted for instead of timed."""
        return step == 1 or step % self.every == 0


@dataclass(frozen=True, slots=True)
class AccountedStep:
    """One step measured by instruments, with a verdict on each quantity."""

    step: int
    account: StepAccount
    verdicts: tuple[Verdict[int], ...]

    @property
    def failed(self) -> tuple[Verdict[int], ...]:
        """The verdicts that differ from the derivation."""
        return tuple(verdict for verdict in self.verdicts if verdict.failed)

    @property
    def agrees(self) -> bool:
        """Whether every measured quantity equals the derived one, and none is missing."""
        return not self.failed and not self.account.because


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run: the last step, and its metrics. ``mfu`` is None without a peak."""

    step: Done
    of: int
    accounted: AccountedStep | None
    per_second: Fraction | None
    mfu: Fraction | None


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A finished run. ``begun_at`` is the number of steps before the checkpoint that it resumed; losses are those of all steps."""

    demo: Demo
    sizes: Mapping[str, int]
    begun_at: int
    losses: tuple[float, ...]
    expected: Mapping[str, int]
    accounted: tuple[AccountedStep, ...]
    times: Timings | None
    throughput: Throughput
    ceiling: DensePeak
    mfu: Fraction | None
    machine: Mapping[str, Any]
    seed: int

    @property
    def agrees(self) -> bool:
        """Whether every accounted step equals the derivation."""
        return all(step.agrees for step in self.accounted)

    @property
    def fell(self) -> tuple[float, float]:
        """Mean loss of the first and of the last tenth of all steps."""
        part = max(1, len(self.losses) // 10)
        return sum(self.losses[:part]) / part, sum(self.losses[-part:]) / part

    def to_json(self) -> dict[str, Any]:
        share = None if self.mfu is None else float(self.mfu)
        times = None if self.times is None else self.times.to_json()
        per_second = None if self.times is None else float(self.throughput.amount / self.times.seconds)
        return {
            "schema": 1,
            "kind": KIND,
            "model": {"name": self.demo.model, "source": "built-in"},
            "options": self.demo.options.to_json(),
            **self.machine,
            "sizes": {name: number(value) for name, value in self.sizes.items()},
            "seed": self.seed,
            "begun_at": self.begun_at,
            "losses": list(self.losses),
            "derived": {name: number(value) for name, value in self.expected.items()},
            "accounts": [_account(step) for step in self.accounted],
            "agrees": self.agrees,
            "times": times,
            "throughput": {"amount": self.throughput.amount, "unit": self.throughput.unit, "per_second": per_second},
            "peak": self.ceiling.to_json(),
            "mfu": share,
        }


def _account(step: AccountedStep) -> dict[str, Any]:
    flops = {f"flops.{phase}.matmul": number(value) for phase, value in step.account.flops.items()}
    wrong = {v.quantity: {"derived": number(v.derived), "measured": number(v.measured)} for v in step.failed}
    unread = step.account.because or None
    return {"step": step.step, **flops, "memory.peak": number(step.account.peak), "wrong": wrong, "because": unread}


def expected_of(derivation: Derivation) -> dict[str, int]:
    """The derived values for an accounted step; the very first step has a peak of its own."""
    names = [f"flops.{phase}.matmul" for phase in ("forward", "backward", "optimizer")]
    return {name: derivation[name].at() for name in (*names, "memory.peak", "memory.peak.first_step")}


def accounted(step: int, account: StepAccount, expected: Mapping[str, int]) -> AccountedStep:
    """The measured account compared with the derived values."""
    peak = "memory.peak.first_step" if step == 1 else "memory.peak"
    measured = {**{f"flops.{phase}.matmul": value for phase, value in account.flops.items()}, peak: account.peak}
    return AccountedStep(step, account, tuple(judged(name, expected[name], value) for name, value in measured.items()))


class _Tally:
    """The accounted and the timed steps of a run so far; the first timed ones are warm-up."""

    def __init__(self, expected: Mapping[str, int], flops: int | None, throughput: Throughput, ceiling: DensePeak) -> None:
        self.accounted: list[AccountedStep] = []
        self._expected, self._flops, self._throughput, self._ceiling = expected, flops, throughput, ceiling
        self._nanoseconds: list[int] = []

    @property
    def times(self) -> Timings | None:
        counted = tuple(self._nanoseconds[_WARM_UP:])
        return Timings(counted, warm_up=tuple(self._nanoseconds[:_WARM_UP])) if counted else None

    @property
    def mfu(self) -> Fraction | None:
        if self.times is None or not self._flops or self._ceiling.rate is None:
            return None
        return utilization(self._flops, self.times.seconds, self._ceiling.rate, self._ceiling.dtype, self._ceiling.device).value

    def add(self, finished: Done, of: int) -> Progress:
        """The progress after one more step."""
        if finished.account is not None:
            self.accounted.append(accounted(finished.step, finished.account, self._expected))
        if finished.nanoseconds is not None:
            self._nanoseconds.append(finished.nanoseconds)
        times = self.times
        per_second = None if times is None else self._throughput.amount / times.seconds
        return Progress(finished, of, self.accounted[-1] if finished.account is not None else None, per_second, self.mfu)


@dataclass(frozen=True, slots=True)
class Ready:
    """A run that can begin: its model at valid sizes, and its derivation."""

    request: TrainingRequest
    spec: Spec
    sizes: Mapping[str, int]
    derivation: Derivation

    @property
    def throughput(self) -> Throughput:
        return throughput_of(self.sizes)


def prepared(request: TrainingRequest, say: Callable[[str], None] = lambda _: None) -> Ready:
    """The step is derived before anything of it runs."""
    demo = DEMOS[request.demo]
    sizes = {**demo.sizes, **(request.sizes or {})}
    spec = load(demo.model)
    return Ready(request, spec, spec.sizes(sizes), derive(spec, sizes, options=demo.options, progress=say))


def demonstrate(ready: Ready, progress: Callable[[Progress], None] = lambda _: None) -> TrainingRun:
    """Train for real; ``progress`` is called after every step."""
    from calc.measure import synthetic_data
    from calc.measure.machine import machine
    from calc.measure.train import resumed, save, trained
    from calc.measure.training import training

    request, demo, sizes = ready.request, DEMOS[ready.request.demo], ready.sizes
    facts, expected = machine(request.device), expected_of(ready.derivation)
    ceiling = ceiling_of("fp32", facts, gpu=request.gpu, peak=request.peak)
    tally = _Tally(expected, work_of(ready.derivation).model, ready.throughput, ceiling)
    batch = getattr(synthetic_data, demo.data)(sizes, request.seed)
    with training(ready.spec, sizes, demo.options, request.device, seed=request.seed) as run:
        begun, losses = resumed(run, request.folder, request.seed) if request.resume and request.folder is not None else (0, [])
        if begun >= request.steps:
            raise BadInputError(f"the checkpoint is at step {begun} already: give a larger --steps")
        for finished in trained(run, batch, range(begun + 1, request.steps + 1), request.accounts_for):
            losses.append(finished.loss)
            progress(tally.add(finished, request.steps))
            if request.folder is not None and (finished.step % request.save_every == 0 or finished.step == request.steps):
                save(run, finished.step, losses, request.folder, request.seed)
    accounts, throughput = tuple(tally.accounted), ready.throughput
    parts = expected, accounts, tally.times, throughput, ceiling, tally.mfu, facts
    return TrainingRun(demo, sizes, begun, tuple(losses), *parts, request.seed)

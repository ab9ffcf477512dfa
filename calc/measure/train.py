"""Real training with instruments: some steps are accounted (FLOPs and live bytes), the others are timed.

An instrument slows a step down, so no step is both. A step's batch depends only on its number, so a resumed run gets the same batches
as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from calc.errors import BadInputError, MeasurementError
from calc.experiment.inputs import mapped
from calc.experiment.precision import cast
from calc.measure.counter import flop_counter
from calc.measure.flops import MAPPING, uncounted
from calc.measure.kinds import tensors_in
from calc.measure.observer import Observer
from calc.measure.resume import restore, state_of
from calc.measure.storages import StorageWatch
from calc.measure.timing import Around, HostWatch
from calc.measure.training import SEED, Training, blame
from calc.platform import files
from calc.symbolic.assignments import TYPED, sizes_text

CHECKPOINT = "checkpoint.pt"
Batch = Callable[[int], tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True)
class StepAccount:
    """Matmul FLOPs of one step by phase, and its peak live bytes; ``None`` if not measurable, with the reason in ``because``."""

    flops: Mapping[str, int | None]
    peak: int | None
    because: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """One finished step, numbered from 1, with its loss and either ``nanoseconds`` or an ``account``."""

    step: int
    loss: float
    nanoseconds: int | None = None
    account: StepAccount | None = None


def trained(run: Training, batch: Batch, steps: range, accounted: Callable[[int], bool]) -> Iterator[Done]:
    """Runs and yields the numbered steps one at a time; training stops when the caller stops iterating."""
    clock = HostWatch(synchronize=_waiting(run.device))
    clock.tick()
    for step in steps:
        with blame(run.spec, run.sizes, "making a batch"):
            _, inputs = cast(run.module, mapped(lambda x: x.to(run.device), tuple(batch(step))), run.options.precision)
        fed = replace(run, inputs=inputs)
        del inputs
        if accounted(step):
            loss, account = _accounted(fed)
            yield Done(step, loss, account=account)
        else:
            begin = clock.start()
            tensor = _step(fed)
            end = clock.stop()
            yield Done(step, float(tensor), nanoseconds=clock.between(begin, end))


def _waiting(device: str) -> Callable[[], None]:
    return (lambda: torch.cuda.synchronize(device)) if device.startswith("cuda") else (lambda: None)


def _step(run: Training, around: Around = lambda phase: nullcontext()) -> Tensor:
    """The loss of one step: ``Training.step`` with a single micro-batch."""
    with around("forward"):
        loss = run.forward()
    with around("backward"):
        run.backward(loss)
    with around("optimizer"):
        run.update()
    run.clear()
    return loss.detach()


def _accounted(run: Training) -> tuple[float, StepAccount]:
    """The loss of a step and its account, by torch's FLOP counter and a ``StorageWatch``."""
    watch, observer = StorageWatch(), Observer()
    counters = {phase: flop_counter(MAPPING) for phase in run.phases}
    assert run.optimizer is not None
    watch.admit([*run.module.parameters(), *run.module.buffers(), *tensors_in([run.inputs, run.optimizer.state])])
    if run.masters is not None:
        watch.admit(run.masters.stepped)
    watch.open_window()

    @contextmanager
    def around(phase: str) -> Iterator[None]:
        with counters[phase], observer, watch:
            yield

    loss = float(_step(run, around))
    escaping = uncounted(observer.names)
    blind = f"storages that torch does not show, at {', '.join(sorted(watch.blind))}" if watch.blind else ""
    flops = {phase: None if escaping else counter.get_total_flops() for phase, counter in counters.items()}
    return loss, StepAccount(flops, None if blind else watch.peak, "; ".join(filter(None, (escaping, blind))))


# -- checkpoints -----------------------------------------------------------------------------------------------------------


def save(run: Training, step: int, losses: list[float], folder: Path, seed: int = SEED) -> Path:
    """The checkpoint's path, with all that the run needs to resume. Written atomically; raises ``BadInputError`` on failure."""
    state = {**state_of(run, step), "losses": torch.tensor(losses, dtype=torch.float64), "of": _identity(run, seed)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return files.write(files.Output(folder / CHECKPOINT, lambda file: torch.save(state, file)), label="a checkpoint to")[0]
    except (OSError, RuntimeError) as error:  # torch's writer raises a RuntimeError where the disk is full
        raise BadInputError(f"cannot write a checkpoint to {folder}: {' '.join(str(error).split())[:200]}") from None


def resumed(run: Training, folder: Path, seed: int = SEED) -> tuple[int, list[float]]:
    """Restores ``run`` from the checkpoint in ``folder`` (``weights_only``); returns the number of steps done, and their losses."""
    path = folder / CHECKPOINT
    if not path.is_file():
        raise BadInputError(f"there is no {CHECKPOINT} in {folder} to resume from: train without --resume first")
    try:
        state = torch.load(path, map_location=run.device, weights_only=True)
        if state["of"] != _identity(run, seed):
            raise BadInputError(f"{path} is of another run ({state['of']}): resume with its model, sizes, seed and options")
        return restore(run, state), [float(loss) for loss in state["losses"]]
    except BadInputError:
        raise
    except Exception as error:  # any other error of reading the file
        raise MeasurementError(f"{path} is not a checkpoint of this program: {type(error).__name__}") from None


def _identity(run: Training, seed: int) -> str:
    sizes = sizes_text(run.sizes, TYPED)
    return f"{run.spec.name} at {sizes} with {', '.join(run.options.to_json().values())}, seed {seed}"

"""Checks that training resumes from a checkpoint bit for bit, and measures the bytes of checkpoint files.

A run saves a checkpoint after k steps and goes on to N. It is compared with N - k steps of a new module and optimizer restored from that
file alone. Anything missing in the file must cause a difference, so the new module's state is zeroed and its random generator reseeded
before they are restored. If saving changes anything in a run, N steps of another one, without saving, are what is compared.
"""

from __future__ import annotations

import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calc.errors import BadInputError, MeasurementError, MissingExtraError, NapkinError
from calc.measure.free_memory import require_free_memory
from calc.measure.kinds import tensors_in
from calc.measure.training import SEED, Training, blame, training
from calc.options import Options
from calc.platform.progress import Progress
from calc.spec import Spec

STEM = "checkpoint"
_GENERATOR = "random generator of "
Change = Callable[[dict[str, Any]], None]
Schedule = tuple[str, Mapping[str, Any]]  # a class of torch.optim.lr_scheduler, and its arguments without the optimizer


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """Bytes of a file of safetensors, or why there is none; of the random generators' states; and of the scheduler's state with its number
    of groups, if the run has a scheduler."""

    safetensors: int | NapkinError
    generator: int
    scheduler: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Resumption:
    """The result of ``resume``. ``tensors`` is the number of tensors compared bit for bit, ``differing`` names those that differ.

    ``chance`` names tensors that also differ between two uninterrupted runs, e.g. because a model reads uninitialized memory;
    whether those resume is undecidable. ``saved`` is the size in bytes of the file that ``torch.save`` wrote, ``pickled`` that of
    the pickle in it, and ``storages`` those of its storages, in the file's order. ``files``: of the other files, ``None`` if they
    were not wanted.
    """

    steps: int
    saved_after: int
    tensors: int
    differing: tuple[str, ...]
    saved: int
    pickled: int
    storages: tuple[int, ...]
    chance: tuple[str, ...] = ()
    files: CheckpointFiles | None = None


def resume(
    spec: Spec,
    sizes: Mapping[str, int] | None = None,
    *,
    options: Options | None = None,
    steps: int = 4,
    saved_after: int = 2,
    corrupt: Change = lambda state: None,
    with_files: bool = False,
    schedule: Schedule | None = None,
    progress: Progress = lambda text: None,
    seed: int = SEED,
) -> Resumption:
    """Compares ``steps`` uninterrupted steps of ``spec`` with steps resumed from a checkpoint.

    ``corrupt`` may change the state that was read, to test this comparison; ``with_files`` also measures ``CheckpointFiles`` after the
    last uninterrupted step; ``schedule`` names a scheduler of torch, with its arguments; weights and inputs are drawn
    from ``seed``. Raises ``BadInputError`` unless 0 < ``saved_after`` < ``steps`` and the mode trains.
    """
    options = options or Options()
    if not 0 < saved_after < steps:
        raise BadInputError(f"a checkpoint after step {saved_after} of {steps} resumes nothing: save between the first and the last")
    if not options.trains:
        raise BadInputError(f"mode {options.mode} trains nothing, so there is nothing to resume: use mode train")
    at = spec.sizes(sizes or {})
    require_free_memory(spec, at, trains=True)
    compared = _ScheduledStep(spec, at, options, schedule, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{STEM}.pt"
        progress("building the model")
        with compared.started() as run:
            seconds = _first_step(run, progress)
            if saved_after > 1:
                _trained(run, saved_after - 1)
            progress(f"writing a checkpoint, then {_steps(2 * (steps - saved_after), seconds)}")
            is_same = _save(run, saved_after, path)
            progress(f"training on without interruption: {_steps(steps - saved_after, seconds)}")
            straight = _trained(run, steps - saved_after)
            files = _files(run, progress) if with_files else None
        if not is_same:
            straight = compared.uninterrupted(steps)
        progress(f"training a new model from the checkpoint: {_steps(steps - saved_after, seconds)}")
        with compared.started() as run:
            steps_done = _restored(run, path, corrupt, seed + 1)
            resumed = _trained(run, steps - steps_done)
        saved, pickled, storages = _file(path)
    progress("comparing every bit")
    differing = _differing(straight, resumed)
    chance = _differing(straight, compared.uninterrupted(steps)) if differing else ()
    lost = tuple(name for name in differing if name not in chance)
    return Resumption(steps, saved_after, len(straight), lost, saved, pickled, storages, chance, files)


def _files(run: Training, progress: Progress) -> CheckpointFiles:
    """The files beside that of ``torch.save``, written and measured."""
    generator = measure_generators(run)
    scheduler = measure_scheduler(run) if run.scheduler is not None else None
    progress("writing safetensors")
    try:
        return CheckpointFiles(measure_safetensors(run), generator, scheduler)
    except NapkinError as error:
        return CheckpointFiles(error, generator, scheduler)


def _first_step(run: Training, progress: Progress) -> float:
    """Runs one step and returns its seconds."""
    progress("the first step")
    begin = time.perf_counter()
    _trained(run, 1)
    return time.perf_counter() - begin


def _steps(count: int, seconds: float) -> str:
    """``2 steps, about 4 s``: by the time of the first one."""
    return f"{count} step{'s' if count > 1 else ''}{f', about {count * seconds:.0f} s' if seconds >= 1 else ''}"


@dataclass(frozen=True, slots=True)
class _ScheduledStep:
    """The step whose runs are compared; a scheduler of torch sets its learning rate if there is one."""

    spec: Spec
    sizes: Mapping[str, int]
    options: Options
    schedule: Schedule | None
    seed: int

    @contextmanager
    def started(self) -> Iterator[Training]:
        """Context with a new training."""
        with training(self.spec, self.sizes, self.options, "cpu", seed=self.seed) as run:
            if self.schedule is None:
                yield run
                return
            kind, arguments = self.schedule
            with blame(self.spec, self.sizes, f"building the scheduler {kind}"):
                scheduler = getattr(torch.optim.lr_scheduler, kind)(run.optimizer, **arguments)
            yield replace(run, scheduler=scheduler)

    def uninterrupted(self, steps: int) -> dict[str, Tensor]:
        """The state after so many steps."""
        with self.started() as run:
            return _trained(run, steps)


# -- what is saved ---------------------------------------------------------------------------------------------------------


def state_of(run: Training, iteration: int) -> dict[str, Any]:
    """The complete state of a run after ``iteration`` steps, except its data."""
    assert run.optimizer is not None
    return {
        "model": run.module.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "iteration": torch.tensor(iteration),
        **({"master weights": list(run.masters.stepped)} if run.masters is not None else {}),
        **({"scaler": run.scaler.state_dict()} if run.scaler is not None else {}),
        **({"scheduler": run.scheduler.state_dict()} if run.scheduler is not None else {}),
        "generators": _generators(run.device),
    }


def _generators(device: str) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    return states if device == "cpu" else states | {device: torch.cuda.get_rng_state(device)}


def _save(run: Training, iteration: int, path: Path) -> bool:
    """Writes the state of ``run``, and returns whether no tensor of the run was replaced or written to meanwhile."""
    before = _versions(run)
    with blame(run.spec, run.sizes, "writing a checkpoint"):
        torch.save(state_of(run, iteration), path)
    return before == _versions(run)


def _versions(run: Training) -> dict[str, Any]:
    """The memory and the write count of every tensor of the run; of a random generator its state, which is no tensor of its own."""
    generators = {device: state.tolist() for device, state in _generators(run.device).items()}
    return {name: (t.data_ptr(), t._version) for name, t in _tensors(run) if not name.startswith(_GENERATOR)} | generators


def _restored(run: Training, path: Path, corrupt: Change, other_seed: int) -> int:
    """Restores ``run`` from the file, after its own state and that of ``other_seed``, and returns the number of steps done."""
    _spoil(run, other_seed)
    with blame(run.spec, run.sizes, "reading a checkpoint"):
        # This file is our own; a state may contain objects that weights_only rejects.
        state = torch.load(path, map_location=run.device, weights_only=False, mmap=True)
        corrupt(state)
        return restore(run, state)


def restore(run: Training, state: dict[str, Any]) -> int:
    """Restores ``run`` from a state of ``state_of`` and returns the number of steps done."""
    assert run.optimizer is not None
    run.module.load_state_dict(state["model"])
    if "optimizer" in state:
        run.optimizer.load_state_dict(state["optimizer"])
    if run.masters is not None:
        _fill(run.masters.stepped, state.get("master weights", ()))
    if run.scaler is not None:
        run.scaler.load_state_dict(state["scaler"])
    if run.scheduler is not None and "scheduler" in state:
        run.scheduler.load_state_dict(state["scheduler"])
    for device, generator in state.get("generators", {}).items():
        if device == "cpu":
            torch.set_rng_state(generator.cpu())
        else:
            torch.cuda.set_rng_state(generator.cpu(), device)
    return int(state["iteration"])


@torch.no_grad()
def _fill(copies: Sequence[Tensor], saved: list[Tensor]) -> None:
    for copy, value in zip(copies, saved, strict=False):
        copy.copy_(value)


@torch.no_grad()
def _spoil(run: Training, seed: int) -> None:
    """Zeroes the module's state and reseeds the generator, so that anything not restored differs. Non-persistent state stays as built."""
    torch.manual_seed(seed)
    for tensor in (*tensors_in(run.module.state_dict()), *(run.masters.stepped if run.masters is not None else ())):
        tensor.zero_()


# -- comparing -------------------------------------------------------------------------------------------------------------


def _trained(run: Training, steps: int) -> dict[str, Tensor]:
    """All tensors of the run by name after ``steps`` steps, and the last loss."""
    losses: list[Tensor] = []

    for _ in range(steps):
        for _ in range(run.batches):
            loss = run.forward()
            run.backward(loss)
        losses.append(loss.detach().clone())
        run.update()
        run.clear()
    return {**dict(_tensors(run)), "the last loss": losses[-1]}


def _tensors(run: Training) -> Iterator[tuple[str, Tensor]]:
    assert run.optimizer is not None
    for name, tensor in (*run.module.named_parameters(), *run.module.named_buffers()):
        yield name, tensor.detach()
    for index, state in enumerate(run.optimizer.state.values()):
        for key, value in state.items():
            for part, tensor in enumerate(tensors_in(value)):
                yield f"optimizer state {index} {key} {part}", tensor
    for index, copy in enumerate(run.masters.stepped if run.masters is not None else ()):
        yield f"fp32 copy {index}", copy.detach()
    for device, generator in _generators(run.device).items():
        yield f"{_GENERATOR}{device}", generator


def _differing(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> tuple[str, ...]:
    return tuple(sorted(name for name in first.keys() | second.keys() if not _equal_bits(first.get(name), second.get(name))))


def _equal_bits(a: Tensor | None, b: Tensor | None) -> bool:
    """Whether two tensors have the same dtype, shape and bits: NaN equals itself, and 0 differs from -0."""
    if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(_bits(a), _bits(b))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.cpu().contiguous().reshape(-1).view(torch.uint8)


# -- files -----------------------------------------------------------------------------------------------------------------


def _file(path: Path) -> tuple[int, int, tuple[int, ...]]:
    """Bytes of a file of ``torch.save``, of its pickle, and of each of its storages."""
    with zipfile.ZipFile(path) as archive:
        sizes = {info.filename.partition("/")[2]: info.file_size for info in archive.infolist()}
    storages = tuple(size for name, size in sizes.items() if name.startswith("data/"))
    return path.stat().st_size, sizes["data.pkl"], storages


def measure_generators(run: Training) -> int:
    """Bytes of the states of the random generators of ``run`` in a real file of ``torch.save``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{STEM}.pt"
        torch.save(_generators(run.device), path)
        return sum(_file(path)[2])


def measure_scheduler(run: Training) -> tuple[int, int]:
    """Bytes of a real file of ``torch.save`` with the scheduler's state, and groups of parameters, each with a learning rate."""
    assert run.scheduler is not None
    assert run.optimizer is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{STEM}.pt"
        torch.save(run.scheduler.state_dict(), path)
        return path.stat().st_size, len(run.optimizer.param_groups)


def measure_safetensors(run: Training) -> int:
    """Bytes of a real safetensors file with the model, the optimizer's state, fp32 copies and the iteration.

    Tied weights are written once, under their first name: the library rejects shared storages. Raises ``MissingExtraError`` without
    safetensors and ``MeasurementError`` if the optimizer's state has a value that is not a tensor.
    """
    assert run.optimizer is not None
    try:
        from safetensors.torch import save_file
    except ImportError:
        raise MissingExtraError("safetensors is not installed: pip install 'napkin[hf]'") from None
    state_storages = {t.untyped_storage()._cdata for t in tensors_in(run.module.state_dict())}
    entries = [(f"model.{name}", t) for name, t in (*run.module.named_parameters(), *run.module.named_buffers())]
    entries = [(name, t) for name, t in entries if t.untyped_storage()._cdata in state_storages]
    steps = run.masters.stepped if run.masters is not None else tuple(run.module.parameters())
    stepped: dict[Tensor, tuple[str, Tensor]] = dict(zip(steps, run.module.named_parameters(), strict=True))
    for parameter, state in run.optimizer.state.items():
        for key, value in state.items():
            if not isinstance(value, Tensor):
                raise MeasurementError(f"the optimizer keeps a {type(value).__name__} as {key}: safetensors holds tensors only")
            entries.append((f"optimizer.{key}.{stepped[parameter][0]}", value))
    entries += [(f"master.{name}", copy) for copy, (name, _) in stepped.items() if run.masters is not None]
    unique: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in entries:
        unique.setdefault(tensor.untyped_storage()._cdata, (name, tensor))
    tensors = {name: t.detach().cpu().contiguous() for name, t in unique.values()} | {"iteration": torch.tensor(1)}
    with tempfile.TemporaryDirectory() as folder, blame(run.spec, run.sizes, "writing safetensors"):
        path = Path(folder) / f"{STEM}.safetensors"
        save_file(tensors, path)
        return path.stat().st_size

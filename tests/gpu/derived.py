"""Steps derived beside their measurement, each in a process of its own and into a file of its own, so that a device does not wait."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Iterable
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from calc.errors import NapkinError
from calc.memory.device_memory import PredictedMemory, predicted
from calc.performance.mfu import MatmulFlops, work_from
from tests.gpu.plan import Step, derived_options, named

_POLL = 0.2  # seconds
HOPPER = (9, 0)  # compute capability whose workspaces a prediction of memory adds, where no device says its own


@dataclass(frozen=True)
class Derived:
    """What is known of a step without running it: FLOPs, operators (which predict its time), the allocator's peaks."""

    work: MatmulFlops
    operators: tuple[Any, ...] | None
    memory: PredictedMemory | None
    because: str = ""


class Deriving:
    """Processes that derive steps into files of ``folder``, beside and after whatever else runs. Leave it to end them."""

    def __init__(self, folder: Path, processes: int) -> None:
        self.folder = folder
        self._processes = processes
        self._pool = self._new()

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._processes, get_context("spawn"), initializer=_step_back)

    def begin(self, steps: Iterable[Step]) -> None:
        for step in steps:
            try:
                self._pool.submit(_derive, step, str(self.folder))
            except BrokenExecutor:  # one of its processes died, and what it had not done yet is lost
                self._pool = self._new()
                self._pool.submit(_derive, step, str(self.folder))

    def end(self) -> None:
        """What has not been derived yet is left."""
        processes = list((getattr(self._pool, "_processes", None) or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()


def derived(folder: Path, step: Step, wait: float) -> Derived | None:
    """What was derived of a step, once its file is there; ``None`` where it is not within ``wait`` seconds."""
    file, until = folder / f"{named(step)}.pickle", time.monotonic() + wait
    while not file.exists():
        if time.monotonic() > until:
            return None
        time.sleep(_POLL)
    document: Derived = pickle.loads(file.read_bytes())
    return document


def _step_back() -> None:
    """What is timed comes first."""
    os.nice(10)
    end_with_parent()


def end_with_parent() -> None:
    """End this process when the one that started it is killed: nothing else would tell it."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _derive(step: Step, folder: str) -> None:
    file = Path(folder) / f"{named(step)}.pickle"
    waiting = file.with_suffix(".part")
    waiting.write_bytes(pickle.dumps(_derived(step)))
    os.replace(waiting, file)


def _derived(step: Step) -> Derived:
    """Each part that cannot be derived says why and leaves the others."""
    import calc
    from calc.performance.step_operators import step_operators

    model, sizes, recipe = step
    try:
        spec, options = calc.load(model), derived_options(recipe)
        derivation = calc.derive(spec, sizes, **options.to_json())
        work = work_from(lambda: derivation)
    except Exception as error:  # whatever it is, the step is measured all the same
        because = _line(error)
        return Derived(MatmulFlops(None, None, because), None, None, because)
    operators, memory, because = None, None, ""
    try:
        operators = tuple(step_operators(spec, sizes, options=options).works)
    except Exception as error:  # as above
        because = _line(error)
    try:
        memory = predicted(derivation, HOPPER)
    except (NapkinError, RuntimeError, ArithmeticError) as error:
        because = because or _line(error)
    return Derived(work, operators, memory, because)


def _line(error: BaseException) -> str:
    """An error as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"

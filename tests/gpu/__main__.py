"""Everything that is measured on a CUDA device, in one unattended run: the lecture's matrix multiplication in every number format,
GPT-2's steps eager and compiled beside their prediction, memory beside its derivation, a calibration, transfers, then larger models.

Run as ``python -m tests.gpu``; ``--rehearse`` runs the same without a GPU, at toy sizes, and measures nothing. The most valuable comes
first, and every record is a file of its own, complete as soon as it is there, so that a run may be cut off at any moment. What fails or
takes too long is stopped, told at the end, and costs the other tasks nothing: a process of its own has the device, and is started again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gpu.plan import PARTS, REAL, REHEARSED, Task, derived_first, derived_later, tasks
from tests.gpu.summary import lines

ROOT = Path(__file__).resolve().parent.parent.parent
OUTPUT = ROOT / "reports" / "measurements"
REHEARSAL = ROOT / "out" / "gpu-rehearsal"
NO_DEVICE = 3
_POLL = 0.1
_STARTING = 90.0  # seconds that a process may take until its first task begins


@dataclass
class Run:
    """One run: what is left to do, and what the log says of the rest. ``command`` starts a process for the tasks that are left."""

    work: Path
    left: list[Task]
    until: float
    command: Callable[[Sequence[Task]], Sequence[str]]
    after: Mapping[str, Callable[[], None]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    _read: int = 0

    def to_the_end(self) -> int:
        """Start processes until every task is done or the time is over; the last exit status."""
        while self.left and time.time() < self.until:
            before = len(self.left)
            status = self._process()
            if status == NO_DEVICE:
                return status
            if len(self.left) == before:  # it did not come to a task, and nor would another one
                self.failed["every task"] = f"the process for them ended with status {status} before the first began"
                return status
        return 0

    def _process(self) -> int:
        """One process: until it ends, or a task in it takes longer than it may."""
        process = subprocess.Popen(self.command(self.left), start_new_session=True)
        began, task = time.time(), None
        try:
            while process.poll() is None:
                task, began = self._follow(task, began)
                limit = _STARTING if task is None else task.limit
                if time.time() > min(began + limit, self.until):
                    self._stop(task, time.time() > self.until)
                    break
                time.sleep(_POLL)
        finally:
            _kill(process)
        task, _ = self._follow(task, began)
        if task is not None and task.name not in self.failed:
            self.failed[task.name] = f"its process ended with status {process.returncode}"
        return int(process.returncode)

    def _stop(self, task: Task | None, over: bool) -> None:
        if task is not None:
            self.failed[task.name] = "stopped: the time of the whole run was over" if over else f"stopped after {task.limit:.0f} seconds"

    def _follow(self, task: Task | None, began: float) -> tuple[Task | None, float]:
        """What the log says since it was last read: the task that runs now, and since when."""
        for event in self._events():
            if event["event"] == "began":
                task = next(one for one in self.left if one.name == event["task"])
                began = event["at"]
                del self.left[: self.left.index(task) + 1]
                _say(task.name)
            elif event["event"] in ("ended", "failed"):
                if event["event"] == "failed":
                    self.failed[event["task"]] = event["because"]
                    _say(f"{event['task']} failed: {event['because']}")
                then, task = self.after.get(event["task"]), None
                if then is not None:
                    then()
        return task, began

    def _events(self) -> Iterator[dict[str, Any]]:
        log = self.work / "log.jsonl"
        if not log.exists():
            return
        with log.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                yield json.loads(line)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The process and what it started (compilers), if it has not ended by itself."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


_BEGUN = time.monotonic()


def _say(words: str) -> None:
    print(f"{time.monotonic() - _BEGUN:4.0f} s  {words}", file=sys.stderr, flush=True)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="where the JSON files go (reports/measurements; out/gpu-rehearsal)")
    parser.add_argument("--seconds", type=float, default=530, help="stop whatever runs after so many seconds (530)")
    parser.add_argument("--rehearse", action="store_true", help="run everything without a GPU, at toy sizes: nothing is measured")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="these parts alone")
    given = parser.parse_args(words)
    output = given.output or (REHEARSAL if given.rehearse else OUTPUT)
    if given.rehearse and (output.resolve().is_relative_to(OUTPUT) or output.name == OUTPUT.name):
        parser.error(f"a rehearsal measures nothing: its records cannot go to {output}")
    with tempfile.TemporaryDirectory(prefix="napkin-gpu-") as folder:
        return _run(output, Path(folder), given.seconds, given.rehearse, given.only)


def _run(output: Path, work: Path, seconds: float, rehearsal: bool, parts: Sequence[str]) -> int:
    from tests.gpu.derived import Deriving
    from tests.gpu.run import Session, request

    plan = REHEARSED if rehearsal else REAL
    session = Session(output, work, rehearsal=rehearsal)
    left = [task for task in tasks(plan) if task.part in parts]
    until = time.time() + seconds
    deriving = Deriving(work, max(1, min(12, (os.cpu_count() or 2) - 2)))
    stepped = {task.model for task in left if task.model}

    def later() -> None:
        deriving.begin(derived_later(plan) if stepped - {plan.first.name} else ())

    deriving.begin(derived_first(plan) if plan.first.name in stepped else ())
    if "transfers" not in parts:
        later()
    run = Run(work, left, until, lambda rest: [sys.executable, "-m", "tests.gpu.run", request(session, rest, until)], {"transfers": later})
    try:
        status = run.to_the_end()
    finally:
        deriving.end()
    if status == NO_DEVICE:
        print("not measured: there is no CUDA device here (python -m tests.gpu --rehearse runs all of it without one)")
        return 0
    print("\n".join(lines(output, work, run.failed, [task.name for task in run.left], rehearsal)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

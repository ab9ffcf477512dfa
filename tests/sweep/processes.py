"""Rows of a table, each made in a process of its own, forked from one that has the libraries loaded, and given up after a while.

What was made is kept in a file for each row, so that a table goes on where it stopped.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol


class AnyRow(Protocol):
    """A frozen dataclass with what became of one entry."""

    @property
    def verdict(self) -> str: ...

    @property
    def why(self) -> str: ...

    @property
    def seconds(self) -> float: ...


def file_of(folder: Path, name: str, seed: int = 0) -> Path:
    return folder / f"{name.replace(':', '-').replace('/', '-')}-{seed}.json"


def made(
    waiting: Sequence[str],
    make: Callable[[str], AnyRow],
    given_up: Callable[[str, str, float], AnyRow],
    kept: Callable[[str], Path],
    limit: float,
    jobs: int,
    done: int = 0,
) -> None:
    """Write the row of each name that is ``waiting`` to its file: as ``make`` makes it, or as ``given_up`` does of why and seconds."""
    context = multiprocessing.get_context("fork")
    left, total = [*waiting], done + len(waiting)
    running: dict[str, tuple[BaseProcess, float]] = {}
    while left or running:
        while left and len(running) < jobs:
            name = left.pop(0)
            kept(name).unlink(missing_ok=True)
            process = context.Process(target=_worker, args=(name, make, kept(name)))
            process.start()
            running[name] = (process, time.monotonic())
        for name, (process, since) in [*running.items()]:
            late = time.monotonic() - since > limit
            if process.is_alive() and not late:
                continue
            if process.is_alive():
                process.kill()
            process.join()
            del running[name]
            done += 1
            if late or not kept(name).exists():
                why = f"not done within {limit:.0f} s" if late else f"its process ended with {process.exitcode}"
                _keep(kept(name), given_up(name, why, round(time.monotonic() - since, 1)))
            _say(f"[{done}/{total}]", name, read(kept(name)))
        time.sleep(0.05)


def _say(count: str, name: str, row: Mapping[str, Any]) -> None:
    print(f"{count} {name:<28} {row['verdict']:<10} {row['seconds']:6.1f} s  {row['why'][:300]}", file=sys.stderr, flush=True)


def read(path: Path) -> dict[str, Any]:
    """The fields of a kept row."""
    row: dict[str, Any] = json.loads(path.read_text())
    return row


def _worker(name: str, make: Callable[[str], AnyRow], path: Path) -> None:
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # for the life of the process
    _keep(path, make(name))


def _keep(path: Path, row: Any) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(asdict(row)))
    part.rename(path)

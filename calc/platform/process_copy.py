"""Work done beside this process by a forked copy of it, on a core that would be idle. Torch-free."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_PAUSE = 0.005  # seconds between two looks for a result
_PATIENCE = 2  # how many times as long as its own share this process waits for the results of a copy that shares the work


class ProcessCopy:
    """The results of a copy of this process, in the order in which it makes them. Files hold them, so that it never waits for a reader."""

    def __init__(self, process: int, folder: Path, patience: float) -> None:
        self._process, self._folder, self._patience = process, folder, patience
        self._ended = False

    def result(self, number: int, patience: float | None = None) -> Any:
        """The result with this number, from 0; None if the copy ended without it, or has not made it after ``patience`` seconds."""
        file, until = self._folder / str(number), time.monotonic() + (self._patience if patience is None else patience)
        while not file.exists():
            if (self._has_ended() and not file.exists()) or time.monotonic() > until:
                return None
            time.sleep(_PAUSE)
        return pickle.loads(file.read_bytes())

    def end(self) -> None:
        """Stop the copy, and remove what it has made."""
        if not self._has_ended():
            os.kill(self._process, signal.SIGKILL)
            self._has_ended(wait=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _has_ended(self, wait: bool = False) -> bool:
        try:
            self._ended = self._ended or os.waitpid(self._process, 0 if wait else os.WNOHANG)[0] != 0
        except ChildProcessError:  # somebody else has waited for it
            self._ended = True
        return self._ended


def copy_of_this_process(work: Callable[[], Iterator[Any]], patience: float) -> ProcessCopy | None:
    """A copy of this process that makes the results of ``work``; None where there is no second core, or a copy may not be safe.

    A copy has this thread alone, so that it could wait forever for a lock that another thread holds. ``NAPKIN_PROCESSES=1`` forbids copies.
    """
    forbidden = sys.platform != "linux" or os.environ.get("NAPKIN_PROCESSES") == "1"
    if forbidden or threading.active_count() > 1 or len(os.sched_getaffinity(0)) < 2:
        return None
    folder = Path(tempfile.mkdtemp(prefix="napkin-"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads of libraries, which the work does not use
            process = os.fork()
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        return None
    if process:
        return ProcessCopy(process, folder, patience)
    os.environ["NAPKIN_PROCESSES"] = "1"  # both cores are busy now
    with contextlib.suppress(BaseException):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process ends this one
        for number, value in enumerate(work()):
            unfinished = folder / f"{number}.unfinished"
            unfinished.write_bytes(pickle.dumps(value))
            unfinished.rename(folder / str(number))
    os._exit(0)  # what the other process has open, buffered or registered is its own


def shared(items: Sequence[T], make: Callable[[T], R], beside: Callable[[T], R]) -> list[R]:
    """``make`` of each item. Of every second one a copy of this process makes it with ``beside``, which gives the same and prints nothing;
    what it does not give in time is made here."""
    begin = time.monotonic()
    copy = copy_of_this_process(lambda: ((beside(item),) for item in items[1::2]), 0) if len(items) > 1 else None
    try:
        made = {number: make(items[number]) for number in range(0, len(items), 2)}
        patience = _PATIENCE * (time.monotonic() - begin)
        for number in range(1, len(items), 2):
            result = copy.result(number // 2, patience) if copy is not None else None
            made[number] = make(items[number]) if result is None else result[0]
    finally:
        if copy is not None:
            copy.end()
    return [made[number] for number in range(len(items))]

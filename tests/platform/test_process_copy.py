"""A copy of this process makes results beside it, and leaves nothing behind."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from calc.platform.process_copy import copy_of_this_process, shared

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no process can be copied here")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where copies write; two cores, and copies allowed."""
    monkeypatch.delenv("NAPKIN_PROCESSES", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # a worker of pytest has threads
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def _two() -> Iterator[object]:
    yield {"process": os.getpid()}
    yield [7] * 100_000  # more than a pipe takes


def test_results_are_those_of_another_process_in_their_order(folder: Path) -> None:
    copy = copy_of_this_process(_two, 60)
    assert copy is not None
    second, first = copy.result(1), copy.result(0)

    assert [7] * 100_000 == second
    assert os.getpid() != first["process"]
    assert copy.result(2) is None
    copy.end()
    assert [] == [*folder.iterdir()]


def _fails() -> Iterator[object]:
    yield 7
    raise KeyboardInterrupt


def test_a_copy_that_fails_has_no_further_results(capfd: pytest.CaptureFixture[str]) -> None:
    copy = copy_of_this_process(_fails, 60)
    assert copy is not None
    results = copy.result(0), copy.result(1)
    copy.end()

    assert (7, None) == results
    assert ("", "") == capfd.readouterr()


def _sleeps() -> Iterator[object]:
    time.sleep(600)
    yield 7


def test_a_copy_that_takes_too_long_is_not_waited_for_and_ends(folder: Path) -> None:
    copy = copy_of_this_process(_sleeps, 0.0)
    assert copy is not None
    assert copy.result(0) is None
    copy.end()
    copy.end()  # a second time changes nothing

    with pytest.raises(ChildProcessError):
        os.waitpid(copy._process, os.WNOHANG)
    assert [] == [*folder.iterdir()]


@pytest.mark.parametrize("why", ["forbidden", "one core", "another thread", "no memory"])
def test_where_a_copy_is_not_safe_there_is_none(why: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise OSError("no memory")

    if why == "forbidden":
        monkeypatch.setenv("NAPKIN_PROCESSES", "1")
    elif why == "one core":
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    elif why == "another thread":
        monkeypatch.setattr(threading, "active_count", lambda: 2)
    else:
        monkeypatch.setattr(os, "fork", refuse)

    assert copy_of_this_process(_two, 60) is None
    assert [] == [*folder.iterdir()]


def test_work_is_shared_with_a_copy(folder: Path) -> None:
    """Each in its place; every second one by the copy."""
    made = shared(range(5), lambda number: (number, os.getpid()), lambda number: (number, -os.getpid()))

    assert [0, 1, 2, 3, 4] == [number for number, _ in made]
    assert {os.getpid()} == {process for _, process in made[::2]}
    assert all(process < 0 for _, process in made[1::2])
    assert [] == [*folder.iterdir()]


def _never(_: int) -> str:
    time.sleep(600)
    return "beside"


def _raises(_: int) -> str:
    raise KeyboardInterrupt


@pytest.mark.parametrize("beside", [_never, _raises])
def test_what_a_copy_does_not_give_is_made_here(beside: Callable[[int], str], folder: Path) -> None:
    assert ["here"] * 5 == shared(range(5), lambda _: "here", beside)
    assert [] == [*folder.iterdir()]


def test_a_result_of_none_is_one(folder: Path) -> None:
    """It is not made once more."""
    assert [0, None, 2] == shared(range(3), lambda number: number, lambda _: None)


def test_a_copy_makes_no_copy() -> None:
    """There is no third core for it."""
    inner = shared(range(2), lambda _: "", lambda _: "none" if copy_of_this_process(_two, 60) is None else "a copy")

    assert ["", "none"] == inner


def test_without_a_second_core_all_is_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAPKIN_PROCESSES", "1")

    assert [0, 1, 4] == shared(range(3), lambda number: number**2, _never)

"""The command as a process: interrupts, closed pipes, full disks, closed streams, and standard output that is Napkin's alone."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from calc.models.load import load
from calc.options import Options
from calc.pipeline.cache import Cache

ROOT = Path(__file__).resolve().parents[3]
START = "from reports import main\nmain()"

# Loads without torch; a size that it does not have is refused once it is loaded.
NOISY = """
import atexit, ctypes, os, subprocess, sys
from calc import Spec
print("plain")
sys.__stdout__.write("from the interpreter's own\\n")
os.write(1, b"from the descriptor\\n")
os.system("echo from a shell")
subprocess.run(["echo", "from a child"])
ctypes.CDLL(None).puts(b"from C")
atexit.register(lambda: print("at exit"))
spec = Spec(name="noisy", dims={"B": 4, "n": 3}, build=lambda n: make(n.n), inputs=lambda n: make_inputs(n),
            loss=lambda m, x: m(x).sum(), check_at={"B": 2})
def make(n):
    import torch
    os.write(1, b"while it is built\\n")
    return torch.nn.Linear(n, 1)
def make_inputs(n):
    import torch
    return (torch.randn(n.B, n.n),)
"""
SAID = (
    "plain", "from the interpreter's own", "from the descriptor", "from a shell", "from a child", "from C", "at exit"
)  # fmt: skip


def done(words: Sequence[str], before: str = "", shell: str = "", **how: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which runs ``before`` first; ``shell`` redirects its streams."""
    code = f"import sys\nsys.argv = ['napkin', *{list(words)!r}]\n{before}\n{START}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **how.pop("env", {})}
    line: Any = [sys.executable, "-c", code] if not shell else ["bash", "-c", f'"$0" -c "$1" {shell}', sys.executable, code]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=120, env=environment, **how)


# -- standard output -------------------------------------------------------------------------------------------------------------------


def test_what_a_users_code_writes_by_whatever_way_goes_to_standard_error(tmp_path: Path) -> None:
    """Python's streams, the descriptor, processes, C, and what is printed when the process ends."""
    (tmp_path / "m.py").write_text(NOISY)
    actual = done(["derive", "m.py:spec", "-d", "Q=3"], cwd=tmp_path)

    assert (actual.returncode, actual.stdout) == (2, "")
    assert all(words in actual.stderr.split("\n") for words in SAID)
    assert "napkin: this model has no dimension 'Q': it has B, n" in actual.stderr.split("\n")


ENDING = """
import atexit, ctypes, threading, time
ctypes.CDLL(None).puts(b"what C holds back")
threading.Thread(target=lambda: (time.sleep(0.1), print("a thread"))).start()
atexit.register(lambda: print("at exit"))
"""


def test_what_is_under_way_is_finished_when_the_process_ends() -> None:
    """It ends without freeing all objects, but waits for threads, runs what was registered, and writes what C has buffered."""
    actual = done(["list", "dtypes"], before=ENDING, env={"PYTHONUNBUFFERED": ""})

    assert actual.returncode == 0
    assert all(words in (actual.stdout + actual.stderr).split("\n") for words in ("what C holds back", "a thread", "at exit"))


@pytest.mark.slow
def test_json_beside_code_that_prints_is_json(tmp_path: Path) -> None:
    """Of a step that is recorded."""
    (tmp_path / "m.py").write_text(NOISY)
    actual = done(["derive", "m.py:spec", "--json", "--values"], cwd=tmp_path, env={"NAPKIN_CACHE": "off"})

    assert actual.returncode == 0, actual.stderr
    assert json.loads(actual.stdout)["quantities"]["parameters"]["value"] == 4  # 3 weights and a bias
    assert "while it is built" in actual.stderr


def test_a_full_disk_under_standard_output_is_one_line() -> None:
    actual = done(["list", "optimizers"], shell=">/dev/full")

    assert (actual.returncode, actual.stderr) == (2, "napkin: cannot write to standard output: No space left on device\n")


@pytest.mark.parametrize("words", [("list", "optimizers"), ("--help",)])
def test_a_closed_standard_output_is_one_line(words: Sequence[str]) -> None:
    """Before any work: a file that is opened later could become standard output."""
    actual = done(words, shell=">&-")

    assert (actual.returncode, actual.stderr) == (2, "napkin: standard output is closed: send it to a file, or to /dev/null\n")


@pytest.mark.parametrize("shell", ["2>&-", "2>/dev/full", "<&-"])
def test_results_do_not_need_the_other_streams(shell: str) -> None:
    """What is said there is lost, and no more."""
    actual = done(["list", "questions"], shell=shell)

    assert actual.returncode == 0
    assert "training-time" in actual.stdout


def test_a_refusal_that_nobody_can_read_has_its_exit_status() -> None:
    assert [done(["list", "nothing"], shell=shell).returncode for shell in ("2>&-", "2>/dev/full", ">&- 2>&-")] == [2, 2, 2]


@pytest.mark.parametrize("words", [("list", "rules"), ("--version",), ("list", "optimizers", "--json")])
def test_a_closed_pipe_is_141_whenever_it_shows(words: Sequence[str]) -> None:
    """While text is written, or only when the process ends: small outputs wait in the buffer till then."""
    actual = done(words, shell="| :; exit ${PIPESTATUS[0]}", before="import time; time.sleep(0.2)")

    assert (actual.returncode, actual.stderr) == (141, "")


# -- interrupts ------------------------------------------------------------------------------------------------------------------------

INTERRUPTED_AT = """
import signal
class Interrupts:
    def find_spec(self, name, *_):
        if name == {name!r} and self in sys.meta_path:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
"""
CONVERTED = """
import signal
class Interrupts:
    def find_spec(self, name, *_):
        if name == "calc.errors":
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                raise ImportError("numpy could not be imported") from None
sys.meta_path.insert(0, Interrupts())
"""
IN_A_CALLBACK = """
import signal, weakref
class Last:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
class Drops:
    last = Last()
    def find_spec(self, name, *_):
        if name == "reports.cli.listing":
            Drops.last = None
sys.meta_path.insert(0, Drops())
"""


@pytest.mark.parametrize("name", ["reports.cli", "calc.errors", "reports.cli.listing", "reports.writers.terminal"])
def test_an_interrupt_while_something_is_imported_is_130_and_silent(name: str) -> None:
    actual = done(["list", "rules"], before=INTERRUPTED_AT.format(name=name))

    assert (actual.returncode, actual.stdout, actual.stderr) == (130, "", "")


@pytest.mark.parametrize("before", [CONVERTED, IN_A_CALLBACK], ids=["turned into another error", "in a callback"])
def test_an_interrupt_that_is_swallowed_is_one_all_the_same(before: str) -> None:
    """Libraries catch it, and callbacks cannot raise it."""
    actual = done(["list", "rules"], before=before)

    assert (actual.returncode, actual.stderr) == (130, "")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_an_interrupt_at_any_moment_of_a_derivation_is_130(seed: int, tmp_path: Path) -> None:
    """From the first line of Napkin's own on; a command that was done before has its own exit status."""
    begun = "import reports.process\nreports.process._raise_interrupts()\nprint('begun', file=sys.stderr, flush=True)"
    code = f"import sys\nsys.argv = ['napkin', 'report', 'linear', '--no-cache', '-o', 'out']\n{begun}\n{START}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment, stdout=-1, stderr=-1, text=True)
    assert process.stderr is not None
    assert process.stderr.readline() == "begun\n"
    time.sleep(random.Random(seed).choice((0.03, 0.3, 3)) * random.Random(seed + 1).random())
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=120)[1]

    assert process.returncode in (130, 0), said
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    assert [file.name for file in tmp_path.rglob(".*")] == []  # nothing half-written


# -- where it runs ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_a_home_there_is_no_cache(tmp_path: Path) -> None:
    """A container's user may have no entry, and no HOME."""
    before = "import os, pwd\ndef none(_): raise KeyError('no entry')\npwd.getpwuid = none\nos.environ.pop('HOME', None)\n"
    before += "os.environ.pop('NAPKIN_CACHE', None); os.environ.pop('XDG_CACHE_HOME', None)\n"
    before += "from calc.models.load import load\nfrom calc.options import Options\nfrom calc.pipeline.cache import Cache\n"
    before += "cache = Cache(load('linear'), Options(), True)\nassert cache.read(print) is None\ncache.write(None)"
    actual = done(["list", "questions"], before=before, cwd=tmp_path)

    assert (actual.returncode, actual.stderr) == (0, "")


@pytest.mark.slow
def test_a_folder_whose_name_is_no_text_is_a_folder(tmp_path: Path) -> None:
    """The current one, of a spec, and of what is not there."""
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)
    (Path(os.fsdecode(folder)) / "m.py").write_text(NOISY)
    inside = done(["derive", "m.py:spec", "-d", "Q=3"], cwd=folder)
    by_name = done(["derive", f"{os.fsdecode(folder)}/m.py:spec", "-d", "Q=3"])
    absent = done(["derive", f"{os.fsdecode(folder)}/x.py:spec"])

    assert [actual.returncode for actual in (inside, by_name, absent)] == [2, 2, 2]
    assert all("napkin: this model has no dimension 'Q': it has B, n\n" in actual.stderr for actual in (inside, by_name))
    assert absent.stderr == f"napkin: no file {tmp_path}/caf\\udce9/x.py: " + (
        "give the path of the Python file that holds the spec\n"
    )


def test_a_cache_entry_that_is_no_file_is_as_good_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe would be waited for, a device never ends, and neither is written to."""
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path))
    cache = Cache(load("linear"), Options(), True)
    entry = cache._entry and cache._entry.path
    assert entry is not None
    for make in (lambda: os.mkfifo(entry), lambda: entry.symlink_to("/dev/zero"), entry.mkdir):
        make()
        before = os.lstat(entry)
        assert cache.read(print) is None
        cache.write(UNWRITTEN)
        assert os.lstat(entry).st_ino == before.st_ino
        (entry.rmdir if entry.is_dir() else entry.unlink)()
    assert list(tmp_path.iterdir()) == []


UNWRITTEN: Any = None  # a graph that nobody may look at

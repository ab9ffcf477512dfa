"""Settings of every test."""

from __future__ import annotations

import functools
import gc
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from types import FunctionType, ModuleType

import pytest
from hypothesis import settings

from calc.platform import model_files
from calc.platform.garbage import BETWEEN_SEARCHES

# One thread for a worker that shares the machine with others: the threads of several wait for one another most of the time.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

gc.set_threshold(BETWEEN_SEARCHES, 10, 100)  # what is searched is mostly traces that tests keep, and there is little garbage in them
_searched_at = [0]
_left_before = [0]
_MANY_BLOCKS = 100_000  # of memory, as a step of two layers leaves; to count them takes half a millisecond

# No deadlines: tests run on machines that others use as well, and time says nothing about what they claim. The same examples
# every time: a run that fails does so for a change of the code.
settings.register_profile("napkin", deadline=None, derandomize=True, database=None)
settings.load_profile("napkin")


def pytest_configure(config: pytest.Config) -> None:
    """A cache of traces that the workers share and no other run has seen: what a model is like is recorded once."""
    os.environ.pop("COLUMNS", None)  # texts have the width of a pipe
    os.unsetenv("COLUMNS")  # which readline sets for child processes alone
    os.environ.setdefault("NAPKIN_PROCESSES", "1")  # the workers have all cores already
    if "PYTEST_XDIST_WORKER" not in os.environ:  # a worker has it from the process that started it
        os.environ["NAPKIN_CACHE"] = folder = tempfile.mkdtemp(prefix="napkin-cache-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_finish() -> None:
    """What was imported and collected is never searched for garbage."""
    gc.freeze()


def pytest_runtest_teardown() -> None:
    """A test that leaves much behind is searched for garbage. What is left then, mostly traces that tests keep, is frozen: no later search
    goes through it. Above six GiB, which the quick tests do not reach, tests forget what they keep: they make it again."""
    left, full = sys.getallocatedblocks(), _resident() > max(6 * 2**30, _searched_at[0] + 2**30)
    if full:
        _forget()
        gc.unfreeze()
    if full or left > _left_before[0] + _MANY_BLOCKS:
        gc.collect()
        left = sys.getallocatedblocks()
    if full:
        _searched_at[0] = _resident()
    _left_before[0] = left
    gc.freeze()


def _forget() -> None:
    """Clear what functions of the tests keep of earlier calls."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tests."):
            for function in [value for value in vars(module).values() if isinstance(value, functools._lru_cache_wrapper)]:
                function.cache_clear()


def _resident() -> int:
    """Bytes of memory that this process has; where the system does not say so, the most that it has had."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.fixture(scope="module", autouse=True)
def models_of_this_file(request: pytest.FixtureRequest) -> Iterator[None]:
    """Models, and what they cache, are looked for in the test file at hand and in those that its names come from, not in the hundreds of
    others: each trace goes through all globals of the files that may hold a model."""
    near = _origins(request.module)
    may_hold_a_model = model_files._of_a_model

    def chosen(module: ModuleType) -> bool:
        return may_hold_a_model(module) and (not module.__name__.startswith("tests.") or module.__name__ in near)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_files, "_of_a_model", chosen)
        model_files.FILES._loaded = []  # the others need not be looked through again
        yield


def _origins(module: ModuleType) -> set[str]:
    """A module of tests and the modules that its functions, classes and modules come from, and theirs in turn."""
    origins: set[str] = set()
    waiting = [module.__name__]
    while waiting:
        name = waiting.pop()
        if name not in origins and name.startswith("tests.") and name in sys.modules:
            origins.add(name)
            waiting += [_origin(value) for value in vars(sys.modules[name]).values()]
    return origins


def _origin(value: object) -> str:
    return value.__name__ if isinstance(value, ModuleType) else value.__module__ if type(value) in (type, FunctionType) else ""


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """What needs a CUDA device is skipped where there is none, and says so."""
    needing = [item for item in items if item.get_closest_marker("gpu")]
    if not needing:
        return
    import torch  # costs seconds, and most runs of a few tests do not need it

    if not torch.cuda.is_available():
        for item in needing:
            item.add_marker(pytest.mark.skip(reason="gpu: there is no CUDA device here"))

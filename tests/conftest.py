"""Settings of every test."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Sequence

import pytest
from hypothesis import settings

# One thread for a worker that shares the machine with others: the threads of several wait for one another most of the time.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

gc.set_threshold(2_000_000, 10, 100)  # what is searched is mostly traces that tests keep, and there is little garbage in them

# No deadlines: tests run on machines that others use as well, and time says nothing about what they claim. The same examples
# every time: a run that fails does so for a change of the code.
settings.register_profile("napkin", deadline=None, derandomize=True, database=None)
settings.load_profile("napkin")


def pytest_configure(config: pytest.Config) -> None:
    """A cache of traces that the workers share and no other run has seen: what a model is like is recorded once."""
    if "PYTEST_XDIST_WORKER" not in os.environ:  # a worker has it from the process that started it
        os.environ["NAPKIN_CACHE"] = folder = tempfile.mkdtemp(prefix="napkin-cache-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What a file's tests leave behind is searched for garbage once: traces that are kept are millions of objects."""
    if nextitem is not None and item.path != nextitem.path:
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """What needs a CUDA device is skipped where there is none, and says so."""
    needing = [item for item in items if item.get_closest_marker("gpu")]
    if not needing:
        return
    import torch  # costs seconds, and most runs of a few tests do not need it

    if not torch.cuda.is_available():
        for item in needing:
            item.add_marker(pytest.mark.skip(reason="gpu: there is no CUDA device here"))

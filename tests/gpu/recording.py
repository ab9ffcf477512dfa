"""Steps recorded ahead of their measurement, on all cores, so that a lent device does not wait for them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import calc
from calc.errors import NapkinError
from calc.options import Options
from calc.pipeline import trace

Job = tuple[str, Mapping[str, int], str]  # model, sizes, recipe


def options_of(recipe: str) -> Options:
    """The recipe as torch runs it on a device by default."""
    return Options(precision=recipe, implementation="foreach")


def recorded(jobs: Sequence[Job]) -> None:
    """Fill the cache of recordings. Each job is a process of its own, from the start: a process that has begun with CUDA cannot fork."""
    with ProcessPoolExecutor(max(1, min(len(jobs), os.cpu_count() or 1)), get_context("spawn")) as pool:
        list(pool.map(_one, jobs))


def _one(job: Job) -> None:
    model, sizes, recipe = job
    try:
        trace(calc.load(model), sizes, options=options_of(recipe))
    except NapkinError as error:
        print(f"{model}, {recipe}: {error}", file=sys.stderr)  # its row says so again

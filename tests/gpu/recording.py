"""Steps derived ahead of their measurement, on all cores, so that a lent device does not wait for them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from typing import Any

import calc
from calc.errors import NapkinError
from calc.pipeline import trace
from calc.timing import Work, work_from
from tests.gpu.models import options_of

Job = tuple[str, Mapping[str, int], str]  # model, sizes, recipe


@dataclass(frozen=True)
class Derived:
    """What is known of a step before it runs: its FLOPs, and its operators, which a prediction of its time needs."""

    work: Work
    operators: Sequence[Any] | None
    because: str = ""


def recorded(jobs: Sequence[Job]) -> None:
    """Fill the cache of recordings. Each job is a process of its own, from the start: a process that has begun with CUDA cannot fork."""
    with _pool(len(jobs)) as pool:
        list(pool.map(_record, jobs))


@contextmanager
def deriving(jobs: Iterable[Job]) -> Iterator[Callable[[], dict[str, Derived]]]:
    """Begins with every job at once, in processes of their own. What is given waits for them, and has each by its name (``named``)."""
    wanted = list(jobs)
    if not wanted:
        yield dict
        return
    with _pool(len(wanted)) as pool:
        found = pool.map(_derive, wanted)
        yield cache(lambda: dict(zip(map(named, wanted), found, strict=True)))


def named(job: Job) -> str:
    model, sizes, recipe = job
    return f"{model} {sorted(sizes.items())} {recipe}"


def _pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(max(1, min(jobs, os.cpu_count() or 1)), get_context("spawn"))


def _record(job: Job) -> None:
    model, sizes, recipe = job
    try:
        trace(calc.load(model), sizes, options=options_of(recipe))
    except NapkinError as error:
        print(f"{model}, {recipe}: {error}", file=sys.stderr)  # its row says so again


def _derive(job: Job) -> Derived:
    model, sizes, recipe = job
    spec, options = calc.load(model), options_of(recipe).to_json()
    work = work_from(lambda: calc.derive(spec, sizes, **options))
    try:
        from calc.stepwork import step_work

        return Derived(work, step_work(spec, sizes, options=options_of(recipe)).works)
    except (ImportError, NapkinError) as error:
        return Derived(work, None, f"not predicted: {' '.join(str(error).split())[:200]}")

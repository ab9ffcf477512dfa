"""Seconds of the search over layouts of a 405B model on 16,384 devices, in a process of its own, with numpy imported already.

Run as ``python -m tests.bench.layouts [--toy]``, which is 1,024 devices; prints how many layouts are valid, and seconds on the wall and of
the processor: of evaluating them, then of the whole search.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from typing import Any

from calc.capacity.sharding import decoder, machine_of, state_of
from calc.capacity.sharding.search import search
from calc.capacity.sharding.table import Limits, SearchProblem, table
from calc.hardware.accelerators import accelerator

LLAMA_3_405B = {"L": 126, "d": 16384, "h": 128, "g": 8, "f": 53248, "V": 128256, "T": 8192}
DEVICES, SEQUENCES = 16384, 2048
TOY = 1024, 512


def seconds(devices: int, sequences: int) -> dict[str, Any]:
    """How many layouts there are; seconds of the table and of the search, each on the wall and of the processor."""
    limits = Limits(devices, sequences)
    problem = SearchProblem(decoder(LLAMA_3_405B), limits, state_of(), machine_of(accelerator("h100-sxm")))
    marks = [_now()]
    layouts = len(table(problem))
    marks.append(_now())
    search(problem)
    marks.append(_now())
    tabled, searched = ((b[0] - a[0], b[1] - a[1]) for a, b in pairwise(marks))
    return {"layouts": layouts, "devices": devices, "table": tabled, "search": searched}


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


if __name__ == "__main__":
    print(json.dumps(seconds(*(TOY if "--toy" in sys.argv else (DEVICES, SEQUENCES)))))

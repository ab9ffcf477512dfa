"""Short questions as whole processes, started cold, over a process that does nothing but import SymPy: in turn, medians.

Run as ``python -m tests.bench.cold [--toy]``: with that, each once.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
COMMANDS = {
    "sympy": ["-c", "import sympy"],
    "ask": ["-m", "reports.cli", "ask", "training-time", "parameters=70e9", "tokens=15e12", "gpu=h100-sxm", "gpus=1024", "mfu=0.5"],
    "derive": ["-m", "reports.cli", "derive", "llama3-8b"],
}


def main(repeat: int = 9) -> None:
    actual: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(repeat):
        for name, words in COMMANDS.items():
            actual[name].append(_run(words))
    print(json.dumps({name: [statistics.median(clock) for clock in zip(*runs, strict=True)] for name, runs in actual.items()}))


def _run(words: list[str]) -> tuple[float, float]:
    """Seconds on the wall and of processor."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *words], cwd=ROOT, env=os.environ, capture_output=True, check=True)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main(*([1] if "--toy" in sys.argv else []))

"""A sweep of peak memory and FLOPs of a Llama-shaped model, beside the same polynomials written out in numpy by hand.

Both work through the same grid in parts of one size that a processor keeps at hand, on one core, in turn; the answers are compared.
What is written by hand is what somebody would write: each sum as it stands, over columns of sizes.

Run as ``python -m tests.bench.swept [--toy]``: with that, three sizes of each dimension.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np

import calc
from calc.pipeline.precomputed import form_of
from calc.pipeline.sweep_values import CHUNK

GRID = {
    "B": [1, 2, 4, 8, 16, 32, 64, 128],
    "T": list(range(1024, 8193, 1024)),
    "L": list(range(8, 108, 4)),
    "d": [1024 * i for i in range(1, 17)],
    "f": list(range(4096, 4096 + 20 * 512, 512)),
    "V": [32_000 + 1_000 * i for i in range(20)],
}
TOY = {name: sizes[-3:] for name, sizes in GRID.items()}
QUANTITIES = ("memory.peak", "flops.step.total")


def main(grid: Mapping[str, list[int]], repeat: int) -> None:
    form = form_of("llama3-8b")
    points = int(np.prod([len(sizes) for sizes in grid.values()]))
    written = {name: [_written(form.table.text(p)) for p in form.quantity(name).polynomials] for name in QUANTITIES}
    others = {dim.name: dim.value for dim in form.dims if dim.name not in grid}

    def swept() -> list[int]:
        table = calc.sweep("llama3-8b", grid, QUANTITIES)
        return [int(table.values[name].max()) for name in QUANTITIES]

    def by_hand() -> list[int]:
        most = [0] * len(QUANTITIES)
        for sizes in _columns(grid):
            sizes |= {**others, "k": sizes["d"] // others["h"]}
            for i, name in enumerate(QUANTITIES):
                value = written[name][0](**sizes)
                for other in written[name][1:]:
                    value = np.maximum(value, other(**sizes))
                most[i] = max(most[i], int(value.max()))
        return most

    ours, theirs = [], []
    for _ in range(repeat):
        seconds, one = _timed(swept)
        ours.append(seconds)
        seconds, other = _timed(by_hand)
        theirs.append(seconds)
        if one != other:
            sys.exit(f"a sweep gives {one} at most, and numpy by hand {other}")
    print(json.dumps({"points": points, "swept": statistics.median(ours), "by hand": statistics.median(theirs)}))


def _written(text: str) -> Callable[..., np.ndarray]:
    """A closed form as a function over columns, as if it had been typed in. Quotients by 2 are of even sums."""
    source = f"lambda B, T, d, h, g, k, f, L, V: {text.replace('/', '//')}"
    function: Callable[..., np.ndarray] = eval(source)  # of this package's own closed forms
    return function


def _columns(grid: Mapping[str, list[int]]) -> Iterator[dict[str, np.ndarray]]:
    outer = [*grid]
    size = 1
    while outer and size * len(grid[outer[-1]]) <= CHUNK:
        size *= len(grid[outer.pop()])
    inner = [name for name in grid if name not in outer]
    mesh = np.meshgrid(*(np.asarray(grid[name], dtype=np.int64) for name in inner), indexing="ij")
    flat = {name: array.ravel() for name, array in zip(inner, mesh, strict=True)}
    for sizes in itertools.product(*(grid[name] for name in outer)):
        yield {**flat, **{name: np.full(size, value, dtype=np.int64) for name, value in zip(outer, sizes, strict=True)}}


def _timed(run: Callable[[], list[int]]) -> tuple[float, list[int]]:
    begin = time.process_time()
    result = run()
    return time.process_time() - begin, result


if __name__ == "__main__":
    main(*((TOY, 1) if "--toy" in sys.argv else (GRID, 3)))

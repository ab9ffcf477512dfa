"""Run every measurement several times in turn, and print a table of medians with the aims beside them.

Whole processes are timed, imports and all, because that is what somebody waits for. Ratios are of one run on one machine; what
else the machine does then falls on both sides alike, the more so as the processes take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.predicted import CLOCKS, Compared, median_error

ROOT = Path(__file__).resolve().parent.parent.parent
OUTPUT = ROOT / "out" / "bench.md"
BATCH, LENGTH = 1, 1024
TRAINED = 8, 8192  # sequences of a step, and tokens of each, for the trackers of memory

LLAMA_3_70B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
}

_AT_TRAINED = f" at B = {TRAINED[0]} and T = {TRAINED[1]}"


@dataclass(frozen=True)
class Run:
    """One process: seconds on the wall, seconds of processor, and what it wrote."""

    wall: float
    cpu: float
    output: str


@dataclass(frozen=True)
class Row:
    """A line of the table. ``aim`` is the most that ``measured`` should be."""

    what: str
    aim: str
    measured: str
    processor: str
    seconds: str


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    words.add_argument("--repeat", type=int, default=3, help="how often each process runs (3)")
    repeat = max(1, words.parse_args().repeat)
    with tempfile.TemporaryDirectory() as folder:
        table = _table(_rows(Path(folder), repeat), repeat)
    print(table)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(table + "\n", encoding="utf-8")
    print(f"wrote {OUTPUT.relative_to(ROOT)}", file=sys.stderr)


def _rows(folder: Path, repeat: int) -> list[Row]:
    configs = {layers: _config(folder, layers) for layers in (32, 80, 126)}
    document, trained = folder / "derived.json", folder / "trained.json"
    warm = {"NAPKIN_CACHE": str(folder / "cache")}
    document.write_text(_derive(configs[80], warm).output, encoding="utf-8")  # fills the cache
    trained.write_text(_derive(configs[80], warm, TRAINED).output, encoding="utf-8")
    runs = _in_turn(
        repeat,
        {
            "counter": lambda: _process(["tests.bench.counter", str(configs[80]), str(BATCH), str(LENGTH)]),
            "derive": lambda: _derive(configs[80]),
            "batch": lambda: _derive(configs[80], sizes=(2, LENGTH)),
            "trained": lambda: _derive(configs[80], sizes=TRAINED),
            "warm": lambda: _derive(configs[80], warm),
            "deep": lambda: _derive(configs[126]),
            "shallow": lambda: _derive(configs[32]),
        },
    )
    for steps in (1, 2):  # once each: minutes
        arguments = [str(configs[80]), *map(str, TRAINED), str(steps)]
        runs |= _in_turn(1, {f"tracker, {steps}": partial(_process, ["tests.bench.tracker", *arguments])})
    ours, theirs = map(float, _process(["tests.bench.parse", str(document)]).output.split())  # once: the latter can take a minute
    layouts, *spent = map(float, _process(["tests.bench.layouts"]).output.split())
    tabled, tabled_cpu, searched, searched_cpu = (f"{seconds:.2f} s" for seconds in spent)
    _report_counts(runs["counter"][0].output, document)
    _report_peaks({steps: runs[f"tracker, {steps}"][0].output for steps in (1, 2)}, trained)
    return [
        _ratio("`napkin derive` of Llama-3-70B's shape, over FlopCounterMode of its forward and backward on meta", "1.5", runs, "derive"),
        _ratio("the same at B = 2, where no case of its own is recorded for a batch of one", "", runs, "batch"),
        _ratio("the same with the recording in the cache", "", runs, "warm"),
        _ratio("126 layers over 32 layers, the same config", "1.2", runs, "deep", "shallow"),
        _ratio(f"`napkin derive` of its AdamW step{_AT_TRAINED}, over MemTracker's two steps", "0.05", runs, "trained", "tracker, 2"),
        _ratio("the same over MemTracker's first step alone, which is not the steady one", "", runs, "trained", "tracker, 1"),
        _ratio("the same at B = 1, with its case of its own, over the two steps", "", runs, "derive", "tracker, 2"),
        _ratio("the same with the recording in the cache", "", runs, "warm", "tracker, 2"),
        Row("`memory.peak` of the same model read from JSON as a SymPy expression", "2 s", f"{ours:.2f} s", "", ""),
        Row("the same by SymPy's own `sympify`, which compares every two moments", "", f"{theirs:.2f} s", "", ""),
        Row(f"all {int(layouts):,} layouts of Llama-3-405B on 16,384 devices, as arrays", "2 s", tabled, tabled_cpu, ""),
        Row("the search over them, with its winner, front and runners-up worked out exactly", "2 s", searched, searched_cpu, ""),
        *_cold(json.loads(_process(["tests.bench.cold"]).output)),
        _swept(json.loads(_process(["tests.bench.swept"]).output)),
        *_predictions(json.loads(_process(["tests.bench.predicted"]).output)),  # once: minutes
    ]


def _cold(found: Mapping[str, Sequence[float]]) -> list[Row]:
    """Short questions over the time that importing SymPy takes."""
    whats = {"ask": "`napkin ask training-time …`, started cold, over `import sympy`", "derive": "`napkin derive llama3-8b` likewise"}
    rows = []
    for name, what in whats.items():
        (wall, cpu), (wall_over, cpu_over) = found[name], found["sympy"]
        rows.append(Row(what, "0.33", f"{wall / wall_over:.2f}", f"{cpu / cpu_over:.2f}", f"{wall:.2f} / {wall_over:.2f}"))
    return rows


def _swept(found: Mapping[str, float]) -> Row:
    """Both in seconds of one core."""
    what = f"{found['points'] / 1e6:.1f} million sizes of a Llama: peak memory and FLOPs swept, over the same polynomials by hand in numpy"
    return Row(what, "2", "", f"{found['swept'] / found['by hand']:.2f}", f"{found['swept']:.1f} / {found['by hand']:.1f} of processor")


def _predictions(entries: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The errors of predicted step times, by the wall and by processor time: their median, then each with its seconds."""
    found = [Compared(**entry) for entry in entries]
    medians = [f"{100 * median_error(found, clock):.0f} %" for clock in CLOCKS]
    by_wall, by_processor = ([c for c in found if c.clock == clock] for clock in CLOCKS)
    held = f"{sum(c.low <= c.measured <= c.high for c in by_processor)} of {len(by_processor)} within their band"
    rows = [Row("predicted step time, GPT-2 small at 12 sizes and ResNet-18 at 4, one thread: median error", "25 %", *medians, held)]
    for wall, cpu in zip(by_wall, by_processor, strict=True):
        sizes = ", ".join(f"{name} = {size}" for name, size in wall.sizes.items())
        errors = [f"{100 * c.error:+.0f} %" for c in (wall, cpu)]
        spent = f"{cpu.predicted:.2f} / {cpu.measured:.2f} of processor, {wall.measured:.2f} on the wall"
        rows.append(Row(f"{wall.model} at {sizes}", "", *errors, spent))
    return rows


def _config(folder: Path, layers: int) -> Path:
    path = folder / f"llama-{layers}.json"
    path.write_text(json.dumps({**LLAMA_3_70B, "num_hidden_layers": layers}), encoding="utf-8")
    return path


def _in_turn(repeat: int, processes: Mapping[str, Callable[[], Run]]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {name: [] for name in processes}
    for i in range(repeat):
        for name, start in processes.items():
            print(f"{name}, {i + 1} of {repeat} …", file=sys.stderr)
            found[name].append(start())
    return found


def _derive(config: Path, environment: Mapping[str, str] | None = None, sizes: tuple[int, int] = (BATCH, LENGTH)) -> Run:
    given = ["-d", f"B={sizes[0]}", "-d", f"T={sizes[1]}"]
    return _process(["reports.cli", "derive", f"hf:{config}", *given, "--json"], environment)


def _process(module: Sequence[str], environment: Mapping[str, str] | None = None) -> Run:
    environment = {**os.environ, "NAPKIN_CACHE": "off", **(environment or {})}
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, "-m", *module], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(module)} failed: {done.stderr.strip().splitlines()[-1:]}")
    return Run(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout)


def _ratio(what: str, aim: str, runs: Mapping[str, Sequence[Run]], name: str, over: str = "counter") -> Row:
    wall, cpu = ([statistics.median(getattr(run, clock) for run in runs[n]) for n in (name, over)] for clock in ("wall", "cpu"))
    return Row(what, aim, f"{wall[0] / wall[1]:.2f}", f"{cpu[0] / cpu[1]:.2f}", f"{wall[0]:.1f} / {wall[1]:.1f}")


def _report_counts(counted: str, document: Path) -> None:
    """Both processes count one thing; what fused attention repeats, the written-out form does not."""
    quantities = json.loads(document.read_text(encoding="utf-8"))["quantities"]
    forward, backward, repeated = (
        int(quantities[f"flops.{name}"]["value"]) for name in ("forward.matmul", "backward.matmul", "backward.recompute")
    )
    derived = forward + backward - repeated
    same = "as derived" if derived == int(counted) else f"but {derived:,} derived"
    print(f"counted on meta: {int(counted):,} FLOP, {same}", file=sys.stderr)


def _report_peaks(tracked: Mapping[int, str], document: Path) -> None:
    """Both processes have the peak of one step: the tracker's second is steady."""
    quantities = json.loads(document.read_text(encoding="utf-8"))["quantities"]
    for steps, name in ((1, "memory.peak.first_step"), (2, "memory.peak")):
        derived = int(quantities[name]["value"])
        same = "as derived" if derived == int(tracked[steps]) else f"but {derived:,} derived"
        print(f"tracked under fake tensors in step {steps}: {int(tracked[steps]):,} bytes, {same}", file=sys.stderr)


def _table(rows: Sequence[Row], repeat: int) -> str:
    heads = ("What", "Aim: at most", "Measured", "In processor time", "Seconds")
    lines = [heads, ("---", "---:", "---:", "---:", "---:"), *((r.what, r.aim, r.measured, r.processor, r.seconds) for r in rows)]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"Medians of {repeat}, whole processes in turn, at B = {BATCH} and T = {LENGTH}:\n\n{body}"


if __name__ == "__main__":
    main()

"""Run every measurement several times in turn, and print a table of medians with the aims beside them.

Whole processes are timed, imports and all, because that is what somebody waits for. Ratios are of one run on one machine; what
else the machine does then falls on both sides alike, the more so as the processes take turns.

A measurement that fails has its reason in its row, the others stand, and the exit status is 1. ``--toy`` runs each of them once at
the smallest sizes, to see that it runs at all.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.predicted import CLOCKS, Compared, median_error

ROOT = Path(__file__).resolve().parent.parent.parent
OUTPUT = ROOT / "out" / "bench.md"

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
TINY = {"vocab_size": 17, "hidden_size": 12, "intermediate_size": 13, "num_attention_heads": 6, "num_key_value_heads": 3}


@dataclass(frozen=True)
class Scale:
    """The Llama that is derived, at three depths; sequences of a step and tokens of each for counters of FLOPs, and for trackers of
    memory. ``words`` go to the measurements that are processes of their own."""

    config: Mapping[str, Any]
    shallow: int
    usual: int
    deep: int
    counted: tuple[int, int]
    trained: tuple[int, int]
    words: tuple[str, ...] = ()


FULL = Scale(LLAMA_3_70B, 32, 80, 126, (1, 1024), (8, 8192))
TOY = Scale({**LLAMA_3_70B, **TINY}, 3, 4, 5, (1, 8), (2, 8), ("--toy",))


class FailedError(Exception):
    """A process that did not come to its end, in one line."""


@dataclass(frozen=True)
class Run:
    """One process: seconds on the wall, seconds of processor, and what it wrote."""

    wall: float
    cpu: float
    output: str


@dataclass(frozen=True)
class Row:
    """A line of the table. ``aim`` is the most that ``measured`` should be; ``failed`` says why nothing was measured."""

    what: str
    aim: str
    measured: str = ""
    processor: str = ""
    seconds: str = ""
    failed: str = ""


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    words.add_argument("--repeat", type=int, default=3, help="how often each process runs (3)")
    words.add_argument("--toy", action="store_true", help="each measurement once, at the smallest sizes")
    words.add_argument("-o", "--output", type=Path, default=OUTPUT, help="the file of the table (out/bench.md)")
    given = words.parse_args()
    scale, repeat = (TOY, 1) if given.toy else (FULL, max(1, given.repeat))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for row in _rows(Path(folder), repeat, scale):
            rows.append(row)
            _write(given.output, _table(rows, repeat, scale))  # what there is, should the next one be interrupted
    print(_table(rows, repeat, scale))
    print(f"wrote {given.output}", file=sys.stderr)
    return int(any(row.failed for row in rows))


def _write(output: Path, table: str) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(table + "\n", encoding="utf-8")


def _rows(folder: Path, repeat: int, scale: Scale) -> Iterator[Row]:
    configs = {layers: _config(folder, layers, scale) for layers in (scale.shallow, scale.usual, scale.deep)}
    config, at_trained = configs[scale.usual], f" at B = {scale.trained[0]} and T = {scale.trained[1]}"
    warm = {"NAPKIN_CACHE": str(folder / "cache")}
    document, trained = folder / "derived.json", folder / "trained.json"
    counter = ["tests.bench.counter", str(config), *map(str, scale.counted)]
    whole = partial(_derive, shown=("--json",))
    runs = _in_turn(1, {"document": lambda: whole(config, warm, scale.counted), "to train": lambda: whole(config, warm, scale.trained)})
    for file, name in ((document, "document"), (trained, "to train")):  # both fill the cache
        file.write_text("".join(run.output for run in runs[name] if isinstance(run, Run)), encoding="utf-8")
    runs |= _in_turn(
        repeat,
        {
            "counter": lambda: _process(counter),
            "derive": lambda: _derive(config, None, scale.counted),
            "whole": lambda: whole(config, None, scale.counted),
            "batch": lambda: _derive(config, None, (2, scale.counted[1])),
            "trained": lambda: _derive(config, None, scale.trained),
            "warm": lambda: whole(config, warm, scale.counted),
            "again": lambda: _derive(config, warm, scale.counted),
            "deep": lambda: _derive(configs[scale.deep], None, scale.counted),
            "shallow": lambda: _derive(configs[scale.shallow], None, scale.counted),
        },
    )
    for steps in (1, 2):  # once each: minutes
        arguments = [str(config), *map(str, scale.trained), str(steps)]
        runs |= _in_turn(1, {f"tracker, {steps}": partial(_process, ["tests.bench.tracker", *arguments])})
    _report_counts(runs["counter"], document)
    _report_peaks({steps: runs[f"tracker, {steps}"] for steps in (1, 2)}, trained)
    yield _ratio("`napkin derive` of Llama-3-70B's shape, over FlopCounterMode of its forward and backward on meta", "1.0", runs, "derive")
    yield _ratio("the same with every step, as JSON", "", runs, "whole")
    yield _ratio("the same at B = 2, where no special case is traced for a batch of one", "", runs, "batch")
    yield _ratio("the same with every step, as JSON, and with the trace in the cache", "", runs, "warm")
    yield _ratio("the same once more: the closed forms are in the cache", "", runs, "again")
    yield _ratio(f"{scale.deep} layers over {scale.shallow} layers, the same config", "1.05", runs, "deep", "shallow")
    yield _ratio(f"`napkin derive` of its AdamW step{at_trained}, over MemTracker's two steps", "0.02", runs, "trained", "tracker, 2")
    yield _ratio("the same over MemTracker's first step alone, which is not the steady one", "", runs, "trained", "tracker, 1")
    yield _ratio("the same at B = 1, with its special case, over the two steps", "", runs, "derive", "tracker, 2")
    yield from _measured("`memory.peak` of the same model read from JSON", ["tests.bench.parse", str(document), *scale.words], _parsed)
    yield from _measured("the layouts of Llama-3-405B on 16,384 devices", ["tests.bench.layouts", *scale.words], _laid)
    yield from _measured("short questions, started cold", ["tests.bench.cold", *scale.words], _cold)
    yield from _measured("sizes of a Llama swept", ["tests.bench.swept", *scale.words], _swept)
    yield from _measured("predicted step times", ["tests.bench.predicted", *scale.words], _predictions, warm)  # once: minutes


def _measured(
    what: str, module: Sequence[str], rows: Callable[[Any], list[Row]], environment: Mapping[str, str] | None = None
) -> list[Row]:
    """The rows of a measurement that is one process, from what it writes in JSON; one row with the reason where it fails."""
    try:
        return rows(json.loads(_process(module, environment).output))
    except (FailedError, ValueError, KeyError) as error:
        return [Row(what, "", failed=str(error) or type(error).__name__)]


def _parsed(actual: Mapping[str, float]) -> list[Row]:
    """In seconds."""
    return [
        Row("`memory.peak` of the same model read from JSON as a SymPy expression", "2 s", f"{actual['read']:.2f} s"),
        Row("the same by SymPy's own `sympify`, which compares every two moments", "", f"{actual['sympify']:.2f} s"),
    ]


def _laid(actual: Mapping[str, Any]) -> list[Row]:
    """In seconds."""
    (tabled, tabled_cpu), (searched, searched_cpu) = ([f"{s:.2f} s" for s in actual[name]] for name in ("table", "search"))
    what = f"all {actual['layouts']:,} layouts of Llama-3-405B on {actual['devices']:,} devices, as arrays"
    return [
        Row(what, "2 s", tabled, tabled_cpu),
        Row("the search over them, with its winner, front and runners-up worked out exactly", "2 s", searched, searched_cpu),
    ]


def _cold(actual: Mapping[str, Sequence[float]]) -> list[Row]:
    """Short questions over the time that importing SymPy takes."""
    whats = {"ask": "`napkin ask training-time …`, started cold, over `import sympy`", "derive": "`napkin derive llama3-8b` likewise"}
    rows = []
    for name, what in whats.items():
        (wall, cpu), (wall_over, cpu_over) = actual[name], actual["sympy"]
        rows.append(Row(what, "0.25", f"{wall / wall_over:.2f}", f"{cpu / cpu_over:.2f}", f"{wall:.2f} / {wall_over:.2f}"))
    return rows


def _swept(actual: Mapping[str, float]) -> list[Row]:
    """Both in seconds of one core."""
    what = f"{actual['points'] / 1e6:.1f} million sizes of a Llama: peak memory and FLOPs swept, over the same polynomials by hand in numpy"
    seconds = f"{actual['swept']:.1f} / {actual['by hand']:.1f} of processor"
    return [Row(what, "2", "", f"{actual['swept'] / actual['by hand']:.2f}", seconds)]


def _predictions(entries: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The errors of predicted step times, by the wall and by processor time: their median, then each with its seconds."""
    actual = [Compared(**entry) for entry in entries if "failed" not in entry]
    failed = [Row(_case(entry), "", failed=entry["failed"]) for entry in entries if "failed" in entry]
    what = f"predicted step time of {len(actual) // len(CLOCKS)} steps, one thread: median error"
    if not actual:
        return [Row(what, "25 %", failed="none was measured"), *failed]
    medians = [f"{100 * median_error(actual, clock):.0f} %" for clock in CLOCKS]
    by_wall, by_processor = ([c for c in actual if c.clock == clock] for clock in CLOCKS)
    held = f"{sum(c.low <= c.measured <= c.high for c in by_processor)} of {len(by_processor)} within their band"
    rows = [Row(what, "25 %", *medians, held)]
    for wall, cpu in zip(by_wall, by_processor, strict=True):
        errors = [f"{100 * c.error:+.0f} %" for c in (wall, cpu)]
        spent = f"{cpu.predicted:.2f} / {cpu.measured:.2f} of processor, {wall.measured:.2f} on the wall"
        rows.append(Row(_case({"model": wall.model, "sizes": wall.sizes}), "", *errors, spent))
    return [*rows, *failed]


def _case(entry: Mapping[str, Any]) -> str:
    return f"{entry['model']} at {', '.join(f'{name} = {size}' for name, size in entry['sizes'].items())}"


def _config(folder: Path, layers: int, scale: Scale) -> Path:
    path = folder / f"llama-{layers}.json"
    path.write_text(json.dumps({**scale.config, "num_hidden_layers": layers}), encoding="utf-8")
    return path


Runs = Mapping[str, Sequence[Run] | FailedError]


def _in_turn(repeat: int, processes: Mapping[str, Callable[[], Run]]) -> dict[str, Sequence[Run] | FailedError]:
    """The runs of every process, one after another; of one that failed, how, and it is not started again."""
    actual: dict[str, list[Run]] = {name: [] for name in processes}
    failed: dict[str, FailedError] = {}
    for i in range(repeat):
        for name, start in processes.items():
            if name not in failed:
                print(f"{name}, {i + 1} of {repeat} …", file=sys.stderr)
                try:
                    actual[name].append(start())
                except FailedError as error:
                    print(f"{name}: {error}", file=sys.stderr)
                    failed[name] = error
    return {**actual, **failed}


def _derive(config: Path, environment: Mapping[str, str] | None, sizes: tuple[int, int], shown: Sequence[str] = ()) -> Run:
    given = ["-d", f"B={sizes[0]}", "-d", f"T={sizes[1]}"]
    return _process(["reports.cli", "derive", f"hf:{config}", *given, *shown], environment)


def _process(module: Sequence[str], environment: Mapping[str, str] | None = None) -> Run:
    environment = {**os.environ, "NAPKIN_CACHE": "off", **(environment or {})}
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, "-m", *module], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it wrote no reason"])[-1]
        raise FailedError(f"{module[0]} ended with {done.returncode}: {last}")
    return Run(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout)


def _ratio(what: str, aim: str, runs: Runs, name: str, over: str = "counter") -> Row:
    both = [runs[n] for n in (name, over)]
    for actual in both:
        if isinstance(actual, FailedError):
            return Row(what, aim, failed=str(actual))
    wall, cpu = ([statistics.median(getattr(run, clock) for run in actual) for actual in both] for clock in ("wall", "cpu"))
    return Row(what, aim, f"{wall[0] / wall[1]:.2f}", f"{cpu[0] / cpu[1]:.2f}", f"{wall[0]:.1f} / {wall[1]:.1f}")


def _report_counts(counted: Sequence[Run] | FailedError, document: Path) -> None:
    """Both processes count one thing; what fused attention repeats, the written-out form does not."""
    text = document.read_text(encoding="utf-8")
    if isinstance(counted, FailedError) or not text:
        return
    quantities = json.loads(text)["quantities"]
    forward, backward, repeated = (
        int(quantities[f"flops.{name}"]["value"]) for name in ("forward.matmul", "backward.matmul", "backward.recompute")
    )
    derived, count = forward + backward - repeated, int(counted[0].output)
    print(f"counted on meta: {count:,} FLOP, {'as derived' if derived == count else f'but {derived:,} derived'}", file=sys.stderr)


def _report_peaks(tracked: Mapping[int, Sequence[Run] | FailedError], document: Path) -> None:
    """Both processes have the peak of one step: the tracker's second is steady."""
    text = document.read_text(encoding="utf-8")
    for steps, name in ((1, "memory.peak.first_step"), (2, "memory.peak")):
        runs = tracked[steps]
        if isinstance(runs, FailedError) or not text:
            continue
        derived, seen = int(json.loads(text)["quantities"][name]["value"]), int(runs[0].output)
        same = "as derived" if derived == seen else f"but {derived:,} derived"
        print(f"tracked under fake tensors in step {steps}: {seen:,} bytes, {same}", file=sys.stderr)


def _table(rows: Sequence[Row], repeat: int, scale: Scale) -> str:
    heads = ("What", "Aim: at most", "Measured", "In processor time", "Seconds")
    lines = [heads, ("---", "---:", "---:", "---:", "---:"), *map(_cells, rows)]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"Medians of {repeat}, whole processes in turn, at B = {scale.counted[0]} and T = {scale.counted[1]}:\n\n{body}"


def _cells(row: Row) -> tuple[str, ...]:
    if row.failed:
        return row.what, row.aim, "failed", "", " ".join(row.failed.replace("|", "\\|").split())
    return row.what, row.aim, row.measured, row.processor, row.seconds


if __name__ == "__main__":
    sys.exit(main())

"""A run on a GPU in one line for each record that it wrote, and one for each task that wrote none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

TIME_AIM, PEAK_AIM, BATCH_AIM = 0.20, 0.01, 0.02


def lines(output: Path, work: Path, failed: Mapping[str, str], left: Sequence[str], rehearsal: bool) -> Iterator[str]:
    """The machine, then records in the order in which they were written, then what failed and what was not begun."""
    files = written(work)
    records = {name: json.loads((output / name).read_text(encoding="utf-8")) for name in files}
    for data in list(records.values())[:1]:
        machine = data if "device" in data else data["machine"]
        device, versions = machine["device"], machine["versions"]
        yield f"{device['name']}, driver {device.get('driver')}, torch {versions['torch']}, Python {versions['python']}, {machine['date']}"
    if rehearsal:
        yield "A rehearsal: nothing here was measured on a GPU."
    for name, data in records.items():
        short = name.removesuffix(".json").removeprefix(f"{in_a_name((data if 'device' in data else data['machine'])['device']['name'])}-")
        yield from (f"{short}: {text}" for text in _texts(data))
    yield from (f"failed: {task}: {because}" for task, because in failed.items())
    if left:
        yield f"not begun: {', '.join(left)}"
    yield f"{len(files)} records in {output}"


def written(work: Path) -> list[str]:
    """Names of the files that were written, in the order of their first writing."""
    log = work / "log.jsonl"
    events = map(json.loads, log.read_text(encoding="utf-8").splitlines()) if log.exists() else ()
    return list(dict.fromkeys(event["file"] for event in events if event["event"] == "wrote"))


def in_a_name(device: str) -> str:
    """A device's name as names of files begin with it."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def _texts(data: Mapping[str, Any]) -> Iterator[str]:
    if "rows" in data:
        yield ", ".join(_product(row) for row in data["rows"])
    elif "copies" in data:
        shown = [copy for copy in data["copies"] if "pinned, not blocking" in copy["name"] or copy["name"] == "device to device"]
        yield ", ".join(f"{copy['name']} {copy['bytes_per_second'] / 1e9:.1f} GB/s" for copy in shown)
    elif "points" in data:
        yield f"{len(data['points'])} points, launch {1e6 * data['measured_launch_seconds']:.1f} µs"
    else:
        for run in data["runs"]:
            yield _run(run)
        if data.get("fits"):
            fits = data["fits"]
            yield f"largest B {fits['largest']}, predicted {fits['predicted']}{_off(fits['predicted'], fits['largest'], BATCH_AIM)}"


def _product(row: Mapping[str, Any]) -> str:
    if row["times"] is None:
        return f"{row['dtype']} not measured ({row['because']})"
    share = "" if row["share"] is None else f" ({100 * row['share']:.0f} % of the peak)"
    return f"{row['dtype']} {row['times']['flops_per_second'] / 1e12:.1f} TFLOP/s{share}"


def _run(run: Mapping[str, Any]) -> str:
    sizes = " ".join(f"{name}={run['sizes'][name]}" for name in ("B", "T", "S") if name in run["sizes"])
    if run["memory"] is not None:
        predicted, read = (run["memory"][side]["max_memory_allocated"] for side in ("predicted", "measured"))
        return f"{sizes}: peak {int(read):,} bytes, derived {_whole(predicted)}{_off(predicted, read, PEAK_AIM)}"
    seconds, mfu = run["time"]["measured"]["whole"]["seconds"]["median"], run["time"]["utilization"]["mfu"]
    share = "" if mfu is None else f", MFU {100 * mfu:.1f} %"
    expected = run["predicted"] or {"seconds": None, "because": "no calibration"}
    if expected["seconds"] is None:
        return f"{sizes}: {1000 * seconds:.2f} ms{share}, not predicted ({expected['because']})"
    off = _off(expected["seconds"], seconds, TIME_AIM)
    return f"{sizes}: {1000 * seconds:.2f} ms{share}, predicted {1000 * expected['seconds']:.2f} ms{off}"


def _whole(value: Any) -> str:
    return "unknown" if value is None else f"{int(value):,} bytes"


def _off(predicted: Any, measured: Any, aim: float) -> str:
    """How far a prediction is off, and whether that is within its aim."""
    if predicted is None or not measured:
        return ""
    off = float(Fraction(predicted) / Fraction(measured) - 1)
    return f" ({100 * off:+.1f} %, aim {100 * aim:.0f} %: {'met' if abs(off) <= aim else 'missed'})"

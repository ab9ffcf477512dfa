"""``python -m tests.sweep``: every architecture, derived with symbolic sizes and measured for real. Resumable; two at a time.

Each runs in a process of its own, forked from one that has the libraries loaded, and is given up after a while.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import sys
import time
import warnings
from dataclasses import asdict
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.sweep.run import REFUSED, Row, names, sweep_one
from tests.sweep.table import _row, as_json, as_markdown


def main() -> int:
    options = _options()
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.filterwarnings("ignore")
    import torch
    import transformers

    torch.set_num_threads(1)
    gc.set_threshold(200_000)  # as the command line does
    gc.freeze()  # what is loaded now stays, and the processes forked from this one need not go through it
    known = names()
    chosen = {name: known[name] for name in options.only or known if name in known}
    folder = Path(options.work)
    folder.mkdir(parents=True, exist_ok=True)
    rows = _swept(chosen, folder, options)
    versions = {"torch": torch.__version__.partition("+")[0], "transformers": transformers.__version__}
    if options.only:
        print(json.dumps([asdict(r) for r in rows], indent=1))
    else:
        out = Path(options.output)
        out.mkdir(parents=True, exist_ok=True)
        left = sorted(known.keys() - {row.model_type for row in rows})
        (out / "architectures.md").write_text(as_markdown(rows, versions, options.seed, left), encoding="utf-8")
        (out / "architectures.json").write_text(as_json(rows, versions, options.seed), encoding="utf-8")
    return int(any(row.verdict == "wrong" for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sweep", description=__doc__)
    parser.add_argument("only", nargs="*", help="model types; all when none is named")
    parser.add_argument("--kept", action="store_true", help="write the table of the rows that are there, and run nothing")
    parser.add_argument("--seed", type=int, default=0, help="of the sizes that are drawn")
    parser.add_argument("--work", default="out/sweep", help="where rows are kept: what is there is not run again")
    parser.add_argument("--output", default="reports/gallery", help="where the table goes")
    parser.add_argument("--limit", type=float, default=900, help="seconds for one architecture")
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


def _swept(chosen: dict[str, str], folder: Path, options: argparse.Namespace) -> list[Row]:
    context = multiprocessing.get_context("fork")
    there = {name for name in chosen if _kept(folder, name, options.seed).exists()}
    if options.kept:
        return [_read(_kept(folder, name, options.seed)) for name in chosen if name in there]
    waiting = [name for name in chosen if options.only or name not in there]
    running: dict[str, tuple[BaseProcess, float]] = {}
    done = len(chosen) - len(waiting)
    while waiting or running:
        while waiting and len(running) < options.jobs:
            name = waiting.pop(0)
            process = context.Process(target=_worker, args=(name, chosen[name], folder, options.seed))
            process.start()
            running[name] = (process, time.monotonic())
        for name, (process, since) in list(running.items()):
            late = time.monotonic() - since > options.limit
            if process.is_alive() and not late:
                continue
            if process.is_alive():
                process.kill()
            process.join()
            del running[name]
            done += 1
            path = _kept(folder, name, options.seed)
            if late or not path.exists():
                why = f"not done within {options.limit:.0f} s" if late else f"its process ended with {process.exitcode}"
                _keep(path, Row(name, chosen[name], REFUSED, why, seconds=time.monotonic() - since))
            row = _read(path)
            print(
                f"[{done}/{len(chosen)}] {name:<28} {row.verdict:<10} {row.seconds:6.1f} s  {row.why[:300]}",
                file=sys.stderr,
                flush=True,
            )
        time.sleep(0.05)
    return [_read(_kept(folder, name, options.seed)) for name in chosen]


def _worker(name: str, architecture: str, folder: Path, seed: int) -> None:
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # for the life of the process
    _keep(_kept(folder, name, seed), sweep_one(name, architecture, seed, folder / "configs"))


def _kept(folder: Path, name: str, seed: int) -> Path:
    return folder / f"{name.replace(':', '-')}-{seed}.json"


def _keep(path: Path, row: Row) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(asdict(row)))
    part.rename(path)


def _read(path: Path) -> Row:
    return _row(json.loads(path.read_text()))


if __name__ == "__main__":
    sys.exit(main())

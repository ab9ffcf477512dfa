"""``python -m tests.sweep``: every architecture, derived with symbolic sizes and measured for real. Resumable; two at a time."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.sweep.processes import file_of, made, read
from tests.sweep.run import REFUSED, Row, names, sweep_one
from tests.sweep.table import _row, as_json, as_markdown, from_json


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
    if options.update or not options.only:
        _write(rows, versions, known, options)
    return int(any(row.verdict == "wrong" for row in rows))


def _write(rows: Sequence[Row], versions: dict[str, str], known: Mapping[str, str], options: argparse.Namespace) -> None:
    """The table of ``rows``; with ``--update``, also of those that it has and that were not run again, if by the same versions and seed."""
    out = Path(options.output)
    out.mkdir(parents=True, exist_ok=True)
    table = out / "architectures.json"
    if options.update:
        before = table.read_text(encoding="utf-8")
        made_by = {name: json.loads(before)[name] for name in ("seed", "versions")}
        if made_by != {"seed": options.seed, "versions": versions}:
            raise SystemExit(f"the table is of {made_by}: run the whole sweep")
        newest = {row.model_type: row for row in (*from_json(before), *rows)}
        rows = [newest[name] for name in known if name in newest]
    left = sorted(known.keys() - {row.model_type for row in rows})
    (out / "architectures.md").write_text(as_markdown(rows, versions, options.seed, left), encoding="utf-8")
    table.write_text(as_json(rows, versions, options.seed), encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sweep", description=__doc__)
    parser.add_argument("only", nargs="*", help="model types; all when none is named")
    parser.add_argument("--update", action="store_true", help="put the rows of the named model types into the table")
    parser.add_argument("--kept", action="store_true", help="write the table of the rows that are there, and run nothing")
    parser.add_argument("--seed", type=int, default=0, help="of the sizes that are drawn")
    parser.add_argument("--work", default="out/sweep", help="where rows are kept: what is there is not run again")
    parser.add_argument("--output", default="reports/gallery", help="where the table goes")
    parser.add_argument("--limit", type=float, default=900, help="seconds for one architecture")
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


def _swept(chosen: dict[str, str], folder: Path, options: argparse.Namespace) -> list[Row]:
    def kept(name: str) -> Path:
        return file_of(folder, name, options.seed)

    there = [name for name in chosen if kept(name).exists()]
    if options.kept:
        return [_row(read(kept(name))) for name in there]
    waiting = [name for name in chosen if options.only or name not in there]
    made(
        waiting,
        lambda name: sweep_one(name, chosen[name], options.seed, folder / "configs"),
        lambda name, why, seconds: Row(name, chosen[name], REFUSED, why, seconds=seconds),
        kept,
        options.limit,
        options.jobs,
        len(chosen) - len(waiting),
    )
    return [_row(read(kept(name))) for name in chosen]


if __name__ == "__main__":
    sys.exit(main())

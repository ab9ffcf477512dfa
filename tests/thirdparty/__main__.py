"""``python -m tests.thirdparty``: every module of the list, derived and measured. Resumable; two at a time.

The exit status is 1 where a number is wrong or an error is no refusal.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

from tests.sweep.processes import file_of, made, read
from tests.thirdparty.case import ERROR, REFUSED, WRONG, Row, judged
from tests.thirdparty.specs import cases
from tests.thirdparty.table import as_json, as_markdown, row_of


def main() -> int:
    options = _options()
    os.environ |= {"HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg"}
    warnings.filterwarnings("ignore")
    import torch
    import transformers

    from tests.thirdparty.vision import declare_operators

    declare_operators()
    torch.set_num_threads(1)
    gc.set_threshold(200_000)  # as the command line does
    gc.freeze()
    known = {case.name: case for case in cases()}
    chosen = [name for name in known if not options.only or any(word in name for word in options.only)]
    folder = Path(options.work)
    folder.mkdir(parents=True, exist_ok=True)

    def kept(name: str) -> Path:
        return file_of(folder, name)

    waiting = [] if options.kept else [name for name in chosen if options.only or not kept(name).exists()]
    made(
        waiting,
        lambda name: judged(known[name]),
        lambda name, why, seconds: Row(
            known[name].package, "", known[name].module, ERROR if why.startswith("its process") else REFUSED, why, seconds=seconds
        ),
        kept,
        options.limit,
        options.jobs,
        len(chosen) - len(waiting),
    )
    rows = [row_of(read(kept(name))) for name in chosen if kept(name).exists()]
    if options.only:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        left = [name for name in known if not kept(name).exists()]
        versions = {"torch": torch.__version__.partition("+")[0], "transformers": transformers.__version__}
        out = Path(options.output)
        out.mkdir(parents=True, exist_ok=True)
        (out / "thirdparty.md").write_text(as_markdown(rows, versions, left), encoding="utf-8")
        (out / "thirdparty.json").write_text(as_json(rows, versions), encoding="utf-8")
    return int(any(row.verdict in (WRONG, ERROR) for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.thirdparty", description=__doc__)
    parser.add_argument("only", nargs="*", help="parts of names of modules, which are run anew; all when none is given")
    parser.add_argument("--kept", action="store_true", help="write the table of the rows that are there, and run nothing")
    parser.add_argument("--work", default="out/thirdparty", help="where rows are kept: what is there is not run again")
    parser.add_argument("--output", default="reports/gallery", help="where the table goes")
    parser.add_argument("--limit", type=float, default=900, help="seconds for one module")
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

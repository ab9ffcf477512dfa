"""Which tests the rule of each operator stands, as data that travels with the program: ``napkin list rules`` and reports show it.

Run as ``python -m tests.rules.table OPERATOR --model MODEL`` after a rule was added, with the model of the zoo that runs it; without
operators all rows are made again, which traces the whole zoo, and ``--all`` looks for every model anew.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calc.rules.registry import REGISTRY
from tests.rules.cases import CASES
from tests.test_planted_errors import ELSEWHERE, UNTRACED, compared, errors, failed, measured, models, traced
from tests.zoo import ZOO

FILE = Path(__file__).resolve().parent.parent.parent / "reports" / "data" / "tested.json"
OPERATORS = sorted([*REGISTRY.rules, *REGISTRY.frees])

Entry = dict[str, Any]


def read() -> dict[str, Entry]:
    table: dict[str, Entry] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return table


def write(entries: Mapping[str, Entry]) -> None:
    """One operator a line, so that two changes seldom meet."""
    lines = ",\n".join(f"{json.dumps(op)}: {json.dumps(entry, ensure_ascii=False)}" for op, entry in sorted(entries.items()))
    FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def bites(op: str, model: str) -> bool:
    """Whether the check of this one model fails when an error is planted in what the rule of ``op`` says of its calls."""
    _, registry = random.Random(op).choice(sorted(errors(op, model).items()))
    return bool(failed(compared(traced(model), registry, measured(model))))


def runs(op: str, model: str | None) -> bool:
    """Whether a model of that name is in the zoo and executes ``op`` in the step that counts."""
    return model in ZOO and any(o.name == op and o.step == 2 for o in traced(str(model)).ops)


def entry(op: str, known: Mapping[str, Entry]) -> Entry | None:
    """Calls in the cases, and the smallest model whose check notices an error; what no CPU executes stands on its twin's.

    ``None`` where there is no call, or no such model.
    """
    calls: Entry = {"calls": len(CASES.get(op, ()))}
    if op in UNTRACED:
        return {**calls, "model": None, "because": UNTRACED[op]}
    twin = ELSEWHERE.get(op, op)
    model = known.get(op, {}).get("model")
    if not runs(twin, model) or not bites(twin, str(model)):
        model = next((name for name in models().get(twin, ()) if bites(twin, name)), None)
    if model is None or not calls["calls"]:
        return None
    return {**calls, "model": model} if twin == op else {**calls, "model": model, "counted as": twin}


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m tests.rules.table", description=__doc__)
    words.add_argument("operators", nargs="*", metavar="OPERATOR", help="make the rows of these (default: all)")
    words.add_argument("--model", help="the model of the zoo to try first")
    words.add_argument("--all", action="store_true", help="look for every model anew")
    options = words.parse_args()
    if unknown := {*options.operators} - {*OPERATORS}:
        words.error(f"no rule of {', '.join(sorted(unknown))}")
    if options.model and options.model not in ZOO:
        words.error(f"no model {options.model!r} in tests/zoo")
    known = {} if options.all else read()
    if options.model:
        known |= {op: {"model": options.model} for op in options.operators}
    entries = {op: entry(op, known) for op in options.operators or OPERATORS}
    write({op: row for op, row in {**(known if options.operators else {}), **entries}.items() if row is not None})
    print(f"wrote {FILE.name}: {len(entries)} operators", file=sys.stderr)
    untested = [op for op, row in entries.items() if row is None]
    if untested:
        sys.exit(f"without a call in tests/rules/cases.py or a model in tests/zoo: {', '.join(untested)}")


if __name__ == "__main__":
    main()

"""The sweep's table, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tests.sweep.run import EXACT, NOT_BUILT, REFUSED, WRONG, Row


def as_json(rows: Sequence[Row], versions: dict[str, str], seed: int) -> str:
    return json.dumps({"schema": 2, "seed": seed, "versions": versions, "rows": [asdict(r) for r in rows]}, indent=1) + "\n"


def from_json(text: str) -> list[Row]:
    return [_row(row) for row in json.loads(text)["rows"]]


def _row(row: dict[str, Any]) -> Row:
    return Row(**{**row, "symbolic": tuple(row["symbolic"]), "specialized": tuple(row["specialized"])})


def as_markdown(rows: Sequence[Row], versions: dict[str, str], seed: int, left: Sequence[str] = ()) -> str:
    """The table; ``left`` names what has not been run."""
    built = [r for r in rows if r.verdict != NOT_BUILT]
    count = {verdict: sum(r.verdict == verdict for r in rows) for verdict in (EXACT, REFUSED, WRONG, NOT_BUILT)}
    lines = [
        "# Every architecture of the library, derived and measured",
        "",
        f"{count[EXACT]} of {len(built)} architectures that the library builds from its default configuration are exact:"
        " parameters, forward and backward matrix-product FLOP, saved bytes, optimizer state, peak, elementwise FLOP and bytes moved:"
        f" each an integer equal to a real run's. {count[REFUSED]} are refused with the reason, {count[WRONG]} are wrong,"
        f" {count[NOT_BUILT]} the library does not build offline.",
        "",
        f"Made by `make sweep` with seed {seed}, {', '.join(f'{name} {version}' for name, version in versions.items())}."
        " Sizes are the default configuration's, cut down by one rule; *numbers* are sizes without a symbol in the closed forms.",
        "",
        "| model type | class | verdict | symbols | numbers | parameters | CPU seconds | why |",
        "|---|---|---|---|---|---:|---:|---|",
    ]
    for row in sorted(rows, key=lambda r: (r.verdict != WRONG, r.verdict, r.model_type)):
        cells = [
            row.model_type.partition(":")[0],
            row.architecture,
            row.verdict,
            " ".join(row.symbolic),
            " ".join(row.specialized),
            f"{row.parameters:,}" if row.parameters else "",
            f"{row.seconds:.0f}",
            row.why,
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    if left:
        lines += ["", f"Not run: {', '.join(left)}."]
    return "\n".join(lines) + "\n"

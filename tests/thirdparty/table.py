"""The table of third-party modules, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tests.thirdparty.case import ERROR, EXACT, REFUSED, WRONG, Row

_ORDER = (WRONG, ERROR, REFUSED, EXACT)


def as_json(rows: Sequence[Row], versions: Mapping[str, str]) -> str:
    return json.dumps({"schema": 2, "versions": versions, "rows": [asdict(r) for r in rows]}, indent=1) + "\n"


def row_of(fields: Mapping[str, Any]) -> Row:
    return Row(**{**fields, "symbolic": tuple(fields["symbolic"]), "specialized": tuple(fields["specialized"])})


def from_json(text: str) -> list[Row]:
    return [row_of(fields) for fields in json.loads(text)["rows"]]


def as_markdown(rows: Sequence[Row], versions: Mapping[str, str], left: Sequence[str] = ()) -> str:
    """The table; ``left`` names what has not been run."""
    count = {verdict: sum(r.verdict == verdict for r in rows) for verdict in _ORDER}
    packages = len({row.package for row in rows})
    lines = [
        "# Modules of other packages, derived and measured",
        "",
        f"{count[EXACT]} of {len(rows)} modules from {packages} packages are exact at each of two or more sets of sizes:"
        " every quantity with an instrument is an integer equal to a real run's."
        f" {count[REFUSED]} are refused with the reason, {count[WRONG]} are wrong, {count[ERROR]} end in an error.",
        "",
        f"Made by `make test-thirdparty` with {', '.join(f'{name} {version}' for name, version in versions.items())}."
        " *Symbols* are the dimensions that closed forms have, *numbers* those that they do not.",
        "",
        "| package | version | module | verdict | symbols | numbers | parameters | seconds | message |",
        "|---|---|---|---|---|---|---:|---:|---|",
    ]
    for row in sorted(rows, key=lambda r: (_ORDER.index(r.verdict), r.package.lower(), r.module)):
        parameters = f"{row.parameters:,}" if row.parameters else ""
        cells = [row.package, row.version, row.module, row.verdict, " ".join(row.symbolic), " ".join(row.specialized), parameters]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in [*cells, f"{row.seconds:.0f}", row.why]) + " |")
    if left:
        lines += ["", f"Not run: {', '.join(left)}."]
    return "\n".join(lines) + "\n"

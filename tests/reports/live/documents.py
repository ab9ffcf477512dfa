"""A document that is checked as a user checks it: by the command, in a folder of its own."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from reports import cli

DOCUMENT = """# Plan

```napkin
model mlp as m B=5 d=11 f=13 K=3
device h100-sxm as h
L = 12  # layers
two = 2*m.parameters
```
It has 198<!--= m.parameters --> parameters, twice that is 396<!--= two -->, in B = 5<!--= m.B -->,
at 989.5 TFLOP/s<!--= h.bf16 -->, and 13<!--= L --> layers.
"""


def run(tmp_path: Path, text: str, *words: str) -> Result:
    """What ``napkin verify`` says of a document with this ``text``."""
    (tmp_path / "plan.md").write_text(text, encoding="utf-8", newline="")
    return CliRunner().invoke(cli.napkin, ["verify", str(tmp_path / "plan.md"), *words])

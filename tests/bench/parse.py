"""Seconds that SymPy takes to read the closed form of ``memory.peak`` in a JSON document, in a process of its own.

Run as ``python -m tests.bench.parse DOCUMENT``; prints the seconds of ``sympify``, with SymPy already imported.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import sympy as sp


def seconds(path: str) -> float:
    """The dimensions are positive integers, as the document says they are."""
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    symbols = {name: sp.Symbol(name, positive=True, integer=True) for name in document["dims"]}
    text = document["quantities"]["memory.peak"]["expr"]
    begin = time.perf_counter()
    sp.sympify(text, locals=symbols)
    return time.perf_counter() - begin


if __name__ == "__main__":
    print(seconds(sys.argv[1]))

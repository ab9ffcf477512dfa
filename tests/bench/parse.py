"""Seconds that it takes to read the closed form of ``memory.peak`` in a JSON document, in a process of its own.

Run as ``python -m tests.bench.parse DOCUMENT [--toy]``, which reads a shorter form; prints the seconds of this project's reader and
those of ``sympify``, with SymPy already imported. SymPy itself compares every two of the moments that a peak is the largest of, and
finds nothing.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sympy as sp

from calc.symbolic.algebra import symbol, to_sympy


def seconds(path: str, quantity: str) -> dict[str, float]:
    """The dimensions are positive integers, as the document says they are."""
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    symbols = {name: symbol(name) for name in document["dims"]}
    text = document["quantities"][quantity]["expr"]
    return {"read": _timed(lambda: to_sympy(text)), "sympify": _timed(lambda: sp.sympify(text, locals=symbols))}


def _timed(read: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    read()
    return time.perf_counter() - begin


if __name__ == "__main__":
    print(json.dumps(seconds(sys.argv[1], "parameters" if "--toy" in sys.argv else "memory.peak")))

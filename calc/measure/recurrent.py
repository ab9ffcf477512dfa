"""LSTMs on torch's own operators instead of oneDNN.

On a CPU torch runs an LSTM by oneDNN: one operator that no counter sees into, with a workspace whose size depends on the machine. So
it is replaced (``calc/graph/exchanges.py``), and the default step is measured as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from calc.platform.torch_private import foreign_functions, onednn_is_on, set_onednn


@contextmanager
def without_onednn() -> Iterator[None]:
    """Context in which LSTM layers run cell by cell, without oneDNN; other operators still use oneDNN."""
    functions: Any = foreign_functions
    by_default = functions.lstm

    def lstm(*args: Any) -> Any:
        enabled = onednn_is_on()
        set_onednn(False)
        try:
            return by_default(*args)
        finally:
            set_onednn(enabled)

    functions.lstm = lstm
    try:
        yield
    finally:
        functions.lstm = by_default

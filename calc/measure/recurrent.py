"""An LSTM as torch's own operators run it.

On a CPU torch hands it to oneDNN: one operator that no counter sees into, with a workspace whose size is up to the machine. So it is
exchanged, as ``calc/graph/exchanges.py`` says, and the default step is measured beside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from calc.platform.torch_private import foreign_functions, onednn_is_on, set_onednn


@contextmanager
def without_onednn() -> Iterator[None]:
    """While it is open, LSTM layers run cell by cell; what else oneDNN computes stays with it."""
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

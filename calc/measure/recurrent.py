"""An LSTM as torch's own operators run it.

On a CPU torch hands it to oneDNN: one operator that no counter sees into, with a workspace whose size is up to the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def without_onednn() -> Iterator[None]:
    """While it is open, LSTM layers run cell by cell; what else oneDNN computes stays with it."""
    functions: Any = torch._VF
    by_default = functions.lstm

    def lstm(*args: Any) -> Any:
        enabled = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(False)
        try:
            return by_default(*args)
        finally:
            torch._C._set_mkldnn_enabled(enabled)

    functions.lstm = lstm
    try:
        yield
    finally:
        functions.lstm = by_default

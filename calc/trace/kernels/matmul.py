"""``matmul`` on symbolic sizes, for versions of torch that decompose it with plain numbers.

Before 2.12, ``matmul`` of more than two axes (a linear layer without bias) reads its sizes as numbers in C++, which loses products of
sizes (``h*k``). Torch's Python decomposition keeps the symbols and runs the same operators, except for the kind of one view.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from calc.platform.torch_private import VERSION, decompositions
from calc.trace.kernels.replacement import replaced

_KEEPS_SYMBOLS = (2, 12)


@contextlib.contextmanager
def by_symbols() -> Iterator[None]:
    """Context in which ``matmul`` is decomposed in symbolic sizes, whatever the version."""
    if VERSION >= _KEEPS_SYMBOLS:
        yield
        return
    with replaced({"matmul": decompositions.matmul}, "CompositeImplicitAutograd"):
        yield

"""The operators that torch runs."""

from __future__ import annotations

from typing import Any

from calc.platform.torch_private import TorchDispatchMode


class OperatorNames(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's modes are untyped
    """Collects the names of the operators that run inside, in order."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))

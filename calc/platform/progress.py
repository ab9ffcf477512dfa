"""How a long computation says what it is doing."""

from __future__ import annotations

from collections.abc import Callable

# Takes the name of the stage that begins, such as "tracing the step with symbolic sizes at L = 3".
Progress = Callable[[str], None]

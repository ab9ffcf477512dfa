"""What every refusal of a model holds to: one line, of no path of this machine, that names the line at fault."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import calc
from calc.errors import NapkinError
from calc.spec import Spec


def refusal(s: Spec, **options: str) -> NapkinError:
    """The error of tracing and deriving ``s``, once it is seen to be one line."""
    with pytest.raises(NapkinError) as raised:
        calc.derive(s, cache=False, **options)

    message = str(raised.value)
    assert message == message.strip() != ""
    assert "\n" not in message
    assert "/" not in re.sub(r"\S+\.py:\d+: .*", "", message)  # no paths of this machine
    return raised.value


def assert_names_line(error: NapkinError, of: Callable[..., Any], offset: int = 1) -> None:
    """The message names the file of ``of``, the line ``offset`` below its head, and the text there."""
    lines, first = inspect.getsourcelines(of)
    assert f"{Path(inspect.getfile(inspect.unwrap(of))).name}:{first + offset}: {lines[offset].strip()}" in str(error)

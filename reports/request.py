"""What a user asked for, and what every command writes: apart from the work, so that a short question stays short."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calc import dims
from calc.errors import BadInputError
from calc.options import Options


@dataclass(frozen=True, slots=True)
class Request:
    """A model, sizes, and how the step runs. ``written`` is how a report names the model, where that is not how it is loaded."""

    model: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    options: Options = field(default_factory=Options)
    cache: bool = True
    written: str = ""


def sizes_from(assignments: Sequence[str]) -> dict[str, int]:
    """``("B=8", "T=1024")`` as sizes; a size given twice is refused."""
    found: dict[str, int] = {}
    for text in assignments:
        name, value = dims.parse_assignment(text)
        if name in found:
            raise BadInputError(f"{name[:40]} is given twice: give each size once")
        found[name] = value
    return found


def json_text(document: Mapping[str, Any]) -> str:
    """JSON in ASCII, so that no name in it can act on a terminal."""
    return json.dumps(document, ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def version() -> str:
    """The installed version of this program."""
    from importlib import metadata

    try:
        return metadata.version("napkin")
    except metadata.PackageNotFoundError:
        return "not installed"

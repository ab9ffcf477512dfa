"""What a user asked for, and what every command writes: apart from the work, so that a short question stays short."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calc import dimensions
from calc.errors import BadInputError
from calc.options import Options, made
from calc.symbolic.assignments import read_assignments


@dataclass(frozen=True, slots=True)
class Request:
    """A model, sizes, and how the step runs. ``written`` is how a report names the model, where that is not how it is loaded."""

    model: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    options: Options = field(default_factory=Options)
    cache: bool = True
    written: str = ""


# How sizes and options are typed together.
PAIRS = "key=value, as in B=8 or optimizer=sgd"


def request_from(model: str, given: Mapping[str, str], cache: bool = True) -> Request:
    """The request of a model with sizes and options by key, ``{"B": "8", "zero-grad": "zero"}``."""
    options = {key: key.replace("-", "_") for key in given if key.replace("-", "_") in Options.__dataclass_fields__}
    for key, value in given.items():
        near = [] if key in options or value.isdecimal() else difflib.get_close_matches(key, Options.__dataclass_fields__, n=1)
        if near:
            raise BadInputError(f"unknown option {key[:40]!r}: did you mean {near[0]}?")
    sizes = {key: dimensions.parse_size(key, value) for key, value in given.items() if key not in options}
    return Request(model, sizes, made(**{name: given[key] for key, name in options.items()}), cache=cache)


def sizes_from(assignments: Sequence[str]) -> dict[str, int]:
    """``("B=8", "T=1024")`` as sizes; a size given twice is refused."""
    return {name: dimensions.parse_size(name, size) for name, size in read_assignments(assignments, dimensions.ASSIGNMENT).items()}


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

"""What a user asked for, and what every command writes: apart from the work, so that a short question stays short."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calc import dimensions
from calc.errors import BadInputError
from calc.options import Options, made


@dataclass(frozen=True, slots=True)
class Request:
    """A model, sizes, and how the step runs. ``written`` is how a report names the model, where that is not how it is loaded."""

    model: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    options: Options = field(default_factory=Options)
    cache: bool = True
    written: str = ""


def pair(word: str) -> tuple[str, str]:
    """``"B=8"`` as a key and a value."""
    key, sign, value = word.partition("=")
    if not sign or not key or not value:
        raise BadInputError(f"cannot read {word[:40]!r}: write key=value, as in B=8 or optimizer=sgd")
    return key, value


def pairs(words: Sequence[str]) -> dict[str, str]:
    """``("B=8", "T=1024")`` by key; one given twice is refused."""
    values: dict[str, str] = {}
    for key, value in map(pair, words):
        if key in values:
            raise BadInputError(twice(key, values[key], value))
        values[key] = value
    return values


def twice(key: str, first: str, second: str) -> str:
    """What to say of a key that is given twice: with the last one taken, a slip of the finger would go unseen."""
    return f"{key[:40]} is given twice, {first[:40]!r} and {second[:40]!r}: give it once"


def request_from(model: str, given: Mapping[str, str], cache: bool = True) -> Request:
    """The request of a model with sizes and options by key, ``{"B": "8", "zero-grad": "zero"}``."""
    options = {key: key.replace("-", "_") for key in given if key.replace("-", "_") in Options.__dataclass_fields__}
    sizes = sizes_from([f"{key}={value}" for key, value in given.items() if key not in options])
    return Request(model, sizes, made(**{name: given[key] for key, name in options.items()}), cache=cache)


def sizes_from(assignments: Sequence[str]) -> dict[str, int]:
    """``("B=8", "T=1024")`` as sizes; a size given twice is refused."""
    sizes: dict[str, int] = {}
    for text in assignments:
        name, value = dimensions.parse_assignment(text)
        if name in sizes:
            raise BadInputError(twice(name, str(sizes[name]), str(value)))
        sizes[name] = value
    return sizes


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

"""The closed forms that come with this package: their index, and whether a form is what a derivation would give here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from calc.pipeline.precomputed.forms import Stored
from calc.pipeline.precomputed.produced import differing, digest

FOLDER = Path(__file__).resolve().parent.parent.parent / "data" / "stored"
INDEX = "index.json"
SCHEMA = 3


def bundled(name: str, options: Mapping[str, str] | None) -> Stored | None:
    """The bundled form of a model; ``None`` if there is none that is valid here: ``why_not`` gives the reason."""
    return None if why_not(name, options) else _read(_entry(name, options)["file"])


def why_not(name: str, options: Mapping[str, str] | None = None) -> str:
    """Why no stored form can be used; empty if one can."""
    entry = _entry(name, options)
    if not entry:
        return f"no closed forms of {name[:60]} are stored" + (" for these options" if _entry(name, None) else "")
    if not _made_by_this_code(entry):
        return "the stored closed forms were made by other code: python -m calc.pipeline.precomputed.make re-derives them"
    versions = differing(entry["versions"])
    return f"the stored closed forms were made by {versions}" if versions else ""


def names() -> tuple[str, ...]:
    """The models of which closed forms are stored for the default options."""
    return tuple(dict.fromkeys(entry["name"] for entry in _index()["forms"]))


def _entry(name: str, options: Mapping[str, str] | None) -> dict[str, Any]:
    """The entry of the index, empty if there is none. Without options, a model's first form is the one for the defaults."""
    entries = (e for e in _index()["forms"] if e["name"] == name and (options is None or e["options"] == dict(options)))
    return next(entries, {})


@cache
def _index() -> dict[str, Any]:
    try:
        index: dict[str, Any] = json.loads((FOLDER / INDEX).read_text(encoding="utf-8"))
    except FileNotFoundError:  # before the first build
        return {"schema": SCHEMA, "sources": [], "code": "", "forms": []}
    return index


@cache
def _digest_here() -> str:
    """The digest of the bytes of the code that would derive the forms now."""
    return digest(_index()["sources"])


def _made_by_this_code(entry: Mapping[str, Any]) -> bool:
    return _digest_here() == entry["sha256"] or _has_same_meaning(entry["name"], tuple(entry["rules"]), entry["code"])


@cache
def _has_same_meaning(name: str, rules: tuple[str, ...], made_by: str) -> bool:
    """Whether the files that derive a model have the same meaning, though not the same bytes."""
    from calc.pipeline.precomputed import code

    return code.combined(code.meanings(code.sources_of(name, rules)).values()) == made_by


def code_of(name: str, options: Mapping[str, str]) -> str:
    """A digest of the meaning of the code that derives a built-in model: of what its stored form depends on if that is valid, else of all
    of it. Takes a second if the files differ from those of the index."""
    entry = _entry(name, options)
    return str(entry["code"]) if entry and _made_by_this_code(entry) else code_here()


@cache
def code_here() -> str:
    """A digest of the meaning of all deriving code, as ``code_of`` has it for one model."""
    index = _index()
    if index["forms"] and all(entry["sha256"] == _digest_here() for entry in index["forms"]):
        return str(index["code"])
    from calc.pipeline.precomputed import code

    return code.combined(code.meanings(code.sources()).values())


@cache
def _read(file: str) -> Stored:
    return Stored(json.loads((FOLDER / file).read_text(encoding="utf-8")))

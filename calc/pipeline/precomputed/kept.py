"""Closed forms that an earlier command derived, in the user's cache.

A model is identified before it is loaded, which takes torch: a built-in one by its name, a config by the bytes of its file. The code of any
other model says what it is only when it runs, so that its forms are not kept.

Two forms of a model are kept apart: one with every special case, and one of a derivation, which has that of its own sizes only.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from calc.errors import BadInputError
from calc.models.catalogue import CATALOGUE, configs
from calc.models.load import config_file
from calc.options import Options
from calc.pipeline.precomputed.forms import Stored
from calc.pipeline.precomputed.index import SCHEMA, code_here, code_of
from calc.pipeline.precomputed.produced import installed
from calc.platform import files
from calc.platform.cache_entry import CacheEntry, cache_entry

_CONFIG = files.Kind(2**23)


def has_place(name: str, options: Mapping[str, str] | None) -> bool:
    """Whether the form of a model for these options can be kept: its name tells what it is before it is loaded, and there is a cache."""
    return _entry(name, options) is not None


def read(name: str, options: Mapping[str, str] | None, every_case: bool = False) -> Stored | None:
    """The form of a model for these options; ``None`` if none is kept, or a damaged one, which is deleted. ``every_case``: only a form that
    ``form_of`` made, whose special cases do not depend on the sizes of earlier commands."""
    entry = _entry(name, options, every_case)
    if entry is None:
        return None
    try:
        text = entry.read()
        return None if text is None else Stored(json.loads(_intact(text)))
    except (BadInputError, ValueError):
        entry.discard()
        return None


def write(name: str, options: Mapping[str, str] | None, data: Mapping[str, Any], every_case: bool = False) -> None:
    """Keep a form, as ``Stored`` reads it, unless the config has changed since it was loaded."""
    entry = _entry(name, options, every_case)
    if entry is not None and (not name.startswith("hf:") or data["source"].endswith(_content(name)[:16])):
        text = json.dumps(data, separators=(",", ":"))
        entry.write(lambda: f"{_digest(text)}\n{text}")


def _intact(text: str) -> str:
    """The form in the text of an entry. Raises ``BadInputError`` for a damaged one."""
    digest, _, form = text.partition("\n")
    if digest != _digest(form):
        raise BadInputError("a form in the cache is damaged")
    return form


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _entry(name: str, options: Mapping[str, str] | None, every_case: bool = False) -> CacheEntry | None:
    """The place of a form in the cache; ``None`` where there is no cache, or the model is not identified."""
    content = _content(name)
    if not content:
        return None
    chosen = Options().to_json() if options is None else dict(options)
    code = code_here() if name.startswith("hf:") else code_of(name, chosen)
    schema = f"form of schema {SCHEMA}{', every case' if every_case else ''}"  # that of the code that writes and reads forms
    return cache_entry("\n".join([schema, name, content, json.dumps(chosen, sort_keys=True), *_versions(), code]), "form")


def _content(name: str) -> str:
    """What identifies the content of a model; empty where its name does not tell."""
    head, _, tail = name.partition(":")
    if head in CATALOGUE or (head == "transformers" and tail in configs()):
        return name
    if head != "hf" or not tail:
        return ""
    try:
        return hashlib.sha256(_CONFIG.read_bytes(config_file(tail))).hexdigest()
    except BadInputError:
        return ""


@functools.cache
def _versions() -> tuple[str, ...]:
    return tuple(f"{library} {version}" for library, version in sorted(installed().items()))

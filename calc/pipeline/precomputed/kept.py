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
from dataclasses import dataclass
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
from calc.spec import Spec

_CONFIG = files.Kind(2**23)


@dataclass(frozen=True, slots=True)
class FormPlaces:
    """Where the forms of a model are in the cache: one with ``every_case``, which does not depend on the sizes of earlier commands, and one
    of a derivation. ``digest`` is that of the model's config, empty for a built-in model."""

    every_case: CacheEntry
    derived: CacheEntry
    digest: str

    def are_of(self, spec: Spec) -> bool:
        """Whether the config has not changed since ``spec`` was loaded from it."""
        return self.digest in ("", spec.digest)


def places(name: str, options: Mapping[str, str] | None) -> FormPlaces | None:
    """Where the forms of a model for these options are; ``None`` where its name does not tell what it is before it is loaded, or without a
    cache."""
    digest = _config_digest(name)
    if digest is None:
        return None
    chosen = Options().to_json() if options is None else dict(options)
    code = code_here() if digest else code_of(name, chosen)
    depends_on = "\n".join([name, digest, json.dumps(chosen, sort_keys=True), *_versions(), code])
    schema = f"form of schema {SCHEMA}"  # that of the code that writes and reads forms
    every_case, derived = (cache_entry(f"{form}\n{depends_on}", "form") for form in (f"{schema}, every case", schema))
    return None if every_case is None or derived is None else FormPlaces(every_case, derived, digest)


def read(entry: CacheEntry) -> Stored | None:
    """The form of an entry; ``None`` if there is none, or a damaged one, which is deleted."""
    try:
        text = entry.read()
        return None if text is None else Stored(json.loads(_intact(text)))
    except (BadInputError, ValueError):
        entry.discard()
        return None


def write(entry: CacheEntry, data: Mapping[str, Any]) -> None:
    """Keep a form, as ``Stored`` reads it."""
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


def _config_digest(name: str) -> str | None:
    """The digest of a model's config, empty for a built-in model; ``None`` where the name does not tell the content."""
    head, _, tail = name.partition(":")
    if head in CATALOGUE or (head == "transformers" and tail in configs()):
        return ""
    if head != "hf" or not tail:
        return None
    try:
        return hashlib.sha256(_CONFIG.read_bytes(config_file(tail))).hexdigest()
    except BadInputError:
        return None


@functools.cache
def _versions() -> tuple[str, ...]:
    return tuple(f"{library} {version}" for library, version in sorted(installed().items()))

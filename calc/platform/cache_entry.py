"""Files of the user's cache, each named by the digest of what its content depends on. Torch-free.

A path that is not a regular file is neither read nor replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from calc.errors import BadInputError
from calc.platform import files

_ENTRY = files.Kind(2**31)


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One file of the cache. Its first line is ``key``."""

    path: Path
    key: str

    def read(self) -> str | None:
        """The text of the entry, None if there is none. Raises ``BadInputError`` for an entry of something else."""
        if not os.path.isfile(self.path):  # opening a pipe would block
            return None
        key, _, text = _ENTRY.read_text(self.path).partition("\n")
        if key != self.key:
            raise BadInputError("of another model, or of other options or versions")
        return text

    def discard(self) -> None:
        """Delete the entry."""
        with contextlib.suppress(OSError):
            self.path.unlink()

    def write(self, text: Callable[[], str]) -> None:
        """Write what ``text`` returns, complete or not at all. A cache that cannot be written is not an error."""
        if os.path.lexists(self.path) and not os.path.isfile(self.path):
            return
        with contextlib.suppress(OSError, BadInputError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            files.write(files.Output(self.path, f"{self.key}\n{text()}"))


def cache_entry(depends_on: str, kind: str) -> CacheEntry | None:
    """The entry for what depends on nothing but this text; None where there is no cache. ``kind`` is the ending of its name."""
    if os.environ.get("NAPKIN_CACHE") == "off":
        return None
    root = _root()
    key = hashlib.sha256(depends_on.encode("utf-8", "surrogatepass")).hexdigest()
    return None if root is None else CacheEntry(root / f"{key[:32]}.{kind}", key)


def _root() -> Path | None:
    """The folder of the cache; None for a user without a home directory."""
    if os.environ.get("NAPKIN_CACHE"):
        return Path(os.environ["NAPKIN_CACHE"])
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "napkin")
    except RuntimeError:
        return None

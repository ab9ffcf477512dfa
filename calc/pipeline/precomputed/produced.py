"""The provenance of a stored form: a digest of the code and tables that produced it, and the versions of its libraries.

Runs at every start, so it reads files directly: Python's package metadata would take longer than the answer.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARIES = ("torch", "transformers")


def digest(sources: Iterable[str]) -> str:
    """A digest of files of this package, by their paths in it. A file that is gone makes a digest that no other set has."""
    hasher = hashlib.sha256()
    for source in sources:
        try:
            with open(os.path.join(ROOT, source), "rb") as file:
                content = file.read()
        except OSError:
            content = b"\0absent"
        hasher.update(f"{source} {len(content)}\n".encode() + content)
    return hasher.hexdigest()


def differing(versions: Mapping[str, str]) -> str:
    """The libraries among ``versions`` that are installed here in another version, as text; empty if all agree or are absent."""
    present_here = installed()
    changed = [name for name, version in versions.items() if _public(present_here.get(name, version)) != _public(version)]
    made_with, present = (", ".join(f"{name} {among[name]}" for name in changed) for among in (versions, present_here))
    return f"{made_with}, and here is {present}" if changed else ""


def installed() -> dict[str, str]:
    """The versions of the libraries that are installed here, without importing them."""
    return dict(_installed())


def _installed() -> Iterator[tuple[str, str]]:
    """Versions by the names of the folders that installers leave beside packages; of several, the first on the path counts."""
    for folder in reversed(sys.path):
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in entries:
            name, _, version = entry.removesuffix(".dist-info").partition("-")
            if entry.endswith(".dist-info") and name in LIBRARIES:
                yield name, version


def _public(version: str) -> str:
    """The version without its build: 2.13.0+cpu and 2.13.0+cu130 run the same operators in a trace."""
    return version.partition("+")[0]

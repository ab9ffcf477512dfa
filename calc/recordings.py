"""Recordings kept on disk, so that a model is recorded once and not at every question. Torch-free."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

from calc import graph_json
from calc.errors import BadInputError
from calc.graph import Graph
from calc.options import Options
from calc.spec import Spec


class Cache:
    """A recording on disk, keyed by the model's content, the options and the versions. The general one is not keyed by sizes;
    ``apart`` keys what was recorded for particular ones."""

    def __init__(self, spec: Spec, options: Options, used: bool, apart: str = "") -> None:
        self._path: Path | None = None
        if not used or not spec.key or os.environ.get("NAPKIN_CACHE") == "off":
            return
        root = _root()
        if root is None:
            return
        text = "\n".join([spec.key, repr(options), apart, *_versions()])
        self._path = root / f"{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"

    def read(self) -> Graph | None:
        """The kept graph; a file that is damaged or cannot be read is as good as none."""
        if self._path is None or not os.path.isfile(self._path):  # a pipe would be waited for
            return None
        try:
            return graph_json.load(self._path)
        except BadInputError:
            return None

    def write(self, graph: Graph) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(self._path) or os.path.isfile(self._path):  # what is no file was not made by us
                graph_json.save(graph, self._path)
        except OSError:
            return  # a cache that cannot be written is no reason to fail


def _root() -> Path | None:
    """The folder of the cache; none for a user who has no home."""
    if os.environ.get("NAPKIN_CACHE"):
        return Path(os.environ["NAPKIN_CACHE"])
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "napkin")
    except RuntimeError:
        return None


@functools.cache
def _versions() -> tuple[str, ...]:
    """Versions of what a recording depends on, and what this package's own files say, without importing torch."""
    from importlib import metadata

    from calc.stored import code_here

    found = []
    for package in ("torch", "transformers"):
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            found.append(f"{package} absent")
    return (*found, code_here())

"""Traces on disk, so that a model is traced once and not by every command. Torch-free.

An entry is used only if it is an intact graph of this model with these options and versions; any other is deleted and re-created.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from calc.dimensions import Dim
from calc.errors import BadInputError
from calc.graph import serialize
from calc.graph.plan import Period
from calc.graph.step import Graph
from calc.options import Options
from calc.pipeline.precomputed.index import code_here, code_of
from calc.platform.cache_entry import cache_entry
from calc.spec import Spec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Forward:
    """The values of the basis symbols in a forward, whether its iterations are ``alike``, and else in which pattern they repeat."""

    at: Mapping[str, int]
    alike: bool
    period: Period | None = None


class Cache:
    """A trace on disk, keyed by the model's content, the options, the versions and the code that derives it. The general trace has no sizes
    in its key; ``case`` names the special case of any other."""

    def __init__(self, spec: Spec, options: Options, used: bool, case: str = "") -> None:
        self._spec, self._entry = spec, None
        if not used or not spec.key:
            return
        # The name of any other spec is the user's own.
        code = code_of(spec.name, options.to_json()) if spec.key == f"built-in:{spec.name}" else code_here()
        self._entry = cache_entry("\n".join([spec.key, repr(options), case, *_versions(), code]), "graph")

    def read(self, progress: Callable[[str], None]) -> Graph | None:
        """The graph of the entry; ``None`` if there is none, or a damaged one, which is deleted with a message."""
        return self._read(lambda text: _named_after(self._spec, serialize.loads(text)), progress)

    def read_spec(self, progress: Callable[[str], None]) -> Spec | None:
        """The spec of an entry that ``write_spec`` wrote, in the same way."""
        return self._read(self._with_dimensions, progress)

    def _read(self, parse: Callable[[str], T], progress: Callable[[str], None]) -> T | None:
        try:
            text = None if self._entry is None else self._entry.read()
            return None if text is None else parse(text)
        except BadInputError:
            self.discard(progress)
            return None

    def _with_dimensions(self, text: str) -> Spec:
        try:
            content = json.loads(text)
            dims = {name: Dim(**dim) for name, dim in content["dims"].items()}
            return replace(self._spec, dims=dims, key=content["key"])
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise BadInputError("no dimensions of a model") from error

    def discard(self, progress: Callable[[str], None]) -> None:
        """Delete a damaged entry, with a message."""
        progress("trace in the cache damaged: deleted")
        if self._entry is not None:
            self._entry.discard()

    def read_forward(self) -> Forward | None:
        """The forward of an entry that ``write_forward`` wrote."""
        return self._read(_forward, lambda _: None)

    def write_forward(self, forward: Forward) -> None:
        """Write what a forward has shown."""
        self._write(lambda: json.dumps(asdict(forward)))

    def write(self, graph: Graph) -> None:
        self._write(lambda: serialize.dumps(graph))

    def write_spec(self, spec: Spec) -> None:
        """Write the dimensions of ``spec``, which has more divisors than the spec of this cache, and its key."""
        self._write(lambda: json.dumps({"key": spec.key, "dims": {name: asdict(dim) for name, dim in spec.dimensions.items()}}))

    def _write(self, text: Callable[[], str]) -> None:
        if self._entry is not None:
            self._entry.write(text)


def _forward(text: str) -> Forward:
    try:
        content = json.loads(text)
        at = {name: operator.index(value) for name, value in content["at"].items()}
        return Forward(at, bool(content["alike"]), _period(**content["period"]) if content["period"] else None)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise BadInputError("no values of symbols") from error


def _period(every: Any, irregular: Any, because: Any) -> Period:
    if operator.index(every) < 1 or operator.index(irregular) < 0:
        raise ValueError("no period")
    return Period(every, irregular, str(because))


def _named_after(spec: Spec, graph: Graph) -> Graph:
    """The graph with the name and source of ``spec``: it may have been made for another file of the same content."""
    cases = tuple(replace(case, graph=_named_after(spec, case.graph)) for case in graph.special_cases)
    return replace(graph, model=spec.name, source=spec.source, special_cases=cases)


@functools.cache
def _versions() -> tuple[str, ...]:
    """Versions of the libraries that a trace depends on, without importing torch."""
    from importlib import metadata

    versions = []
    for package in ("torch", "transformers"):
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{package} absent")
    return tuple(versions)

"""``trace`` and ``derive`` as users call them: recordings made as deep as the certificates demand, and kept in a cache."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from calc import graph_json
from calc.cost import REGISTRY, Registry
from calc.derivation import Derivation
from calc.errors import BadInputError, CertificateError
from calc.graph import Graph
from calc.options import Options
from calc.spec import Spec

Progress = Callable[[str], None]

# A boundary layer may differ from the one next to it; deeper recordings separate more of them. Each entry is the loop
# counts recorded with symbolic sizes, then those of the two certificates.
_DEPTHS = (((2, 3), (4, 5)), ((3, 4), (5, 6)), ((3, 4, 5), (6, 7)))


def trace(
    spec: Spec,
    sizes: Mapping[str, int] | None = None,
    *,
    options: Options | None = None,
    cache: bool = True,
    progress: Progress = lambda _: None,
) -> Graph:
    """The graph of one training step of ``spec``, with certificates that its closed forms meet.

    ``sizes`` sets dimensions (integers ≥ 1); the others keep the spec's defaults. Needs torch, unless the cache has it.
    """
    from calc.derive.analysis import analyse  # here, so that importing calc stays light

    options = options or Options()
    values = spec.sizes(sizes)
    store = _Cache(spec, values, options) if cache else None
    if store is not None and (known := store.read()) is not None:
        progress("recording found in the cache")
        return known
    from calc import rules  # noqa: F401  # registers the rules
    from calc.trace import record

    failure: CertificateError | None = None
    for depths, certified in _DEPTHS:
        graph = record(spec, values, options, depths, certified, progress)
        try:
            analysis = analyse(graph, REGISTRY)
            for certificate in graph.certificates:
                analysis.certify(certificate)
        except CertificateError as error:
            if not graph.loops or (failure is not None and failure.quantity == error.quantity):
                raise  # depth is not what it depends on
            failure = error
            progress("a boundary layer differs from its neighbour: recording deeper")
            continue
        if store is not None:
            store.write(graph)
        return graph
    assert failure is not None  # the loop ends without a return only after a failure
    raise failure


def derive(
    source: Graph | Spec,
    sizes: Mapping[str, int] | None = None,
    *,
    options: Options | None = None,
    registry: Registry = REGISTRY,
    cache: bool = True,
    progress: Progress = lambda _: None,
) -> Derivation:
    """Every quantity of the step with its steps, from a graph (torch-free) or from a spec (traced first)."""
    from calc.derive import derive as derive_graph

    if isinstance(source, Spec):
        graph = trace(source, sizes, options=options, cache=cache, progress=progress)
        return derive_graph(graph, sizes, registry, spec=source)
    if not isinstance(source, Graph):
        raise BadInputError(f"derive needs a graph or a spec, not {type(source).__name__}")
    return derive_graph(source, sizes, registry)


class _Cache:
    """Recordings on disk, keyed by the model's content, the options and the versions; sizes of dimensions do not matter,
    only which of them are 1 or equal and how they are ordered, since that is what a step can tell."""

    def __init__(self, spec: Spec, values: Mapping[str, int], options: Options) -> None:
        self._path: Path | None = None
        if not spec.key or os.environ.get("NAPKIN_CACHE") == "off":
            return
        root = os.environ.get("NAPKIN_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "napkin")
        text = "\n".join([spec.key, repr(options), _regime(values), *_versions()])
        self._path = Path(root) / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
        self._spec, self._values = spec, values

    def read(self) -> Graph | None:
        """The kept graph with the values of this call, or nothing; a damaged file is as good as none."""
        if self._path is None or not self._path.exists():
            return None
        try:
            return _with_values(graph_json.load(self._path), self._values)
        except BadInputError:
            return None

    def write(self, graph: Graph) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            graph_json.save(graph, self._path)
        except OSError:
            return  # a cache that cannot be written is no reason to fail


def _with_values(graph: Graph, values: Mapping[str, int]) -> Graph:
    from dataclasses import replace

    return replace(graph, dims=tuple(replace(d, value=values[d.name]) for d in graph.dims))


def _regime(values: Mapping[str, int]) -> str:
    """What a step can tell of sizes without dividing them: which are 1, and their order."""
    ordered = sorted(values, key=lambda name: (values[name], name))
    return " ".join(f"{'1' if values[n] == 1 else ''}{'=' if i and values[ordered[i - 1]] == values[n] else '<'}{n}" for i, n in enumerate(ordered))


def _versions() -> list[str]:
    """Versions of what a recording depends on, and the code of this package, without importing torch."""
    from importlib import metadata

    found = []
    for package in ("torch", "transformers"):
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            found.append(f"{package} absent")
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return [*found, digest.hexdigest()]

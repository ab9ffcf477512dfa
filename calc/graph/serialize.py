"""Graphs to JSON and back, without torch. Tensors and operator texts are stored once and referred to by index."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from calc.errors import BadInputError
from calc.graph import reading
from calc.graph.step import Graph, StepTrace, Tensor
from calc.platform import files
from calc.platform.reading import Wrong

KIND = "napkin graph"
SCHEMA = 2

_FILE = files.Kind(2**31, "the graph")


def dumps(graph: Graph) -> str:
    """The graph as one JSON text; equal graphs give equal texts. It begins with the digest of the rest."""
    body = _written(_graph_to_json(graph))
    return f"{_head(_digest(body))}{body[1:]}"


def loads(text: str, where: str = "the text") -> Graph:
    """The graph of ``dumps``; any other text raises a one-line error with the place (``records[0].ops[3][4]``) and what is expected
    there."""
    if not isinstance(text, str):
        raise BadInputError(f"{where} is {type(text).__name__}, not text: give a graph as calc.graph.serialize.dumps writes it")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{where} is not JSON ({str(error)[:60]}): give a graph saved by calc.graph.serialize.save") from None
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise BadInputError(f"{where} is not a saved graph: give a file written by calc.graph.serialize.save")
    if data.get("schema") != SCHEMA:
        schema = repr(data.get("schema"))[:40]
        raise BadInputError(f"{where} is a graph of schema {schema}, this version reads {SCHEMA}: trace the model again")
    try:
        graph = reading.graph(data)
    except (Wrong, BadInputError) as error:
        raise BadInputError(f"{where} is a damaged graph: {error}: trace the model again") from None
    # Well-formed content may still have other numbers than the trace: nothing is derived from a graph whose digest differs.
    if not _as_saved(text, data, data.get("sha256")):
        raise BadInputError(f"{where} is a graph that was changed after it was saved: trace the model again")
    return graph


def _written(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=True)


def _head(digest: str) -> str:
    return f'{{"sha256":"{digest}",'


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode("ascii", "backslashreplace")).hexdigest()


def _as_saved(text: str, data: dict[str, Any], digest: object) -> bool:
    """Whether the content is the saved one: the same text, or the same data in another JSON format (indented, for example)."""
    head = _head(str(digest))
    if text.startswith(head) and _digest("{" + text[len(head) :]) == digest:
        return True
    return _digest(_written({key: value for key, value in data.items() if key != "sha256"})) == digest


def save(graph: Graph, path: str | Path) -> None:
    """Write the graph to a file, atomically."""
    if not isinstance(graph, Graph):
        raise BadInputError(f"graph is {type(graph).__name__}: give a graph, as calc.trace returns it")
    files.write(files.Output(_path(path), dumps(graph)), label="the graph")


def load(path: str | Path) -> Graph:
    """Read a graph written by ``save``: a regular file of at most 2 GiB."""
    return loads(_FILE.read_text(_path(path)), repr(str(path)))


def _path(path: object) -> str | Path:
    if not isinstance(path, str | Path):
        raise BadInputError(f"path is {type(path).__name__}: give the name of a file")
    return path


# -- writing ----------------------------------------------------------------------------------------------------------


class _Table:
    """Values by index, in order of first use."""

    def __init__(self) -> None:
        self.index: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        return self.index.setdefault(value, len(self.index))


def _graph_to_json(graph: Graph) -> dict[str, Any]:
    return {
        "kind": KIND,
        "schema": SCHEMA,
        "model": graph.model,
        "source": graph.source,
        "dims": [asdict(dim) for dim in graph.dims],
        "basis": dict(graph.basis),
        "symbols": list(graph.symbols),
        "folds": [[f.whole, f.part, f.quotient, f.plus] for f in graph.folds],
        "loops": list(graph.loops),
        "options": dict(graph.options),
        "assumptions": [[a.expr, a.because, a.kind] for a in graph.assumptions],
        "guards": [c.to_json() for c in graph.guards],
        "traces": [_record_to_json(r) for r in graph.traces],
        "certificates": [_record_to_json(r) for r in graph.certificates],
        "provenance": dict(graph.provenance),
        "notes": list(graph.notes),
        "trip_count_reads": dict(graph.trip_count_reads),
        "specialized": {name: list(entry) for name, entry in graph.specialized.items()},
        "mutates_tracked": graph.mutates_tracked,
        **({"unknown": dict(graph.unknown)} if graph.unknown else {}),
        **({"reads_tensor_values": True} if graph.reads_tensor_values else {}),
        "special_cases": [[dict(s.equal), _graph_to_json(s.graph)] for s in graph.special_cases],
    }


def _record_to_json(trace: StepTrace) -> dict[str, Any]:
    tensors, texts = _Table(), _Table()

    def value(v: Any) -> Any:
        if isinstance(v, Tensor):
            return {"t": tensors(v)}
        return [value(x) for x in v] if isinstance(v, tuple) else v

    ops = [
        [
            texts(op.name), texts(op.phase), op.step, texts(op.module_path), [[texts(n), value(v)] for n, v in op.args],
            [tensors(t) for t in op.outputs], [texts(m) for m in op.mutates], texts(op.node), op.call,
        ]
        for op in trace.ops
    ]  # fmt: skip
    tensors_by_role = {
        key: [[name, tensors(t)] for name, t in getattr(trace, key)] for key in ("parameters", "gradients", "buffers", "masters")
    }
    return {
        "sizes": dict(trace.sizes),
        "storages": [[s.nbytes, s.role, s.name] for s in trace.storages],
        "ops": ops,
        "events": [[e.change, e.storage, e.op] for e in trace.events],
        "saved": [[tensors(s.tensor), s.module_path, s.op] for s in trace.saved],
        "calls": [[c.function, c.causal, c.query, c.key] for c in trace.calls],
        **tensors_by_role,
        "state": [[n, k, tensors(t)] for n, k, t in trace.state],
        "persistent": list(trace.persistent),
        "windows": [list(w) for w in trace.windows],
        "tensors": [[t.storage, list(t.shape), t.dtype, t.distinct] for t in tensors.index],
        "texts": list(texts.index),
    }

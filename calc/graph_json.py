"""Graphs to JSON and back, without torch. Tensors and operator texts are stored once and referred to by index."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from calc.errors import BadInputError
from calc.folds import Fold
from calc.graph import Assumption, Call, Condition, DimRecord, Event, Graph, Op, Record, Saved, Special, Storage, Tensor

KIND = "napkin graph"
SCHEMA = 1


def dumps(graph: Graph) -> str:
    """The graph as one JSON text; equal graphs give equal texts. It begins with the digest of the rest."""
    body = _written(_graph_to_json(graph))
    return f"{_head(_digest(body))}{body[1:]}"


def loads(text: str, where: str = "the text") -> Graph:
    """The graph of ``dumps``; anything else is refused in one line."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{where} is not JSON ({str(error)[:60]}): give a graph saved by calc.save") from None
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise BadInputError(f"{where} is no saved graph: give a file written by calc.save")
    if data.get("schema") != SCHEMA:
        raise BadInputError(f"{where} is a graph of schema {data.get('schema')!r}, this version reads {SCHEMA}: trace the model again")
    try:
        graph, digest = _graph_from_json(data), data["sha256"]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise BadInputError(f"{where} is a damaged graph ({type(error).__name__}: {str(error)[:60]}): trace the model again") from None
    # What is of the right form may still not fit together, or be another number than was recorded: nothing is derived from that.
    if not _as_saved(text, data, digest):
        raise BadInputError(f"{where} is a graph that was changed after it was saved: trace the model again")
    return graph


def _written(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=True)


def _head(digest: str) -> str:
    return f'{{"sha256":"{digest}",'


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode("ascii", "backslashreplace")).hexdigest()


def _as_saved(text: str, data: dict[str, Any], digest: object) -> bool:
    """Whether the content is the one that was saved: the text as it is, or the same data set otherwise (indented, say)."""
    head = _head(str(digest))
    if text.startswith(head) and _digest("{" + text[len(head) :]) == digest:
        return True
    return _digest(_written({key: value for key, value in data.items() if key != "sha256"})) == digest


def save(graph: Graph, path: str | Path) -> None:
    """Write the graph to a file, whole or not at all."""
    target = Path(path)
    partial = target.with_name(target.name + ".partial")
    partial.write_text(dumps(graph), encoding="utf-8")
    partial.replace(target)


def load(path: str | Path) -> Graph:
    """Read a graph written by ``save``."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"cannot read the graph {str(path)!r}: {getattr(error, 'strerror', None) or 'not text'}") from None
    return loads(text, repr(str(path)))


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
        "dims": [asdict(d) for d in graph.dims],
        "basis": dict(graph.basis),
        "symbols": list(graph.symbols),
        "folds": [[f.whole, f.part, f.quotient, f.plus] for f in graph.folds],
        "loops": list(graph.loops),
        "options": dict(graph.options),
        "assumptions": [[a.expr, a.because] for a in graph.assumptions],
        "conditions": [c.to_json() for c in graph.conditions],
        "records": [_record_to_json(r) for r in graph.records],
        "certificates": [_record_to_json(r) for r in graph.certificates],
        "provenance": dict(graph.provenance),
        "notes": list(graph.notes),
        "pins": dict(graph.pins),
        "held": {name: list(kept) for name, kept in graph.held.items()},
        "rewrites": graph.rewrites,
        **({"unknown": dict(graph.unknown)} if graph.unknown else {}),
        **({"reads_numbers": True} if graph.reads_numbers else {}),
        "special": [[dict(s.equal), _graph_to_json(s.graph)] for s in graph.special],
    }


def _record_to_json(record: Record) -> dict[str, Any]:
    tensors, texts = _Table(), _Table()

    def value(v: Any) -> Any:
        if isinstance(v, Tensor):
            return {"t": tensors(v)}
        return [value(x) for x in v] if isinstance(v, tuple) else v

    ops = [
        [
            texts(op.name), texts(op.phase), op.step, texts(op.site), [[texts(n), value(v)] for n, v in op.args],
            [tensors(t) for t in op.outputs], [texts(m) for m in op.mutates], texts(op.node), op.call,
        ]
        for op in record.ops
    ]  # fmt: skip
    named = {key: [[name, tensors(t)] for name, t in getattr(record, key)] for key in ("parameters", "gradients", "buffers", "masters")}
    return {
        "sizes": dict(record.sizes),
        "storages": [[s.nbytes, s.role, s.name] for s in record.storages],
        "ops": ops,
        "events": [[e.change, e.storage, e.op] for e in record.events],
        "saved": [[tensors(s.tensor), s.site, s.op] for s in record.saved],
        "calls": [[c.function, c.causal, c.query, c.key] for c in record.calls],
        **named,
        "state": [[n, k, tensors(t)] for n, k, t in record.state],
        "persistent": list(record.persistent),
        "windows": [list(w) for w in record.windows],
        "tensors": [[t.storage, list(t.shape), t.dtype, t.distinct] for t in tensors.index],
        "texts": list(texts.index),
    }


# -- reading ----------------------------------------------------------------------------------------------------------


def _graph_from_json(data: dict[str, Any]) -> Graph:
    return Graph(
        model=data["model"],
        source=data["source"],
        dims=tuple(DimRecord(**d) for d in data["dims"]),
        basis=data["basis"],
        symbols=tuple(data["symbols"]),
        folds=tuple(Fold(*f) for f in data["folds"]),
        loops=tuple(data["loops"]),
        options=data["options"],
        assumptions=tuple(Assumption(*a) for a in data["assumptions"]),
        conditions=tuple(Condition(*c) for c in data["conditions"]),
        records=tuple(_record_from_json(r) for r in data["records"]),
        certificates=tuple(_record_from_json(r) for r in data["certificates"]),
        provenance=data["provenance"],
        notes=tuple(data["notes"]),
        pins=data["pins"],
        held={name: (value, why) for name, (value, why) in data["held"].items()},
        rewrites=data.get("rewrites", True),
        unknown=data.get("unknown", {}),
        reads_numbers=data.get("reads_numbers", False),
        special=tuple(Special(equal, _graph_from_json(inner)) for equal, inner in data["special"]),
    )


def _record_from_json(data: dict[str, Any]) -> Record:
    tensors = [Tensor(s, tuple(shape), dtype, distinct) for s, shape, dtype, distinct in data["tensors"]]
    texts: Sequence[str] = data["texts"]

    def value(v: Any) -> Any:
        if isinstance(v, dict):
            return tensors[v["t"]]
        return tuple(value(x) for x in v) if isinstance(v, list) else v

    def named(key: str) -> tuple[tuple[str, Tensor], ...]:
        return tuple((name, tensors[t]) for name, t in data[key])

    return Record(
        sizes=data["sizes"],
        storages=tuple(Storage(i, *s) for i, s in enumerate(data["storages"])),
        ops=tuple(
            Op(
                i, texts[name], texts[phase], step, texts[site], tuple((texts[n], value(v)) for n, v in args),
                tuple(tensors[t] for t in outputs), tuple(texts[m] for m in mutates), texts[node], call,
            )
            for i, (name, phase, step, site, args, outputs, mutates, node, call) in enumerate(data["ops"])
        ),
        events=tuple(Event(*e) for e in data["events"]),
        saved=tuple(Saved(tensors[t], site, op) for t, site, op in data["saved"]),
        calls=tuple(Call(*c) for c in data["calls"]),
        parameters=named("parameters"),
        gradients=named("gradients"),
        buffers=named("buffers"),
        state=tuple((n, k, tensors[t]) for n, k, t in data["state"]),
        persistent=tuple(data["persistent"]),
        windows=tuple((a, b) for a, b in data["windows"]),
        masters=named("masters"),
    )  # fmt: skip

"""Chains of operations and the forward of a model as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calc.derive.to_json import number
from calc.mathematics.strides.expression import StrideStep
from calc.mathematics.strides.operations import StridedTensor
from calc.mathematics.strides.walk import ModelStrides
from calc.pipeline.verdict import Verdict


def chains(
    x: StridedTensor, results: Sequence[tuple[str, Sequence[StrideStep]]], verdicts: Sequence[Sequence[Verdict[str]]] | None
) -> dict[str, Any]:
    """The ``"schema": 1`` document of chains on a tensor."""
    documents: list[dict[str, Any]] = [{"expression": text, "steps": [_step(s) for s in steps]} for text, steps in results]
    for at, chain in enumerate(documents):
        chain["checks"] = None if verdicts is None else [_verdict(v) for v in verdicts[at]]
    return {"schema": 1, "tensor": _tensor(x), "chains": documents}


def _tensor(x: StridedTensor) -> dict[str, Any]:
    layout = x.layout
    return {
        "shape": [number(n) for n in layout.shape],
        "strides": [number(n) for n in layout.strides],
        "offset": number(layout.offset),
        "format": x.dtype,
        "memory_bytes": number(x.nbytes),
        "contiguous": layout.contiguous,
    }


def _step(step: StrideStep) -> dict[str, Any]:
    if step.result is None:
        return {"operation": step.call.text, "result": None, "allocated": None, "because": step.refused}
    result = step.result
    return {"operation": step.call.text, "result": _tensor(result.tensor), "allocated": number(result.allocated), "because": result.because}


def _verdict(v: Verdict[str]) -> dict[str, str | None]:
    return {"what": v.quantity, "verdict": v.verdict, "derived": v.derived, "measured": v.measured}


def forward(storage: ModelStrides, verdict: Verdict[str] | None) -> dict[str, Any]:
    """The ``"schema": 2`` document of a model's forward."""
    return {
        "schema": 2,
        "model": {"name": storage.model},
        "dims": {name: {"value": number(value)} for name, value in storage.sizes.items()},
        "allocated": number(sum(row.allocated for row in storage.rows)),
        "operators": [
            {
                "operator": k.operator,
                "views": k.views,
                "in_place": k.in_place,
                "allocations": k.allocations,
                "allocated": number(k.allocated),
            }
            for k in storage.kinds
        ],
        "results": [
            {
                "operator": row.operator,
                "module_path": row.module_path,
                "count": count,
                "kind": row.kind,
                "format": row.dtype,
                "shape": list(row.shape),
                "strides": list(row.strides),
                "offset": row.offset,
                "allocated": number(row.allocated),
            }
            for row, count in storage.grouped
        ],
        "check": None if verdict is None else _verdict(verdict),
    }

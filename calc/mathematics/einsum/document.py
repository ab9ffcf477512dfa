"""An operation over named dimensions as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calc.derive.to_json import number
from calc.mathematics.einsum.counts import Count
from calc.mathematics.einsum.operation import CONVENTION, Operation
from calc.mathematics.einsum.order import alternatives
from calc.mathematics.einsum.pattern import ELLIPSIS
from calc.pipeline.verdict import Verdict


def document(op: Operation, dtype: str, verdicts: Sequence[Verdict[str]] | None) -> dict[str, Any]:
    """The ``"schema": 1`` document. A value that depends on a size that was not given is null, with its expression."""
    sizes = op.sizes
    return {
        "schema": 1,
        "pattern": op.pattern.text,
        "equation": op.equation,
        "reduction": op.reduction or None,
        "dims": {_name(name): {"value": number(sizes.get(name))} for name in op.pattern.names},
        "operands": [[number(x) if isinstance(x, int) else x for x in axes.shape(sizes)] for axes in op.pattern.operands],
        "result": {"shape": [number(x) if isinstance(x, int) else x for x in op.pattern.result.shape(sizes)]},
        "format": dtype,
        "flops": {
            "total": _count(op.flops, sizes),
            "matmul": _count(op.matmul, sizes),
            "left_to_right": _count(op.plain, sizes),
            "backward_matmul": _count(op.backward_matmul, sizes),
        },
        "bytes": _count(op.bytes, sizes),
        "convention": CONVENTION,
        "intensity": {"value": str(op.intensity) if op.intensity is not None else None, "unit": "FLOP/byte", "because": _why(op)},
        "order": {
            "how": op.how,
            "all": [{"order": order, "flops": _count(count, sizes)} for order, count in alternatives(op.pattern)],
            "steps": [
                {
                    "kind": s.kind,
                    "pattern": s.pattern.replace(ELLIPSIS, "..."),
                    "inputs": [name for name, _ in s.inputs],
                    "out": s.out[0],
                    "flops": _count(s.flops, sizes),
                    "bytes": _count(s.elements.times(op.item_size), sizes),
                    "because": s.because,
                }
                for s in op.steps
            ],
        },
        "gradients": [
            {"operand": g.operand, "equation": g.equation, "flops": _count(g.flops, sizes), "because": g.because} for g in op.gradients
        ],
        "checks": None if verdicts is None else [_verdict(v) for v in verdicts],
    }


def _name(name: str) -> str:
    return "..." if name == ELLIPSIS else name


def _count(count: Count, sizes: Mapping[str, int]) -> dict[str, Any]:
    return {"expr": count.text, "value": number(count.at(sizes))}


def _why(op: Operation) -> str:
    if op.missing:
        return f"no size given for {', '.join(_name(name) for name in op.missing)}"
    return "" if op.intensity is not None else "no bytes are moved: the result is a view"


def _verdict(v: Verdict[str]) -> dict[str, str | None]:
    return {"what": v.quantity, "derived": v.derived, "measured": v.measured, "verdict": v.verdict, "because": v.because}

"""An operation over named dimensions on a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calc.derive.to_json import number
from calc.mathematics.einsum.operation import CONVENTION, Operation
from calc.mathematics.einsum.order import alternatives
from calc.mathematics.einsum.pattern import ELLIPSIS, Axes
from calc.mathematics.einsum.steps import Count
from calc.pipeline.verdict import Verdict
from calc.symbolic.readable import readable
from calc.units import Unit
from reports.typeset.numbers import amount
from reports.views.formats import reading
from reports.writers.terminal import Line, Styled, Terminal, bold, dim


def show(op: Operation, dtype: str, verdicts: Sequence[Verdict[str]] | None, out: Terminal) -> None:
    """The equation, shapes, counts, the order of several operands, gradients, and the run where one was asked for."""
    out.line(bold(_dots(op.equation)))
    shapes = ", ".join(f"{name} {_shape(axes, op)}" for name, axes in zip("ABCDEFGHIJKL", op.pattern.operands, strict=False))
    out.line(f"{shapes} → Y {_shape(op.pattern.result, op)}, in {dtype}")
    out.line()
    counts = [("FLOP", *_counted(op.flops, op, Unit.FLOP)), ("bytes moved", *_counted(op.bytes, op, Unit.BYTE))]
    if op.backward_matmul.terms:
        counts.append(("FLOP of the backward's matmuls", *_counted(op.backward_matmul, op, Unit.FLOP)))
    if op.intensity is not None:
        counts.append(("intensity", "", bold(f"{reading(op.intensity)} FLOP/byte")))
    elif op.missing:
        counts.append(("intensity", "", dim(f"needs the size of {_dots(', '.join(op.missing))}")))
    out.table((), counts)
    out.line(CONVENTION, style="dim")
    out.line()
    _show_steps(op, out)
    out.line()
    out.table((), [(bold(_dots(g.equation)), f"{_dots(readable(g.flops.text))} FLOP", dim(_dots(g.because))) for g in op.gradients])
    for v in verdicts or ():
        style = "bold red" if v.failed else "green" if v.passed else "yellow"
        because = f" [{v.because}]" if v.because else ""
        out.line(Styled(v.verdict, style), f": {v.quantity}: derived {v.derived}, measured {v.measured}{because}")


def _show_steps(op: Operation, out: Terminal) -> None:
    if len(op.steps) > 1:
        least, plain = op.flops.at(op.sizes), op.plain.at(op.sizes)
        beside = f"; from left to right {plain:,} FLOP" if plain is not None and plain != least else ""
        out.line(f"order: {op.how}{beside}", style="dim")
    for order, count in alternatives(op.pattern) if op.missing else ():
        out.line(f"  {order}: {_dots(readable(count.text))} FLOP", style="dim")
    rows = []
    for s in op.steps:
        inputs = " ".join(f"{name}[{', '.join(names)}]" for name, names in s.inputs)
        result = f"{s.out[0]}[{', '.join(s.out[1])}] from {inputs}"
        rows.append((_dots(result), f"{_dots(readable(s.flops.text))} FLOP", dim(_dots(s.because))))
    out.table((), rows)


def _counted(count: Count, op: Operation, unit: Unit) -> tuple[Line, Line]:
    value = count.at(op.sizes)
    return _dots(readable(count.text)), bold("" if value is None else f"= {amount(value, unit).text}")


def _shape(axes: Axes, op: Operation) -> str:
    return f"({_dots(', '.join(map(str, axes.shape(op.sizes))))})"


def _dots(text: str) -> str:
    return text.replace(ELLIPSIS, "…")


# -- plain data -------------------------------------------------------------------------------------------------------


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

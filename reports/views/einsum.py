"""An operation over named dimensions on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from calc.mathematics.einsum.counts import Count
from calc.mathematics.einsum.operation import CONVENTION, Operation
from calc.mathematics.einsum.order import alternatives
from calc.mathematics.einsum.pattern import ELLIPSIS, Axes
from calc.pipeline.verdict import Verdict
from calc.units import Unit
from reports.typeset.numbers import amount
from reports.views.asked import pretty
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
        counts.append(("FLOP of the backward's products", *_counted(op.backward_matmul, op, Unit.FLOP)))
    if op.intensity is not None:
        counts.append(("intensity", "", bold(f"{reading(op.intensity)} FLOP/byte")))
    elif op.missing:
        counts.append(("intensity", "", dim(f"needs the size of {_dots(', '.join(op.missing))}")))
    out.table((), counts)
    out.line(CONVENTION, style="dim")
    out.line()
    _show_steps(op, out)
    out.line()
    out.table((), [(bold(_dots(g.equation)), f"{_dots(pretty(g.flops.text))} FLOP", dim(_dots(g.because))) for g in op.gradients])
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
        out.line(f"  {order}: {_dots(pretty(count.text))} FLOP", style="dim")
    rows = []
    for s in op.steps:
        inputs = " ".join(f"{name}[{', '.join(names)}]" for name, names in s.inputs)
        result = f"{s.out[0]}[{', '.join(s.out[1])}] from {inputs}"
        rows.append((_dots(result), f"{_dots(pretty(s.flops.text))} FLOP", dim(_dots(s.because))))
    out.table((), rows)


def _counted(count: Count, op: Operation, unit: Unit) -> tuple[Line, Line]:
    value = count.at(op.sizes)
    return _dots(pretty(count.text)), bold("" if value is None else f"= {amount(value, unit).text}")


def _shape(axes: Axes, op: Operation) -> str:
    return f"({_dots(', '.join(map(str, axes.shape(op.sizes))))})"


def _dots(text: str) -> str:
    return text.replace(ELLIPSIS, "…")

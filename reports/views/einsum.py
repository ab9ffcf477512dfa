"""An operation over named dimensions on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from calc.mathematics.einsum.check import EinsumVerdict
from calc.mathematics.einsum.counts import Count
from calc.mathematics.einsum.operation import CONVENTION, Operation
from calc.mathematics.einsum.order import alternatives
from calc.mathematics.einsum.pattern import ELLIPSIS, Axes
from calc.pipeline.check import FAILED
from calc.units import Unit
from reports.typeset.escape import visible
from reports.typeset.numbers import amount
from reports.views.formats import reading


def show(op: Operation, dtype: str, verdicts: Sequence[EinsumVerdict] | None, out: Console) -> None:
    """The equation, shapes, counts, the order of several operands, gradients, and the run where one was asked for."""
    out.print(Text(_dots(op.equation), style="bold"))
    shapes = ", ".join(f"{name} {_shape(axes, op)}" for name, axes in zip("ABCDEFGHIJKL", op.pattern.operands, strict=False))
    out.print(Text(visible(f"{shapes} → Y {_shape(op.pattern.result, op)}, in {dtype}")))
    out.print()
    counts = Table.grid(padding=(0, 3))
    counts.add_row(Text("FLOP"), *_counted(op.flops, op, Unit.FLOP))
    counts.add_row(Text("bytes moved"), *_counted(op.bytes, op, Unit.BYTE))
    if op.backward_matmul.terms:
        counts.add_row(Text("FLOP of the backward's products"), *_counted(op.backward_matmul, op, Unit.FLOP))
    if op.intensity is not None:
        counts.add_row(Text("intensity"), Text(""), Text(f"{reading(op.intensity)} FLOP/byte", style="bold"))
    elif op.missing:
        counts.add_row(Text("intensity"), Text(""), Text(f"needs the size of {_dots(', '.join(op.missing))}", style="dim"))
    out.print(counts)
    out.print(Text(CONVENTION, style="dim"))
    out.print()
    _show_steps(op, out)
    out.print()
    table = Table.grid(padding=(0, 3))
    for g in op.gradients:
        table.add_row(Text(_dots(g.equation), style="bold"), Text(f"{_dots(g.flops.text)} FLOP"), Text(_dots(g.because), style="dim"))
    out.print(table)
    for v in verdicts or ():
        style = "bold red" if v.verdict == FAILED else "green" if v.verdict != "not measured" else "yellow"
        because = f" [{v.because}]" if v.because else ""
        out.print(Text.assemble((v.verdict, style), visible(f": {v.what}: derived {v.derived}, measured {v.measured}{because}")))


def _show_steps(op: Operation, out: Console) -> None:
    if len(op.steps) > 1:
        least, plain = op.flops.at(op.sizes), op.plain.at(op.sizes)
        beside = f"; from left to right {plain:,} FLOP" if plain is not None and plain != least else ""
        out.print(Text(f"order: {op.how}{beside}", style="dim"))
    for order, count in alternatives(op.pattern) if op.missing else ():
        out.print(Text(f"  {order}: {_dots(count.text)} FLOP", style="dim"))
    table = Table.grid(padding=(0, 3))
    for s in op.steps:
        inputs = " ".join(f"{name}[{', '.join(names)}]" for name, names in s.inputs)
        table.add_row(
            Text(_dots(f"{s.out[0]}[{', '.join(s.out[1])}] from {inputs}")),
            Text(f"{_dots(s.flops.text)} FLOP"),
            Text(_dots(s.because), style="dim"),
        )
    out.print(table)


def _counted(count: Count, op: Operation, unit: Unit) -> tuple[Text, Text]:
    value = count.at(op.sizes)
    return Text(_dots(count.text)), Text("" if value is None else f"= {amount(value, unit).text}", style="bold")


def _shape(axes: Axes, op: Operation) -> str:
    return f"({_dots(', '.join(map(str, axes.shape(op.sizes))))})"


def _dots(text: str) -> str:
    return visible(text.replace(ELLIPSIS, "…"))

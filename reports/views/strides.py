"""Views and copies on a terminal: of a tensor, and of a model's forward."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from calc.mathematics.strides.check import StridesVerdict
from calc.mathematics.strides.expression import StrideStep
from calc.mathematics.strides.operations import StridedTensor
from calc.mathematics.strides.walk import ModelStrides, pattern
from calc.pipeline.check import FAILED
from calc.units import Unit
from reports.typeset.escape import visible
from reports.typeset.numbers import amount, integer


def show_chains(
    x: StridedTensor, done: Sequence[tuple[str, Sequence[StrideStep]]], verdicts: Sequence[Sequence[StridesVerdict]] | None, out: Console
) -> None:
    """The tensor, then what each operation of each chain makes."""
    out.print(Text.assemble(("x", "bold"), f": {_layout(x)}, {x.dtype}, {amount(x.nbytes, Unit.BYTE).text}"))
    out.print()
    table = _table("Operation", ("Allocates", "right"), "Gives", "Because")
    for text, steps in done:
        written = "x"
        for step in steps:
            written = f"{written}.{step.call.text}" if step.call.text[0].isalpha() else f"{written}{_joined(step.call.text)}"
            if step.made is None:
                table.add_row(Text(visible(written)), Text("refused", style="yellow"), Text("–"), Text(visible(step.refused), style="dim"))
                continue
            allocated = integer(step.made.allocated) if step.made.allocated else "nothing"
            cells = (Text(allocated), Text(_layout(step.made.tensor)), Text(step.made.because, style="dim"))
            if step is steps[-1] or len(done) == 1:
                table.add_row(Text(visible(written)), *cells)
        if not steps:
            table.add_row(Text(visible(text)), Text("nothing"), Text(_layout(x)), Text("the tensor itself", style="dim"))
    out.print(table)
    for verdict in (v for chain in verdicts or () for v in chain):
        _show_verdict(verdict, out)


def _joined(text: str) -> str:
    return text if text.startswith("[") else f" {text}"


def _show_verdict(v: StridesVerdict, out: Console) -> None:
    style = "bold red" if v.verdict == FAILED else "green"
    said = v.derived if v.derived == v.measured else f"derived {v.derived}; measured {v.measured}"
    out.print(Text.assemble((v.verdict, style), visible(f": {v.call}: {said}")))


def _layout(x: StridedTensor) -> str:
    layout = x.layout
    offset = f", offset {layout.offset}" if layout.offset else ""
    return f"shape {layout.shape}, strides {layout.strides}{offset}"


def show_place(x: StridedTensor, index: tuple[int, ...], out: Console) -> None:
    """Where an element lies."""
    layout = x.layout
    addends = [*([str(layout.offset)] if layout.offset else []), *(f"{i}·{s}" for i, s in zip(index, layout.strides, strict=True))]
    at = layout.place(index)
    out.print(Text.assemble(f"\nelement {index} lies at {' + '.join(addends)} = ", (str(at), "bold"), " elements from the memory's begin"))


def show_forward(found: ModelStrides, verdict: StridesVerdict | None, out: Console) -> None:
    """By operator, then every result with its strides."""
    sizes = ", ".join(f"{name} = {value:,}" for name, value in found.sizes.items())
    out.print(Text.assemble((visible(found.model), "bold"), f", the forward: {visible(sizes)}"))
    out.print()
    kinds = _table("Operator", ("Views", "right"), ("In place", "right"), ("Allocate", "right"), ("Bytes", "right"))
    for k in found.kinds:
        kinds.add_row(Text(visible(k.operator)), *(Text(integer(n)) for n in (k.views, k.in_place, k.allocations, k.allocated)))
    out.print(kinds)
    out.print()
    rows = _table("Result", "At", ("Times", "right"), "", "Shape", "Strides", "Offset", ("Bytes each", "right"))
    for row, count in found.grouped:
        shape, strides = (f"({', '.join(part)})" for part in (row.shape, row.strides))
        cells = (Text(visible(pattern(row.site))), Text(integer(count)), Text(row.kind), Text(shape), Text(strides), Text(row.offset))
        rows.add_row(Text(visible(row.operator)), *cells, Text(integer(row.allocated) if row.allocated else "–"))
    out.print(rows)
    total = sum(row.allocated for row in found.rows)
    out.print(Text(f"\nallocated in all {amount(total, Unit.BYTE).text}; what is released before the end is in it"))
    if verdict is not None:
        _show_verdict(verdict, out)


_WHOLE = ("Operation", "Operator", "Result", "At", "Allocates", "Bytes each")


def _table(*columns: str | tuple[str, str]) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    for column in columns:
        name, justify = column if isinstance(column, tuple) else (column, "left")
        table.add_column(name, justify="right" if justify == "right" else "left", overflow="fold", no_wrap=name in _WHOLE)
    return table

"""Published tables on a terminal: each cell beside the exact count, and the terms that separate them."""

from __future__ import annotations

from fractions import Fraction

from calc.derive.published import ratios
from calc.derive.published.compare import ComparedCell, ComparedTable
from calc.symbolic import tree
from reports.page.parts import formula
from reports.typeset.numbers import fraction, integer, percent, signed, significant
from reports.typeset.wording import sizes_text, unbroken
from reports.writers.terminal import Terminal, bold, right


def show(compared: ComparedTable, out: Terminal) -> None:
    """A table for each column, then the reasons of its differences."""
    table = compared.table
    out.line(bold(table.title))
    out.line(table.source, style="dim")
    out.line(f"beside {compared.model} at {sizes_text(compared.sizes)}; {unbroken(table.letters)}", style="dim")
    for i, column in enumerate(table.columns):
        cells = [(row.operation, row.because, row.cells[i]) for row in compared.rows]
        out.line()
        heads = (column, "As printed", *right("Value", "Exact", "Printed − exact"))
        out.table(heads, [(operation, *_cells(cell)) for operation, _, cell in cells if cell is not None])
        for operation, because, cell in cells:
            if cell is not None and cell.difference:
                _show_reasons(operation, because, cell, out)


def _cells(cell: ComparedCell) -> tuple[str, ...]:
    exact = "unknown" if cell.exact is None else fraction(cell.exact)
    difference = "–" if cell.difference is None else _signed(cell.difference)
    return _written(cell.expr), f"{fraction(cell.printed)} {cell.unit}", exact, difference


def _show_reasons(operation: str, because: str, cell: ComparedCell, out: Terminal) -> None:
    share = percent((cell.printed - cell.exact) / cell.exact, signed=True) if cell.exact and cell.printed else ""
    relative = f", {share} of the exact count" if share else ""
    out.line(f"{operation}: {_signed(cell.difference or Fraction(0))}{relative}{f'; {because}' if because else ''}", hang=4)
    for term in cell.differences or ():
        out.line(f"    {_written(term.expr)}: {term.because}", style="dim", hang=8)
    if cell.differences is None:
        out.line("    not split: a term is not a polynomial in the sizes", style="dim")


def _written(expr: str) -> str:
    return " ".join(formula(tree.parse(expr)).plain)


def _signed(value: Fraction) -> str:
    return signed(int(value)) if value.denominator == 1 else f"{'+' if value > 0 else ''}{significant(value)}"


def show_ratios(out: Terminal) -> None:
    """Table A4: the printed ratios, those of appendix F as written, and the terms between the two."""
    out.line(bold("FLOPs of appendix F over 6·N·D"))
    out.line(ratios.SOURCE, style="dim")
    out.line()
    rows = [
        (row.model, integer(row.parameters), row.printed, *map(_ratio, (row.of_layers, row.as_written, row.executed)),
         *(_ratio(value) for value in row.terms.values()))
        for row in ratios.ROWS
    ]  # fmt: skip
    heads = ("Model", *right("N", "Printed", "Layers only", "Appendix F", "Matmuls run", *ratios.ROWS[0].terms))
    out.table(heads, rows)
    out.line()
    out.line(
        "Each printed ratio is that of the layers alone: it leaves out the terms embeddings and final logits of appendix F, V·d/N each,"
        " while N has the embedding. The matmuls that run are the layers without the softmax, and the final logits; a lookup is none."
    )
    out.line()
    _show_differences(out)


def _show_differences(out: Terminal) -> None:
    """The terms of each printed ratio less that of the matmuls that run, and parameters that are not rounded."""
    terms = ratios.ROWS[0].differences
    heads = ("Model", *right("Printed − matmuls run", *(f"{term.name}, {term.kind}" for term in terms)))
    rows = [
        (row.model, _ratio_difference(Fraction(row.printed) - row.executed), *(_ratio_difference(t.value) for t in row.differences))
        for row in ratios.ROWS
    ]
    out.table(heads, rows)
    for term in terms[:2]:
        out.line(f"{term.name}: {term.because}", style="dim", hang=4)
    for row in ratios.ROWS:
        if (term := row.parameters_printed).kind != "rounded":
            out.line(f"{row.model} is {term.kind}: {term.because}", style="dim", hang=4)


def _ratio_difference(value: Fraction) -> str:
    return f"{float(value):+.4f}".replace("-", "−")


def _ratio(value: Fraction) -> str:
    return f"{float(value):.3f}"

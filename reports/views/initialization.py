"""Moments at initialisation on a terminal: the laws of the parameters, then the modules in the order of the forward."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from calc.mathematics.initialization import Initial, ModuleVariance, ParameterVariance
from calc.mathematics.initialization.comparison import FAILED, WITHIN, SampleComparison, percent
from calc.mathematics.initialization.state import OFF
from reports.typeset.escape import visible


def show(found: Initial, lines: Sequence[SampleComparison], out: Console) -> None:
    """``lines`` are empty where nothing was sampled."""
    sizes = ", ".join(f"{name} = {size}" for name, size in found.sizes.items())
    out.print(Text(f"{visible(found.model)} as it is drawn, at {sizes}"))
    out.print(_laws(found.drawn))
    out.print(_parts(found.parts, {line.part.site: line for line in lines}))
    rests = dict.fromkeys(rest for part in found.parts for rest in part.rests)
    for number, rest in enumerate(rests, 1):
        out.print(Text(f"{number}. {rest}; {percent(OFF[rest])} beyond a sample's interval are allowed for it"))
    if not lines:
        out.print(Text("Not sampled: napkin initialisation MODEL --draws 100 builds and runs real modules beside it."))


def _laws(drawn: Sequence[ParameterVariance]) -> Table:
    table = Table(title="How the parameters are drawn", title_justify="left")
    for name in ("parameter", "law", "E[w²]"):
        table.add_column(Text(name))
    for each in drawn:
        law = each.law.text if each.law is not None else f"none: made by {each.made_by}"
        table.add_row(*(Text(visible(cell)) for cell in (each.name, law, each.second)))
    return table


def _parts(parts: Sequence[ModuleVariance], lines: dict[str, SampleComparison]) -> Table:
    table = Table(title=Text("E2[site] = E[x²] of what each module gives"), title_justify="left")
    for name in ("site", "E[x²]", "equation", "closed form", *(("sampled", "verdict") if lines else ())):
        table.add_column(Text(name), overflow="fold")
    numbers = {rest: i for i, rest in enumerate(dict.fromkeys(rest for part in parts for rest in part.rests), 1)}
    for part in parts:
        value = "–" if part.second is None else f"{part.second:.6g}"
        rests = ", ".join(str(numbers[rest]) for rest in part.rests)
        equation = (part.equation or part.unknown) + (f" ({rests})" if rests else "")
        row = [part.site, value, equation, part.closed or ""]
        line = lines.get(part.site)
        if line is not None:
            sampled = "–" if line.sampled is None else f"{line.sampled:.6g} ({line.low:.6g} … {line.high:.6g})"
            row += [sampled, f"{line.verdict}, {percent(line.allowed)} allowed" if line.verdict in (WITHIN, FAILED) else line.verdict]
        table.add_row(*(Text(visible(cell)) for cell in row))
    return table

"""Bytes per parameter of each recipe on a terminal: derived, with the reason of each part, then what is only stated."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from rich.console import Console
from rich.table import Table
from rich.text import Text

from calc.errors import BadInputError
from calc.memory.per_parameter import TERMS, PerParameter
from calc.memory.recipes import Recipes, gathered, precisions
from reports.jobs import job
from reports.typeset.escape import visible
from reports.typeset.numbers import integer, significant

Progress = Callable[[str], None]
_HEADS = {"parameters.bytes": "Weights", "master_weights.bytes": "Copies", "gradients.bytes": "Gradients", "optimizer_state.bytes": "State"}


def compare(request: job.Request, asked: str | None, devices: int | None, progress: Progress) -> Recipes:
    """Every recipe for the step of ``request``, or the one that is asked for; a model may refuse some of them."""
    if not request.options.trains:
        raise BadInputError(f"mode {request.options.mode} keeps no gradients and no optimizer state: use mode train")
    return gathered(*job.derive_each(request, "precision", precisions(asked), progress), devices)


def show(found: Recipes, out: Console) -> None:
    """A row for each recipe, then its reasons; then what is stated, with its source."""
    sizes = ", ".join(f"{name} = {value:,}" for name, value in found.sizes.items())
    out.print(Text.assemble((visible(found.model), "bold"), f", {found.optimizer}: {visible(sizes)}"))
    out.print()
    out.print(_table(found))
    for recipe in found.recipes:
        out.print()
        out.print(Text(f"{recipe.precision}: {integer(recipe.bytes)} bytes for {integer(recipe.parameters)} parameters", style="bold"))
        for term in recipe.terms:
            out.print(Text(visible(f"  {TERMS[term.quantity]}: {term.because}"), style="dim"))
    for name, why in found.refused.items():
        out.print(Text(visible(f"{name} is refused: {why}"), style="dim"))
    out.print()
    _show_stated(found, out)


def _table(found: Recipes) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
    table.add_column("Bytes per parameter")
    stages = () if found.devices is None else tuple(f"Stage {stage} on {found.devices}" for stage in (1, 2, 3))
    for heading in (*_HEADS.values(), "Together", "Bytes left over", *stages):
        table.add_column(heading, justify="right")
    for recipe in found.recipes:
        shares = (_short(share) for share in found.sharded(recipe))
        table.add_row(recipe.precision, *_parts(recipe), integer(recipe.whole), integer(recipe.rest), *shares)
    return table


def _parts(recipe: PerParameter) -> list[str]:
    whole = {term.quantity: term.whole for term in recipe.terms}
    return [integer(whole[name]) if name in whole else "–" for name in _HEADS]


def _short(share: Fraction) -> str:
    return integer(int(share)) if share.denominator == 1 else significant(share)


def _show_stated(found: Recipes, out: Console) -> None:
    out.print(Text("Stated, not run:", style="bold"))
    for recipe in found.stated:
        parts = " + ".join(f"{part.per_parameter} {part.what}" for part in recipe.parts)
        out.print(Text(visible(f"  {recipe.name}: {recipe.total} = {parts}; {recipe.error} [{recipe.source}]"), style="dim"))
    if found.devices is not None:
        said = "Stages of ZeRO: no step on several devices is recorded; what is gathered for a moment is not in them"
        out.print(Text(f"  {said} [Rajbhandari et al. 2020, arXiv 1910.02054, section 5]", style="dim"))

"""Bytes per parameter of each recipe on a terminal: derived, with the reason of each part, then what is only stated."""

from __future__ import annotations

from calc.errors import BadInputError
from calc.memory.fp8 import RUN_AT, SCALINGS, fp8_checks, fp8_layer, fp8_offered
from calc.memory.per_parameter import TERMS, PerParameter, Recipes, gathered, precisions
from calc.pipeline.verdict import Verdict
from calc.platform.progress import Progress
from reports.jobs import job
from reports.typeset.numbers import fraction, integer
from reports.typeset.plain import plain_text
from reports.typeset.wording import sizes_text
from reports.writers.terminal import Head, Terminal, bold, dim, right

_HEADS = {"parameters.bytes": "Weights", "master_weights.bytes": "Copies", "gradients.bytes": "Gradients", "optimizer_state.bytes": "State"}


def compare(request: job.Request, precision: str | None, devices: int | None, progress: Progress) -> Recipes:
    """Every recipe for the step of ``request``, or the one named ``precision``; a model may refuse some of them."""
    if not request.options.trains:
        raise BadInputError(f"mode {request.options.mode} keeps no gradients and no optimizer state: use mode train")
    return gathered(*job.derive_each(request, "precision", precisions(precision), progress), devices)


def show(recipes: Recipes, out: Terminal) -> None:
    """A row for each recipe, then its reasons; then what is stated, with its source."""
    sizes = sizes_text(recipes.sizes)
    out.line(bold(recipes.model), f", {recipes.optimizer}: {sizes}")
    out.line()
    out.table(_heads(recipes.devices), [_row(recipe, recipes) for recipe in recipes.recipes])
    for recipe in recipes.recipes:
        out.line()
        out.line(bold(f"{recipe.precision}: {integer(recipe.bytes)} bytes for {integer(recipe.parameters)} parameters"))
        out.lines(*(f"  {TERMS[term.quantity]}: {term.because}" for term in recipe.terms), style="dim")
    out.lines(*(f"{name} is refused: {why}" for name, why in recipes.refused.items()), style="dim")
    out.line()
    _show_stated(recipes, out)
    out.line()
    _show_fp8(out)


def _show_fp8(out: Terminal) -> None:
    """The fp8 forward of a linear layer beside a real run, and what of fp8 torch runs here."""
    out.line(bold("Run here: a linear layer (B, D) by (K, D) that multiplies in fp8 in the forward alone"))
    at = sizes_text(RUN_AT)
    for scaling, meaning in SCALINGS.items():
        checks = {check.quantity: check for check in fp8_checks(scaling)}
        rows = [
            (q.name, plain_text(q.expr), integer(q.at(RUN_AT)), _measured(checks.get(q.name)), dim(q.because)) for q in fp8_layer(scaling)
        ]
        out.table((meaning, "Closed form", *right(f"At {at}", "Measured"), "Because"), rows)
    uses = fp8_offered()
    out.line(f"torch on the CPU runs: {', '.join(use for use, error in uses.items() if not error)}", style="dim")
    out.lines(*(f"it does not run: {use} ({error})" for use, error in uses.items() if error), style="dim")


def _measured(check: Verdict[int | float] | None) -> str:
    return "–" if check is None or check.measured is None else f"{integer(int(check.measured))}, {check.verdict}"


def _heads(devices: int | None) -> tuple[Head, ...]:
    stages = () if devices is None else tuple(f"Stage {stage} on {devices}" for stage in (1, 2, 3))
    numbers = (*_HEADS.values(), "Together", "Bytes left over", *stages)
    return "Bytes per parameter", *right(*numbers)


def _row(recipe: PerParameter, recipes: Recipes) -> tuple[str, ...]:
    shares = (fraction(share) for share in recipes.sharded(recipe))
    return recipe.precision, *_parts(recipe), integer(recipe.per_parameter), integer(recipe.remainder), *shares


def _parts(recipe: PerParameter) -> list[str]:
    per_parameter = {term.quantity: term.per_parameter for term in recipe.terms}
    return [integer(per_parameter[name]) if name in per_parameter else "–" for name in _HEADS]


def _show_stated(recipes: Recipes, out: Terminal) -> None:
    out.line(bold("Stated, not run:"))
    for recipe in recipes.stated:
        parts = " + ".join(f"{part.per_parameter} {part.label}" for part in recipe.parts)
        out.line(f"  {recipe.name}: {recipe.total} = {parts}; {recipe.error} [{recipe.source}]", style="dim")
    if recipes.devices is not None:
        note = "Stages of ZeRO: no step on several devices is traced; temporarily gathered parameters are not included"
        out.line(f"  {note} [Rajbhandari et al. 2020, arXiv 1910.02054, section 5]", style="dim")

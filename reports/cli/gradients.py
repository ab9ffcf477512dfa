"""``napkin gradients``: the equations of a model's gradients, beside autograd."""

from __future__ import annotations

from collections.abc import Sequence

import click

from reports.cli.common import print_result, refuse_idle, sizes_arguments, talk


@click.command()
@sizes_arguments("Set a depth (default 2); with --check, also sizes to run at. L=3 after the model is the same.")
@click.option("--parameter", metavar="NAME", help="Show only what the gradient of this parameter depends on.")
@click.option("--notation", default="index", show_default=True, metavar="KIND", help="Notation: index (with labels) or matrix.")
@click.option("--attention", default="fused", show_default=True, metavar="KIND", help="Attention kernel: fused or math.")
@click.option("--steps", is_flag=True, help="Show the chain rule link by link first, with the rule of each primitive.")
@click.option(
    "--check", "checked", is_flag=True, help="Evaluate in numpy at three random sizes, and compare with autograd and central differences."
)
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON: both notations, text and LaTeX.")
def gradients(
    model: str, sizes: Sequence[str], parameter: str | None, notation: str, attention: str, steps: bool, checked: bool, as_json: bool
) -> int:
    """Derive the gradients of a model's loss by the chain rule: equations with shapes and FLOPs, in the form of textbooks.

    MODEL is as for napkin derive. What repeats from layer to layer is shown once. Exit status 1: a comparison failed.
    """
    import calc
    from calc.mathematics.gradients import check
    from calc.mathematics.gradients import gradients as derive
    from calc.options import made
    from reports.jobs import job
    from reports.views import gradients as view

    if as_json:
        refuse_idle("beside --json, which has both notations and every step", "notation", "steps")
    if notation not in ("index", "matrix"):
        raise click.UsageError(f"unknown notation {notation[:40]!r}: use index or matrix")
    options, fixed = made(attention=attention), job.sizes_from(sizes)
    with talk() as say:
        spec = calc.load(model)
        derived = derive(spec, fixed, options, say)
        if parameter is not None:
            derived.parameter(parameter)
        compared = check(derived, spec, fixed, options, say) if checked else None
    matrix = notation == "matrix"
    print_result(
        as_json,
        lambda: view.document(derived, parameter, compared),
        lambda out: view.show(derived, matrix, parameter, compared, out, steps),
    )
    return 1 if compared is not None and not compared.ok else 0

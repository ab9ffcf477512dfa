"""``napkin bytes-per-parameter``: what every recipe of number formats keeps of a parameter, term by term."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from reports.cli.common import Integer, model_arguments, option_of, print_result, request_of, talk


@click.command("bytes-per-parameter")
@model_arguments
@click.option("--devices", type=Integer(1), metavar="INTEGER", help="Also show bytes on each of N devices, for the stages of ZeRO.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
@click.pass_context
def bytes_per_parameter(context: click.Context, /, devices: int | None, as_json: bool, **options: Any) -> None:
    """Derive bytes per parameter of each precision recipe: weights, fp32 copies, gradients and optimizer state, term by term.

    Shows all recipes, or only that of --precision. Adds recipes in fp8 from their published formulas, and runs an fp8 forward of a linear
    layer here.
    """
    precision = options["precision"] if context.get_parameter_source("precision") is ParameterSource.COMMANDLINE else None
    from calc.memory.fp8 import fp8_document
    from calc.memory.per_parameter import document
    from reports.views import recipes

    with talk() as say:
        table = recipes.compare(request_of(**options), precision, devices, say)
    print_result(as_json, lambda: {**document(table), "fp8_forward": fp8_document()}, lambda out: recipes.show(table, out))


_PRECISION = option_of(bytes_per_parameter, "precision")
_PRECISION.show_default, _PRECISION.help = False, "Show this recipe only."

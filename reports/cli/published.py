"""``napkin published``: a table of a publication, cell by cell beside the exact counts of a model."""

from __future__ import annotations

from collections.abc import Sequence

import click

from calc.errors import BadInputError, suggestion
from reports.cli.common import print_result, refuse_idle, request_of, sizes_arguments, step_options, talk

RATIOS = "chinchilla-a4"


@click.command()
@click.argument("table")
@sizes_arguments(model=False)
@click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")
@step_options
def published(table: str, model: str | None, sizes: Sequence[str], as_json: bool, no_cache: bool, **options: str) -> None:
    """Show a published table beside the exact counts of a model.

    TABLE is kaplan-1 (parameters and FLOPs per token), chinchilla-f (FLOPs of a step), chinchilla-a4 (FLOPs over 6·N·D; it has models of
    its own), casson (FLOPs per token by both), rees (bytes of training) or zero-activations. Each difference is split into terms, with
    the reason.
    """
    from calc.derive.published.tables import TABLES

    if table not in (*TABLES, RATIOS):
        raise BadInputError(f"unknown table {table[:40]!r}: {suggestion(table, (*TABLES, RATIOS))}")
    if table == RATIOS:
        if model is not None or sizes:
            raise BadInputError(f"{RATIOS} has models of its own: leave {(model or sizes[0])[:40]} out")
        refuse_idle(f"beside {RATIOS}, which has models of its own", "no_cache", *options)
        from calc.derive.published import ratios
        from reports.views.published import show_ratios

        print_result(as_json, ratios.document, show_ratios)
        return
    if model is None:
        raise click.UsageError(f"name a model to compare {table} with: napkin published {table} gpt2 T=1024")
    from calc.derive.published.compare import compare, document
    from reports.jobs import job
    from reports.views.published import show

    request = request_of(model, sizes, no_cache, **options)
    with talk() as say:
        compared = compare(TABLES[table], job.derive(request, say))
    print_result(as_json, lambda: document(compared), lambda out: show(compared, out))

"""``napkin compare`` and ``published``: two steps and their difference, a table of several, and tables of publications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import takewhile

import click

from calc.errors import BadInputError, suggestion
from reports.cli.common import (
    output_folder,
    pairs_option,
    print_result,
    refuse_idle,
    request_of,
    say_written,
    sizes_arguments,
    step_options,
    talk,
)


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="MODEL [MODEL]... [KEY=VALUE[,VALUE]...]...")
@pairs_option
@click.option("--quantity", "quantities", multiple=True, metavar="NAME", help="Put a quantity in a table, by part with shares.")
@click.option("--explain", metavar="NAME", help="Show one quantity with every term that differs.")
@click.option("-o", "--output", metavar="DIR", help="Write compare.md, .html and .json there: napkin verify makes them again.")
@click.option("--no-cache", is_flag=True, help="Trace the steps again, and neither read nor write the cache.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def compare(
    words: Sequence[str], quantities: Sequence[str], explain: str | None, output: str | None, no_cache: bool, as_json: bool
) -> None:
    """Derive two steps and their difference, or a table of several.

    A step is a model and its settings, as one argument: "gpt2 B=8 optimizer=adamw". KEY=VALUE after the models applies to all.
    After a single model, the first KEY=VALUE is what changes: napkin compare llama3-8b g=32 compares with the default, 8.

    Lists (d=768,1024 L=12,24 h=12,16), three models or more, and --quantity make a table: a column for each step, its quantities, and
    their parts with shares. The first step takes the first value of each list, the second the second, and so on.
    """
    from calc.symbolic.assignments import is_assignment, read_assignments
    from reports.jobs.compared import words_of
    from reports.jobs.request import PAIRS

    models = [*takewhile(lambda word: not is_assignment((*words_of(word), "")[0]), words)]
    if not models:
        raise click.UsageError("the model comes before its sizes: napkin compare gpt2 d=768,1024")
    listed = any("," in word for word in words[len(models) :])
    if len(models) == 1 and not listed:
        models = [*words[:2]]
    given = read_assignments(words[len(models) :], PAIRS)
    if listed or quantities or len(models) > 2:
        refuse_idle("in a table of several steps, which has every part", "explain")
        _table(models, given, quantities, output, no_cache, as_json)
    elif len(models) == 1:
        raise click.UsageError(f"nothing to compare {models[0][:40]!r} with: name another model, or what changes, as in T=4096")
    else:
        _difference(models, given, explain, output, no_cache, as_json)


def _difference(
    models: Sequence[str], given: Mapping[str, str], explain: str | None, output: str | None, no_cache: bool, as_json: bool
) -> None:
    if as_json:
        refuse_idle("beside --json, which has every quantity", "explain")
    from calc.derive.compare import document
    from calc.derive.quantities import QUANTITIES
    from reports.jobs import compared, job
    from reports.views import compare as page

    if explain is not None and explain not in QUANTITIES:
        raise BadInputError(f"no quantity {explain[:60]!r}: see napkin list quantities{job.nearest(explain, QUANTITIES)}")
    sides = compared.sides(models[0], models[1], given, not no_cache)
    sides.requests()  # what cannot be asked for is refused before any work
    folder = None if output is None else output_folder(output)
    with talk() as say:
        comparison, inputs = compared.compare(sides, say)
    if explain is not None and explain not in [change.quantity for change in comparison.changes]:
        raise BadInputError(f"neither step has {explain}: choose another quantity")
    if folder is not None:
        say_written(*job.write_all(folder, compared.texts(comparison, inputs)))
    print_result(as_json, lambda: document(comparison), lambda out: page.show(comparison, explain, out))


def _table(
    models: Sequence[str], given: Mapping[str, str], quantities: Sequence[str], output: str | None, no_cache: bool, as_json: bool
) -> None:
    from calc.derive.side_by_side import document
    from reports.jobs import job
    from reports.jobs import side_by_side as jobs
    from reports.views import compare as page

    table_steps = jobs.steps(models, given, quantities, not no_cache)
    table_steps.requests()  # what cannot be asked for is refused before any work
    folder = None if output is None else output_folder(output)
    with talk() as say:
        table, inputs = jobs.compute(table_steps, say)
    if folder is not None:
        say_written(*job.write_all(folder, jobs.texts(table, inputs)))
    print_result(as_json, lambda: document(table), lambda out: page.show_several(table, out))


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
    from calc.derive.published.compare import compare, document, require_dimensions
    from reports.jobs import job
    from reports.views.published import show

    request = request_of(model, sizes, no_cache, **options)
    with talk() as say:
        compared = compare(TABLES[table], job.derive(request, say, partial(require_dimensions, TABLES[table])))
    print_result(as_json, lambda: document(compared), lambda out: show(compared, out))

"""``napkin compare``: two models, recipes or sizes beside one another, and their difference term by term."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from calc.errors import BadInputError
from reports.cli.common import pairs_option, print_result, refuse_idle, say_written, talk


@click.command()
@click.argument("left")
@click.argument("right")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@pairs_option
@click.option("--explain", metavar="NAME", help="Show one quantity with every term that differs.")
@click.option("-o", "--output", metavar="DIR", help="Write compare.md, .html and .json there: napkin verify makes them again.")
@click.option("--no-cache", is_flag=True, help="Trace the steps again, and neither read nor write the cache.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def compare(left: str, right: str, words: Sequence[str], explain: str | None, output: str | None, no_cache: bool, as_json: bool) -> None:
    """Derive two steps and their difference.

    LEFT and RIGHT are a model with what is set for it, in one word: "gpt2 B=8 optimizer=adamw". KEY=VALUE behind them is set for both.
    A RIGHT that begins with no model is the left one with those changes: napkin compare llama3-8b g=32 compares with the usual 8.
    """
    if as_json:
        refuse_idle("beside --json, which has every quantity", "explain")
    from calc.derive.compare import document
    from calc.symbolic.assignments import read_assignments
    from reports.jobs import compared, job
    from reports.jobs.request import PAIRS
    from reports.views import compare as page

    sides = compared.sides(left, right, read_assignments(words, PAIRS), not no_cache)
    sides.requests()  # what cannot be asked for is refused before any work
    with talk() as say:
        comparison, inputs = compared.compare(sides, say)
    if explain is not None and explain not in [change.quantity for change in comparison.changes]:
        raise BadInputError(f"no quantity {explain[:60]!r}: see napkin list quantities")
    if output is not None:
        say_written(*job.write_all(Path(output), compared.texts(comparison, inputs)))
    print_result(as_json, lambda: document(comparison), lambda out: page.show(comparison, explain, out))

"""``napkin compare``: two models, recipes or sizes beside one another, and their difference term by term."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from calc.errors import BadInputError
from reports.cli_common import talk

if TYPE_CHECKING:
    from reports.job import Request


@click.command()
@click.argument("left")
@click.argument("right")
@click.argument("both", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--explain", metavar="NAME", help="Show one quantity with every term that differs.")
@click.option("--no-cache", is_flag=True, help="Record the steps anew, and keep no recording.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def compare(left: str, right: str, both: tuple[str, ...], explain: str | None, no_cache: bool, as_json: bool) -> None:
    """Derive two steps and their difference.

    LEFT and RIGHT are a model with what is set for it, in one word: "gpt2 B=8 optimizer=adamw". KEY=VALUE behind them is set for both.
    A RIGHT that begins with no model is the left one with those changes: napkin compare llama3-8b g=32 compares with the usual 8.
    """
    from calc.contrast import contrast, document
    from reports import contrast as page
    from reports import job, terminal

    first = _words(left)
    second = _words(right)
    if second and "=" in second[0]:
        second = [*first, *second]
    one, other = (_request(words, both, not no_cache) for words in (first, second))
    with talk() as say:
        found = contrast(job.derive(one, say), job.derive(other, say), (" ".join(first), " ".join(second)))
    if explain is not None and explain not in [change.quantity for change in found.changes]:
        raise BadInputError(f"no quantity {explain[:60]!r}: see napkin list quantities")
    if as_json:
        click.echo(job.json_text(document(found)), nl=False)
    else:
        page.show(found, explain, terminal.console())


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadInputError(f"cannot read {text[:60]!r}: {error}") from None


def _request(words: list[str], both: tuple[str, ...], cache: bool) -> Request:
    """A side's model, sizes and options; what a side sets itself goes before what is set for both, and later before earlier."""
    from reports.request import asked, pair

    if not words:
        raise BadInputError("a side is empty: write a model, as in 'gpt2 B=8'")
    return asked(words[0], dict(map(pair, (*both, *words[1:]))), cache)

"""``napkin list``: what there is to choose from."""

from __future__ import annotations

from collections.abc import Sequence

import click

from calc.errors import BadInputError

LISTS = ("models", "dtypes", "optimizers", "rules", "quantities", "thumbs")


@click.command("list")
@click.argument("what", metavar="|".join(LISTS))
@click.argument("words", nargs=-1, metavar="[WORD]...")
@click.option("--json", "as_json", is_flag=True, help="Write the list as JSON.")
def list_(what: str, words: Sequence[str], as_json: bool) -> None:
    """List what there is: models, dtypes, optimizers, rules of operators, quantities or rules of thumb.

    With WORDs, only entries that hold every one of them: napkin list rules convolution. What an optimizer keeps is per parameter
    tensor, of n elements of s bytes; r and c are its last two sizes, N the elements of all tensors.
    """
    if what not in LISTS:
        raise click.UsageError(f"nothing to list under {what!r}: there are {', '.join(LISTS)}")
    from reports import job, listing, rules, terminal

    if as_json:
        click.echo(job.json_text(listing.document(what, words)), nl=False)
        return
    out = terminal.console()
    found = terminal.show_rules(rules.table(words), out) if what == "rules" else terminal.show_rows(listing.rows(what, words), out)
    if not found:
        raise BadInputError(f"no entry of {what} holds {' and '.join(repr(word[:40]) for word in words)}: napkin list {what} shows all")

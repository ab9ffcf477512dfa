"""``napkin list``: what there is to choose from."""

from __future__ import annotations

from collections.abc import Sequence

import click

from calc.errors import BadInputError, suggestion

LISTS = ("models", "hardware", "dtypes", "optimizers", "rules", "quantities", "rules-of-thumb", "questions")


@click.command("list")
@click.argument("kind", metavar="LIST")
@click.argument("words", nargs=-1, metavar="[WORD]...")
@click.option("--hardware", "file", metavar="FILE", help="TOML file with accelerators of your own; also NAPKIN_HARDWARE.")
@click.option("--json", "as_json", is_flag=True, help="Write the list as JSON.")
def list_(kind: str, words: Sequence[str], file: str | None, as_json: bool) -> None:
    """List models, hardware, dtypes, optimizers, rules, quantities, rules-of-thumb or questions.

    With WORDs, only entries that contain all of them: napkin list rules convolution, napkin list questions days. Without, rules are
    listed by family and questions without their keys. The state of an optimizer is per parameter tensor of n elements of s bytes; r and
    c are its last two sizes, N the elements of all tensors.
    """
    if kind not in LISTS:
        raise click.UsageError(f"unknown list {kind!r}: {suggestion(kind, LISTS)}")
    from reports.jobs import job
    from reports.views import hardware, listing
    from reports.writers.terminal import Terminal

    if file is not None and kind != "hardware":
        raise click.UsageError("--hardware goes with: napkin list hardware")
    if as_json:
        written = hardware.document(words, file) if kind == "hardware" else listing.document(kind, words)
        click.echo(job.json_text(written), nl=False)
        return
    count = hardware.show(words, Terminal(), file) if kind == "hardware" else listing.show(kind, words, Terminal())
    if not count:
        wanted = " and ".join(repr(word[:40]) for word in words)
        raise BadInputError(f"nothing in the list of {kind} contains {wanted}: see napkin list {kind}")

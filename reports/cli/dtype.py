"""``napkin dtype``: the limits of a number format, and what a number becomes in it."""

from __future__ import annotations

import click

from reports.cli.common import print_result


@click.command(context_settings={"ignore_unknown_options": True})  # -0 and -1e-8 are numbers, no options
@click.argument("name", metavar="FORMAT")
@click.argument("number", required=False)
@click.option("--bits", metavar="BITS", help="Read a number from its bits instead: '0 01000 0100011111', 0x211f.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def dtype(name: str, number: str | None, bits: str | None, as_json: bool) -> None:
    """Show what a number format can hold, derived from its layout; with NUMBER, what it is rounded to, bit by bit.

    FORMAT is a name of napkin list dtypes, one of torch's, or a layout such as e3m4. NUMBER is exact: 0.01, 1e-8, -0, 0x1.8p3, inf.
    """
    from calc.mathematics.dtypes.bits import of_bits
    from calc.mathematics.dtypes.document import document
    from calc.mathematics.dtypes.encode import encode
    from calc.mathematics.dtypes.layouts import named
    from calc.mathematics.dtypes.numbers import read

    layout = named(name)
    if number is not None and bits is not None:
        raise click.UsageError("NUMBER and --bits both give the number: leave one out")
    encoding = encode(layout, read(number)) if number is not None else of_bits(layout, bits) if bits is not None else None
    from reports.views import formats

    print_result(as_json, lambda: document(layout, encoding), lambda out: formats.show(layout, encoding, out))

"""``napkin einsum``: an operation over named dimensions, its counts, gradients and order."""

from __future__ import annotations

from collections.abc import Sequence

import click

from reports.cli.common import pairs_option, print_result


@click.command(context_settings={"ignore_unknown_options": True})  # "-> a" is a pattern, no option
@click.argument("pattern")
@click.argument("words", nargs=-1, metavar="[NAME=INTEGER]...")
@pairs_option
@click.option(
    "--reduce", "reduction", default="", metavar="HOW", help="Reduction of one operand: sum (the default), mean, max, min or prod."
)
@click.option("--dtype", default="fp32", show_default=True, metavar="FORMAT", help="Number format of the elements, for bytes.")
@click.option("--check", "checked", is_flag=True, help="Run it for real: compare with torch's FLOP counter and with autograd.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def einsum(pattern: str, words: Sequence[str], reduction: str, dtype: str, checked: bool, as_json: bool) -> int:
    """Count an operation over named dimensions: result, FLOPs, bytes, intensity, gradients, the cheapest order of several operands.

    PATTERN is an einops pattern: "b s d, d f -> b s f" contracts, "b s d -> b d" reduces, "b (h k) -> b h k" rearranges,
    "b d -> b t d" repeats. Without its size a dimension stays a symbol. "...=6" is the product of the sizes that an ellipsis stands for.
    """
    from calc.errors import BadInputError
    from calc.mathematics.dtypes.layouts import element_bytes, named
    from calc.mathematics.einsum.check import check
    from calc.mathematics.einsum.document import document
    from calc.mathematics.einsum.operation import operation
    from calc.mathematics.einsum.pattern import read, sizes_of

    item_size = element_bytes(named(dtype))
    if item_size.denominator != 1:
        raise BadInputError(f"{dtype[:40]} has elements smaller than a byte: choose a dtype of 8 bits or more")
    parsed = read(pattern)
    op = operation(parsed, sizes_of(parsed, words), int(item_size), reduction)
    verdicts = check(op) if checked else None
    from reports.views import einsum as view

    print_result(as_json, lambda: document(op, dtype, verdicts), lambda out: view.show(op, dtype, verdicts, out))
    return 1 if any(v.failed for v in verdicts or ()) else 0

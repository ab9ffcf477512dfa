"""``napkin storage``: which operations allocate, with shapes, strides and offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from reports.cli.common import print_result, refuse_idle, sizes_arguments


@click.command()
@sizes_arguments("Set a dimension of MODEL; B=8 T=1024 after MODEL is the same.", model=False)
@click.option("--attention", default="fused", show_default=True, metavar="KIND", help="Attention kernel of MODEL: fused or math.")
@click.option("--tensor", "shape", metavar="SHAPE", help="Show operations on a tensor of this shape instead, e.g. 4x4.")
@click.option("--do", "expression", metavar="EXPRESSION", help='Operations on the tensor: "x.transpose(0, 1).contiguous()".')
@click.option("--index", metavar="I,J", help="Show where this element of the result lies.")
@click.option("--dtype", default="fp32", show_default=True, metavar="FORMAT", help="Number format of the tensor.")
@click.option("--check", "checked", is_flag=True, help="Compare with real tensors.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def storage(model: str | None, sizes: Sequence[str], attention: str, checked: bool, as_json: bool, **options: Any) -> int:
    """Show which operations return views and which allocate, with shape, strides and offset in elements.

    For MODEL's traced forward, or a tensor with --tensor; without either, for a 4 × 4 matrix under eight kinds of operations.
    """
    if model is not None:
        tensor_options = [name for name in ("shape", "expression", "index") if options[name] is not None]
        if tensor_options or options["dtype"] != "fp32":
            raise click.UsageError("--tensor, --do, --index and --dtype describe a tensor: leave them or MODEL out")
        return _of_model(model, sizes, attention, checked, as_json)
    if sizes:
        raise click.UsageError("-d sets a dimension of a model: name one")
    refuse_idle("without a model", "attention")
    return _of_tensor(checked, as_json, **options)


def _of_model(model: str, sizes: Sequence[str], attention: str, checked: bool, as_json: bool) -> int:
    import calc
    from calc.mathematics.strides.check import check_forward
    from calc.mathematics.strides.document import forward
    from calc.mathematics.strides.walk import storage as walked
    from calc.options import made
    from reports.cli.common import talk
    from reports.jobs import job

    options = made(attention=attention)
    with talk() as say:
        spec = calc.load(model)
        say("recording the forward")
        walk = walked(spec, job.sizes_from(sizes), options)
        verdict = check_forward(spec, walk, options) if checked else None
    from reports.views import strides as view

    print_result(as_json, lambda: forward(walk, verdict), lambda out: view.show_forward(walk, verdict, out))
    return int(verdict is not None and verdict.failed)


def _of_tensor(checked: bool, as_json: bool, shape: str | None, expression: str | None, index: str | None, dtype: str) -> int:
    from calc.mathematics.strides.check import check
    from calc.mathematics.strides.document import chains
    from calc.mathematics.strides.examples import demonstration
    from calc.mathematics.strides.expression import carried_out, place_of, read, shape_of
    from calc.mathematics.strides.operations import tensor

    if shape is None:
        if expression is not None or index is not None:
            raise click.UsageError("--do and --index need a tensor: add --tensor, e.g. --tensor 4x4")
        x, results = demonstration(dtype)
    else:
        x, text = tensor(shape_of(shape), dtype), expression or "x"
        results = ((text, carried_out(x, read(text))),)
    steps = results[-1][1]
    last = x if not steps else steps[-1].result.tensor if steps[-1].result is not None else None
    place = place_of(index, last) if index is not None and last is not None else None
    verdicts = [check(x, chain) for _, chain in results] if checked else None
    if as_json:
        from reports.jobs import job

        body = chains(x, results, verdicts)
        click.echo(job.json_text({**body, "place": None if place is None or last is None else last.layout.place(place)}), nl=False)
    else:
        from reports.views import strides as view
        from reports.writers.terminal import Terminal

        out = Terminal()
        view.show_chains(x, results, verdicts, out)
        if place is not None and last is not None:
            view.show_place(last, place, out)
    return int(any(v.failed for chain in verdicts or () for v in chain))

"""``napkin sweep``: any quantity of a step, or any expression, over a grid of sizes or the lines of a CSV file."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from calc.symbolic.assignments import sizes_text
from reports.cli.common import REFUSED, SUCCESS, Integer, refuse_idle, refuse_untrained, step_options, talk

if TYPE_CHECKING:
    from calc.options import Options
    from calc.pipeline.sweep import Sweep, SweptSizes

_MOST = 20_000_000
_CASES = 12
_LARGEST_FILE = 2**30  # 20 million points of several sizes


@click.command()
@click.argument("model", required=False)
@click.argument("further", nargs=-1, metavar="[NAME=SIZES]...")
@click.option("-d", "--dim", "sizes", multiple=True, metavar="NAME=SIZES", help="1,2,4 or 1024:8192:1024 (both ends, step) or 1Ki..16Ki×2.")
@click.option("--quantity", "quantities", multiple=True, metavar="NAME", help="Quantity to evaluate (default memory.peak).")
@click.option("--expr", metavar="TEXT", help="Evaluate an expression of the sizes instead of a model, e.g. '12*L*d**2'.")
@click.option(
    "--from", "source", metavar="FILE", help="Read points from a CSV file: a line of names, then a line of integers for each point."
)
@click.option("--csv", "target", metavar="FILE", help="Write the table to a file; without it, to standard output.")
@click.option("--plot", metavar="FILE", help="Draw the quantities over one size, as SVG.")
@click.option("--over", metavar="NAME", help="Size on the x axis (default: the last one with several values).")
@click.option("--most", default=_MOST, show_default=True, type=Integer(1, 10**12), metavar="INTEGER", help="Maximum number of points.")
@click.option(
    "--cases", default=_CASES, show_default=True, type=Integer(1, 1000), metavar="INTEGER", help="Maximum number of special cases to trace."
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@step_options
def sweep(
    model: str | None,
    further: Sequence[str],
    sizes: Sequence[str],
    quantities: Sequence[str],
    expr: str | None,
    source: str | None,
    target: str | None,
    plot: str | None,
    over: str | None,
    most: int,
    cases: int,
    as_json: bool,
    no_cache: bool,
    **options: str,
) -> int:
    """Evaluate quantities over many sizes, exactly.

    The table has a line for each point. k, M, G mean 10³, 10⁶, 10⁹; Ki, Mi mean 1,024 and 1,024². Points with
    invalid sizes have no value: standard error says how many and why. Where the step takes another path (a batch of one),
    it is traced, once for each such case. The exit status is 2 if a valid point, or every point, has no value. NAME=SIZES after the model
    is the same as -d NAME=SIZES.
    """
    if expr is not None and model is not None and "=" in model:  # an expression has no model before its sizes
        further = (model, *further)
        model = None
    for word in further:
        if "=" not in word:
            raise click.UsageError(f"cannot read {word[:60]!r}: sizes are NAME=SIZES, e.g. B=1,2,4; a quantity is --quantity memory.peak")
    sizes = (*sizes, *further)
    if (model is None) == (expr is None):
        raise click.UsageError("name a model, or give --expr: one of them")
    if expr is not None and quantities:
        raise click.UsageError("--quantity goes with a model: leave it out beside --expr")
    if plot is None:
        refuse_idle("without --plot", "over")
    if expr is not None:
        refuse_idle("beside --expr, which is of no model", "cases", "no_cache", *options)
    refuse_untrained(options["mode"])
    if as_json and target is not None:
        raise click.UsageError("--json goes to standard output, and --csv to a file: give one of them")
    from calc.platform import files

    files.judge(*filter(None, (target, plot)))
    from calc.options import made
    from calc.pipeline.sweep import SweptSizes, sweep_expression
    from reports.views import swept

    given = SweptSizes(*_points(sizes, source, most), most)

    if model is None:
        result = sweep_expression(str(expr), given)
    else:
        result = _model(model, given, quantities, made(**options), cache=not no_cache, cases=cases)
    drawing = swept.drawn(result, over) if plot is not None else ""
    for gap in result.gaps:
        at, has = sizes_text(gap.first), "has" if gap.points == 1 else "have"
        click.echo(f"{gap.points:,} of {result.points:,} points {has} no value, the first at {at}: {gap.because}", err=True)
    contents = ((target, swept.as_csv(result)), (plot, drawing))
    files.write(*(files.Output(path, content) for path, content in contents if path is not None))
    if as_json:
        click.echo(swept.as_json(result), nl=False)
    elif target is None and plot is None:
        for line in swept.as_csv(result):
            click.echo(line, nl=False)
    nothing = sum(gap.points for gap in result.gaps) == result.points
    return REFUSED if nothing or any(gap.possible for gap in result.gaps) else SUCCESS


def _points(sizes: Sequence[str], source: str | None, most: int) -> tuple[Mapping[str, Sequence[int]], bool]:
    """The sizes that were given, and whether they go together line by line: single ones beside a file stand in every line."""
    from calc.errors import BadInputError
    from calc.pipeline import sweep_grid

    axes: dict[str, list[int]] = {}
    for text in sizes:
        name, values = sweep_grid.parsed(text)
        if name in axes:
            raise BadInputError(f"{name[:40]} is given twice: give its sizes in one -d, as in -d B=1,2,4")
        axes[name] = values
    if source is None:
        return axes, False
    columns = _read(source, most)
    lines = len(next(iter(columns.values())))
    for name, values in axes.items():
        if name in columns or len(values) > 1:
            raise BadInputError(f"{name[:40]}: beside --from, -d sets one size of a dimension that the file does not have")
        columns[name] = values * lines
    return columns, True


def _read(source: str, most: int) -> dict[str, list[int]]:
    from calc.errors import BadInputError
    from calc.pipeline import sweep_grid
    from calc.platform import files

    content = io.BytesIO(files.Kind(_LARGEST_FILE).read_bytes(source))
    try:
        return sweep_grid.read(io.TextIOWrapper(content, "utf-8", newline=""), files.shown(source), most)
    except UnicodeDecodeError:
        raise BadInputError(f"cannot read {files.shown(source)}: it is not UTF-8") from None


def _model(model: str, given: SweptSizes, quantities: Sequence[str], options: Options, **how: Any) -> Sweep:
    from calc.pipeline.sweep import of_model

    with talk() as say:
        return of_model(model, given, quantities or ("memory.peak",), options, progress=say, **how)

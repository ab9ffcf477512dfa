"""``napkin measure``: real steps on a CUDA device, with the allocator's peaks beside what was predicted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from reports.cli_common import model_arguments, request_of, talk

_UNMEASURED = {"schema": 1, "kind": "measurement of memory", "verdict": "not measured"}


@click.command()
@model_arguments
@click.option("--device", default="cuda", show_default=True, metavar="NAME", help="Where the steps run: cuda, or cuda:1 and so on.")
@click.option("--repeat", default=3, show_default=True, type=click.IntRange(1, 1000), metavar="INTEGER", help="Steps measured one by one.")
@click.option("--fit", is_flag=True, help="Also find the largest B that runs, by running out of memory.")
@click.option("-o", "--output", metavar="FILE", help="Write the measurement as JSON, with machine, versions and every repetition.")
@click.option("--json", "as_json", is_flag=True, help="Show it as JSON.")
@click.option("--strict", is_flag=True, help="Fail where there is no device to measure on.")
@click.pass_context
def measure(
    context: click.Context, /, device: str, repeat: int, fit: bool, output: str | None, as_json: bool, strict: bool, **words: Any
) -> int:
    """Run steps on a CUDA device: peak allocated and reserved, first step and steady ones, beside the prediction.

    The optimizer runs as foreach, which is torch's default there, unless --implementation says otherwise. Without a device nothing
    is measured, and nothing is written.
    """
    if not re.fullmatch(r"cuda(:\d{1,3})?", device):
        raise click.UsageError(f"there is no allocator to ask on {device!r}: use cuda; on cpu napkin check measures live bytes")
    from calc.measuring import document
    from calc.optimizers import KNOWN
    from reports import job, measuring, terminal

    known = KNOWN.get(words["optimizer"])
    if context.get_parameter_source("implementation") is ParameterSource.DEFAULT and known is not None and "foreach" in known.ways:
        words["implementation"] = "foreach"
    request = request_of(**words)
    absent = job.no_cuda()
    if absent:
        click.echo(job.json_text({**_UNMEASURED, "because": absent}) if as_json else absent, nl=not as_json)
        return 1 if strict else 0
    with talk() as say:
        found = job.measure(request, device, repeat, fit, say)
    if output is not None:
        measuring.write(found, Path(output))
        click.echo(f"wrote {click.format_filename(output)}", err=True)
    if as_json:
        click.echo(job.json_text(document(found)), nl=False)
    else:
        measuring.show(found, terminal.console())
    return 0

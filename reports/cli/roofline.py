"""``napkin roofline``: each operator of a training step under the ceilings of a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reports.cli.common import model_arguments, print_result, refuse_idle, request_of, say_written, talk


@click.command()
@model_arguments
@click.option("--gpu", required=True, metavar="ID", help="The device: see napkin list hardware.")
@click.option("--hardware", "file", metavar="FILE", help="TOML file with accelerators of your own; also NAPKIN_HARDWARE.")
@click.option("--dtype", metavar="NAME", help="Number format whose peak all matmuls run at, e.g. tf32 (default: that of their tensors).")
@click.option("--launch", metavar="SECONDS", help="Time from one kernel to the next, e.g. 5e-6 (default: an assumption).")
@click.option("--top", default=15, show_default=True, metavar="INTEGER", help="Number of module paths and operators to show.")
@click.option("-o", "--output", metavar="FILE", help="Write a page with the figure and all of its numbers (HTML).")
@click.option("--json", "as_json", is_flag=True, help="Show everything as JSON.")
def roofline(
    gpu: str, file: str | None, dtype: str | None, launch: str | None, top: int, output: str | None, as_json: bool, **options: Any
) -> None:
    """Show what bounds each operator of a training step on a device (compute, memory or launches), and its minimum time.

    Eager traffic is what operators read and write one by one; fused traffic is a lower estimate: what is left if a
    compiler fuses them.
    """
    from reports.jobs import job
    from reports.jobs import roofline as roofline_job
    from reports.views import roofline as roofline_view

    if as_json:
        refuse_idle("beside --json, which has every operator", "top")
    if top < 1:
        raise click.UsageError(f"--top {top} shows nothing: give 1 or more")
    ceiling = roofline_job.ceiling(gpu, file, dtype, launch)
    request = request_of(**options)
    with talk() as say:
        rooflines = roofline_job.compute(request, ceiling, say)
    if output is not None:
        say_written(*job.write_all(Path(output).parent, {Path(output).name: roofline_job.write(rooflines)}))
    print_result(as_json, lambda: roofline_view.document(rooflines), lambda out: roofline_view.show(rooflines, top, out))

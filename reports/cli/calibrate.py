"""``napkin calibrate``: what this machine does with single operators, timed in less than a minute, into a small file."""

from __future__ import annotations

from pathlib import Path

import click

from reports.cli.common import device_here, say_written, talk


@click.command()
@click.option("--device", metavar="NAME", help="What is calibrated: cpu or cuda; by default cuda where there is one.")
@click.option("--processor-time", is_flag=True, help="Count this process's processor time: on a CPU that others use, with one thread.")
@click.option("--tf32", is_flag=True, help="float32 products of a CUDA device in tf32, for steps that make them so.")
@click.option("-o", "--output", metavar="FILE", help="Write the calibration, with every repetition.")
@click.option("--json", "as_json", is_flag=True, help="Show it as JSON.")
def calibrate(device: str | None, processor_time: bool, tf32: bool, output: str | None, as_json: bool) -> int:
    """Time primitive operators: products over shapes and formats, what memory bounds over sizes, what the program takes for each.

    napkin predict reads the file. No model is run.
    """
    from reports.jobs import job
    from reports.views import calibration
    from reports.writers.terminal import Terminal

    here, absent = device_here(device)
    if processor_time and here != "cpu":
        raise click.UsageError("--processor-time is of a CPU: a CUDA device has a clock of its own")
    if tf32 and here == "cpu":
        raise click.UsageError("--tf32 is of CUDA devices: leave it out on a CPU")
    if absent:
        unmeasured = {"schema": 1, "kind": "calibration", "verdict": "not measured", "because": absent}
        click.echo(job.json_text(unmeasured) if as_json else absent, nl=not as_json)
        return 0
    from calc.measure.calibration import calibrate as run

    if output is not None:
        job.write_all(Path(output).parent, {})  # a folder that cannot be made is refused before a minute of work
    with talk() as say:
        measured = run(here, processor_time=processor_time, tf32=tf32, progress=say)
    text = job.json_text(measured.to_json())
    if output is not None:
        say_written(*job.write_all(Path(output).parent, {Path(output).name: text}))
    if as_json:
        click.echo(text, nl=False)
    else:
        calibration.show(measured, Terminal())
    return 0

"""``napkin calibrate``: what this machine does with single operators, timed in less than a minute, into a small file."""

from __future__ import annotations

from pathlib import Path

import click

from reports.cli.common import device_here, hand_over, talk, unmeasured


@click.command()
@click.option("--device", metavar="NAME", help="Device to calibrate, cpu or cuda; the default is cuda if present.")
@click.option(
    "--processor-time",
    is_flag=True,
    help="Measure this process's CPU time instead of wall time, with one thread: for a CPU that others use.",
)
@click.option("--tf32", is_flag=True, help="Run float32 matmuls in tf32 on a CUDA device, for steps that do so.")
@click.option("-o", "--output", metavar="FILE", help="Write the calibration to FILE, with every repetition.")
@click.option("--json", "as_json", is_flag=True, help="Show it as JSON.")
def calibrate(device: str | None, processor_time: bool, tf32: bool, output: str | None, as_json: bool) -> int:
    """Time primitive operators: matmuls over shapes and number formats, memory-bound operators over sizes, and launch overheads.

    napkin predict reads the file. No model is run.
    """
    from reports.jobs import job
    from reports.views import calibration

    machine, absent = device_here(device)
    if processor_time and machine != "cpu":
        raise click.UsageError("--processor-time measures a CPU: leave it out on a CUDA device, which has its own clock")
    if tf32 and machine == "cpu":
        raise click.UsageError("--tf32 needs a CUDA device: leave it out on a CPU")
    if absent:
        return unmeasured("calibration", absent, as_json, strict=False)
    from calc.measure.calibration import calibrate as run

    if output is not None:
        job.write_all(Path(output).parent, {})  # a folder that cannot be made is refused before a minute of work
    with talk() as say:
        measured = run(machine, processor_time=processor_time, tf32=tf32, progress=say)
    hand_over(measured.to_json(), output, as_json, lambda out: calibration.show(measured, out))
    return 0

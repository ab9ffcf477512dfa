"""``napkin roofline`` and ``predict``: the time of a training step before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from reports.cli.common import device_here, judge_output, model_arguments, print_result, refuse_idle, request_of, say_written, talk


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
    judge_output(output)
    with talk() as say:
        rooflines = roofline_job.compute(request, ceiling, say)
    if output is not None:
        say_written(*job.write_all(Path(output).parent, {Path(output).name: roofline_job.write(rooflines)}))
    print_result(as_json, lambda: roofline_view.document(rooflines), lambda out: roofline_view.show(rooflines, top, out))


@click.command()
@model_arguments
@click.option(
    "--calibration", "file", metavar="FILE", help="Calibration (napkin calibrate -o FILE); the default is to calibrate this machine now."
)
@click.option("--gpu", metavar="ID", help="Predict for this accelerator, from operators recorded on it: no GPU is needed here.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def predict(file: str | None, gpu: str | None, as_json: bool, **options: Any) -> None:
    """Predict the time of a training step: forward, backward and optimizer, with its uncertainty, tokens per second, MFU and HFU.

    The time of each operator is interpolated from a primitive one timed at nearby sizes; nothing is fitted to a model. On a CUDA device the
    step is that of its kernels, unless --kernels is given.
    """
    from calc.hardware.calibration import read
    from reports.jobs import roofline
    from reports.jobs.recorded import calibration_of
    from reports.views import prediction

    calibration = None
    if file is not None:
        refuse_idle("beside --calibration, which is of one machine", "gpu")
        calibration = read(Path(file))
    elif gpu is not None:
        calibration = calibration_of(gpu)
    device = device_here(None)[0] if calibration is None else calibration.device
    if device == "cuda" and click.get_current_context().get_parameter_source("kernels") is ParameterSource.DEFAULT:
        options["kernels"] = "cuda"
    request = request_of(**options)
    with talk() as say:
        step = roofline.operators_of(request, say)
        if calibration is None:
            from calc.measure.calibration import calibrate

            calibration = calibrate(device, progress=say)
    predicted = prediction.compute(request, step, calibration)
    print_result(as_json, lambda: prediction.document(predicted), lambda out: prediction.show(predicted, out))

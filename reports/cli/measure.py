"""``napkin measure``: real steps on this machine, timed; on a CUDA device their memory too, beside what was predicted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from reports.cli.common import (
    SEED_OPTION,
    SUCCESS,
    Integer,
    NumberRange,
    command_line,
    device_here,
    hand_over,
    measuring_arguments,
    model_arguments,
    rate_of,
    request_of,
    require_gpu,
    talk,
    unmeasured,
)

_OF_MEASURING = ("repeat", "seconds", "warm_up", "peak", "gpu", "calibrated", "tf32", "compiled", "fit", "seed")


@click.command()
@model_arguments
@measuring_arguments
@click.option("--repeat", default=5, show_default=True, type=Integer(1, 1000), metavar="INTEGER", help="Minimum number of timed steps.")
@click.option(
    "--seconds", default=1.0, show_default=True, type=NumberRange(0, 3600), metavar="NUMBER", help="Minimum total time in seconds."
)
@click.option(
    "--warm-up", default=3, show_default=True, type=Integer(1, 1000), metavar="INTEGER", help="Warm-up steps, which do not count."
)
@click.option("--peak", metavar="RATE", help="Peak FLOP/s in the number format of the matmuls, for MFU: 100e9, 71.2TFLOP/s.")
@click.option("--gpu", metavar="ID", help="Accelerator whose peak is used, if it is not recognized by name (napkin list hardware).")
@click.option(
    "--calibration",
    "calibrated",
    metavar="FILE",
    help="Calibration (napkin calibrate -o FILE): predicts the step, and gives the peak on a CPU.",
)
@click.option("--tf32", is_flag=True, help="Run fp32 matmuls and convolutions in tf32, on a CUDA device.")
@click.option("--compile", "compiled", is_flag=True, help="Compile the model with torch.compile.")
@click.option("--fit", is_flag=True, help="Also find the largest B that fits, by running out of memory on a CUDA device.")
@SEED_OPTION
@click.pass_context
def measure(context: click.Context, /, device: str | None, output: str | None, as_json: bool, strict: bool, **options: Any) -> int:
    """Time real steps: forward, backward and optimizer separately, tokens per second, MFU and HFU, and the slowest modules.

    On a CUDA device the allocator's peaks are compared with their prediction, and the optimizer runs as foreach, torch's default there,
    unless --implementation is given. If the device is missing, nothing is measured and nothing is written.
    """
    from calc.performance.measuring import KIND, document
    from reports.jobs import job
    from reports.views import measuring

    device, absent = device_here(device)
    how = _options(device, **{name: options.pop(name) for name in _OF_MEASURING})
    if how.on_cuda:
        _foreach(context, options)
    request = request_of(**options)
    if absent:
        return unmeasured(KIND, absent, as_json, strict)
    with talk() as say:
        measured = job.measure(request, replace(how, progress=say), command_line())
    hand_over(document(measured), output, as_json, lambda out: measuring.show(measured, out))
    return SUCCESS


def _options(device: str, repeat: int, seconds: float, warm_up: int, peak: str | None, **options: Any) -> Any:
    """What to measure, refused before anything runs where it cannot be."""
    from calc.hardware.benchmark import How, Repeat
    from calc.hardware.calibration import read
    from calc.performance.measuring import MeasuringOptions

    if device == "cpu" and (options["tf32"] or options["fit"]):
        raise click.UsageError(f"--{'tf32' if options['tf32'] else 'fit'} is of CUDA devices, and not of {device}: leave it out")
    require_gpu(options["gpu"], device)
    calibration = None if options["calibrated"] is None else read(Path(options["calibrated"]))
    how = How(Repeat(warm_up, repeat, seconds, max(repeat, 1000)), tf32=options["tf32"], compiled=options["compiled"])
    return MeasuringOptions(device, repeat, options["fit"], rate_of(peak), options["gpu"], calibration, how, seed=options["seed"])


def _foreach(context: click.Context, options: dict[str, Any]) -> None:
    """The optimizer as torch runs it on CUDA by default."""
    from calc.options import NAMED_OPTIMIZERS

    optimizer = NAMED_OPTIMIZERS.get(options["optimizer"])
    if context.get_parameter_source("implementation") is ParameterSource.DEFAULT and optimizer is not None and "foreach" in optimizer.ways:
        options["implementation"] = "foreach"

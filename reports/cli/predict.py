"""``napkin predict``: the time of a training step from its graph and a calibration, before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reports.cli.common import device_here, model_arguments, print_result, request_of, talk


@click.command()
@model_arguments
@click.option(
    "--calibration", "file", metavar="FILE", help="Calibration (napkin calibrate -o FILE); the default is to calibrate this machine now."
)
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def predict(file: str | None, as_json: bool, **options: Any) -> None:
    """Predict the time of a training step: forward, backward and optimizer, with its uncertainty, tokens per second, MFU and HFU.

    The time of each operator is interpolated from a primitive one timed at nearby sizes; nothing is fitted to a model.
    """
    from calc.hardware.calibration import read
    from reports.jobs import roofline
    from reports.views import prediction

    request = request_of(**options)
    calibration = None if file is None else read(Path(file))
    with talk() as say:
        step = roofline.operators_of(request, say)
        if calibration is None:
            from calc.measure.calibration import calibrate

            calibration = calibrate(device_here(None)[0], progress=say)
    predicted = prediction.compute(request, step, calibration)
    print_result(as_json, lambda: prediction.document(predicted), lambda out: prediction.show(predicted, out))

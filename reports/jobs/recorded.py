"""What is recorded of real machines: the measurements that come with Napkin, and those of the user's own folder."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from calc.errors import BadInputError
from calc.hardware import calibration as calibrations
from calc.hardware.accelerators import accelerator
from calc.hardware.calibration import Calibration
from calc.performance.records import files_in

FOLDER = Path(str(resources.files("reports").joinpath("measurements")))


def calibration_of(gpu: str) -> Calibration:
    """The newest recorded calibration of an accelerator, whose fp32 matmuls run in fp32. Raises BadInputError if there is none."""
    device, files = accelerator(gpu), files_in((FOLDER,), "*calibration*.json")
    recorded = [calibration for file in files if _suits(calibration := calibrations.read(file), device.device_names)]
    if not recorded:
        raise BadInputError(
            f"no calibration of {device.name} is recorded: make one there with napkin calibrate -o FILE, and give it as --calibration FILE"
        )
    return max(recorded, key=lambda calibration: str(calibration.machine["date"]))


def _suits(calibration: Calibration, names: tuple[str, ...]) -> bool:
    return calibration.name in names and "float32_products" not in calibration.machine

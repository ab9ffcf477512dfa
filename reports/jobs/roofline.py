"""The job of ``napkin roofline``: the step that is asked for under the ceilings of a device, and its page as a file."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from calc.errors import BadInputError
from calc.hardware.accelerators import accelerator
from calc.performance import step_operators
from calc.performance.roofline import LAUNCH_SECONDS, RooflineCeiling, roofline
from calc.performance.step_operators import StepOperators
from reports.figures.roofline_bounds import RooflinePair
from reports.jobs.job import load
from reports.jobs.request import Request
from reports.page.roofline import page
from reports.writers import html
from reports.writers.render import Look

_SECONDS = re.compile(r"[0-9.]{1,20}(e-?[0-9]{1,2})?")


def ceiling(gpu: str, file: str | None, dtype: str | None, launch: str | None) -> RooflineCeiling:
    """What a device does at most; unusable words are refused."""
    device = accelerator(gpu, file)
    if dtype is not None:
        device.peak(dtype)
    return RooflineCeiling(device, LAUNCH_SECONDS if launch is None else _launch(launch), dtype)


def _launch(text: str) -> Fraction:
    try:
        seconds = Fraction(Decimal(text)) if _SECONDS.fullmatch(text) else None
    except InvalidOperation:
        seconds = None
    if seconds is None or not 0 <= seconds < 1:
        raise BadInputError(f"--launch {text[:40]!r} is not a time between kernels: write seconds from 0 to 1, as in 5e-6")
    return seconds


def compute(request: Request, ceiling: RooflineCeiling, progress: Callable[[str], None]) -> RooflinePair:
    """The roofline of a request's step, eager and fused."""
    step = operators_of(request, progress)
    both = (roofline(step.works, ceiling, fused=fused) for fused in (False, True))
    return RooflinePair(step.operators.graph.model, step.sizes, request.options.to_json(), step.operators, step.works, *both)


def operators_of(request: Request, progress: Callable[[str], None]) -> StepOperators:
    """What the operators of a request's step do and move."""
    spec = load(request.model, progress)
    return step_operators.step_operators(spec, request.sizes, options=request.options, cache=request.cache, progress=progress)


def write(rooflines: RooflinePair, today: datetime.date | None = None) -> str:
    """The page as one self-contained HTML file."""
    return html.write(page(rooflines, today or datetime.date.today()), Look("roofline.j2"))

"""``napkin inference`` on a terminal: weights and cache line by line, then what a real run of small sizes part."""

from __future__ import annotations

from calc.memory.inference import Inference
from calc.symbolic.assignments import TYPED, sizes_text
from calc.units import Unit
from reports.typeset import numbers
from reports.typeset.numbers import integer
from reports.views.answers import amount
from reports.views.asked import pretty
from reports.writers.terminal import Terminal, bold, dim


def show(inference: Inference, out: Terminal) -> None:
    """Bytes in closed form with their reasons, and the checks."""
    sizes = sizes_text(inference.sizes)
    out.line(bold(inference.model), f", in use: {sizes}")
    for title, part in (("weights", inference.weights), ("keys and values", inference.cache)):
        out.line()
        if part is None:
            out.line(bold(title), f": {inference.unknown}")
            continue
        out.line(bold(title), f" in {part.format} = {pretty(part.expr)}")
        rows = [(line.label, integer(line.value), pretty(line.expr), dim(line.because)) for line in part.lines]
        out.table(("What", ("Bytes", "right"), "Closed form", "Because"), rows)
        out.line(f"{title} = ", *amount(numbers.amount(part.value, Unit.BYTE)))
    out.line("weights are the parameters: buffers, as the running averages of a batch norm, are not counted", style="dim")
    if inference.total is not None:
        out.line()
        out.line("together ", *amount(numbers.amount(inference.total, Unit.BYTE)), "; temporaries of operators are not included")
    out.line()
    for check in inference.checks:
        at = sizes_text(check.sizes, TYPED)
        both = (integer(number or 0) for number in (check.derived, check.measured))
        counts = "" if check.derived is None else ": derived {}, measured {} bytes in fp32".format(*both)
        why = f": {check.because}" if check.because else ""
        out.line(f"{check.verdict}{counts} at {at} [{check.instrument}{why}]", style="dim")

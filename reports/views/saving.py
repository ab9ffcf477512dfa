"""``napkin checkpoint`` on a terminal: the file, what a real run of small sizes says of it, and how often to save."""

from __future__ import annotations

from calc.memory.checkpoint import Checkpoint, progress_parts
from calc.memory.formulas import SAVING_INTERVAL
from calc.symbolic.assignments import TYPED, sizes_text
from calc.units import Unit
from reports.typeset import numbers
from reports.typeset.numbers import integer
from reports.views.answers import amount
from reports.writers.terminal import Terminal, bold, dim


def show(saving: Checkpoint, out: Terminal) -> None:
    """Bytes of the file in two parts, the checks, and the interval where times were given."""
    sizes = sizes_text(saving.sizes)
    out.line(bold(saving.model), f", a checkpoint: {sizes}")
    out.line()
    file = saving.file
    payload = ("payload", integer(file.payload), dim("model, optimizer state and iteration, each memory once"))
    out.table(("safetensors", ("Bytes", "right"), "Because"), [payload, ("container", integer(file.overhead), dim(file.because))])
    out.line("file = ", *amount(numbers.amount(file.total, Unit.BYTE)))
    out.line()
    rows = [(name, integer(size), dim(because)) for name, size, because in progress_parts(saving.scheduler)]
    out.table(("To resume where training was", ("Bytes", "right"), "Because"), rows)
    out.line()
    drawn = f", drawn from seed {saving.seed}" if saving.seed else ""
    out.line(f"in a real run at {sizes_text(saving.run_at, TYPED)}{drawn}", style="dim")
    for verdict in saving.verdicts:
        derived, measured = ("unknown" if n is None else integer(n) for n in (verdict.derived, verdict.measured))
        out.line(f"{verdict.verdict}: {verdict.quantity}, derived {derived}, measured {measured}: {verdict.because}")
    if saving.interval is not None:
        i = saving.interval
        out.line()
        out.line(f"save every √(2 · {i.save:g} s · {i.failure:g} s) = {i.seconds:,.0f} s: {100 * i.lost:.2g} % of the time is lost")
        out.line(f"{SAVING_INTERVAL.error}. Source: {SAVING_INTERVAL.source}", style="dim")

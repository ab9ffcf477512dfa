"""Choices of activation checkpointing side by side: peak memory and recomputed FLOPs of each, and which one fits a limit."""

from __future__ import annotations

from collections.abc import Callable

from calc.memory.checkpointing import CHOICES, CheckpointingChoice, CheckpointingComparison, compared
from calc.symbolic.assignments import sizes_text
from calc.units import Unit
from reports.jobs import job
from reports.typeset.numbers import amount, bytes_text, integer
from reports.writers.terminal import Terminal, bold, right

Progress = Callable[[str], None]


def compare(request: job.Request, limit: int | None, progress: Progress) -> CheckpointingComparison:
    """Every choice for the step of ``request``; a model may lack the modules that one of them recomputes."""
    return compared(*job.derive_each(request, "checkpointing", CHOICES, progress), limit)


def show(comparison: CheckpointingComparison, out: Terminal) -> None:
    """A row for each choice, then what it saves and recomputes in closed form."""
    sizes = sizes_text(comparison.sizes)
    out.line(bold(comparison.model), f": {sizes}")
    out.line()
    limited = comparison.limit is not None
    heads = ("Peak", "Activations", "FLOP more", "Taken from memory of", *(("Fits", "Largest B") if limited else ()))
    rows = [_row(choice, limited) for choice in comparison.choices if not choice.refused]
    out.table(("Checkpointing", *right(*heads)), rows)
    out.line()
    for choice in comparison.choices:
        if choice.refused:
            out.line(choice.refused, style="dim")
        elif choice.extra:
            saved, recomputed = f"saves {choice.saved} bytes of activations", f"recomputes {choice.recomputed} FLOP"
            out.line(f"{choice.checkpointing} {saved} and {recomputed}", style="dim")
    if comparison.limit is not None:
        summary = "nothing fits" if comparison.best is None else f"{comparison.best} fits and recomputes the least"
        out.line(bold(summary), f" under {bytes_text(comparison.limit)}")


def _row(choice: CheckpointingChoice, limited: bool) -> tuple[str, ...]:
    interval = "never" if choice.best_from is None else bytes_text(choice.best_from)
    peak, activations = (amount(number, Unit.BYTE).text for number in (choice.peak, choice.activations))
    largest = "" if choice.largest_batch is None else integer(choice.largest_batch)
    columns = ("yes" if choice.fits else "no", largest) if limited else ()
    return choice.checkpointing, peak, activations, amount(choice.extra, Unit.FLOP).headline, interval, *columns

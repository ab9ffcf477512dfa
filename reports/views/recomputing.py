"""The choices of checkpointing beside one another: what each holds and runs again, and which one a limit of memory leaves."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from calc.memory.recomputing import CHOICES, CheckpointingChoice, CheckpointingComparison, compared
from calc.units import Unit
from reports.jobs import job
from reports.typeset.escape import visible
from reports.typeset.numbers import amount, integer

Progress = Callable[[str], None]


def compare(request: job.Request, limit: int | None, progress: Progress) -> CheckpointingComparison:
    """Every choice for the step of ``request``; a model may lack the parts that one of them is about."""
    return compared(*job.derive_each(request, "checkpointing", CHOICES, progress), limit)


def show(found: CheckpointingComparison, out: Console) -> None:
    """A row for each choice, then what is saved and repeated in closed form."""
    sizes = ", ".join(f"{name} = {value:,}" for name, value in found.sizes.items())
    out.print(Text.assemble((visible(found.model), "bold"), f": {visible(sizes)}"))
    out.print()
    out.print(_table(found))
    out.print()
    for choice in found.choices:
        if choice.refused:
            out.print(Text(visible(choice.refused), style="dim"))
        elif choice.extra:
            saved, repeated = f"saves {choice.saved} bytes of activations", f"runs {choice.repeated} FLOP more"
            out.print(Text(visible(f"{choice.checkpointing} {saved} and {repeated}"), style="dim"))
    if found.limit is not None:
        limit = amount(found.limit, Unit.BYTE).headline
        said = "nothing fits" if found.taken is None else f"{found.taken} fits and runs the least"
        out.print(Text.assemble((visible(said), "bold"), f" under {limit}"))


def _table(found: CheckpointingComparison) -> Table:
    limited = found.limit is not None
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
    table.add_column("Checkpointing")
    for heading in ("Peak", "Activations", "FLOP more", "Taken from memory of", *(("Fits", "Largest B") if limited else ())):
        table.add_column(heading, justify="right")
    for choice in found.choices:
        if not choice.refused:
            more = (_fits(choice), "" if choice.most is None else integer(choice.most)) if limited else ()
            taken = "never" if choice.taken_from is None else amount(choice.taken_from, Unit.BYTE).headline
            held = (amount(number, Unit.BYTE).text for number in (choice.peak, choice.activations))
            table.add_row(visible(choice.checkpointing), *held, amount(choice.extra, Unit.FLOP).headline, taken, *more)
    return table


def _fits(choice: CheckpointingChoice) -> str:
    return "yes" if choice.fits else "no"

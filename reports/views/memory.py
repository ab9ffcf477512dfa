"""Memory on a terminal: what is saved for the backward, live bytes over the step, the statistics of the CUDA allocator, checkpoint files,
activation checkpointing and inference."""

from __future__ import annotations

from calc.derive.cuda_allocator import NOT_MEASURED
from calc.derive.live_bytes import Timeline
from calc.derive.result import Derivation
from calc.memory.checkpoint import Checkpoint, progress_parts
from calc.memory.checkpointing import CHOICES, CheckpointingChoice, CheckpointingComparison, compared
from calc.memory.formulas import SAVING_INTERVAL
from calc.memory.inference import Inference
from calc.memory.memory_summary import ALL, LARGE, METRICS, SMALL, STEPS, MemorySummary
from calc.platform.progress import Progress
from calc.symbolic.assignments import TYPED
from calc.symbolic.assignments import sizes_text as typed_sizes
from calc.symbolic.readable import readable
from calc.units import Unit
from reports.jobs import job
from reports.page.memory import LiveBytesView, PeakCrossoverRow, PeakIntervalRow, memory
from reports.typeset import numbers
from reports.typeset.numbers import bytes_text, integer
from reports.typeset.wording import sizes_text
from reports.views.answers import amount
from reports.views.explained import heading, text
from reports.writers.terminal import Cell, Line, Terminal, bold, dim, right


def show_saved(derivation: Derivation, out: Terminal) -> None:
    """The tensors saved for the backward, the bytes of each kind, and why."""
    heading(derivation, out)
    section = memory(derivation, None)
    if not section.saved:
        out.line("Nothing is saved for a backward.")
        return
    rows = []
    for tensor in section.saved:
        lines: list[Line] = [f"{tensor.tensor}: {tensor.shape}", dim(f"for {tensor.needed_by} at {tensor.module_path}: {tensor.because}")]
        lines += [dim(f"same storage as {tensor.same_as}")] if tensor.same_as else []
        form = text(tensor.formula) if tensor.formula is not None else dim("counted already")
        rows.append((tensor.value, tensor.share, form, lines))
    out.table((("Bytes", "right"), ("Share", "right"), "Closed form", "Saved for the backward"), rows)
    if section.saved_total is not None:
        out.line()
        out.line("activations.bytes = ", *amount(section.saved_total))


def show_peak(derivation: Derivation, timeline: Timeline | None, no_timeline: str, out: Terminal) -> None:
    """Live bytes at the landmarks of the step, what is alive at the peak, and where the peak is as one size changes. ``no_timeline`` says
    why there is no timeline."""
    heading(derivation, out)
    section = memory(derivation, timeline, no_timeline, derivation.peak_crossovers)
    if section.live_bytes is not None:
        _show_live_bytes(section.live_bytes, out)
    elif section.no_timeline:
        out.line(f"Live bytes over the step are not shown: {section.no_timeline}.")
    if section.peak_crossovers:
        out.line()
        heads = ("Size changed alone", ("Here", "right"), "The peak is", "Searched")
        out.table(heads, [(text(row.dim), row.value, _intervals(row), dim(row.searched)) for row in section.peak_crossovers])


def _show_live_bytes(view: LiveBytesView, out: Terminal) -> None:
    out.line(bold(view.finding))
    out.line(f"{view.largest} {view.note}", style="dim")
    out.line()
    heads = [name if kind == "text" else (name, "right") for name, kind in view.columns]
    rows: list[tuple[Cell, ...]] = [
        ((row.name, bold(f" ({row.mark})" if row.mark else ""), dim(f" {row.after}")), row.total, *row.values) for row in view.landmarks
    ]
    out.table(heads, rows)
    out.line()
    heads = [("Bytes", "right"), ("Share", "right"), "Role", "Alive at the peak", ("Number × bytes", "right")]
    alive = (*view.alive, *((view.rest,) if view.rest is not None else ()))
    out.table(heads, [(row.total, row.share, row.role, row.name, row.each) for row in alive])
    if view.allocator:
        out.line()
        heads = ["CUDA allocator, simulated", *right("Live", "Allocated", "Reserved", "Segments")]
        out.table(heads, [(row.step, row.live, row.allocated, row.reserved, row.segments) for row in view.allocator])
        out.lines(*view.simulated, style="dim")


def _intervals(row: PeakCrossoverRow) -> list[Line]:
    return [_interval(interval) for interval in row.intervals]


def _interval(interval: PeakIntervalRow) -> Line:
    closed = "" if interval.formula is None else f", {text(interval.formula)} bytes"
    return f"for {interval.words}: {interval.at}{closed}{' (here)' if interval.is_current else ''}"


_POOLS = {ALL: "{}", LARGE: "  from large pool", SMALL: "  from small pool"}


def show_summary(summary: MemorySummary, out: Terminal) -> None:
    """The table of ``torch.cuda.memory_summary``, in bytes and numbers of blocks."""
    out.line(bold(summary.model), f" after {STEPS} steps: {sizes_text(summary.sizes)}")
    rows = [
        (
            _POOLS[pool].format(METRICS[metric]),
            *map(integer, (statistic.current, statistic.peak, statistic.allocated, statistic.freed)),
        )
        for metric, pools in summary.statistics.items()
        for pool, statistic in pools.items()
    ]
    out.table(("Metric, in bytes or blocks", *right("Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed")), rows)
    out.line(f"{NOT_MEASURED[0].upper()}{NOT_MEASURED[1:]}. Compare torch.cuda.memory_summary() after the second step.", style="dim")
    out.line(
        "Requested memory is exact; blocks and segments follow torch's rules for one stream. Workspaces and the context come on top.",
        style="dim",
    )


# -- napkin checkpoint ------------------------------------------------------------------------------------------------


def show_checkpoint(saving: Checkpoint, out: Terminal) -> None:
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
    out.line(f"in a real run at {typed_sizes(saving.run_at, TYPED)}{drawn}", style="dim")
    for verdict in saving.verdicts:
        derived, measured = ("unknown" if n is None else integer(n) for n in (verdict.derived, verdict.measured))
        out.line(f"{verdict.verdict}: {verdict.quantity}, derived {derived}, measured {measured}: {verdict.because}")
    if saving.interval is not None:
        i = saving.interval
        out.line()
        out.line(f"save every √(2 · {i.save:g} s · {i.failure:g} s) = {i.seconds:,.0f} s: {100 * i.lost:.2g} % of the time is lost")
        out.line(f"{SAVING_INTERVAL.error}. Source: {SAVING_INTERVAL.source}", style="dim")


# -- napkin inference -------------------------------------------------------------------------------------------------


def show_inference(inference: Inference, out: Terminal) -> None:
    """Bytes in closed form with their reasons, and the checks."""
    sizes = sizes_text(inference.sizes)
    out.line(bold(inference.model), f", in use: {sizes}")
    for title, part in (("weights", inference.weights), ("keys and values", inference.cache)):
        out.line()
        if part is None:
            out.line(bold(title), f": {inference.unknown}")
            continue
        out.line(bold(title), f" in {part.format} = {readable(part.expr)}")
        rows = [(line.label, integer(line.value), readable(line.expr), dim(line.because)) for line in part.lines]
        out.table(("What", ("Bytes", "right"), "Closed form", "Because"), rows)
        out.line(f"{title} = ", *amount(numbers.amount(part.value, Unit.BYTE)))
    out.line("weights are the parameters: buffers, as the running averages of a batch norm, are not counted", style="dim")
    if inference.total is not None:
        out.line()
        out.line("together ", *amount(numbers.amount(inference.total, Unit.BYTE)), "; temporaries of operators are not included")
    out.line()
    for check in inference.checks:
        at = typed_sizes(check.sizes, TYPED)
        both = (integer(number or 0) for number in (check.derived, check.measured))
        counts = "" if check.derived is None else ": derived {}, measured {} bytes in fp32".format(*both)
        why = f": {check.because}" if check.because else ""
        out.line(f"{check.verdict}{counts} at {at} [{check.instrument}{why}]", style="dim")


# -- napkin checkpointing ---------------------------------------------------------------------------------------------


def compare_choices(request: job.Request, limit: int | None, progress: Progress) -> CheckpointingComparison:
    """Every choice for the step of ``request``; a model may lack the modules that one of them recomputes."""
    return compared(*job.derive_each(request, "checkpointing", CHOICES, progress), limit)


def show_choices(comparison: CheckpointingComparison, out: Terminal) -> None:
    """A row for each choice, then what it saves and recomputes in closed form."""
    sizes = sizes_text(comparison.sizes)
    out.line(bold(comparison.model), f": {sizes}")
    out.line()
    limited = comparison.limit is not None
    heads = ("Peak", "Activations", "Extra FLOP", "Best from device memory of", *(("Fits", "Largest B") if limited else ()))
    rows = [_choice_row(choice, limited) for choice in comparison.choices if not choice.refused]
    out.table(("Checkpointing", *right(*heads)), rows)
    out.line()
    for choice in comparison.choices:
        if choice.refused:
            out.line(choice.refused, style="dim")
        elif choice.extra:
            saved, recomputed = f"saves {readable(choice.saved)} bytes of activations", f"recomputes {readable(choice.recomputed)} FLOP"
            out.line(f"{choice.checkpointing} {saved} and {recomputed}", style="dim")
    if comparison.limit is not None:
        summary = "nothing fits" if comparison.best is None else f"{comparison.best} fits and recomputes the least"
        out.line(bold(summary), f" under {bytes_text(comparison.limit)}")


def _choice_row(choice: CheckpointingChoice, limited: bool) -> tuple[str, ...]:
    interval = "never" if choice.best_from is None else bytes_text(choice.best_from)
    peak, activations = (numbers.amount(number, Unit.BYTE).text for number in (choice.peak, choice.activations))
    largest = "" if choice.largest_batch is None else integer(choice.largest_batch) if choice.largest_batch else "none"
    columns = ("yes" if choice.fits else "no", largest) if limited else ()
    return choice.checkpointing, peak, activations, numbers.amount(choice.extra, Unit.FLOP).headline, interval, *columns

"""``napkin derive --saved``, ``--peak`` and ``--memory-summary``, and ``napkin checkpoint`` on a terminal: what is saved for the
backward, live bytes over the step, the statistics of the CUDA allocator, and checkpoint files."""

from __future__ import annotations

from calc.derive.cuda_allocator import NOT_MEASURED
from calc.derive.live_bytes import Timeline
from calc.derive.result import Derivation
from calc.memory.checkpoint import Checkpoint, progress_parts
from calc.memory.formulas import SAVING_INTERVAL
from calc.memory.memory_summary import ALL, LARGE, METRICS, SMALL, STEPS, MemorySummary
from calc.symbolic.assignments import TYPED, sizes_text
from calc.units import Unit
from reports.page.memory import LiveBytesView, PeakCrossoverRow, PeakIntervalRow, memory
from reports.typeset import numbers
from reports.typeset.numbers import integer
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

"""A page on a terminal, through rich. Names are shown with their control characters made visible, and never as markup."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TextIO, cast

from rich.box import Box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from calc.memory.formulas import SAVING_INTERVAL
from calc.memory.inference import Inference
from calc.memory.saving import Saving
from calc.units import Unit
from reports.page.model import Badge, Chapter, CheckTally, CoverageSection, LiveBytesView, Page, StepView, TypesetFormula
from reports.page.rule_table import RuleEntry
from reports.typeset.escape import visible
from reports.typeset.numbers import Amount, amount, integer
from reports.writers.columns import columns

_STYLES = {"good": "green", "proved": "cyan", "bad": "bold red", "open": "yellow"}
_RULE = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
PIPE_WIDTH = 140


class _Trimmed:
    """A stream that drops the spaces with which rich fills lines up: a file or a pipe has no width to fill."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._open = ""

    def write(self, text: str) -> int:
        *lines, self._open = (self._open + text).split("\n")
        self._stream.write("".join(f"{line.rstrip()}\n" for line in lines))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


class _Console(Console):
    """rich leaves with status 1 when a reader closes the pipe; here 1 means that a check failed."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """Standard output: as wide as the terminal, and wide enough to read where it is a file or a pipe."""
    found = _Console(highlight=False)
    return found if found.is_terminal else _Console(file=cast(TextIO, _Trimmed(sys.stdout)), highlight=False, width=PIPE_WIDTH)


def show_derivation(page: Page, out: Console) -> None:
    """The answers, then every quantity with its closed form."""
    _head(page, out)
    answers = Table.grid(padding=(0, 3))
    for tile in page.tiles:
        shown = _amount(tile.answer) if tile.answer is not None else Text(f"unknown: {visible(tile.unknown)}")
        answers.add_row(Text(tile.question), shown)
    out.print(Padding(answers, (0, 0, 1, 0)))
    table = _table("Quantity", ("Value", "right"), "Closed form")
    for a in page.answers:
        value = a.value.text if a.value is not None else "unknown"
        form = _formula(a.formula, a.note) if a.formula is not None else Text(visible(a.unknown), style="dim")
        table.add_row(Text(visible(a.quantity)), Text(value), form)
    out.print(table)
    out.print(Text(f"coverage: {page.coverage.summary}", style="dim"))
    for row in page.assumptions:
        words = "".join(row.formula.plain) if row.formula is not None else row.words
        out.print(Text(f"assumes {visible(words)}: {visible(row.because)}", style="dim"))
    for note in page.notes:
        out.print(Text(f"note: {visible(note)}", style="dim"))
    if page.rules_of_thumb:
        out.print()
        out.print(_thumbs(page))


def _thumbs(page: Page) -> Table:
    """Rules of thumb beside the exact counts."""
    table = _table("Rule of thumb", ("Says", "right"), ("Exact", "right"), ("Off by", "right"), "It stands for")
    for t in page.rules_of_thumb:
        numbers = (Text(t.value.text), Text(t.exact.text), Text(t.off))
        table.add_row(Text(visible(t.name)), *numbers, Text(visible(t.stands_for), style="dim"))
    return table


def show_quantity(page: Page, quantity: str, out: Console) -> None:
    """Every step of one quantity, readable from the first to its total."""
    chapter = next(c for c in page.chapters if c.quantity == quantity)
    _head(page, out)
    out.print(Text.assemble((visible(chapter.quantity), "bold"), f": {visible(chapter.meaning)}"))
    if chapter.value is None:
        out.print(Text(f"unknown: {visible(chapter.unknown)}"))
        return
    if chapter.formula is None:
        out.print(Text.assemble(_amount(chapter.value), f" {visible(chapter.unknown)}"))
        return
    for step in chapter.steps:
        out.print()
        _step(step, out)
    out.print()
    _total(chapter, out)


def show_thumb(page: Page, name: str, out: Console) -> None:
    """The steps from one rule of thumb to the exact count."""
    _head(page, out)
    for t in page.rules_of_thumb:
        if t.name == name:
            out.print(Text.assemble((visible(t.name), "bold"), f": {visible(t.statement)} ({visible(t.letters)})"))
            said = f"It stands for {t.stands_for}, and assumes: {t.assumes}. Source: {t.source.words}."
            out.print(Text(visible(said), style="dim"))
            for step in t.steps:
                out.print()
                _step(step, out)
            if not t.steps:
                out.print(Text.assemble("rule ", _amount(t.value), ", exact ", _amount(t.exact)))
    for e in page.inapplicable_rules:
        if e.name == name:
            out.print(Text.assemble((visible(e.name), "bold"), f": {visible(e.statement)}. It {visible(e.reason)}."))


def show_checks(page: Page, out: Console) -> None:
    """The tally, then each verdict with both numbers."""
    _headline(page, out)
    out.print(tally(page.tally))
    _exchanged(page, out)
    out.print(Text(f"{visible(page.model)} at {visible(page.tally.sizes)}, {visible(page.subtitle)}", style="dim"))
    if page.tally.why:
        out.print(Text(f"these sizes: {visible(page.tally.why)}; -d NAME=SIZE sets others", style="dim"))
    out.print()
    counted = (("Derived", "right"), ("Measured", "right"), ("Difference", "right"))
    table = _table("Verdict", "Quantity", *counted, "Tolerance", ("Note", "right"))
    for row in page.checks:
        counts = (Text(row.derived), Text(row.measured), Text(row.difference))
        found = (*counts, Text(visible(row.tolerance), style="dim"), Text(row.note, style="dim"))
        table.add_row(_badge(row.badge), Text(visible(row.quantity)), *found)
    out.print(table)
    out.print()
    notes = Table.grid(padding=(0, 1))
    for number, note in enumerate(page.check_notes, 1):
        notes.add_row(Text(f"{number}.", style="dim"), Text(visible(note), style="dim"))
    out.print(notes)


def _exchanged(page: Page, out: Console) -> None:
    """Where torch runs other kernels by default, before any number."""
    for sentence in page.exchanged:
        out.print(Text(visible(sentence)))


def tally(found: CheckTally) -> Text:
    """The first line of a check."""
    if not found.ran:
        return Text(f"checks were not run: {visible(found.why)}", style=_STYLES["open"])
    words = ", ".join(f"{count} {word}" for count, word in found.counts)
    return Text(words, style=_STYLES[found.tone])


def show_saved(page: Page, out: Console) -> None:
    """The tensors kept for the backward, the bytes of each kind, and why."""
    _head(page, out)
    if not page.memory.saved:
        out.print(Text("Nothing is kept for a backward."))
        return
    table = _table(("Bytes", "right"), ("Share", "right"), "Closed form", "Kept for the backward")
    for s in page.memory.saved:
        form = _formula(s.formula) if s.formula is not None else Text("counted already", style="dim")
        lines = [f"{s.tensor}: {s.shape}", f"for {s.needed_by} at {s.site}: {s.because}"]
        lines += [f"same storage as {s.same_as}"] if s.same_as else []
        first, *rest = (visible(line) for line in lines)
        table.add_row(Text(s.value), Text(s.share), form, Text.assemble(first, *((f"\n{line}", "dim") for line in rest)))
    out.print(table)
    if page.memory.saved_total is not None:
        out.print()
        out.print(Text.assemble("activations.bytes = ", _amount(page.memory.saved_total)))


def show_peak(page: Page, out: Console) -> None:
    """Live bytes at the landmarks of the step, what is alive at the peak, and which moment is the peak as one size moves."""
    _head(page, out)
    timing = page.memory.live_bytes
    if timing is not None:
        out.print(Text(visible(timing.finding), style="bold"))
        out.print(Text(visible(f"{timing.largest} {timing.note}"), style="dim"))
        out.print()
        out.print(_landmarks(timing))
        out.print()
        table = _table(("Bytes", "right"), ("Share", "right"), "Role", "Alive at the peak", ("Number × bytes", "right"))
        for a in (*timing.alive, *((timing.rest,) if timing.rest is not None else ())):
            table.add_row(Text(a.total), Text(a.share), Text(visible(a.role)), Text(visible(a.name)), Text(a.each))
        out.print(table)
        _show_allocator(timing, out)
    elif page.memory.no_timeline:
        out.print(Text(f"Live bytes over the step are not shown: {visible(page.memory.no_timeline)}."))
    if page.memory.peak_crossovers:
        out.print()
        out.print(_takeovers(page))


def _show_allocator(timing: LiveBytesView, out: Console) -> None:
    """What the CUDA allocator would make of the steps, and what that leaves out."""
    if not timing.allocator:
        return
    out.print()
    table = _table("CUDA allocator, simulated", *((name, "right") for name in ("Live", "Allocated", "Reserved", "Segments")))
    for row in timing.allocator:
        table.add_row(Text(row.step), *(Text(cell) for cell in (row.live, row.allocated, row.reserved, row.segments)))
    out.print(table)
    for line in timing.simulated:
        out.print(Text(visible(line), style="dim"))


def _landmarks(timing: LiveBytesView) -> Table:
    table = _table(*(name if kind == "text" else (name, "right") for name, kind in timing.columns))
    for i in timing.landmarks:
        name = Text.assemble(visible(i.name), (f" ({i.mark})" if i.mark else "", "bold"), (f" {visible(i.after)}", "dim"))
        table.add_row(name, *(Text(value) for value in (i.total, *i.values)))
    return table


def _takeovers(page: Page) -> Table:
    table = _table("Moved alone", ("Here", "right"), "The peak is", "Searched")
    for t in page.memory.peak_crossovers:
        lines = (f"for {r.words}: {visible(r.at)}{' (here)' if r.here else ''}" for r in t.intervals)
        table.add_row(_formula(t.dim), Text(t.value), Text("\n".join(lines)), Text(visible(t.searched), style="dim"))
    return table


def show_coverage(model: str, found: CoverageSection, out: Console) -> None:
    """How much of a step is counted, then every operator; of what is refused, where it runs."""
    out.print(Text.assemble((visible(model), "bold"), ": ", ("accepted", "green") if found.accepted else ("refused", "bold red")))
    out.print(Text(f"{found.summary}."))
    out.print()
    kinds = _table("Kind", *((name, "right") for name in ("Operators", "Calls", "Of all calls", "FLOP", "Of all FLOP")))
    for k in found.kinds:
        kinds.add_row(Text(k.kind), *(Text(cell) for cell in (k.operators, k.calls, k.share, k.flops, k.flops_share)))
    out.print(kinds)
    out.print()
    table = _table("Operator", "Kind", "Runs", *((name, "right") for name in ("Calls", "Of all", "FLOP", "Of all")), "Because")
    for r in found.rows:
        runs = _formula(r.runs) if r.runs is not None else Text("unknown")
        counts = (Text(cell) for cell in (r.value, r.share, r.flops, r.flops_share))
        kind = Text(r.kind, style=_STYLES["bad"] if r.places else "")
        table.add_row(Text(visible(r.operator)), kind, runs, *counts, Text(visible(r.because), style="dim"))
    out.print(table)
    for r in found.rows:
        if r.places:
            out.print()
            out.print(Text(f"{visible(r.operator)} runs", style="bold"))
            for place in r.places:
                out.print(Padding(Text(f"at {visible(place)}"), (0, 0, 0, 2)))


def show_inference(found: Inference, out: Console) -> None:
    """Weights and cache line by line, then what a run kept."""
    sizes = ", ".join(f"{name} = {value:,}" for name, value in found.sizes.items())
    out.print(Text.assemble((visible(found.model), "bold"), f", in use: {sizes}"))
    for title, made in (("weights", found.weights), ("keys and values", found.cache)):
        out.print()
        if made is None:
            out.print(Text.assemble((title, "bold"), f": {visible(found.unknown)}"))
            continue
        out.print(Text.assemble((title, "bold"), f" in {made.format} = {visible(made.expr)}"))
        table = _table("What", ("Bytes", "right"), "Closed form", "Because")
        for line in made.lines:
            because = Text(visible(line.because), style="dim")
            table.add_row(Text(visible(line.what)), Text(integer(line.value)), Text(visible(line.expr)), because)
        out.print(table)
        out.print(Text.assemble(f"{title} = ", _amount(amount(made.value, Unit.BYTE))))
    out.print(Text("weights are the parameters: buffers, as the running averages of a batch norm, are not counted", style="dim"))
    if found.total is not None:
        out.print()
        out.print(Text.assemble("together ", _amount(amount(found.total, Unit.BYTE)), "; what operators hold while they run is not in it"))
    out.print()
    for check in found.checks:
        at = ", ".join(f"{name}={value}" for name, value in check.sizes.items())
        both = (integer(number or 0) for number in (check.derived, check.measured))
        numbers = "" if check.derived is None else ": derived {}, measured {} bytes in fp32".format(*both)
        why = f": {check.because}" if check.because else ""
        out.print(Text(visible(f"{check.verdict}{numbers} at {at} [{check.instrument}{why}]"), style="dim"))


def show_saving(found: Saving, out: Console) -> None:
    """The file, what a real run of small sizes says of it, and how often to save."""
    sizes = ", ".join(f"{name} = {value:,}" for name, value in found.sizes.items())
    out.print(Text.assemble((visible(found.model), "bold"), f", a checkpoint: {sizes}"))
    out.print()
    table = _table("safetensors", ("Bytes", "right"), "Because")
    table.add_row(
        Text("payload"), Text(integer(found.file.payload)), Text("model, optimizer state and iteration, each memory once", style="dim")
    )
    table.add_row(Text("container"), Text(integer(found.file.overhead)), Text(visible(found.file.because), style="dim"))
    out.print(table)
    out.print(Text.assemble("file = ", _amount(amount(found.file.total, Unit.BYTE))))
    out.print()
    at = ", ".join(f"{name}={value}" for name, value in found.run_at.items())
    out.print(Text(f"in a real run at {at}", style="dim"))
    for v in found.verdicts:
        both = (integer(n) if n is not None else "unknown" for n in (v.derived, v.measured))
        out.print(Text(visible("{}: {}, derived {}, measured {}: {}".format(v.verdict, v.what, *both, v.because))))
    if found.interval is not None:
        i = found.interval
        out.print()
        out.print(Text(f"save every √(2 · {i.save:g} s · {i.failure:g} s) = {i.every:,.0f} s: {100 * i.lost:.2g} % of the time is lost"))
        out.print(Text(f"{SAVING_INTERVAL.error}. Source: {SAVING_INTERVAL.source}", style="dim"))


def show_rows(rows: Iterable[tuple[str, ...]], out: Console) -> int:
    """Columns without a heading, for lists; returns how many rows there were."""
    table = Table.grid(padding=(0, 3))
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    if table.row_count:
        out.print(table)
    return table.row_count


def show_rules(entries: Iterable[RuleEntry], out: Console) -> int:
    """Each rule with all that is stated of it, then the operators that are free; returns how many there were."""
    count, free = 0, []
    for e in entries:
        count += 1
        if e.kind == "free":
            free.append((e.operator, "free", e.statement))
            continue
        out.print(Text.assemble((visible(e.operator), "bold"), (f"  counted, {visible(e.family)}", "dim")))
        lines = Table.grid(padding=(0, 3))
        for name in ("statement", "shapes", "source", "convention", "test"):
            if getattr(e, name):
                lines.add_row(Text(name, style="dim"), Text(visible(getattr(e, name))))
        out.print(Padding(lines, (0, 0, 1, 2)))
    show_rows(free, out)
    return count


def _headline(page: Page, out: Console) -> None:
    if page.headline:
        out.print(Text(visible(page.headline), style="yellow"))


def _head(page: Page, out: Console) -> None:
    _headline(page, out)
    out.print(Text.assemble((visible(page.model), "bold"), f", {page.step}: {visible(page.subtitle)}"))
    out.print(Text(visible(page.sizes), style="dim"))
    _exchanged(page, out)
    out.print()


def _step(step: StepView, out: Console) -> None:
    out.print(Text.assemble((f"{step.number}  ", "dim"), (visible(step.title), "bold")))
    if step.alike:
        out.print(Padding(Text(f"also {', '.join(visible(title) for title in step.alike)}", style="dim"), (0, 0, 0, 4)))
    lines = Table.grid(padding=(0, 1))
    for line in _sides(step):
        lines.add_row(*line)
    out.print(Padding(lines, (0, 0, 0, 2)))
    checked = f": {visible(step.checked)}" if step.checked else ""
    out.print(Padding(Text(f"because {visible(step.because)}", style="dim"), (0, 0, 0, 4)))
    out.print(Padding(Text.assemble(_badge(step.badge), (f"{checked}, rule {visible(step.rule.words)}", "dim")), (0, 0, 0, 4)))


def _sides(step: StepView) -> Iterator[tuple[RenderableType, RenderableType]]:
    yield Text(" "), _stacked(step.before)
    yield Text("="), _formula(step.after)
    yield Text("="), _formula(step.substituted)
    yield Text("="), _amount(step.value)


def _total(chapter: Chapter, out: Console) -> None:
    if chapter.formula is None or chapter.value is None:
        return
    lines = Table.grid(padding=(0, 1))
    lines.add_row(Text(visible(chapter.quantity), style="bold"), Text("="), _formula(chapter.formula))
    if chapter.here is not None:
        lines.add_row(Text(""), Text("="), _formula(chapter.here, chapter.note))
    lines.add_row(Text(""), Text("="), _amount(chapter.value))
    out.print(lines)


def _formula(formula: TypesetFormula, note: str = "") -> Text:
    written = Text(visible(" ".join(formula.plain)))
    return written.append(f"  ({visible(note)})", style="dim") if note else written


def _stacked(formula: TypesetFormula) -> Text:
    return Text("\n".join(visible(term) for term in formula.plain)) if formula.rows else _formula(formula)


def _amount(found: Amount) -> Text:
    return Text.assemble((found.text, "bold"), *(f"  {reading}" for reading in found.readings))


def _badge(badge: Badge) -> Text:
    return Text(f"{badge.sign} {visible(badge.words)}", style=_STYLES[badge.tone])


def _table(*heads: str | tuple[str, str]) -> Table:
    return columns(*heads, box=_RULE, padding=(0, 1))

"""A training run on a terminal: a bar on standard error while it runs, and what came of it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import click
from rich.console import Console
from rich.text import Text

from calc.performance.training_run import Progress, TrainingRun
from reports.typeset.escape import visible
from reports.typeset.numbers import duration, integer, percent, rate
from reports.writers.columns import columns

_LINES = 10
_FLOPS = ("flops.forward.matmul", "flops.backward.matmul", "flops.optimizer.matmul")


@contextlib.contextmanager
def progress(steps: int, unit: str) -> Iterator[Callable[[Progress], None]]:
    """Told of every step: a moving bar on a terminal, else about ten lines in all."""
    if not sys.stderr.isatty():
        every = max(1, steps // _LINES)

        def line(at: Progress) -> None:
            if at.done.step % every == 0 or at.done.step in (1, at.of) or _wrong(at):
                click.echo(f"step {at.done.step} of {at.of}: {_words(at, unit)}", err=True)

        yield line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    parts = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[words]}"))
    with Bar(*parts, console=Console(stderr=True)) as bar:
        task = bar.add_task("training", total=steps, words="")
        yield lambda at: bar.update(task, completed=at.done.step, words=_words(at, unit))


def _words(at: Progress, unit: str) -> str:
    words = [f"loss {at.done.loss:.4g}"]
    if at.per_second is not None:
        words.append(rate(at.per_second, unit))
    if at.mfu is not None:
        words.append(f"MFU {percent(at.mfu)}")
    if at.verdict is not None:
        words.append("accounts differ from the derivation" if _wrong(at) else "accounts equal the derivation")
    return ", ".join(words)


def _wrong(at: Progress) -> bool:
    return at.verdict is not None and bool(at.verdict.wrong or at.verdict.account.because)


def show(found: TrainingRun, out: Console) -> None:
    """The loss, what accounted steps took beside what was derived, and throughput."""
    first, last = found.fell
    sizes = ", ".join(f"{name}={value}" for name, value in found.sizes.items())
    options = ", ".join(f"{name} {value}" for name, value in found.demo.options.to_json().items())
    out.print(Text.assemble((found.demo.model, "bold"), f" at {sizes}: {options}, on {visible(str(found.machine['device']['name']))}"))
    since = f", of which {found.begun_at} before the checkpoint" if found.begun_at else ""
    fell = "fell" if last < first else "did not fall"
    out.print(Text(f"{len(found.losses)} steps{since}; the loss {fell}: {first:.4g} in the first tenth, {last:.4g} in the last"))
    _accounts(found, out)
    times = found.times
    if times is None:
        out.print(Text("throughput: unknown, because too few steps were timed", style="dim"))
        return
    low, high = times.quartiles
    spread = f"middle half {duration(low / 10**9)} to {duration(high / 10**9)}"
    each = f"{duration(times.seconds)} a step ({spread}, {len(times.nanoseconds)} steps without instruments)"
    share = f", MFU {percent(found.mfu)} of {rate(found.ceiling.rate, 'FLOP')}" if found.mfu is not None and found.ceiling.rate else ""
    out.print(Text(f"{rate(found.throughput.amount / times.seconds, found.throughput.unit)}{share}: {each}"))
    if found.mfu is None and found.ceiling.because:
        out.print(Text(visible(f"MFU is unknown, because {found.ceiling.because}"), style="dim"))


def _accounts(found: TrainingRun, out: Console) -> None:
    """Derived beside measured. All steps that agree are one row."""
    if not found.verdicts:
        out.print(Text("no step of this run was accounted for: give a smaller --every", style="dim"))
        return
    table = columns("Quantity", ("Derived", "right"), ("Measured", "right"), "Steps")
    steps = [verdict.step for verdict in found.verdicts]
    for name in (*_FLOPS, "memory.peak.first_step", "memory.peak"):
        of = [step for step in steps if name in _FLOPS or (step == 1) == name.endswith("first_step")]
        wrong = {v.step: v.wrong[name][1] for v in found.verdicts if name in v.wrong}
        same = [step for step in of if step not in wrong]
        if same:
            table.add_row(name, integer(found.expected[name]), integer(found.expected[name]), f"equal in {_counted(same)}")
        for step, value in wrong.items():
            table.add_row(name, integer(found.expected[name]), integer(value), Text(f"differs in step {step}", style="bold red"))
    out.print(table)
    for verdict in found.verdicts:
        if verdict.account.because:
            out.print(Text(visible(f"step {verdict.step} is not accounted for: {verdict.account.because}"), style="bold red"))
    said = "every accounted step took exactly what was derived" if found.agrees else "the accounts do not equal the derivation"
    out.print(Text(said, style="green" if found.agrees else "bold red"))


def _counted(steps: list[int]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"{len(steps)} steps, {steps[0]} to {steps[-1]}"

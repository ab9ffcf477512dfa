"""A training run on a terminal: a bar on standard error while it runs, and what came of it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import click

from calc.performance.training_run import Progress, TrainingRun
from calc.symbolic.assignments import TYPED, sizes_text
from reports.typeset.numbers import duration, integer, percent, rate
from reports.writers.terminal import Line, Styled, Terminal, bold

_LINES = 10
_FLOPS = ("flops.forward.matmul", "flops.backward.matmul", "flops.optimizer.matmul")


@contextlib.contextmanager
def progress(steps: int, unit: str) -> Iterator[Callable[[Progress], None]]:
    """What is called after every step: it moves a bar on a terminal, and else writes about ten lines in all."""
    if not sys.stderr.isatty():
        every = max(1, steps // _LINES)

        def line(at: Progress) -> None:
            if at.step.step % every == 0 or at.step.step in (1, at.of) or (at.accounted and not at.accounted.agrees):
                click.echo(f"step {at.step.step} of {at.of}: {_words(at, unit)}", err=True)

        yield line
        return

    def described(at: Progress | None) -> str | None:
        return None if at is None else _words(at, unit)

    shown = click.progressbar(
        length=steps, label="training", show_eta=False, show_percent=False, show_pos=True, item_show_func=described, file=sys.stderr
    )
    with shown as bar:
        yield lambda at: bar.update(at.step.step - bar.pos, at)


def _words(at: Progress, unit: str) -> str:
    parts = [f"loss {at.step.loss:.4g}"]
    if at.per_second is not None:
        parts.append(rate(at.per_second, unit))
    if at.mfu is not None:
        parts.append(f"MFU {percent(at.mfu)}")
    if at.accounted is not None:
        parts.append("accounts equal the derivation" if at.accounted.agrees else "accounts differ from the derivation")
    return ", ".join(parts)


def show(run: TrainingRun, out: Terminal) -> None:
    """The loss, measured beside derived numbers of accounted steps, and throughput."""
    first, last = run.fell
    sizes = sizes_text(run.sizes, TYPED)
    options = ", ".join(f"{name} {value}" for name, value in run.demo.options.to_json().items())
    out.line(bold(run.demo.model), f" at {sizes}: {options}, seed {run.seed}, on {run.machine['device']['name']}")
    since = f", of which {run.begun_at} before the checkpoint" if run.begun_at else ""
    fell = "fell" if last < first else "did not fall"
    out.line(f"{len(run.losses)} steps{since}; the loss {fell}: {first:.4g} in the first tenth, {last:.4g} in the last")
    _show_accounts(run, out)
    times = run.times
    if times is None:
        out.line("throughput: unknown, because too few steps were timed", style="dim")
        return
    low, high = times.quartiles
    spread = f"middle half {duration(low / 10**9)} to {duration(high / 10**9)}"
    each = f"{duration(times.seconds)} a step ({spread}, {len(times.nanoseconds)} steps without instruments)"
    share = f", MFU {percent(run.mfu)} of {rate(run.ceiling.rate, 'FLOP')}" if run.mfu is not None and run.ceiling.rate else ""
    out.line(f"{rate(run.throughput.amount / times.seconds, run.throughput.unit)}{share}: {each}")
    if run.mfu is None and run.ceiling.because:
        out.line(f"MFU is unknown, because {run.ceiling.because}", style="dim")


def _show_accounts(run: TrainingRun, out: Terminal) -> None:
    """Derived beside measured. All steps that agree are one row."""
    if not run.accounted:
        out.line("no step of this run was accounted for: give a smaller --every", style="dim")
        return
    steps = [accounted.step for accounted in run.accounted]
    rows: list[tuple[Line, ...]] = []
    for name in (*_FLOPS, "memory.peak.first_step", "memory.peak"):
        of = [step for step in steps if name in _FLOPS or (step == 1) == name.endswith("first_step")]
        wrong = {accounted.step: v.measured for accounted in run.accounted for v in accounted.failed if v.quantity == name}
        same = [step for step in of if step not in wrong]
        derived = integer(run.expected[name])
        if same:
            rows.append((name, derived, derived, f"equal in {_counted(same)}"))
        rows += [(name, derived, integer(value or 0), Styled(f"differs in step {step}", "bold red")) for step, value in wrong.items()]
    out.table(("Quantity", ("Derived", "right"), ("Measured", "right"), "Steps"), rows)
    for accounted in run.accounted:
        if accounted.account.because:
            out.line(f"step {accounted.step} is not accounted for: {accounted.account.because}", style="bold red")
    text = "every accounted step took exactly what was derived" if run.agrees else "the accounts do not equal the derivation"
    out.line(text, style="green" if run.agrees else "bold red")


def _counted(steps: list[int]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"{len(steps)} steps, {steps[0]} to {steps[-1]}"

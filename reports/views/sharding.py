"""A layout on a terminal: memory by kind with its steps, traffic by collective with its time, what must hold; and the best of all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from rich.console import Console
from rich.table import Table
from rich.text import Text

from calc.capacity.sharding.account import UNSURE, Account, Stage
from calc.capacity.sharding.layout import SEQUENCE
from calc.capacity.sharding.memory import KINDS, WORDS
from calc.capacity.sharding.search import Ranking, parts_of_step
from calc.symbolic.worked import WorkedInput, WorkedStep
from calc.units import Unit
from reports.typeset.escape import visible
from reports.typeset.numbers import amount, integer, significant

_LONG, _LITTLE = 10**15, Fraction(1, 1000)  # whole numbers below are written out, fractions between as decimals
_STREAM = "Y"  # shown with the traffic, which is a multiple of it
_STAGES = {"only": "", "first": "first stage", "inner": "second stage, the fullest in the middle", "last": "last stage"}


def show(found: Account, out: Console) -> None:
    """One layout with all its lines."""
    _head(found, out)
    out.print(_memory(found))
    _unknown(found, out)
    if found.machine is not None:
        out.print(Text(f"{visible(found.machine.name)} has {_bytes(found.machine.memory)}: {found.fit}{_unsure(found)}", style="bold"))
        if found.step is None:
            out.print(Text("time is unknown: which products its layers make is not known apart", style="dim"))
    stage = found.fullest
    _steps(f"Memory, step by step{_of(stage, found)}", _memory_lines(stage), out)
    if stage.traffic:
        out.print()
        out.print(_traffic(stage, found))
        for line in stage.reckoning.lines:
            if line.letter == _STREAM:
                out.print(_step_text(line))
    if found.step is not None:
        _steps(f"Time{_of(stage, found)}", _time_lines(stage), out)
        _steps("Time of a step", found.step.lines, out)
    out.print()
    out.print(_letters(found))
    for note in found.step.notes if found.step is not None else ():
        out.print(Text(note, style="dim"))
    out.print()
    out.print(Text("What must hold, and does:", style="bold"))
    for condition in found.conditions:
        out.print(Text(f"  {condition.expr}: {condition.because}", style="dim"))


def show_search(found: Ranking, out: Console) -> None:
    """The winner with its reason, the front, the runners-up, then the winner in full."""
    out.print(
        Text(f"{integer(found.counted)} layouts are valid, {integer(found.fitting)} of them fit. The fastest of those:", style="bold")
    )
    out.print(Text(f"  {found.winner.layout.words}"))
    for name, seconds in parts_of_step(found.winner).items():
        out.print(Text(f"  {_seconds(seconds)} {name}", style="dim"))
    out.print()
    out.print(_ranking("None is better in time, memory and cost at once than these", [(one, "") for one in found.front]))
    out.print()
    out.print(_ranking("Runners-up, one of each other division into ranks", [(one.account, one.because) for one in found.runners]))
    if found.larger is not None:
        out.print()
        what = f"{found.larger.layout.words}: {_seconds(_step(found.larger))} but {_bytes(found.larger.memory)} a device"
        out.print(Text(f"Faster, but too large: {what}"))
    out.print()
    show(found.winner, out)


def _head(found: Account, out: Console) -> None:
    words = found.layout.words or "one device"
    out.print(Text.assemble((visible(found.model.name), "bold"), f", {words}: {_many(found.layout.devices, 'devices')}"))
    out.print(Text(visible(f"{found.model.source}; {found.state.source}"), style="dim"))
    if found.layout.sequence != "off":
        out.print(Text(f"sequence={found.layout.sequence}: {SEQUENCE[found.layout.sequence]}", style="dim"))
    for note in found.model.notes:
        out.print(Text(f"note: {visible(note)}", style="dim"))
    out.print()


def _unknown(found: Account, out: Console) -> None:
    if found.model.only_data:
        unknown = "" if found.model.items else "activations, and what is gathered for a moment, are unknown; "
        out.print(Text(visible(f"{unknown}it is divided by data only: {found.model.only_data}"), style="dim"))


def _memory(found: Account) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
    table.add_column("Memory of a device")
    for stage in found.stages:
        table.add_column(_STAGES[stage.name] or "bytes", justify="right")
    kinds = [kind for kind in KINDS if any(kind in stage.kinds for stage in found.stages)]
    for kind in kinds:
        table.add_row(WORDS[kind], *(_bytes(stage.kinds.get(kind, 0)) for stage in found.stages))
    table.add_row("together", *(_bytes(stage.total) for stage in found.stages), style="bold")
    return table


def _unsure(found: Account) -> str:
    if found.fit != UNSURE:
        return ""
    return f": the sum is a bound from above, of which {_bytes(found.fullest.at_once)} are there at once for certain"


def _of(stage: Stage, found: Account) -> str:
    return f" ({_STAGES[stage.name]})" if len(found.stages) > 1 else ""


def _memory_lines(stage: Stage) -> list[WorkedStep]:
    lines = list(stage.reckoning.lines)
    return lines[: next(i for i, line in enumerate(lines) if line.letter == "M") + 1]


def _time_lines(stage: Stage) -> list[WorkedStep]:
    sent = {item.collective.letter for item in stage.traffic} | {_STREAM}
    return [line for line in stage.reckoning.lines[len(_memory_lines(stage)) :] if line.letter not in sent]


def _steps(title: str, lines: Sequence[WorkedStep], out: Console) -> None:
    out.print()
    out.print(Text(title, style="bold"))
    for line in lines:
        out.print(_step_text(line))


def _step_text(line: WorkedStep) -> Text:
    return Text.assemble(f"  {line.letter} = {line.expr} = {_value(line)}", (f"  {line.meaning}: {line.because}", "dim"))


def _traffic(stage: Stage, found: Account) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
    for name in (f"Traffic of a step{_of(stage, found)}", "among", "of"):
        table.add_column(name)
    table.add_column("sent", justify="right")
    table.add_column("as")
    for item in stage.traffic:
        of = item.collective
        as_words = Text.assemble(f"{of.letter} = {of.sent}", (f"  {of.because}", "dim"))
        table.add_row(of.kind, f"{of.axis} ranks", _bytes(item.payload), _bytes(item.sent), as_words)
    return table


def _letters(found: Account) -> Table:
    """Every letter in what is shown that is no line of its own: what was put in, with its source."""
    lines = [*found.fullest.reckoning.lines, *(found.step.lines if found.step is not None else ())]
    texts = [line.expr for line in lines] + [item.collective.sent for item in found.fullest.traffic] + [c.expr for c in found.conditions]
    used = set(re.findall(r"[A-Za-z_]\w*", " ".join(texts)))
    givens = {g.letter: g for g in (*found.fullest.reckoning.givens, *(found.step.givens if found.step is not None else ()))}
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
    for name in ("Letter", "value", "what it stands for", "from"):
        table.add_column(name, justify="right" if name == "value" else "left")
    for given in givens.values():
        if given.letter in used:
            table.add_row(given.letter, _given(given), given.meaning, Text(visible(given.source), style="dim"))
    return table


def _given(given: WorkedInput) -> str:
    if given.value.denominator == 1 and given.value < _LONG:
        return _many(int(given.value), given.unit)
    return f"{significant(given.value) if _LITTLE <= given.value < _LONG else f'{float(given.value):.4g}'} {given.unit}".rstrip()


def _many(number: int, unit: str) -> str:
    """``1 device``, ``2 devices``."""
    return f"{integer(number)} {unit.removesuffix('s') if number == 1 and '/' not in unit and len(unit) > 1 else unit}".rstrip()


def _ranking(title: str, found: Sequence[tuple[Account, str]]) -> Table:
    priced = any(one.step is not None and "cost" in one.step.values for one, _ in found)
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
    table.add_column(title)
    for name in ("step", "memory", *(["cost"] if priced else [])):
        table.add_column(name, justify="right")
    table.add_column("why not" if any(why for _, why in found) else "")
    for one, why in found:
        assert one.step is not None
        cost = [f"{float(one.step['cost']):.4g} USD"] if priced else []
        table.add_row(one.layout.words, _seconds(_step(one)), _bytes(one.memory), *cost, Text(why, style="dim"))
    return table


def _step(found: Account) -> Fraction:
    assert found.step is not None
    return found.step["step"]


def _value(line: WorkedStep) -> str:
    if line.unit == "bytes":
        return _bytes(line.value)
    if line.value.denominator == 1 and line.value < _LONG:
        return _many(int(line.value), line.unit if line.unit != "1" else "")
    if line.unit == "s":
        return _seconds(line.value)
    return f"{float(line.value):.4g} {line.unit if line.unit != '1' else ''}".rstrip()


def _bytes(value: Fraction | int) -> str:
    """Exact where it is a whole number, and how much that is."""
    whole = Fraction(value)
    if whole.denominator != 1:
        return f"{significant(whole / 10**9)} GB"
    read = amount(int(whole), Unit.BYTE)
    return f"{read.text} ({read.readings[0]})" if read.readings else read.text


def _seconds(value: Fraction) -> str:
    return f"{float(value):.4g} s"

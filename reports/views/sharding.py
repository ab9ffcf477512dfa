"""A layout on a terminal: memory by kind with its steps, traffic by collective with its time, what must hold; and the best of all."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from calc.capacity.sharding.account import UNSURE, Account, Stage, Traffic
from calc.capacity.sharding.layout import SEQUENCE
from calc.capacity.sharding.memory import KINDS, WORDS
from calc.capacity.sharding.search import Ranking, parts_of_step
from calc.derive.to_json import number
from calc.symbolic.expression import And, Compare, Expression, FunctionCall, Number, Or
from calc.symbolic.parser import free_names, parse
from calc.symbolic.readable import readable
from calc.symbolic.worked import WorkedInput, WorkedStep
from calc.units import Unit, singular
from reports.typeset.numbers import amount, integer, significant
from reports.writers.terminal import Head, Line, Terminal, bold, dim, right

_LONG, _LITTLE = 10**15, Fraction(1, 1000)  # whole numbers below are written out, fractions between as decimals
_STREAM = "Y"  # shown with the traffic, which is a multiple of it
_STAGES = {"only": "", "first": "first stage", "inner": "second stage, the fullest in the middle", "last": "last stage"}


def show(account: Account, out: Terminal) -> None:
    """One layout with all its lines."""
    _show_heading(account, out)
    _show_memory(account, out)
    if account.model.only_data:
        unknown = "" if account.model.items else "Activations, and temporarily gathered parameters, are unknown. "
        out.line(f"{unknown}It can be sharded by data only: {account.model.only_data}", style="dim")
    if account.machine is not None:
        memory = _bytes(account.machine.memory)
        out.line(bold(f"{account.machine.name} has {memory}: {account.fit}{_unsure(account)}"))
        if account.step is None:
            out.line("time is unknown: the matmuls of its layers are not known one by one", style="dim")
    stage = account.fullest
    _show_steps(f"Memory, step by step{_of(stage, account)}", _memory_lines(stage), out)
    if stage.traffic:
        out.line()
        _show_traffic(stage, account, out)
        out.lines(*(_step_line(line) for line in stage.calculation.steps if line.symbol == _STREAM))
    if account.step is not None:
        _show_steps(f"Time{_of(stage, account)}", _time_lines(stage), out)
        _show_steps("Time of a step", account.step.steps, out)
    out.line()
    _show_variables(account, out)
    out.lines(*(account.step.notes if account.step is not None else ()), style="dim")
    out.line()
    out.line(bold("Conditions, all met:"))
    out.lines(*(f"  {_condition(parse(condition.expr))}: {condition.because}" for condition in account.conditions), style="dim")


def show_search(ranking: Ranking, out: Terminal) -> None:
    """The winner with its reason, the front, the runners-up, then the winner in full."""
    out.line(bold(f"{integer(ranking.counted)} layouts are valid, {integer(ranking.fitting)} of them fit. The fastest of those:"))
    out.line(f"  {ranking.winner.layout.words}")
    out.lines(*(f"  {_seconds(seconds)} {name}" for name, seconds in parts_of_step(ranking.winner).items()), style="dim")
    out.line()
    _show_ranking("None is better in time, memory and cost at once than these", [(each, "") for each in ranking.front], out)
    out.line()
    runners = [(runner.account, runner.because) for runner in ranking.runners]
    _show_ranking("Runners-up, one of each other division into ranks", runners, out)
    if ranking.larger is not None:
        out.line()
        layout = f"{ranking.larger.layout.words}: {_seconds(_step(ranking.larger))} but {_bytes(ranking.larger.memory)} a device"
        out.line(f"Faster, but too large: {layout}")
    out.line()
    show(ranking.winner, out)


def _show_heading(account: Account, out: Terminal) -> None:
    layout = account.layout.words or "one device"
    out.line(bold(account.model.name), f", {layout}: {_many(account.layout.devices, 'devices')}")
    out.line(f"{account.model.source}; {account.state.source}", style="dim")
    if account.layout.sequence != "off":
        out.line(f"sequence={account.layout.sequence}: {SEQUENCE[account.layout.sequence]}", style="dim")
    out.lines(*(f"note: {note}" for note in account.model.notes), style="dim")
    out.line()


def _show_memory(account: Account, out: Terminal) -> None:
    heads = ("Memory of a device", *right(*(_STAGES[stage.name] or "bytes" for stage in account.stages)))
    kinds = [kind for kind in KINDS if any(kind in stage.kinds for stage in account.stages)]
    rows = [(WORDS[kind], *(_bytes(stage.kinds.get(kind, 0)) for stage in account.stages)) for kind in kinds]
    out.table(heads, [*rows, (bold("together"), *(bold(_bytes(stage.total)) for stage in account.stages))])


def _unsure(account: Account) -> str:
    if account.fit != UNSURE:
        return ""
    return f": the sum is an upper bound, of which at least {_bytes(account.fullest.at_once)} are live at once"


def _of(stage: Stage, account: Account) -> str:
    return f" ({_STAGES[stage.name]})" if len(account.stages) > 1 else ""


def _memory_lines(stage: Stage) -> list[WorkedStep]:
    lines = list(stage.calculation.steps)
    return lines[: next(i for i, line in enumerate(lines) if line.symbol == "M") + 1]


def _time_lines(stage: Stage) -> list[WorkedStep]:
    sent = {item.collective.symbol for item in stage.traffic} | {_STREAM}
    return [line for line in stage.calculation.steps[len(_memory_lines(stage)) :] if line.symbol not in sent]


def _show_steps(title: str, lines: Sequence[WorkedStep], out: Terminal) -> None:
    out.line()
    out.line(bold(title))
    out.lines(*map(_step_line, lines))


def _step_line(line: WorkedStep) -> Line:
    formula, value = readable(line.expr), _value(line)
    alone = formula == value or line.expr.isdecimal()
    return f"  {line.symbol} = {value if alone else f'{formula} = {value}'}", dim(f"  {line.meaning}: {line.because}")


_SIGNS = {">=": "≥", "<=": "≤", "==": "="}


def _condition(expr: Expression) -> str:
    """A condition in words: ``n·x·b divides B``, ``L ≥ p·v``, ``v = 1 or p > 1``."""
    match expr:
        case Or(parts):
            return " or ".join(f"({_condition(part)})" if isinstance(part, And) else _condition(part) for part in parts)
        case And(parts):
            return " and ".join(map(_condition, parts))
        case Compare(FunctionCall("Mod", (whole, part)), "==", Number(0)):
            return f"{readable(part)} divides {readable(whole)}"
        case Compare(left, relation, right):
            return f"{readable(left)} {_SIGNS.get(relation, relation)} {readable(right)}"
    return readable(expr)


def _show_traffic(stage: Stage, account: Account, out: Terminal) -> None:
    rows = []
    for item in stage.traffic:
        of = item.collective
        sent = (f"{of.symbol} = {readable(of.sent)}", dim(f"  {of.because}"))
        rows.append((of.kind, f"{of.axis} ranks", _bytes(item.payload), _bytes(item.sent), sent))
    out.table((f"Traffic of a step{_of(stage, account)}", "among", "of", *right("sent"), "as"), rows)


def _show_variables(account: Account, out: Terminal) -> None:
    """Each input that occurs in the steps shown, with its source."""
    calculations = (account.fullest.calculation, *((account.step,) if account.step is not None else ()))
    texts = [line.expr for calculation in calculations for line in calculation.steps]
    texts += [item.collective.sent for item in account.fullest.traffic] + [c.expr for c in account.conditions]
    used = set().union(*map(free_names, texts))
    inputs = {item.symbol: item for calculation in calculations for item in calculation.inputs}
    rows = [(g.symbol, _input_value(g), g.meaning, dim(g.source)) for g in inputs.values() if g.symbol in used]
    out.table(("Variable", *right("value"), "meaning", "source"), rows)


def _input_value(item: WorkedInput) -> str:
    if item.value.denominator == 1 and item.value < _LONG:
        return _many(int(item.value), item.unit)
    return f"{significant(item.value) if _LITTLE <= item.value < _LONG else f'{float(item.value):.4g}'} {item.unit}".rstrip()


def _many(number: int, unit: str) -> str:
    """``1 device``, ``2 devices``."""
    return f"{integer(number)} {singular(unit) if number == 1 and '/' not in unit and len(unit) > 1 else unit}".rstrip()


def _show_ranking(title: str, accounts: Sequence[tuple[Account, str]], out: Terminal) -> None:
    priced = any(account.step is not None and "cost" in account.step.values for account, _ in accounts)
    numbers = ("step", "memory", *(("cost",) if priced else ()))
    heads: list[Head] = [title, *right(*numbers), "why not" if any(why for _, why in accounts) else ""]
    rows = []
    for account, why in accounts:
        assert account.step is not None
        cost = (f"{float(account.step['cost']):.4g} USD",) if priced else ()
        rows.append((account.layout.words, _seconds(_step(account)), _bytes(account.memory), *cost, dim(why)))
    out.table(heads, rows)


def _step(account: Account) -> Fraction:
    assert account.step is not None
    return account.step["step"]


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
    exact = Fraction(value)
    if exact.denominator != 1:
        return f"{significant(exact / 10**9)} GB"
    read = amount(int(exact), Unit.BYTE)
    return f"{read.text} ({read.readings[0]})" if read.readings else read.text


def _seconds(value: Fraction) -> str:
    return f"{float(value):.4g} s"


# -- plain data -------------------------------------------------------------------------------------------------------


SCHEMA = 2


def of_account(account: Account) -> dict[str, Any]:
    """One layout with all its steps, as plain data."""
    return {
        "schema": SCHEMA,
        "model": {"name": account.model.name, "source": account.model.source, "notes": list(account.model.notes)},
        "layout": account.layout.to_json(),
        "devices": account.layout.devices,
        "state": account.state.source,
        "memory": {
            "value": number(account.memory),
            "unit": "byte",
            "stage": account.fullest.name,
            "at_once": number(account.fullest.at_once),
        },
        "fit": account.fit or None,
        "guards": [{"expr": c.expr, "because": c.because} for c in account.conditions],
        "stages": [_stage(stage) for stage in account.stages],
        "step": None if account.step is None else account.step.to_json(),
        "because": _no_step(account) or None,
    }


def _no_step(account: Account) -> str:
    if account.step is not None:
        return ""
    return "no device was given" if account.machine is None else f"its matmuls are not known separately: {account.model.only_data}"


def _stage(stage: Stage) -> dict[str, Any]:
    return {
        "name": stage.name,
        "memory": {kind: number(value) for kind, value in stage.kinds.items()},
        "total": number(stage.total),
        "traffic": [_traffic(item) for item in stage.traffic],
        "calculation": stage.calculation.to_json(),
    }


def _traffic(item: Traffic) -> dict[str, Any]:
    of = item.collective
    return {
        "collective": of.kind,
        "axis": of.axis,
        "over": of.over,
        "payload": {"expr": of.payload, "value": str(item.payload)},
        "sent": {"expr": of.sent, "value": str(item.sent)},
        "per": "step" if of.once else "micro-batch, all of a step together",
        "because": of.because,
    }


def of_search(search: Ranking) -> dict[str, Any]:
    """The winner in full; the others by their layout, memory and time."""
    return {
        "schema": SCHEMA,
        "valid": search.counted,
        "fitting": search.fitting,
        "refused": dict(search.refused),
        "winner": of_account(search.winner),
        "front": [_short(account) for account in search.front],
        "runners_up": [{**_short(loser.account), "because": loser.because} for loser in search.runners],
        "faster_but_too_large": None if search.larger is None else _short(search.larger),
    }


def _short(account: Account) -> dict[str, Any]:
    step = account.step
    assert step is not None  # a search always has a machine
    return {
        "layout": account.layout.to_json(),
        "memory": number(account.memory),
        "seconds": str(step["step"]),
        "usd": str(step["cost"]) if "cost" in step.values else None,
        "parts": {name: str(value) for name, value in parts_of_step(account).items()},
    }

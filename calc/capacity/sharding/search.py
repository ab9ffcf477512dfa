"""The best layout of a model on a number of devices: arrays evaluate all layouts, fractions the first ones; with why the others lose.

The winner is the fastest layout that fits; of equally fast ones the one with least memory; then a fixed order decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from calc.capacity.sharding.account import Account
from calc.capacity.sharding.arrays import Array
from calc.capacity.sharding.layout import Layout
from calc.capacity.sharding.memory import WORDS
from calc.capacity.sharding.table import NAMES, LayoutTable, Limits, SearchProblem, table
from calc.errors import BadInputError

_RECHECKED = 24
_SORTED = 20_000  # number of fastest layouts among which runners-up are searched
_DIGITS = 12  # layouts whose times differ by less are compared exactly


@dataclass(frozen=True, slots=True)
class Loser:
    """A layout that is not the best, and the reason."""

    account: Account
    because: str


@dataclass(frozen=True, slots=True)
class Ranking:
    """The winner, the Pareto front of time and memory (and cost), and the losers; ``counted`` layouts are valid, ``fitting`` fit."""

    winner: Account
    front: tuple[Account, ...]
    runners: tuple[Loser, ...]
    larger: Account | None
    counted: int
    fitting: int
    refused: Mapping[str, int]


def search(problem: SearchProblem, *, runners: int = 5, front: int = 12) -> Ranking:
    """The fastest layout that fits, with the runners-up. If none fits, raises BadInputError that names the smallest."""
    layouts = table(problem)
    if not len(layouts):
        raise BadInputError(_no_layout(layouts, problem.limits))
    fits = layouts.memory <= problem.machine.memory
    if not fits.any():
        raise BadInputError(_nothing_fits(problem, layouts))
    fitting = _order(layouts, np.flatnonzero(fits))
    best = _exact(problem, layouts, _near(layouts, fitting))
    best.sort(key=lambda a: (_seconds(a), a.memory))  # stable: equal layouts stay in the order of the arrays
    faster = _order(layouts, np.flatnonzero(~fits & (layouts.seconds < float(_seconds(best[0])))))
    larger = _exact(problem, layouts, faster[:1])
    on_front = _exact(problem, layouts, _front(layouts, fits)[:front])
    runners_up = _exact(problem, layouts, _others(layouts, fitting, best[0].layout, runners))
    losers = tuple(Loser(loser, _why(best[0], loser)) for loser in runners_up)
    too_large = larger[0] if larger else None
    return Ranking(best[0], tuple(on_front), losers, too_large, len(layouts), int(np.count_nonzero(fits)), layouts.refused)


def _seconds(account: Account) -> Fraction:
    assert account.step is not None  # a search always has a machine
    return account.step["step"]


def _exact(problem: SearchProblem, layouts: LayoutTable, rows: Sequence[int] | Array) -> list[Account]:
    """The exact accounts of these rows, checked against the arrays to twelve digits."""
    exact = []
    for row in rows:
        worked = problem.account(layouts.layout(int(row), problem.limits.batch))
        for value, array in ((Fraction(worked.memory), layouts.memory), (_seconds(worked), layouts.seconds)):
            if abs(Fraction(float(array[row])) - value) * 10**_DIGITS > value:
                raise BadInputError(f"internal error: the arrays give {array[row]} where {float(value)} is exact; please report it")
        exact.append(worked)
    return exact


def _rounded(values: Array) -> Array:
    with np.errstate(divide="ignore"):
        scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(values)))
    return np.round(values * scale) / scale


def _near(layouts: LayoutTable, fitting: Array) -> Array:
    """The rows whose time equals the fastest within the precision of doubles."""
    seconds = layouts.seconds[fitting[:_RECHECKED]]
    return fitting[: int(np.count_nonzero(seconds <= seconds[0] * (1 + 10.0**-_DIGITS)))]


def _order(layouts: LayoutTable, rows: Array) -> Array:
    """The fastest rows in order; for equal times the one with less memory, then fewer devices, then the simpler layout."""
    if len(rows) > _SORTED:
        limit = np.partition(layouts.seconds[rows], _SORTED)[_SORTED]
        rows = rows[layouts.seconds[rows] <= limit]
    keys = [*(layouts.numbers[symbol] for symbol in ("b", "v", "x", "c", "p", "t")), layouts.choice, layouts.devices, layouts.memory]
    ranked: Array = rows[np.lexsort((*(key[rows] for key in keys), _rounded(layouts.seconds[rows])))]
    return ranked


def _front(layouts: LayoutTable, fits: Array) -> list[int]:
    """The Pareto front: rows that no other row improves in time, memory or devices · time without being worse in another."""
    rows = np.flatnonzero(fits)
    candidates: list[int] = []
    for used in np.unique(layouts.devices[rows]):
        of = rows[layouts.devices[rows] == used]
        of = of[np.lexsort((layouts.choice[of], layouts.memory[of], _rounded(layouts.seconds[of])))]
        lowest = np.minimum.accumulate(layouts.memory[of])
        first = np.r_[True, layouts.memory[of][1:] < lowest[:-1]]
        candidates += [int(row) for row in of[first]]
    values = np.array([[layouts.seconds[r], layouts.memory[r], layouts.seconds[r] * layouts.devices[r]] for r in candidates])
    worse = [bool(np.any(np.all(values <= value, axis=1) & np.any(values < value, axis=1))) for value in values]
    return sorted((row for row, dominated in zip(candidates, worse, strict=True) if not dominated), key=lambda row: layouts.seconds[row])


_PARTS = {"Tt": "tensor traffic", "Tx": "expert traffic", "tk": "context traffic", "Tp": "pipeline traffic"}


def parts_of_step(account: Account) -> dict[str, Fraction]:
    """Seconds of a step of the slowest stage, by cause. They add up to the step."""
    assert account.step is not None  # a search always has a machine
    slowest = max(account.stages, key=lambda stage: stage.calculation["ts"]).calculation
    parts = {"work": slowest["m"] * slowest["tc"]}
    parts |= {cause: slowest[symbol] for symbol, cause in _PARTS.items() if symbol in slowest.values}
    step = account.step
    parts |= {"bubble": step["tw"] - step["tm"], "data traffic beyond the compute": step["step"] - step["tw"]}
    return {name: value for name, value in parts.items() if value}


def _why(winner: Account, loser: Account) -> str:
    """The main cause of the loser's longer time."""
    mine, theirs = parts_of_step(winner), parts_of_step(loser)
    extra = {name: theirs.get(name, Fraction(0)) - mine.get(name, Fraction(0)) for name in {**mine, **theirs}}
    longer = _seconds(loser) - _seconds(winner)
    if not longer:
        return f"as fast; {_percent(Fraction(loser.memory, winner.memory) - 1)} more memory" if loser.memory > winner.memory else "equal"
    cause = max(extra, key=lambda name: extra[name])
    gain = min(extra, key=lambda name: extra[name])
    saved = f", {gain} {float(-extra[gain]):.3g} s less" if extra[gain] < 0 else ""
    return f"{_percent(longer / _seconds(winner))} slower: {cause} {float(extra[cause]):.3g} s more{saved}"


def _percent(part: Fraction) -> str:
    return f"{float(100 * part):.3g} %"


def _others(layouts: LayoutTable, rows: Array, winner: Layout, number: int) -> list[int]:
    """The best row of each other combination of ranks."""
    combinations = {(winner.data, winner.tensor, winner.pipeline, winner.context, winner.expert)}
    chosen: list[int] = []
    for row in rows:
        n, t, p, c, x = (int(layouts.numbers[symbol][row]) for symbol in "ntpcx")
        if (n, t, p, c, x) not in combinations:
            combinations.add((n, t, p, c, x))
            chosen.append(int(row))
        if len(chosen) == number:
            break
    return chosen


def _no_layout(layouts: LayoutTable, limits: Limits) -> str:
    """The error message if no layout is valid: the condition that refuses the most."""
    if not layouts.tried:
        listed = ", ".join(f"{NAMES[symbol]} = {number}" for symbol, number in limits.fixed)
        return (
            f"the given ranks ({listed}) do not multiply to {limits.devices} devices with any other ranks: leave one out, or change devices"
        )
    refused, devices = layouts.refused, f"{limits.devices} device{'s' if limits.devices > 1 else ''}"
    if layouts.tried > sum(refused.values()):
        return (
            f"no layout of {devices} matches the given zero, sequence, checkpointing and exchange: zero needs ranks that share weights,"
            " sequence needs tensor ranks that divide the tokens, checkpointing=attention needs attention=math; leave one out"
        )
    why = max(refused, key=lambda name: refused[name])
    return f"no layout of {devices} and batch = {limits.batch} is possible: most fail because {why}; change devices or batch"


def _nothing_fits(problem: SearchProblem, layouts: LayoutTable) -> str:
    least = problem.account(layouts.layout(int(np.argmin(layouts.memory)), problem.limits.batch))
    kinds = least.fullest.kinds
    largest = max(kinds, key=lambda kind: kinds[kind])
    return (
        f"none of {len(layouts):,} layouts fits {problem.machine.memory / 1e9:.4g} GB: the smallest ({least.layout.words}) needs"
        f" up to {least.memory / 1e9:.4g} GB, of which {WORDS[largest]} {kinds[largest] / 1e9:.4g} GB;"
        f" memory={-(-least.memory // 10**9)}GB, more devices or a shorter sequence would fit"
    )

"""A layout, or the best of all, as the ``"schema": 2`` document: plain data; fractions are text, unknown values are null with a reason."""

from __future__ import annotations

from typing import Any

from calc.capacity.sharding.account import Account, Stage, Traffic
from calc.capacity.sharding.search import Ranking, parts_of_step
from calc.derive.to_json import number

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

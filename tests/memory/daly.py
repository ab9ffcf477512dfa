"""Daly's formulas of how often to save, which Young's are compared with."""

from __future__ import annotations

from calc.memory.formulas import SAVING_INTERVAL, Formula

SAVING_INTERVAL_HIGHER = Formula(
    name="saving interval, higher order",
    text="sqrt(2*delta*M)*(1 + sqrt(delta/(2*M))/3 + delta/(18*M)) - delta",
    unit="s",
    letters=SAVING_INTERVAL.letters,
    error="three terms of a series; for delta below 2 M only: beyond that, one saves every M",
    source="Daly 2006, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22(3), eq. 37",
)
EXPECTED_TIME = Formula(
    name="expected time of a run with failures",
    text="M*exp(R/M)*(exp((tau + delta)/M) - 1)*Ts/tau",
    unit="s",
    letters={
        "Ts": "time of the run without failures and checkpoints, s",
        "R": "time to restart, s",
        "tau": "time between checkpoints, s",
        **SAVING_INTERVAL.letters,
    },
    error="exact for failures at a constant rate, with many intervals in the run",
    source="Daly 2006, FGCS 22(3), eq. 20",
)

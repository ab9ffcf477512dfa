"""Compares a training run with published runs and legal thresholds, from ``calc/data/known_runs.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from calc.capacity.questions.answer import FurtherResult
from calc.capacity.questions.quantities import short
from calc.capacity.questions.question import ACTIVE, FLOPS, KAPLAN, SIX_N_D, TOKENS, Equation, Question, QuestionTable, Values, Variable
from calc.capacity.questions.training import EXACT, PER_TOKEN

if TYPE_CHECKING:
    from calc.capacity.questions.models import QuestionModel


@cache
def published_runs() -> dict[str, list[dict[str, Any]]]:
    """Runs and thresholds, each with its source. A run has parameters and tokens, and the FLOPs that its source prints, if any."""
    text = resources.files("calc").joinpath("data/known_runs.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def compute(run: dict[str, Any]) -> Fraction:
    """FLOPs of a run: as published, else 6·N·D with the parameters active per token."""
    if "flops" in run:
        return Fraction(run["flops"])
    return 6 * Fraction(str(run["parameters"])) * Fraction(str(run["tokens"]))


def _compared(values: Values, _: QuestionModel | None) -> Sequence[FurtherResult]:
    rows = []
    for run in published_runs()["run"]:
        how = "as printed" if "flops" in run else f"6 · {short(Fraction(run['parameters']))} · {short(Fraction(run['tokens']))}"
        rows.append(
            FurtherResult(
                f"times {run['name']}", values["C"] / compute(run), "1", f"{short(compute(run))} FLOP, {how}; {run['source']}"
            )
        )
    for line in published_runs()["threshold"]:
        share = values["C"] / Fraction(line["flops"])
        side = "passed" if share > 1 else "not passed"  # each law applies above its threshold
        rows.append(FurtherResult(f"of {line['name']}", share, "1", f"{side}: {line['flops']} FLOP; {line['status']}; {line['source']}"))
    return rows


COMPARE = Question(
    "compare",
    "FLOPs of a training run compared with known runs and thresholds",
    (ACTIVE, TOKENS, FLOPS, PER_TOKEN, Variable("p", "pf-days", "PF-days", "in days at 10^15 FLOP/s")),
    (SIX_N_D, Equation("p", "C/(86400*10**15)", "a day has 86,400 s")),
    "p",
    also=("C",),
    with_model=(EXACT,),
    table=QuestionTable(frozenset("C"), _compared),
    notes=("thresholds count what the law says, which may include more than the last training run; this is not legal advice",),
    source=KAPLAN,
)

QUESTIONS = (COMPARE,)

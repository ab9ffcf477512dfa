"""Every rule that the steps of a report use: what it states, of which shapes, where that comes from, and the test that it stands.

Rules of operators are those of the registry. The others are the few ways in which a derivation puts numbers together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calc.derive.result import Step
from reports.page import rule_table
from reports.page.model import RuleRow
from reports.page.parts import rule_anchor, several

STEPS = "tests/derive/test_identities.py"
THUMBS = "tests/derive/test_rules_of_thumb.py"


@dataclass(frozen=True, slots=True)
class RuleStatement:
    """What there is to say about a rule."""

    statement: str
    shapes: str
    source: str
    test: str


def _step(statement: str, test: str, source: str = "arithmetic") -> RuleStatement:
    return RuleStatement(statement, "", source, test)


STEP_RULES: Mapping[str, RuleStatement] = {
    "parameter": _step("A tensor has as many elements as the product of its sizes; a storage counts once.", STEPS),
    "gradient": _step("A gradient takes its elements times their size in bytes.", STEPS),
    "optimizer state": _step("A tensor of the optimizer takes its elements times their size in bytes.", STEPS),
    "saved tensor": _step(
        "A tensor that autograd holds when the forward returns takes its storage's bytes; a storage counts once.",
        STEPS,
        "the recorded step",
    ),
    "checkpoint": _step("A storage of the model's or the optimizer's state dict is written once, whole.", STEPS, "the recorded step"),
    "sum": _step("A quantity is the sum of its parts; each operator and tensor stands in one of them.", STEPS),
    "sum over parts": _step("What the parts of a module hold or do adds up; like terms are collected.", STEPS),
    "sum over operators": _step("What the operators of one place do adds up; like terms are collected.", STEPS),
    "sum over layers": _step("Layers that are alike hold and do the same: their sum is their number times one of them.", STEPS),
    "live storages by role": _step("Live bytes are those of the storages born and not yet dead.", STEPS, "the recorded step"),
    "maximum": _step("The peak is the largest of the moments at which live bytes can be highest.", STEPS),
    "substitution": _step("A dimension is replaced by what defines it.", STEPS, "the model's dimensions"),
    "letters put in": _step("A published rule with this model's sizes in the place of its letters.", THUMBS, "as cited there"),
    "exact count": _step("What a rule of thumb stands for is a sum of derived quantities.", THUMBS),
    "correction": _step("What the exact count has and the rule has not, or the other way round, is added to the rule.", THUMBS),
    "corrected sum": _step("A rule and its corrections add up to the exact count.", THUMBS),
}


def used(steps: Sequence[Step]) -> tuple[RuleRow, ...]:
    """Every rule by which a step is made, that of each operator counted in it among them, with how many steps use it."""
    uses: dict[str, int] = {}
    for step in steps:
        for name in dict.fromkeys((step.rule, *filter(_counted, step.operators))):
            uses[name] = uses.get(name, 0) + 1
    alone = {step.rule for step in steps}
    return tuple(_row(name, count, name not in alone) for name, count in uses.items())


def _counted(operator: str) -> bool:
    entry = rule_table.find(operator)
    return entry is not None and entry.kind == "counted"


def _row(name: str, count: int, inside: bool) -> RuleRow:
    entry = find(name) or RuleStatement("stated in the step itself", "", "the step's reason", "")
    return RuleRow(name, rule_anchor(name), entry.statement, entry.shapes, entry.source, entry.test, several(count, "step"), inside)


def find(name: str) -> RuleStatement | None:
    """The rule of an operator, or the one of that name by which steps are made."""
    operator = rule_table.find(name)
    if operator is not None:
        return RuleStatement(operator.statement, operator.shapes, operator.source, operator.test)
    return STEP_RULES.get(name)

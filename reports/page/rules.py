"""The rules used in the steps of a report: statement, shapes, source and tests of each.

Operators' rules are in the registry; ``STEP_RULES`` has the others, by which a derivation combines them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calc.derive.result import PARTS, Step
from reports.page import rule_table
from reports.page.parts import rule_anchor, several


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule used in the steps: statement, shapes, source, tests, number of uses. ``inside``: it is used only for operators inside sums."""

    name: str
    anchor: str
    statement: str
    shapes: str
    source: str
    test: str
    use: str
    inside: bool = False


STEPS = "tests/derive/test_identities.py"
THUMBS = "tests/derive/test_rules_of_thumb.py"


@dataclass(frozen=True, slots=True)
class RuleStatement:
    """Statement, shapes, source and tests of a rule, as text."""

    statement: str
    shapes: str
    source: str
    test: str


def _step(statement: str, test: str, source: str = "arithmetic") -> RuleStatement:
    return RuleStatement(statement, "", source, test)


STEP_RULES: Mapping[str, RuleStatement] = {
    "parameter": _step("A tensor has as many elements as the product of its sizes; a storage counts once.", STEPS),
    "gradient": _step("Bytes of a gradient: its elements times the bytes of one.", STEPS),
    "optimizer state": _step("Bytes of an optimizer's tensor: its elements times the bytes of one.", STEPS),
    "saved tensor": _step(
        "Bytes of a tensor that autograd holds when the forward returns: those of its storage; a storage counts once.",
        STEPS,
        "the traced step",
    ),
    "checkpoint": _step(
        "A storage in the state dict of the model or the optimizer is written once, at its full size.", STEPS, "the traced step"
    ),
    "sum": _step("A quantity is the sum of its parts: each operator and tensor is in exactly one.", STEPS),
    PARTS: _step("The parts of a module are disjoint, so their tensors and operators add; like terms are collected.", STEPS),
    "sum over operators": _step("The operators of one module add; like terms are collected.", STEPS),
    "sum over layers": _step("Equal layers have equal tensors and operators: their sum is their number times one of them.", STEPS),
    "live storages by role": _step("Live bytes are those of the storages allocated and not yet freed.", STEPS, "the traced step"),
    "maximum": _step("The peak is the largest of the peak candidates: the operators after which live bytes can be highest.", STEPS),
    "substitution": _step("A dimension is replaced by its definition.", STEPS, "the model's dimensions"),
    "sizes substituted": _step("A published rule with this model's sizes substituted for its symbols.", THUMBS, "as cited there"),
    "exact count": _step("What a rule of thumb estimates is a sum of derived quantities.", THUMBS),
    "correction": _step("A term that only the exact count has is added to the rule; a term that only the rule has is subtracted.", THUMBS),
    "corrected sum": _step("The rule plus its corrections is the exact count.", THUMBS),
}


def used(steps: Sequence[Step]) -> tuple[RuleRow, ...]:
    """The rules of ``steps``, in order of first use, each with the number of steps that use it.

    A step uses its own rule and those of the operators that it sums.
    """
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
    entry = find(name) or RuleStatement("stated in the step", "", "reason in the step", "")
    return RuleRow(name, rule_anchor(name), entry.statement, entry.shapes, entry.source, entry.test, several(count, "step"), inside)


def find(name: str) -> RuleStatement | None:
    """The rule of an operator, or of a step by name; ``None`` if there is none."""
    operator = rule_table.find(name)
    if operator is not None:
        return RuleStatement(operator.statement, operator.shapes, operator.source, operator.test)
    return STEP_RULES.get(name)

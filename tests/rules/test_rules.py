"""Every rule against the measuring side's own count of the same real call: equality, and errors that must break it.

Both tests enumerate the registry, so an operator without a call in ``cases`` fails the suite.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

import calc.rules.families  # noqa: F401  # importing it fills the registry
from calc.dimensions import MEANINGS
from calc.rules.registry import REGISTRY, Operator, Registry, View, cost_of
from calc.symbolic.algebra import Algebra
from tests.rules.cases import CASES
from tests.rules.mutate import planted
from tests.rules.operators import Observed, derived, observe

OPERATORS = sorted([*REGISTRY.rules, *REGISTRY.frees])


@cache
def observed(op: str) -> list[Observed]:
    return [observe(op, make()) for make in CASES[op]]


def agrees(op: str, registry: Registry) -> bool:
    return all(seen == derived(cost_of(seen.operator, "", registry), seen) for seen in observed(op))


@pytest.mark.parametrize("op", OPERATORS)
def test_a_rule_counts_what_torch_counts(op: str) -> None:
    """Products, elementwise work, bytes moved, repeated work and declared mask are equal for every call in the cases."""
    assert op in CASES, f"{op} has a rule but no call in tests/rules/cases.py"
    for seen in observed(op):
        assert seen == derived(cost_of(seen.operator, "", REGISTRY), seen)


@pytest.mark.parametrize("op", OPERATORS)
def test_an_error_planted_in_a_rule_is_noticed(op: str) -> None:
    """Whatever a rule states, stating it wrongly makes the comparison with torch fail."""
    errors = dict(planted(REGISTRY, op, [seen.operator for seen in observed(op)]))

    assert errors
    assert [] == [what for what, registry in errors.items() if agrees(op, registry)]


@pytest.mark.parametrize("op", sorted(REGISTRY.rules))
def test_a_rule_computes_with_named_sizes(op: str) -> None:
    """With a symbol for every size, a rule gives polynomials whose values are the numbers it gives for the sizes themselves."""
    assert observed(op)
    for seen in observed(op):
        sizes = sorted(
            {s for v in [*(v for _, v in seen.operator.tensors()), *seen.operator.outputs] for s in (*v.shape, v.distinct)} - {0, 1}
        )
        algebra = Algebra([f"n{s}" for s in sizes])
        values = {f"n{s}": s for s in sizes}

        costs = REGISTRY.rules[op].function(_with_symbols(seen.operator, algebra)), REGISTRY.rules[op].function(seen.operator)

        named, plain = ([(t.name, algebra.value(t.count, values)) for t in (*c.matmul, *c.elementwise, *c.recompute)] for c in costs)
        assert plain == named
        named, plain = ([(algebra.value(n, values), d) for n, d in (*(c.reads or ()), *(c.writes or ()))] for c in costs)
        assert plain == named


def _with_symbols(operator: Operator, algebra: Algebra) -> Operator:
    def size(n: int) -> Any:
        return algebra.gen(f"n{n}") if n > 1 else algebra.constant(n)

    def symbolic(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(symbolic(v) for v in value)
        return View(tuple(size(s) for s in value.shape), value.dtype, size(value.distinct)) if isinstance(value, View) else value

    args = {name: symbolic(value) for name, value in operator.args.items()}
    return Operator(operator.name, args, tuple(symbolic(v) for v in operator.outputs), operator.mutates)


def test_cases_are_of_known_operators() -> None:
    """A call in the cases whose operator has no rule compares nothing."""
    assert [] == [op for op in CASES if REGISTRY.find(op) is None]


def test_sizes_in_a_rule_are_no_letters_of_models() -> None:
    """A report has the model's V, C and k beside the rule's sizes: those are words, or letters that no model has."""
    sizes = {op: re.findall(r"\(([^()]*)\)", r.shapes) for op, r in REGISTRY.rules.items()}
    letters = {op: {x for each in of for x in re.findall(r"(?<![\w*])[A-Za-z](?!\w)", each)} for op, of in sizes.items()}

    assert len(letters) > 300
    assert {} == {op: of & (MEANINGS.keys() - {"n", "m"}) for op, of in letters.items() if of & (MEANINGS.keys() - {"n", "m"})}


def test_rules_say_what_they_count_and_free_operators_why() -> None:
    """A report prints a rule's shapes, definition and source; zero is a statement with a reason."""
    texts = [*((op, text) for op, r in REGISTRY.rules.items() for text in (r.shapes, r.statement, r.origin))]
    texts += [(op, free.because) for op, free in REGISTRY.frees.items()]

    assert len(texts) == 3 * len(REGISTRY.rules) + len(REGISTRY.frees) > 1000
    assert [] == [op for op, text in texts if not text.strip()]

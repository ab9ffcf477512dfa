"""Operators in place, into given tensors, or of a number for a tensor, without a rule of their own: they cost what the operator does that
makes a new result of tensors.

All of torch's are enumerated, each with the calls of the other; torch's own count of the call must be the rule's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils import flop_counter
from torch.utils._pytree import tree_leaves

import calc.rules.families  # noqa: F401  # importing it fills the registry
from calc.rules.registry import REGISTRY, cost_of, writes_into_given
from tests.rules.cases import CASES
from tests.rules.operators import Case, Observed, derived, observe, overload


def _operators_in_place() -> Iterator[str]:
    """Those of torch that change their first argument and are no views, without an entry of their own."""
    for name in sorted({name.removeprefix("aten::").partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}):
        packet = getattr(torch.ops.aten, name, None)
        for each in packet.overloads() if packet is not None and name.endswith("_") and not name.endswith("__") else ():
            operator = f"aten.{name}.{each}"
            known = operator in REGISTRY.rules or operator in REGISTRY.frees
            if not known and REGISTRY.find(operator) is not None and torch.Tag.inplace_view not in overload(operator).tags:
                yield operator


def _other_operators() -> Iterator[str]:
    """Those of torch that are given a number for a tensor, or tensors for their results, without an entry of their own."""
    for name in sorted(name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")):
        packet, _, each = name.partition(".")
        operator = f"aten.{packet}.{each or 'default'}"
        known = operator in REGISTRY.rules or operator in REGISTRY.frees
        if not known and not packet.endswith("_") and REGISTRY.find(operator) is not None:
            yield operator


IN_PLACE = [*_operators_in_place()]
OF_NUMBERS = [operator for operator in _other_operators() if not writes_into_given(operator)]
INTO_GIVEN = [operator for operator in _other_operators() if writes_into_given(operator)]


def _observed(operator: str) -> Iterator[Observed]:
    """What torch counts of the calls that can be made in place: elsewhere the result would have another shape or format."""
    known = REGISTRY.find(operator)
    assert known is not None
    for make in CASES.get(operator) or CASES[known.op]:
        new = make()
        case = replace(new, args=(new.args[0].clone(memory_format=torch.contiguous_format), *new.args[1:]))
        try:
            overload(operator)(case.args[0].clone(), *case.args[1:], **case.kwargs)
        except (RuntimeError, TypeError):
            continue
        yield observe(operator, replace(case, matmul=_products(known.op, new)))


def _products(operator: str, case: Case) -> int:
    """Torch's counter knows no product in place: those of the new result, of which it has a formula."""
    known = overload(operator).overloadpacket in flop_counter.flop_registry
    return observe(operator, case).matmul if known and case.matmul is None else case.matmul or 0


@pytest.mark.parametrize("operator", IN_PLACE)
def test_an_operator_in_place_costs_what_the_one_with_a_new_result_does(operator: str) -> None:
    """Its argument is read, and as many elements are written."""
    seen = [*_observed(operator)]

    assert seen, f"no call of {operator}: add one"
    assert seen == [derived(cost_of(each.operator, "", REGISTRY), each) for each in seen]


@pytest.mark.parametrize("operator", OF_NUMBERS)
def test_an_operator_of_a_number_costs_what_the_one_of_tensors_does(operator: str) -> None:
    """The number is no element that is read."""
    seen = [observe(operator, make()) for make in CASES[operator]]

    assert seen == [derived(cost_of(each.operator, "", REGISTRY), each) for each in seen]


def _into_given(operator: str) -> Iterator[Observed]:
    """What torch counts of the calls of the operator that returns its result, with tensors like that given for it."""
    known = REGISTRY.find(operator)
    assert known is not None
    names = [argument.name for argument in overload(operator)._schema.arguments if argument.is_out]
    for make in CASES[known.op]:
        case = make()
        try:
            results = [t for t in tree_leaves(overload(known.op)(*case.args, **case.kwargs)) if isinstance(t, torch.Tensor)]
            given = {name: t.clone(memory_format=torch.contiguous_format) for name, t in zip(names, results, strict=True)}
            yield observe(operator, replace(case, kwargs={**case.kwargs, **given}))
        except (RuntimeError, TypeError, ValueError):
            continue


@pytest.mark.parametrize("operator", INTO_GIVEN)
def test_an_operator_into_given_tensors_costs_what_the_one_that_returns_them_does(operator: str) -> None:
    """The given tensors are only written."""
    seen = [*_into_given(operator)]

    assert seen == [derived(cost_of(each.operator, "", REGISTRY), each) for each in seen]


def test_what_touches_fewer_elements_in_place_has_a_rule_of_its_own() -> None:
    """Putting into a copy writes all of it, putting in place writes what is put."""
    touching: Any = {"index_put_", "index_add_", "scatter_", "scatter_add_", "scatter_reduce_", "index_copy_", "index_fill_"}

    assert set() == {operator for operator in IN_PLACE if operator.split(".")[1] in touching}

"""Errors planted in cost rules. A check that lets one of them pass proves nothing.

``planted`` goes over everything that a rule states: each addend (dropped, doubled, each coefficient or dimension one too large,
one dimension in place of another), each stated read and write (dropped, doubled), the traffic that is left to the default
(dropped), a declared causal mask, that there is a cost at all, and for a free operator whether it moves memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from calc.rules.registry import Cost, Free, Operator, Registry, RuleFunction, Term

KINDS = ("matmul", "elementwise", "recompute")
Change = Callable[[Cost], Cost]


def with_rule(registry: Registry, op: str, function: RuleFunction) -> Registry:
    """A copy in which ``op`` is counted by ``function``."""
    return Registry({**registry.rules, op: dataclasses.replace(registry.rules[op], function=function)}, dict(registry.frees))


def without(registry: Registry, op: str) -> Registry:
    """A copy that does not know ``op``."""
    return Registry(*({k: v for k, v in table.items() if k != op} for table in (registry.rules, registry.frees)))


def planted(registry: Registry, op: str, operators: Iterable[Operator]) -> Iterator[tuple[str, Registry]]:
    """(what was done, a registry with that error) for every error that can be made in the rule of ``op``.

    ``operators`` are calls of it: an addend that none of them has cannot be altered, one that none of them makes non-zero
    cannot be noticed.
    """
    if op in registry.frees:
        yield "moves memory or not", _with_free_flipped(registry, op)
        return
    yield "said to be free", _with_rule_freed(registry, op)
    function = registry.rules[op].function
    for what, change in _changes([function(operator) for operator in operators]).items():
        yield what, with_rule(registry, op, _changed(function, change))


def _with_free_flipped(registry: Registry, op: str) -> Registry:
    free = registry.frees[op]
    return Registry(dict(registry.rules), {**registry.frees, op: Free(op, free.because, not free.moves)})


def _with_rule_freed(registry: Registry, op: str) -> Registry:
    rest = without(registry, op)
    return Registry(rest.rules, {**rest.frees, op: Free(op, "planted")})


def _changed(function: RuleFunction, change: Change) -> RuleFunction:
    return lambda operator: change(function(operator))


def _changes(costs: list[Cost]) -> dict[str, Change]:
    """All errors by what they do, in the order in which the costs first offer them."""
    changes: dict[str, Change] = {}
    for cost in costs:
        for kind in KINDS:
            for term in getattr(cost, kind):
                changes.update(_term_changes(kind, term))
        for side in ("reads", "writes"):
            changes.update(_traffic_changes(side, getattr(cost, side)))
        if cost.causal is not None:
            changes["causal mask forgotten"] = lambda c: dataclasses.replace(c, causal=None)
    return changes


def _term_changes(kind: str, term: Term) -> Iterator[tuple[str, Change]]:
    name = term.name
    yield f"{kind} {name!r} dropped", _on_terms(kind, name, lambda t: [])
    yield f"{kind} {name!r} doubled", _on_terms(kind, name, lambda t: [dataclasses.replace(t, factors=(2, *t.factors))])
    for i, factor in enumerate(term.factors):
        yield f"{kind} {name!r} with factor {i} one too large", _on_terms(kind, name, lambda t, i=i: [_with_larger_factor(t, i)])
        j = (i + 1) % len(term.factors)
        if factor != term.factors[j]:
            yield (
                f"{kind} {name!r} with factor {j} in place of {i}",
                _on_terms(kind, name, lambda t, i=i, j=j: [_with_other_factor(t, i, j)]),
            )


def _with_other_factor(term: Term, i: int, j: int) -> Term:
    if max(i, j) >= len(term.factors):
        return term
    factors = list(term.factors)
    factors[i] = factors[j]
    return dataclasses.replace(term, factors=tuple(factors))


def _with_larger_factor(term: Term, i: int) -> Term:
    return dataclasses.replace(term, factors=tuple(f + 1 if i == j else f for j, f in enumerate(term.factors)))


def _on_terms(kind: str, name: str, change: Callable[[Term], list[Term]]) -> Change:
    def alter(cost: Cost) -> Cost:
        terms = [new for term in getattr(cost, kind) for new in (change(term) if term.name == name else [term])]
        return dataclasses.replace(cost, **{kind: tuple(terms)})

    return alter


def _traffic_changes(side: str, stated: tuple[Any, ...] | None) -> Iterator[tuple[str, Change]]:
    if stated is None:
        yield f"default {side} dropped", lambda c: dataclasses.replace(c, **{side: ()}) if getattr(c, side) is None else c
        return
    for i in range(len(stated)):
        yield f"{side}[{i}] dropped", _on_traffic(side, i, lambda pair: [])
        yield f"{side}[{i}] doubled", _on_traffic(side, i, lambda pair: [(2 * pair[0], pair[1])])


def _on_traffic(side: str, i: int, change: Callable[[Any], list[Any]]) -> Change:
    def alter(cost: Cost) -> Cost:
        stated = getattr(cost, side)
        if stated is None or i >= len(stated):
            return cost
        return dataclasses.replace(cost, **{side: (*stated[:i], *change(stated[i]), *stated[i + 1 :])})

    return alter

"""Two derivations of one step, joined: the general one, and one for sizes at which the step runs other operators.

Quantities with the same closed form in both keep it. The others are by cases, and their steps are those of the case in force, which is the
special one: it is only derived where it applies.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import sympy as sp

from calc.derive.by_cases import by_cases, specialized_sizes
from calc.derive.result import Derivation, Quantity, Step
from calc.graph.step import SpecialCase
from calc.symbolic.algebra import Algebra, symbol, to_sympy
from calc.symbolic.assignments import PLAIN, sizes_text
from calc.symbolic.parser import free_names
from calc.symbolic.writer import substituted


def joined(general: Derivation, case: Derivation, special: SpecialCase, differing: Collection[str]) -> Derivation:
    """The derivation by cases, without steps; ``case`` is that of ``special``, at the same sizes."""
    return replace(
        general,
        quantities={n: by_cases(q, case[n], special.equal) if n in differing else q for n, q in general.quantities.items()},
        coverage=case.coverage,
        saved=case.saved,
        replay=case.replay,
        certificates=(*general.certificates, *case.certificates),
        specialized=specialized_sizes(general.specialized, general.sizes, special.equal),
        specialization_reasons={**general.specialization_reasons, **case.specialization_reasons},
        _in_general=False,
    )


def differences(general: Derivation, case: Derivation, special: SpecialCase) -> set[str]:
    """The quantities whose general closed form differs from that of the special case at sizes where the special case applies."""
    applies_here = special.applies(general.sizes)  # equal forms then have equal values, which are compared sooner
    return {
        name
        for name in general
        if (applies_here and _values(general[name]) != _values(case[name])) or not _same(general[name], case[name], special.equal)
    }


def _same(general: Quantity, case: Quantity, equal: Mapping[str, str]) -> bool:
    """Whether the general closed form equals the special one wherever the special case applies."""
    if general.text is None or case.text is None:
        return general.text == case.text
    general_texts, case_texts = (tuple(c.expr for c in q.candidates) or (q.text or "",) for q in (general, case))
    return _same_where(general_texts, case_texts, tuple(equal.items()))


def _values(quantity: Quantity) -> set[int | None]:
    return {c.value for c in quantity.candidates} or {quantity.value}


@functools.lru_cache(maxsize=1024)
def _same_where(general_texts: tuple[str, ...], case_texts: tuple[str, ...], equals: tuple[tuple[str, str], ...]) -> bool:
    """The same for texts, those of all candidates of a maximum; cached, since every size of the case evaluates it."""
    equal = dict(equals)
    put = [substituted(text, equal) for text in (*general_texts, *case_texts)]
    algebra = Algebra(sorted(set().union(*map(free_names, put))), put)
    if len(algebra.names) == len(set(algebra.names)) and all(name.isidentifier() for name in algebra.names):
        polys = [algebra.parse(text) for text in put]
        return set(polys[: len(general_texts)]) == set(polys[len(general_texts) :])
    at = {symbol(name): to_sympy(to) for name, to in equal.items()}
    our_forms, their_forms = ({sp.expand(to_sympy(text).subs(at)) for text in texts} for texts in (general_texts, case_texts))
    return our_forms == their_forms


def steps(general: Iterable[Step], case: Iterable[Step], special: SpecialCase, order: list[str]) -> tuple[Step, ...]:
    """The steps of the general derivation and those of the case, numbered in the ``order`` of their quantities."""
    at = sizes_text(special.equal, PLAIN, " and ")
    both = sorted((*general, *(replace(step, case=at) for step in case)), key=lambda step: order.index(step.quantity))
    return tuple(replace(step, id=f"step-{i + 1}") for i, step in enumerate(both))

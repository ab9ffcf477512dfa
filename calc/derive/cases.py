"""Two derivations of one step, joined: the general one, and one for sizes at which the step runs otherwise.

Quantities that the special case leaves as they are keep their closed form. The others are given by cases, and their steps
are those of the case in force, which is the special one: it is only derived where it applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from calc.algebra import symbol, to_sympy
from calc.by_cases import by_cases, held
from calc.derivation import Derivation, Quantity, Step
from calc.graph import Special


def joined(general: Derivation, case: Derivation, special: Special) -> Derivation:
    """The derivation by cases; ``case`` is that of ``special``, at the same sizes."""
    differing = differences(general, case, special)
    return replace(
        general,
        quantities={n: by_cases(q, case[n], special.equal) if n in differing else q for n, q in general.quantities.items()},
        steps=_numbered(
            (step if step.quantity not in differing else None for step in general.steps),
            (_titled(step, special) for step in case.steps if step.quantity in differing),
            list(general),
        ),
        coverage=case.coverage,
        saved=case.saved,
        replay=case.replay,
        certificates=(*general.certificates, *case.certificates),
        held=held(general.held, general.sizes, special.equal),
        specialized={**general.specialized, **case.specialized},
    )


def differences(general: Derivation, case: Derivation, special: Special) -> set[str]:
    """The quantities whose general closed form is not the one of the special case, even where that applies."""
    at = {symbol(name): to_sympy(to) for name, to in special.equal.items()}
    return {name for name in general if not _same(general[name], case[name], at)}


def _same(general: Quantity, case: Quantity, at: Mapping[sp.Symbol, Any]) -> bool:
    """Whether the general closed form is the special one wherever the special case applies."""
    if general.text is None or case.text is None:
        return general.text == case.text
    ours = [to_sympy(c.expr) for c in general.candidates] or [general.expr]
    theirs = [to_sympy(c.expr) for c in case.candidates] or [case.expr]
    return {sp.expand(e.subs(at)) for e in ours} == {sp.expand(e.subs(at)) for e in theirs}


def _titled(step: Step, special: Special) -> Step:
    at = " and ".join(f"{name} = {to}" for name, to in special.equal.items())
    return replace(step, title=f"{step.title} (at {at})")


def _numbered(general: Iterable[Step | None], case: Iterable[Step], order: list[str]) -> tuple[Step, ...]:
    steps = sorted((s for s in (*general, *case) if s is not None), key=lambda s: order.index(s.quantity))
    return tuple(replace(step, id=f"step-{i + 1}") for i, step in enumerate(steps))

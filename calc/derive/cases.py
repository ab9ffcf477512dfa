"""Two derivations of one step, joined: the general one, and one for sizes at which the step runs otherwise.

Quantities that the special case leaves as they are keep their closed form. The others are given by cases, and their steps
are those of the case in force, which is the special one: it is only derived where it applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from calc.algebra import symbol, to_sympy
from calc.derivation import Derivation, Evaluator, Quantity, QuantityTerm, Step
from calc.graph import Special


def joined(general: Derivation, case: Derivation, special: Special) -> Derivation:
    """The derivation by cases; ``case`` is that of ``special``, at the same sizes."""
    at = {symbol(name): to_sympy(to) for name, to in special.equal.items()}
    differing = {name for name in general if not _same(general[name], case[name], at)}
    written = _condition(special)
    return replace(
        general,
        quantities={n: _by_cases(q, case[n], special, written) if n in differing else q for n, q in general.quantities.items()},
        steps=_numbered(
            (step if step.quantity not in differing else None for step in general.steps),
            (_titled(step, special) for step in case.steps if step.quantity in differing),
            list(general),
        ),
        coverage=case.coverage,
        saved=case.saved,
        replay=case.replay,
        certificates=(*general.certificates, *case.certificates),
        held={**general.held, **{name: general.sizes[name] for name, to in special.equal.items() if "*" not in to}},  # products move along
    )


def _same(general: Quantity, case: Quantity, at: Mapping[sp.Symbol, Any]) -> bool:
    """Whether the general closed form is the special one wherever the special case applies."""
    if general.text is None or case.text is None:
        return general.text == case.text
    ours = [to_sympy(c.expr) for c in general.candidates] or [general.expr]
    theirs = [to_sympy(c.expr) for c in case.candidates] or [case.expr]
    return {sp.expand(e.subs(at)) for e in ours} == {sp.expand(e.subs(at)) for e in theirs}


def _condition(special: Special) -> str:
    equations = [f"Eq({name}, {to})" for name, to in special.equal.items()]
    return equations[0] if len(equations) == 1 else f"And({', '.join(equations)})"


def _piecewise(case: str | None, general: str | None, condition: str) -> str:
    return str(general) if case == general else f"Piecewise(({case}, {condition}), ({general}, True))"


@dataclass(frozen=True, slots=True)
class _ByCases:
    """Evaluates the quantity of the case that the sizes belong to."""

    general: Evaluator
    case: Evaluator
    special: Special

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        return self.general.sizes(given)

    def value(self, sizes: Mapping[str, int]) -> int:
        return (self.case if self.special.applies(sizes) else self.general).value(sizes)

    def expr(self) -> sp.Expr:
        case, general = self.case.expr(), self.general.expr()
        if case == general:
            return general
        return sp.Piecewise((case, to_sympy(_condition(self.special))), (general, True), evaluate=False)


def _by_cases(general: Quantity, case: Quantity, special: Special, condition: str) -> Quantity:
    if general.text is None or case.text is None:
        return general if general.text is None else case  # unknown in general, or at these sizes: with its reason
    ours = {t.site: t for t in general.terms}
    theirs = {t.site: t for t in case.terms}
    terms = tuple(_term(site, ours.get(site), theirs.get(site), condition) for site in dict.fromkeys((*ours, *theirs)))
    assert general._evaluator is not None  # both were just derived
    assert case._evaluator is not None
    evaluator = _ByCases(general._evaluator, case._evaluator, special)
    return replace(case, text=_piecewise(case.text, general.text, condition), terms=terms, _evaluator=evaluator)


def _term(site: str, general: QuantityTerm | None, case: QuantityTerm | None, condition: str) -> QuantityTerm:
    text = _piecewise(case.expr if case else "0", general.expr if general else "0", condition)
    known = case or general
    assert known is not None
    return QuantityTerm(site, text, case.value if case else 0, known.because, case.parts if case else ())


def _titled(step: Step, special: Special) -> Step:
    at = " and ".join(f"{name} = {to}" for name, to in special.equal.items())
    return replace(step, title=f"{step.title} (at {at})")


def _numbered(general: Iterable[Step | None], case: Iterable[Step], order: list[str]) -> tuple[Step, ...]:
    steps = sorted((s for s in (*general, *case) if s is not None), key=lambda s: order.index(s.quantity))
    return tuple(replace(step, id=f"step-{i + 1}") for i, step in enumerate(steps))

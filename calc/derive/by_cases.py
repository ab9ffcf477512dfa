"""Quantities of a step that runs other operators at some sizes, by cases: ``Piecewise((special, Eq(B, 1)), (general, True))``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from calc.derive.result import Evaluator, Quantity, QuantityPart, QuantityTerm
from calc.graph.guards import applies

if TYPE_CHECKING:
    import sympy as sp


def by_cases(general: Quantity, case: Quantity, equal: Mapping[str, str]) -> Quantity:
    """The quantity by cases. ``case`` is that of the special case in force, where sizes are ``equal``, at the same sizes as ``general``."""
    if general.text is None or case.text is None:
        return general if general.text is None else case  # unknown in general or at these sizes, with its reason
    condition = _condition(equal)
    general_texts = {t.module_path: t for t in general.terms}
    case_texts = {t.module_path: t for t in case.terms}
    terms = tuple(
        _term(module_path, general_texts.get(module_path), case_texts.get(module_path), condition)
        for module_path in dict.fromkeys((*general_texts, *case_texts))
    )
    assert general._evaluator is not None  # both were just derived
    assert case._evaluator is not None
    evaluator = _ByCases(general._evaluator, case._evaluator, equal)
    parts = tuple(_parts(general, case, condition))
    return replace(case, text=_piecewise(case.text, general.text, condition), terms=terms, parts=parts, _evaluator=evaluator)


def _parts(general: Quantity, case: Quantity, condition: str) -> Iterator[QuantityPart]:
    """The parts of the model by cases; at the sizes of the case, those in general alone are 0."""
    general_texts, case_parts = {part.part: part.expr for part in general.parts}, {part.part: part for part in case.parts}
    for name in dict.fromkeys((*general_texts, *case_parts)):
        part = case_parts.get(name, QuantityPart(name, "0", 0))
        yield replace(part, expr=_piecewise(part.expr, general_texts.get(name, "0"), condition))


def specialized_sizes(general: Mapping[str, int], sizes: Mapping[str, int], equal: Mapping[str, str]) -> dict[str, int]:
    """The sizes that are specialized in general or in the case in force; dimensions equal to a product or a sum are not."""
    return {**general, **{name: sizes[name] for name, to in equal.items() if "*" not in to and "+" not in to}}


def _condition(equal: Mapping[str, str]) -> str:
    equations = [f"Eq({name}, {to})" for name, to in equal.items()]
    return equations[0] if len(equations) == 1 else f"And({', '.join(equations)})"


def _piecewise(case: str | None, general: str | None, condition: str) -> str:
    return str(general) if case == general else f"Piecewise(({case}, {condition}), ({general}, True))"


@dataclass(frozen=True, slots=True)
class _ByCases:
    """Evaluates the quantity by the case that applies at the sizes."""

    general: Evaluator
    case: Evaluator
    equal: Mapping[str, str]

    @property
    def own(self) -> _ByCases:
        return self

    def sizes(self, values: Mapping[str, int]) -> dict[str, int]:
        return self.general.sizes(values)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return self.general.holds(sizes)

    def value(self, sizes: Mapping[str, int]) -> int:
        return (self.case if applies(self.equal, sizes) else self.general).value(sizes)

    def expr(self) -> sp.Expr:
        import sympy as sp

        from calc.symbolic.algebra import condition_to_sympy

        case, general = self.case.expr(), self.general.expr()
        if case == general:
            return general
        return sp.Piecewise((case, condition_to_sympy(_condition(self.equal))), (general, True), evaluate=False)


def _term(module_path: str, general: QuantityTerm | None, case: QuantityTerm | None, condition: str) -> QuantityTerm:
    text = _piecewise(case.expr if case else "0", general.expr if general else "0", condition)
    present = case or general
    assert present is not None
    return QuantityTerm(module_path, text, case.value if case else 0, present.because, case.parts if case else ())

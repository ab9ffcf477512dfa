"""The exact count that a rule of thumb approximates: a signed sum of derived quantities, with its addends by module path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from calc.derive.names import AddendLabel
from calc.derive.quantities import PLACEHOLDERS
from calc.derive.result import Derivation, QuantityTerm
from calc.derive.rules_of_thumb.rules import RuleOfThumb
from calc.errors import NapkinError
from calc.symbolic.exact import evaluate_text
from calc.units import ITEM_SIZE, Unit

PARAMETER_BYTES = "parameters.bytes"


@dataclass(frozen=True, slots=True)
class Addend:
    """One addend of an exact count, with its sign in ``expr``, its description and module path."""

    quantity: str
    module_path: str
    label: AddendLabel
    expr: str


def inapplicable(rule: RuleOfThumb, derivation: Derivation) -> str:
    """Why ``rule`` does not apply to this model, or an empty text if it does."""
    absent = [name for name in rule.needs if name not in derivation.sizes]
    if absent:
        return f"does not apply: it is stated in {', '.join(rule.needs)}, and this model has no {', '.join(absent)}"
    present = [name for name in rule.without if name in derivation.sizes]
    if present:
        return f"does not apply: it is stated for models without {', '.join(rule.without)}, and this model has {', '.join(present)}"
    return ""


def incomparable(rule: RuleOfThumb, derivation: Derivation) -> str:
    """Why the exact count is unknown, or an empty text if it is known."""
    for _, name in rule.exact:
        if name == PARAMETER_BYTES and name not in derivation.quantities:
            if not _parameter_bytes(derivation):
                return "cannot be compared: the derivation does not state the bytes of the parameters"
        elif name not in derivation.quantities:
            return f"cannot be compared: the derivation has no {name}"
        elif derivation[name].text is None:
            return f"cannot be compared: {name} is unknown: {derivation[name].unknown}"
        elif formats := _other_formats(rule, derivation, name):
            return f"cannot be compared: it counts numbers in {rule.format}, and {name} has {', '.join(formats)}"
    if rule.counted and not is_stated(derivation, rule.counted):
        return f"cannot be compared: {rule.counted} is unknown{_why(derivation, rule.counted)}"
    return ""


def is_stated(derivation: Derivation, name: str) -> bool:
    """Whether the derivation has a closed form of the quantity."""
    return name in derivation.quantities and derivation[name].text is not None


def _why(derivation: Derivation, name: str) -> str:
    return f": {derivation[name].unknown}" if name in derivation.quantities else ": the derivation does not state it"


def written(rule: RuleOfThumb, derivation: Derivation, parameters: str | None = None) -> str:
    """The rule with N replaced by the parameter count, or by the given part of it."""
    if parameters is None:
        parameters = derivation[rule.counted].text if rule.counted else ""
    expr = rule.expr
    for letter in PLACEHOLDERS:
        expr = expr.replace(letter, parameters or "0")
    return expr


def _other_formats(rule: RuleOfThumb, derivation: Derivation, name: str) -> list[str]:
    """Dtypes of the tensors counted in bytes other than the rule's."""
    if not rule.format or derivation[name].unit is not Unit.BYTE:
        return []
    formats = dict.fromkeys(label.dtype for term in derivation[name].terms for label, _ in term.addends)
    return [f if f in ITEM_SIZE else "an unknown format" for f in formats if f != rule.format]


def _parameter_bytes(derivation: Derivation) -> str:
    """Bytes of the parameters as the peak counts them: every candidate contains all parameters."""
    candidates = derivation["memory.peak"].candidates if "memory.peak" in derivation.quantities else ()
    return candidates[0].parts.get("parameter", "") if candidates else ""


class ExactCount:
    """The signed sum of derived quantities that a rule approximates, in the rule's unit."""

    def __init__(self, rule: RuleOfThumb, derivation: Derivation) -> None:
        self._derivation = derivation
        self.rule = rule
        self.size = ITEM_SIZE[rule.format] if rule.format and derivation[rule.exact[0][1]].unit is Unit.BYTE else 1
        self._parts = [(sign, name) for sign, name in rule.exact if name in derivation.quantities]
        self._parameters = _parameter_bytes(derivation) if len(self._parts) < len(rule.exact) else ""

    def at(self, sizes: Mapping[str, int]) -> int:
        """The integer at other sizes; raises where the closed forms do not hold, since a search over a range must not trace each size."""
        if sizes and not self._derivation.holds_at(sizes):
            raise NapkinError("the step runs other operators at these sizes")
        total = sum(sign * self._derivation[name].by_its_form(sizes) for sign, name in self._parts)
        if self._parameters:
            total += int(evaluate_text(self._parameters, {**self._derivation.sizes, **sizes}))
        elements = Fraction(total, self.size)
        assert elements.denominator == 1  # a tensor has an integral number of elements
        return int(elements)

    def quantities(self) -> list[tuple[int, str, str]]:
        """``(sign, name, closed form)`` of each quantity, in its own unit."""
        counted = [(sign, name, self._derivation[name].text or "0") for sign, name in self._parts]
        return [*counted, *([(1, PARAMETER_BYTES, self._parameters)] if self._parameters else [])]

    def addends(self) -> Iterator[Addend]:
        """The addends in the rule's unit. A quantity without terms is a single addend."""
        for sign, name in self._parts:
            quantity = self._derivation[name]
            full_term = QuantityTerm(name, quantity.text or "0", quantity.value or 0, quantity.meaning)
            for term in quantity.terms or (full_term,):
                for label, expr in term.addends:
                    yield Addend(name, term.module_path, label, self._scaled(sign, expr))
        if self._parameters:
            yield Addend(PARAMETER_BYTES, "parameters", AddendLabel("storages of the parameters"), self._parameters)

    def _scaled(self, sign: int, expr: str) -> str:
        return f"({'-' if sign < 0 else ''}({expr}))/{self.size}" if self.size != 1 or sign < 0 else expr

"""What evaluates expressions: an ``Arithmetic`` defines the operations over one kind of values.

Integers and fractions are in ``calc.symbolic.exact``, then ``arrays``, ``arithmetic`` (questions) and ``algebra`` (polynomials and SymPy).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Generic, TypeVar

from calc.errors import NapkinError
from calc.symbolic.expression import (
    RELATIONS,
    Compare,
    Expression,
    FloorQuotient,
    FunctionCall,
    Negative,
    Number,
    Piecewise,
    Power,
    Product,
    Quotient,
    Remainder,
    Sum,
)
from calc.symbolic.writer import as_text

V = TypeVar("V")


class ByName(dict[str, V]):
    """The values of names: those ``given``, and of each other one what ``value`` gives when it is asked for."""

    def __init__(self, value: Callable[[str], V], given: Mapping[str, V] | None = None) -> None:
        super().__init__(given or {})
        self._value = value

    def __missing__(self, name: str) -> V:
        return self._value(name)


class Arithmetic(Generic[V]):
    """The operations of expressions over one kind of values; ``values`` has the value of each name.

    An operation takes its node, so that a message can quote it and an operand need not be evaluated. Operations that some kinds of values
    lack raise ``refused`` here; subclasses define them.
    """

    values: Mapping[str, V]

    def number(self, node: Number) -> V:
        return node.value  # type: ignore[return-value]  # most kinds of values calculate with Python's numbers

    def sum(self, node: Sum) -> V:
        return reduce(operator.add, [term.value_in(self) for term in node.terms]) if node.terms else self.number(Number(0))

    def product(self, node: Product) -> V:
        return reduce(operator.mul, [factor.value_in(self) for factor in node.factors]) if node.factors else self.number(Number(1))

    def negative(self, node: Negative) -> V:
        return -node.body.value_in(self)  # type: ignore[operator, no-any-return]  # every kind of value has a sign

    def quotient(self, node: Quotient) -> V:
        raise self.refused(node)

    def floor_quotient(self, node: FloorQuotient) -> V:
        raise self.refused(node)

    def remainder(self, node: Remainder) -> V:
        raise self.refused(node)

    def power(self, node: Power) -> V:
        raise self.refused(node)

    def call(self, node: FunctionCall) -> V:
        raise self.refused(node)

    def piecewise(self, node: Piecewise) -> V:
        """The first case whose condition holds; the others are not evaluated."""
        for value, condition in node.cases:
            if condition.holds_in(self):
                return value.value_in(self)
        raise self.refused(node)

    def compare(self, node: Compare) -> Any:
        return RELATIONS[node.relation](node.left.value_in(self), node.right.value_in(self))

    def all_hold(self, conditions: Sequence[Expression]) -> Any:
        return all(condition.holds_in(self) for condition in conditions)

    def any_holds(self, conditions: Sequence[Expression]) -> Any:
        return any(condition.holds_in(self) for condition in conditions)

    def inverse(self, condition: Expression) -> Any:
        return not condition.holds_in(self)

    def refused(self, node: Expression) -> Exception:
        """The error for a node without a value in this arithmetic."""
        return NapkinError(f"cannot read the size {as_text(node, spaced=True)!r}")

    def refused_condition(self, node: Expression) -> Exception:
        """The error for a node that is not a condition in this arithmetic."""
        return NapkinError(f"cannot read the condition {as_text(node, spaced=True)!r}")


class PythonOperators(Arithmetic[Any]):
    """Values with Python's operators, such as torch's symbolic sizes."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def sum(self, node: Sum) -> Any:
        total = node.terms[0].value_in(self)
        for term in node.terms[1:]:
            total = total - term.body.value_in(self) if isinstance(term, Negative) else total + term.value_in(self)
        return total

    def quotient(self, node: Quotient) -> Any:
        return node.top.value_in(self) / node.bottom.value_in(self)

    def floor_quotient(self, node: FloorQuotient) -> Any:
        return node.top.value_in(self) // node.bottom.value_in(self)

    def remainder(self, node: Remainder) -> Any:
        return node.top.value_in(self) % node.bottom.value_in(self)

    def power(self, node: Power) -> Any:
        return node.base.value_in(self) ** node.exponent.value_in(self)

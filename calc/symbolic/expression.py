"""Expressions in sizes as one tree, whose nodes are immutable values, and what traverses and rewrites it.

A tree preserves the order of writing. SymPy expands and reorders (``2*(x + y)`` becomes ``2*x + 2*y``), so it cannot represent the steps of
a derivation. ``Labelled`` and ``OverLayers`` occur only in displayed expressions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from calc.symbolic.evaluation import Arithmetic

V = TypeVar("V")


def _initializer(*setters: Callable[[Any, Any], None]) -> Callable[..., None]:
    """``__init__`` of a node with one to three fields."""
    first, second, third = (*setters, *setters, *setters)[:3]

    def one(self: Any, a: Any) -> None:
        first(self, a)

    def two(self: Any, a: Any, b: Any) -> None:
        first(self, a)
        second(self, b)

    def three(self: Any, a: Any, b: Any, c: Any) -> None:
        first(self, a)
        second(self, b)
        third(self, c)

    return (one, two, three)[len(setters) - 1]


@dataclass_transform(frozen_default=True)
class _Kind(type):
    """Metaclass of the nodes: a slot for each annotated field. Making the classes with ``dataclass`` takes 25 ms, a fifth of the time to
    answer a question."""

    slots: tuple[str, ...]
    fields: Callable[[Any], Any]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        slots = tuple(namespace.get("__annotations__", ()))
        cls = super().__new__(mcs, name, bases, {**namespace, "__slots__": slots, "__match_args__": slots})
        cls.slots = slots
        if slots:
            if "__init__" not in namespace:
                cls.__init__ = _initializer(*(getattr(cls, slot).__set__ for slot in slots))  # type: ignore[misc]  # as a dataclass has
            cls.fields = operator.attrgetter(*slots)
        return cls


class _Node(metaclass=_Kind):
    """An immutable node, equal to another of the same class and fields. Each class calls its own operation of an arithmetic, which is
    several times as fast as one function that dispatches on the class."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} of an expression cannot be set")

    def __eq__(self, other: object) -> bool:
        return self.__class__ is other.__class__ and type(self).fields(self) == type(self).fields(other)

    def __hash__(self) -> int:
        return hash((self.__class__, type(self).fields(self)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(repr(getattr(self, name)) for name in type(self).slots)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in type(self).slots)

    def value_in(self: Any, arithmetic: Arithmetic[V]) -> V:
        """The value in an arithmetic."""
        raise arithmetic.refused(self)

    def holds_in(self: Any, arithmetic: Arithmetic[Any]) -> Any:
        """Whether this condition holds: a bool, or what the arithmetic's comparisons return."""
        raise arithmetic.refused_condition(self)


class Number(_Node):
    """An integer, or a decimal as it was written."""

    value: int | float

    def value_in(self, arithmetic: Arithmetic[V]) -> V:
        return arithmetic.number(self)


class Truth(_Node):
    value: bool

    def holds_in(self, arithmetic: Arithmetic[Any]) -> Any:
        return self.value


class Name(_Node):
    name: str

    def value_in(self, arithmetic: Arithmetic[V]) -> V:
        return arithmetic.values[self.name]


class Sum(_Node):
    """A difference is a sum with a ``Negative`` term."""

    terms: tuple[Expression, ...]

    def value_in(self, arithmetic: Arithmetic[V]) -> V:
        return arithmetic.sum(self)


class Product(_Node):
    factors: tuple[Expression, ...]

    def value_in(self, arithmetic: Arithmetic[V]) -> V:
        return arithmetic.product(self)


class Quotient(_Node):
    top: Expression
    bottom: Expression

    def value_in(self, arithmetic: Arithmetic[V]) -> V:
        return arithmetic.quotient(self)


class FloorQuotient(_Node):
    """``top // bottom``."""

    top: Expression
    bottom: Expression

    def value_in(self, arithmetic: Arithmetic[V]) -> V:
        return arithmetic.floor_quotient(self)


class Remainder(_Node):
    """``top % bottom``."""

    top: Expression
    bottom: Expression

    def value_in(self, arithmetic: Arithmetic[V]) -> V:
        return arithmetic.remainder(self)


class Power(_Node):
    base: Expression
    exponent: Expression

    def value_in(self, arithmetic: Arithmetic[V]) -> V:
        return arithmetic.power(self)


class Negative(_Node):
    body: Expression

    def value_in(self, arithmetic: Arithmetic[V]) -> V:
        return arithmetic.negative(self)


class FunctionCall(_Node):
    """A function of arguments: ``floor(T/2)``, ``Max(a, b)``; conditions in SymPy's notation too, ``Eq(B, 1)``."""

    function: str
    arguments: tuple[Expression, ...]

    def value_in(self, arithmetic: Arithmetic[V]) -> V:
        return arithmetic.call(self)

    def holds_in(self, arithmetic: Arithmetic[Any]) -> Any:
        match self.function, self.arguments:
            case "And", parts:
                return arithmetic.all_hold(parts)
            case "Or", parts:
                return arithmetic.any_holds(parts)
            case "Not", (body,):
                return arithmetic.inverse(body)
            case relation, (left, right) if relation in SYMPY_RELATIONS:
                return arithmetic.compare(Compare(left, SYMPY_RELATIONS[relation], right))
        raise arithmetic.refused_condition(self)


class Compare(_Node):
    """``left relation right``, where ``relation`` is one of ``RELATIONS``."""

    left: Expression
    relation: str
    right: Expression

    def holds_in(self, arithmetic: Arithmetic[Any]) -> Any:
        return arithmetic.compare(self)


class And(_Node):
    parts: tuple[Expression, ...]

    def holds_in(self, arithmetic: Arithmetic[Any]) -> Any:
        return arithmetic.all_hold(self.parts)


class Or(_Node):
    parts: tuple[Expression, ...]

    def holds_in(self, arithmetic: Arithmetic[Any]) -> Any:
        return arithmetic.any_holds(self.parts)


class Not(_Node):
    body: Expression

    def holds_in(self, arithmetic: Arithmetic[Any]) -> Any:
        return arithmetic.inverse(self.body)


class Piecewise(_Node):
    """The expression of the first ``(expression, condition)`` whose condition holds."""

    cases: tuple[tuple[Expression, Expression], ...]

    def value_in(self, arithmetic: Arithmetic[V]) -> V:
        return arithmetic.piecewise(self)


class OverLayers(_Node):
    """``Σ index=1..upper body``, where ``body`` does not depend on the index: its value is ``upper * body``."""

    index: str
    upper: Expression
    body: Expression

    def value_in(self, arithmetic: Arithmetic[V]) -> V:
        return arithmetic.product(Product((self.upper, self.body)))


class Labelled(_Node):
    """``body`` with a label under a brace, which says where the addend comes from: of one that an ``operator`` has, ``mul: a · b``, or the
    operator alone."""

    body: Expression
    label: str
    operator: str

    def __init__(self, body: Expression, label: str, operator: str = "") -> None:
        for name, value in (("body", body), ("label", label), ("operator", operator)):
            object.__setattr__(self, name, value)

    @property
    def text(self) -> str:
        """The label as it is shown."""
        return ": ".join(filter(None, (self.operator, self.label)))

    def value_in(self, arithmetic: Arithmetic[V]) -> V:
        return self.body.value_in(arithmetic)


Expression = (
    Number | Truth | Name | Sum | Product | Quotient | FloorQuotient | Remainder | Power | Negative | FunctionCall
    | Compare | And | Or | Not | Piecewise | OverLayers | Labelled
)  # fmt: skip

RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
SYMPY_RELATIONS = {"Eq": "==", "Ne": "!=", "Lt": "<", "Le": "<=", "Gt": ">", "Ge": ">="}


# -- traversing and rewriting ---------------------------------------------------------------------------------------------------------


def children(expr: Expression) -> tuple[Expression, ...]:
    """The operands, in the order of writing."""
    match expr:
        case Sum(parts) | Product(parts) | FunctionCall(_, parts) | And(parts) | Or(parts):
            return parts
        case Negative(body) | Not(body) | Labelled(body, _):
            return (body,)
        case Quotient(a, b) | FloorQuotient(a, b) | Remainder(a, b) | Power(a, b) | Compare(a, _, b) | OverLayers(_, a, b):
            return (a, b)
        case Piecewise(cases):
            return tuple(part for case in cases for part in case)
    return ()


def with_children(expr: Expression, new: Sequence[Expression]) -> Expression:
    """``expr`` with the operands ``new``, in the order of ``children``."""
    match expr:
        case Sum() | Product() | And() | Or():
            return type(expr)(tuple(new))
        case FunctionCall(function, _):
            return FunctionCall(function, tuple(new))
        case Negative() | Not():
            return type(expr)(new[0])
        case Labelled(_, label, operator_):
            return Labelled(new[0], label, operator_)
        case Quotient() | FloorQuotient() | Remainder() | Power():
            return type(expr)(*new)
        case Compare(_, relation, _):
            return Compare(new[0], relation, new[1])
        case OverLayers(index, _, _):
            return OverLayers(index, *new)
        case Piecewise():
            return Piecewise(tuple(zip(new[::2], new[1::2], strict=True)))
    return expr


def walk(expr: Expression) -> Iterator[Expression]:
    """The expression and everything in it, in the order of writing."""
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(children(node)))


def names(expr: Expression) -> tuple[str, ...]:
    """The names in an expression in the order of writing, once for each mention; names of functions are excluded."""
    return tuple(node.name for node in walk(expr) if isinstance(node, Name))


def rewritten(expr: Expression, rule: Callable[[Expression], Expression | None]) -> Expression:
    """``expr`` with each part replaced by what ``rule`` returns for it, unless that is None; outer parts first, and replacements are not
    rewritten."""
    new = rule(expr)
    if new is not None:
        return new
    old = children(expr)
    if not old:
        return expr
    parts = [rewritten(child, rule) for child in old]
    return expr if all(a is b for a, b in zip(old, parts, strict=True)) else with_children(expr, parts)


def substitute(expr: Expression, replacements: Mapping[str, Expression]) -> Expression:
    """``expr`` with names replaced by expressions."""
    return rewritten(expr, lambda node: replacements.get(node.name) if isinstance(node, Name) else None)


def bare(expr: Expression) -> Expression:
    """The expression without the labels around it."""
    while isinstance(expr, Labelled):
        expr = expr.body
    return expr

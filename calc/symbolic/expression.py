"""Expressions in sizes as one tree: parsed once, evaluated over any kind of values, rewritten, and written as text.

A tree preserves the order of writing. SymPy expands and reorders (``2*(x + y)`` becomes ``2*x + 2*y``), so it cannot represent the steps of
a derivation. ``Labelled`` and ``OverLayers`` occur only in displayed expressions. An ``Arithmetic`` defines the operations:
``calc.symbolic.exact`` (integers and fractions), ``arrays``, ``arithmetic`` (questions), ``algebra`` (polynomials and SymPy).
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import lru_cache, reduce
from typing import Any, Generic, TypeVar, dataclass_transform

from calc.errors import BadInputError, NapkinError

LONGEST = 1_000_000  # characters: the program's own closed forms have up to some 100,000
DEEPEST = 200  # operations inside one another


class ExpressionError(BadInputError):
    """The text is not a valid expression."""


class ForeignError(ExpressionError):
    """The text is Python, but contains more than numbers, names, operators and function calls."""


# -- nodes ---------------------------------------------------------------------------------------------------------------------------

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
    """``body`` with a label under a brace, which says where the addend comes from."""

    body: Expression
    label: str

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


# -- parsing -------------------------------------------------------------------------------------------------------------------------


FUNCTIONS = ("floor", "ceiling", "Max", "Min", "Mod")


@lru_cache(maxsize=1 << 16)
def parse(text: str) -> Expression:
    """The tree of ``text`` in Python's notation. Raises ExpressionError if it is too long, too deep, or not an expression."""
    if len(text) > LONGEST:
        raise ExpressionError(f"cannot read an expression of {len(text):,} characters: write one of at most {LONGEST:,}")
    try:
        return _read(ast.parse(text, mode="eval").body, DEEPEST)
    except ForeignError:
        raise ForeignError(f"cannot read {text[:60]!r}: write it with + - * / // % ** and {', '.join(FUNCTIONS)}") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"cannot read the expression {text[:60]!r}: write it with + - * / // % ** and names") from None


def _read(node: ast.expr, depth: int) -> Expression:
    reader = _READERS.get(type(node))
    if reader is None:
        raise ForeignError
    if not depth:
        raise ValueError
    return reader(node, depth - 1)


def _name(node: ast.Name, depth: int) -> Expression:
    return Name(node.id)


def _keyed(node: ast.Subscript, depth: int) -> Expression:
    """``E2['h.0']`` is one name."""
    match node:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str() as key)):
            return Name(f"{name}[{key!r}]")
    raise ForeignError


def _constant(node: ast.Constant, depth: int) -> Expression:
    match node.value:
        case bool() as truth:
            return Truth(truth)
        case int() as number:
            return Number(number)
        case float() as number if math.isfinite(number):
            return Number(number)
    raise ForeignError


_ADDITIVE, _MULTIPLICATIVE = frozenset({ast.Add, ast.Sub}), frozenset({ast.Mult})
_OPERATIONS: dict[type[ast.operator], Callable[[Expression, Expression], Expression]] = {
    ast.Div: Quotient, ast.FloorDiv: FloorQuotient, ast.Mod: Remainder, ast.Pow: Power,
}  # fmt: skip


def _operation(node: ast.BinOp, depth: int) -> Expression:
    kind = type(node.op)
    if kind is ast.Mult:
        return Product(_operands(node, _MULTIPLICATIVE, depth))
    if kind in _ADDITIVE:
        return Sum(_operands(node, _ADDITIVE, depth))
    if kind not in _OPERATIONS:
        raise ForeignError
    return _OPERATIONS[kind](_read(node.left, depth), _read(node.right, depth))


def _operands(node: ast.expr, kinds: Set[type[ast.operator]], depth: int) -> tuple[Expression, ...]:
    """The terms of a sum or the factors of a product, which Python reads from the left: (a + b) - c."""
    operands: list[Expression] = []
    while isinstance(node, ast.BinOp) and (kind := type(node.op)) in kinds:
        right = _read(node.right, depth)
        operands.append(Negative(right) if kind is ast.Sub else right)
        node = node.left
    operands.append(_read(node, depth))
    return tuple(reversed(operands))


def _unary(node: ast.UnaryOp, depth: int) -> Expression:
    match node.op:
        case ast.USub():
            return Negative(_read(node.operand, depth))
        case ast.Not():
            return Not(_read(node.operand, depth))
    raise ForeignError


def _call(node: ast.Call, depth: int) -> Expression:
    if not isinstance(node.func, ast.Name) or node.keywords:
        raise ForeignError
    if node.func.id != "Piecewise":
        return FunctionCall(node.func.id, tuple([_read(argument, depth) for argument in node.args]))
    pairs = [a.elts for a in node.args if isinstance(a, ast.Tuple) and len(a.elts) == 2]
    if not pairs or len(pairs) != len(node.args):
        raise ForeignError
    return Piecewise(tuple((_read(value, depth), _read(condition, depth)) for value, condition in pairs))


_RELATION_OF: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


def _comparison(node: ast.Compare, depth: int) -> Expression:
    match node.ops:
        case [op] if type(op) in _RELATION_OF:
            return Compare(_read(node.left, depth), _RELATION_OF[type(op)], _read(node.comparators[0], depth))
    raise ForeignError


def _connection(node: ast.BoolOp, depth: int) -> Expression:
    return (And if isinstance(node.op, ast.And) else Or)(tuple(_read(part, depth) for part in node.values))


_READERS: dict[type[ast.expr], Callable[[Any, int], Expression]] = {
    ast.Name: _name, ast.Constant: _constant, ast.BinOp: _operation, ast.UnaryOp: _unary, ast.Call: _call,
    ast.Compare: _comparison, ast.BoolOp: _connection, ast.Subscript: _keyed,
}  # fmt: skip


# -- evaluating ----------------------------------------------------------------------------------------------------------------------


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
        return NapkinError(f"cannot read the size {text(node, spaced=True)!r}")

    def refused_condition(self, node: Expression) -> Exception:
        """The error for a node that is not a condition in this arithmetic."""
        return NapkinError(f"cannot read the condition {text(node, spaced=True)!r}")


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
        case Labelled(_, label):
            return Labelled(new[0], label)
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
    yield expr
    for child in children(expr):
        yield from walk(child)


def names(expr: Expression) -> tuple[str, ...]:
    """The names in an expression in the order of writing, once for each mention; names of functions are excluded."""
    return tuple(node.name for node in walk(expr) if isinstance(node, Name))


@lru_cache(maxsize=1 << 16)
def names_in(text: str) -> frozenset[str]:
    """The names in the expression ``text``."""
    return frozenset(names(parse(text)))


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


def substituted(expression: str, replacements: Mapping[str, str]) -> str:
    """The text of ``expression`` with names replaced by expressions."""
    return text(substitute(parse(expression), {name: parse(of) for name, of in replacements.items()}), spaced=True)


def bare(expr: Expression) -> Expression:
    """The expression without the labels around it."""
    while isinstance(expr, Labelled):
        expr = expr.body
    return expr


# -- writing -------------------------------------------------------------------------------------------------------------------------

# Precedences as in Python's grammar, lowest first.
_OR, _AND, _NOT, _RELATION, _SUM, _PRODUCT, _SIGN, _POWER, _ATOM = range(9)


def text(expr: Expression, *, spaced: bool = False, grouped: bool = False) -> str:
    """The expression as one line that ``parse`` and SymPy read, without labels.

    ``spaced`` puts spaces around every operator. ``grouped`` brackets nested sums, products and quotients even where precedence does not
    require it, ``(a*b)/c``; its non-polynomial parts, ``floor(T / 2)``, are spaced.
    """
    return (_GROUPED if grouped else _SPACED if spaced else _COMPACT).written(expr)[0]


class _Writer:
    """Writes the brackets that Python's grammar needs."""

    left, right = _PRODUCT, _SIGN  # least precedence of the first factor, and of the others

    def __init__(self, spaced: bool) -> None:
        self._times, self._over, self._to_the = (" * ", " / ", " ** ") if spaced else ("*", "/", "**")

    def written(self, expr: Expression) -> tuple[str, int]:
        """(text, precedence)."""
        match expr:
            case Name(name):
                return name, _ATOM
            case Number(value):
                return repr(value), _SIGN if value < 0 else _ATOM
            case Sum(terms):
                return self.sum(terms)
            case Product(factors):
                return self.product(factors)
            case OverLayers(_, upper, body):
                return self.product((upper, body))
            case Power(base, exponent):
                return f"{self._base(base)}{self._to_the}{self.inside(exponent, _POWER)}", _POWER
            case Quotient(top, bottom):
                return f"{self.inside(top, self.left)}{self._over}{self.inside(bottom, self.right)}", _PRODUCT
            case Negative(body):
                return f"-{self.inside(body, self.right)}", _SIGN
            case Labelled(body, _):
                return self.written(body)
            case FloorQuotient() | Remainder() | FunctionCall():
                return self.atom(expr)
            case _:
                return self._condition(expr)

    def atom(self, expr: FloorQuotient | Remainder | FunctionCall) -> tuple[str, int]:
        """(text, precedence) of a non-polynomial part."""
        match expr:
            case FloorQuotient(top, bottom):
                return f"{self.inside(top, _PRODUCT)} // {self.inside(bottom, _SIGN)}", _PRODUCT
            case Remainder(top, bottom):
                return f"{self.inside(top, _PRODUCT)} % {self.inside(bottom, _SIGN)}", _PRODUCT
            case FunctionCall(function, arguments):
                return f"{function}({', '.join(self.written(a)[0] for a in arguments)})", _ATOM

    def _condition(self, expr: Truth | Compare | And | Or | Not | Piecewise) -> tuple[str, int]:
        match expr:
            case Truth(value):
                return repr(value), _ATOM
            case Compare(left, relation, right):
                return f"{self.inside(left, _SUM)} {relation} {self.inside(right, _SUM)}", _RELATION
            case And(parts):
                return " and ".join(self.inside(part, _NOT) for part in parts), _AND
            case Or(parts):
                return " or ".join(self.inside(part, _AND) for part in parts), _OR
            case Not(body):
                return f"not {self.inside(body, _NOT)}", _NOT
            case Piecewise(cases):
                pairs = (f"({self.written(value)[0]}, {self.written(condition)[0]})" for value, condition in cases)
                return f"Piecewise({', '.join(pairs)})", _ATOM

    def inside(self, expr: Expression, least: int) -> str:
        """The text of ``expr``, in brackets if its precedence is below ``least``."""
        written, tightness = self.written(expr)
        return written if tightness >= least else f"({written})"

    def sum(self, terms: tuple[Expression, ...]) -> tuple[str, int]:
        if len(terms) == 1:
            return self.written(terms[0])
        return self._added(terms, _SUM), _SUM

    def _added(self, terms: tuple[Expression, ...], first: int) -> str:
        out = ""
        for term in terms:
            inner = bare(term)
            if isinstance(inner, Negative) and out:
                out += f" - {self.inside(inner.body, max(self.left, _PRODUCT))}"
            else:
                out = f"{out} + {self.inside(inner, _PRODUCT)}" if out else self.inside(inner, first)
        return out or "0"

    def product(self, factors: tuple[Expression, ...]) -> tuple[str, int]:
        if len(factors) == 1:
            return self.written(factors[0])
        first, *rest = factors or (Number(1),)
        return self._times.join([self.inside(first, self.left), *(self.inside(factor, self.right) for factor in rest)]), _PRODUCT

    def _base(self, base: Expression) -> str:
        """The text of a power's base, in brackets where needed: a**b**c would be a**(b**c), and -2**2 would be -(2**2)."""
        inner = bare(base)
        return f"({inner.value!r})" if isinstance(inner, Number) and inner.value < 0 else self.inside(base, _ATOM)


def is_operator(name: str) -> bool:
    """Whether the text of an atom is written with an operator (``T // 2``), so that it needs brackets beside another operator."""
    return not name.isidentifier() and not isinstance(parse(name), FunctionCall)


class _GroupingWriter(_Writer):
    """Writes brackets around every sum, product or quotient inside another one."""

    left = right = _POWER

    def written(self, expr: Expression) -> tuple[str, int]:
        match expr:
            case Number(value):
                return repr(value), _ATOM
            case Name(name):
                return name, _PRODUCT if is_operator(name) else _ATOM
        return super().written(expr)

    def atom(self, expr: FloorQuotient | Remainder | FunctionCall) -> tuple[str, int]:
        return super().atom(expr) if isinstance(expr, FunctionCall) and expr.function == "Max" else _SPACED.written(expr)

    def sum(self, terms: tuple[Expression, ...]) -> tuple[str, int]:
        return self._added(terms, _PRODUCT), _SUM

    def product(self, factors: tuple[Expression, ...]) -> tuple[str, int]:
        written = "*".join(self.inside(factor, _POWER) for factor in factors)
        return written or "1", _PRODUCT if len(factors) > 1 else _ATOM


_COMPACT, _SPACED, _GROUPED = _Writer(spaced=False), _Writer(spaced=True), _GroupingWriter(spaced=False)

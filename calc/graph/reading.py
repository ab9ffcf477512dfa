"""Reads a graph from untrusted JSON data. Invalid data raises an error with the path of the first wrong value.

Sizes and guards are parsed; only arithmetic in the graph's own symbols is accepted, and the work to evaluate it is bounded. No text is ever
run as code.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any, NoReturn

from calc.dimensions import LARGEST
from calc.graph.folds import Fold
from calc.graph.step import (
    PHASES,
    ROLES,
    Assumption,
    Call,
    Event,
    Graph,
    Guard,
    Op,
    Saved,
    Size,
    SpecialCase,
    StepTrace,
    Storage,
    Tensor,
    TracedDim,
)
from calc.options import made
from calc.platform.reading import NUMBER, Read, T, Wrong, clipped, each, flag, mapping, maybe, one_of, part, refuse, row, text, whole
from calc.symbolic.evaluation import Arithmetic, ByName
from calc.symbolic.exact import DOUBLES
from calc.symbolic.expression import (
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
    children,
)
from calc.symbolic.expression import names as names_of
from calc.symbolic.parser import FUNCTIONS, ExpressionError, ForeignError, parse

# Real graphs have expressions of a few hundred characters, a dozen levels and a dozen terms, in powers of 2.
LENGTH, DEPTH, TERMS, BITS, POWER = 4000, 60, 500, 20_000, 64
DIMS, SPECIAL, NESTED = 1000, 8, 8
STEPS = 2  # steps per trace


def graph(data: Any) -> Graph:
    """The graph of ``data``, as written by ``serialize``."""
    return _graph(data, 0)


def _name(value: Any) -> str:
    if type(value) is not str or not value.isidentifier() or len(value) > 100:
        refuse(value, "a name: letters, digits and _")
    return value


# -- expressions ------------------------------------------------------------------------------------------------------


def _expression(names: Collection[str]) -> Read[str]:
    """Reads the text of a size in ``names``; texts that were read before are not checked twice."""
    accepted: set[str] = set()

    def read(value: Any) -> str:
        if type(value) is not str:
            refuse(value, "an expression")
        if value not in accepted:
            _tree(value, names, is_guard=False).value_in(_Weigher(value, is_guard=False))
            accepted.add(value)
        return value

    return read


def _size(names: Collection[str]) -> Read[Size]:
    """Reads a size: a number, or its text."""
    number, expression = whole(0), _expression(names)
    accepted: set[Size] = set()  # a graph has few different sizes, so each is checked once

    def read(value: Any) -> Size:
        if type(value) in (int, str) and value in accepted:
            return value  # type: ignore[no-any-return]  # an int or a str
        size = expression(value) if type(value) is str else number(value)
        accepted.add(size)
        return size

    return read


def _guard(names: Collection[str]) -> Read[str]:
    """Reads the text of a guard in ``names``."""

    def read(value: Any) -> str:
        if type(value) is not str:
            refuse(value, "a guard on sizes")
        _tree(value, names, is_guard=True).holds_in(_Weigher(value, is_guard=True))
        return value

    return read


def _tree(text: str, names: Collection[str], is_guard: bool) -> Expression:
    """The expression of a text in ``names``. Quotes and backslashes are rejected first, since the parser would warn about them."""
    if len(text) > LENGTH or set(text) & set("'\"\\#\n\r\0"):
        refuse(text, "an expression")
    try:
        tree = parse(text)
    except ForeignError:
        refuse(text, "a guard on sizes, e.g. B < 2" if is_guard else f"an expression with + - * / // % ** and {', '.join(FUNCTIONS)}")
    except ExpressionError:
        refuse(text, "an expression")
    if _levels(tree) > DEPTH:
        refuse(text, f"an expression of at most {DEPTH} levels")
    if any(name not in names for name in names_of(tree)):
        refuse(text, f"an expression in {', '.join(names)}" if names else "a number")
    return tree


def _levels(tree: Expression) -> int:
    return 1 + max(map(_levels, children(tree)), default=-1)


@dataclass(frozen=True, slots=True)
class _Weight:
    """Upper bounds of an expression's number of terms and of its value's bits, and whether it is a double."""

    terms: int
    bits: int
    double: bool = False


class _Weigher(Arithmetic[_Weight]):
    """Bounds the work to evaluate the expression ``text``. Only guards (``is_guard``) may contain doubles."""

    values = ByName(lambda _: _Weight(1, 63))

    def __init__(self, text: str, is_guard: bool) -> None:
        self._text, self._is_guard = text, is_guard

    def number(self, node: Number) -> _Weight:
        if isinstance(node.value, float):
            return _Weight(1, 0, True) if self._is_guard else self.refused(node)
        return _Weight(1, node.value.bit_length()) if node.value < NUMBER else self.refused(node)

    def negative(self, node: Negative) -> _Weight:
        return node.body.value_in(self)

    def sum(self, node: Sum) -> _Weight:
        return reduce(
            lambda a, b: self._bounded(a.terms + b.terms, max(a.bits, b.bits) + 1, a.double or b.double),
            [term.value_in(self) for term in node.terms],
        )

    def product(self, node: Product) -> _Weight:
        return reduce(self._multiplied, [factor.value_in(self) for factor in node.factors])

    def quotient(self, node: Quotient | FloorQuotient | Remainder) -> _Weight:
        return self._multiplied(node.top.value_in(self), node.bottom.value_in(self))

    floor_quotient = remainder = quotient

    def _multiplied(self, a: _Weight, b: _Weight) -> _Weight:
        return self._bounded(a.terms * b.terms, a.bits + b.bits, a.double or b.double)

    def power(self, node: Power) -> _Weight:
        base = node.base.value_in(self)
        match node.exponent:
            case Number(int() as power) if power <= POWER:
                return self._bounded(math.comb(base.terms + power - 1, power), base.bits * power, base.double)
        if not (base.double or node.exponent.value_in(self).double):
            refuse(self._text, f"integer powers up to {POWER}")
        return _Weight(base.terms, base.bits, True)

    def call(self, node: FunctionCall) -> _Weight:
        function, arguments = node.function, node.arguments
        functions = (*FUNCTIONS, "log", *(DOUBLES if self._is_guard else ()))
        if function not in functions or len(arguments) != _ARGUMENTS.get(function, len(arguments) or 1):
            refuse(self._text, f"an expression with the functions {', '.join(FUNCTIONS)}")
        parts = [argument.value_in(self) for argument in arguments]
        bits = max(part.bits for part in parts)
        if function in DOUBLES:
            return _Weight(1, max(bits, 1024), True)
        return self._bounded(1, bits, any(part.double for part in parts))

    def piecewise(self, node: Piecewise) -> _Weight:
        return self.refused(node)

    def compare(self, node: Compare) -> bool:
        node.left.value_in(self)
        node.right.value_in(self)
        return True

    def any_holds(self, conditions: Sequence[Expression]) -> Any:
        return self.all_hold(conditions)

    def refused(self, node: Expression) -> NoReturn:
        refuse(self._text, f"an expression with + - * / // % ** and {', '.join(FUNCTIONS)}")

    def refused_condition(self, node: Expression) -> NoReturn:
        refuse(self._text, "a guard on sizes, e.g. B < 2")

    def _bounded(self, terms: int, bits: int, double: bool) -> _Weight:
        if terms > TERMS or bits > BITS:
            refuse(self._text, f"an expression of at most {TERMS} terms and {BITS:,} bits")
        return _Weight(terms, bits, double)


_ARGUMENTS = {**dict.fromkeys(DOUBLES, 1), "floor": 1, "ceiling": 1, "Mod": 2, "log": 2}


# -- the graph --------------------------------------------------------------------------------------------------------


def _graph(data: Any, depth: int) -> Graph:
    if depth > SPECIAL:
        raise Wrong(f"is a special case of more than {SPECIAL} others")
    dim_names = part(data, "dims", each(lambda dim: part(dim, "name", _name)))
    if not 0 < len(set(dim_names)) == len(dim_names) <= DIMS:
        raise Wrong(f"has {len(set(dim_names))} names of {len(dim_names)} dimensions, expected as many, from 1 to {DIMS}")
    dim = one_of(dim_names, "a dimension")
    symbols = part(data, "symbols", each(_name))
    folds = part(data, "folds", each(row(dim, lambda part: whole(1)(part) if type(part) is int else dim(part), _name, whole(0), least=3)))
    part(data, "symbols", each(one_of(dict.fromkeys((*dim_names, *(fold[2] for fold in folds))), "a dimension or the quotient of a fold")))
    symbol = one_of(symbols, "a symbol")
    case = row(mapping(dim, _expression(dim_names)), lambda graph: _graph(graph, depth + 1))
    basis = part(data, "basis", mapping(dim, _expression(symbols)))
    if len(basis) < len(dim_names):
        raise Wrong(f"lacks basis.{next(name for name in dim_names if name not in basis)}")
    return Graph(
        model=part(data, "model", text),
        source=part(data, "source", text),
        dims=part(data, "dims", each(lambda value: _dim(value, dim_names))),
        basis=basis,
        symbols=symbols,
        folds=tuple(Fold(*fold) for fold in folds),
        loops=part(data, "loops", each(symbol)),
        options=_options(data),
        assumptions=tuple(Assumption(*a) for a in part(data, "assumptions", each(row(text, text, text)))),
        guards=tuple(Guard(*c) for c in part(data, "guards", each(row(_guard(symbols), flag, text, flag, least=3)))),
        traces=_records(data, "traces", symbols, concrete=False),
        certificates=_records(data, "certificates", symbols, concrete=True),
        provenance=part(data, "provenance", mapping(text, text)),
        notes=part(data, "notes", each(text)),
        trip_count_reads=part(data, "trip_count_reads", mapping(text, text)),
        specialized=part(data, "specialized", mapping(dim, _specialized)),
        mutates_tracked=part(data, "mutates_tracked", flag) if "mutates_tracked" in data else True,
        unknown=part(data, "unknown", mapping(text, text)) if "unknown" in data else {},
        reads_tensor_values=part(data, "reads_tensor_values", flag) if "reads_tensor_values" in data else False,
        special_cases=part(data, "special_cases", each(lambda entry: SpecialCase(*case(entry)))),
    )


def _specialized(value: Any) -> tuple[int, str]:
    size, why = row(whole(1, LARGEST + 1), text)(value)
    return size, why


def _dim(value: Any, names: Collection[str]) -> TracedDim:
    keys = {field.name for field in fields(TracedDim)}
    for key in value:
        if key not in keys:
            raise Wrong(f"has {clipped(key, 40)!r}, which no dimension has")
    expression = _expression(names)
    return TracedDim(
        name=part(value, "name", _name),
        meaning=part(value, "meaning", text),
        value=part(value, "value", whole(1, LARGEST + 1)),
        expr=part(value, "expr", maybe(expression)),
        tied=part(value, "tied", flag),
        multiple_of=part(value, "multiple_of", lambda by: one_of(names, "a dimension")(by) if type(by) is str else maybe(whole(1))(by)),
        at_most=part(value, "at_most", maybe(expression)),
        plus=part(value, "plus", whole(0)),
        unbacked_at=part(value, "unbacked_at", text),
    )


def _options(data: Any) -> dict[str, str]:
    """Options by name; unknown ones raise the usual error."""
    options = part(data, "options", mapping(text, text))
    made(**options)
    return options


def _records(data: Any, key: str, symbols: Collection[str], concrete: bool) -> tuple[StepTrace, ...]:
    """At least one trace; in a certificate every symbol is a number."""
    size: Read[Size] = whole(0) if concrete else _size(symbols)
    traces = part(data, key, each(lambda trace: _step_trace(trace, symbols, size)))
    if not traces:
        raise Wrong(f"has no {key}")
    for i, trace in enumerate(traces):
        if concrete and len(trace.sizes) < len(symbols):
            raise Wrong(f"lacks {key}[{i}].sizes.{next(name for name in symbols if name not in trace.sizes)}")
    return traces


def _step_trace(data: Any, symbols: Collection[str], size: Read[Size]) -> StepTrace:
    storages = part(data, "storages", each(row(size, one_of(ROLES, "a role"), text)))
    parts = each(row(whole(0, len(storages)), each(size), text, size))
    tensors = [Tensor(storage, tuple(shape), dtype, distinct) for storage, shape, dtype, distinct in part(data, "tensors", parts)]
    texts = part(data, "texts", each(text))
    calls = part(data, "calls", each(row(text, flag, size, size)))
    storage, tensor, listed = whole(0, len(storages)), _listed(tensors), _listed(texts)
    place = each(row(listed, _argument(tensor, symbols)))
    fields_of = row(listed, listed, whole(0), listed, place, each(tensor), each(listed), listed, maybe(whole(0, len(calls))))

    def op(value: Any) -> list[Any]:
        fields_of_op = fields_of(value)
        if fields_of_op[1] not in PHASES:
            refuse(fields_of_op[1], f"a phase: {', '.join(PHASES)}")
        return fields_of_op

    ops = part(data, "ops", each(op))
    events = part(data, "events", each(row(one_of((1, -1), "a change"), storage, whole(-1))))
    moment = whole(0, len(events) + 1)
    pair = each(row(text, tensor))

    def tensors_of(key: str) -> tuple[tuple[str, Tensor], ...]:
        return tuple((name, of) for name, of in part(data, key, pair))

    return StepTrace(
        sizes=part(data, "sizes", mapping(one_of(symbols, "a symbol"), whole(0))),
        storages=tuple(Storage(i, *s) for i, s in enumerate(storages)),
        ops=tuple(
            Op(i, name, phase, step, module_path, tuple((n, v) for n, v in args), outputs, mutates, node, call)
            for i, (name, phase, step, module_path, args, outputs, mutates, node, call) in enumerate(ops)
        ),
        events=tuple(Event(*e) for e in events),
        saved=tuple(Saved(*s) for s in part(data, "saved", each(row(tensor, text, text)))),
        calls=tuple(Call(*c) for c in calls),
        parameters=tensors_of("parameters"),
        gradients=tensors_of("gradients"),
        buffers=tensors_of("buffers"),
        state=tuple((n, k, t) for n, k, t in part(data, "state", each(row(text, text, tensor)))),
        persistent=part(data, "persistent", each(storage)),
        windows=tuple((a, b) for a, b in part(data, "windows", row(*[row(moment, moment)] * STEPS))),
        masters=tensors_of("masters"),
    )


def _listed(table: Sequence[T]) -> Read[T]:
    """The table entry with an index."""
    index = whole(0, len(table))

    def read(value: Any) -> T:
        return table[value if type(value) is int and 0 <= value < len(table) else index(value)]

    return read


def _argument(tensor: Read[Tensor], symbols: Collection[str]) -> Read[Any]:
    """An operator's argument: a tensor, a number, a text, null, or a list of these. A text may be a size, so the work of its powers is
    bounded."""
    power = _expression(symbols)

    def read(value: Any, depth: int = 0) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is float:
            return value
        if kind is dict:
            return part(value, "t", tensor)
        if kind is list:
            if depth > NESTED:
                refuse(value, f"lists in at most {NESTED} others")
            return each(lambda item: read(item, depth + 1))(value)
        if kind is str:
            return power(value) if "**" in value else text(value)
        if kind is int and abs(value) >= NUMBER:
            refuse(value, "a smaller number")
        return value

    return read

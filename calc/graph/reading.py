"""A graph from JSON data that anybody may have written: what is no graph is refused, with the place of the first thing that is wrong.

Every reader takes a value and gives what it stands for, or raises ``Wrong``, to which each level adds the key that it was at. Sizes and
conditions are parsed, and only arithmetic in the graph's own symbols is let through, of which the work that it takes is bounded.
Nothing here, or behind it, runs a text as code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any, NoReturn, TypeVar

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
from calc.symbolic.exact import DOUBLES
from calc.symbolic.expression import (
    FUNCTIONS,
    Arithmetic,
    Compare,
    Expression,
    ExpressionError,
    FloorQuotient,
    ForeignError,
    Negative,
    Number,
    Piecewise,
    Power,
    Product,
    Quotient,
    Remainder,
    Sum,
    children,
    parse,
)
from calc.symbolic.expression import Call as FunctionCall
from calc.symbolic.expression import names as names_of

T = TypeVar("T")
Read = Callable[[Any], T]

# Real graphs have expressions of a few hundred characters, a dozen levels and a dozen terms, in powers of 2.
LENGTH, DEPTH, TERMS, BITS, POWER = 4000, 60, 500, 20_000, 64
NUMBER = 10**60  # no size or argument is larger
TEXT = 1_000_000
DIMS, SPECIAL, NESTED = 1000, 8, 8
STEPS = 2  # of which a record is


class Wrong(Exception):
    """A value that is none of a graph. ``place`` are the keys that lead to it, from the innermost out."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.place: list[str | int] = []

    def __str__(self) -> str:
        path = "".join(f"[{key}]" if isinstance(key, int) else f".{_clipped(key, 40)}" for key in reversed(self.place))
        return f"{path.lstrip('.') or 'it'} {self.args[0]}"


def graph(data: Any) -> Graph:
    """The graph of ``data``, as ``graph_json`` writes it."""
    return _graph(data, 0)


# -- values -----------------------------------------------------------------------------------------------------------


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _wrong(value: Any, expected: str) -> NoReturn:
    match value:
        case list() | dict():
            shown = f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
        case int() if abs(value) >= NUMBER and not isinstance(value, bool):
            shown = f"a number of about {value.bit_length() * 3 // 10} digits"
        case str():
            shown = repr(_clipped(value, 60))
        case _:
            shown = json.dumps(value)
    raise Wrong(f"is {shown}, expected {expected}")


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > TEXT:
        _wrong(value, "text")
    return value


def _name(value: Any) -> str:
    if type(value) is not str or not value.isidentifier() or len(value) > 100:
        _wrong(value, "a name: letters, digits and _")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        _wrong(value, "true or false")
    return value


def _whole(least: int, below: int = NUMBER) -> Read[int]:
    said = f"an integer from {least} on" if below == NUMBER else f"an integer from {least} to {below - 1}"

    def read(value: Any) -> int:
        if type(value) is not int or not least <= value < below:
            _wrong(value, said if below > least else "nothing: there is none to refer to")
        return value

    return read


def _one_of(known: Collection[Any], what: str) -> Read[Any]:
    def read(value: Any) -> Any:
        if type(value) not in (str, int) or value not in known:
            _wrong(value, f"{what}: {', '.join(map(str, known))}" if known else f"{what}, of which there is none")
        return value

    return read


def _maybe(read: Read[T]) -> Read[T | None]:
    return lambda value: None if value is None else read(value)


def _each(read: Read[T]) -> Read[tuple[T, ...]]:
    """A list of any length."""

    def whole(value: Any) -> tuple[T, ...]:
        if type(value) is not list:
            _wrong(value, "a list")
        done: list[T] = []
        try:
            for item in value:
                done.append(read(item))
        except Wrong as wrong:
            wrong.place.append(len(done))
            raise
        return tuple(done)

    return whole


def _row(*reads: Read[Any], least: int | None = None) -> Read[list[Any]]:
    """A list of so many parts, of which those after the ``least`` first may be left out."""
    most = len(reads)
    fewest = most if least is None else least

    def whole(value: Any) -> list[Any]:
        if type(value) is not list or not fewest <= len(value) <= most:
            _wrong(value, f"a list of {most}")
        done: list[Any] = []
        try:
            for read, item in zip(reads, value, strict=False):
                done.append(read(item))
        except Wrong as wrong:
            wrong.place.append(len(done))
            raise
        return done

    return whole


def _mapping(key: Read[str], read: Read[T]) -> Read[dict[str, T]]:
    def whole(value: Any) -> dict[str, T]:
        if type(value) is not dict:
            _wrong(value, "an object")
        done: dict[str, T] = {}
        name = ""
        try:
            for name, item in value.items():
                done[key(name)] = read(item)
        except Wrong as wrong:
            wrong.place.append(name)
            raise
        return done

    return whole


def _part(data: Any, key: str, read: Read[T]) -> T:
    """The value of a key of an object that must have it."""
    if type(data) is not dict:
        _wrong(data, "an object")
    if key not in data:
        raise Wrong(f"lacks {key!r}")
    try:
        return read(data[key])
    except Wrong as wrong:
        wrong.place.append(key)
        raise


# -- expressions ------------------------------------------------------------------------------------------------------


def _expression(names: Collection[str]) -> Read[str]:
    """The text of a size in ``names``. What was read once is let through at once."""
    seen: set[str] = set()

    def read(value: Any) -> str:
        if type(value) is not str:
            _wrong(value, "an expression")
        if value not in seen:
            _tree(value, names, asks=False).value_in(_Weigher(value, asks=False))
            seen.add(value)
        return value

    return read


def _size(names: Collection[str]) -> Read[Size]:
    """A size: a number, or its text."""
    number, text = _whole(0), _expression(names)
    seen: set[Size] = set()  # nearly all of a graph's sizes are a few, so they are judged once

    def read(value: Any) -> Size:
        if type(value) in (int, str) and value in seen:
            return value  # type: ignore[no-any-return]  # it is one of those
        size = text(value) if type(value) is str else number(value)
        seen.add(size)
        return size

    return read


def _question(names: Collection[str]) -> Read[str]:
    """The text of a condition on sizes in ``names``."""

    def read(value: Any) -> str:
        if type(value) is not str:
            _wrong(value, "a condition on sizes")
        _tree(value, names, asks=True).holds_in(_Weigher(value, asks=True))
        return value

    return read


def _tree(text: str, names: Collection[str], asks: bool) -> Expression:
    """A text as an expression in ``names``, if it may be arithmetic at all: in a string or behind a backslash the parser would warn."""
    if len(text) > LENGTH or set(text) & set("'\"\\#\n\r\0"):
        _wrong(text, "an expression")
    try:
        tree = parse(text)
    except ForeignError:
        _wrong(text, "a condition on sizes, e.g. B < 2" if asks else f"an expression with + - * / // % ** and {', '.join(FUNCTIONS)}")
    except ExpressionError:
        _wrong(text, "an expression")
    if _levels(tree) > DEPTH:
        _wrong(text, f"an expression of at most {DEPTH} levels")
    if any(name not in names for name in names_of(tree)):
        _wrong(text, f"an expression in {', '.join(names)}" if names else "a number")
    return tree


def _levels(tree: Expression) -> int:
    return 1 + max(map(_levels, children(tree)), default=-1)


@dataclass(frozen=True, slots=True)
class _Weight:
    """How many terms an expression has at most, how many bits its value, and whether it is a double."""

    terms: int
    bits: int
    double: bool = False


class _SizeWeights(dict[str, _Weight]):
    def __missing__(self, name: str) -> _Weight:
        return _Weight(1, 63)


class _Weigher(Arithmetic[_Weight]):
    """The work that the expression ``text`` takes, which is bounded. Only one that ``asks`` has doubles in it."""

    values = _SizeWeights()

    def __init__(self, text: str, asks: bool) -> None:
        self._text, self._asks = text, asks

    def number(self, node: Number) -> _Weight:
        if isinstance(node.value, float):
            return _Weight(1, 0, True) if self._asks else self.refused(node)
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
            _wrong(self._text, f"whole powers up to {POWER}")
        return _Weight(base.terms, base.bits, True)

    def call(self, node: FunctionCall) -> _Weight:
        function, arguments = node.function, node.arguments
        functions = (*FUNCTIONS, "log", *(DOUBLES if self._asks else ()))
        if function not in functions or len(arguments) != _ARGUMENTS.get(function, len(arguments) or 1):
            _wrong(self._text, f"an expression with the functions {', '.join(FUNCTIONS)}")
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
        _wrong(self._text, f"an expression with + - * / // % ** and {', '.join(FUNCTIONS)}")

    def refused_condition(self, node: Expression) -> NoReturn:
        _wrong(self._text, "a condition on sizes, e.g. B < 2")

    def _bounded(self, terms: int, bits: int, double: bool) -> _Weight:
        if terms > TERMS or bits > BITS:
            _wrong(self._text, f"an expression of at most {TERMS} terms and {BITS:,} bits")
        return _Weight(terms, bits, double)


_ARGUMENTS = {**dict.fromkeys(DOUBLES, 1), "floor": 1, "ceiling": 1, "Mod": 2, "log": 2}


# -- the graph --------------------------------------------------------------------------------------------------------


def _graph(data: Any, depth: int) -> Graph:
    if depth > SPECIAL:
        raise Wrong(f"is a special case of more than {SPECIAL} others")
    named = _part(data, "dims", _each(lambda dim: _part(dim, "name", _name)))
    if not 0 < len(set(named)) == len(named) <= DIMS:
        raise Wrong(f"has {len(set(named))} names of {len(named)} dimensions, expected as many, from 1 to {DIMS}")
    dim = _one_of(named, "a dimension")
    symbols = _part(data, "symbols", _each(_name))
    folds = _part(
        data, "folds", _each(_row(dim, lambda part: _whole(1)(part) if type(part) is int else dim(part), _name, _whole(0), least=3))
    )
    _part(data, "symbols", _each(_one_of(dict.fromkeys((*named, *(fold[2] for fold in folds))), "a dimension or the quotient of a fold")))
    symbol = _one_of(symbols, "a symbol")
    basis = _part(data, "basis", _mapping(dim, _expression(symbols)))
    if len(basis) < len(named):
        raise Wrong(f"lacks basis.{next(name for name in named if name not in basis)}")
    return Graph(
        model=_part(data, "model", _text),
        source=_part(data, "source", _text),
        dims=_part(data, "dims", _each(lambda value: _dim(value, named))),
        basis=basis,
        symbols=symbols,
        folds=tuple(Fold(*fold) for fold in folds),
        loops=_part(data, "loops", _each(symbol)),
        options=_options(data),
        assumptions=tuple(Assumption(*a) for a in _part(data, "assumptions", _each(_row(_text, _text)))),
        guards=tuple(Guard(*c) for c in _part(data, "conditions", _each(_row(_question(symbols), _flag, _text, _flag, least=3)))),
        traces=_records(data, "records", symbols, concrete=False),
        certificates=_records(data, "certificates", symbols, concrete=True),
        provenance=_part(data, "provenance", _mapping(_text, _text)),
        notes=_part(data, "notes", _each(_text)),
        pins=_part(data, "pins", _mapping(_text, _text)),
        specialized={
            name: (size, why) for name, (size, why) in _part(data, "held", _mapping(dim, _row(_whole(1, LARGEST + 1), _text))).items()
        },
        rewrites=_part(data, "rewrites", _flag) if "rewrites" in data else True,
        unknown=_part(data, "unknown", _mapping(_text, _text)) if "unknown" in data else {},
        reads_tensor_values=_part(data, "reads_numbers", _flag) if "reads_numbers" in data else False,
        special_cases=_part(
            data, "special", _each(lambda case: SpecialCase(*_row(_mapping(dim, _expression(named)), lambda d: _graph(d, depth + 1))(case)))
        ),
    )


def _dim(value: Any, names: Collection[str]) -> TracedDim:
    keys = {"decided_at" if field.name == "unbacked_at" else field.name for field in fields(TracedDim)}
    for key in value:
        if key not in keys:
            raise Wrong(f"has {_clipped(key, 40)!r}, which no dimension has")
    expression = _expression(names)
    return TracedDim(
        name=_part(value, "name", _name),
        meaning=_part(value, "meaning", _text),
        value=_part(value, "value", _whole(1, LARGEST + 1)),
        expr=_part(value, "expr", _maybe(expression)),
        tied=_part(value, "tied", _flag),
        multiple_of=_part(value, "multiple_of", lambda by: _one_of(names, "a dimension")(by) if type(by) is str else _maybe(_whole(1))(by)),
        at_most=_part(value, "at_most", _maybe(expression)),
        plus=_part(value, "plus", _whole(0)),
        unbacked_at=_part(value, "decided_at", _text),
    )


def _options(data: Any) -> dict[str, str]:
    """Options by name; those that do not exist are refused as they are elsewhere."""
    options = _part(data, "options", _mapping(_text, _text))
    made(**options)
    return options


def _records(data: Any, key: str, symbols: Collection[str], concrete: bool) -> tuple[StepTrace, ...]:
    """Records, of which there is one at least; in a certificate every symbol is a number."""
    size: Read[Size] = _whole(0) if concrete else _size(symbols)
    records = _part(data, key, _each(lambda record: _record(record, symbols, size)))
    if not records:
        raise Wrong(f"has no {key}")
    for i, record in enumerate(records):
        if concrete and len(record.sizes) < len(symbols):
            raise Wrong(f"lacks {key}[{i}].sizes.{next(name for name in symbols if name not in record.sizes)}")
    return records


def _record(data: Any, symbols: Collection[str], size: Read[Size]) -> StepTrace:
    storages = _part(data, "storages", _each(_row(size, _one_of(ROLES, "a role"), _text)))
    parts = _each(_row(_whole(0, len(storages)), _each(size), _text, size))
    tensors = [Tensor(storage, tuple(shape), dtype, distinct) for storage, shape, dtype, distinct in _part(data, "tensors", parts)]
    texts = _part(data, "texts", _each(_text))
    calls = _part(data, "calls", _each(_row(_text, _flag, size, size)))
    storage, tensor, text = _whole(0, len(storages)), _listed(tensors), _listed(texts)
    place = _each(_row(text, _argument(tensor, symbols)))
    row = _row(text, text, _whole(0), text, place, _each(tensor), _each(text), text, _maybe(_whole(0, len(calls))))

    def op(value: Any) -> list[Any]:
        fields_of_op = row(value)
        if fields_of_op[1] not in PHASES:
            _wrong(fields_of_op[1], f"a phase: {', '.join(PHASES)}")
        return fields_of_op

    ops = _part(data, "ops", _each(op))
    events = _part(data, "events", _each(_row(_one_of((1, -1), "a change"), storage, _whole(-1))))
    moment = _whole(0, len(events) + 1)
    pair = _each(_row(_text, tensor))

    def named(key: str) -> tuple[tuple[str, Tensor], ...]:
        return tuple((name, of) for name, of in _part(data, key, pair))

    return StepTrace(
        sizes=_part(data, "sizes", _mapping(_one_of(symbols, "a symbol"), _whole(0))),
        storages=tuple(Storage(i, *s) for i, s in enumerate(storages)),
        ops=tuple(
            Op(i, name, phase, step, site, tuple((n, v) for n, v in args), outputs, mutates, node, call)
            for i, (name, phase, step, site, args, outputs, mutates, node, call) in enumerate(ops)
        ),
        events=tuple(Event(*e) for e in events),
        saved=tuple(Saved(*s) for s in _part(data, "saved", _each(_row(tensor, _text, _text)))),
        calls=tuple(Call(*c) for c in calls),
        parameters=named("parameters"),
        gradients=named("gradients"),
        buffers=named("buffers"),
        state=tuple((n, k, t) for n, k, t in _part(data, "state", _each(_row(_text, _text, tensor)))),
        persistent=_part(data, "persistent", _each(storage)),
        windows=tuple((a, b) for a, b in _part(data, "windows", _row(*[_row(moment, moment)] * STEPS))),
        masters=named("masters"),
    )


def _listed(table: Sequence[T]) -> Read[T]:
    """What an index of a table stands for."""
    index = _whole(0, len(table))

    def read(value: Any) -> T:
        return table[value if type(value) is int and 0 <= value < len(table) else index(value)]

    return read


def _argument(tensor: Read[Tensor], symbols: Collection[str]) -> Read[Any]:
    """An operator's argument: a tensor, a number, a text, nothing, or a list of these. A text may be a size, of which powers are work."""
    power = _expression(symbols)

    def read(value: Any, depth: int = 0) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is float:
            return value
        if kind is dict:
            return _part(value, "t", tensor)
        if kind is list:
            if depth > NESTED:
                _wrong(value, f"lists in at most {NESTED} others")
            return _each(lambda item: read(item, depth + 1))(value)
        if kind is str:
            return power(value) if "**" in value else _text(value)
        if kind is int and abs(value) >= NUMBER:
            _wrong(value, "a smaller number")
        return value

    return read

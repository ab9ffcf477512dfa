"""The data of an interactive page: closed forms with the sizes at which they hold, and the devices, as one JSON document.

The script of the page evaluates it as ``calc.pipeline.precomputed`` does. A guard that the script cannot evaluate never holds there, so
that the page refuses those sizes.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from calc.derive.quantities import applies
from calc.errors import BadInputError
from calc.graph.guards import Guard, TracedDim, follows
from calc.hardware.accelerators import Accelerator
from calc.options import Options, trains
from calc.pipeline.precomputed import Stored, StoredQuantity
from calc.symbolic.expression import (
    SYMPY_RELATIONS,
    And,
    Compare,
    Expression,
    FloorQuotient,
    FunctionCall,
    Name,
    Negative,
    Not,
    Number,
    Or,
    Piecewise,
    Power,
    Product,
    Quotient,
    Remainder,
    Sum,
    Truth,
)
from calc.symbolic.parser import free_names, parse
from calc.symbolic.polynomials import Polynomial
from calc.symbolic.writer import as_text
from reports.figures.memory import ORDER
from reports.page.design import MFU, RATES
from reports.typeset.escape import visible
from reports.typeset.plain import plain_text

_EXACT = 2**53
_FUNCTIONS = {"floor": 1, "ceiling": 1, "Mod": 2, "Max": 0, "Min": 0}  # with their operands; 0: one or more


def tree_of(text: str, *, as_written: bool = False) -> Any:
    """The tree of an expression or of a condition. Decimals are doubles, as in a step; ``as_written``: 0.1 is a tenth, as in a question.

    Raises ``BadInputError`` for what has no exact value.
    """
    return _Trees(as_written).of(parse(text))


def integer(value: int) -> int | str:
    """An integer as JSON holds it: as text where a double would lose digits."""
    return value if abs(value) <= _EXACT else str(value)


class _Trees:
    def __init__(self, as_written: bool) -> None:
        self._as_written = as_written

    def of(self, node: Expression) -> Any:
        match node:
            case Number(int(value)):
                return value if abs(value) <= _EXACT else ["integer", str(value)]
            case Number(float(value)) if self._as_written:
                return self._fraction(Fraction(str(value)))
            case Name(name):
                return name
            case Truth(value):
                return value
            case Sum(terms):
                return self._call("+", terms)
            case Product(factors):
                return self._call("*", factors)
            case Negative(body):
                return self._call("-", (body,))
            case Quotient(a, b):
                return self._call("/", (a, b))
            case FloorQuotient(a, b):
                return self._call("//", (a, b))
            case Remainder(a, b):
                return self._call("Mod", (a, b))
            case Power(base, exponent):
                return self._call("**", (base, exponent))
            case Compare(left, relation, right):
                return [relation, self._side(left), self._side(right)]
            case FunctionCall(function, (left, right)) if function in SYMPY_RELATIONS:
                return [SYMPY_RELATIONS[function], self._side(left), self._side(right)]
            case And(parts) | FunctionCall("And", parts):
                return self._call("and", parts)
            case Or(parts) | FunctionCall("Or", parts):
                return self._call("or", parts)
            case Not(body) | FunctionCall("Not", (body,)):
                return self._call("not", (body,))
            case Piecewise(cases):
                return ["cases", *([self.of(value), self.of(condition)] for value, condition in cases)]
            case FunctionCall("ceiling", (FunctionCall("log", (size, Number(2))),)):
                return self._call("bits", (size,))
            case FunctionCall(function, arguments) if _FUNCTIONS.get(function, -1) in (0, len(arguments)) and arguments:
                return self._call(function, arguments)
        raise BadInputError(f"{as_text(node, spaced=True)[:60]!r} has no exact value in a page")

    def _call(self, operation: str, operands: Sequence[Expression]) -> list[Any]:
        return [operation, *map(self.of, operands)]

    def _side(self, node: Expression) -> Any:
        """A side of a comparison, where doubles may occur: Python compares them exactly with integers."""
        match node:
            case Number(float(value)):
                return self._fraction(Fraction(value))
            case FunctionCall("float", (size,)):
                return self._call("float", (size,))
        return self.of(node)

    def _fraction(self, value: Fraction) -> Any:
        integral = value.denominator == 1
        top, bottom = Number(value.numerator), Number(value.denominator)
        return self.of(top) if integral else ["/", self.of(top), self.of(bottom)]


# -- expressions as plain data ----------------------------------------------------------------------------------------
# Expressions as plain data that a page's script evaluates: an integer, a name, or ``[operation, operand, …]``.
#
# Python parses and the script only evaluates, so that no text is run as code. What the script cannot evaluate exactly, such as a root, is
# refused here.


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What an interactive page shows. ``model`` is as it is typed. ``forms`` are of one model, one for each recipe; ``refused`` says why
    others have none. ``sizes`` are those that differ from the model's own at first; ``links`` lead to the steps of a quantity."""

    model: str
    forms: tuple[Stored, ...]
    devices: tuple[Accelerator, ...]
    device: str
    sizes: Mapping[str, int]
    links: Mapping[str, str]
    refused: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ScriptedPage:
    """A page with a script: its template, and the ``scripts`` of which the one in it consists. ``data`` is the text of its data, escaped.
    ``home`` is the page that lists all others, empty where there is none. ``inputs``: the line from which ``napkin verify`` makes it again.
    """

    template: str
    scripts: tuple[str, ...]
    title: str
    subtitle: str
    data: str
    date: str
    lines: tuple[str, ...] = ()
    home: str = ""
    rows: tuple[Any, ...] = ()
    sections: Mapping[str, str] = field(default_factory=dict)
    inputs: str = ""


def page_of(shown: WhatIf, subtitle: str, date: str, home: str = "") -> ScriptedPage:
    """The page of one model."""
    scripts = ("exact.js", "what-if.js")
    return ScriptedPage("what-if.j2", scripts, visible(shown.model), subtitle, script_text(document(shown)), date, (), home)


def document(page: WhatIf) -> dict[str, Any]:
    """The data, in plain types."""
    labels, texts = recipes([form.options for form in page.forms]), _TextTable()
    return {
        "schema": 1,
        "command": f"napkin derive {shlex.quote(page.model)}",
        "recipes": [
            {"label": label, "flags": flags(form.options), "rate": rate(form.options), "form": form_of(form, texts)}
            for label, form in zip(labels, page.forms, strict=True)
        ],
        "refused": [list(entry) for entry in page.refused],
        "sizes": {name: integer(size) for name, size in page.sizes.items()},
        "devices": [_device(device) for device in page.devices],
        "device": page.device,
        "mfu": f"{float(100 * MFU):g}",
        "roles": list(ORDER),
        "links": dict(page.links),
        "texts": texts.rows(),
    }


def script_text(data: Mapping[str, Any]) -> str:
    """The data as the text of an inert script element: ASCII without ``<``, ``>`` or ``&``, so nothing that reverses its direction."""
    text = json.dumps(_visible(data), separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _visible(data: Any) -> Any:
    match data:
        case str():
            return visible(data)
        case Mapping():
            return {visible(name): _visible(value) for name, value in data.items()}
        case list() | tuple():
            return [_visible(value) for value in data]
    return data


def recipes(options: Sequence[Mapping[str, str]]) -> list[str]:
    """A name for each recipe: the options in which they differ; of a single one, all."""
    default = Options().to_json()
    names = list(dict.fromkeys(name for each in options for name in each))
    varying = [name for name in names if len({each.get(name) for each in options}) > 1] or names
    return [", ".join(f"{n} {value}" for n in varying if (value := each.get(n, default.get(n, "")))) or "default" for each in options]


def flags(options: Mapping[str, str]) -> str:
    """The options that differ from the defaults, as they are typed."""
    default = Options().to_json()
    return "".join(f" --{name.replace('_', '-')} {value}" for name, value in options.items() if value != default.get(name))


def rate(options: Mapping[str, str]) -> str:
    """The rate of a device that bounds the matmuls of a training step; empty where there is none."""
    return RATES.get(options.get("precision", "fp32"), "") if trains(options) else ""


def _device(device: Accelerator) -> dict[str, Any]:
    rates = {
        name: integer(int(peak.dense)) for name, peak in device.peaks.items() if name in RATES.values() and peak.dense == int(peak.dense)
    }
    return {"id": device.id, "name": device.name, "memory": integer(device.memory), "bandwidth": integer(device.bandwidth), "rates": rates}


# -- a form ----------------------------------------------------------------------------------------------------------------


def form_of(form: Stored, texts: _TextTable) -> dict[str, Any]:
    """A stored form: its dimensions, the sizes at which it holds, and its closed forms over one table of polynomials."""
    table = _PolynomialRows()
    values = {dim.name: dim.value for dim in form.dims}
    quantities = {name: _quantity(q, table, texts) for name, q in form.quantities.items() if applies(name, q.unknown, form.options)}
    return {
        "dims": [_dim(dim, values) for dim in form.dims],
        "symbols": list(form.basis.symbols),
        "folds": [[f.whole, f.part, f.quotient, f.plus] for f in form.basis.folds],
        "guards": [_guard(guard) for guard in form.guards],
        "certified": [{name: integer(size) for name, size in at.items()} for at in form.certified],
        "specialized": {name: [integer(value), why] for name, (value, why) in form.specialized.items()},
        "names": [name if name.isidentifier() else [name, tree_of(name)] for name in form.table.names],
        "monomials": [[n for pair in monomial for n in pair] for monomial in form.table.monomials],
        "polynomials": table.rows(),
        "quantities": quantities,
        "cases": [
            {
                "equal": {name: [tree_of(to), to] for name, to in case.equal.items()},
                "differing": sorted(case.differing),
                "form": form_of(case.form, texts),
            }
            for case in form.cases
        ],
    }


def _dim(dim: TracedDim, values: Mapping[str, int]) -> dict[str, Any]:
    follow = dim.expr is not None and follows(dim, values)
    entry: dict[str, Any] = {"name": dim.name, "meaning": dim.meaning, "default": tree_of(dim.expr) if follow and dim.expr else dim.value}
    entry |= {"written": plain_text(dim.expr)} if follow and dim.expr else {}
    entry |= {"tied": True} if dim.tied else {}
    entry |= {"multiple": dim.multiple_of} if dim.multiple_of is not None else {}
    entry |= {"most": tree_of(dim.at_most), "bound": plain_text(dim.at_most)} if dim.at_most is not None else {}
    entry |= {"plus": dim.plus} if dim.plus else {}
    return entry | ({"up": True} if dim.unbacked_at else {})


def _guard(guard: Guard) -> list[Any]:
    """[tree, outcome, text, names that an opaque guard reads]; the tree is ``None`` where the script cannot evaluate the guard."""
    try:
        tree = tree_of(guard.expr)
    except BadInputError:
        tree = None
    return [tree, guard.outcome, guard.expr, *([sorted(free_names(guard.expr))] if guard.opaque else [])]


def _quantity(quantity: StoredQuantity, table: _PolynomialRows, texts: _TextTable) -> dict[str, Any]:
    definition = quantity.definition
    entry: dict[str, Any] = {"unit": definition.unit.value, "meaning": definition.meaning}
    if quantity.unknown:
        return {**entry, "unknown": quantity.unknown}
    if quantity.candidates:
        candidates = [[texts.add(str(m.at)), [[texts.add(role), table.add(part)] for role, part in m.parts]] for m in quantity.candidates]
        return {**entry, "candidates": candidates}
    terms = [[texts.add(path), table.add(part), texts.add(of)] for path, part, of in quantity.terms]
    return {**entry, "is": table.add(quantity.polynomials[0]), "terms": terms, "because": texts.add(definition.because)}


class _PolynomialRows:
    """Polynomials by index, each once: ``[over, monomial, numerator, …]``."""

    def __init__(self) -> None:
        self._index: dict[Polynomial, int] = {}

    def add(self, polynomial: Polynomial) -> int:
        return self._index.setdefault(polynomial, len(self._index))

    def rows(self) -> list[list[Any]]:
        return [[integer(p.over), *(n for at, top in p.terms for n in (at, integer(top)))] for p in self._index]


class _TextTable:
    """Texts by index, each once."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def add(self, text: str) -> int:
        return self._index.setdefault(text, len(self._index))

    def rows(self) -> list[str]:
        return list(self._index)

"""The data of an interactive page: closed forms with the sizes at which they hold, and the devices, as one JSON document.

The script of the page evaluates it as ``calc.pipeline.precomputed`` does. A guard that the script cannot evaluate never holds there, so
that the page refuses those sizes.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calc.derive.quantities import absent
from calc.errors import BadInputError
from calc.graph.guards import Guard, TracedDim, follows
from calc.hardware.accelerators import Accelerator
from calc.options import TRAIN, Options
from calc.pipeline.precomputed import Stored, StoredQuantity
from calc.symbolic.parser import free_names
from calc.symbolic.polynomials import Polynomial
from reports.figures.memory import ORDER
from reports.page.design import MFU, RATES
from reports.page.trees import integer, tree_of
from reports.typeset.escape import visible
from reports.typeset.plain import plain_text


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
    return RATES.get(options.get("precision", "fp32"), "") if options.get("mode", TRAIN) == TRAIN else ""


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
    quantities = {name: _quantity(q, table, texts) for name, q in form.quantities.items() if not absent(name, form.options)}
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
        candidates = [[texts.add(m.at), [[texts.add(role), table.add(part)] for role, part in m.parts]] for m in quantity.candidates]
        return {**entry, "candidates": candidates}
    terms = [[texts.add(path), table.add(part), texts.add(because)] for path, part, because in quantity.terms]
    return {**entry, "is": table.add(quantity.polynomials[0]), "terms": terms}


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

"""Views and copies on a terminal: of a tensor, and of a model's forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from calc.derive.to_json import number
from calc.mathematics.strides.expression import StrideStep
from calc.mathematics.strides.operations import StridedTensor
from calc.mathematics.strides.walk import ModelStrides, pattern
from calc.pipeline.verdict import Verdict
from calc.units import Unit
from reports.typeset.numbers import amount, integer
from reports.typeset.wording import sizes_text
from reports.writers.terminal import Line, Styled, Terminal, bold, dim, right


def show_chains(
    x: StridedTensor, chains: Sequence[tuple[str, Sequence[StrideStep]]], verdicts: Sequence[Sequence[Verdict[str]]] | None, out: Terminal
) -> None:
    """The tensor, then what each operation of each chain makes."""
    out.line(bold("x"), f": {_layout(x)}, {x.dtype}, {amount(x.nbytes, Unit.BYTE).text}")
    out.line()
    rows = [row for text, steps in chains for row in _chain(x, text, steps, len(chains) == 1)]
    out.table(("Operation", ("Allocates", "right"), "Gives", "Because"), rows)
    for verdict in (v for chain in verdicts or () for v in chain):
        _show_verdict(verdict, out)


def _chain(x: StridedTensor, text: str, steps: Sequence[StrideStep], every: bool) -> Iterator[tuple[Line, ...]]:
    """A row for the last operation of a chain and for those that are refused, or for ``every`` one."""
    written = "x"
    for step in steps:
        written = f"{written}.{step.call.text}" if step.call.text[0].isalpha() else f"{written}{_joined(step.call.text)}"
        if step.result is None:
            yield written, Styled("refused", "yellow"), "–", dim(step.refused)
        elif every or step is steps[-1]:
            allocated = integer(step.result.allocated) if step.result.allocated else "nothing"
            yield written, allocated, _layout(step.result.tensor), dim(step.result.because)
    if not steps:
        yield text, "nothing", _layout(x), dim("the tensor itself")


def _joined(text: str) -> str:
    return text if text.startswith("[") else f" {text}"


def _show_verdict(verdict: Verdict[str], out: Terminal) -> None:
    style = "bold red" if verdict.failed else "green"
    equal = verdict.derived == verdict.measured
    text = verdict.derived if equal else f"derived {verdict.derived}; measured {verdict.measured}"
    out.line(Styled(verdict.verdict, style), f": {verdict.quantity}: {text}")


def _layout(x: StridedTensor) -> str:
    layout = x.layout
    offset = f", offset {layout.offset}" if layout.offset else ""
    return f"shape {layout.shape}, strides {layout.strides}{offset}"


def show_place(x: StridedTensor, index: tuple[int, ...], out: Terminal) -> None:
    """The storage index of an element."""
    layout = x.layout
    addends = [*([str(layout.offset)] if layout.offset else []), *(f"{i}·{s}" for i, s in zip(index, layout.strides, strict=True))]
    out.line()
    start = f"element {index} lies at {' + '.join(addends)} = "
    out.line(start, bold(str(layout.place(index))), " elements from the beginning of the storage")


def show_forward(storage: ModelStrides, verdict: Verdict[str] | None, out: Terminal) -> None:
    """By operator, then every result with its strides."""
    sizes = sizes_text(storage.sizes)
    out.line(bold(storage.model), f", the forward: {sizes}")
    out.line()
    heads = ("Operator", *right("Views", "In place", "Allocate", "Bytes"))
    kinds = storage.kinds
    out.table(heads, [(k.operator, *map(integer, (k.views, k.in_place, k.allocations, k.allocated))) for k in kinds])
    out.line()
    rows = []
    for row, count in storage.grouped:
        shape, strides = (f"({', '.join(part)})" for part in (row.shape, row.strides))
        allocated = integer(row.allocated) if row.allocated else "–"
        rows.append((row.operator, pattern(row.module_path), integer(count), row.kind, shape, strides, row.offset, allocated))
    out.table(("Result", "At", ("Times", "right"), "", "Shape", "Strides", "Offset", ("Bytes each", "right")), rows)
    out.line()
    total = amount(sum(row.allocated for row in storage.rows), Unit.BYTE).text
    out.line(f"allocated in all {total}; tensors that are freed before the end are included")
    if verdict is not None:
        _show_verdict(verdict, out)


# -- plain data -------------------------------------------------------------------------------------------------------


def chains(
    x: StridedTensor, results: Sequence[tuple[str, Sequence[StrideStep]]], verdicts: Sequence[Sequence[Verdict[str]]] | None
) -> dict[str, Any]:
    """The ``"schema": 1`` document of chains on a tensor."""
    documents: list[dict[str, Any]] = [{"expression": text, "steps": [_step(s) for s in steps]} for text, steps in results]
    for at, chain in enumerate(documents):
        chain["checks"] = None if verdicts is None else [_verdict(v) for v in verdicts[at]]
    return {"schema": 1, "tensor": _tensor(x), "chains": documents}


def _tensor(x: StridedTensor) -> dict[str, Any]:
    layout = x.layout
    return {
        "shape": [number(n) for n in layout.shape],
        "strides": [number(n) for n in layout.strides],
        "offset": number(layout.offset),
        "format": x.dtype,
        "memory_bytes": number(x.nbytes),
        "contiguous": layout.contiguous,
    }


def _step(step: StrideStep) -> dict[str, Any]:
    if step.result is None:
        return {"operation": step.call.text, "result": None, "allocated": None, "because": step.refused}
    result = step.result
    return {"operation": step.call.text, "result": _tensor(result.tensor), "allocated": number(result.allocated), "because": result.because}


def _verdict(v: Verdict[str]) -> dict[str, str | None]:
    return {"what": v.quantity, "verdict": v.verdict, "derived": v.derived, "measured": v.measured}


def forward(storage: ModelStrides, verdict: Verdict[str] | None) -> dict[str, Any]:
    """The ``"schema": 2`` document of a model's forward."""
    return {
        "schema": 2,
        "model": {"name": storage.model},
        "dims": {name: {"value": number(value)} for name, value in storage.sizes.items()},
        "allocated": number(sum(row.allocated for row in storage.rows)),
        "operators": [
            {
                "operator": k.operator,
                "views": k.views,
                "in_place": k.in_place,
                "allocations": k.allocations,
                "allocated": number(k.allocated),
            }
            for k in storage.kinds
        ],
        "results": [
            {
                "operator": row.operator,
                "module_path": row.module_path,
                "count": count,
                "kind": row.kind,
                "format": row.dtype,
                "shape": list(row.shape),
                "strides": list(row.strides),
                "offset": row.offset,
                "allocated": number(row.allocated),
            }
            for row, count in storage.grouped
        ],
        "check": None if verdict is None else _verdict(verdict),
    }

"""The tensors saved for backward, one by one: which they are, which operator needs them, and why.

The rows add up to ``activations.bytes``: they split the same storages further. A storage that is saved more than once counts in its first
row; the other rows name that one and count 0.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from calc.derive.analysis import Analysis
from calc.derive.names import MODEL_INPUT, SavedBefore, TensorName
from calc.derive.result import SEVERAL, SavedTensor
from calc.graph.step import Op, Saved, StepTrace, Tensor, bare_name
from calc.symbolic.algebra import Poly
from calc.units import item_size

IN_GENERAL = "its backward reads it"
_STEP = 1  # autograd was watched in the first step


@dataclass(frozen=True, slots=True)
class _SavedRow:
    """A saved tensor of one trace, with what distinguishes it. Sizes are polynomials, or ``SEVERAL``: then the row is a sum."""

    tensor: TensorName
    module_path: str
    shape: tuple[Poly, ...]
    dtype: str
    operator: str
    node: str
    because: str
    same_as: SavedBefore | None
    part: bool
    each: Poly
    several: bool = False


def saved_tensors(analysis: Analysis, sizes: Mapping[str, int]) -> tuple[SavedTensor, ...]:
    """Every tensor saved for backward, layers together, in the order in which they are first saved."""
    rows = [[*_Reader(trace, analysis).rows()] for trace in analysis.graph.traces]
    places: dict[_SavedRow, list[list[int]]] = {}
    for number, every in enumerate(rows):
        for i, saved_row in enumerate(every):
            places.setdefault(replace(saved_row, shape=(len(saved_row.shape),), each=0), [[] for _ in rows])[number].append(i)
    values = analysis.graph.as_basis().values(sizes)
    for positions in places.values():
        together = [[rows[number][i] for i in every] for number, every in enumerate(positions)]
        if all({*every} == {*together[0]} for every in together):
            continue
        if len({len(every) for every in together}) == 1:
            same = [_interpolated(alike, analysis) for alike in zip(*together, strict=True)]
            together = [same for _ in rows]
        elif _comes_out_below_0(together, analysis, values):
            together = [[_of_several_sizes(together, saved_row) for saved_row in every] for every in together]
        for number, general in enumerate(together):
            for i, saved_row in zip(positions[number], general, strict=True):
                rows[number][i] = saved_row
    counts: dict[_SavedRow, list[int]] = {}
    totals: dict[_SavedRow, list[Poly]] = {}
    for number, every in enumerate(rows):
        for saved_row in every:
            row = replace(saved_row, each=0) if saved_row.several else saved_row
            counts.setdefault(row, [0] * len(rows))[number] += 1
            totals.setdefault(row, [analysis.algebra.constant(0)] * len(rows))[number] += saved_row.each
    return tuple(_written(saved_row, number, totals[saved_row], analysis, values) for saved_row, number in counts.items())


def _interpolated(alike: Sequence[_SavedRow], analysis: Analysis) -> _SavedRow:
    """One tensor over all traces, ``alike`` except for sizes that are read as numbers, which are interpolated."""
    shape = tuple(analysis.interpolate(sizes) for sizes in zip(*(saved_row.shape for saved_row in alike), strict=True))
    return replace(alike[0], shape=shape, each=analysis.interpolate([saved_row.each for saved_row in alike]))


def _comes_out_below_0(together: Sequence[Sequence[_SavedRow]], analysis: Analysis, values: Mapping[str, int]) -> bool:
    """Whether the interpolated number of tensors of some size is negative at these sizes: each iteration has its own size, which most
    traces lack."""
    counted = [
        [sum(saved_row == row for saved_row in every) for every in together] for row in {row: None for every in together for row in every}
    ]
    numbers = (analysis.interpolate([analysis.algebra.constant(n) for n in number]) for number in counted)
    value = analysis.algebra.at(values)
    return any(value(number) < 0 for number in numbers)


def _of_several_sizes(together: Sequence[Sequence[_SavedRow]], saved_row: _SavedRow) -> _SavedRow:
    """The row of a tensor whose sizes differ: axes that differ are ``SEVERAL``."""
    axes = zip(*(row.shape for every in together for row in every), strict=True)
    return replace(saved_row, shape=tuple(axis[0] if all(size == axis[0] for size in axis) else SEVERAL for axis in axes), several=True)


def _written(
    saved_row: _SavedRow, number: Sequence[int], totals: Sequence[Poly], analysis: Analysis, values: Mapping[str, int]
) -> SavedTensor:
    times = analysis.interpolate([analysis.algebra.constant(n) for n in number])
    total = analysis.interpolate(totals)

    def text(poly: Poly) -> str:
        return analysis.fold.outer.text(analysis.fold(poly))

    return SavedTensor(
        tensor=saved_row.tensor,
        module_path=saved_row.module_path,
        shape=tuple(size if isinstance(size, str) else text(size) for size in saved_row.shape),
        dtype=saved_row.dtype,
        times=text(times),
        number=analysis.algebra.value(times, values),
        expr=text(total),
        value=analysis.algebra.value(total, values),
        operator=saved_row.operator,
        node=saved_row.node,
        because=saved_row.because,
        same_as=saved_row.same_as,
        part=saved_row.part,
    )


class _Reader:
    """Reads the saved tensors of one trace."""

    def __init__(self, trace: StepTrace, analysis: Analysis) -> None:
        self.trace, self.analysis = trace, analysis
        self._own = {t.storage for _, t in (*trace.parameters, *trace.buffers)}
        self._ran: dict[tuple[str, str], list[Op]] = {}
        self._made: dict[int, tuple[Op, int]] = {}
        for op in trace.ops:
            if op.step == _STEP and op.phase in ("forward", "backward"):
                self._ran.setdefault((op.name, op.module_path), []).append(op)
                for place, tensor in enumerate(op.outputs):
                    self._made.setdefault(tensor.storage, (op, place))
        # The backward's nodes by operator: MmBackward0 is that of mm.
        self._nodes = {_plain(op.node.rstrip("0123456789")): op.node for op in trace.ops if op.node}

    def rows(self) -> Iterator[_SavedRow]:
        """One row for each saved tensor except parameters and buffers, which are allocated anyway."""
        first: dict[int, SavedBefore] = {}
        before: dict[tuple[int, str, str], int] = {}
        for saved in self.trace.saved:
            storage = saved.tensor.storage
            if storage in self._own:
                continue
            key = (storage, saved.module_path, saved.op)
            argument = self._argument(saved, before.get(key, 0))
            before[key] = before.get(key, 0) + 1
            name = self._name(saved.tensor)
            yield self._row(saved, name, argument, first.get(storage))
            first.setdefault(storage, SavedBefore(name, self._general(saved.module_path)))

    def _row(self, saved: Saved, name: TensorName, argument: str, same_as: SavedBefore | None) -> _SavedRow:
        parse = self.analysis.algebra.parse
        shape = tuple(parse(s) for s in saved.tensor.shape)
        nbytes = parse(self.trace.storages[saved.tensor.storage].nbytes)
        elements = parse(item_size(saved.tensor.dtype))
        for size in shape:
            elements = elements * size
        base = _base(saved.op)
        return _SavedRow(
            tensor=name,
            module_path=self._general(saved.module_path),
            shape=shape,
            dtype=saved.tensor.dtype,
            operator=saved.op,
            node=self._nodes.get(f"{_plain(base.removesuffix('_forward'))}backward", ""),
            because=reason(base, argument),
            same_as=same_as,
            part=elements != nbytes,
            each=parse(0) if same_as else nbytes,
        )

    def _general(self, module_path: str) -> str:
        return self.analysis.module_paths.place(module_path)[0]

    def _argument(self, saved: Saved, before: int) -> str:
        """The tensor's role in the operator that needs it: the name of an argument, or the position of a result.

        Autograd has neither. Of several candidates, ``before`` are used already.
        """
        ran = self._ran.get((saved.op, saved.module_path), ())
        matches = [place for op in ran for place in _places(op, saved.tensor)]
        reasons = _table().get(_base(saved.op), {})
        likely = [place for place in matches if place in reasons] or matches
        return likely[min(before, len(likely) - 1)] if likely else ""

    def _name(self, tensor: Tensor) -> TensorName:
        """A name of the tensor, by the operator that allocated its storage."""
        storage = self.trace.storages[tensor.storage]
        if storage.role == "input":
            return TensorName(owner=MODEL_INPUT)
        if tensor.storage not in self._made:
            return TensorName(owner="constant")
        return made_by(*self._made[tensor.storage], self._general)


def made_by(op: Op, place: int, general: Callable[[str], str]) -> TensorName:
    """A name of a tensor by its operator: which result, and at which module path."""
    names = _table().get(_base(op.name), {}).get("names", ())
    result = names[place] if place < len(names) and len(op.outputs) > 1 else ""
    return TensorName(result, operator=_base(op.name).strip("_"), module_path=general(op.module_path))


def _places(op: Op, tensor: Tensor) -> list[str]:
    """Arguments and results of ``op`` on the tensor's storage: those with the same shape, if any."""
    arguments = [(name, value) for name, values in op.args for value in (values if isinstance(values, tuple) else (values,))]
    candidates = [*arguments, *((f"result {place}", value) for place, value in enumerate(op.outputs))]
    mine = [(place, value) for place, value in candidates if isinstance(value, Tensor) and value.storage == tensor.storage]
    return [place for place, value in mine if value == tensor] or [place for place, _ in mine]


def _base(operator: str) -> str:
    """``aten.relu_.default`` → ``relu``; names outside of ATen are unchanged."""
    if not operator.startswith("aten."):
        return operator
    name = bare_name(operator)
    return name.rstrip("_") if not name.startswith("__") else name


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


@cache
def _table() -> Mapping[str, Any]:
    entries = tomllib.loads(resources.files("calc").joinpath("data/why_saved.toml").read_text(encoding="utf-8"))
    return {name: entries[entry["like"]] if "like" in entry else entry for name, entry in entries.items()}


def reason(operator: str, argument: str) -> str:
    """Why the backward of ``operator`` reads that argument, or that result."""
    reasons = _table().get(operator, {})
    return str(reasons.get(argument, reasons.get("any", IN_GENERAL)))

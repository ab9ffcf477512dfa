"""The tensors saved for backward, one by one: which they are, which operator needs them, and why.

The rows add up to ``activations.bytes``: they split the same storages further. A storage that is saved more than once counts in its first
row; the other rows name that one and count 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from calc.derive.analysis import Analysis
from calc.derive.names import MODEL_INPUT, SavedBefore, TensorName
from calc.derive.result import SEVERAL, SavedTensor
from calc.derive.saved_for import SavedAs, SavedUses, base, table
from calc.graph.step import Op, Saved, StepTrace, Tensor
from calc.symbolic.algebra import Poly
from calc.units import item_size

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
    role: str
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
        return analysis.fold.text(poly)

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
        role=saved_row.role,
    )


class _Reader:
    """Reads the saved tensors of one trace."""

    def __init__(self, trace: StepTrace, analysis: Analysis) -> None:
        self.trace, self.analysis = trace, analysis
        self._own = {t.storage for _, t in (*trace.parameters, *trace.buffers)}
        self._made: dict[int, tuple[Op, int]] = {}
        for op in trace.ops:
            if op.step == _STEP and op.phase in ("forward", "backward"):
                for place, tensor in enumerate(op.outputs):
                    self._made.setdefault(tensor.storage, (op, place))
        # The backward's nodes by operator: MmBackward0 is that of mm.
        self._nodes = {_plain(op.node.rstrip("0123456789")): op.node for op in trace.ops if op.node}

    def rows(self) -> Iterator[_SavedRow]:
        """One row for each saved tensor except parameters and buffers, which are allocated anyway."""
        first: dict[int, SavedBefore] = {}
        for saved, use in SavedUses(self.trace):
            storage = saved.tensor.storage
            if storage in self._own:
                continue
            name = self._name(saved.tensor)
            yield self._row(saved, name, use, first.get(storage))
            first.setdefault(storage, SavedBefore(name, self._general(saved.module_path)))

    def _row(self, saved: Saved, name: TensorName, use: SavedAs, same_as: SavedBefore | None) -> _SavedRow:
        parse = self.analysis.algebra.parse
        shape = tuple(parse(s) for s in saved.tensor.shape)
        nbytes = parse(self.trace.storages[saved.tensor.storage].nbytes)
        elements = parse(item_size(saved.tensor.dtype))
        for size in shape:
            elements = elements * size
        return _SavedRow(
            tensor=name,
            module_path=self._general(saved.module_path),
            shape=shape,
            dtype=saved.tensor.dtype,
            operator=saved.op,
            node=self._nodes.get(f"{_plain(use.operator.removesuffix('_forward'))}backward", ""),
            because=use.because,
            role=use.name,
            same_as=same_as,
            part=elements != nbytes,
            each=parse(0) if same_as else nbytes,
        )

    def _general(self, module_path: str) -> str:
        return self.analysis.module_paths.place(module_path)[0]

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
    names = table().get(base(op.name), {}).get("names", ())
    result = names[place] if place < len(names) and len(op.outputs) > 1 else ""
    return TensorName(result, operator=base(op.name), module_path=general(op.module_path))


def _plain(name: str) -> str:
    return name.replace("_", "").lower()

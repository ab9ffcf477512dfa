"""Data-dependent (unbacked) sizes: how many elements a mask selects, how many tokens a router sends to an expert.

Each is a dimension of its own, identified by the source lines that lead to it. A trace that meets one without a dimension stops and reports
its upper bound and expected value; tracing restarts with the dimension declared.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from types import FrameType
from typing import Any

import torch

from calc.errors import DataDependentError, Failure, SpecializationError, TraceError, UnbackedSizeError
from calc.graph.guards import EVERY_EXPERT
from calc.platform.torch_private import current_node
from calc.trace.random_draws import refused
from calc.trace.source_lines import is_foreign, running_line, user_line
from calc.trace.values import asserts, chosen_rows, sequence_lengths
from calc.trace.values.chosen_rows import Rows, Taken
from calc.trace.values.constant_propagation import ConstantPropagation, has_constant_values
from calc.trace.values.facts import ALWAYS, NEVER, Between, IfFinite, OneIn, at_least, fact_of, index_bound, places_in, writes_to
from calc.trace.values.true_counts import count_of

aten = torch.ops.aten
_READS = (aten._local_scalar_dense.default, aten.is_nonzero.default)
_PUTS = (aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default, aten._unsafe_index_put.default)


class UnbackedSizes:
    """The unbacked sizes of one run.

    ``sizes`` maps each declared place to its size, symbolic or a number; ``observed`` maps a place to the sizes of a real run, one for
    each time that it is reached, where they differ.
    """

    def __init__(
        self,
        sizes: Mapping[str, Any],
        write: Callable[[Any], int | str],
        storage: Callable[[torch.Tensor], int],
        observed: Mapping[str, Sequence[int]],
        constants: ConstantPropagation,
        building: Callable[[], bool] = lambda: False,
    ) -> None:
        self._sizes = sizes
        self._constants = constants
        self._building = building
        self.of_constants = False
        self._observed = {place: iter(counts) for place, counts in observed.items()}
        self._write = write
        self._storage = storage
        self._of_values: dict[tuple[Any, ...], Any] = {}
        self._compared: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._only_picking = False
        self._finite = False
        self._number: float | None = None
        self.readers: dict[str, None] = {}

    @contextlib.contextmanager
    def picking(self) -> Iterator[None]:
        """Context in which a value read from data only selects one of several equal parts, or is only checked: any value may be
        returned."""
        before, self._only_picking = self._only_picking, True
        try:
            yield
        finally:
            self._only_picking = before

    @contextlib.contextmanager
    def no_overflow(self) -> Iterator[None]:
        """Context in which a gradient scaler finds no overflow in the gradients."""
        self._finite = True
        try:
            yield
        finally:
            self._finite = False

    @contextlib.contextmanager
    def reading(self, value: float, who: str) -> Iterator[None]:
        """Context in which the number that ``who`` reads from data is ``value``: it is used in arithmetic only."""
        before, self._number = self._number, value
        self.readers[who] = None
        try:
            yield
        finally:
            self._number = before

    @contextlib.contextmanager
    def comparing(self) -> Iterator[Callable[[], bool]]:
        """Context in which a number is read from data that a check compares: any value may be returned. Yields a function that returns the
        outcome of the running comparison."""
        before, self._number = self._number, 0
        try:
            yield self._outcome
        finally:
            self._number = before

    def _outcome(self) -> bool:
        assumed, outcome = self._assumed(None)
        if not assumed:
            raise DataDependentError(f"the step compares a value that it reads out of a tensor at {user_line()}: it depends on the data")
        return bool(outcome)

    def answer(self, func: Any, args: tuple[Any, ...]) -> tuple[bool, Any]:
        """``(True, value)`` where ``func`` reads a value that does not depend on data; else ``(False, None)``."""
        if func not in _READS or has_constant_values(args[0]):
            return False, None
        if self._constants.only_copied:  # any value may be returned
            return True, args[0].dtype.is_floating_point * 0.5
        if self._number is not None:
            return True, self._number
        if self._finite:
            return True, 0.0  # the gradient scaler's flag: no gradient overflowed
        truth = fact_of(args[0])
        if truth in (NEVER, ALWAYS):
            return True, truth == ALWAYS
        if self._only_picking and not args[0].dtype.is_floating_point:
            return True, 0
        taken = chosen_rows.fact(args[0])  # whether an expert has any rows
        if isinstance(taken, Taken) or (isinstance(taken, Rows) and func is aten.is_nonzero.default):
            value = isinstance(taken, Rows) or taken.truth
            self.assume(str(value), EVERY_EXPERT)
            return True, value
        if args[0].dtype is not torch.bool:
            return False, None
        assumed, value = self._assumed(truth)
        if not assumed and isinstance(truth, OneIn) and not truth.ways:
            raise refused(f"the step at {user_line()}")
        return assumed, value

    def _assumed(self, truth: Any) -> tuple[bool, Any]:
        """``(True, value)`` where a value is read only to be checked, the value at which nothing is raised; and where the step asks whether
        numbers are finite. Both are assumptions."""
        value, why = asserts.required(), "at any other the step raises an error"
        if value is None and isinstance(truth, IfFinite):
            value, why = truth.truth, "no number of the step is infinite or NaN"
        if value is None:
            return False, None
        self.assume(str(value), why)
        return True, value

    def assume(self, value: str, why: str) -> None:
        """Note the assumption that the running line reads ``value`` out of a tensor."""
        self._constants.constant_reads[user_line()] = value, why

    def run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[bool, Any]:
        """``(True, result)`` of an operator whose result has an unbacked size; ``(False, None)`` of others."""
        make = _RESULTS.get(func)
        if make is None or (func is aten.index.Tensor and not _masks(args[1])):
            return False, None
        self.of_constants = False
        return True, make(self, *args, **kwargs)

    def chosen(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The number of elements that the masks of an ``index_put`` select; None without a mask, or where the mask determines no size."""
        masks = _masks(args[1]) if func in _PUTS else []
        return self.count(masks[0]) if masks and not _fills(*args, **kwargs) else None

    def count(self, x: torch.Tensor, kind: str = "true") -> Any:
        """The number of true elements of ``x``, or of distinct ones (``kind``). Equal contents give the same count."""
        contents = self._contents(x)
        key = (kind, *self._compared.get(contents, contents))
        constant = count_of(x) if kind == "true" else None
        if constant is not None:
            self.of_constants = self._constants.has_count(x, constant, _COUNTS[kind])
        elif user_place() not in self._sizes and key not in self._of_values:  # what has a size already has it everywhere
            constant = self.constant_count(x, _COUNTS[kind])
        if constant is not None:
            return constant
        if self._building() and self._constants.symbols_of((x,)):
            raise self.refused("how many elements are chosen", x)  # the structure of a module must not depend on data
        place = user_place() if self._observed else ""
        if place in self._observed:
            self._of_values[key] = self._next(place)
        elif key not in self._of_values:
            self._of_values[key] = self._count(x, kind)
        return self._of_values[key]

    def rows(self, rows: Rows) -> Any:
        """The number of rows that chose one expert of several: the same for all but the last one, which has the rest."""
        key, place = ("rows", rows.number), user_place()
        if key not in self._of_values:
            if place not in self._sizes:
                shape, ways = (self._write(rows.counted),), (self._write(rows.experts),)
                raise UnbackedSizeError(place, user_line(), shape, ways, Fraction(1), adds_up=True)
            self._of_values[key] = self._sizes[place]
        last = rows.expert == rows.experts - 1
        return rows.counted - rows.expert * self._of_values[key] if last else self._of_values[key]

    def _contents(self, x: torch.Tensor) -> tuple[Any, ...]:
        """A key for the current values of ``x``, in any order."""
        whole = x.dtype is torch.bool and self._write(x.numel()) == self._write(x.untyped_storage().nbytes())
        layout = () if whole else (*x.shape, *x.stride(), x.storage_offset())
        return self._storage(x), writes_to(x), getattr(x, "napkin_pick", 0), *map(self._write, layout)

    def follow(self, func: Any, args: tuple[Any, ...], out: Any) -> None:
        """Note of a mask what it compares: ``chosen == e``, computed twice, is true equally often. Call it after ``func`` is traced."""
        if func is aten.eq.Scalar and index_bound(fact_of(args[0])) is not None:
            self._compared[self._contents(out)] = (*self._contents(args[0]), self._write(args[1]))

    def constant_count(self, x: torch.Tensor, count: Callable[[torch.Tensor], int]) -> int | None:
        """``count`` of the values of ``x`` if they depend on constants only; else None."""
        constant = self._constants.counted(x, count)
        self.of_constants = constant is not None
        return constant

    def refused(self, kind: str, *tensors: torch.Tensor) -> TraceError:
        """The error for a size that depends on the values in ``tensors``; if these depend on sizes only, the sizes are read as numbers."""
        symbols = self._constants.symbols_of(tensors)
        if symbols:
            where = running_line()
            statement = f"values computed from {', '.join(sorted(symbols))} determine a size at {where}: {kind}"
            return SpecializationError(min(symbols), str(where), Failure(statement, about=where.then(kind)))
        return DataDependentError(f"the size of a result depends on the values in a tensor at {user_line()}: {kind} has no closed form")

    def _next(self, place: str) -> int:
        for count in self._observed[place]:
            return count
        raise TraceError(f"the real run reached {place} fewer times than the trace")

    def _count(self, x: torch.Tensor, kind: str) -> Any:
        place = user_place()
        if not place:
            raise DataDependentError(
                f"a size depends on the data in a tensor in {user_line()}: no line of the model determines it, so it has no name;"
                " choose by position, or multiply by the mask"
            )
        match = place if place in self._sizes else self._passed_before(place)
        if match is None:
            raise UnbackedSizeError(place, user_line(), tuple(map(self._write, _most(x, kind))), *self._expected(x, kind))
        return self._sizes[match]

    def _passed_before(self, place: str) -> str | None:
        """The place in the forward that recomputation in the backward repeats: its callers are then not on the stack."""
        if current_node() is None:
            return None
        places = [candidate for candidate in self._sizes if candidate.startswith(f"{place} < ")]
        return places[0] if len(places) == 1 else None

    def _expected(self, x: torch.Tensor, kind: str) -> tuple[tuple[int | str, ...], Fraction]:
        """The expected number of selected elements: one in the product of ``ways``, times a share; a share of 0 where it is unknown."""
        odds = fact_of(x)
        if kind != "true" or not isinstance(odds, OneIn):
            return (), Fraction(0)
        times = (f"1/({self._write(factor)})" for factor in odds.times)
        return (*map(self._write, odds.ways), *times), odds.share


_COUNTS: dict[str, Callable[[torch.Tensor], int]] = {
    "true": lambda x: int(x.count_nonzero()),
    "different": lambda x: len(x.unique()),  # type: ignore[no-untyped-call]  # untyped in torch
    "different runs": lambda x: len(x.unique_consecutive()),  # type: ignore[no-untyped-call]  # as above
}


def _most(x: torch.Tensor, kind: str) -> tuple[Any, ...]:
    """The factors of the largest possible count: of different experts that were chosen, all experts."""
    values = fact_of(x)
    return (values.high,) if kind == "different" and isinstance(values, Between) and values.chosen else places_in(x)


def _masks(indices: Any) -> list[torch.Tensor]:
    return [i for i in indices if isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8)]


def _fills(x: torch.Tensor, indices: Any, values: torch.Tensor, accumulate: bool = False, *_: Any, **__: Any) -> bool:
    """Whether one scalar is written where one mask is true: torch then uses ``masked_fill`` and computes no indices."""
    return not accumulate and values.dim() == 0 and len([i for i in indices if i is not None]) == len(_masks(indices)) == 1


def _nonzero(choices: UnbackedSizes, mask: torch.Tensor) -> torch.Tensor:
    return mask.new_empty((mask.dim(), choices.count(mask)), dtype=torch.int64).t()


def _masked_select(choices: UnbackedSizes, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """``masked_select``. A mask that is broadcast along further axes selects once for each index of them."""
    whole = torch.broadcast_shapes(x.shape, mask.shape)  # type: ignore[no-untyped-call]  # untyped in torch
    own = (*[1] * (len(whole) - mask.dim()), *mask.shape)
    times = [size for size, mine in zip(whole, own, strict=True) if isinstance(mine, int) and mine == 1]
    return x.new_empty((math.prod(times, start=choices.count(mask)),))


def _index(choices: UnbackedSizes, x: torch.Tensor, indices: Any) -> Any:
    """Indexing with masks, each replaced by the indices that it selects; several masks select equally many, since their indices are
    paired."""
    positions: list[Any] = []
    chosen = choices.count(_masks(indices)[0])
    for index in indices:
        if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
            positions += [index.new_empty((chosen,), dtype=torch.int64) for _ in range(index.dim())]
        else:
            positions.append(index)
    return aten.index.Tensor(x, positions)


def _unique(choices: UnbackedSizes, x: torch.Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    shape = (choices.count(x, "different"),)
    inverse = x.new_empty(x.shape if return_inverse else (0,), dtype=torch.int64)
    return x.new_empty(shape), inverse, x.new_empty(shape if return_counts else (0,), dtype=torch.int64)


def _unique_consecutive(
    choices: UnbackedSizes, x: torch.Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """``unique_consecutive``. The real kernel allocates room for all elements, and the results are views of it."""
    if dim is not None:
        raise choices.refused("unique_consecutive along one axis", x)
    count = choices.count(x, "different runs")
    inverse = x.new_empty(x.shape if return_inverse else (0,), dtype=torch.int64)
    room = x.new_empty(x.numel() if return_counts else 0, dtype=torch.int64)
    return x.new_empty(x.numel())[:count], inverse, room[:count] if return_counts else room


def _unique_dim(
    choices: UnbackedSizes, x: torch.Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    """``unique_dim``, for constants only. The real kernel returns all three results, whatever is requested."""
    count = choices.constant_count(x, lambda real: len(real.unique(dim=dim).movedim(dim, 0)))  # type: ignore[no-untyped-call]  # as above
    if count is None:
        raise choices.refused("unique along one axis", x)
    shape = [count if axis == dim % x.dim() else size for axis, size in enumerate(x.shape)]
    return x.new_empty(shape), x.new_empty((x.shape[dim],), dtype=torch.int64), x.new_empty((count,), dtype=torch.int64)


def _bincount(choices: UnbackedSizes, x: torch.Tensor, weights: torch.Tensor | None = None, minlength: Any = 0) -> torch.Tensor:
    most = index_bound(fact_of(x))
    if weights is not None:
        raise choices.refused("bincount with weights")
    if most is not None and at_least(minlength, most):
        return x.new_empty((minlength,), dtype=torch.int64)
    count = choices.constant_count(x, lambda real: len(real.bincount())) if isinstance(minlength, int) else None
    if count is None:
        raise choices.refused("bincount without a minlength above every value", x)
    return x.new_empty((max(count, minlength),), dtype=torch.int64)


def _repeat_interleave(choices: UnbackedSizes, repeats: torch.Tensor, output_size: Any = None) -> torch.Tensor:
    if output_size is None:
        output_size = choices.constant_count(repeats, lambda real: int(real.sum()))
    if output_size is None:
        raise choices.refused("repeat_interleave by a tensor, without output_size,", repeats)
    return repeats.new_empty((output_size,))


_RESULTS: dict[Any, Callable[..., Any]] = {
    aten._pack_padded_sequence.default: lambda _, *args: sequence_lengths.packed(*args),
    aten._ctc_loss.Tensor: lambda _, *args: sequence_lengths.ctc_loss(*args),
    aten._unique2.default: _unique,
    aten.unique_consecutive.default: _unique_consecutive,
    aten.unique_dim.default: _unique_dim,
    aten.bincount.default: _bincount,
    aten.repeat_interleave.Tensor: _repeat_interleave,
    aten.nonzero.default: _nonzero,
    aten.masked_select.default: _masked_select,
    aten.index.Tensor: _index,
}


def user_place() -> str:
    """The running lines and columns of the model's own code, innermost first; empty where none is running."""
    places: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.endswith("/calc/trace/step.py"):
        if not is_foreign(frame.f_code.co_filename):
            places.append(_place(frame))
        frame = frame.f_back
    return " < ".join(places)


def _place(frame: FrameType) -> str:
    positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{positions[0]}:{positions[2]}"

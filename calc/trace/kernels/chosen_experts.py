"""What a model does in Python with the experts that data choose: it indexes a list of modules, makes a name of an index, skips the others.

A loop over the experts that were chosen, ``for e in counts.nonzero()``, runs as many iterations as experts were chosen, each with another
expert. Which ones they are depends on the data; what they cost does not, as far as they are alike. So the j-th iteration takes expert j.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Never

import torch
from torch import nn

from calc.errors import DataDependentError
from calc.graph.guards import EVERY_EXPERT
from calc.platform.module_kinds import kind_of
from calc.platform.replaced import replaced
from calc.platform.torch_private import FakeTensor
from calc.trace.source_lines import user_line
from calc.trace.values import chosen_rows
from calc.trace.values.constant_propagation import has_constant_values
from calc.trace.values.facts import Between, Columns, fact_of

if TYPE_CHECKING:
    from calc.trace.recorder import Recorder

# In a text that is made of an index, private characters around the place of the index: what looks the text up sees that data chose it.
_MARKED = re.compile("\ue000(\\d+)\ue001")


class ChosenIndex(int):
    """The index of an expert that data chose, read out of a tensor. It selects one of several equal parts, and is not computed with."""

    def _refused(self, *_: object) -> Never:
        raise DataDependentError(
            f"the step computes with the index of an expert, at {user_line()}: which experts are chosen depends on the data, so no closed"
            " form follows; select with it, or compare tensors"
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _refused
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __mod__ = __neg__ = _refused
    __hash__ = int.__hash__

    def __format__(self, form: str) -> str:
        return f"\ue000{int(self)}\ue001"


@contextlib.contextmanager
def of_chosen_experts(recorder: Recorder) -> Iterator[None]:
    """Context in which data may choose one of several modules that are alike; ``DataDependentError`` where they are not."""
    picking, assume = recorder.unbacked.picking, recorder.unbacked.assume
    of_list, of_dict = nn.ModuleList.__getitem__, nn.ModuleDict.__getitem__
    listed: Callable[[Any], Any] = FakeTensor.tolist
    formatted: Callable[[Any, str], str] = FakeTensor.__format__
    splitting: Callable[..., Any] = torch.Tensor.split

    def item(self: Any) -> Any:
        place = _place(self)
        if place is not None:
            with picking():
                torch.Tensor.item(self)
            return ChosenIndex(place)
        rows = chosen_rows.fact(self)
        if not isinstance(rows, chosen_rows.Rows) or has_constant_values(self):
            return torch.Tensor.item(self)
        with picking():
            torch.Tensor.item(self)
        assume("at least 1", EVERY_EXPERT)
        return chosen_rows.RowsRead(None if rows.expert is None else functools.partial(recorder.unbacked.rows, rows))

    def tolist(self: Any) -> Any:
        fact = fact_of(self)
        apart = isinstance(fact, Between) and fact.differ
        if self.dim() != 1 or has_constant_values(self) or not (apart or isinstance(chosen_rows.fact(self), chosen_rows.Rows)):
            return listed(self)
        with recorder.unrecorded():  # it reads the memory, by no operator
            return [element.item() for element in self]

    def split(self: Any, split_size: Any, dim: int = 0) -> Any:
        if isinstance(split_size, list | tuple):
            split_size = [size.size() if isinstance(size, chosen_rows.RowsRead) else size for size in split_size]
        return splitting(self, split_size, dim)

    def from_list(self: Any, index: Any) -> Any:
        chosen = index.item() if _place(index) is not None else index
        if not isinstance(chosen, ChosenIndex):
            return of_list(self, index)
        _require_alike(self)
        return of_list(self, int(chosen))

    def from_dict(self: Any, key: Any) -> Any:
        if not isinstance(key, str) or not _MARKED.search(key):
            return of_dict(self, key)
        names = re.compile(r"\d+".join(map(re.escape, _MARKED.split(key)[::2])))
        _require_alike(module for name, module in self.items() if names.fullmatch(name))
        return of_dict(self, _MARKED.sub(r"\1", key))

    def as_text(self: Any, form: str) -> str:
        return formatted(self, form) if _place(self) is None else f"{item(self)}"

    with (
        replaced(nn.ModuleList, __getitem__=from_list),
        replaced(nn.ModuleDict, __getitem__=from_dict),
        replaced(FakeTensor, item=item, tolist=tolist, split=split, __format__=as_text),
    ):
        yield


def _place(index: Any) -> int | None:
    """The place of an index among several that differ."""
    match fact_of(index) if isinstance(index, FakeTensor) and not has_constant_values(index) else None:
        case Between(place=place) if index.dim() == 0:
            return place
        case Columns(counts=[_], row=row) if index.dim() == 1:
            return row
    return None


def _require_alike(modules: Iterable[nn.Module]) -> None:
    kinds = {kind_of(module) for module in modules}
    if len(kinds) > 1:
        raise DataDependentError(
            f"the step chooses among modules of {len(kinds)} kinds by the value in a tensor, at {user_line()}: what runs depends on the"
            " data, so no closed form follows; make the modules alike"
        )

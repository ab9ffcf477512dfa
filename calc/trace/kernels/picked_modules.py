"""Modules that data chooses: of a ModuleList by an index that a tensor holds, of a ModuleDict by a name that is made of one.

A loop over the experts that were chosen, ``for e in counts.nonzero()``, runs as many iterations as experts were chosen, each with another
expert. Which ones they are depends on the data; what they cost does not, as far as they are alike. So the j-th iteration takes expert j.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from torch import nn

from calc.errors import DataDependentError
from calc.models.hf.layers import kind_of
from calc.platform.replaced import replaced
from calc.platform.torch_private import FakeTensor
from calc.trace.source_lines import user_line
from calc.trace.values.data_dependence import Between, fact_of

# In a text that is made of an index, private characters around the place of the index: what looks the text up sees that data chose it.
_MARKED = re.compile("\ue000(\\d+)\ue001")


@contextlib.contextmanager
def picking_modules(picking: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Context in which data may choose one of several modules that are alike. Raises ``DataDependentError`` where they are not. Under
    ``picking`` a value is read that only selects one of several equal parts."""
    of_list, of_dict = nn.ModuleList.__getitem__, nn.ModuleDict.__getitem__
    formatted: Callable[[Any, str], str] = FakeTensor.__format__

    def read(index: Any) -> int | None:
        place = _place(index)
        if place is not None:
            with picking():
                index.item()
        return place

    def from_list(self: Any, index: Any) -> Any:
        place = read(index)
        if place is None:
            return of_list(self, index)
        _require_alike(self)
        return of_list(self, place)

    def from_dict(self: Any, key: Any) -> Any:
        if not isinstance(key, str) or not _MARKED.search(key):
            return of_dict(self, key)
        names = re.compile(r"\d+".join(map(re.escape, _MARKED.split(key)[::2])))
        _require_alike(module for name, module in self.items() if names.fullmatch(name))
        return of_dict(self, _MARKED.sub(r"\1", key))

    def as_text(self: Any, form: str) -> str:
        place = None if form else read(self)
        return formatted(self, form) if place is None else f"\ue000{place}\ue001"

    with (
        replaced(nn.ModuleList, __getitem__=from_list),
        replaced(nn.ModuleDict, __getitem__=from_dict),
        replaced(FakeTensor, __format__=as_text),
    ):
        yield


def _place(index: Any) -> int | None:
    """The place of an index among several that differ."""
    fact = fact_of(index) if isinstance(index, FakeTensor) and index.dim() == 0 else None
    return fact.place if isinstance(fact, Between) else None


def _require_alike(modules: Iterable[nn.Module]) -> None:
    kinds = {kind_of(module) for module in modules}
    if len(kinds) > 1:
        raise DataDependentError(
            f"the step chooses among modules of {len(kinds)} kinds by the value in a tensor, at {user_line()}: what runs depends on the"
            " data, so no closed form follows; make the modules alike"
        )

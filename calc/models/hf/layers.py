"""The pattern in which a model's layers repeat: dense and expert, sliding and full, attention and recurrent.

A depth is ``before + period * n + after`` layers: a few that stand apart at the beginning or the end (or a last period cut
short), and n repetitions of a pattern. What kind each layer is, is read off the library's own lists and off the modules
themselves, built at the config's own depth without memory.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from calc.errors import ConfigError
from calc.models.hf.source import Source, module_class, quiet
from calc.platform.model_files import on_meta_device

_MOST_PARTS = 500_000


@dataclass(frozen=True, slots=True)
class LayerPattern:
    """``lists`` are the config's fields with an entry per layer. Those in ``counted`` the config has as kinds of layers with how
    often they repeat (``[[["global", "local"], 12]]``); those in ``numbered`` are the numbers of all layers. ``last`` are lists of names
    of which some end in the depth (``stage24``) and name the last layer."""

    before: int
    period: int
    after: int
    lists: Mapping[str, tuple[Any, ...]]
    counted: frozenset[str] = frozenset()
    numbered: frozenset[str] = frozenset()
    last: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def apart(self) -> int:
        return self.before + self.after

    def stretched(self, depth: int) -> dict[str, list[Any]]:
        """The lists for another depth of the same pattern."""
        stretched_lists = {name: self._entries(name, depth) for name in self.lists}
        lists = {name: [[entries, 1]] if name in self.counted else entries for name, entries in stretched_lists.items()}
        return lists | {name: [_LAST.sub(str(depth), entry) for entry in entries] for name, entries in self.last.items()}

    def _entries(self, name: str, depth: int) -> list[Any]:
        if name in self.numbered:
            return [*range(depth)]
        entries = self.lists[name]
        return [entries[self._same(i, depth, len(entries))] for i in range(depth)]

    def _same(self, i: int, depth: int, count: int) -> int:
        """A layer of the known depth that is like layer ``i`` of another depth."""
        if i < self.before:
            return i
        if i >= depth - self.after:
            return count - (depth - i)
        return self.before + (i - self.before) % self.period


# In a name that ``_names_last`` takes for that of the last layer.
_LAST = re.compile(r"\d+$")


def _names_last(value: Any, depth: int) -> bool:
    """Whether a list of names has the last layer's by its number, and no other layer's."""
    if depth == 1 or not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        return False
    return {number for name in value for number in _LAST.findall(name)} == {str(depth)}


def pattern(kinds: Sequence[Hashable]) -> tuple[int, int, int] | None:
    """(before, period, after) of the fewest layers in all, such that the pattern between repeats at least twice and makes up half."""
    numbers: dict[Hashable, int] = {}
    ids = [numbers.setdefault(kind, len(numbers)) for kind in kinds]
    depth = len(ids)
    best: tuple[int, int, int] | None = None  # layers in all, period, before
    for period in range(1, depth // 2 + 1):
        if best is not None and period >= best[0]:
            break
        unlike = depth - period  # the first layer from ``before`` on that differs from the one a period later
        for before in reversed(range(depth - period)):
            if ids[before] != ids[before + period]:
                unlike = before
            repeats = (unlike + period - before) // period
            apart = depth - repeats * period
            if repeats >= 2 and 2 * apart <= depth:
                candidate = (period + apart, period, before)
                best = candidate if best is None else min(best, candidate)
    return None if best is None else (best[2], best[1], best[0] - best[1] - best[2])


def pattern_of(source: Source, config: Any, depth: int, module: Any) -> LayerPattern | None:
    """The pattern of the layers of ``module``, or nothing where they repeat none."""
    own = set(type(config).__dataclass_fields__)
    stated = {name: value for name, value in config.__dict__.items() if name in own and isinstance(value, list | tuple)}
    counted = {name: entries for name, value in stated.items() if len(entries := _multiplied_out(value, depth)) == depth}
    lists = {name: tuple(value) for name, value in stated.items() if len(value) == depth} | counted
    numbered = frozenset(name for name, entries in lists.items() if entries == (*range(depth),))
    kinds = [tuple(str(entries[i]) for name, entries in lists.items() if name not in numbered) for i in range(depth)]
    stacks = _stacks(module, depth)
    repetition = pattern([(kind, tuple(stack[i] for stack in stacks)) for i, kind in enumerate(kinds)]) if depth > 1 else (0, 1, 0)
    last = {name: tuple(value) for name, value in source.raw.items() if name not in lists and _names_last(value, depth)}
    return None if repetition is None else LayerPattern(*repetition, lists, frozenset(counted), numbered, last)


def _multiplied_out(groups: Sequence[Any], depth: int) -> tuple[Any, ...]:
    """Kinds of layers with how often they repeat, as an entry per layer; nothing where the list is no such thing, or of more layers."""
    entries: list[Any] = []
    for group in groups:
        match group:
            case [list() | tuple() as kinds, int() as times] if len(entries) + len(kinds) * times <= depth:
                entries += [*kinds] * times
            case _:
                return ()
    return tuple(entries)


def without_memory(source: Source, config: Any) -> Any:
    """The module, with parameters that have shapes only."""

    with quiet(), on_meta_device(), _of_bounded_size(source.where):
        return module_class(source)(config)


@contextmanager
def _of_bounded_size(where: str) -> Iterator[None]:
    """Refuses a model of more parts than any has, which would take hours to build."""
    from torch.nn.modules.module import register_module_module_registration_hook, register_module_parameter_registration_hook

    count = itertools.count(1)

    def counted(*_: Any) -> None:
        if next(count) > _MOST_PARTS:
            raise ConfigError(f"{where}: the model has more than {_MOST_PARTS:,} modules and parameters: give fewer layers or experts")

    handles = [register(counted) for register in (register_module_module_registration_hook, register_module_parameter_registration_hook)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _stacks(module: Any, depth: int) -> list[list[Hashable]]:
    """Of every list of ``depth`` layers, what kind each is: its parts, their shapes and their switches."""
    import torch

    return [[_kind(child) for child in part] for part in module.modules() if isinstance(part, torch.nn.ModuleList) and len(part) == depth]


def _kind(layer: Any) -> Hashable:
    shapes = tuple((name, tuple(p.shape)) for name, p in layer.named_parameters())
    switches = tuple(
        (name, attribute, value)
        for name, part in layer.named_modules()
        for attribute, value in sorted(vars(part).items())
        if isinstance(value, str | bool | int | None) and not attribute.endswith(("idx", "index", "layer_id", "layer_number"))
    )
    return (tuple(type(part).__name__ for part in layer.modules()), shapes, switches)

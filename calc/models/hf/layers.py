"""The pattern in which a model's layers repeat: dense and expert, sliding and full, attention and recurrent.

A depth is ``before + period * n + after`` layers: a few that differ at the beginning or the end (or a truncated last period), and n
repetitions of a pattern. The kind of each layer comes from the library's own lists and from the modules themselves, built at the config's
own depth on the meta device.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from calc.errors import ConfigError
from calc.graph.periods import period_of
from calc.models.hf.source import Source, module_class, quiet
from calc.models.hf.table import FIELDS, is_size
from calc.platform.model_files import on_meta_device
from calc.platform.module_kinds import kind_of

_MOST_PARTS = 500_000


@dataclass(frozen=True, slots=True)
class LayerPattern:
    """``lists`` are the config's fields with an entry per layer. The config writes those in ``counted`` as kinds of layers with repeat
    counts (``[[["global", "local"], 12]]``), those in ``numbered`` as the indices of the layers whose entry is True, those in ``keyed`` by
    the indices of the layers that have one. ``last`` are lists of names of which some end in the depth (``stage24``) and name the last
    layer, and its index alone. ``shares`` are fields that count some of all layers, with that part of them."""

    before: int
    period: int
    after: int
    lists: Mapping[str, tuple[Any, ...]]
    counted: frozenset[str] = frozenset()
    numbered: frozenset[str] = frozenset()
    keyed: frozenset[str] = frozenset()
    last: Mapping[str, tuple[str | int, ...]] = field(default_factory=dict)
    shares: Mapping[str, Fraction] = field(default_factory=dict)

    @property
    def irregular(self) -> int:
        return self.before + self.after

    def stretched(self, depth: int) -> dict[str, Any]:
        """The lists, and the numbers of some layers, for another depth of the same pattern."""
        stretched_lists = {name: self._entries(name, depth) for name in self.lists}
        lists = {name: [[entries, 1]] if name in self.counted else entries for name, entries in stretched_lists.items()}
        lists |= {name: [_with_last(entry, depth) for entry in entries] for name, entries in self.last.items()}
        return lists | {name: int(share * depth) for name, share in self.shares.items()}

    def _entries(self, name: str, depth: int) -> list[Any] | dict[str, Any]:
        entries = self.lists[name]
        stretched = [entries[self._same(i, depth, len(entries))] for i in range(depth)]
        if name in self.keyed:
            return {str(i): entry for i, entry in enumerate(stretched) if entry is not None}
        return [i for i, entry in enumerate(stretched) if entry] if name in self.numbered else stretched

    def _same(self, i: int, depth: int, count: int) -> int:
        """The index, among ``count`` layers, of one of the same kind as layer ``i`` of ``depth``."""
        if i < self.before:
            return i
        if i >= depth - self.after:
            return count - (depth - i)
        return self.before + (i - self.before) % self.period


# The number at the end of a layer's name.
_LAST = re.compile(r"\d+$")


def _with_last(entry: str | int, depth: int) -> str | int:
    """The name or the index of the last layer at another depth."""
    return _LAST.sub(str(depth), entry) if isinstance(entry, str) else depth


def _names_last(field: str, value: Any, depth: int) -> bool:
    """Whether the only layer number in a list of names or of indices is that of the last layer."""
    if depth > 1 and value == [depth] and field.endswith("_indices"):
        return True  # of the embedding, at 0, and the layers
    if depth == 1 or not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        return False
    return {number for name in value for number in _LAST.findall(name)} == {str(depth)}


def pattern_of(source: Source, config: Any, depth: int, module: Any) -> LayerPattern | None:
    """The pattern of the layers of ``module``, or None if they do not repeat."""
    own = {*type(config).__dataclass_fields__, *source.raw}  # a list of the file replaces one that the class would compute
    stated = {name: value for name, value in config.__dict__.items() if name in own and isinstance(value, list | tuple)}
    counted = {name: entries for name, value in stated.items() if len(entries := _multiplied_out(value, depth)) == depth}
    built = [*zip(*_stacks(module, depth), strict=True)] or [()] * depth
    numbered = {name: tuple(i in value for i in range(depth)) for name, value in stated.items() if _numbers_layers(value, built)}
    keyed = {name: entries for name, value in source.raw.items() if (entries := _by_index(value, depth))}
    lists = {name: tuple(value) for name, value in stated.items() if len(value) == depth} | counted | numbered | keyed
    kinds = [tuple(str(entries[i]) for entries in lists.values()) for i in range(depth)]
    repetition = period_of([*zip(kinds, built, strict=True)]) if depth > 1 else (0, 1, 0)
    last = {name: tuple(value) for name, value in source.raw.items() if name not in lists and _names_last(name, value, depth)}
    return None if repetition is None else LayerPattern(*repetition, lists, frozenset(counted), frozenset(numbered), frozenset(keyed), last)


def _by_index(value: Any, depth: int) -> tuple[Any, ...]:
    """The entry of each layer in a table of fields by the indices of layers, None for a layer without one; empty if the value is none."""
    if not isinstance(value, dict) or not all(str(key).isdigit() and isinstance(entry, dict) for key, entry in value.items()):
        return ()
    by_index = {int(key): entry for key, entry in value.items()}
    return tuple(by_index.get(i) for i in range(depth)) if max(by_index, default=depth) < depth else ()


def with_shares(source: Source, pattern: LayerPattern, depths: Sequence[str], depth: int, module: Any) -> LayerPattern:
    """``pattern``, that of the layers of ``module``, with the fields that count some of them, where the class needs them in proportion:
    three sparse layers among twelve are every fourth. ``depths`` are the fields with the depth."""
    counts = {name: Fraction(value, depth) for name, value in counts_of_layers(source).items() if name not in depths and value < depth}
    few = pattern.irregular + pattern.period
    parts = itertools.product(counts.values(), (pattern.irregular, pattern.period))
    if not counts or few == depth or any((share * layers).denominator > 1 for share, layers in parts):
        return pattern
    expected = [[kinds[pattern._same(i, few, depth)] for i in range(few)] for kinds in _stacks(module, depth)]

    def agrees(pattern: LayerPattern) -> bool:
        config = source.config(dict.fromkeys(depths, few) | pattern.stretched(few))
        return _stacks(without_memory(source, config), few) == expected

    try:
        shared = replace(pattern, shares=counts)
        return shared if not agrees(pattern) and agrees(shared) else pattern
    except Exception:  # the class may raise anything at a depth that it does not support
        return pattern


def counts_of_layers(source: Source) -> dict[str, int]:
    """The fields of the file that count layers, beside those that the table knows, such as the depth."""
    further = {name: value for name, value in source.raw.items() if name not in FIELDS.sizes and FIELDS.counts_layers(name)}
    return {name: value for name, value in further.items() if "num" in name and is_size(value)}


def _numbers_layers(value: Sequence[Any], built: Sequence[Hashable]) -> bool:
    """Whether a list has the indices of all layers, or of exactly those of some kinds; ``built`` has the kind of each layer."""
    indices = [*range(len(built))]
    if not value or not all(type(entry) is int and entry in indices for entry in value) or [*value] != sorted(set(value)):
        return False
    return [*value] == indices or not {built[i] for i in value} & {built[i] for i in indices if i not in value}


def _multiplied_out(groups: Sequence[Any], depth: int) -> tuple[Any, ...]:
    """One entry per layer from kinds of layers with repeat counts; empty if the list has another form or more than ``depth`` layers."""
    entries: list[Any] = []
    for group in groups:
        match group:
            case [list() | tuple() as kinds, int() as times] if len(entries) + len(kinds) * times <= depth:
                entries += [*kinds] * times
            case _:
                return ()
    return tuple(entries)


def without_memory(source: Source, config: Any) -> Any:
    """The module on the meta device: parameters with shapes but no data."""

    with quiet(), on_meta_device(), _of_bounded_size(source.where):
        return module_class(source)(config)


@contextmanager
def _of_bounded_size(where: str) -> Iterator[None]:
    """Raise ConfigError for a model of more than ``_MOST_PARTS`` modules and parameters, which would take hours to build."""
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
    """The kinds of layers of every ModuleList of ``depth`` layers: submodule types, parameter shapes and settings."""
    import torch

    return [[kind_of(child) for child in part] for part in module.modules() if isinstance(part, torch.nn.ModuleList) and len(part) == depth]

"""Fields of a config without effect: sizes, and numbers of further layers, that no module of the model is built with.

A model whose layers all have experts ignores the width of a dense feed-forward; code beside a config, which is not run here, reads fields
that the library's class does not know. Such a size would be a symbol that is in no closed form.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calc.models.hf.dimensions import ConfigLayout
from calc.models.hf.layers import kind_of, without_memory
from calc.models.hf.source import Source, stored
from calc.models.hf.table import FIELDS
from calc.spec import Sizes

# Letters of what a model may do without: each is the size of a weight. The model itself may state them as settings without use.
_SHAPES_ONLY = ("f", "E")


def without_effect(source: Source, layout: ConfigLayout, config: Any) -> frozenset[str]:
    """Dimensions that, doubled, change no module: no parameter's or buffer's shape, and no setting. ``config`` has their fields."""
    values = {name: stored(config)[fields[0]] for name, fields in layout.fields.items()}
    sizes = {name: value for name, value in values.items() if value is not None}
    if layout.layers is not None:
        sizes["L"] = layout.layers.irregular + layout.layers.period
    candidates = [name for name in sizes if name in _SHAPES_ONLY or name not in FIELDS.dimensions]
    unused = frozenset(_unused(source, layout, sizes, candidates) if candidates else ())
    return unused | {"e"} if "E" in unused else unused


def _unused(source: Source, layout: ConfigLayout, sizes: Mapping[str, int], candidates: list[str]) -> Iterator[str]:
    try:
        built = _built(source, layout, sizes)
    except Exception:  # the class may raise anything at a depth that it does not support: then nothing is known
        return
    for name in candidates:
        try:
            doubled = _built(source, layout, {**sizes, name: 2 * sizes[name]})
        except Exception:  # the class may raise anything at sizes that it does not support: so it reads this one
            continue
        if built.shapes == doubled.shapes and (name in _SHAPES_ONLY or built.settings == doubled.settings):
            yield name


@dataclass(frozen=True, slots=True)
class _Built:
    """Shapes of parameters and buffers by name, and the settings of all modules."""

    shapes: Mapping[str, tuple[int, ...]]
    settings: Hashable


def _built(source: Source, layout: ConfigLayout, sizes: Mapping[str, int]) -> _Built:
    """What the class builds at these sizes."""
    module = without_memory(source, source.config(layout.changes(Sizes(**sizes))))
    tensors = (*module.named_parameters(), *module.named_buffers())
    return _Built({name: tuple(tensor.shape) for name, tensor in tensors}, kind_of(module))


def notes_on_unused(source: Source, fields: Mapping[str, Sequence[str]], unused: frozenset[str]) -> tuple[str, ...]:
    """A note on the fields of the file that are such dimensions."""
    of_unused = {name for dim in unused & fields.keys() for name in fields[dim]}
    names = [name for name in source.raw if source.aliases.get(name, name) in of_unused]
    return (f"no module of this model is built with {', '.join(names)}, so that no number here depends on it",) if names else ()


def notes_on_missing_layers(source: Source, layout: ConfigLayout) -> tuple[str, ...]:
    """A note on each number of further layers in the file that the library's class builds nothing of, such as those that predict more than
    one token: sizes that are published may include them."""
    counts = {
        name: value
        for name, value in source.raw.items()
        if isinstance(value, int) and value > 0 and "num" in name and FIELDS.counts_layers(name) and name not in FIELDS.sizes
    }
    missing = [name for name, value in counts.items() if _is_without_effect(source, layout, name, value)]
    return tuple(
        f"the file has {name} = {source.raw[name]}, but {source.architecture} of the library builds no such layers: published sizes may"
        " include them"
        for name in missing
    )


def _is_without_effect(source: Source, layout: ConfigLayout, name: str, value: int) -> bool:
    """Whether one more changes neither the parts of the model nor their settings."""
    depth = {} if layout.layers is None else {"L": layout.layers.irregular + layout.layers.period}
    changes = layout.changes(Sizes(**depth))
    kinds: list[Hashable] = []
    for count in (value, value + 1):
        try:
            module = without_memory(source, source.config({**changes, name: count}))
        except Exception:  # the class may raise anything at a number that it does not support: so it reads it
            return False
        kinds.append((tuple(path for path, _ in module.named_parameters()), kind_of(module)))
    return kinds[0] == kinds[1]

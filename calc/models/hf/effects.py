"""Fields of a config without effect: sizes, and numbers of further layers, that no module of the model is built with.

A model whose layers all have experts ignores the width of a dense feed-forward; code beside a config, which is not run here, reads fields
that the library's class does not know. Such a size would be a symbol that is in no closed form.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calc.models.hf.dimensions import ConfigLayout
from calc.models.hf.layers import counts_of_layers, without_memory
from calc.models.hf.source import Source, stored
from calc.models.hf.table import FIELDS
from calc.platform.module_kinds import kind_of
from calc.spec import Sizes

# Letters of what a model may do without: each is the size of a weight. The model itself may state them as settings without use.
_SHAPES_ONLY = ("f", "E")
_MAY_LACK_EFFECT = (*_SHAPES_ONLY, "C", "d")


def without_effect(source: Source, layout: ConfigLayout, config: Any) -> frozenset[str]:
    """Dimensions that, doubled, change no module: no tensor's shape, and no setting. ``config`` has their fields."""
    values = {name: stored(config)[fields[0]] for name, fields in layout.fields.items()}
    sizes = {name: value for name, value in values.items() if value is not None} | _shallow(layout)
    candidates = [name for name in sizes if name in _MAY_LACK_EFFECT or name not in FIELDS.dimensions]
    unused = frozenset(_unused(source, layout, sizes, candidates) if candidates else ())
    return unused | {"e"} if "E" in unused else unused


def _shallow(layout: ConfigLayout) -> dict[str, int]:
    """The least depth that has every kind of layer."""
    return {} if layout.layers is None else {"L": layout.layers.irregular + layout.layers.period}


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
    """Shapes of tensors by name, and the settings of all modules."""

    shapes: Mapping[str, tuple[int, ...]]
    settings: Hashable


def _built(source: Source, layout: ConfigLayout, sizes: Mapping[str, int], further: Mapping[str, int] | None = None) -> _Built:
    """What the class builds at these sizes, with the ``further`` fields."""
    module = without_memory(source, source.config({**layout.changes(Sizes(**sizes)), **(further or {})}))
    tensors = (*module.named_parameters(), *module.named_buffers(), *_unregistered(module))
    return _Built({name: tuple(tensor.shape) for name, tensor in tensors}, kind_of(module))


def _unregistered(module: Any) -> Iterator[tuple[str, Any]]:
    """Tensors that are plain attributes of a part, such as a table of positions: neither parameters nor buffers."""
    for path, part in module.named_modules():
        yield from ((f"{path}.{name}", value) for name, value in vars(part).items() if hasattr(value, "shape"))


def notes_on_unused(source: Source, fields: Mapping[str, Sequence[str]], unused: frozenset[str]) -> tuple[str, ...]:
    """A note on the fields of the file that are such dimensions."""
    of_unused = {name for dim in unused & fields.keys() for name in fields[dim]}
    names = [name for name in source.raw if source.aliases.get(name, name) in of_unused]
    return (f"no module of this model is built with {', '.join(names)}, so that no number here depends on it",) if names else ()


def notes_on_missing_layers(source: Source, layout: ConfigLayout) -> tuple[str, ...]:
    """A note on each number of further layers in the file that the library's class builds nothing of, such as those that predict more than
    one token: sizes that are published may include them."""
    missing = [name for name, value in counts_of_layers(source).items() if _is_without_effect(source, layout, name, value)]
    return tuple(
        f"the file has {name} = {source.raw[name]}, but {source.architecture} of the library builds no such layers: published sizes may"
        " include them"
        for name in missing
    )


def _is_without_effect(source: Source, layout: ConfigLayout, name: str, value: int) -> bool:
    """Whether one more changes nothing that is built."""
    try:
        built, more = (_built(source, layout, _shallow(layout), {name: count}) for count in (value, value + 1))
    except Exception:  # the class may raise anything at a number that it does not support: so it reads it
        return False
    return built == more

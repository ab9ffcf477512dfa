"""Any model of transformers that its ``config.json`` builds: no weights, no download, no remote code.

The module is the library's own class, built as ``cls(config)``. This package adds which of the config's numbers are dimensions (a table,
``calc/data/hf_fields.toml``, that names no model) and which relations between them the class needs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from calc.dimensions import Dim
from calc.errors import ConfigError
from calc.models.hf import source as reading
from calc.models.hf.dimensions import (
    ConfigLayout,
    dims_of,
    dims_of_tower,
    home_of,
    is_depth,
    layout_of,
    may_specialize,
    towers_of,
)
from calc.models.hf.effects import notes_on_missing_layers, notes_on_unused, without_effect
from calc.models.hf.layers import pattern_of, with_shares, without_memory
from calc.models.hf.pairs import pair_lists
from calc.models.hf.positions import notes_on_padding, positions
from calc.models.hf.reduced import check_sizes
from calc.models.hf.relations import after_padding, least_batch, related
from calc.models.hf.source import Source
from calc.models.hf.tasks import Task, task_of
from calc.models.hf.trials import Trials, build, vocabulary_of
from calc.models.load import config_file
from calc.spec import Sizes, Spec


def spec(path: str) -> Spec:
    """The spec of a ``config.json``, given by its path or its folder's. Raises ``ConfigError`` for a config that cannot be used."""
    file = config_file(path)
    text = reading.read(file)
    raw = reading.parse(str(file), text)
    reading.refuse_what_is_not_supported(str(file), raw)
    reading.refuse_bad_sizes(str(file), raw)
    source = reading.source_of(str(file), raw)
    task = task_of(source)
    config = reading.construct(source)
    module = _without_memory(source, config)
    layout, dims, notes = _dimensions(source, config, task, module)
    trials = Trials(source, task, layout, dims, config)
    shorter = after_padding(trials, module)
    trials = related(trials.related(shorter))
    parameters = sum(p.numel() for p in module.parameters())
    check_at, reduced = check_sizes(trials, parameters)
    trials = trials.related(least_batch(trials, module, check_at))
    task = task.masked() if trials.heeds_padding(check_at) else task
    vocabulary = vocabulary_of(module, config)
    import transformers

    digest = hashlib.sha256(text).hexdigest()
    return Spec(
        name=f"hf:{path}",
        dims=trials.dims,
        build=lambda n: build(source, layout, n),
        inputs=lambda n: task.inputs(n, getattr(n, "V", vocabulary), config),
        loss=task.step,
        predict=task.prediction,
        check_at=check_at,
        reduced=reduced,
        source=f"{source.architecture} of transformers {transformers.__version__}, config sha256 {digest[:16]}",
        trip_counts=tuple(name for name in trials.dims if is_depth(name)),
        digest=digest,
        key=f"hf:{digest}:transformers-{transformers.__version__}",
        notes=(
            *reading.notes_on(raw, source),
            *reading.notes_on_tying(source),
            *reading.notes_on_overruled(source),
            *reading.notes_on_chance(source),
            *task.notes,
            *notes,
            *notes_on_padding(shorter),
        ),
        may_specialize=may_specialize(trials.dims),
        may_unroll=tuple(name for name in ("T", "S") if name in trials.dims),
    )


def _dimensions(source: Source, config: Any, task: Task, module: Any) -> tuple[ConfigLayout, dict[str, Dim], tuple[str, ...]]:
    """(layout of the config's fields, dimensions, notes for the reader of the report)."""
    home = home_of(config, bool({"T", "S"} & task.dims(config, None).keys()))
    own, text = (source.part(home), getattr(config, home)) if home else (source, config)
    towers = {prefix: (source.part(name), getattr(config, name), name) for prefix, name in towers_of(config, home).items()}
    inner = {
        prefix: ConfigLayout({letter: names for letter, names in layout_of(part, config_part).items() if letter != "L"}, None, name)
        for prefix, (part, config_part, name) in towers.items()
    }
    fields = layout_of(own, text)
    depth = text.__dict__[fields["L"][0]] if "L" in fields else 1
    layers = pattern_of(own, text, depth, module) if "L" in fields else None
    if layers is not None and not home:
        layers = with_shares(source, layers, fields["L"], depth, module)
    inner |= {} if "L" in fields else _with_its_depth(source, towers, module)
    layout = ConfigLayout(fields, layers, home, inner, pair_lists(own, text, fields))
    unused = without_effect(source, layout, text)
    layout = replace(layout, fields={name: fields[name] for name in fields if name not in unused})
    dims, notes = dims_of(own, layout, text, task.dims(config, positions(text)))
    for prefix, (part, config_part, _) in towers.items():
        dims |= dims_of_tower(part, inner[prefix], config_part, prefix)
    fixed = "sizes" if any(tower.layers for tower in inner.values()) else "depth and the sizes"
    numbers = (f"the {fixed} of images and audio of {', '.join(t[2] for t in towers.values())} are numbers here",)
    of_fields = (*notes_on_unused(own, fields, unused), *(() if home else notes_on_missing_layers(source, layout)))
    return layout, dims, (*notes, *of_fields, *(numbers if towers else ()))


def _with_its_depth(source: Source, towers: Mapping[str, tuple[Source, Any, str]], module: Any) -> dict[str, ConfigLayout]:
    """The layout of the only nested config with a depth, that depth among its dimensions, by prefix; empty if its layers do not repeat, if
    other fields name layers by their numbers, so that there are no fewer, or if there are several."""
    layouts = {prefix: layout_of(part, config) for prefix, (part, config, _) in towers.items()}
    deep = [prefix for prefix, fields in layouts.items() if "L" in fields]
    if len(deep) != 1:
        return {}
    part, config, name = towers[deep[0]]
    fields = layouts[deep[0]]
    layers = pattern_of(part, config, config.__dict__[fields["L"][0]], module)
    layout = ConfigLayout(fields, layers, name)
    return {} if layers is None or not _is_built(source, layout.changes(Sizes(L=layers.irregular + layers.period))) else {deep[0]: layout}


def _is_built(source: Source, changes: Mapping[str, Any]) -> bool:
    """Whether the class can be built with these values of its config's fields."""
    try:
        without_memory(source, source.config(changes))
    except Exception:  # the class may raise anything at values that it does not support
        return False
    return True


def _without_memory(source: Source, config: Any) -> Any:
    try:
        return without_memory(source, config)
    except ConfigError:
        raise
    except Exception as error:  # whatever the class raises, this config cannot be used
        message = f"{type(error).__name__}: {reading.sentences_of(error) or 'no message'}"
        raise ConfigError(f"{source.where}: {source.architecture} cannot be built from it: {message}") from None

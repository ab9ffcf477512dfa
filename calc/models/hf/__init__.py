"""Any model of transformers that its ``config.json`` builds: no weights, no download, no remote code.

The module is the library's own class, built as ``cls(config)``. This package adds which of the config's numbers are dimensions (a table,
``calc/data/hf_fields.toml``, that names no model) and which relations between them the class needs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from calc.dimensions import Dim, resolve
from calc.errors import ConfigError, DimensionError
from calc.models.hf import source as reading
from calc.models.hf.dimensions import (
    HEADS,
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
from calc.models.hf.feeds import MASKS, stated
from calc.models.hf.layers import pattern_of, without_memory
from calc.models.hf.pairs import pair_lists
from calc.models.hf.positions import begins_after_padding, notes_on_padding, own_padding, padded_tables, positions
from calc.models.hf.source import Source, module_class, quiet, symbolic_sizes_accepted
from calc.models.hf.table import FIELDS
from calc.models.hf.tasks import Task, task_of
from calc.models.load import config_file
from calc.spec import Sizes, Spec

# Above this, a check at full width would not fit an ordinary machine (AdamW in fp32 takes 16 bytes per parameter).
_CHECKED_AT_FULL_WIDTH = 200_000_000
# Most parameters of a reduced model, so that its run takes seconds.
_CHECKED_NARROW = 5_000_000
_HEAD_WIDTH = 16
_FEW_HEADS = 4
# Most tokens of a trial run of which one is enough.
_SHORT = 16
# Most bytes of parameters and buffers in a trial run of the class.
_MOST_BYTES = 2**32
# Most elements of the inputs of such a run.
_MOST_ELEMENTS = 4_000_000
# Sizes whose names end so are proportional to the number of heads.
_SHARED_BY_HEADS = ("_heads", "_size", "_width")


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
    shorter = _after_padding(source, task, layout, dims, module)
    dims |= shorter
    dims |= _shared_width(source, task, layout, dims, task.small(config))
    dims |= _equal_towers(source, task, layout, dims, config)
    dims |= _grouped_heads(source, task, layout, dims, config)
    dims |= _even_heads(source, task, layout, dims, task.small(config))
    parameters = sum(p.numel() for p in module.parameters())
    check_at = _check_at(source, task, layout, dims, task.small(config), parameters)
    masked = task.masked() if _heeds_padding(source, task, layout, dims, check_at) else task
    vocabulary = vocabulary_of(module, config)
    import transformers

    digest = hashlib.sha256(text).hexdigest()
    return Spec(
        name=f"hf:{path}",
        dims=dims,
        build=lambda n: _build(source, layout, n),
        inputs=lambda n: masked.inputs(n, getattr(n, "V", vocabulary), config),
        loss=masked.step,
        predict=masked.predict,
        check_at=check_at,
        reduced=_reduced(parameters),
        source=f"{source.architecture} of transformers {transformers.__version__}, config sha256 {digest[:16]}",
        trip_counts=tuple(name for name in dims if is_depth(name)),
        digest=digest,
        key=f"hf:{digest}:transformers-{transformers.__version__}",
        notes=(
            *reading.notes_on(raw, source),
            *reading.notes_on_tying(source),
            *reading.notes_on_overruled(source),
            *reading.notes_on_chance(source),
            *notes,
            *(masked.notes[len(task.notes) :]),
            *notes_on_padding(shorter),
        ),
        may_specialize=may_specialize(dims),
        may_unroll=tuple(name for name in ("T", "S") if name in dims),
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
    return layout, dims, (*task.notes, *notes, *of_fields, *(numbers if towers else ()))


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


def _after_padding(source: Source, task: Task, layout: ConfigLayout, dims: Mapping[str, Dim], module: Any) -> dict[str, Dim]:
    """The lengths that a table of positions bounds, where its first rows, up to that for padding, are for no position."""
    bounded = [name for name in ("T", "S") if name in dims and dims[name].at_most == "C"]
    sizes = _own_sizes(dims) if bounded else {}
    if not sizes or not padded_tables(module, sizes["C"]):
        return {}
    before = own_padding(source, sizes["C"]) + 1
    narrow = {"B": 1, **_free(_narrow(sizes, layout, dims), dims), **dict.fromkeys(bounded, min(_SHORT, sizes["C"] // 2))}
    if before >= sizes["C"] or not _begins_after_padding(source, task, layout, Sizes(**resolve(dims, narrow))):
        return {}
    return {name: replace(dims[name], default=min(sizes[name], sizes["C"] - before), at_most=f"C - {before}") for name in bounded}


def _begins_after_padding(source: Source, task: Task, layout: ConfigLayout, n: Sizes) -> bool:
    """Whether the class has no token at the row for padding of its table of positions. True if it does not run at the sizes ``n``."""
    import torch

    def run(token: int) -> None:
        task.predict(module, *(tensor if tensor.is_floating_point() else torch.full_like(tensor, token) for tensor in inputs))

    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            module, inputs = _trial(source, task, layout, n)
            return begins_after_padding(module, n.C, getattr(n, "T", None) or n.S, run)
    except Exception:  # the class may raise anything at sizes that it does not support
        return True


def _even_heads(source: Source, task: Task, layout: ConfigLayout, dims: Mapping[str, Dim], tried: Mapping[str, int]) -> dict[str, Dim]:
    """{"k": the head width as a multiple of 2} if the class runs with no other: half of the width are sines, half cosines. Else empty."""
    k, h = dims.get("k"), dims.get("h")
    d = dims.get("d")
    if d is None or k is None or h is None or k.multiple_of or not k.tied or h.multiple_of or d.multiple_of != "h":
        return {}
    small = dict(tried) | _shallow({}, layout, dims)
    odd, even = ({**small, "h": 3, "d": 3 * width} for width in (17, 18))
    if _runs(source, task, layout, dims, _smaller(source, layout, dims, odd)):  # a tower of images at full width takes seconds
        return {}
    needs = not _runs(source, task, layout, dims, odd) and _runs(source, task, layout, dims, even)
    return {"k": replace(k, multiple_of=2, because="half of a head's width are sines, half cosines")} if needs else {}


def _shared_width(source: Source, task: Task, layout: ConfigLayout, dims: Mapping[str, Dim], tried: Mapping[str, int]) -> dict[str, Dim]:
    """{"d": a multiple of h, "k": tied to d/h} if the class runs with no other head width, though its config takes one. Else empty."""
    k = dims.get("k")
    if k is None or k.tied or k.default != "d/h" or "d" not in dims:
        return {}
    sizes = _own_sizes(dims)
    if not sizes:
        return {}
    small = dict(tried) | _free(_narrow(sizes, layout, dims), dims)
    other_width = small | {"d": 2 * small["d"]}
    needs = not _runs(source, task, layout, dims, other_width) and _runs(source, task, layout, dims, small)
    return {"d": replace(dims["d"], multiple_of="h", because=HEADS), "k": replace(k, tied=True)} if needs else {}


def _equal_towers(source: Source, task: Task, layout: ConfigLayout, dims: Mapping[str, Dim], config: Any) -> dict[str, Dim]:
    """Dimensions that equal the width of a tower, or the tower's that equal those of the text, where the class runs with no others."""
    towers = [name[:-1] for name in dims if name.endswith("_d") and f"{name[:-1]}h" in dims]
    sizes = _own_sizes(dims)
    made: dict[str, Dim] = {}
    for tower in towers if sizes else ():
        narrow = _narrow(sizes, layout, dims)
        small = {**task.small(config), **_free(narrow | {tower + n: narrow[n] for n in ("d", "h")}, dims)}
        runs = functools.partial(_runs, source, task, layout, dims)
        if all(n in dims and dims[tower + n].default == dims[n].default for n in ("d", "h")):
            if not runs({**small, f"{tower}d": 2 * narrow["d"]}) and runs(small):
                shared = [n for n in ("d", "h", "k") if n in dims and tower + n in dims]
                made |= {tower + n: replace(dims[tower + n], default=n, tied=True, multiple_of=None, because=_EQUAL) for n in shared}
            continue
        for name in _read_elsewhere(dims, sizes, tower):
            if not runs({**small, name: 2 * narrow["d"]}) and runs({**small, name: narrow["d"]}):
                made[name] = replace(dims[name], default=f"{tower}d", tied=True, because=_OF_TOWER)
    return made


def _read_elsewhere(dims: Mapping[str, Dim], sizes: Mapping[str, int], tower: str) -> list[str]:
    """Sizes that have no letter and may be the width of a tower, which another part reads."""
    own = (name for name in dims if name not in (*FIELDS.dimensions, "B", "T", "S", "N") and not name.startswith(tower))
    return [name for name in own if not dims[name].tied and sizes[name] == sizes[f"{tower}d"]]


_EQUAL = "the class multiplies the vectors of both towers"
_OF_TOWER = "it is the width of what that part returns"


def _grouped_heads(source: Source, task: Task, layout: ConfigLayout, dims: Mapping[str, Dim], config: Any) -> dict[str, Dim]:
    """Numbers of heads as multiples of a number of groups in the config, where the class runs with no others."""
    given = source.part(layout.path).given(getattr(config, layout.path)) if layout.path else source.given(config)
    groups = {v for name, v in given.items() if "group" in name and name not in FIELDS.groups_of_experts and v > 1}
    heads = [name for name in dims if (name == "h" or name.endswith("_heads")) and not dims[name].tied and dims[name].multiple_of is None]
    sizes = _own_sizes(dims)
    if not groups or not heads or not sizes:
        return {}
    narrow = _free(_narrow(sizes, layout, dims), dims)

    def runs(name: str, count: int) -> bool:
        width = {"d": sizes["d"] // sizes["h"] * count} if "d" in dims and name == dims["d"].multiple_of else {}
        return _runs(source, task, layout, dims, {**task.small(config), **narrow, **width, name: count})

    grouped: dict[str, Dim] = {}
    for name, group in itertools.product(heads, groups):
        if sizes[name] % group == 0 and not runs(name, group + 1) and runs(name, 2 * group) and runs(name, 3 * group):
            grouped[name] = replace(dims[name], multiple_of=group, because=f"heads are in {group} equal groups")
    return grouped


def _heeds_padding(source: Source, task: Task, layout: ConfigLayout, dims: Mapping[str, Dim], small: Mapping[str, int]) -> bool:
    """Whether a class that reads and writes tokens runs other operators where these are padding, if it is given no masks."""
    import torch

    from calc.experiment.threads import one_thread

    arguments, masks = inspect.signature(module_class(source).forward).parameters, [MASKS[name][0] for name in task.used if name in MASKS]
    if "decoder_input_ids" not in task.used or not {*masks} <= arguments.keys():
        return False
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), one_thread():
            n = Sizes(**resolve(dims, small))
            module, *inputs = _light(source, layout, n, *_trial(source, task, layout, n))
            padding, tokens = ([torch.full_like(t, token) for t in inputs] for token in (0, 1))
            return _operators(task, module, padding) != _operators(task, module, tokens)
    except Exception:  # the class may raise anything at sizes that it does not support
        return False


def _operators(task: Task, module: Any, inputs: Sequence[Any]) -> list[str]:
    """The names of the operators that a forward runs."""
    from calc.platform.torch_private import TorchDispatchMode

    names: list[str] = []

    class Listing(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's modes are untyped
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(str(func))
            return func(*args, **kwargs or {})

    with Listing():  # type: ignore[no-untyped-call]  # torch's modes are untyped
        task.predict(module, *inputs)
    return names


def _own_sizes(dims: Mapping[str, Dim]) -> dict[str, int]:
    """The sizes of the config; empty if they do not fit together, which ``_check_at`` reports."""
    try:
        return resolve(dims, {})
    except DimensionError:
        return {}


def _free(sizes: Mapping[str, int], dims: Mapping[str, Dim]) -> dict[str, int]:
    """Those of ``sizes`` that can be set."""
    return {name: size for name, size in sizes.items() if name in dims and not dims[name].tied}


def _without_memory(source: Source, config: Any) -> Any:
    try:
        return without_memory(source, config)
    except ConfigError:
        raise
    except Exception as error:  # whatever the class raises, this config cannot be used
        message = f"{type(error).__name__}: {reading.sentences_of(error) or 'no message'}"
        raise ConfigError(f"{source.where}: {source.architecture} cannot be built from it: {message}") from None


_BYTES = 256


def vocabulary_of(module: Any, config: Any) -> int:
    """The vocabulary size where it is not a dimension: the rows of the input embedding, else ``vocab_size`` of the config, else that of
    bytes: a class without either takes characters, whatever their number."""
    try:
        return int(module.get_input_embeddings().num_embeddings)
    except (AttributeError, NotImplementedError):
        return int(stated(config, "vocab_size", _BYTES))


def _check_at(
    source: Source, task: Task, layout: ConfigLayout, dims: Mapping[str, Dim], tried: Mapping[str, int], parameters: int
) -> dict[str, int]:
    """Sizes of the real checks: a short batch at full width, or the narrowest reduced model that runs if full width would not fit.

    Raises ConfigError if the config's own numbers do not divide.
    """
    try:
        sizes = resolve(dims, {})
        small = {name: min(value, sizes[name]) if name != "B" else value for name, value in tried.items()}
        if parameters > _CHECKED_AT_FULL_WIDTH:
            made = list(_relatives(sizes, layout, dims))
            deep = ({name: value for name, value in relative.items() if not is_depth(name)} for relative in made[:1])
            relatives = [small | relative for relative in (*made, *deep)]  # the last for a class that runs at one depth only
            pairs = ((_smaller(source, layout, dims, relative), relative) for relative in relatives)
            tries = (sizes for smaller, relative in pairs for sizes in ([smaller] if smaller == relative else [smaller, relative]))
            fit = (sizes for sizes in tries if _runs(source, task, layout, dims, sizes))
            small = next(itertools.chain(fit, [_smaller(source, layout, dims, small | _shallow(sizes, layout, dims))]))
        resolve(dims, small)
    except DimensionError as error:
        names = ", ".join(f"{letter} is {fields[0]}" for letter, fields in layout.fields.items())
        raise ConfigError(f"{source.where}: {error} ({names})") from None
    return small


def _reduced(parameters: int) -> str:
    """Why the sizes of the real checks are small."""
    if parameters <= _CHECKED_AT_FULL_WIDTH:
        return "so that a run takes seconds"
    return f"since this model has {parameters:,} parameters: above {_CHECKED_AT_FULL_WIDTH:,}, a small model of the same kind is checked"


def _relatives(sizes: Mapping[str, int], layout: ConfigLayout, dims: Mapping[str, Dim]) -> Iterator[dict[str, int]]:
    """Sizes of reduced models of the same shape, the smallest first: a few narrow heads, or a few heads of full width."""
    narrow = _narrow(sizes, layout, dims)
    yield {name: value for name, value in narrow.items() if name in dims and not dims[name].tied}
    for heads in (4, 8, 16, 32):
        over, rest = divmod(sizes.get("h", 1), heads)
        d = sizes.get("d", 0)  # absent where the part that reads the tokens calls its width otherwise
        if not rest and over > 1 and d % over == 0:
            fewer = {n: v // over for n, v in sizes.items() if n.endswith(_SHARED_BY_HEADS) and v % over == 0}
            shape = {**narrow, **fewer, "k": sizes.get("k", 1), "h": heads, "d": d // over, "g": max(1, sizes.get("g", 1) // over)}
            yield {name: value for name, value in shape.items() if name in dims and not dims[name].tied}


def _narrow(sizes: Mapping[str, int], layout: ConfigLayout, dims: Mapping[str, Dim]) -> dict[str, int]:
    """Sizes of a model of the same shape with a few narrow heads: grouped heads stay grouped, the layers keep their pattern."""
    h, g = sizes.get("h", 1), sizes.get("g", sizes.get("h", 1))
    narrow_g = min(g, 2)
    narrow_h = 4 if g == h else narrow_g * min(h // g, 4)
    patterns = {"L": layout.layers, **{f"{prefix}L": tower.layers for prefix, tower in layout.inner.items()}}
    depth = {name: p.irregular + p.period * (2 if p.period < 4 else 1) for name, p in patterns.items() if p is not None}
    width = {"f": 212 if isinstance(dims["f"].multiple_of, int) else 211} if "f" in dims else {}
    unit = dims["k"].multiple_of if "k" in dims else None
    k = -(-_HEAD_WIDTH // unit) * unit if isinstance(unit, int) else _HEAD_WIDTH
    return {"h": narrow_h, "g": narrow_g, "k": k, "d": k * narrow_h, "V": min(503, sizes.get("V", 503)), **width, **depth}


def _shallow(sizes: Mapping[str, int], layout: ConfigLayout, dims: Mapping[str, Dim]) -> dict[str, int]:
    """The depths and the vocabulary of ``_narrow``."""
    return {name: size for name, size in _narrow(sizes, layout, dims).items() if (is_depth(name) or name == "V") and name in dims}


def _smaller(source: Source, layout: ConfigLayout, dims: Mapping[str, Dim], small: Mapping[str, int]) -> dict[str, int]:
    """``small`` with fewer experts and smaller sizes of the config's own, reduced one by one where the class builds with them, until at
    most ``_CHECKED_NARROW`` parameters remain; with few heads of any kind."""
    try:
        sizes, reduced = resolve(dims, small), dict(small)
        parameters = _parameters(source, layout, sizes)
    except Exception:  # the class may raise anything at sizes that it does not support
        return dict(small)
    own = [name for name in dims if not (name in FIELDS.dimensions or name in ("B", "T", "S") or is_depth(name) or name in small)]
    for name in (*(["E"] if "E" in dims else []), *sorted(own, key=lambda name: -sizes[name])):
        unit = dims[name].multiple_of or 1
        heads_of_its_own = name.endswith("_heads")  # few parameters, but each head may have a state, or scores of all positions
        if dims[name].tied or (parameters <= _CHECKED_NARROW and not heads_of_its_own):
            continue
        if isinstance(unit, str):
            if unit != f"{name[:-1]}h":  # else it is the width of another part of the model, split among its heads
                continue
            heads = min(sizes[unit], 4)
            tried = reduced | {unit: heads, name: _HEAD_WIDTH * heads}
        else:
            vocabulary = sizes.get("V", 0) if name.endswith("_V") else 0  # a tower may read the same tokens
            least = 2 * sizes.get("e", 1) if name == "E" else _FEW_HEADS if heads_of_its_own else max(2 * _HEAD_WIDTH, vocabulary)
            tried = reduced | {name: min(sizes[name], reduced.get(name, sizes[name]), -(-least // unit) * unit)}
        with contextlib.suppress(Exception):  # the class may raise anything at sizes that it does not support
            parameters, reduced = _parameters(source, layout, resolve(dims, tried)), tried
    return reduced


def _runs(source: Source, task: Task, layout: ConfigLayout, dims: Mapping[str, Dim], small: Mapping[str, int]) -> bool:
    """Whether the class's forward runs at these sizes: some need a width that is a product of others, or heads that groups divide."""
    import torch

    from calc.experiment.threads import one_thread

    try:
        n = Sizes(**resolve(dims, small))
        if _bytes(source, layout, n) > _MOST_BYTES:
            return False
        with torch.no_grad(), torch.random.fork_rng(devices=[]), one_thread():
            task.predict(*_light(source, layout, n, *_trial(source, task, layout, n)))
    except Exception as error:  # the class may raise anything at sizes that it does not support
        return "on meta tensors" in str(error)  # it reads data, which a run without memory has none of: the sizes fit so far
    return True


def _light(source: Source, layout: ConfigLayout, n: Sizes, module: Any, inputs: Sequence[Any]) -> Iterator[Any]:
    """The module and its inputs, without memory where they are large: a forward of a picture of five million pixels takes minutes."""
    large = sum(tensor.numel() for tensor in inputs) > _MOST_ELEMENTS
    yield _without_memory(source, source.config(layout.changes(n))).train() if large else module
    yield from (tensor.to("meta") if large else tensor for tensor in inputs)


def _trial(source: Source, task: Task, layout: ConfigLayout, n: Sizes) -> tuple[Any, tuple[Any, ...]]:
    """(the module at the sizes ``n``, its inputs), for a run whose values do not matter."""
    with _zeros_for_random_numbers():
        module, config = _build(source, layout, n), source.config(layout.changes(n))
    return module, task.inputs(n, getattr(n, "V", vocabulary_of(module, config)), config)


@contextlib.contextmanager
def _zeros_for_random_numbers() -> Iterator[None]:
    """Context in which weights are initialized to zeros: those of a tower at full width take seconds to draw."""
    import torch

    def zeroed(tensor: Any, *_: Any, **__: Any) -> Any:
        return tensor.zero_()

    drawn = ("normal_", "uniform_")
    for name in drawn:
        setattr(torch.Tensor, name, zeroed)
    try:
        yield
    finally:
        for name in drawn:
            delattr(torch.Tensor, name)  # those of its base class are visible again


def _bytes(source: Source, layout: ConfigLayout, n: Sizes) -> int:
    """Bytes of the parameters and buffers; a table of positions is as large as the config says."""
    module = _without_memory(source, source.config(layout.changes(n)))
    return sum(tensor.nbytes for tensor in itertools.chain(module.parameters(), module.buffers()))


def _parameters(source: Source, layout: ConfigLayout, sizes: Mapping[str, int]) -> int:
    module = _without_memory(source, source.config(layout.changes(Sizes(**sizes))))
    return sum(p.numel() for p in module.parameters())


def _build(source: Source, layout: ConfigLayout, n: Any) -> Any:
    """``cls(config)`` in training mode, with the fields of its dimensions at the given sizes; the class computes the other fields."""
    config = source.config(layout.changes(n))
    with quiet(), symbolic_sizes_accepted():
        return module_class(source)(config).train()

"""Any model of transformers that its ``config.json`` builds: no weights, no download, no remote code.

The module is the library's own class, built as ``cls(config)``. What is added here is which of the config's numbers are
dimensions (a table, ``calc/data/hf_fields.toml``, that names no model) and which relations between them the class needs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from calc.dims import Dim, resolve
from calc.errors import ConfigError, DimensionError
from calc.models.hf import source as reading
from calc.models.hf.dimensions import Layout, dims_of, gives_way, layout_of, positions
from calc.models.hf.layers import pattern_of, without_memory
from calc.models.hf.source import Source, module_class, quiet
from calc.models.hf.tasks import TASKS, Task
from calc.spec import Spec

# Above this, a check at full width would not fit an ordinary machine (AdamW in fp32 takes 16 bytes per parameter).
_CHECKED_AT_FULL_WIDTH = 200_000_000


def spec(path: str) -> Spec:
    """The spec of a ``config.json``, given by its path or its folder's."""
    file = reading.file_of(path)
    text = reading.read(file)
    raw = reading.parse(str(file), text)
    reading.refuse_what_is_not_supported(str(file), raw)
    reading.refuse_bad_sizes(str(file), raw)
    source = reading.source_of(str(file), raw)
    config = reading.construct(source)
    task = TASKS[source.task]
    fields = layout_of(source, config)
    module = _without_memory(source, config)
    depth = config.__dict__[fields["L"][0]] if "L" in fields else 1
    layout = Layout(fields, pattern_of(source, config, depth, module) if "L" in fields else None)
    dims, notes = dims_of(source, layout, config, task.dims(config, positions(config)))
    parameters = sum(p.numel() for p in module.parameters())
    check_at = _check_at(source, layout, dims, task, parameters)
    vocabulary = vocabulary_of(module)
    import transformers

    digest = hashlib.sha256(text).hexdigest()
    return Spec(
        name=f"hf:{path}",
        dims=dims,
        build=lambda n: _build(source, layout, n),
        inputs=lambda n: task.inputs(n, getattr(n, "V", vocabulary), config),
        loss=task.loss,
        predict=task.predict,
        check_at=check_at,
        source=f"{source.architecture} of transformers {transformers.__version__}, config sha256 {digest[:16]}",
        pinned=("L",) if "L" in dims else (),
        key=f"hf:{digest}:transformers-{transformers.__version__}",
        notes=notes,
        gives_way=gives_way(dims),
    )


def _without_memory(source: Source, config: Any) -> Any:
    try:
        return without_memory(source, config)
    except Exception as error:  # whatever the class raises, this config cannot be used
        said = str(error).strip().partition("\n")[0][:200] or "no message"
        raise ConfigError(f"{source.where}: {source.architecture} cannot be built from it: {type(error).__name__}: {said}") from None


def vocabulary_of(module: Any) -> int:
    """Rows of the input embedding: what a token's number is below, where the config has no vocabulary of its own."""
    try:
        return int(module.get_input_embeddings().num_embeddings)
    except (AttributeError, NotImplementedError):
        return 0


def _check_at(source: Source, layout: Layout, dims: Mapping[str, Dim], task: Task, parameters: int) -> dict[str, int]:
    """Sizes of the real checks: a short batch at full width, or a narrow relative where full width would not fit.

    Resolving the dimensions is also what finds that the config's own numbers do not divide.
    """
    try:
        sizes = resolve(dims, {})
        small = {name: min(value, sizes[name]) if name != "B" else value for name, value in task.small.items()}
        if parameters > _CHECKED_AT_FULL_WIDTH:
            narrow = _narrow(sizes, layout, dims)
            small |= {name: value for name, value in narrow.items() if name in dims and not dims[name].tied}
        resolve(dims, small)
    except DimensionError as error:
        names = ", ".join(f"{letter} is {fields[0]}" for letter, fields in layout.fields.items())
        raise ConfigError(f"{source.where}: {error} ({names})") from None
    return small


def _narrow(sizes: Mapping[str, int], layout: Layout, dims: Mapping[str, Dim]) -> dict[str, int]:
    """A model of the same shape with a few narrow heads: grouped heads stay grouped, the layers keep their pattern."""
    h, g = sizes.get("h", 1), sizes.get("g", sizes.get("h", 1))
    narrow_g = min(g, 2)
    narrow_h = 4 if g == h else narrow_g * min(h // g, 4)
    pattern = layout.layers
    depth = {} if pattern is None else {"L": pattern.apart + pattern.period * (2 if pattern.period < 4 else 1)}
    width = {"f": 212 if isinstance(dims["f"].multiple_of, int) else 211} if "f" in dims else {}
    return {"h": narrow_h, "g": narrow_g, "k": 16, "d": 16 * narrow_h, "V": 503, **width, **depth}


def _build(source: Source, layout: Layout, n: Any) -> Any:
    """``cls(config)`` in training mode, with the fields of its dimensions at the given sizes; the class makes the others itself."""
    config = source.config(layout.changes(n))
    with quiet():
        return module_class(source)(config).train()

"""Any causal language model of transformers, from its ``config.json`` alone: no weights, no download, no remote code.

The module is the library's own class, built as ``cls(config)``. What is added here is which of the config's numbers are
dimensions (a table, ``calc/data/hf_fields.toml``, that names no model) and which relations between them the class needs.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from calc.dims import Dim, resolve
from calc.errors import ConfigError, DimensionError, MissingExtraError
from calc.spec import Spec

# Above this, a check at full width would not fit an ordinary machine (AdamW in fp32 takes 16 bytes per parameter).
_CHECKED_AT_FULL_WIDTH = 200_000_000


@dataclass(frozen=True, slots=True)
class _Fields:
    """The table of ``hf_fields.toml``."""

    dimensions: Mapping[str, Sequence[str]]
    when_null: Mapping[str, str]
    rotary: Sequence[str]
    biased: Sequence[str]
    ignored: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Source:
    """A config as read, with the library's classes for it. ``where`` begins every message about it."""

    where: str
    raw: Mapping[str, Any]
    config_class: Any
    architecture: str

    def config(self, changes: Mapping[str, Any]) -> Any:
        """The library's config object, with some fields of the file replaced."""
        aliases: Mapping[str, str] = self.config_class.attribute_map
        kept = {name: value for name, value in self.raw.items() if aliases.get(name) not in changes}
        with _quiet():
            return self.config_class(**{**kept, **changes})


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which fields hold which dimension, and the lists with one entry per layer.

    ``per_layer`` holds one period of each list; ``period`` is that of all of them, ``None`` where they repeat nothing.
    """

    fields: Mapping[str, tuple[str, ...]]
    per_layer: Mapping[str, tuple[Any, ...]]
    period: int | None

    def changes(self, n: Any, letters: Sequence[str]) -> dict[str, Any]:
        """Fields to set for sizes ``n``, the lists of the layers among them when ``L`` is."""
        found = {field: getattr(n, letter) for letter in letters for field in self.fields[letter]}
        if "L" in letters:
            found |= {name: [entries[i % len(entries)] for i in range(n.L)] for name, entries in self.per_layer.items()}
        return found


def spec(path: str) -> Spec:
    """The spec of a ``config.json``, given by its path or its folder's."""
    file = _file(path)
    text = _read(file)
    raw = _object(str(file), text)
    _refuse_what_is_not_supported(str(file), raw)
    _refuse_bad_sizes(str(file), raw)
    source = _source(str(file), raw)
    config = _construct(source)
    layout = _layout(source, config)
    dims, notes = _dims(source, layout, config)
    check_at = _check_at(source, layout, dims)
    import transformers

    digest = hashlib.sha256(text).hexdigest()
    return Spec(
        name=f"hf:{path}",
        dims=dims,
        build=lambda n: _build(source, layout, n),
        inputs=_inputs,
        loss=_loss,
        check_at=check_at,
        source=f"{source.architecture} of transformers {transformers.__version__}, config sha256 {digest[:16]}",
        pinned=("L",) if "L" in dims else (),
        key=f"hf:{digest}:transformers-{transformers.__version__}",
        notes=notes,
    )


# -- the file ------------------------------------------------------------------------------------------------------------


def _file(path: str) -> Path:
    file = Path(path)
    if os.path.isdir(file):  # os.path, unlike Path, says no to names that are too long to be one
        file = file / "config.json"
    if not os.path.isfile(file):
        raise ConfigError(f"no config at {path[:200]}: give the path of a config.json or of its folder (nothing is downloaded)")
    return file


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None


def _object(where: str, text: bytes) -> Mapping[str, Any]:
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except (ValueError, RecursionError) as error:  # an encoding, a number of thousands of digits, brackets without end
        raise ConfigError(f"{where} cannot be read as JSON: {_first_line(error)}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{where} holds a JSON {type(raw).__name__}, not an object: give the config.json of a model")
    return raw


def _refuse_what_is_not_supported(where: str, raw: Mapping[str, Any]) -> None:
    if raw.get("auto_map"):
        raise ConfigError(f"{where} has auto_map: its classes are code beside the config, and no remote code is run; use FILE.py:NAME")
    if raw.get("quantization_config"):
        raise ConfigError(f"{where} has quantization_config: quantised weights are not trained; take the config without it")
    if not isinstance(raw.get("model_type"), str):
        raise ConfigError(f"{where} has no model_type: add the one that transformers knows the model by, e.g. 'llama'")
    architectures = raw.get("architectures")
    if not isinstance(architectures, list) or not architectures or not isinstance(architectures[0], str):
        raise ConfigError(f"{where} has no architectures: add e.g. ['LlamaForCausalLM'], the class to build")


def _refuse_bad_sizes(where: str, raw: Mapping[str, Any]) -> None:
    """Sizes in the file are positive integers or null; the library's own message for a bad one runs over several lines."""
    for field in (field for fields in _fields().dimensions.values() for field in fields):
        value = raw.get(field)
        if value is None or isinstance(value, list):
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{where}: {field} = {_clip(value)} is not an integer")
        if not 0 < value < 2**63:
            raise ConfigError(f"{where}: {field} = {_clip(value)} is not a size: give an integer from 1 to 2**63 - 1")


def _source(where: str, raw: Mapping[str, Any]) -> _Source:
    transformers_needed()
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as LANGUAGE_MODELS

    model_type, architecture = raw["model_type"], raw["architectures"][0]
    if model_type not in CONFIG_MAPPING:
        raise ConfigError(f"{where}: model_type {_clip(model_type)!r} is not one that the installed transformers knows")
    known = LANGUAGE_MODELS.get(model_type, ())
    names = [known] if isinstance(known, str) else list(known)
    if architecture not in names or not architecture.endswith(("ForCausalLM", "LMHeadModel")):
        usable = [name for name in names if name.endswith(("ForCausalLM", "LMHeadModel"))]
        instead = f"for {model_type!r} it is {usable[0]}" if usable else f"{model_type!r} has none"
        raise ConfigError(f"{where}: architecture {_clip(architecture)!r} is not the causal language model of its model_type: {instead}")
    ignored = {*_fields().ignored, "architectures", "model_type", "transformers_version"}
    kept = {name: value for name, value in raw.items() if name not in ignored}
    with _quiet():
        return _Source(where, kept, CONFIG_MAPPING[model_type], architecture)


def transformers_needed() -> None:
    """Refuse, with the command that helps, where transformers is not installed. Imports it offline."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import transformers  # noqa: F401  # only whether it is there
    except ImportError:
        raise MissingExtraError("hf: models need transformers, which is not installed: pip install 'napkin[hf]'") from None


def _construct(source: _Source) -> Any:
    """The config object of the file as it is. The class's own objections become one line."""
    try:
        return source.config({})
    except Exception as error:  # the class validates in its own ways; whatever it says, this config cannot be used
        raise ConfigError(f"{source.where}: {source.config_class.__name__} refuses it: {_last_line(error)}") from None


# -- dimensions ----------------------------------------------------------------------------------------------------------


def _layout(source: _Source, config: Any) -> _Layout:
    table, stored = _fields(), config.__dict__
    fields: dict[str, tuple[str, ...]] = {}
    for letter, names in table.dimensions.items():
        present = [n for n in names if _is_size(stored.get(n)) or (n in stored and stored[n] is None and n in table.when_null)]
        if present and (letter != "C" or _learned_positions(config)):
            fields[letter] = tuple(n for n in present if stored[n] == stored[present[0]])
    depth = stored[fields["L"][0]] if "L" in fields else None
    lists = {name: tuple(v) for name, v in stored.items() if isinstance(v, list | tuple) and len(v) == depth and name != "architectures"}
    period = math.lcm(*(_period(entries) for entries in lists.values())) if lists else 1
    if depth is None or 1 < period == depth:
        fields.pop("L", None)
        return _Layout(fields, {}, None if depth is not None else 1)
    # Lists that the class makes for itself follow the depth by themselves; the file's own have to be made longer or shorter.
    given = {name: entries[: _period(entries)] for name, entries in lists.items() if isinstance(source.raw.get(name), list)}
    return _Layout(fields, given, period)


def _period(entries: Sequence[Any]) -> int:
    """Length of the shortest beginning that the whole list repeats."""
    for length in range(1, len(entries)):
        if len(entries) % length == 0 and all(entry == entries[i % length] for i, entry in enumerate(entries)):
            return length
    return len(entries)


def _dims(source: _Source, layout: _Layout, config: Any) -> tuple[dict[str, Dim], tuple[str, ...]]:
    value = {letter: config.__dict__[fields[0]] for letter, fields in layout.fields.items()}
    limit = _positions(config)
    notes: list[str] = []
    made = {"B": Dim(1), "T": Dim(min(limit or 1024, 1024), at_most="C" if "C" in value else None)}
    even = 2 if _rotary(config) else None
    if "d" in value:
        made["d"] = Dim(value["d"], multiple_of="h" if "h" in value and _heads_divide_width(source, layout, value) else None)
    if "h" in value:
        made["h"] = Dim(value["h"], multiple_of="g" if "g" in value and value["g"] != value["h"] else None)
    if "g" in value and value["g"] == value["h"]:
        made["g"] = Dim("h", tied=True)
        notes.append(
            "g = h in this config and cannot be set apart: the library's code takes another branch when they differ;"
            f" to set them, give {layout.fields['g'][0]} a smaller number in the config"
        )
    elif "g" in value:
        made["g"] = Dim(value["g"])
    if "k" in value:
        made["k"] = Dim("d/h" if value["k"] * value["h"] == value["d"] else value["k"], multiple_of=even)
    elif "d" in value and "h" in value:
        made["k"] = Dim("d/h", tied=True, multiple_of=even)
    if "f" in value:
        made["f"] = Dim(value["f"] if value["f"] is not None else _fields().when_null[layout.fields["f"][0]])
    if "L" in value:
        made["L"] = Dim(value["L"], multiple_of=layout.period if layout.period != 1 else None)
    elif layout.period is None:
        notes.append("the depth is a number here, no dimension: the layers of this config repeat no pattern")
    for letter in ("V", "C"):
        if letter in value:
            made[letter] = Dim(value[letter])
    if config.__dict__.get("pad_token_id") is not None:
        notes.append("pad_token_id is 0 here, so that it is a token of any vocabulary size; no size or count depends on which token it is")
    return made, tuple(notes)


def _heads_divide_width(source: _Source, layout: _Layout, value: Mapping[str, Any]) -> bool:
    """Whether ``d`` must be a multiple of ``h``: always without a head width of its own, else as the config class demands."""
    if "k" not in value or value["h"] == 1:
        return True
    try:
        source.config({**dict.fromkeys(layout.fields["d"], value["d"] + 1), **dict.fromkeys(layout.fields["k"], value["k"])})
    except Exception:  # the class's objection, of whatever type, is the answer
        return True
    return False


def _positions(config: Any) -> int | None:
    stored = config.__dict__
    return next((stored[name] for name in _fields().dimensions["C"] if _is_size(stored.get(name))), None)


def _rotary(config: Any) -> bool:
    return any(config.__dict__.get(name) for name in _fields().rotary)


def _learned_positions(config: Any) -> bool:
    return not _rotary(config) and not any(config.__dict__.get(name) for name in _fields().biased)


def _check_at(source: _Source, layout: _Layout, dims: Mapping[str, Dim]) -> dict[str, int]:
    """Sizes of the real checks: a short batch at full width, or a narrow relative where full width would not fit.

    Resolving the dimensions is also what finds that the config's own numbers do not divide.
    """
    try:
        sizes = resolve(dims, {})
        small = {"B": 2, "T": min(16, sizes["T"])}
        if _parameters(sizes) > _CHECKED_AT_FULL_WIDTH:
            small |= {name: value for name, value in _narrow(sizes, layout.period or 1).items() if name in dims and not dims[name].tied}
        resolve(dims, small)
    except DimensionError as error:
        names = ", ".join(f"{letter} is {fields[0]}" for letter, fields in layout.fields.items())
        raise ConfigError(f"{source.where}: {error} ({names})") from None
    return small


def _narrow(sizes: Mapping[str, int], period: int) -> dict[str, int]:
    """A model of the same shape with a few narrow heads: grouped heads stay grouped."""
    h, g = sizes.get("h", 1), sizes.get("g", sizes.get("h", 1))
    narrow_g = min(g, 2)
    narrow_h = 4 if g == h else narrow_g * min(h // g, 4)
    return {"h": narrow_h, "g": narrow_g, "k": 16, "d": 16 * narrow_h, "f": 211, "V": 503, "L": 2 * period}


def _parameters(n: Mapping[str, int]) -> int:
    """About how many parameters a decoder of these sizes has: only to tell whether a real run of it fits."""
    d, heads = n.get("d", 1), n.get("h", 1) + n.get("g", n.get("h", 1))
    return 2 * n.get("V", 1) * d + n.get("L", 1) * (2 * d * heads * n.get("k", 1) + 3 * d * n.get("f", d))


# -- the step ------------------------------------------------------------------------------------------------------------


def _build(source: _Source, layout: _Layout, n: Any) -> Any:
    """``cls(config)`` in training mode. With integer sizes the config is made anew, as a user would write it.

    Symbolic sizes are put into a finished config, since its class accepts only integers when it is made.
    """
    import transformers

    letters = [letter for letter in layout.fields if hasattr(n, letter)]
    concrete = all(type(getattr(n, letter)) is int for letter in letters)
    if concrete:
        config = source.config(layout.changes(n, letters))
    else:
        config = source.config(layout.changes(n, ["L"] if "L" in letters else []))
        config.__dict__.update(layout.changes(n, letters))
    if config.__dict__.get("pad_token_id") is not None:
        config.__dict__["pad_token_id"] = 0
    with _quiet():
        return getattr(transformers, source.architecture)(config).train()


def _inputs(n: Any) -> tuple[Any, ...]:
    import torch

    return (torch.randint(n.V, (n.B, n.T)),)


def _loss(model: Any, input_ids: Any) -> Any:
    with _quiet():
        return model(input_ids=input_ids, labels=input_ids, use_cache=False).loss


# -- small things --------------------------------------------------------------------------------------------------------


@cache
def _fields() -> _Fields:
    table = tomllib.loads(resources.files("calc").joinpath("data/hf_fields.toml").read_text(encoding="utf-8"))
    positions = table["positions"]
    return _Fields(table["dimensions"], table["when_null"], positions["rotary"], positions["biased"], table["ignored"]["fields"])


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


@contextmanager
def _quiet() -> Iterator[None]:
    """The library logs opinions on token ids and defaults that are beside the point here."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200]


def _last_line(error: BaseException) -> str:
    """What a validator of the library says stands in the last line, after its own name."""
    return (str(error).strip().rpartition("\n")[2].strip() or type(error).__name__)[:200]


def _clip(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"

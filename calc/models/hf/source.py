"""A ``config.json`` read, refused where it cannot be used, and turned into the library's own config object."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from calc.errors import ConfigError, MissingExtraError
from calc.models.hf.table import FIELDS, is_size
from calc.platform import files
from calc.platform.reading import clipped
from calc.platform.sized_list import SizedList

_FILE = files.Kind(2**23, "the config", error=ConfigError)
_MOST_LAYERS = 2_000  # twice as deep as the deepest that were published; the library builds each of them in milliseconds
_MOST_ENTRIES = 100_000  # of one list or table, and of the table of classes that the library makes for num_labels
_DEEPEST = 20


@dataclass(frozen=True)
class Source:
    """A config as read, with the library's classes for it. ``where`` begins every message about it."""

    where: str
    raw: Mapping[str, Any]
    config_class: Any
    architecture: str
    model_type: str

    @cached_property
    def aliases(self) -> Mapping[str, str]:
        """{field: the class's own field that it sets}, by the class's table or its code. A change of the latter must drop the former."""
        own = {f.name for f in fields(self.config_class)}
        table: Mapping[str, str] = self.config_class.attribute_map
        return {**{name: target for name in self.raw.keys() - own - table.keys() if (target := self._taken_for(name))}, **table}

    def _taken_for(self, name: str) -> str:
        """The class's field that doubles when the file's field ``name`` is doubled; empty if there is none."""
        value = self.raw[name]
        if not is_size(value):
            return ""
        try:
            with quiet():
                before, after = (self.config_class(**{**self.raw, name: size}).__dict__ for size in (value, 2 * value))
        except Exception:  # the class may raise any type: then it is unknown
            return ""
        return next((field for field in before if field != name and before[field] == value and after[field] == 2 * value), "")

    def config(self, changes: Mapping[str, Any]) -> Any:
        """The library's config object with some fields replaced, those of nested configs by dotted path (``text_config.d_model``).

        Sizes may be symbolic.
        """
        with quiet(), symbolic_sizes_accepted(), ExitStack() as stack:
            for config_class in self._changed(changes):
                stack.enter_context(_unvalidated(config_class))
            config = self.config_class(**self.merged(changes))
        for part in parts_of(config):
            for name in ("pad_token_id", "decoder_start_token_id"):
                if part.__dict__.get(name) is not None:
                    part.__dict__[name] = 0  # a valid token for any vocabulary size
            for name in _of_chance(part):
                part.__dict__[name] = type(part.__dict__[name])(0)  # probability 0, or False
        if config.__dict__.get("is_encoder_decoder"):
            config.__dict__["decoder_start_token_id"] = 0  # a file may leave it to a file of settings for generation
        return config

    def _changed(self, changes: Mapping[str, Any]) -> list[Any]:
        """The class of the config and those of nested ones that ``changes`` change; none without changes."""
        nested = {path.partition(".")[0] for path in changes if "." in path}
        return [part.config_class for part in (self, *map(self.part, sorted(nested)))] if changes else []

    def part(self, name: str) -> Source:
        """The nested config ``name``; the class's default if the file leaves it out."""
        with quiet():
            config = getattr(self.config_class(**self.raw), name)
        stated = self.raw.get(name)
        raw = stated if isinstance(stated, dict) else {n: v for n, v in config.to_diff_dict().items() if n not in FIELDS.ignored}
        fields_of_part = {n: v for n, v in raw.items() if n != "transformers_version"}
        return Source(f"{self.where}, {name}", fields_of_part, type(config), self.architecture, config.model_type)

    def merged(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of the file, with ``changes`` in their place."""
        fields = {name: value for name, value in self.raw.items() if self.aliases.get(name) not in changes}
        inner: dict[str, dict[str, Any]] = {}
        for path, value in changes.items():
            name, dot, tail = path.partition(".")
            if dot:
                inner.setdefault(name, {})[tail] = value
            else:
                fields[name] = value
        return fields | {name: self.part(name).merged(replaced) for name, replaced in inner.items()}

    def given(self, config: Any) -> dict[str, int]:
        """Integer fields that the file or the class's defaults state, also in configs of the blocks' parts (``attn_config.n_heads``); the
        class computes the others from these."""
        stated = {self.aliases.get(name, name) for name in self.raw}
        stated |= {f.name for f in fields(self.config_class) if is_size(f.default)}
        own = {name: value for name, value in config.__dict__.items() if name in stated and is_size(value)}
        inner = {name: self.part(name).given(getattr(config, name)) for name in configs_of_blocks(config)}
        return own | {f"{part}.{name}": value for part, integers in inner.items() for name, value in integers.items()}


def parts_of(config: Any) -> Iterator[Any]:
    """The config, then all nested configs at any depth."""
    yield config
    for name in inner_configs(config):
        yield from parts_of(getattr(config, name))


def inner_configs(config: Any) -> list[str]:
    """Names of the nested configs that are present."""
    return [name for name in getattr(config, "sub_configs", {}) if hasattr(getattr(config, name, None), "to_diff_dict")]


def configs_of_blocks(config: Any) -> list[str]:
    """Names of the nested configs of a part of each block: these have neither a depth nor inputs of their own."""
    return [name for name in inner_configs(config) if not any(n in FIELDS.of_whole_models for n in getattr(config, name).__dict__)]


def stored(config: Any) -> dict[str, Any]:
    """Every field by its name, including those in configs of the blocks' parts by dotted path."""
    inner = {name: stored(getattr(config, name)) for name in configs_of_blocks(config)}
    return {**config.__dict__, **{f"{part}.{name}": value for part, fields in inner.items() for name, value in fields.items()}}


def module_class(source: Source) -> Any:
    """The library's class of the model."""
    import transformers

    return getattr(transformers, source.architecture)


def read(file: Path) -> bytes:
    """The bytes of a config file, of bounded size."""
    return _FILE.read_bytes(file)


def parse(where: str, text: bytes) -> Mapping[str, Any]:
    """The object in a config file. Raises ``ConfigError`` if it is no JSON object."""
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except (ValueError, RecursionError) as error:  # a wrong encoding, a number of thousands of digits, too deep nesting
        raise ConfigError(f"{where} cannot be read as JSON: {_first_line(error)}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{where} holds a JSON {type(raw).__name__}, not an object: give the config.json of a model")
    return raw


def refuse_what_is_not_supported(where: str, raw: Mapping[str, Any]) -> None:
    """Raises ``ConfigError`` for a config that cannot be derived."""
    if not isinstance(raw.get("model_type"), str):
        raise ConfigError(f"{where} has no model_type: add the one of transformers, e.g. 'llama'")
    architectures = raw.get("architectures")
    if not isinstance(architectures, list) or not architectures or not isinstance(architectures[0], str):
        raise ConfigError(f"{where} has no architectures: add the class to build, e.g. \"architectures\": [\"LlamaForCausalLM\"]")


def notes_on(raw: Mapping[str, Any], source: Source) -> tuple[str, ...]:
    """Notes for the reader of the report on fields without effect here."""
    notes = []
    if raw.get("auto_map"):
        notes.append(f"auto_map names code beside the config, which is not run: the model is {source.architecture} of the library")
    if raw["model_type"] != source.model_type:
        notes.append(
            f"the library has no model_type {clip(raw['model_type'])!r}: the config is read as a {source.config_class.__name__} of the"
            " library, as auto_map names one"
        )
    quantized = raw.get("quantization_config")
    if quantized:
        method = quantized.get("quant_method", "") if isinstance(quantized, dict) else ""
        notes.append(
            f"the published weights are quantized{f' ({clip(method)})' if method else ''}: here all weights are"
            " built and trained in the precision of the step"
        )
    return tuple(notes)


def notes_on_chance(source: Source) -> tuple[str, ...]:
    """Notes on layers that a step would skip at random and inputs that it would mask at random, both off here."""
    with quiet():
        config = source.config_class(**source.raw)
    probabilities = {name: part.__dict__[name] for part in parts_of(config) for name in _of_chance(part)}
    return tuple(
        f"{name} is 0 here, so every layer runs in every step; at {clip(value)} a step skips each layer with that probability"
        if name in FIELDS.skipped_layers
        else f"{name} is off here, so the step hides no part of its input; the library's own masks random parts at every step"
        for name, value in probabilities.items()
    )


def notes_on_overruled(source: Source) -> tuple[str, ...]:
    """Notes on switches of the file that the library's class overrides."""
    with quiet():
        config = source.config_class(**source.raw).__dict__
    overruled = [
        name
        for name, value in source.raw.items()
        if isinstance(value, bool) and isinstance(config.get(name), bool) and config[name] != value
    ]
    return tuple(
        f"{name} is {str(source.raw[name]).lower()} in the file, but {source.config_class.__name__} of the library always sets it to"
        f" {str(config[name]).lower()}, so what is built here is so"
        for name in overruled
    )


def notes_on_tying(source: Source) -> tuple[str, ...]:
    """A note where the file leaves open whether the head is the embedding's weight, and the library's classes differ about it.

    The library then ties them, unless a checkpoint has both: a config alone does not say which.
    """
    with quiet():
        config = source.config_class(**source.raw)
    inner = [getattr(config, name) for name in inner_configs(config)]
    untied = [type(part).__name__ for part in inner if getattr(part, _TIED, None) is False and hasattr(part, "vocab_size")]
    if _TIED in source.raw or not getattr(config, _TIED, False) or not untied:
        return ()
    return (
        f"the file does not say {_TIED}: {source.config_class.__name__} of the library makes the head and the embedding one weight,"
        f" which {untied[0]} would not; if the published weights have both, write {_TIED}: false at the top of the file",
    )


_TIED = "tie_word_embeddings"


def _of_chance(part: Any) -> list[str]:
    """Fields that are set and make a step of the class random."""
    switched = any(name in part.__dict__ for name in FIELDS.hidden_inputs)
    return [n for n in (*FIELDS.skipped_layers, *(FIELDS.hidden_inputs if switched else FIELDS.masks)) if part.__dict__.get(n)]


def refuse_bad_sizes(where: str, raw: Mapping[str, Any]) -> None:
    """Raise ConfigError unless sizes in the file are positive integers or null, and all counts are small enough to build.

    The library has no such limits, and its own message for a bad size has several lines.
    """
    for entry in _entries(where, raw):
        wrong = _objection(entry)
        if wrong:
            raise ConfigError(f"{where}: {clip(entry.path, 80)} = {clip(entry.value)} {wrong}")


def _objection(entry: _Entry) -> str:
    value, is_int = entry.value, isinstance(entry.value, int) and not isinstance(entry.value, bool)
    if entry.field in FIELDS.sizes and not entry.listed and value is not None and not isinstance(value, list):
        if not is_int:
            return "is not an integer"
        none = value == 0 and (entry.depth > 1 or entry.field in FIELDS.experts)  # a nested part, or the experts, are left out
        if not 0 < value < 2**63 and not none:
            return "is not a size: give an integer from 1 to 2**63 - 1"
    if is_int and not -(2**63) <= value < 2**63:
        return "has more than 64 bits"
    if is_int and value > _MOST_LAYERS and FIELDS.counts_layers(entry.field):
        return f"is more than {_MOST_LAYERS:,}, the most layers that are built: give fewer"
    if is_int and value > _MOST_ENTRIES and entry.field == "num_labels":
        return f"is more than {_MOST_ENTRIES:,}, the most classes that are listed: give fewer"
    return ""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A value in the file: ``path`` are the names that lead to it, ``field`` is the last of them; ``listed`` values are in a list."""

    path: str
    field: str
    value: Any
    listed: bool = False
    depth: int = 0


def _entries(where: str, raw: Mapping[str, Any]) -> Iterator[_Entry]:
    """Every value in the file, tables and lists before their contents. Raises ConfigError for too many entries or too deep nesting."""
    waiting = [_Entry("the file", "", raw)]
    while waiting:
        entry = waiting.pop()
        yield entry
        if not isinstance(entry.value, dict | list):
            continue
        if len(entry.value) > _MOST_ENTRIES:
            raise ConfigError(f"{where}: {clip(entry.path, 80)} has {len(entry.value):,} entries, more than {_MOST_ENTRIES:,}")
        if entry.depth > _DEEPEST:
            raise ConfigError(f"{where}: {clip(entry.path, 80)} is nested more than {_DEEPEST} deep")
        if isinstance(entry.value, dict):
            outer = f"{entry.path[:200]}." if entry.depth else ""
            waiting += (_Entry(outer + name, name, value, depth=entry.depth + 1) for name, value in reversed(entry.value.items()))
        else:
            waiting += (_Entry(entry.path, entry.field, value, True, entry.depth + 1) for value in reversed(entry.value))


def source_of(where: str, raw: Mapping[str, Any]) -> Source:
    """The source of a model: its config and the class that transformers builds. Raises ``ConfigError`` if it knows none."""
    transformers_needed()
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    model_type, architecture = raw["model_type"], _as_the_library_writes_it(raw["architectures"][0])
    with quiet():
        config_class = CONFIG_MAPPING[model_type] if model_type in CONFIG_MAPPING else _named_in_auto_map(raw, architecture)
    if raw.get("auto_map") and (config_class is None or not hasattr(transformers, architecture)):
        raise ConfigError(
            f"{where} has auto_map, and the installed transformers has no {clip(architecture)} of model_type {clip(model_type)!r}:"
            " its classes are code beside the config, and no remote code is run; use FILE.py:NAME"
        )
    if config_class is None:
        raise ConfigError(f"{where}: model_type {clip(model_type)!r} is unknown to the installed transformers")
    stated = {name: value for name, value in _stated(raw).items() if name not in ("architectures", "model_type", "transformers_version")}
    repeated = _computed(config_class, stated)
    own = {name: value for name, value in stated.items() if name not in repeated}
    return Source(where, own, config_class, architecture, model_type if model_type in CONFIG_MAPPING else config_class.model_type)


def _stated(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the library's config class is given; a nested config with a dtype of its own would build its part in it."""
    fields = {name: value for name, value in raw.items() if name not in FIELDS.ignored}
    return {name: _stated(value) if isinstance(value, dict) else value for name, value in fields.items()}


def _computed(config_class: Any, stated: Mapping[str, Any]) -> set[str]:
    """Fields of the file that the class has no parameter for and computes from its sizes, to the same value: stated as well, they would not
    follow the sizes. Fields with a letter are not among these."""
    parameters = {f.name for f in fields(config_class)}
    named = parameters | {*config_class.attribute_map} | {name for names in FIELDS.dimensions.values() for name in names}
    extra = {name for name, value in stated.items() if isinstance(value, int | list) and name not in named}
    if not extra:
        return set()
    given = {name: value for name, value in stated.items() if name not in extra}
    wider = [{**given, name: 2 * value} for name, value in given.items() if name in parameters and is_size(value)]
    whole, computed, *results = (_fields_of(config_class, values) for values in (stated, given, *wider))
    same = [name for name in extra if name in computed and whole.get(name) == computed[name]]
    return {name for name in same if any(name in wide and wide[name] != computed[name] for wide in results)}


def _fields_of(config_class: Any, stated: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of the class's config with these; none where it refuses them."""
    try:
        with quiet():
            return dict(config_class(**stated).__dict__)
    except Exception:  # the class may raise any type: then they are unknown
        return {}


def _named_in_auto_map(raw: Mapping[str, Any], architecture: str) -> Any:
    """The library's config class of ``architecture`` if the code beside the config has one of that name; else None."""
    import transformers

    auto_map = raw.get("auto_map")
    named = auto_map.get("AutoConfig") if isinstance(auto_map, dict) else None
    config_class = getattr(getattr(transformers, architecture, None), "config_class", None)
    own = isinstance(named, str) and config_class is not None and named.rpartition(".")[2] == config_class.__name__
    return config_class if own else None


def _as_the_library_writes_it(architecture: str) -> str:
    """The name of the library's class that differs from ``architecture`` in case only, else ``architecture``."""
    import transformers

    if hasattr(transformers, architecture):
        return architecture
    return next((name for name in dir(transformers) if name.lower() == architecture.lower()), architecture)


def transformers_needed() -> None:
    """Import transformers offline. Raises MissingExtraError, with the command to install it, if it is missing."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import transformers  # noqa: F401  # only whether it is there
    except ImportError:
        raise MissingExtraError("hf: models need transformers, which is not installed: pip install 'napkin[hf]'") from None


def construct(source: Source) -> Any:
    """The config object of the file as it is. Any exception of the class becomes a one-line ConfigError."""
    try:
        return source.config({})
    except Exception as error:  # the class validates in its own ways; whatever it says, this config cannot be used
        raise ConfigError(f"{source.where}: {source.config_class.__name__} refuses it: {_last_line(error)}") from None


@contextmanager
def symbolic_sizes_accepted() -> Iterator[None]:
    """Let the type checks of the library's configs accept a symbolic integer, or a list with one, as an integer."""
    from huggingface_hub import dataclasses as strict

    original = strict.type_validator

    def validator(name: str, value: Any, expected_type: Any) -> None:
        if not _has_symbol(value):
            original(name, value, expected_type)

    strict.type_validator = validator
    try:
        yield
    finally:
        strict.type_validator = original


# Validators of the library that would compare a symbol with a number: one only warns of special tokens beyond the vocabulary, the other
# takes the ``len`` of lists whose length is a symbol, and refuses odd heads whether or not they are rotated. Both have judged the numbers
# of the file; at other sizes, symbols or numbers, the model itself fails where it must.
_UNNEEDED = ("validate_token_ids", "validate_rope")


@contextmanager
def _unvalidated(config_class: Any) -> Iterator[None]:
    """Context in which a config class runs none of the validators in ``_UNNEEDED``."""
    checked = next((c for c in config_class.__mro__ if "__class_validators__" in vars(c)), None)
    if checked is None:
        yield
        return
    original = checked.__class_validators__
    checked.__class_validators__ = [validator for validator in original if validator.__name__ not in _UNNEEDED]
    try:
        yield
    finally:
        checked.__class_validators__ = original


def _has_symbol(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_symbol, value.values()))
    if isinstance(value, SizedList):
        return True
    if isinstance(value, list | tuple):
        return any(map(_has_symbol, value))
    return hasattr(value, "node")  # while a step is traced, the type of a symbol has another name


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the library's warnings on token ids and defaults, which do not matter here; one of them would read the tokens."""
    from transformers import PreTrainedModel
    from transformers.utils import logging

    level, warn = logging.get_verbosity(), PreTrainedModel.warn_if_padding_and_no_attention_mask
    logging.set_verbosity_error()
    PreTrainedModel.warn_if_padding_and_no_attention_mask = lambda *_: None
    try:
        yield
    finally:
        PreTrainedModel.warn_if_padding_and_no_attention_mask = warn
        logging.set_verbosity(level)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200]


def _last_line(error: BaseException) -> str:
    """The last line of an error's message: a validator of the library puts its own name before it."""
    return (str(error).strip().rpartition("\n")[2].strip() or type(error).__name__)[:200]


def sentences_of(error: BaseException) -> str:
    """An error's message on one line of at most 200 characters: whole sentences where its first one is no longer."""
    text = " ".join(str(error).split())
    end = text.rfind(". ", 0, 201)
    return text[: end + 1] if len(text) > 200 and end >= 0 else clip(text, 200)


def clip(value: object, most: int = 40) -> str:
    """The value as text of at most ``most`` characters."""
    return clipped(str(value), most)

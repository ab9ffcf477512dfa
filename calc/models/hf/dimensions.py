"""The dimensions of a config: its fields that are sizes, under the letters of ``hf_fields.toml`` or under their own names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from calc.dimensions import Dim, meaning_of
from calc.models.hf.feeds import fixed_frames
from calc.models.hf.layers import LayerPattern
from calc.models.hf.pairs import PairLists, share_of
from calc.models.hf.positions import learned_positions, rotary
from calc.models.hf.source import Source, configs_of_blocks, inner_configs, parts_of
from calc.models.hf.source import stored as stored_in
from calc.models.hf.table import FIELDS, is_size

# fp32 elements in 16 bytes: torch's grouped matmuls need rows that are multiples of 16 bytes.
_ROW = 4
_ROWS = "rows of the grouped matmul of the experts are multiples of 16 bytes, 4 elements of fp32"
_PAIRS = "rotary positions rotate pairs"
_GROUPS = "each key/value head serves an equal part of the heads"
HEADS = "each head takes an equal part of the width"


@dataclass(frozen=True, slots=True)
class ConfigLayout:
    """The fields of each dimension, and how the layers repeat (``None``: the depth is static).

    ``path`` is the name of the nested config with those fields; empty for the config itself. ``inner`` are the layouts of other nested
    configs by prefix, which their dimensions have before the letter (``vision_d``). ``pairs`` are lists that grow with the head width.
    """

    fields: Mapping[str, tuple[str, ...]]
    layers: LayerPattern | None
    path: str = ""
    inner: Mapping[str, ConfigLayout] = field(default_factory=dict)
    pairs: PairLists | None = None

    def changes(self, n: Any, prefix: str = "") -> dict[str, Any]:
        """{field: value} for sizes ``n``, including the lists with an entry per layer or per pair of rotary positions; fields of nested
        configs by dotted path."""
        values = {field: getattr(n, prefix + name) for name, fields in self.fields.items() if hasattr(n, prefix + name) for field in fields}
        if self.layers is not None and hasattr(n, prefix + "L"):
            values |= self.layers.stretched(getattr(n, prefix + "L"))
        values |= self.pairs.changes(n) if self.pairs is not None and not prefix else {}
        changed_fields = {f"{self.path}.{name}" if self.path else name: value for name, value in values.items()}
        for tower, layout in self.inner.items():
            changed_fields |= layout.changes(n, tower)
        return changed_fields


def home_of(config: Any, tokens: bool) -> str:
    """The name of the nested config whose sizes have plain letters, that of the part that reads the tokens; empty for ``config`` itself."""
    try:
        text = config.get_text_config() if tokens else config
    except ValueError:  # the library raises it if there are several
        return ""
    return next((name for name in inner_configs(config) if getattr(config, name) is text), "")


def towers_of(config: Any, home: str) -> dict[str, str]:
    """{prefix of the dimensions: name} of the other nested configs."""
    of_blocks = configs_of_blocks(config)
    return {name.removesuffix("_config") + "_": name for name in inner_configs(config) if name not in (home, *of_blocks)}


def dims_of_tower(source: Source, layout: ConfigLayout, config: Any, prefix: str) -> dict[str, Dim]:
    """The dimensions of a nested config, their names with ``prefix``."""
    dims, _ = dims_of(source, layout, config, {})
    name = prefix.removesuffix("_").replace("_", " ")

    def renamed(value: Any) -> Any:
        return re.sub(r"[A-Za-z_]\w*", lambda match: prefix + match[0], value) if isinstance(value, str) else value

    return {
        prefix + letter: replace(
            dim,
            default=renamed(dim.default),
            meaning=f"{meaning_of(letter, dim)} ({name})",
            multiple_of=renamed(dim.multiple_of),
            at_most=renamed(dim.at_most),
        )
        for letter, dim in dims.items()
    }


def layout_of(source: Source, config: Any) -> dict[str, tuple[str, ...]]:
    """The fields of each dimension, letters first."""
    given, stored = source.given(config), stored_in(config)
    field_names: dict[str, tuple[str, ...]] = {}
    for letter, names in FIELDS.dimensions.items():
        present = [n for n in names if n in given or (n in FIELDS.when_null and n in stored and stored[n] is None)]
        present += [n for n in given if "." in n and n.rpartition(".")[2] in names]
        present = present or [n for n in names if _follows(n, letter, field_names, source, config)]
        if present and (letter != "C" or learned_positions(config)):
            field_names[letter] = tuple(n for n in present if stored[n] == stored[present[0]])
    used = {field for fields in field_names.values() for field in fields} | {f for fields in FIELDS.dimensions.values() for f in fields}
    for name, value in given.items():
        own = name.replace("_config.", "_").replace(".", "_")
        if name not in used and value > 1 and own.isidentifier() and FIELDS.is_named_as_size(name):
            field_names[own] = (name,)
    if fixed_frames(config) and "max_source_positions" in given:
        field_names["max_source_positions"] = ("max_source_positions",)
    return field_names


def _follows(field: str, letter: str, field_names: Mapping[str, tuple[str, ...]], source: Source, config: Any) -> bool:
    """Whether the class fills in a field as usual: as many key heads as heads (g = h), or heads that share the width (k = d/h)."""
    stored = stored_in(config)
    value = {name: stored[fields[0]] for name, fields in field_names.items()}
    if field not in type(config).__dataclass_fields__ or not is_size(config.__dict__.get(field)) or "h" not in value:
        return False
    stated_value = config.__dict__[field]
    if letter == "g":
        return bool(stated_value == value["h"])
    return letter == "k" and stated_value * value["h"] == value.get("d") and _doubles(field, field_names["d"], source, config)


def _doubles(field: str, width: Sequence[str], source: Source, config: Any) -> bool:
    """Whether a field that the class fills in doubles with the model's width."""
    try:
        wider = source.config({name: 2 * config.__dict__[name] for name in width})
    except Exception:  # the class may raise any type: then it is unknown
        return False
    return bool(wider.__dict__.get(field) == 2 * config.__dict__[field])


def dims_of(source: Source, layout: ConfigLayout, config: Any, inputs: Mapping[str, Dim]) -> tuple[dict[str, Dim], tuple[str, ...]]:
    """The dimensions with their divisibility, and notes for the reader of the report."""
    stored = stored_in(config)
    value = {name: stored[fields[0]] for name, fields in layout.fields.items()}
    notes: list[str] = []
    made = dict(inputs)
    if "C" in value:
        made |= {name: replace(made[name], at_most="C") for name in ("T", "S") if name in made}
    made |= _attention(source, layout, config, value, notes)
    if "f" in value:
        made["f"] = Dim(value["f"] if value["f"] is not None else FIELDS.when_null[layout.fields["f"][0]])
    if "L" in value and layout.layers is not None:
        made["L"] = _depth(value["L"], layout.layers)
    elif "L" in value:
        notes.append("the depth is a number here, not a dimension: the layers of this config do not repeat")
    for letter in ("V", "C"):
        if letter in value:
            made[letter] = Dim(value[letter])
    made |= _experts(config, value)
    made |= {name: _of_own_name(name, value) for name in value if name not in FIELDS.dimensions}
    if "E" in made:
        made = _with_aligned_rows(made, value)
    made |= _in_proportion(source, layout, value, made)
    if any(part.__dict__.get("pad_token_id") is not None for part in parts_of(config)):
        notes.append("pad_token_id is 0 here, so that it is a token of any vocabulary size; no size or count depends on which token it is")
    return made, tuple(notes)


def _depth(layers: int, pattern: LayerPattern) -> Dim:
    """The depth as a number of whole patterns of layers, and of layers outside of any."""
    if pattern.period == 1 and not pattern.irregular:
        return Dim(layers)
    because = f"layers repeat in patterns of {pattern.period}" if pattern.period > 1 else ""
    return Dim(layers, multiple_of=pattern.period, plus=pattern.irregular, because=because)


def _of_own_name(name: str, value: Mapping[str, Any]) -> Dim:
    """The dimension of a field that has no letter."""
    part, size = _part_of(name, value), value[name]
    because = _PAIRS if part == 2 else ""
    return Dim("d" if size == value.get("d") else size, name.replace("_", " "), multiple_of=part, because=because)


def _attention(source: Source, layout: ConfigLayout, config: Any, value: Mapping[str, Any], notes: list[str]) -> dict[str, Dim]:
    made: dict[str, Dim] = {}
    even, why = _rotary_divisor(config) if rotary(config) else (None, "")
    if "d" in value:
        split = "h" in value and _heads_divide_width(source, layout, config, value)
        made["d"] = Dim(value["d"], multiple_of="h", because=HEADS) if split else Dim(value["d"])
    if "h" in value:
        grouped = "g" in value and value["g"] != value["h"]
        made["h"] = Dim(value["h"], multiple_of="g", because=_GROUPS) if grouped else Dim(value["h"])
    if "g" in value and "h" in value and value["g"] == value["h"]:
        made["g"] = Dim("h", tied=True)
        notes.append(
            "g = h in this config and cannot be set separately: the library's code takes another branch when they differ;"
            f" to vary them, give {layout.fields['g'][0]} a smaller number in the config"
        )
    elif "g" in value:
        made["g"] = Dim(value["g"])
    if "k" in value:
        free = "d" in value and "h" in value and value["k"] * value["h"] == value["d"]
        made["k"] = Dim("d/h" if free else value["k"], multiple_of=even, because=why)
    elif made.get("d") is not None and made["d"].multiple_of == "h" and not _parts_of_heads(config, value):
        made["k"] = Dim("d/h", tied=True, multiple_of=even, because=why)
    return made


def _rotary_divisor(config: Any) -> tuple[int, str]:
    """(the divisor of the head width, why): rotary positions rotate pairs, of the whole width or of a share of it."""
    share = share_of(config)
    return 2 * share.denominator, _PAIRS if share == 1 else f"{_PAIRS} of {share} of a head's width"


def _experts(config: Any, value: Mapping[str, Any]) -> dict[str, Dim]:
    if "E" not in value:
        return {}
    groups = next((config.__dict__[n] for n in FIELDS.groups_of_experts if is_size(config.__dict__.get(n))), 1)
    in_groups = groups > 1 and value["E"] % groups == 0
    made = {"E": Dim(value["E"], multiple_of=groups, because=f"experts are in {groups} equal groups") if in_groups else Dim(value["E"])}
    if "e" in value:
        made["e"] = Dim(value["e"], at_most="E")
    return made


def _part_of(name: str, value: Mapping[str, Any]) -> str | int | None:
    for part, whole in FIELDS.pairs:
        divisor = name.replace(whole, part)
        if whole in name and divisor in value and divisor != name and value[name] % value[divisor] == 0:
            return divisor
    return 2 if any(word in name for word in FIELDS.in_pairs) and value[name] % 2 == 0 else None


def _with_aligned_rows(made: Mapping[str, Dim], value: Mapping[str, Any]) -> dict[str, Dim]:
    """The dimensions with widths divisible by ``_ROW``, as the grouped matmul of the experts needs rows of 16 bytes."""
    aligned = dict(made)
    for name, dim in made.items():
        if _may_be_a_row(name, made):
            size = value.get(name)
            divisible = dim.tied or isinstance(dim.default, str) or (isinstance(size, int) and size % _ROW == 0)
            if divisible and not isinstance(dim.multiple_of, str):
                now = dim.multiple_of or 1
                aligned[name] = _with_aligned_row(dim, now)
    if "k" not in made and "d" in made and made["d"].multiple_of == "h" and value["h"] % _ROW == 0 and made["h"].multiple_of is None:
        # The width is a multiple of the heads, and so of a row.
        aligned["h"] = replace(made["h"], multiple_of=_ROW, because=_ROWS)
    return aligned


def _may_be_a_row(name: str, made: Mapping[str, Dim]) -> bool:
    """Whether an expert may read or write vectors of that width. Heads and their ranks are the attention's; a head's width shares the
    model's only where that is split among the heads."""
    if name == "k":
        return made["k"].tied or made["d"].multiple_of == "h"
    return name in ("d", "f") or (name.endswith(("intermediate_size", "_dim", "hidden_size")) and "head" not in name)


def _with_aligned_row(dim: Dim, now: int) -> Dim:
    """A dimension that is a multiple of ``now``, as one that is a multiple of ``_ROW`` too."""
    if now % _ROW == 0:
        return dim
    both = " and ".join(reason for reason in (dim.because, _ROWS) if reason)
    return replace(dim, multiple_of=now * (_ROW // 2 if now % 2 == 0 else _ROW), because=both)


def _heads_divide_width(source: Source, layout: ConfigLayout, config: Any, value: Mapping[str, Any]) -> bool:
    """Whether ``d`` must be a multiple of ``h``: always without a head width of its own, where the width is split among the heads."""
    if "k" not in value and not _parts_of_heads(config, value):
        return True
    return value["h"] == 1 or (value["d"] % value["h"] == 0 and _refuses(source, layout, value))


def _in_proportion(source: Source, layout: ConfigLayout, value: Mapping[str, Any], made: Mapping[str, Dim]) -> dict[str, Dim]:
    """Sizes tied to the width, where the class refuses another width without them: it compares products of them with it."""
    if "d" not in made or _taken(source, layout, value, ["d"]):
        return {}
    partners = [name for name in value if name in made and name not in ("d", "L", "V", "C") and _taken(source, layout, value, ["d", name])]
    match partners:
        case [name] if name not in ("h", "g"):
            return _follows_width(made, name, Fraction(value[name], value["d"]))
        case ["h", "k"] if made["d"].multiple_of == "h" and value["k"] * value["h"] % value["d"] == 0:
            times = value["k"] * value["h"] // value["d"]
            return {"k": replace(made["k"], default=f"{times}*d/h" if times > 1 else "d/h", tied=True)}
    return {}


def _taken(source: Source, layout: ConfigLayout, value: Mapping[str, Any], doubled: Sequence[str]) -> bool:
    """Whether the config class accepts these sizes doubled."""
    try:
        source.config({field: 2 * value[name] for name in doubled for field in layout.fields[name]})
    except Exception:  # the class may raise any type, which is the answer
        return False
    return True


def _follows_width(made: Mapping[str, Dim], name: str, share: Fraction) -> dict[str, Dim]:
    """``name`` tied to ``share`` of the width, and the width as a multiple of the share's denominator."""
    over, under = share.numerator, share.denominator
    part = "k" if made["d"].multiple_of == "h" and "k" in made and made["k"].tied else "d"
    width = "h*k" if part == "k" else "d"
    text = f"{over}*{width}" if over > 1 else width
    changed = {name: replace(made[name], default=f"{text}/{under}" if under > 1 else text, tied=True, multiple_of=None, because="")}
    now = made[part].multiple_of or 1
    if under > 1 and isinstance(now, int):
        because = " and ".join(reason for reason in (made[part].because, f"{name} is {text}/{under}") if reason)
        changed[part] = replace(made[part], multiple_of=math.lcm(now, under), because=because)
    return changed


def _parts_of_heads(config: Any, value: Mapping[str, Any]) -> bool:
    """Whether several fields make up a head's width: a rotary part and one without positions, or one for values. A head width that the
    class itself computes from the width and the heads is no part."""
    sizes = {name: size for name, size in config.__dict__.items() if name.endswith("head_dim") and is_size(size)}
    return any(name not in FIELDS.dimensions["k"] or size * value.get("h", 0) != value.get("d") for name, size in sizes.items())


def _refuses(source: Source, layout: ConfigLayout, value: Mapping[str, Any]) -> bool:
    """Whether the config class objects to a width that the heads do not divide."""
    try:
        own = dict.fromkeys(layout.fields["k"], value["k"]) if "k" in value else {}
        source.config({**dict.fromkeys(layout.fields["d"], value["d"] + 1), **own})
    except Exception:  # the class may raise any type, which is the answer
        return True
    return False


def is_depth(name: str) -> bool:
    """Whether a dimension is a number of layers, of the model or of a nested config."""
    return name == "L" or name.endswith("_L")


def may_specialize(dims: Mapping[str, Dim]) -> tuple[tuple[str, ...], ...]:
    """Sets of dimensions to specialize, in order, if the step cannot be traced with all symbolic: own names first, sequence last."""
    lengths = tuple(name for name in dims if name in ("T", "S", "N") or name.endswith("_positions"))
    own = tuple(name for name in dims if name not in FIELDS.dimensions and name not in ("B", *lengths) and not is_depth(name))
    widths = tuple(name for name in ("d", "h", "g", "k", "f", "E", "e") if name in dims and not dims[name].tied)
    sets: Sequence[tuple[str, ...]] = [
        own,
        widths,
        tuple(filter(is_depth, dims)),
        tuple(n for n in ("V", "C") if n in dims),
        lengths,
    ]
    return tuple(s for s in sets if s)

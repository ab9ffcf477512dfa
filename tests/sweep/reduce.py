"""A small relative of a library's default configuration, by one rule: every size is cut down by what it is, never by whose it is."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from calc.models.hf.dimensions import layout_of
from calc.models.hf.layers import LayerPattern, pattern_of, without_memory
from calc.models.hf.source import Source, inner_configs, quiet
from calc.models.hf.table import FIELDS
from calc.models.hf.tasks import task_of
from calc.models.hf.trials import vocabulary_of
from calc.spec import Sizes

_HEADS, _HEAD_WIDTH, _EXPERTS, _CHOSEN, _VOCABULARY = 4, 16, 4, 2, 200
_LONGEST = 40  # layers
_MOST_PARAMETERS = 400_000_000
_TRIED_AT = {"B": 2, "T": 7, "S": 5}


@dataclass(frozen=True, slots=True)
class Part:
    """A config with its dimensions and the pattern of its layers: the whole one, or one inside it, at ``path``."""

    path: str
    source: Source
    config: Any
    fields: Mapping[str, tuple[str, ...]]
    layers: LayerPattern | None

    def changes(self, random_: random.Random) -> list[dict[str, Any]]:
        """Fields to set for each relative, under their paths."""
        relatives = _relatives(self.source, self.config, self.fields, self.layers, random_)
        return [{self.path + name: value for name, value in changes.items()} for changes in relatives]


def reduced(source: Source, seed: int) -> dict[str, Any]:
    """Fields to set, beside the defaults: the smallest of a few relatives that the library builds and runs."""
    config = source.config({})
    module = without_memory(source, config)
    random_ = random.Random(f"{seed} {source.architecture}")
    parts = [_part(source, config, "", module), *(_part(source, config, name, module) for name in inner_configs(config))]
    last = "no relative was tried"
    for together in zip(*(part.changes(random_) for part in parts), strict=True):
        changes = _nothing_by_chance(config) | {name: value for some in together for name, value in some.items()}
        try:
            _run(source, changes)
        except Exception as error:  # the class's own demands on its sizes: the next relative has fewer changes
            last = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:160]}"
        else:
            return changes
    raise RuntimeError(last)


def _part(source: Source, config: Any, name: str, module: Any) -> Part:
    part, known = (source.part(name), getattr(config, name)) if name else (source, config)
    fields = layout_of(part, known)
    depth = known.__dict__[fields["L"][0]] if "L" in fields else 1
    layers = pattern_of(part, known, depth, module) if "L" in fields else None
    return Part(f"{name}." if name else "", part, known, fields, layers and _thinned(source, name, fields["L"], layers))


def _thinned(source: Source, name: str, depth_fields: Sequence[str], layers: LayerPattern) -> LayerPattern:
    """The pattern with no more than one layer of a kind in a row, or else two, if the library's layers repeat such a one: five
    sliding layers and a full one are told from one and one by nothing but the time they take, and models whose layers are all of
    a kind show what two in a row do."""
    each = (_with_at_most(most, source, name, depth_fields, layers) for most in (1, 2))
    return next((thin for thin in each if thin is not layers), layers)


def _with_at_most(most: int, source: Source, name: str, depth_fields: Sequence[str], layers: LayerPattern) -> LayerPattern:
    """The pattern with no more than ``most`` layers of a kind in a row; as it is where the library's layers repeat no such one."""
    kinds = [*zip(*(map(str, entries) for field, entries in layers.lists.items() if field not in layers.numbered), strict=True)]
    if not kinds:
        return layers
    repeated = layers.before + layers.period
    ranges = range(layers.before), range(layers.before, repeated), range(len(kinds) - layers.after, len(kinds))
    before, period, after = (_few_in_a_row(most, positions, kinds) for positions in ranges)
    while len(period) > most and _most_in_a_row([kinds[i] for i in period * 2]) > most:
        period.pop()  # the next turn begins with those
    kept = [*before, *period, *after]
    if len(kept) == layers.irregular + layers.period:
        return layers
    lists = {field: tuple(entries[i] for i in kept) for field, entries in layers.lists.items()}
    thin = replace(layers, before=len(before), period=len(period), after=len(after), lists=lists)
    changes = _depth({"L": tuple(depth_fields)}, thin)
    try:
        config = source.config({f"{name}.{field}" if name else field: value for field, value in changes.items()})
        part, own = (source.part(name), getattr(config, name)) if name else (source, config)
        actual = pattern_of(part, own, thin.irregular + 3 * thin.period, without_memory(source, config))
    except Exception:  # the class's own demands on its layers
        return layers
    return actual if actual is not None and actual.period + actual.irregular <= thin.period + thin.irregular else layers


def _most_in_a_row(kinds: Sequence[tuple[str, ...]]) -> int:
    return max(len([*run]) for _, run in itertools.groupby(kinds))


def _few_in_a_row(most: int, positions: Sequence[int], kinds: Sequence[tuple[str, ...]]) -> list[int]:
    """``positions`` without those of which as many as ``most`` before are of the same kind."""
    return [i for i in positions if i - most not in positions or len({*kinds[i - most : i + 1]}) > 1]


def _nothing_by_chance(config: Any) -> dict[str, Any]:
    """Layers left out and inputs hidden at random are off: which operators run would depend on the draw."""
    off: dict[str, Any] = {name: 0.0 for name in config.__dict__ if name.endswith("layerdrop")}
    return off | {name: False for name in config.__dict__ if name == "apply_spec_augment"}


def _relatives(
    source: Source, config: Any, fields: Mapping[str, tuple[str, ...]], layers: LayerPattern | None, random_: random.Random
) -> Iterator[dict[str, Any]]:
    """All sizes small; then without those that go by their own names; then depth and vocabulary alone; then all but the depth."""
    depth = _depth(fields, layers)
    letters = {**_letters(source, config, fields, random_), **depth}
    sizes = {field: value for field, value in source.given(config).items() if _reducible(field, fields)}
    most_heads = max((value for field, value in sizes.items() if field.endswith("_heads")), default=0)
    own = {field: _own(field, value, most_heads, random_) for field, value in sizes.items()}
    yield {**own, **letters}
    yield letters
    yield {**own, **letters, **_in_proportion(config, fields, letters)}
    yield {
        **own,
        **{name: value for name, value in letters.items() if name not in {f for x in ("d", "h", "g", "k") for f in fields.get(x, ())}},
    }
    yield {**depth, **{field: letters[field] for field in fields.get("V", ())}}
    yield depth
    yield {name: value for name, value in {**own, **letters}.items() if name not in depth}


def _depth(fields: Mapping[str, tuple[str, ...]], layers: LayerPattern | None) -> dict[str, Any]:
    if layers is None:
        return {}
    depth = layers.irregular + 3 * layers.period
    if depth > _LONGEST:
        return {}
    return {**dict.fromkeys(fields["L"], depth), **layers.stretched(depth)}


def _letters(source: Source, config: Any, fields: Mapping[str, tuple[str, ...]], random_: random.Random) -> dict[str, Any]:
    value = {letter: config.__dict__[names[0]] for letter, names in fields.items()}
    h, g = value.get("h", _HEADS), value.get("g", value.get("h", _HEADS))
    heads = min(h, _HEADS)
    groups = heads if g == h else max(1, min(g, heads // 2))
    own_width = "k" in value and value.get("d") != value.get("k", 0) * h
    small = {
        "d": heads * _HEAD_WIDTH if not own_width else 4 * random_.choice([11, 13, 17]),
        "h": heads,
        "g": groups,
        "k": _HEAD_WIDTH,
        "f": 4 * random_.choice([19, 23, 29]),
        "V": random_.choice([193, 197, 199]),
        "E": _EXPERTS,
        "e": _CHOSEN,
    }
    actual = {
        field: min(size, value[letter]) for letter, size in small.items() for field in fields.get(letter, ()) if value[letter] is not None
    }
    groups_of_experts = [name for name in FIELDS.groups_of_experts if name in source.given(config)]
    return {**actual, **dict.fromkeys([*groups_of_experts, *(n for n in source.given(config) if n == "topk_group")], 1)}


def _in_proportion(config: Any, fields: Mapping[str, tuple[str, ...]], letters: Mapping[str, Any]) -> dict[str, Any]:
    """More heads, and the width in the default's proportion to the width of them all, where a class demands one."""
    if not {"d", "h", "k"} <= fields.keys():
        return {}
    d, h, k = (fields[letter] for letter in "dhk")
    heads = 2 * letters[h[0]]
    width = Fraction(config.__dict__[d[0]] * heads * letters[k[0]], config.__dict__[h[0]] * config.__dict__[k[0]])
    return {**dict.fromkeys(h, heads), **dict.fromkeys(d, int(width))} if width.denominator == 1 else {}


def _reducible(field: str, fields: Mapping[str, tuple[str, ...]]) -> bool:
    """Sizes of no dimension: by their names sizes, or words of a vocabulary, or layers of another stack."""
    if any(field in fields.get(letter, ()) for letter in FIELDS.dimensions):
        return False
    return FIELDS.is_named_as_size(field) or "vocab" in field or field.endswith(("_layers", "_ffn_dim", "_source_positions"))


def _own(field: str, value: int, most_heads: int, random_: random.Random) -> int:
    """A size that goes by its own name. Heads of which there are fewer than of others stay fewer: equal ones may run other operators."""
    if "vocab" in field:
        return min(value, random_.choice([211, 223]))  # no smaller than the words that are fed
    if field.endswith("_source_positions"):
        return min(value, 24)
    if field.endswith("_layers"):
        return min(value, 2)
    if field.endswith("_heads"):
        return min(value, _HEADS if value == most_heads else _HEADS // 2)
    if field.endswith("_rank"):
        return min(value, 4 * random_.choice([3, 5]))
    if any(word in field for word in FIELDS.in_pairs):
        return min(value, _HEAD_WIDTH // 2)
    if field.endswith(("_dim", "_state")):
        return min(value, _HEAD_WIDTH)
    return min(value, 4 * random_.choice([11, 13]))


def _run(source: Source, changes: Mapping[str, Any]) -> None:
    import torch

    from calc.models.hf.source import module_class

    config = source.config(changes)
    task = task_of(source)
    parameters = sum(p.numel() for p in without_memory(source, config).parameters())
    if parameters > _MOST_PARAMETERS:
        raise MemoryError(f"{parameters:,} parameters are too many to run here")
    with quiet():
        module = module_class(source)(config).train()
    vocabulary = config.__dict__.get("vocab_size") or vocabulary_of(module, config)
    with torch.no_grad():
        task.step(module, *task.inputs(Sizes(**_TRIED_AT | task.small(config)), vocabulary, config))

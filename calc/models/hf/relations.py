"""Relations between sizes that a class needs and no config states, by trial runs: a width that is shared, heads in equal groups."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from calc.dimensions import Dim
from calc.models.hf.dimensions import HEADS
from calc.models.hf.positions import own_padding, padded_tables
from calc.models.hf.reduced import narrow, settable, shallow, smaller
from calc.models.hf.table import FIELDS
from calc.models.hf.trials import Trials

# Most tokens of a trial run of which one is enough.
_SHORT = 16
_EQUAL = "the class multiplies the vectors of both towers"
_OF_WIDTH = "the class needs it to be the width of the model"
_OF_TOWER = "it is the width of what that part returns"


def related(trials: Trials) -> Trials:
    """``trials`` at sizes between which the class's relations hold."""
    for relation in (_shared_width, _rotated_width, _equal_sizes, _equal_towers, _grouped_heads, _even_heads):
        trials = trials.related(relation(trials))
    return trials


def after_padding(trials: Trials, module: Any) -> dict[str, Dim]:
    """The lengths that a table of positions bounds, where its first rows, up to that for padding, are for no position."""
    dims, sizes = trials.dims, trials.own_sizes
    bounded = [name for name in ("T", "S") if name in dims and dims[name].at_most == "C"]
    if not bounded or not sizes or not padded_tables(module, sizes["C"]):
        return {}
    before = own_padding(trials.source, sizes["C"]) + 1
    short = {"B": 1, **settable(narrow(trials), dims), **dict.fromkeys(bounded, min(_SHORT, sizes["C"] // 2))}
    if before >= sizes["C"] or not trials.begins_after_padding(short):
        return {}
    return {name: replace(dims[name], default=min(sizes[name], sizes["C"] - before), at_most=f"C - {before}") for name in bounded}


def least_batch(trials: Trials, module: Any, check_at: Mapping[str, int]) -> dict[str, Dim]:
    """{"B": 2 by default} where the class runs with no batch of one: each channel of a batch norm needs more than one value."""
    import torch

    norms = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)
    if "B" not in check_at or not any(isinstance(part, norms) for part in module.modules()):
        return {}
    return {} if trials.runs({**check_at, "B": 1}) or not trials.runs(check_at) else {"B": Dim(check_at["B"])}


def _even_heads(trials: Trials) -> dict[str, Dim]:
    """{"k": the head width as a multiple of 2} if the class runs with no other: half of the width are sines, half cosines. Else empty."""
    k, h, d = (trials.dims.get(name) for name in "khd")
    if d is None or k is None or h is None or k.multiple_of or not k.tied or h.multiple_of or d.multiple_of != "h":
        return {}
    small = trials.small | shallow(trials)
    odd, even = ({**small, "h": 3, "d": 3 * width} for width in (17, 18))
    if trials.runs(smaller(trials, odd)):  # a tower of images at full width takes seconds
        return {}
    needs = not trials.runs(odd) and trials.runs(even)
    return {"k": replace(k, multiple_of=2, because="half of a head's width are sines, half cosines")} if needs else {}


def _shared_width(trials: Trials) -> dict[str, Dim]:
    """{"d": a multiple of h, "k": tied to d/h} if the class runs with no other head width, though its config takes one. Else empty."""
    dims = trials.dims
    k = dims.get("k")
    if k is None or k.tied or k.default != "d/h" or "d" not in dims or not trials.own_sizes:
        return {}
    small = trials.small | settable(narrow(trials), dims)
    needs = not trials.runs(small | {"d": 2 * small["d"]}) and trials.runs(small)
    return {"d": replace(dims["d"], multiple_of="h", because=HEADS), "k": replace(k, tied=True)} if needs else {}


def _rotated_width(trials: Trials) -> dict[str, Dim]:
    """{"k": tied to the share of it that is rotated} if the config has both and the class runs with no other ratio. Else empty."""
    dims, sizes = trials.dims, trials.own_sizes
    shares = [name for name in dims if any(word in name for word in FIELDS.in_pairs) and not dims[name].tied]
    if "k" not in sizes or dims["k"].tied or len(shares) != 1 or sizes["k"] % sizes[shares[0]]:
        return {}
    (share,), few = shares, settable(narrow(trials), dims)
    times = sizes["k"] // sizes[share]

    def runs(width: int) -> bool:
        return trials.runs({**trials.small, **few, share: width, "k": times * _SHORT})

    text = f"{times}*{share}" if times > 1 else share
    tied = replace(dims["k"], default=text, tied=True, multiple_of=None, because="the class rotates this share of it")
    return {"k": tied} if not runs(2 * _SHORT) and runs(_SHORT) else {}


def _equal_sizes(trials: Trials) -> dict[str, Dim]:
    """Sizes that have no letter and equal the width in the config, where the class runs with no others."""
    if "d" not in trials.own_sizes:
        return {}
    few = {name: size for name, size in narrow(trials).items() if name != "f"}  # groups of channels may divide it
    small = trials.small | settable(few, trials.dims)
    return _of_width(trials, small, "", small["d"], _OF_WIDTH)


def _equal_towers(trials: Trials) -> dict[str, Dim]:
    """Dimensions that equal the width of a tower, or the tower's that equal those of the text, where the class runs with no others."""
    dims, few = trials.dims, narrow(trials)
    made: dict[str, Dim] = {}
    for tower in _towers(dims) if trials.own_sizes else ():
        small = {**trials.small, **settable(few | {tower + n: few[n] for n in ("d", "h")}, dims)}
        if not all(n in dims and dims[tower + n].default == dims[n].default for n in ("d", "h")):
            made |= _of_width(trials, small, tower, few["d"], _OF_TOWER)
        elif not trials.runs({**small, f"{tower}d": 2 * few["d"]}) and trials.runs(small):
            shared = [n for n in ("d", "h", "k") if n in dims and tower + n in dims]
            made |= {tower + n: replace(dims[tower + n], default=n, tied=True, multiple_of=None, because=_EQUAL) for n in shared}
    return made


def _of_width(trials: Trials, small: Mapping[str, int], tower: str, width: int, because: str) -> dict[str, Dim]:
    """The sizes that another part reads and the class runs only at the ``width`` of a tower, tied to it."""

    def runs(name: str, size: int) -> bool:
        return trials.runs({**small, name: size})

    needed = (name for name in _read_elsewhere(trials.dims, trials.own_sizes, tower) if not runs(name, 2 * width) and runs(name, width))
    return {name: replace(trials.dims[name], default=f"{tower}d", tied=True, because=because) for name in needed}


def _towers(dims: Mapping[str, Dim]) -> Sequence[str]:
    """Prefixes of the dimensions of towers with a width and heads."""
    return [name[:-1] for name in dims if name.endswith("_d") and f"{name[:-1]}h" in dims]


def _read_elsewhere(dims: Mapping[str, Dim], sizes: Mapping[str, int], tower: str) -> list[str]:
    """Sizes that have no letter and may be the width of a tower, which another part reads; of the text, those outside of towers."""
    parts = (tower,) if tower else tuple(_towers(dims))
    own = (name for name in dims if name not in (*FIELDS.dimensions, "B", "T", "S", "N") and not name.startswith(parts))
    return [name for name in own if not dims[name].tied and sizes[name] == sizes[f"{tower}d"]]


def _grouped_heads(trials: Trials) -> dict[str, Dim]:
    """Numbers of heads as multiples of a number of groups in the config, where the class runs with no others."""
    dims, sizes = trials.dims, trials.own_sizes
    groups, heads = _groups(trials), [name for name in dims if _is_ungrouped(name, dims[name])]
    if not groups or not heads or not sizes:
        return {}
    few = settable(narrow(trials), dims)

    def runs(name: str, count: int) -> bool:
        width = {"d": sizes["d"] // sizes["h"] * count} if "d" in dims and name == dims["d"].multiple_of else {}
        return trials.runs({**trials.small, **few, **width, name: count})

    grouped: dict[str, Dim] = {}
    for name, group in itertools.product(heads, groups):
        if sizes[name] % group == 0 and not runs(name, group + 1) and runs(name, 2 * group) and runs(name, 3 * group):
            grouped[name] = replace(dims[name], multiple_of=group, because=f"heads are in {group} equal groups")
    return grouped


def _is_ungrouped(name: str, dim: Dim) -> bool:
    return (name == "h" or name.endswith("_heads")) and not dim.tied and dim.multiple_of is None


def _groups(trials: Trials) -> set[int]:
    """Numbers of groups in the config, those of experts apart."""
    source, path = trials.source, trials.layout.path
    given = source.part(path).given(getattr(trials.config, path)) if path else source.given(trials.config)
    return {v for name, v in given.items() if "group" in name and name not in FIELDS.groups_of_experts and v > 1}

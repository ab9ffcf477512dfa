"""Sizes of reduced models of the same shape, for the real checks and for trial runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from calc.dimensions import Dim, resolve
from calc.errors import ConfigError, DimensionError
from calc.models.hf.dimensions import is_depth
from calc.models.hf.table import FIELDS
from calc.models.hf.trials import Trials

# Above this, a check at full width would not fit an ordinary machine (AdamW in fp32 takes 16 bytes per parameter).
_CHECKED_AT_FULL_WIDTH = 200_000_000
# Above this product of parameters and elements of the inputs, two steps of a model of pictures or films take minutes on a few cores.
_RUN_AT_FULL_WIDTH = 10**14
# Most parameters of a reduced model, so that its run takes seconds.
_CHECKED_NARROW = 5_000_000
_HEAD_WIDTH = 16
_FEW_HEADS = 4
# Sizes whose names end so are proportional to the number of heads.
_SHARED_BY_HEADS = ("_heads", "_size", "_width")


def check_sizes(trials: Trials, parameters: int) -> tuple[dict[str, int], str]:
    """(sizes of the real checks, why they are small): a short batch at full width, or the narrowest reduced model that runs if a step at
    full width would not fit or take minutes.

    Raises ConfigError if the config's own numbers do not divide.
    """
    try:
        sizes = resolve(trials.dims, {})
        small = short = _short(trials, sizes)
        reduced = _why_reduced(trials, parameters, short)
        if reduced:
            fit = (relative for relative in _candidates(trials, short) if trials.runs(relative))
            small = next(fit, {}) or (smaller(trials, short | shallow(trials)) if parameters > _CHECKED_AT_FULL_WIDTH else short)
        resolve(trials.dims, small)
    except DimensionError as error:
        names = ", ".join(f"{letter} is {fields[0]}" for letter, fields in trials.layout.fields.items())
        raise ConfigError(f"{trials.source.where}: {error} ({names})") from None
    return small, reduced if small != short else "so that a run takes seconds"


def _short(trials: Trials, sizes: Mapping[str, int]) -> dict[str, int]:
    """A short batch, no longer than at ``sizes``."""
    return {name: min(value, sizes[name]) if name != "B" else value for name, value in trials.small.items()}


def _candidates(trials: Trials, small: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Sizes of reduced models, the smallest first; the last are for a class that runs at one depth only."""
    relatives = list(_relatives(trials))
    deep = [{name: value for name, value in relative.items() if not is_depth(name)} for relative in relatives[:1]]
    for relative in (*relatives, *deep):
        sizes = {**small, **relative}
        fewer = smaller(trials, sizes)
        yield fewer
        if fewer != sizes:
            yield sizes


def _why_reduced(trials: Trials, parameters: int, short: Mapping[str, int]) -> str:
    """Why a small model is checked in place of one of full width with a ``short`` batch; empty if it need not be."""
    if parameters > _CHECKED_AT_FULL_WIDTH:
        above = f"above {_CHECKED_AT_FULL_WIDTH:,}, a small model of the same kind is checked"
        return f"since this model has {parameters:,} parameters: {above}"
    elements = trials.elements_fed(short)
    if parameters * elements > _RUN_AT_FULL_WIDTH:
        large = f"{parameters:,} parameters and inputs of {elements:,} elements"
        return f"since a step with {large} would take minutes: a small model of the same kind is checked"
    return ""


def settable(sizes: Mapping[str, int], dims: Mapping[str, Dim]) -> dict[str, int]:
    """Those of ``sizes`` that can be set."""
    return {name: size for name, size in sizes.items() if name in dims and not dims[name].tied}


def _relatives(trials: Trials) -> Iterator[dict[str, int]]:
    """Sizes of reduced models of the same shape, the smallest first: a few narrow heads, or a few heads of full width."""
    sizes, few = trials.own_sizes, narrow(trials)
    yield settable(few, trials.dims)
    for heads in (4, 8, 16, 32):
        over, rest = divmod(sizes.get("h", 1), heads)
        d = sizes.get("d", 0)  # absent where the part that reads the tokens calls its width otherwise
        if not rest and over > 1 and d % over == 0:
            fewer = {n: v // over for n, v in sizes.items() if n.endswith(_SHARED_BY_HEADS) and v % over == 0}
            shape = {**few, **fewer, "k": sizes.get("k", 1), "h": heads, "d": d // over, "g": max(1, sizes.get("g", 1) // over)}
            yield settable(shape, trials.dims)


def narrow(trials: Trials) -> dict[str, int]:
    """Sizes of a model of the same shape with a few narrow heads: grouped heads stay grouped, the layers keep their pattern."""
    sizes, layout, dims = trials.own_sizes, trials.layout, trials.dims
    h, g = sizes.get("h", 1), sizes.get("g", sizes.get("h", 1))
    narrow_g = min(g, 2)
    narrow_h = 4 if g == h else narrow_g * min(h // g, 4)
    patterns = {"L": layout.layers, **{f"{prefix}L": tower.layers for prefix, tower in layout.inner.items()}}
    depth = {name: p.irregular + p.period * (2 if p.period < 4 else 1) for name, p in patterns.items() if p is not None}
    width = {"f": 212 if isinstance(dims["f"].multiple_of, int) else 211} if "f" in dims else {}
    unit = dims["k"].multiple_of if "k" in dims else None
    k = -(-_HEAD_WIDTH // unit) * unit if isinstance(unit, int) else _HEAD_WIDTH
    return {"h": narrow_h, "g": narrow_g, "k": k, "d": k * narrow_h, "V": min(503, sizes.get("V", 503)), **width, **depth}


def shallow(trials: Trials) -> dict[str, int]:
    """The depths and the vocabulary of ``narrow``."""
    return {name: size for name, size in narrow(trials).items() if (is_depth(name) or name == "V") and name in trials.dims}


def smaller(trials: Trials, small: Mapping[str, int]) -> dict[str, int]:
    """``small`` with fewer experts and smaller sizes of the config's own, reduced one by one where the class builds with them, until at
    most ``_CHECKED_NARROW`` parameters remain; with few heads of any kind."""
    dims, reduced = trials.dims, dict(small)
    try:
        sizes = resolve(dims, small)
        parameters = trials.parameters(sizes)
    except Exception:  # the class may raise anything at sizes that it does not support
        return reduced
    own = [name for name in dims if not (name in FIELDS.dimensions or name in ("B", "T", "S") or is_depth(name) or name in small)]
    for name in (*(["E"] if "E" in dims else []), *sorted(own, key=lambda name: -sizes[name])):
        if dims[name].tied or (parameters <= _CHECKED_NARROW and not name.endswith("_heads")):
            continue
        with contextlib.suppress(Exception):  # the class may raise anything at sizes that it does not support
            fewer = reduced | _reduced(name, dims[name], sizes, reduced)
            parameters, reduced = trials.parameters(resolve(dims, fewer)), fewer
    return reduced


def _reduced(name: str, dim: Dim, sizes: Mapping[str, int], reduced: Mapping[str, int]) -> dict[str, int]:
    """A small value of the size ``name``, whose own value ``sizes`` has, and of what it is a multiple of; empty for what is no multiple of
    heads of its own."""
    unit = dim.multiple_of or 1
    if isinstance(unit, str):
        if unit != f"{name[:-1]}h":  # else it is the width of another part of the model, split among its heads
            return {}
        heads = min(sizes[unit], 4)
        return {unit: heads, name: _HEAD_WIDTH * heads}
    vocabulary = sizes.get("V", 0) if name.endswith("_V") else 0  # a tower may read the same tokens
    few_heads = name.endswith("_heads")  # few parameters, but each head may have a state, or scores of all positions
    least = 2 * sizes.get("e", 1) if name == "E" else _FEW_HEADS if few_heads else max(2 * _HEAD_WIDTH, vocabulary)
    return {name: min(sizes[name], reduced.get(name, sizes[name]), -(-least // unit) * unit)}

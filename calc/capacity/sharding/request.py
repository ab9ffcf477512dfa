"""Reads a sharding request of ``key=value`` pairs: model, layout, machine. A named model is derived, which needs torch.

Keys that belong to no layout, machine or recipe are sizes of the model, by variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from calc.capacity.questions.given import nearest, require_unit
from calc.capacity.questions.values import read
from calc.capacity.sharding.account import Account, account
from calc.capacity.sharding.layout import (
    CHECKPOINTING,
    EXCHANGE,
    SEQUENCE,
    STAGES,
    SYMBOLS,
    UNITS,
    layout_of,
    require_devices,
    require_devices_at_most,
)
from calc.capacity.sharding.model import FIRST, ShardedModel, ShardedTensor, decoder, missing_sizes
from calc.capacity.sharding.search import Ranking, search
from calc.capacity.sharding.state import State, state_of
from calc.capacity.sharding.table import Limits, SearchProblem
from calc.capacity.sharding.timing import GivenRates, Machine, machine_of
from calc.errors import BadInputError, needs
from calc.platform.progress import Progress

Words = Mapping[str, str]

_COUNTS = ("data", "tensor", "pipeline", "context", "expert", "interleave", "micro", "batch", "zero", "rank")
_KINDS = {"sequence": tuple(SEQUENCE), "checkpointing": CHECKPOINTING, "exchange": EXCHANGE}
_MACHINE = ("gpu", "hardware", "dtype", "efficiency", "node", "memory", "link", "network", "price")
_KIND_OF = {"memory": "memory", "link": "link", "network": "link"}
_RECIPE = ("precision", "optimizer", "attention")
_SHAPE = ("gated", "bias", "tied", "dropout")
_LIMITS = ("devices", "parameters", "fewer")
WORDS = (*_COUNTS, *_KINDS, *_MACHINE, *_RECIPE, *_SHAPE, *_LIMITS)
_SEVERAL = 2  # closed forms may have a special case at B = 1; a search needs those for any B
_BATCH = " (sequences of a step, all devices together)"
_DECODER = ("L", "d", "h", "g", "k", "f", "V", "T", "C", "E", "e")


@dataclass(frozen=True, slots=True)
class ShardingRequest:
    """A parsed request: the model, its bytes per parameter, the machine if one is named, and the layout keys."""

    model: ShardedModel
    state: State
    machine: Machine | None
    inputs: Words


def shard(name: str | None, inputs: Words, progress: Progress) -> Account:
    """The account of one layout."""
    inputs = _with_devices(inputs)
    layout = layout_of(_layout_words(inputs))
    require_devices(layout, _count(inputs, "devices") if "devices" in inputs else None)
    setup = _request(name, inputs, layout.micro, layout.devices, progress)
    return account(setup.model, layout, setup.state, setup.machine)


def best(name: str | None, inputs: Words, progress: Progress) -> Ranking:
    """The best layout on the given devices. Layout keys stay fixed in the search: ``tensor=8``, ``zero=1``."""
    inputs = _with_devices(inputs)
    _require_search(name, inputs)
    if "rank" in inputs:
        raise BadInputError("a search compares the fullest ranks: leave rank out")
    fixed = _layout_words(inputs)
    layout_of({name: value for name, value in fixed.items() if name != "sequence"})  # refuses what no layout can have
    devices, fewer = require_devices_at_most(_count(inputs, "devices")), _yes(inputs, "fewer", False)
    setup = _request(name, inputs, _SEVERAL, devices, progress)
    assert setup.machine is not None
    progress("evaluating every layout")
    return search(SearchProblem(setup.model, _limits(fixed, devices, fewer), setup.state, setup.machine))


def _with_devices(inputs: Words) -> Words:
    """``inputs`` with ``gpus``, which is another word for devices as in ``napkin ask``, under its own key."""
    if {"gpus", "devices"} <= inputs.keys():
        raise BadInputError("devices is given twice: devices and gpus are the same key")
    return {"devices" if word == "gpus" else word: value for word, value in inputs.items()}


def _require_search(name: str | None, inputs: Words) -> None:
    """Raises BadInputError with everything that a search lacks, and values that work."""
    devices = require_devices_at_most(_count(inputs, "devices")) if "devices" in inputs else 512
    missing: dict[str, str] = {}
    if name is None and "parameters" not in inputs:
        sizes = _decoder_sizes(inputs)
        missing = missing_sizes(sizes, _yes(inputs, "gated", True)) if sizes else {"a model": "llama3-8b"}
    for key, meaning, value in (("devices", "", "512"), ("gpu", "", "h100-sxm"), ("batch", _BATCH, str(2 * devices))):
        if key not in inputs:
            missing[f"{key}{meaning}"] = f"{key}={value}"
    if missing:
        raise BadInputError(needs("layout", tuple(missing), " ".join(missing.values())))


def _limits(layout: Mapping[str, int | str], devices: int, fewer: bool) -> Limits:
    fixed = tuple((symbol, int(layout[name])) for name, symbol in SYMBOLS.items() if name in layout and name != "batch")
    zero = (int(layout["zero"]),) if "zero" in layout else STAGES
    kinds = {name: (str(layout[name]),) if name in layout else kinds_of for name, kinds_of in _KINDS.items()}
    return Limits(devices, int(layout["batch"]), zero, kinds["sequence"], kinds["checkpointing"], kinds["exchange"], fixed, fewer)


# -- reading ------------------------------------------------------------------------------------------------------------------


def read_model(name: str | None, inputs: Words, batch: int, progress: Progress) -> tuple[ShardedModel, State]:
    """The model in ``inputs``, for ``batch`` sequences at a time, and the bytes per parameter of its recipe."""
    setup = _request(name, inputs, batch, 1, progress)
    return setup.model, setup.state


def _request(name: str | None, inputs: Words, batch: int, devices: int, progress: Progress) -> ShardingRequest:
    """The parsed request. ``batch``: sequences at a time, the size at which a named model is derived."""
    machine = _machine(inputs, devices)
    precision = inputs.get("precision", "bf16-master")
    state = state_of(precision, inputs.get("optimizer", "adamw"))
    if "parameters" in inputs:
        return ShardingRequest(_of_a_number(name, inputs), state, machine, inputs)
    if name is None:
        return ShardingRequest(_decoder(inputs), state, machine, inputs)
    for word in _SHAPE:
        if word in inputs:
            raise BadInputError(f"{word} describes a decoder by its sizes: {name[:60]} needs no description")
    return ShardingRequest(_named(name, inputs, precision, batch, progress), state, machine, inputs)


def _of_a_number(name: str | None, inputs: Words) -> ShardedModel:
    if name is not None:
        raise BadInputError(f"give parameters or the model {name[:60]!r}, not both")
    for word in inputs:
        if word not in WORDS:
            raise BadInputError(
                f"{word[:40]} is a size of a model, and parameters={inputs['parameters'][:40]} is not a model:"
                " name a model, or leave it out"
            )
    number = int(read("parameters", inputs["parameters"], "parameters", integer=True).value)
    tensor = ShardedTensor("parameters", str(number), "1", FIRST, per_token=False)
    why = "a number of parameters does not determine matrices, heads or layers; name a model, or give its sizes (L, d, h, f, V, T)"
    return ShardedModel("the given number of parameters", {}, (tensor,), (), "as given", only_data=why, own=(tensor,))


def _decoder(inputs: Words) -> ShardedModel:
    sizes = _decoder_sizes(inputs)
    if not sizes:
        raise BadInputError("name a model, or give parameters=70e9, or a decoder by its sizes: L=32 d=4096 h=32 f=14336 V=128256 T=8192")
    gated = _yes(inputs, "gated", True)
    bias, tied, dropout = (_yes(inputs, word, False) for word in ("bias", "tied", "dropout"))
    attention = inputs.get("attention", "fused")
    if attention not in ("fused", "math"):
        raise BadInputError(f"attention = {attention[:40]!r} is unknown: use fused or math")
    return decoder(sizes, gated=gated, bias=bias, tied=tied, dropout=dropout, attention=attention)


def _decoder_sizes(inputs: Words) -> dict[str, int]:
    for word in inputs:
        if word not in WORDS and word not in _DECODER:
            raise BadInputError(f"unknown key {word[:40]!r}: {_near(word, _DECODER) or 'see napkin shard --help'}")
    return {word: _count(inputs, word) for word in inputs if word in _DECODER}


def _near(word: str, sizes: Iterable[str] = ()) -> str:
    near = nearest(word, (*WORDS, *sizes))
    return f"did you mean {near}?" if near else ""


def _named(name: str, inputs: Words, precision: str, batch: int, progress: Progress) -> ShardedModel:
    """The model derived at the given sizes: exact tensors, and the module's own tensors saved for backward."""
    import calc
    from calc.capacity.sharding.derived import model_of
    from calc.capacity.sharding.module_tensors import own_buffers, own_tensors

    spec = calc.load(name)
    sizes = {word: _count(inputs, word) for word in inputs if word not in WORDS}
    if "B" in sizes:
        raise BadInputError(
            "B follows from the layout: micro is the number of sequences per rank and micro-batch, batch that of a whole step"
        )
    misspelled = next((word for word in sizes if word not in spec.dimensions and _near(word)), "")
    if misspelled:
        raise BadInputError(f"neither a layout nor {name[:40]} has {misspelled[:40]!r}: {_near(misspelled)}")
    if "B" in spec.dimensions:
        sizes["B"] = batch
    resolved = spec.sizes(sizes)
    attention, optimizer = inputs.get("attention", "fused"), inputs.get("optimizer", "adamw")
    progress(f"deriving {name}")
    derivation = calc.derive(spec, sizes, progress=progress, precision=precision, attention=attention, optimizer=optimizer)
    own = own_tensors(spec, resolved)
    if (
        sum(int(t.rows) * int(t.row_length) * t.times * (resolved.get("L", 1) if t.where == "layer" else 1) for t in own)
        != derivation["parameters"].value
    ):
        raise BadInputError(f"internal error: the tensors of {name[:60]} are not its derived parameters; please report it")
    buffers = own_buffers(spec, resolved)
    notes = [f"buffers, {buffers:,} bytes whole on every rank, are not in it"] if buffers else []
    peak = derivation["memory.peak"].value
    if peak is not None:
        at_once = f" with {resolved['B']:,} sequence{'s' if resolved['B'] > 1 else ''} at a time" if "B" in resolved else ""
        notes.append(f"on one device{at_once} the derived peak is {peak:,} bytes; the sum here is an upper bound")
    return replace(model_of(derivation, own), name=name, notes=tuple(notes))


def _machine(inputs: Words, devices: int) -> Machine | None:
    """The machine; None without ``gpu``. Raises BadInputError for keys of a machine without ``gpu``."""
    if "gpu" not in inputs:
        for word in _MACHINE:
            if word in inputs:
                raise BadInputError(f"{word} is a property of a machine: name one too, e.g. gpu=h100-sxm")
        return None
    from calc.hardware.accelerators import accelerator

    def number(word: str, unit: str) -> Fraction | None:
        if word not in inputs:
            return None
        typed = read(word, inputs[word], unit)
        require_unit(_KIND_OF.get(word, ""), word, inputs[word], typed, unit)
        return typed.value

    memory = number("memory", "bytes")
    device = accelerator(inputs["gpu"], inputs.get("hardware"))
    given = GivenRates(
        efficiency=number("efficiency", "share"),
        node=_count(inputs, "node") if "node" in inputs else None,
        memory=None if memory is None else int(memory),
        link=number("link", "bytes/s"),
        network=number("network", "bytes/s"),
        price=number("price", "USD/h"),
    )
    return machine_of(device, inputs.get("dtype", "bf16"), given, devices)


def _layout_words(inputs: Words) -> dict[str, int | str]:
    counts = {word: _count(inputs, word) if word not in ("zero", "rank") else _small(inputs, word) for word in _COUNTS if word in inputs}
    return {**counts, **{word: inputs[word] for word in _KINDS if word in inputs}}


def _count(inputs: Words, word: str) -> int:
    return int(read(word, inputs[word], UNITS.get(word, "devices") if word in WORDS else "elements", integer=True).value)


def _small(inputs: Words, word: str) -> int:
    """A stage or a rank; 0 is allowed."""
    text = inputs[word].strip()
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadInputError(f"{word} = {text[:40]} is not a whole number of at least 0")
    return int(text)


def _yes(inputs: Words, word: str, default: bool) -> bool:
    text = inputs.get(word, "yes" if default else "no").strip().lower()
    if text not in ("yes", "no"):
        raise BadInputError(f"{word} = {text[:40]!r} is neither yes nor no")
    return text == "yes"

"""The KV cache of a real run: the tensors in the cache that the library returns, or the keys and values of the attention calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from calc.errors import NapkinError
from calc.experiment.checkpointing import built
from calc.experiment.inputs import inputs_at
from calc.measure.free_memory import require_free_memory
from calc.measure.training import SEED, blame
from calc.options import Options
from calc.spec import Sizes, Spec

_LIBRARY = "tensors in the past_key_values that the library returns"
_CALLS = "keys and values of the run's attention calls"
_INFERENCE = Options(mode="infer")


@dataclass(frozen=True, slots=True)
class CacheElements:
    """Cache elements of a run at ``sizes``; ``None`` if nothing could be measured, with the reason in ``because``."""

    sizes: Mapping[str, int]
    elements: int | None
    instrument: str
    because: str = ""


def cache_elements(spec: Spec, sizes: Mapping[str, int], *, without_memory: bool = False) -> CacheElements:
    """Cache elements after one forward over the inputs. ``without_memory``: on torch's meta device, where tensors have shapes only."""
    if not without_memory:
        return _elements(spec, sizes, "cpu")
    outcome = _elements(spec, sizes, "meta")
    if outcome.elements is not None:
        return outcome
    in_bf16 = _elements(spec, sizes, "meta", in_bf16=True)  # grouped matmuls take nothing else there
    return outcome if in_bf16.elements is None else in_bf16


def _elements(spec: Spec, sizes: Mapping[str, int], device: str, in_bf16: bool = False) -> CacheElements:
    instrument = f"{_LIBRARY if spec.of_library else _CALLS}{', shapes only' if device == 'meta' else ''}"
    try:
        if device != "meta":
            require_free_memory(spec, sizes, trains=False)
        with torch.random.fork_rng(devices=[]), torch.device(device), torch.no_grad(), blame(spec, sizes, "running it with a cache"):
            torch.manual_seed(SEED)
            module, inputs = built(spec, Sizes(**sizes)).eval(), inputs_at(spec, Sizes(**sizes), _INFERENCE)
            module = module.bfloat16() if in_bf16 else module
            tensors = _of_library(module, inputs) if spec.of_library else _of_calls(spec, module, inputs)
    except NapkinError as error:
        return CacheElements(sizes, None, instrument, str(error))
    if tensors is None:
        return CacheElements(sizes, None, instrument, "the class returns no cache")
    return CacheElements(sizes, sum(t.numel() for t in tensors), instrument)


def _of_library(module: Any, inputs: tuple[Tensor, ...]) -> list[Tensor] | None:
    out = module(input_ids=inputs[0], use_cache=True)
    cache = getattr(out, "past_key_values", None)
    cache = getattr(out, "cache_params", None) if cache is None else cache
    if cache is None:
        return None
    return [tensor for layer in cache.layers for tensor in _tensors(layer)]


def _tensors(layer: Any) -> Iterator[Tensor]:
    """The floating-point tensors of one layer's cache, in attributes or dictionaries; integer counters are left out."""
    for value in vars(layer).values():
        parts = value.values() if isinstance(value, dict) else (value,)
        yield from (t for t in parts if isinstance(t, Tensor) and t.is_floating_point())


def _of_calls(spec: Spec, module: Any, inputs: tuple[Tensor, ...]) -> list[Tensor] | None:
    tensors: list[Tensor] = []
    with _listening(tensors):
        (spec.predict or spec.loss)(module, *inputs)
    return tensors or None


@contextmanager
def _listening(tensors: list[Tensor]) -> Iterator[None]:
    """Context that appends the keys and values of every attention call to ``tensors``."""
    original = F.scaled_dot_product_attention

    def listened(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        tensors.extend((key, value))
        return original(query, key, value, *args, **kwargs)

    F.scaled_dot_product_attention = listened
    try:
        yield
    finally:
        F.scaled_dot_product_attention = original

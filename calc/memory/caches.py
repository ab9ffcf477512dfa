"""The kind of cache of each layer and its sizes, from the fields of the model's config, never from its name.

Kinds have the library's own names; a field has the same meaning in every config. A run confirms every cache
(``calc.memory.inference.checked``): a class that interprets its fields differently fails there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from calc.errors import BadInputError
from calc.platform.model_files import on_meta_device
from calc.spec import Sizes, Spec

_SLIDING = ("sliding_attention", "chunked_attention")
_NOTHING = "dummy"


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers with equal caches. ``count`` and ``positions`` are expressions; ``values`` are elements per position and sequence."""

    kind: str
    count: str
    positions: str
    values: str
    because: str


def layers_of(spec: Spec, sizes: Mapping[str, int]) -> tuple[Layers, ...]:
    """The layers by kind, with the number of each as an expression in the depth."""
    if not {"B", "T"} <= spec.dims.keys():
        raise BadInputError(f"{spec.name} is not autoregressive: it has no key/value cache")
    if spec.source == "built-in":
        return _of_built_in(spec)
    if not spec.of_library:
        raise BadInputError(f"{spec.name}: caches are known for built-in language models and configs (hf:PATH), not for a module's code")
    free = {name: size for name, size in sizes.items() if not spec.dimensions[name].tied}
    module = _built(spec, free)
    kinds = _kinds(module)
    counts = {kind: str(number) for kind, number in kinds.items()}
    depth = spec.dimensions.get("L")
    if depth is not None:
        period = depth.multiple_of if isinstance(depth.multiple_of, int) else 1
        deeper = _kinds(_built(spec, {**free, "L": sizes["L"] + period}))
        if deeper.keys() == kinds.keys():
            counts = {kind: _line(number, deeper[kind] - number, period, sizes["L"]) for kind, number in kinds.items()}
    config = module.config.get_text_config(decoder=True)
    return tuple(_layers(spec, config, kind, window, counts[kind, window]) for kind, window in kinds if kind != _NOTHING)


def _of_built_in(spec: Spec) -> tuple[Layers, ...]:
    if not {"h", "k", "L", "V"} <= spec.dims.keys():
        raise BadInputError(f"{spec.name} is not autoregressive: it has no key/value cache")
    return (_full("L", "g" if "g" in spec.dims else "h", "k"),)


def _full(count: str, heads: str, width: str, positions: str = "T", kind: str = "full_attention", because: str = "") -> Layers:
    why = f"a key and a value of width {width} for each of {heads} heads, of every token"
    values = "*".join(("2", heads, width) if heads != "1" else ("2", width))
    return Layers(kind, count, positions, values, because or why)


def _built(spec: Spec, sizes: Mapping[str, int]) -> Any:
    with on_meta_device():
        return spec.build(Sizes(**spec.sizes(sizes)))


def _kinds(module: Any) -> Counter[tuple[str, int]]:
    """The number of layers of each kind with its window: the input of the library's own cache."""
    try:
        from transformers.cache_utils import get_layer_types_and_kwargs
    except ImportError:
        raise BadInputError("the installed transformers does not describe the caches of its layers: use 5.17 or later") from None
    config = module.config.get_text_config(decoder=True)
    kinds, arguments = get_layer_types_and_kwargs(config)
    # Those of each layer; up to transformers 5.17 those of all layers together, of which each kind takes its own.
    each = [arguments] * len(kinds) if isinstance(arguments, dict) else arguments
    return Counter((kind, of_layer["sliding_window"] if kind in _SLIDING else 0) for kind, of_layer in zip(kinds, each, strict=True))


def _line(number: int, growth: int, period: int, depth: int) -> str:
    """The straight line through ``number`` at this depth and ``growth`` more a period deeper."""
    slope = Fraction(growth, period)
    constant = number - slope * depth
    times = f"{slope.numerator}*" if slope.numerator != 1 else ""
    text = f"{times}L" + (f"/{slope.denominator}" if slope.denominator > 1 else "")
    if not slope:
        return str(number)
    if not constant:
        return text
    return f"{text} {'+' if constant > 0 else '-'} {abs(constant).numerator}" + (
        f"/{constant.denominator}" if constant.denominator > 1 else ""
    )


def _layers(spec: Spec, config: Any, kind: str, window: int, count: str) -> Layers:
    if kind == "linear_attention":
        return _recurrent(spec, config, count)
    if kind != "full_attention" and kind not in _SLIDING:
        raise BadInputError(f"{spec.name}: layers of the kind {kind!r} have a cache of unknown size, so it is refused")
    positions, tokens = "T", "of every token"
    if kind in _SLIDING:
        # The library caches what the next token will see besides itself: a window of w minus one.
        positions, tokens = f"Min(T, {window - 1})", f"of the last {window - 1} tokens: a window of {window} without the current token"
    if {"kv_lora_rank", "qk_rope_head_dim"} <= spec.dims.keys():
        latent = f"one latent vector for keys and values and one rotary key, shared by all heads, {tokens}"
        return Layers(kind, count, positions, "kv_lora_rank + qk_rope_head_dim", latent)
    heads, width = _heads(spec, config), _width(spec)
    of = "one head" if heads == "1" else f"each of {heads} heads"
    return _full(count, heads, width, positions, kind, f"a key and a value of width {width} for {of}, {tokens}")


def _heads(spec: Spec, config: Any) -> str:
    if getattr(config, "multi_query", False):
        return "1"
    return "g" if "g" in spec.dims and not spec.dimensions["g"].tied else "h"


def _width(spec: Spec) -> str:
    if "k" in spec.dims:
        return "k"
    if {"d", "h"} <= spec.dims.keys():
        return "d/h"
    raise BadInputError(f"{spec.name}: its config has no head width")


_DELTA = ("linear_num_key_heads", "linear_key_head_dim", "linear_num_value_heads", "linear_value_head_dim")


def _recurrent(spec: Spec, config: Any, count: str) -> Layers:
    """A state of fixed size: the last inputs of a convolution, and the recurrent state."""
    kind = "linear_attention"
    if all(hasattr(config, name) for name in (*_DELTA, "linear_conv_kernel_dim")):
        key_heads, key, value_heads, value = (name if name in spec.dims else str(getattr(config, name)) for name in _DELTA)
        channels = f"2*{key_heads}*{key} + {value_heads}*{value}"
        kernel = "linear_conv_kernel_dim" if "linear_conv_kernel_dim" in spec.dims else str(config.linear_conv_kernel_dim)
        because = f"the last {kernel} inputs of a convolution, and a matrix of keys by values a head, however long the text"
        return Layers(kind, count, "1", f"({channels})*{kernel} + {value_heads}*{key}*{value}", because)
    inner, inputs, state = (getattr(config, name, None) for name in ("intermediate_size", "conv_kernel", "state_size"))
    if not (inner and inputs and state) or ("f" not in spec.dims and not getattr(config, "expand", None)):
        raise BadInputError(f"{spec.name}: its layers have a state whose size no known config field gives, so it is refused")
    channels = "f" if "f" in spec.dims else f"{config.expand}*d"
    states = "state_size" if "state_size" in spec.dims else str(state)
    because = f"the last {inputs} inputs of a convolution and {states} numbers of state, of every channel, however long the text"
    return Layers(kind, count, "1", f"{channels}*({inputs} + {states})", because)

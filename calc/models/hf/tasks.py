"""What a model of transformers is fed, and its loss. Inputs and sizes of inputs go by the task alone, never by the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from calc.dims import Dim
from calc.models.hf.source import quiet

# Where a config bounds no positions, and for what a model is tried out at.
_LENGTH, _TARGET, _SMALL = 1024, 128, 16


@dataclass(frozen=True, slots=True)
class Task:
    """``dims`` makes the dimensions of the inputs from (config, largest length); ``inputs`` takes (sizes, vocabulary, config)."""

    dims: Callable[[Any, int | None], dict[str, Dim]]
    small: Mapping[str, int]
    inputs: Callable[[Any, Any, Any], tuple[Any, ...]]
    loss: Callable[..., Any]
    predict: Callable[..., Any]


def _tokens(_: Any, limit: int | None) -> dict[str, Dim]:
    return {"B": Dim(1), "T": Dim(min(limit or _LENGTH, _LENGTH))}


def _pairs(config: Any, limit: int | None) -> dict[str, Dim]:
    return {**_tokens(config, limit), "S": Dim(min(limit or _TARGET, _TARGET), "target length")}


def _pictures(config: Any, _: int | None) -> dict[str, Dim]:
    return {"B": Dim(1)}


def _token_inputs(n: Any, vocabulary: Any, _: Any) -> tuple[Any, ...]:
    import torch

    return (torch.randint(vocabulary, (n.B, n.T)),)


def _pair_inputs(n: Any, vocabulary: Any, _: Any) -> tuple[Any, ...]:
    import torch

    return (torch.randint(vocabulary, (n.B, n.T)), torch.randint(vocabulary, (n.B, n.S)))


def _picture_inputs(n: Any, _: Any, config: Any) -> tuple[Any, ...]:
    import torch

    size = getattr(config, "image_size", None) or 224
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return (torch.randn(n.B, getattr(config, "num_channels", 3), height, width), torch.randint(config.num_labels, (n.B,)))


def _arguments(model: Any) -> dict[str, Any]:
    """A cache of keys is for generation: a training step has none. Models without one do not know the argument."""
    import inspect

    return {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}


def _token_loss(model: Any, ids: Any) -> Any:
    with quiet():
        return model(input_ids=ids, labels=ids, **_arguments(model)).loss


def _pair_loss(model: Any, ids: Any, labels: Any) -> Any:
    with quiet():
        return model(input_ids=ids, labels=labels, **_arguments(model)).loss


def _picture_loss(model: Any, pictures: Any, labels: Any) -> Any:
    with quiet():
        return model(pixel_values=pictures, labels=labels).loss


def _token_predict(model: Any, ids: Any) -> Any:
    with quiet():
        return model(input_ids=ids, **_arguments(model)).logits


def _pair_predict(model: Any, ids: Any, labels: Any) -> Any:
    with quiet():
        return model(input_ids=ids, decoder_input_ids=labels, **_arguments(model)).logits


def _picture_predict(model: Any, pictures: Any, _: Any) -> Any:
    with quiet():
        return model(pixel_values=pictures).logits


TASKS = {
    "language": Task(_tokens, {"B": 2, "T": _SMALL}, _token_inputs, _token_loss, _token_predict),
    "translation": Task(_pairs, {"B": 2, "T": _SMALL, "S": _SMALL - 5}, _pair_inputs, _pair_loss, _pair_predict),
    "images": Task(_pictures, {"B": 2}, _picture_inputs, _picture_loss, _picture_predict),
}

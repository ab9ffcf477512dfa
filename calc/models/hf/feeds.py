"""Tensors that classes of transformers are fed, by what they are: their dimensions and how each is made. Sizes come from the config."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from calc.dimensions import Dim
from calc.models.hf.source import parts_of

# Sequence lengths: of inputs where the config bounds no positions, of targets, and of trial runs.
_LENGTH, _TARGET, _SMALL = 1024, 128, 16
# A second of sound, and of its spectrum.
_SAMPLES, _FRAMES = 16_000, 100
# Letters of its transcript: fewer than the time steps that any class makes of it.
_LETTERS = 10
# Patches of a picture of any shape, as Pix2Struct was trained with.
_PATCHES = 2048


@dataclass(frozen=True, slots=True)
class Feed:
    """One tensor: ``dims`` makes its dimensions from (config, largest length), ``make`` the tensor from (sizes, vocabulary, config).

    ``small`` gives sizes for a trial run.
    """

    dims: Callable[[Any, int | None], dict[str, Dim]]
    make: Callable[[Any, Any, Any], Any]
    small: Callable[[Any], Mapping[str, int]] = lambda _: {}


def stated(config: Any, field_: str, default: Any) -> Any:
    """A field of the config, or of the first nested config that has one: an image size is a field of the vision config."""
    values = (part.__dict__.get(field_) for part in parts_of(config))
    return next((value for value in values if value is not None), default)


def _no_dims(_: Any, __: int | None) -> dict[str, Dim]:
    return {}


def _length(_: Any, limit: int | None) -> dict[str, Dim]:
    return {"T": Dim(min(limit or _LENGTH, _LENGTH))}


def _target(_: Any, limit: int | None) -> dict[str, Dim]:
    return {"S": Dim(min(limit or _TARGET, _TARGET), "target length")}


def _transcript(_: Any, __: int | None) -> dict[str, Dim]:
    return {"S": Dim(_LETTERS, "target length")}


def _letters(n: Any, vocabulary: Any, _: Any) -> Any:
    import torch

    return torch.randint(1, vocabulary, (n.B, n.S))  # 0 is the blank


def _numbers_below(count: Callable[[Any, Any, Any], Any], *shape: str) -> Callable[[Any, Any, Any], Any]:
    def make(n: Any, vocabulary: Any, config: Any) -> Any:
        import torch

        return torch.randint(count(n, vocabulary, config), tuple(getattr(n, name) for name in shape))

    return make


def _vocabulary(_: Any, vocabulary: Any, __: Any) -> Any:
    return vocabulary


def _classes(_: Any, __: Any, config: Any) -> Any:
    return config.num_labels


def _sequence(n: Any, _: Any, __: Any) -> Any:
    return n.T


def _height_and_width(config: Any) -> tuple[int, int]:
    size = stated(config, "image_size", 224)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return height, width


def _picture(n: Any, _: Any, config: Any) -> Any:
    import torch

    frames = stated(config, "num_frames", None)
    return torch.randn(n.B, *([frames] if frames else []), stated(config, "num_channels", 3), *_height_and_width(config))


def _video(n: Any, _: Any, config: Any) -> Any:
    import torch

    frames = stated(config, "num_frames", None) or stated(config, "frames_per_clip", 16)
    side = stated(config, "crop_size", None)
    return torch.randn(n.B, frames, stated(config, "num_channels", 3), *([side, side] if side else _height_and_width(config)))


def _hidden_patches(n: Any, _: Any, config: Any) -> Any:
    import torch

    patch = stated(config, "patch_size", 16)
    count = math.prod(side // patch for side in _height_and_width(config))
    return torch.randint(2, (n.B, count)) > 0


def _classes_of_pixels(n: Any, _: Any, config: Any) -> Any:
    import torch

    return torch.randint(config.num_labels, (n.B, *_height_and_width(config)))


def _sound(config: Any, _: int | None) -> dict[str, Dim]:
    if _fixed_spectrum(config):
        return {}
    stride = _stride(config)
    return {"N": Dim(-(-_SAMPLES // stride) * stride, "audio samples", multiple_of=stride if stride > 1 else None)}


def _stride(config: Any) -> int:
    """Samples per time step of a convolutional front end; 1 if there is none."""
    return math.prod(stated(config, "conv_stride", ()))


def _samples(n: Any, _: Any, config: Any) -> Any:
    import torch

    return torch.randn(n.B, *(_fixed_spectrum(config) or (*_channels_of_sound(config), n.N)))


def _channels_of_sound(config: Any) -> tuple[int, ...]:
    """The number of channels, where samples have a dimension for it: in a codec, which compresses them to entries of codebooks."""
    channels = stated(config, "audio_channels", 1 if stated(config, "codebook_size", None) else None)
    return (channels,) if channels else ()


def _fixed_spectrum(config: Any) -> tuple[int, int] | None:
    """(frames, bins) if the config states both: ``input_values`` are a spectrum then. Else None."""
    frames, bins = stated(config, "max_length", None), stated(config, "num_mel_bins", None)
    return (frames, bins) if frames and bins else None


def _few_samples(config: Any) -> dict[str, int]:
    return {} if _fixed_spectrum(config) else {"N": 7 * _stride(config) if _stride(config) > 1 else _SAMPLES // 10}


def _frames(config: Any, _: int | None) -> dict[str, Dim]:
    return {} if fixed_frames(config) else {"N": Dim(_FRAMES, "audio frames")}


def fixed_frames(config: Any) -> bool:
    """Whether the config fixes the number of frames: with a table of source positions and a spectrum, two frames per position, no fewer; or
    where the spectrum is a picture."""
    table = stated(config, "max_source_positions", None) and stated(config, "num_mel_bins", None)
    return bool(table or _spectrum_as_picture(config))


def _spectrum_as_picture(config: Any) -> tuple[int, int, int] | None:
    """(channels, frames, bins) of a spectrum that is folded into a square picture, all frames that it takes; None if it is none."""
    side, bins = stated(config, "spec_size", None), stated(config, "num_mel_bins", None)
    return (stated(config, "patch_embed_input_channels", 1), side * (side // bins), bins) if side and bins else None


_SPECTRUM_WIDTHS = ("input_feat_per_channel", "feature_projection_input_dim")


def _spectrum(n: Any, _: Any, config: Any) -> Any:
    import torch

    bins, picture = stated(config, "num_mel_bins", None), _spectrum_as_picture(config)
    if picture:
        return torch.randn(n.B, *picture)
    if fixed_frames(config):
        return torch.randn(n.B, bins, 2 * getattr(n, "max_source_positions", stated(config, "max_source_positions", None)))
    width = next((w for w in (bins, *(stated(config, name, None) for name in _SPECTRUM_WIDTHS)) if w), 80)
    return torch.randn(n.B, n.N, width)


def _past(config: Any) -> int:
    """Time steps of a series before the forecast: the context, and before it as many as the longest lag."""
    return int(stated(config, "context_length", _LENGTH)) + max(stated(config, "lags_sequence", None) or (0,))


def _future(config: Any) -> int:
    """Time steps of the forecast."""
    return int(stated(config, "prediction_length", None) or 1)


def _values(length: Callable[[Any], int], kind: str = "randn") -> Callable[[Any, Any, Any], Any]:
    """(B, length), with a last dimension for the channels where there are several or the class counts them."""

    def make(n: Any, _: Any, config: Any) -> Any:
        import torch

        channels, width = stated(config, "num_input_channels", None), stated(config, "input_size", 1)
        last = [channels] if channels else [width] if width > 1 else []
        return getattr(torch, kind)(n.B, length(config), *last)

    return make


def _features(length: Callable[[Any], int]) -> Callable[[Any, Any, Any], Any]:
    def make(n: Any, _: Any, config: Any) -> Any:
        import torch

        return torch.randn(n.B, length(config), config.num_time_features)

    return make


def _categories(n: Any, _: Any, config: Any) -> Any:
    import torch

    return torch.cat([torch.randint(count, (n.B, 1)) for count in config.cardinality], dim=1)


def _static_numbers(n: Any, _: Any, config: Any) -> Any:
    import torch

    return torch.randn(n.B, config.num_static_real_features)


def _each_step(width: str) -> Callable[[Any, Any, Any], Any]:
    """(B, T, the config's ``width``); one number for each step if ``width`` is empty."""

    def make(n: Any, _: Any, config: Any) -> Any:
        import torch

        return torch.randn(n.B, n.T, getattr(n, width, getattr(config, width)) if width else 1)

    return make


def _numbered_patches(n: Any, _: Any, config: Any) -> Any:
    """Patches of pictures of any shape: the row and the column of each, then its pixels."""
    import torch

    places = torch.randint(stated(config, "seq_len", _LENGTH), (n.B, n.N, 2))
    return torch.cat([places.float(), torch.randn(n.B, n.N, stated(config, "patch_embed_hidden_size", 768))], dim=-1)


def _no_padding(length: str) -> Callable[[Any, Any, Any], Any]:
    def make(n: Any, _: Any, __: Any) -> Any:
        import torch

        return torch.ones(n.B, getattr(n, length), dtype=torch.int64)

    return make


def _latest_step(_: Any, __: Any, config: Any) -> Any:
    return config.max_ep_len


TOKENS = Feed(_length, _numbers_below(_vocabulary, "B", "T"), lambda _: {"T": _SMALL})
TARGETS = Feed(_target, _numbers_below(_vocabulary, "B", "S"), lambda _: {"S": _SMALL - 5})
TRANSCRIPTS = Feed(_transcript, _letters, lambda _: {"S": 3})
CLASSES = Feed(_no_dims, _numbers_below(_classes, "B"))
CLASS_OF_EACH = Feed(_no_dims, _numbers_below(_classes, "B", "T"))
PLACES = Feed(_no_dims, _numbers_below(_sequence, "B"))
PICTURES = Feed(_no_dims, _picture)
HIDDEN_PATCHES = Feed(_no_dims, _hidden_patches)
CLASS_OF_EACH_PIXEL = Feed(_no_dims, _classes_of_pixels)
SAMPLES = Feed(_sound, _samples, _few_samples)
SPECTRUM = Feed(_frames, _spectrum, lambda config: {} if fixed_frames(config) else {"N": 2 * _SMALL})

VIDEOS = Feed(_no_dims, _video)
NUMBERED_PATCHES = Feed(lambda *_: {"N": Dim(_PATCHES, "patches")}, _numbered_patches, lambda _: {"N": _SMALL})
NUMBERS = Feed(_length, _each_step(""), lambda _: {"T": _SMALL})

# Arguments of the library's classes, and what each is fed.
FEEDS: Mapping[str, Feed] = {
    "input_ids": TOKENS,
    "decoder_input_ids": TARGETS,
    "pixel_values": PICTURES,
    "pixel_values_videos": VIDEOS,
    "input_values": SAMPLES,
    "input_features": SPECTRUM,
    "flattened_patches": NUMBERED_PATCHES,
    "past_values": Feed(_no_dims, _values(_past)),
    "past_observed_mask": Feed(_no_dims, _values(_past, "ones")),
    "past_time_features": Feed(_no_dims, _features(_past)),
    "future_values": Feed(_no_dims, _values(_future)),
    "future_time_features": Feed(_no_dims, _features(_future)),
    "static_categorical_features": Feed(_no_dims, _categories),
    "static_real_features": Feed(_no_dims, _static_numbers),
    "states": Feed(_length, _each_step("state_dim"), lambda _: {"T": _SMALL}),
    "actions": Feed(_length, _each_step("act_dim"), lambda _: {"T": _SMALL}),
    "rewards": NUMBERS,
    "returns_to_go": NUMBERS,
    "timesteps": Feed(_length, _numbers_below(_latest_step, "B", "T"), lambda _: {"T": _SMALL}),
}
# Labels of pairs of sentences, which a class for pre-training takes beside those of the tokens: one of two for each row.
SENTENCE_LABELS: Mapping[str, Feed] = dict.fromkeys(
    ("next_sentence_label", "sentence_order_label"), Feed(_no_dims, _numbers_below(lambda *_: 2, "B"))
)
# What a class reads when it reads one thing.
MAIN_INPUTS = ("input_ids", "pixel_values", "pixel_values_videos", "input_values", "input_features", "flattened_patches")
# What masks the padding of each, and which are masks of tokens or patches of which none is padding.
MASKS: Mapping[str, tuple[str, Feed]] = {
    "input_ids": ("attention_mask", Feed(_no_dims, _no_padding("T"))),
    "flattened_patches": ("attention_mask", Feed(_no_dims, _no_padding("N"))),
    "decoder_input_ids": ("decoder_attention_mask", Feed(_no_dims, _no_padding("S"))),
}
# Arguments that only some configs have a use for, and the field that counts their columns.
COUNTED_BY = {"static_categorical_features": "num_static_categorical_features", "static_real_features": "num_static_real_features"}
# Arguments that a class is fed only if it insists on them.
ONLY_IF_REQUIRED = frozenset({"past_observed_mask"})
# Arguments that hold, or draw, what the class's own loss compares its outputs with.
TARGETS_OF_ITS_OWN = frozenset({"future_values", "noise"})

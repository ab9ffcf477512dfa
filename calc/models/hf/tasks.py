"""Inputs and loss of a model of transformers. Inputs and their sizes depend on the task alone, never on the model.

A task is one of the library's own kinds of classes (``hf_fields.toml`` lists them). If a class of a kind has no loss of its own that a
table of sizes could follow, the loss is a simple substitute, and a note says so.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from calc.dimensions import Dim
from calc.errors import ConfigError
from calc.models.hf.source import Source, clip, module_class, parts_of, quiet, symbolic_sizes_accepted
from calc.models.hf.table import FIELDS

# Sequence lengths: of inputs where the config bounds no positions, of targets, and of trial runs.
_LENGTH, _TARGET, _SMALL = 1024, 128, 16
# A second of sound, and of its spectrum.
_SAMPLES, _FRAMES = 16_000, 100
# Letters of its transcript: fewer than the time steps that any class makes of it.
_LETTERS = 10


@dataclass(frozen=True, slots=True)
class Feed:
    """One tensor: ``dims`` makes its dimensions from (config, largest length), ``make`` the tensor from (sizes, vocabulary, config).

    ``small`` gives sizes for a trial run.
    """

    dims: Callable[[Any, int | None], dict[str, Dim]]
    make: Callable[[Any, Any, Any], Any]
    small: Callable[[Any], Mapping[str, int]] = lambda _: {}


@dataclass(frozen=True, slots=True)
class Task:
    """``feeds`` maps arguments of ``forward`` to feeds; ``same`` maps further arguments to feeds with the same tensors.

    ``withheld`` feeds are passed to the loss, after the outputs, and not to the class. ``used`` maps the arguments of a forward alone to
    feeds, ``outcome`` takes its result. ``options`` are passed unchanged.
    """

    feeds: Mapping[str, Feed]
    loss: Callable[..., Any]
    outcome: Callable[[Any], Any]
    used: Mapping[str, str]
    same: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def arguments(self) -> frozenset[str]:
        return frozenset([*self.feeds, *self.same, *self.options])

    def dims(self, config: Any, limit: int | None) -> dict[str, Dim]:
        return {"B": Dim(1)} | {name: dim for feed in self.feeds.values() for name, dim in feed.dims(config, limit).items()}

    def small(self, config: Any) -> dict[str, int]:
        return {"B": 2} | {name: size for feed in self.feeds.values() for name, size in feed.small(config).items()}

    def inputs(self, n: Any, vocabulary: Any, config: Any) -> tuple[Any, ...]:
        return tuple(feed.make(n, vocabulary, config) for feed in self.feeds.values())

    def step(self, model: Any, *inputs: Any) -> Any:
        fed = dict(zip(self.feeds, inputs, strict=True))
        shared = {argument: fed[name] for argument, name in self.same.items()}
        withheld = [fed.pop(name) for name in self.withheld]
        with quiet(), symbolic_sizes_accepted():
            return self.loss(model(**fed, **shared, **self.options, **_without_cache(model)), *withheld)

    def predict(self, model: Any, *inputs: Any) -> Any:
        fed = dict(zip(self.feeds, inputs, strict=True))
        with quiet(), symbolic_sizes_accepted():
            return self.outcome(model(**{argument: fed[name] for argument, name in self.used.items()}, **_without_cache(model)))


def _without_cache(model: Any) -> dict[str, Any]:
    """A cache of keys is for generation: a training step has none. Models without one do not know the argument."""
    return {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}


# -- what is fed ---------------------------------------------------------------------------------------------------------------


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

    return torch.randn(n.B, stated(config, "num_channels", 3), *_height_and_width(config))


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

    return torch.randn(n.B, *(_fixed_spectrum(config) or (n.N,)))


def _fixed_spectrum(config: Any) -> tuple[int, int] | None:
    """(frames, bins) if the config states both: ``input_values`` are a spectrum then. Else None."""
    frames, bins = stated(config, "max_length", None), stated(config, "num_mel_bins", None)
    return (frames, bins) if frames and bins else None


def _few_samples(config: Any) -> dict[str, int]:
    return {} if _fixed_spectrum(config) else {"N": 7 * _stride(config) if _stride(config) > 1 else _SAMPLES // 10}


def _frames(config: Any, _: int | None) -> dict[str, Dim]:
    return {} if fixed_frames(config) else {"N": Dim(_FRAMES, "audio frames")}


def fixed_frames(config: Any) -> bool:
    """Whether the config fixes the number of frames: with a table of source positions and a spectrum, two frames per position, no fewer."""
    return bool(stated(config, "max_source_positions", None) and stated(config, "num_mel_bins", None))


_SPECTRUM_WIDTHS = ("input_feat_per_channel", "feature_projection_input_dim")


def _spectrum(n: Any, _: Any, config: Any) -> Any:
    import torch

    bins = stated(config, "num_mel_bins", None)
    if fixed_frames(config):
        return torch.randn(n.B, bins, 2 * getattr(n, "max_source_positions", stated(config, "max_source_positions", None)))
    width = next((w for w in (bins, *(stated(config, name, None) for name in _SPECTRUM_WIDTHS)) if w), 80)
    return torch.randn(n.B, n.N, width)


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

_OF_MAIN_INPUT = {"input_ids": TOKENS, "pixel_values": PICTURES, "input_values": SAMPLES, "input_features": SPECTRUM}


# -- losses and outcomes -------------------------------------------------------------------------------------------------------


def _own_loss(outputs: Any) -> Any:
    return outputs.loss


def _mean_of_squares(outputs: Any) -> Any:
    return outputs[0].square().mean()


def _boxes_and_classes(outputs: Any) -> Any:
    return outputs.logits.square().mean() + outputs.pred_boxes.square().mean()


def _loss_of_paths(outputs: Any, labels: Any) -> Any:
    import torch

    chances = torch.nn.functional.log_softmax(outputs.logits, dim=-1, dtype=torch.float32).transpose(0, 1)
    steps, batch, letters = chances.shape[0], chances.shape[1], labels.shape[1]
    read, written = (torch.full((batch,), length, device=labels.device) for length in (steps, letters))
    return torch.nn.functional.ctc_loss(chances, labels, read, written)


def _logits(outputs: Any) -> Any:
    """The scores; a class with several heads calls them by other names, and has those of tokens first."""
    return outputs.logits if "logits" in outputs else outputs[0]


def _first(outputs: Any) -> Any:
    return outputs[0]


_NO_HEAD = "The class has no head and no loss of its own: the loss here is the mean of the squares of its first output."
_NO_MATCHING = (
    "The library's loss first matches boxes to objects, which depends on the data: the loss here is the mean of the squares of the"
    " class scores and that of the boxes."
)
_NO_BLANKS = (
    "The library's loss leaves blanks out of the labels, so that their number depends on the data: the loss here is torch's ctc_loss (mean)"
    " of S labels in each row, over all steps."
)
_NO_PICTURE = "The input is text alone, without images or audio: the vision and audio parts count as parameters and run no operator."


# -- the tasks -----------------------------------------------------------------------------------------------------------------


def _labelled(main: str, feed: Feed, labels: Feed) -> Task:
    return Task({main: feed, "labels": labels}, _own_loss, _logits, {main: main})


def _tokens_alone(notes: tuple[str, ...] = ()) -> Task:
    return Task({"input_ids": TOKENS}, _own_loss, _logits, {"input_ids": "input_ids"}, {"labels": "input_ids"}, notes=notes)


def _to_targets(main: str, feed: Feed) -> Task:
    return Task({main: feed, "labels": TARGETS}, _own_loss, _logits, {main: main, "decoder_input_ids": "labels"})


def _encoder(main: str, feed: Feed, decoder: Mapping[str, Feed]) -> Task:
    feeds = {main: feed, **decoder}
    return Task(feeds, _mean_of_squares, _first, {name: name for name in feeds}, notes=(_NO_HEAD,))


def _text_and_picture(main: str, feed: Feed) -> Task:
    both = {"input_ids": TOKENS, "pixel_values": PICTURES}
    return Task(both, _own_loss, lambda outputs: outputs.logits_per_image, {name: name for name in both}, options={"return_loss": True})


def _places(main: str, feed: Feed) -> Task:
    feeds = {main: feed, "start_positions": PLACES, "end_positions": PLACES}
    return Task(feeds, _own_loss, lambda outputs: outputs.start_logits, {main: main})


_MAKERS: Mapping[str, Callable[[str, Feed, frozenset[str]], Task]] = {
    "language": lambda *_: _tokens_alone(),
    "pretraining": lambda *_: _tokens_alone(),
    "multimodal": lambda *_: _tokens_alone((_NO_PICTURE,)),
    "translation": lambda *_: _to_targets("input_ids", TOKENS),
    "speech": lambda main, feed, _: _to_targets(main, feed),
    "images": lambda *_: _labelled("pixel_values", PICTURES, CLASSES),
    "segmentation": lambda *_: _labelled("pixel_values", PICTURES, CLASS_OF_EACH_PIXEL),
    "hidden patches": lambda *_: Task(
        {"pixel_values": PICTURES, "bool_masked_pos": HIDDEN_PATCHES}, _own_loss, _first, {"pixel_values": "pixel_values"}
    ),
    "sounds": lambda main, feed, _: _labelled(main, feed, CLASSES),
    "recognition": lambda main, feed, _: Task(
        {main: feed, "labels": TRANSCRIPTS}, _loss_of_paths, _logits, {main: main}, withheld=("labels",), notes=(_NO_BLANKS,)
    ),
    "detection": lambda *_: Task(
        {"pixel_values": PICTURES}, _boxes_and_classes, _logits, {"pixel_values": "pixel_values"}, notes=(_NO_MATCHING,)
    ),
    "text and picture": lambda main, feed, _: _text_and_picture(main, feed),
    "classes of texts": lambda main, feed, _: _labelled(main, feed, CLASSES),
    "classes of tokens": lambda main, feed, _: _labelled(main, feed, CLASS_OF_EACH),
    "answers": lambda main, feed, _: _places(main, feed),
    "encoder": lambda main, feed, fields: _encoder(main, feed, {"decoder_input_ids": TARGETS} if "decoder_input_ids" in fields else {}),
}


def task_of(source: Source) -> Task:
    """The task of the class, from the library's own lists of classes by model_type, the most specific list first."""
    from transformers.models.auto import modeling_auto

    model_type = source.model_type
    kinds, usable = [], []
    for kind, lists in FIELDS.tasks.items():
        for entry in (getattr(modeling_auto, name).get(model_type, ()) for name in lists):
            names = [entry] if isinstance(entry, str) else list(entry)
            kinds += [kind] if source.architecture in names else []
            usable += names
    cls = module_class(source) if kinds else None
    fitting = [task for task in (_task_of_kind(kind, cls) for kind in kinds) if task is not None]
    if fitting:
        return fitting[0]
    where = f"{source.where}: architecture {clip(source.architecture)!r}"
    if kinds:
        raise ConfigError(f"{where} takes other inputs than its kind of class ({kinds[0]}): use FILE.py:NAME, with inputs of your own")
    instead = f"for {model_type!r} there is {', '.join(dict.fromkeys(usable))}" if usable else f"{model_type!r} has none"
    raise ConfigError(f"{where} is not a class of its model_type with a known step: {instead}")


def _task_of_kind(kind: str, cls: Any) -> Task | None:
    """The task of a class of that kind, or None if its forward takes other arguments than the kind."""
    parameters = inspect.signature(cls.forward).parameters
    feed = _OF_MAIN_INPUT.get(cls.main_input_name)
    if feed is None:
        return None
    task = _MAKERS[kind](cls.main_input_name, feed, frozenset(parameters))
    required = {name for name, p in parameters.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD and name != "self"}
    fits = {*task.arguments, *task.used} <= parameters.keys() and required <= task.arguments
    return task if fits else None

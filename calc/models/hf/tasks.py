"""Inputs and loss of a model of transformers. Inputs and their sizes depend on the task alone, never on the model.

A task is one of the library's own kinds of classes (``hf_fields.toml`` lists them). If a class of a kind has no loss of its own that a
table of sizes could follow, the loss is a simple substitute, and a note says so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from calc.dimensions import Dim
from calc.errors import ConfigError
from calc.models.hf.feeds import (
    CLASS_OF_EACH,
    CLASS_OF_EACH_PIXEL,
    CLASSES,
    COUNTED_BY,
    FEEDS,
    HIDDEN_PATCHES,
    MAIN_INPUTS,
    MASKS,
    ONLY_IF_REQUIRED,
    PICTURES,
    PLACES,
    SENTENCE_LABELS,
    TARGETS,
    TARGETS_OF_ITS_OWN,
    TOKENS,
    TRANSCRIPTS,
    Feed,
)
from calc.models.hf.source import Source, clip, quiet, sentences_of, symbolic_sizes_accepted
from calc.models.hf.table import FIELDS


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

    def masked(self) -> Task:
        """The task with masks in which nothing is padding, as a tokenizer gives them for rows of equal length."""
        masks = dict(MASKS[argument] for argument in self.used if argument in MASKS)
        used = {**self.used, **{name: name for name in masks}}
        return replace(self, feeds={**self.feeds, **masks}, used=used, notes=(*self.notes, _NO_PADDING)).with_labels_last()

    def inputs(self, n: Any, vocabulary: Any, config: Any) -> tuple[Any, ...]:
        return tuple(feed.make(n, vocabulary, config) for feed in self.feeds.values())

    def step(self, model: Any, *inputs: Any) -> Any:
        fed = dict(zip(self.feeds, inputs, strict=True))
        shared = {argument: fed[name] for argument, name in self.same.items()}
        withheld = [fed.pop(name) for name in self.withheld]
        with quiet(), symbolic_sizes_accepted():
            return self.loss(model(**fed, **shared, **self.options, **_without_cache(model)), *withheld)

    def with_labels_last(self) -> Task:
        """The task with the feeds of a forward alone first: mode ``infer`` has no others."""
        alone = {*self.used.values()}
        return replace(self, feeds=dict(sorted(self.feeds.items(), key=lambda feed: feed[0] not in alone)))

    @property
    def prediction(self) -> Callable[..., Any]:
        """``predict`` with a parameter for each input that a forward alone uses, as mode ``infer`` asks."""

        def predict(model: Any, *inputs: Any) -> Any:
            return self.predict(model, *inputs)

        names = ("model", *(name for name in self.feeds if name in self.used.values()))
        signature = inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names])
        predict.__signature__ = signature  # type: ignore[attr-defined]  # what inspect.signature reads
        return predict

    def predict(self, model: Any, *inputs: Any) -> Any:
        """What a forward alone gives; further ``inputs`` are the labels of a step."""
        fed = dict(zip(self.feeds, inputs, strict=False))
        with quiet(), symbolic_sizes_accepted():
            return self.outcome(model(**{argument: fed[name] for argument, name in self.used.items()}, **_without_cache(model)))


def _without_cache(model: Any) -> dict[str, Any]:
    """A cache of keys is for generation: a training step has none. Models without one do not know the argument."""
    return {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}


# -- losses and outcomes -------------------------------------------------------------------------------------------------------


def _own_loss(outputs: Any) -> Any:
    return outputs.loss


def _mean_of_squares(outputs: Any) -> Any:
    first = outputs[0]
    if isinstance(first, list | tuple):  # one output for each of several vocabularies
        return sum(tensor.square().mean() for tensor in first)
    return (first if first.is_floating_point() else _first_tensor(outputs)).square().mean()  # a codec has its codes first


def _tensors_of(outputs: Any) -> Iterator[Any]:
    """Floating tensors among the outputs of a class, those of lists too; a loss is none of them."""
    import torch

    for name, value in outputs.items():
        for tensor in value if isinstance(value, list | tuple) else [value]:
            if name != "loss" and isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                yield tensor


def _squares_of_all(outputs: Any) -> Any:
    means = [tensor.square().mean() for tensor in _tensors_of(outputs)]
    return sum(means[1:], start=means[0])


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


def _scores_of_pairs(outputs: Any) -> Any:
    """Called by what a text is compared with: ``logits_per_image``, ``logits_per_audio``."""
    return next(tensor for name, tensor in outputs.items() if name.startswith("logits_per_"))


def _first(outputs: Any) -> Any:
    return outputs[0]


def _first_tensor(outputs: Any) -> Any:
    return next(_tensors_of(outputs))


_NO_HEAD = "The class has no head and no loss of its own: the loss here is the mean of the squares of its first output."
_NO_LABELS = "The class is run without labels: the loss here is the sum of the mean squares of its outputs."
_NO_MATCHING = (
    "The library's loss first matches boxes to objects, which depends on the data: the loss here is the mean of the squares of the"
    " class scores and that of the boxes."
)
_NO_BLANKS = (
    "The library's loss leaves blanks out of the labels, so that their number depends on the data: the loss here is torch's ctc_loss (mean)"
    " of S labels in each row, over all steps."
)
_NO_PADDING = "The class runs other operators where a token is padding: it is fed masks here that say that none is."
_NO_PICTURE = "The input is text alone, without images or audio: the vision and audio parts count as parameters and run no operator."


# -- the tasks -----------------------------------------------------------------------------------------------------------------


def _labelled(main: str, feed: Feed, labels: Feed) -> Task:
    return Task({main: feed, "labels": labels}, _own_loss, _logits, {main: main})


def _tokens_alone(notes: tuple[str, ...] = ()) -> Task:
    return Task({"input_ids": TOKENS}, _own_loss, _logits, {"input_ids": "input_ids"}, {"labels": "input_ids"}, notes=notes)


def _pretraining(fields: frozenset[str]) -> Task:
    task = _tokens_alone()
    return replace(task, feeds={**task.feeds, **{name: feed for name, feed in SENTENCE_LABELS.items() if name in fields}})


def _to_targets(main: str, feed: Feed) -> Task:
    return Task({main: feed, "labels": TARGETS}, _own_loss, _logits, {main: main, "decoder_input_ids": "labels"})


def _encoder(main: str, feed: Feed, decoder: Mapping[str, Feed]) -> Task:
    feeds = {main: feed, **decoder}
    return Task(feeds, _mean_of_squares, _first, {name: name for name in feeds}, notes=(_NO_HEAD,))


def _pairs(fields: frozenset[str]) -> Task:
    """Texts, and what each is compared with: pictures, or sounds."""
    second = next((name for name in MAIN_INPUTS if name != "input_ids" and name in fields), "pixel_values")
    both = {"input_ids": TOKENS, second: FEEDS[second]}
    return Task(both, _own_loss, _scores_of_pairs, {name: name for name in both}, options={"return_loss": True})


def _places(main: str, feed: Feed) -> Task:
    feeds = {main: feed, "start_positions": PLACES, "end_positions": PLACES}
    return Task(feeds, _own_loss, lambda outputs: outputs.start_logits, {main: main})


_MAKERS: Mapping[str, Callable[[str, Feed, frozenset[str]], Task]] = {
    "language": lambda *_: _tokens_alone(),
    "pretraining": lambda main, feed, fields: _pretraining(fields),
    "multimodal": lambda *_: _tokens_alone((_NO_PICTURE,)),
    "translation": lambda *_: _to_targets("input_ids", TOKENS),
    "speech": lambda main, feed, _: _to_targets(main, feed),
    "captions": lambda main, feed, _: _to_targets(main, feed),
    "images": lambda main, feed, _: _labelled(main, feed, CLASSES),
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
    "text and picture": lambda main, feed, fields: _pairs(fields),
    "classes of texts": lambda main, feed, _: _labelled(main, feed, CLASSES),
    "classes of tokens": lambda main, feed, _: _labelled(main, feed, CLASS_OF_EACH),
    "answers": lambda main, feed, _: _places(main, feed),
    "encoder": lambda main, feed, fields: _encoder(main, feed, {"decoder_input_ids": TARGETS} if "decoder_input_ids" in fields else {}),
}


# A class with a loss of pairs, which it is asked for, may be in none of the lists.
_PAIRS = "text and picture"


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
    cls = _class_of(source, listed=bool(kinds))
    kinds = [_PAIRS, *kinds] if cls and "return_loss" in inspect.signature(cls.forward).parameters else kinds
    fitting = (task for kind in kinds if cls and (task := _task_of_kind(kind, cls)) is not None)
    task = next(fitting, None) or (_without_labels(source, cls) if cls else None)
    if task:
        return task.with_labels_last()
    where = f"{source.where}: architecture {clip(source.architecture)!r}"
    if cls and not _has_forward(cls):
        raise ConfigError(f"{where} has no forward, only parts that it generates with: use FILE.py:NAME, with a step of your own")
    if cls:
        unknown = ", ".join(sorted(_required(cls) - FEEDS.keys())) or cls.main_input_name
        raise ConfigError(
            f"{where} needs arguments that no field of a config describes ({unknown}): use FILE.py:NAME, with inputs of your own"
        )
    instead = f"for {model_type!r} there is {', '.join(dict.fromkeys(usable))}" if usable else f"{model_type!r} has none"
    raise ConfigError(f"{where} is not a class of its model_type with a known step: {instead}")


def _class_of(source: Source, listed: bool) -> Any:
    """The library's class of the model; None if it has none of this name, or if ``listed`` nowhere and built from another config.

    Raises ``ConfigError`` if the class needs a package that is not installed.
    """
    import transformers

    try:
        cls = getattr(transformers, source.architecture, None)
        return cls if listed or getattr(cls, "config_class", None) is source.config_class else None
    except ImportError as error:  # the library's stand-in for such a class raises it, or its file
        raise ConfigError(f"{source.where}: {sentences_of(error)}") from None


def _has_forward(cls: Any) -> bool:
    """Whether the class has a forward of its own."""
    import torch

    return cls.forward is not torch.nn.Module.forward


def _required(cls: Any) -> set[str]:
    """Arguments without a default of the class's forward."""
    parameters = inspect.signature(cls.forward).parameters
    return {name for name, p in parameters.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD and name != "self"}


def _task_of_kind(kind: str, cls: Any) -> Task | None:
    """The task of a class of that kind, or None if its forward takes other arguments than the kind."""
    parameters, main = inspect.signature(cls.forward).parameters, cls.main_input_name
    if main not in MAIN_INPUTS:
        return None
    task = _MAKERS[kind](main, FEEDS[main], frozenset(parameters))
    fits = {*task.arguments, *task.used} <= parameters.keys() and _required(cls) <= task.arguments
    return task if fits else None


def _without_labels(source: Source, cls: Any) -> Task | None:
    """The task of a class that is fed its inputs alone, or None if one of them is unknown."""
    required, main, parameters = _required(cls), cls.main_input_name, inspect.signature(cls.forward).parameters
    fed = [name for name in parameters if name in FEEDS and (name in required or _has_use(source, name))]
    if main not in fed or not required <= set(fed):
        return None
    loss, notes = (_own_loss, ()) if TARGETS_OF_ITS_OWN & parameters.keys() else (_squares_of_all, (_NO_LABELS,))
    return Task({name: FEEDS[name] for name in fed}, loss, _first_tensor, {name: name for name in fed}, notes=notes)


def _has_use(source: Source, name: str) -> bool:
    """Whether a class of this config has a use for an argument that it does not insist on."""
    return name not in ONLY_IF_REQUIRED and (name not in COUNTED_BY or bool(source.raw.get(COUNTED_BY[name])))

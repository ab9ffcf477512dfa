"""All questions by name, each with the file of its family; answering a question imports only that family."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from calc.capacity.questions.given import keys_of, nearest, takes
from calc.capacity.questions.question import Question
from calc.errors import BadInputError

FAMILIES: dict[str, tuple[str, ...]] = {
    "training": ("training-time", "gpus", "tokens-in-time", "tokens", "flops", "device-flops", "time-per-step", "steps"),
    "economics": ("gpu-hours", "cost", "energy", "carbon", "saving"),
    "memory": (
        "largest-model", "training-state", "fits", "what-fits", "largest-batch", "largest-sequence", "largest-depth", "largest-width",
    ),
    "inference": (
        "time-per-token", "tokens-per-second", "cache-per-token", "cache", "largest-concurrency", "prefill-time", "decode-turning-point",
        "bandwidth-bound", "quantized",
    ),
    "scaling": ("compute-optimal", "loss"),
    "batches": ("critical-batch", "noise-scale", "steps-at-batch", "critical-batch-of-loss"),
    "reliability": ("checkpoint-interval",),
    "limits": ("attention-crossover", "six-nd-error", "roofline", "ridge-point", "matmul", "data-parallel-tokens"),
    "sharding": (
        "sharding", "fewest-ranks", "tensor-traffic", "pipeline-traffic", "pipeline-bubble", "context-traffic", "expert-traffic",
    ),
    "utilization": ("mfu", "hfu", "training-mfu", "transformer-flops", "transformer-mfu", "speed-up"),
    "runs": ("compare",),
}  # fmt: skip

# Other names under which a question is looked for.
_OTHER_NAMES = {
    "memory": "fits", "vram": "fits", "how-long": "training-time", "duration": "training-time", "time": "training-time",
    "how-many-gpus": "gpus", "price": "cost", "money": "cost", "throughput": "tokens-per-second", "latency": "time-per-token",
    "kv-cache": "cache", "max-batch": "largest-batch", "batch-size": "largest-batch", "max-context": "largest-sequence",
    "context-length": "largest-sequence", "chinchilla": "compute-optimal", "zero": "fewest-ranks",
}  # fmt: skip


def question(name: str) -> Question:
    """The question of that name."""
    for family, names in FAMILIES.items():
        if name in names:
            return next(q for q in _of(family) if q.name == name)
    by_answer = [q.name for q in all_questions() if q.variable(q.answer).key == name]
    near = _OTHER_NAMES.get(name.lower(), "") or next(iter(by_answer), "") or nearest(name, all_names())
    raise BadInputError(f"unknown question {name[:40]!r}: {f'did you mean {near}?' if near else 'see napkin list questions'}")


def having(key: str) -> tuple[str, ...]:
    """The names of the questions that take a key."""
    return tuple(q.name for q in all_questions() if key in keys_of(q))


def taking(keys: Iterable[str], beside: Question) -> tuple[str, ...]:
    """The names of the questions in the family of ``beside`` that take all of ``keys``."""
    written = tuple(keys)
    families = (_of(family) for family, names in FAMILIES.items() if beside.name in names)
    return tuple(q.name for questions in families for q in questions if takes(q, written))


def all_names() -> tuple[str, ...]:
    """The names of all questions, in the order of the list."""
    return tuple(name for names in FAMILIES.values() for name in names)


def all_questions() -> tuple[Question, ...]:
    """All questions, loaded."""
    return tuple(q for family in FAMILIES for q in _of(family))


def _of(family: str) -> tuple[Question, ...]:
    questions: tuple[Question, ...] = importlib.import_module(f"calc.capacity.questions.{family}").QUESTIONS
    return questions

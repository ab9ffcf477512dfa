"""The names of the parts of a model, and their order in a table. Apart from ``model_parts``: a stored answer needs the names alone."""

from __future__ import annotations

EMBEDDING, QKV, SCORES, SOFTMAX, MIX, PROJECT, ATTENTION, FEED_FORWARD, EXPERTS, ROUTER, NORMS, HEAD, LOSS, REMAINDER = (
    "embedding", "query, key and value", "query keyᵀ", "softmax", "probs value", "attention output", "attention", "feed-forward", "experts",
    "router", "norms", "head", "loss", "other",
)  # fmt: skip
OF_ATTENTION = frozenset((QKV, SCORES, SOFTMAX, MIX, PROJECT, ATTENTION))
_LAYER = (EMBEDDING, QKV, SCORES, SOFTMAX, MIX, PROJECT, ATTENTION, FEED_FORWARD, EXPERTS, ROUTER)
_AROUND = (NORMS, HEAD, LOSS, REMAINDER)
NAMES = frozenset((*_LAYER, *_AROUND))
# What is of no part of the model: the tensors and operators of the optimizer that no single parameter has, and the number of the step.
OUTSIDE = {"(optimizer)": "optimizer", "(iteration)": "iteration number"}


def place(part: str) -> int:
    """The place of a part in a table: a module path is behind the parts of a layer, that of the whole optimizer the last."""
    if part in NAMES:
        return _LAYER.index(part) if part in _LAYER else len(_LAYER) + 1 + _AROUND.index(part)
    return len(NAMES) + 1 if part in OUTSIDE.values() else len(_LAYER)

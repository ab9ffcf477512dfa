"""Parameters that one token uses, and parameters that no embedding looks up, observed in a real forward.

A matrix multiplies every row, so it is used whole. A grouped matmul gives each row one matrix of a stack (an expert's): the elements that
all rows read, divided by the number of tokens, are those of one token. Where a model uses what it chose (``topk``) and indexes a
parameter, or has data-dependent sizes, a run does not show what belongs to a token.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from calc.experiment.composite_operators import decomposed, is_composite
from calc.measure.kinds import tensors_in
from calc.measure.measurement import Reading
from calc.measure.training import Training
from calc.platform.torch_private import TorchDispatchMode

INSTRUMENT = "the real forward's uses of each parameter"
_LOOKUPS = ("aten.embedding.", "aten._embedding_bag", "aten.index.Tensor", "aten.index_select.")
_ROWS = ("aten.index.Tensor", "aten.index_select.")  # rows in the order of a choice may be split among experts
_CHOICES = ("aten.topk.", "aten.argmax.", "aten.max.dim", "aten.sort.", "aten.argsort.", "aten.multinomial.")
_OWN_MATRIX = "aten._grouped_mm."


class ParameterWatch(TorchDispatchMode):
    """Sees how a forward uses the parameters of ``run``."""

    def __init__(self, run: Training) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves its modes untyped
        self._parameters = {_key(p): p.numel() for p in reversed(list(run.module.parameters()))}
        self._shapes = {_key(p): tuple(p.shape) for p in run.module.parameters()}
        self._ids = {_key(t) for t in tensors_in(run.inputs)}
        self._tokens = next((_rows(t) for t in tensors_in(run.inputs)), 0)
        self._forwards = 0
        self._tables: dict[int, bool] = {}
        self._whole: set[int] = set()
        self._picked: dict[int, int] = {}
        self._indexed = False
        self._chosen = False
        self._in_order = False
        self._choices: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._because = ""
        self._last = _LastMatrices(run)

    def __enter__(self) -> Any:
        self._forwards += 1
        return super().__enter__()  # type: ignore[no-untyped-call]  # torch leaves its modes untyped

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_composite(func):
            return decomposed(self, func, args, kwargs)
        operands = list(tensors_in([*args, *(kwargs or {}).values()]))
        outputs = func(*args, **(kwargs or {}))
        self._last.note(operands, tensors_in(outputs))
        if not any(_key(out) == _key(t) for out in tensors_in(outputs) for t in operands):  # no view
            self._note(str(func), operands)
            chooses = str(func).startswith(_CHOICES) and self._last.is_learned(operands[0])  # no lengths that are sorted, no random order
            if chooses or any(map(self._is_chosen, operands)):
                self._admit(tensor for tensor in tensors_in(outputs) if not tensor.is_floating_point())
        return outputs

    def _is_chosen(self, tensor: Tensor) -> bool:
        return _key(tensor) in self._choices

    def _admit(self, indices: Iterable[Tensor]) -> None:
        """Note indices that may be a router's choice, or made of one, if an operator takes them: a softmax takes the maximum alone."""
        for tensor in indices:
            key = _key(tensor)
            self._choices[key] = weakref.ref(tensor.untyped_storage(), lambda _, key=key: self._choices.pop(key))  # type: ignore[misc]  # a default binds the key of this turn

    def _note(self, name: str, operands: list[Tensor]) -> None:
        self._chosen |= any(map(self._is_chosen, operands))
        self._in_order |= name.startswith(_ROWS) and any(map(self._is_chosen, operands[1:]))
        if name.startswith(_OWN_MATRIX) and not any(_key(t) in self._parameters for t in operands):
            self._because = f"{name} multiplies by copies of parameters"
        for tensor in operands:
            key = _key(tensor)
            if key not in self._parameters:
                continue
            if name.startswith(_LOOKUPS) and key == _key(operands[0]) and operands[-1].dtype != torch.bool:
                self._indexed |= "embedding" not in name or any(map(self._is_chosen, operands[1:]))
                self._tables[key] = self._tables.get(key, False) or any(_key(t) in self._ids for t in operands)
            if name.startswith(_OWN_MATRIX):
                self._picked[key] = self._picked.get(key, 0) + operands[0].shape[0] * math.prod(tensor.shape[1:])
            else:
                self._whole.add(key)

    def readings(self, unbacked_sizes: Mapping[str, Iterable[int]]) -> dict[str, Reading]:
        """``parameters.active`` and ``parameters.non_embedding``; ``unbacked_sizes`` are the data-dependent sizes of the run."""
        vocabulary = {frozenset(self._shapes[key]) for key, by_input in self._tables.items() if by_input}
        heads = (key for key in self._last.matrices() if len(self._shapes[key]) == 2 and frozenset(self._shapes[key]) in vocabulary)
        embeddings = {*self._tables, *heads}
        others = sum(elements for key, elements in self._parameters.items() if key not in embeddings)
        unclear = "an index or a data-dependent size may come from a choice: a run does not show what belongs to a token"
        divided = self._in_order and not self._picked
        because = unclear if self._chosen and (self._indexed or divided or unbacked_sizes) else ""
        without = Reading(None, INSTRUMENT, because) if because and self._indexed else Reading(others, INSTRUMENT)
        return {"parameters.active": self._active(because), "parameters.non_embedding": without}

    def _active(self, because: str) -> Reading:
        picked = {key: elements for key, elements in self._picked.items() if key not in self._whole}
        tokens = self._tokens * self._forwards
        because = because or self._because
        if not because and picked and (not tokens or any(elements % tokens for elements in picked.values())):
            because = "the rows of a grouped matmul are not a whole number for each token of the input"
        if because:
            return Reading(None, INSTRUMENT, because)
        each = {key: elements // tokens for key, elements in picked.items()}
        return Reading(sum(min(elements, each.get(key, elements)) for key, elements in self._parameters.items()), INSTRUMENT)


class _Made(NamedTuple):
    """What is in a storage: something of an input, the last matrices of parameters on the way, something of any parameter."""

    by_input: bool
    matrices: frozenset[int]
    learned: bool


class _LastMatrices:
    """The matrices of parameters that no other follows on the way from the inputs to the loss: a table's sizes alone make no head, a square
    projection has them where V = d."""

    def __init__(self, run: Training) -> None:
        self._made = {_key(t): _Made(True, frozenset(), False) for t in tensors_in(run.inputs)}
        for parameter in run.module.parameters():
            key = _key(parameter)
            self._made[key] = _Made(False, frozenset((key,) if parameter.squeeze().dim() > 1 else ()), True)
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._used: set[int] = set()
        self._not_last: set[int] = set()

    def note(self, operands: Iterable[Tensor], results: Iterable[Tensor]) -> None:
        """An operator of ``operands``, with its results."""
        of = [self._made[key] for key in map(_key, operands) if key in self._made]
        data = frozenset[int]().union(*(made.matrices for made in of if made.by_input))
        own = frozenset[int]().union(*(made.matrices for made in of if not made.by_input))
        by_input = any(made.by_input for made in of)
        if by_input and own:
            self._used |= own
            self._not_last |= data - own
        for result in results if of else ():
            self._mark(result, _Made(by_input, own or data, any(made.learned for made in of)))

    def is_learned(self, scores: Tensor) -> bool:
        """Whether these are fractions that parameters give."""
        made = self._made.get(_key(scores))
        return scores.is_floating_point() and made is not None and made.learned

    def _mark(self, tensor: Tensor, made: _Made) -> None:
        key = _key(tensor)
        if key not in self._alive and key in self._made:  # an input or a parameter
            return
        self._made[key] = made
        self._alive[key] = weakref.ref(tensor.untyped_storage(), lambda _: self._forget(key))

    def _forget(self, key: int) -> None:
        self._alive.pop(key, None)
        self._made.pop(key, None)

    def matrices(self) -> set[int]:
        """Keys of the last matrices of the forwards so far."""
        return self._used - self._not_last


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _rows(tensor: Tensor) -> int:
    """Tokens of an input: its elements if they are ids, else its rows."""
    return math.prod(tensor.shape[:-1]) if tensor.is_floating_point() and tensor.dim() > 1 else tensor.numel()

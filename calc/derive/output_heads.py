"""Matrices of parameters that a forward multiplies last: what an output head is, told from a layer's matrix of the same sizes.

A vocabulary of V = d ids has a table of the sizes of every square projection. Of the projections the product goes on to another matrix of
the model; of the head it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from calc.graph.step import Op, StepTrace, tensors

_Parameters = frozenset[int]
_NONE: _Parameters = frozenset()


def last_matrices(trace: StepTrace) -> frozenset[int]:
    """Storages of the parameters of two or more sizes above 1 that a forward multiplies, and whose products no other of them multiplies."""
    matrices = {tensor.storage for _, tensor in trace.parameters if sum(size != 1 for size in tensor.shape) > 1}
    inputs = (storage.index for storage in trace.storages if storage.role == "input")
    products = _LastFactors({storage: frozenset((storage,)) for storage in matrices}, inputs)
    for op in trace.ops:
        if op.step == 2 and op.phase == "forward":
            products.follow(op)
    return products.last()


class _LastFactors:
    """Follows the forward by storage.

    ``_weights``  what is computed of parameters alone, a cast or a quantized copy: the parameters that it is computed of.
    ``_factors``  what is computed of the model's inputs: the parameters that were multiplied last on the way.
    """

    def __init__(self, weights: Mapping[int, _Parameters], inputs: Iterable[int]) -> None:
        self._weights = dict(weights)
        self._factors: dict[int, _Parameters] = dict.fromkeys(inputs, _NONE)
        self._multiplied, self._followed = _NONE, _NONE

    def follow(self, op: Op) -> None:
        operands = [tensor.storage for tensor in tensors(value for _, value in op.args)]
        weights = _NONE.union(*(self._weights.get(storage, _NONE) for storage in operands))
        if not any(storage in self._factors for storage in operands):
            self._weights |= {out.storage: weights for out in op.outputs if weights}
            return
        before = _NONE.union(*(self._factors.get(storage, _NONE) for storage in operands))
        self._multiplied |= weights
        self._followed |= before - weights if weights else _NONE
        self._factors |= {out.storage: weights or before for out in op.outputs}

    def last(self) -> frozenset[int]:
        return self._multiplied - self._followed

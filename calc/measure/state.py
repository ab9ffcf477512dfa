"""Sizes of the parameters, gradients, optimizer state and a checkpoint file, read from the objects themselves."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calc.measure.kinds import tensors_in
from calc.measure.measurement import Reading
from calc.measure.storages import distinct_storages
from calc.measure.training import Training, blame


def measure_parameters(run: Training) -> Reading:
    """Number of elements of the named parameters; parameters with the same storage and layout count once."""
    distinct = {_memory(p): p.numel() for _, p in run.module.named_parameters()}
    return Reading(sum(distinct.values()), "named_parameters of the built module")


def _memory(p: Tensor) -> tuple[object, ...]:
    # Tied weights are usually one object, which named_parameters yields once; two objects with one storage also count once.
    return p.untyped_storage()._cdata, p.storage_offset(), tuple(p.shape), p.stride()


def measure_weights(run: Training) -> dict[str, Reading]:
    """Bytes of the parameters in their own dtype, and of the fp32 master weights, if any."""
    weights = {"parameters.bytes": _bytes_of(list(run.module.parameters()), "storages of the module's parameters", "a parameter")}
    if run.masters is None:
        return weights
    return weights | {"master_weights.bytes": _bytes_of(list(run.masters.stepped), "storages of the copies in fp32", "a copy")}


def measure_gradients(run: Training) -> Reading:
    """Bytes of the gradients between the backward and the optimizer step."""
    gradients = [p.grad for _, p in run.module.named_parameters() if p.grad is not None]
    return _bytes_of(gradients, "parameter.grad after loss.backward()", "a gradient")


def measure_optimizer_state(run: Training) -> Reading:
    """Bytes of every tensor in the optimizer's state."""
    assert run.optimizer is not None
    return _bytes_of(list(tensors_in(run.optimizer.state)), "tensors in optimizer.state after two steps", "the optimizer's state")


def measure_checkpoint(run: Training) -> Reading:
    """Bytes of the distinct storages of a checkpoint, written by ``torch.save`` and read back, as empty space: what they hold is not
    looked at.

    Without an optimizer, only the model is saved.
    """
    state: dict[str, Any] = {"model": run.module.state_dict()}
    if run.optimizer is not None:
        state |= {"optimizer": run.optimizer.state_dict(), "iteration": torch.tensor(1)}
    if run.masters is not None:
        state["master weights"] = list(run.masters.stepped)
    with tempfile.TemporaryDirectory() as folder, blame(run.spec, run.sizes, "writing a checkpoint"), torch.serialization.skip_data():
        path = Path(folder) / "checkpoint.pt"
        torch.save(state, path)
        # This file is our own; a state may contain objects that weights_only rejects.
        loaded = torch.load(path, weights_only=False)
    return _bytes_of(list(tensors_in(loaded)), "torch.save, torch.load, distinct storages", "the checkpoint")


def _bytes_of(tensors: list[Tensor], instrument: str, label: str) -> Reading:
    try:
        return Reading(sum(distinct_storages(tensors).values()), instrument)
    except RuntimeError:
        return Reading(None, instrument, f"{label} holds a tensor without a storage (sparse)")

"""Numbers that are simply there to be read off the module, its gradients, its optimizer and a checkpoint file."""

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
    """Elements of the named parameters; parameters that are the same memory seen alike are one."""
    distinct = {_memory(p): p.numel() for _, p in run.module.named_parameters()}
    return Reading(sum(distinct.values()), "named_parameters of the built module")


def _memory(p: Tensor) -> tuple[object, ...]:
    # Tied weights are usually one object, which named_parameters gives once; two objects over one memory count once too.
    return p.untyped_storage()._cdata, p.storage_offset(), tuple(p.shape), p.stride()


def measure_weights(run: Training) -> dict[str, Reading]:
    """Bytes of the parameters in their own format, and of the copies that the optimizer steps, where there are such."""
    weights = {"parameters.bytes": _bytes_of(list(run.module.parameters()), "storages of the module's parameters", "a parameter")}
    if run.masters is None:
        return weights
    return weights | {"master_weights.bytes": _bytes_of(list(run.masters.stepped), "storages of the copies in fp32", "a copy")}


def measure_gradients(run: Training) -> Reading:
    """Bytes of the gradients as they are between the backward and the optimizer step."""
    gradients = [p.grad for _, p in run.module.named_parameters() if p.grad is not None]
    return _bytes_of(gradients, "parameter.grad after loss.backward()", "a gradient")


def measure_optimizer_state(run: Training) -> Reading:
    """Bytes of every tensor in the optimizer's state."""
    assert run.optimizer is not None
    return _bytes_of(list(tensors_in(run.optimizer.state)), "tensors in optimizer.state after two steps", "the optimizer's state")


def measure_checkpoint(run: Training) -> Reading:
    """Payload of a checkpoint: written by ``torch.save``, read back, its distinct storages added up.

    A model that is only used is saved alone, without an optimizer and an iteration.
    """
    state: dict[str, Any] = {"model": run.module.state_dict()}
    if run.optimizer is not None:
        state |= {"optimizer": run.optimizer.state_dict(), "iteration": torch.tensor(1)}
    if run.masters is not None:
        state["master weights"] = list(run.masters.stepped)
    with tempfile.TemporaryDirectory() as folder, blame(run.spec, run.sizes, "writing a checkpoint"):
        path = Path(folder) / "checkpoint.pt"
        torch.save(state, path)
        # We wrote this file a moment ago; a state may hold more than the tensors that weights_only lets through.
        loaded = torch.load(path, weights_only=False)
    return _bytes_of(list(tensors_in(loaded)), "torch.save, torch.load, distinct storages", "the checkpoint")


def _bytes_of(tensors: list[Tensor], instrument: str, what: str) -> Reading:
    try:
        return Reading(sum(distinct_storages(tensors).values()), instrument)
    except (NotImplementedError, RuntimeError):
        return Reading(None, instrument, f"{what} holds a tensor without a storage (sparse)")

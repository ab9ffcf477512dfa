"""The operators that a calibration times: memory-bound ones, matmuls, and the program's own overhead per operator.

Their FLOPs and bytes follow from their sizes: 2 FLOP per multiply-add, every tensor once. No model is among them.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from calc.hardware import calibration as names
from calc.measure.primitive import Action, Primitive, random_of
from calc.measure.primitives_matmul import matmuls
from calc.measure.primitives_memory import memory

_CHAIN = _PARAMETERS = 64


def primitives(device: str) -> Iterator[Primitive]:
    """All primitives for tensors on ``device``, including those for which it may lack a kernel."""
    yield from _overheads(device)
    yield from memory(device)
    yield from matmuls(device)


def _overheads(device: str) -> Iterator[Primitive]:
    """Overheads, on tensors of four elements: an operator, a view, an operator in a module under autograd, a backward node, and an
    operator of an optimizer's loop over parameters."""

    def launch() -> Action:
        x = random_of((4,), device)
        return lambda: x + x

    def view() -> Action:
        x = random_of((4,), device)
        return lambda: x.view(2, 2)

    def recorded() -> Action:
        x = random_of((4,), device).requires_grad_()
        modules = torch.nn.Sequential(*(torch.nn.ReLU() for _ in range(_CHAIN)))

        def run() -> object:
            with torch.enable_grad():
                return modules(x)

        return run

    def back() -> Action:
        x = random_of((4,), device).requires_grad_()
        with torch.enable_grad():
            y = x
            for _ in range(_CHAIN):
                y = y + 1.0
        upstream = torch.ones_like(y)
        return lambda: torch.autograd.grad(y, x, upstream, retain_graph=True)

    def stepping() -> Action:
        parameters = [torch.nn.Parameter(random_of((4,), device)) for _ in range(_PARAMETERS)]
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        return torch.optim.SGD(parameters, lr=0.0, momentum=0.9, weight_decay=0.1, foreach=False).step

    yield Primitive(names.LAUNCH, "float32", {}, 0, 0, launch)
    yield Primitive(names.VIEW, "float32", {}, 0, 0, view)
    yield Primitive(names.FORWARD, "float32", {}, 0, 0, recorded, _CHAIN)
    yield Primitive(names.BACKWARD, "float32", {}, 0, 0, back, _CHAIN)
    # weight decay, the momentum's two operators, the update
    yield Primitive(names.OPTIMIZER, "float32", {}, 0, 0, stepping, 4 * _PARAMETERS)

"""How long each module of a model takes in a step, by torch's profiler.

Every module's forward is marked by hooks. An operator of the forward counts for the innermost module that it runs in; one of the
backward for the module whose operator it is the backward of: autograd numbers both alike. Times are those of operators themselves
(of their kernels, on a device) without what lies between them. Profiling slows a step down, so these are for shares; how long a step
takes is measured without it.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from calc.measure.training import PHASES, Training

LOSS, TOP, GRADIENTS, OPTIMIZER = "(loss)", "(model)", "(gradients)", "(optimizer)"
STEPS = 3
_SITE, _PHASE = "napkin site ", "napkin phase "
_NODE = "autograd::engine::evaluate_function: "


@dataclass(frozen=True, slots=True)
class ModuleTime:
    """Nanoseconds that the operators of one module took in one step, those of the modules inside it left out."""

    module_path: str
    forward: int
    backward: int
    optimizer: int = 0

    @property
    def total(self) -> int:
        return self.forward + self.backward + self.optimizer

    def to_json(self) -> dict[str, Any]:
        return {"site": self.module_path, "forward": self.forward, "backward": self.backward, "optimizer": self.optimizer}


def module_times(run: Training, steps: int = STEPS) -> tuple[ModuleTime, ...]:
    """The medians of the next ``steps`` steps, each profiled by itself, in the order in which sites first run."""
    profiled = [{module_path.module_path: module_path for module_path in _profiled(run)} for _ in range(steps)]
    return tuple(
        ModuleTime(name, *(round(statistics.median(getattr(one[name], phase) for one in profiled)) for phase in PHASES))
        for name in profiled[0]
        if all(name in one for one in profiled)
    )


def _profiled(run: Training) -> tuple[ModuleTime, ...]:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's library would write marks of its own on standard error
    on_device = run.device.startswith("cuda")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_device else [])]
    with _marked(run.module), profile(activities=activities) as profiler:
        run.step(_phase)
        if on_device:
            torch.cuda.synchronize(run.device)
    return summed(profiler.events(), on_device)


def summed(events: Iterable[Any], on_device: bool) -> tuple[ModuleTime, ...]:
    """What the profiler's events add up to, by site and phase."""
    own = [e for e in events if e.device_type.name == "CPU"]
    module_paths = {
        e.sequence_nr: _site(e) for e in sorted(own, key=lambda e: float(e.time_range.start)) if e.sequence_nr >= 0 and not _node(e)
    }
    times: dict[str, dict[str, float]] = {}
    for event in own:
        if event.name.startswith((_SITE, _PHASE)):
            continue
        phase, module_path = _place(event, module_paths)
        took = event.self_device_time_total if on_device else event.self_cpu_time_total
        parts = times.setdefault(module_path, dict.fromkeys(PHASES, 0.0))
        parts[phase] += took
    # The profiler gives microseconds.
    return tuple(
        ModuleTime(module_path, *(round(1000 * parts[phase]) for phase in PHASES))
        for module_path, parts in times.items()
        if any(parts.values())
    )


def _place(event: Any, module_paths: dict[int, str]) -> tuple[str, str]:
    """Phase and site of an operator."""
    node = _node(event)
    if node is not None:
        inner = _site(event)  # a forward that runs again in the backward has its module around it
        return "backward", inner if inner != LOSS else module_paths.get(node.sequence_nr, GRADIENTS)
    phase = next((e.name.removeprefix(_PHASE) for e in _around(event) if e.name.startswith(_PHASE)), "forward")
    return phase, OPTIMIZER if phase == "optimizer" else _site(event)


def _node(event: Any) -> Any:
    """The node of autograd's graph that an operator runs for, if it does."""
    return next((e for e in _around(event) if e.name.startswith(_NODE)), None)


def _site(event: Any) -> str:
    return next((e.name.removeprefix(_SITE) for e in _around(event) if e.name.startswith(_SITE)), LOSS)


def _around(event: Any) -> Iterator[Any]:
    while event is not None:
        yield event
        event = event.cpu_parent


def _phase(name: str) -> AbstractContextManager[Any]:
    return record_function(_PHASE + name)


@contextmanager
def _marked(module: nn.Module) -> Iterator[None]:
    """Inside, every forward of a part of ``module`` is a span of the profiler by its name. A shared part keeps its first name."""
    open_spans: list[Any] = []
    handles: list[Any] = []

    def enter(name: str) -> Any:
        def hook(*_: Any) -> None:
            open_spans.append(record_function(_SITE + name))
            open_spans[-1].__enter__()

        return hook

    def leave(*_: Any) -> None:
        open_spans.pop().__exit__(None, None, None)

    for name, part in module.named_modules():
        handles.append(part.register_forward_pre_hook(enter(name or TOP)))
        handles.append(part.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()

"""Times of a training step, its phases and its modules on any device, with the device's clocks, temperature and power."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from calc.hardware.times import How
from calc.measure.machine import conditions
from calc.measure.matmul import matmul_dtype, single_precision
from calc.measure.timing import Timed, timed, watch_of
from calc.measure.training import PHASES, Training, blame


@dataclass(frozen=True, slots=True)
class StepTime:
    """Times of every repetition of a step. ``matmul_dtype`` is the number format of its matmuls, ``conditions`` those just before
    and just after; ``module_times`` come from separate steps under the profiler."""

    sizes: Mapping[str, int]
    times: Timed
    matmul_dtype: str
    compiled: bool
    conditions: tuple[Mapping[str, Any], Mapping[str, Any]]
    module_times: tuple[ModuleTime, ...] = ()

    def to_json(self) -> dict[str, Any]:
        before, after = self.conditions
        return {
            **self.times.to_json(),
            "matmul_dtype": self.matmul_dtype,
            "compiled": self.compiled,
            "conditions": {"before": dict(before), "after": dict(after)},
            "modules": self._module_times_json(),
        }

    def _module_times_json(self) -> dict[str, Any] | None:
        """The module times as plain data; ``None`` if they were not measured."""
        if not self.module_times:
            return None
        return {
            "instrument": f"torch.profiler, the median of {STEPS} steps",
            "nanoseconds": [item.to_json() for item in self.module_times],
        }


def time_of_steps(run: Training, how: How | None = None) -> StepTime:
    """Times of single steps of ``run``, by the device's own clock."""
    how = how or How()
    with single_precision(how.tf32, run.device), _compiled(run, how.compiled) as ready:
        before = conditions(run.device)
        times = timed(ready.step, watch_of(run.device), how.repeat)
        after = conditions(run.device)
        times_of_modules = module_times(run) if how.per_module and not how.compiled else ()
    matmul_format = matmul_dtype(run.options.precision, how.tf32)
    return StepTime(dict(run.sizes), times, matmul_format, how.compiled, (before, after), times_of_modules)


@contextmanager
def _compiled(run: Training, compiled: bool) -> Iterator[Training]:
    """Context with ``run`` on the compiled module (compilation happens in its first steps); the compiler is reset on exit."""
    if not compiled:
        yield run
        return
    with blame(run.spec, run.sizes, "compiling the module"):
        module: Any = torch.compile(run.module)
    try:
        yield replace(run, module=module)
    finally:
        torch.compiler.reset()


# -- the time of each module, by torch's profiler ---------------------------------------------------------------------
# Hooks mark every module's forward. An operator of the forward counts for the innermost module that calls it; one of the backward for the
# module of the forward operator with the same autograd sequence number. Times are those of the operators (on a device, of their kernels),
# without gaps between them. Profiling slows a step down, so use these times as shares; step times are measured without it.


LOSS, TOP, GRADIENTS, OPTIMIZER = "(loss)", "(model)", "(gradients)", "(optimizer)"
STEPS = 3
_MODULE, _PHASE = "napkin site ", "napkin phase "
_NODE = "autograd::engine::evaluate_function: "


@dataclass(frozen=True, slots=True)
class ModuleTime:
    """Nanoseconds of one module's own operators in one step, by phase, without those of its submodules."""

    module_path: str
    forward: int
    backward: int
    optimizer: int = 0

    @property
    def total(self) -> int:
        return self.forward + self.backward + self.optimizer

    def to_json(self) -> dict[str, Any]:
        return {"module_path": self.module_path, "forward": self.forward, "backward": self.backward, "optimizer": self.optimizer}


def module_times(run: Training, steps: int = STEPS) -> tuple[ModuleTime, ...]:
    """Medians of the next ``steps`` steps by module, each step profiled separately, in order of first execution."""
    profiled = [{item.module_path: item for item in _profiled(run)} for _ in range(steps)]
    return tuple(
        ModuleTime(name, *(round(statistics.median(getattr(times[name], phase) for times in profiled)) for phase in PHASES))
        for name in profiled[0]
        if all(name in times for times in profiled)
    )


def _profiled(run: Training) -> tuple[ModuleTime, ...]:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler's library logs to standard error
    on_device = run.device.startswith("cuda")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_device else [])]
    with _marked(run.module), profile(activities=activities) as profiler:
        run.step(_phase)
        if on_device:
            torch.cuda.synchronize(run.device)
    return summed(profiler.events(), on_device)


def summed(events: Iterable[Any], on_device: bool) -> tuple[ModuleTime, ...]:
    """Sums of the profiler's events in nanoseconds, by module path and phase."""
    own = [e for e in events if e.device_type.name == "CPU"]
    module_paths = {
        e.sequence_nr: _module_path_of(e)
        for e in sorted(own, key=lambda e: float(e.time_range.start))
        if e.sequence_nr >= 0 and not _node(e)
    }
    times: dict[str, dict[str, float]] = {}
    for event in own:
        if event.name.startswith((_MODULE, _PHASE)):
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
    """(phase, module path) of an operator."""
    node = _node(event)
    if node is not None:
        inner = _module_path_of(event)  # a forward recomputed in the backward runs inside its module
        return "backward", inner if inner != LOSS else module_paths.get(node.sequence_nr, GRADIENTS)
    phase = next((e.name.removeprefix(_PHASE) for e in _around(event) if e.name.startswith(_PHASE)), "forward")
    return phase, OPTIMIZER if phase == "optimizer" else _module_path_of(event)


def _node(event: Any) -> Any:
    """The autograd node during which an operator runs, else ``None``."""
    return next((e for e in _around(event) if e.name.startswith(_NODE)), None)


def _module_path_of(event: Any) -> str:
    return next((e.name.removeprefix(_MODULE) for e in _around(event) if e.name.startswith(_MODULE)), LOSS)


def _around(event: Any) -> Iterator[Any]:
    while event is not None:
        yield event
        event = event.cpu_parent


def _phase(name: str) -> AbstractContextManager[Any]:
    return record_function(_PHASE + name)


@contextmanager
def _marked(module: nn.Module) -> Iterator[None]:
    """Context in which each submodule's forward is a profiler span named by its module path; a shared submodule has that of the module that
    calls it, else its first."""
    running: list[tuple[str, Any]] = []
    handles: list[Any] = []
    names: dict[nn.Module, list[str]] = {}
    for name, submodule in module.named_modules(remove_duplicate=False):
        names.setdefault(submodule, []).append(name or TOP)

    def enter(submodule: nn.Module, _: Any) -> None:
        caller = f"{running[-1][0]}." if running else ""
        name = next((name for name in names[submodule] if name.startswith(caller)), names[submodule][0])
        running.append((name, record_function(_MODULE + name)))
        running[-1][1].__enter__()

    def leave(*_: Any) -> None:
        running.pop()[1].__exit__(None, None, None)

    for submodule in names:
        handles.append(submodule.register_forward_pre_hook(enter))
        handles.append(submodule.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()

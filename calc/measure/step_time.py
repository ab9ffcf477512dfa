"""Times of a training step, its phases and its modules on any device, with the device's clocks, temperature and power."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from calc.hardware.benchmark import How
from calc.measure.machine import conditions
from calc.measure.matmul_precision import matmul_dtype, single_precision
from calc.measure.module_times import STEPS, ModuleTime, module_times
from calc.measure.timing import Timed, Watch, timed, watch_of
from calc.measure.training import Training, blame


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


def time_of_steps(run: Training, how: How | None = None, watch: Watch | None = None) -> StepTime:
    """Times of single steps of ``run``; ``watch`` defaults to the device's own clock."""
    how = how or How()
    with single_precision(how.tf32, run.device), _compiled(run, how.compiled) as ready:
        before = conditions(run.device)
        times = timed(ready.step, watch or watch_of(run.device), how.repeat)
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

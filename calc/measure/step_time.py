"""Times of a training step, its phases and its modules on any device, with the device's clocks, temperature and power."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from calc.hardware.benchmark import How
from calc.measure.machine import conditions
from calc.measure.products import product_format, single_precision
from calc.measure.sites import STEPS, ModuleTime, module_times
from calc.measure.timing import Timed, Watch, timed, watch_of
from calc.measure.training import Training, blame


@dataclass(frozen=True, slots=True)
class StepTime:
    """Times of every repetition of a step. ``product_format`` is the number format of its matmuls, ``conditions`` those just before
    and just after; ``module_times`` come from separate steps under the profiler."""

    sizes: Mapping[str, int]
    times: Timed
    product_format: str
    compiled: bool
    conditions: tuple[Mapping[str, Any], Mapping[str, Any]]
    module_times: tuple[ModuleTime, ...] = ()

    def to_json(self) -> dict[str, Any]:
        before, after = self.conditions
        return {
            **self.times.to_json(),
            "product_format": self.product_format,
            "compiled": self.compiled,
            "conditions": {"before": dict(before), "after": dict(after)},
            "sites": self._sites(),
        }

    def _sites(self) -> dict[str, Any] | None:
        """The module times as plain data; ``None`` if they were not measured."""
        if not self.module_times:
            return None
        return {
            "instrument": f"torch.profiler, the median of {STEPS} steps",
            "nanoseconds": [module_path.to_json() for module_path in self.module_times],
        }


def time_of_steps(run: Training, how: How | None = None, watch: Watch | None = None) -> StepTime:
    """Times of single steps of ``run``; ``watch`` defaults to the device's own clock."""
    how = how or How()
    with single_precision(how.tf32, run.device), _compiled(run, how.compiled) as ready:
        before = conditions(run.device)
        times = timed(ready.step, watch or watch_of(run.device), how.repeat)
        after = conditions(run.device)
        module_paths = module_times(run) if how.per_module and not how.compiled else ()
    made = product_format(run.options.precision, how.tf32)
    return StepTime(dict(run.sizes), times, made, how.compiled, (before, after), module_paths)


@contextmanager
def _compiled(run: Training, wanted: bool) -> Iterator[Training]:
    """Context with ``run`` on the compiled module (compilation happens in its first steps); the compiler is reset on exit."""
    if not wanted:
        yield run
        return
    with blame(run.spec, run.sizes, "compiling the module"):
        module: Any = torch.compile(run.module)
    try:
        yield replace(run, module=module)
    finally:
        torch.compiler.reset()

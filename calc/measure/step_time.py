"""The time of a training step and of its parts, on whatever device it runs; what the device was like; and what each module took."""

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
    """Every repetition of a step. ``product_format`` is what its matrices are multiplied in; ``conditions`` are those just before and
    just after; ``sites`` come from a step of their own, under the profiler."""

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
        """Nothing where modules were not told apart."""
        if not self.module_times:
            return None
        return {
            "instrument": f"torch.profiler, the median of {STEPS} steps",
            "nanoseconds": [module_path.to_json() for module_path in self.module_times],
        }


def time_of_steps(run: Training, how: How | None = None, watch: Watch | None = None) -> StepTime:
    """Steps of a training that is set up, timed one by one; ``watch`` is the device's own where none is given."""
    how = how or How()
    with single_precision(how.tf32, run.device), _compiled(run, how.compiled) as ready:
        before = conditions(run.device)
        times = timed(ready.step, watch or watch_of(run.device), how.repeat)
        after = conditions(run.device)
        module_paths = module_times(run) if how.sites and not how.compiled else ()
    made = product_format(run.options.precision, how.tf32)
    return StepTime(dict(run.sizes), times, made, how.compiled, (before, after), module_paths)


@contextmanager
def _compiled(run: Training, wanted: bool) -> Iterator[Training]:
    """The same training with the module compiled, which happens in its first steps; what was compiled is forgotten afterwards."""
    if not wanted:
        yield run
        return
    with blame(run.spec, run.sizes, "compiling the module"):
        module: Any = torch.compile(run.module)
    try:
        yield replace(run, module=module)
    finally:
        torch.compiler.reset()

"""Second moments of a model's activations at initialization, sampled: the module is built and run once per seed.

Each draw takes the mean square over the elements of every module's result, by module path. This does not depend on how moments
are derived.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from calc.experiment.checkpointing import built
from calc.measure.free_memory import require_free_memory
from calc.measure.training import blame, seed_of
from calc.spec import Sizes, Spec


@dataclass(frozen=True, slots=True)
class Sampled:
    """Mean over the draws of the mean square of a module's last result (``second``), with its standard error; ``calls`` per forward."""

    second: float
    error: float
    draws: int
    calls: int


def sample(spec: Spec, sizes: Mapping[str, int], draws: int, seed: int = 0) -> dict[str, Sampled]:
    """Mean squares by module path, over ``draws`` draws of parameters and inputs, others for another ``seed``. Modules with a non-floating
    result are left out."""
    squares_by_module: dict[str, list[list[float]]] = {}
    free = {name: size for name, size in sizes.items() if not spec.dimensions[name].tied}
    require_free_memory(spec, spec.sizes(free), trains=False)
    for draw in range(draws):
        for name, squares in _one(spec, spec.sizes(free), seed_of(seed, draw)).items():
            squares_by_module.setdefault(name, []).append(squares)
    return {name: _sampled(each) for name, each in squares_by_module.items()}


def _one(spec: Spec, sizes: Mapping[str, int], seed: int) -> dict[str, list[float]]:
    squares: dict[str, list[float]] = {}
    with blame(spec, sizes, f"a draw with seed {seed}"), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        n = Sizes(**sizes)
        module, inputs = built(spec, n), spec.inputs(n)
        module.train()
        hooks = [part.register_forward_hook(partial(_look, squares, name)) for name, part in module.named_modules()]
        spec.loss(module, *inputs)
        for hook in hooks:
            hook.remove()
    return squares


def _look(squares: dict[str, list[float]], name: str, module: Any, args: Any, result: Any) -> None:
    first = result[0] if isinstance(result, tuple | list) and result else result
    if isinstance(first, torch.Tensor) and first.is_floating_point() and first.numel():
        squares.setdefault(name, []).append(float(first.double().square().mean()))


def _sampled(draws: list[list[float]]) -> Sampled:
    last = [each[-1] for each in draws]
    mean = math.fsum(last) / len(last)
    spread = math.fsum((x - mean) ** 2 for x in last) / max(len(last) - 1, 1)
    return Sampled(mean, math.sqrt(spread / len(last)), len(last), max(len(each) for each in draws))

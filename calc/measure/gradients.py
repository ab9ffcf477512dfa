"""Gradients of a real run by torch's autograd, in float64, and by central differences, to compare derived gradients with.

Everything is in float64, even where the model names float32, so that differences of 1e-9 are above rounding. The run's random draws are
returned in order, since the derived equations take them as given.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from calc.errors import SpecError
from calc.experiment.checkpointing import built
from calc.experiment.inputs import inputs_at, mapped
from calc.experiment.precision import double_by_default
from calc.experiment.threads import one_thread
from calc.measure.free_memory import require_free_memory
from calc.measure.kinds import tensors_in
from calc.measure.training import blame
from calc.options import Options
from calc.platform.torch_private import TorchDispatchMode
from calc.spec import Sizes, Spec

Array = Any  # np.ndarray of float64

# Parameters are perturbed after initialization, so that a weight of 1 or a bias of 0 hides no error.
_PERTURBATION = 0.1
# Two step sizes that give the same slope rule out a kink within them.
_STEPS = (1e-5, 1e-6)
_SMOOTH = 1e-6
_MOST_PLACES = 12
# Lower bound of the scale of differences: sums that cancel, such as those of a normalized row, leave only the rounding of terms of
# order one.
_LEAST_SCALE = 1e-3
_DRAWS = frozenset(
    """bernoulli bernoulli_ rand rand_like randn randn_like randint randint_like randperm normal normal_ uniform_ multinomial exponential_
    poisson _sample_dirichlet _standard_gamma native_dropout""".split()  # noqa: SIM905  # names of operators
)


@dataclass(frozen=True, slots=True)
class ObservedGradients:
    """One forward and backward. ``leaves`` are the parameters, buffers and inputs by (role, name), ``drawn`` the results of random
    operators in order, by operator.

    ``slopes`` are (parameter, index, central difference) at some elements of the parameters; ``kinks`` counts the elements without one
    because the loss has a kink there (a ReLU switches within a step).
    """

    loss: float
    leaves: Mapping[tuple[str, str], Array]
    drawn: tuple[tuple[str, Array], ...]
    gradients: Mapping[str, Array]
    slopes: tuple[tuple[str, tuple[int, ...], float], ...]
    kinks: int = 0


def observe(spec: Spec, sizes: Mapping[str, int], options: Options, seed: int = 0) -> ObservedGradients:
    """Gradients of every parameter of ``spec`` at ``sizes``, and a central difference at one element of each, at 12 elements in all."""
    require_free_memory(spec, sizes, True)
    attention = sdpa_kernel(SDPBackend.MATH) if options.attention == "math" else contextlib.nullcontext()
    with (
        contextlib.redirect_stdout(sys.stderr),
        torch.random.fork_rng(devices=[]),
        double_by_default(),
        _AsDouble(),
        one_thread(),  # also one order of sums
        attention,
        blame(spec, sizes, "taking gradients"),
    ):
        torch.manual_seed(seed)
        module = built(spec, Sizes(**sizes)).double().train(options.trains)
        inputs = mapped(lambda t: t.double() if t.is_floating_point() else t, inputs_at(spec, Sizes(**sizes)))
        _perturb(module)
        return _observed(spec, module, inputs, seed)


def _perturb(module: torch.nn.Module) -> None:
    with torch.no_grad():
        for p in module.parameters():
            p.add_(_PERTURBATION * torch.randn_like(p))


def _observed(spec: Spec, module: torch.nn.Module, inputs: tuple[Any, ...], seed: int) -> ObservedGradients:
    parameters = dict(module.named_parameters())
    before = _buffers(spec, module, inputs)
    leaves = {("parameter", n): _array(p) for n, p in parameters.items()}
    leaves |= {("buffer", n): _array(b) for n, b in before.items()}
    leaves |= {("input", str(i)): _array(t) for i, t in enumerate(tensors_in(inputs))}

    def forward() -> Tensor:
        torch.manual_seed(seed + 1)
        with torch.no_grad():
            for n, b in module.named_buffers():
                b.copy_(before[n])
        loss = spec.loss(module, *inputs)
        if not isinstance(loss, Tensor) or loss.dim() != 0:
            raise SpecError(f"spec {spec.name!r}: loss must return a scalar tensor")
        return loss

    with _double_operators(), _Draws() as draws:
        loss = forward()
    with _double_operators():
        loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
    gradients = {n: _array(p.grad) for n, p in parameters.items() if p.grad is not None}
    measured = _slopes(gradients, parameters, forward, seed)
    slopes = tuple((n, at, slope) for n, at, slope in measured if slope is not None)
    return ObservedGradients(float(loss.detach()), leaves, tuple(draws.drawn), gradients, slopes, len(measured) - len(slopes))


def _buffers(spec: Spec, module: torch.nn.Module, inputs: tuple[Any, ...]) -> dict[str, Tensor]:
    """Every buffer before a forward; those that the first forward registers, as it leaves them."""
    before = {n: b.clone() for n, b in module.named_buffers()}
    with _double_operators(), torch.no_grad():
        spec.loss(module, *inputs)
    return {n: b.clone() for n, b in module.named_buffers()} | before


def scale_of(gradients: Mapping[str, Array]) -> float:
    """The scale for relative differences: the largest finite gradient in magnitude, at least 1e-3."""
    return max((float(np.abs(g[np.isfinite(g)]).max(initial=_LEAST_SCALE)) for g in gradients.values()), default=_LEAST_SCALE)


def _slopes(
    gradients: Mapping[str, Array], parameters: Mapping[str, Tensor], forward: Any, seed: int
) -> list[tuple[str, tuple[int, ...], float | None]]:
    """(parameter, index, (L(w + s) - L(w - s))/2s) per chosen element; ``None`` for the slope if two steps s disagree."""
    generator = np.random.default_rng(seed)
    scale = scale_of(gradients)
    chosen = [(n, int(i)) for n in gradients for i in generator.integers(parameters[n].numel(), size=1) if parameters[n].numel()]
    if len(chosen) > _MOST_PLACES:
        chosen = [chosen[i] for i in generator.choice(len(chosen), size=_MOST_PLACES, replace=False)]
    slopes: list[tuple[str, tuple[int, ...], float | None]] = []
    for name, at in sorted(set(chosen)):
        first, second = (_slope(parameters[name], at, step, forward) for step in _STEPS)
        place = tuple(int(i) for i in np.unravel_index(at, tuple(parameters[name].shape)))
        slopes.append((name, place, first if abs(first - second) <= _SMOOTH * scale else None))
    return slopes


def _slope(parameter: Tensor, at: int, step: float, forward: Any) -> float:
    flat = parameter.detach().view(-1)
    original = float(flat[at])
    sides = []
    with torch.no_grad():
        for sign in (1, -1):
            flat[at] = original + sign * step
            with _double_operators():
                sides.append(float(forward()))
        flat[at] = original
    return (sides[0] - sides[1]) / (2 * step)


def _array(tensor: Tensor) -> Array:
    return tensor.detach().to(torch.float64).numpy().copy()


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's modes are untyped
    """Mode that collects the results of random operators, in order."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.drawn: list[tuple[str, Array]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if name in _DRAWS:
            self.drawn.append((name, _array(out[1] if isinstance(out, tuple) else out)))
        return out


class _DoubleOperators(TorchDispatchMode):  # type: ignore[no-untyped-call]  # as above
    """Mode that computes in float64 the matmuls for which torch has no such kernel, of groups and of scaled fp8 operands, and casts to
    float64 in the backward of a custom function, in which ``_AsDouble`` is off."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func in _PRODUCTS and args[0].dtype == torch.float64:
            return _PRODUCTS[func](*args, **(kwargs or {}))
        return func(*args, **{name: _double(value) for name, value in (kwargs or {}).items()})


def _grouped_mm(a: Tensor, b: Tensor, offs: Tensor | None = None, **_: Any) -> Tensor:
    bounds = [0, *(offs.tolist() if offs is not None else [])]
    pairs = list(itertools.pairwise(bounds))
    if a.dim() == 2 and b.dim() == 3:
        return torch.cat([a[i:j] @ b[g] for g, (i, j) in enumerate(pairs)])
    if a.dim() == 2 and b.dim() == 2:
        return torch.stack([a[:, i:j] @ b[i:j] for i, j in pairs])
    if a.dim() == 3 and b.dim() == 2:
        return torch.cat([a[g] @ b[:, i:j] for g, (i, j) in enumerate(pairs)], 1)
    return a @ b


def _scaled_mm(a: Tensor, b: Tensor, of_a: Tensor, of_b: Tensor, bias: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
    product = (a * of_a) @ (b * of_b)
    return product if bias is None else product + bias


def _scaled_mm_v2(a: Tensor, b: Tensor, *rest: Any, **_: Any) -> Tensor:
    (of_a,), _recipe_a, _swizzle_a, (of_b,), _recipe_b, _swizzle_b, bias = rest[:7]
    return _scaled_mm(a, b, of_a, of_b, bias)


_PRODUCTS: dict[Any, Callable[..., Tensor]] = {
    torch.ops.aten._grouped_mm.default: _grouped_mm,
    torch.ops.aten._scaled_mm.default: _scaled_mm,
    torch.ops.aten._scaled_mm_v2.default: _scaled_mm_v2,
}


def _double_operators() -> TorchDispatchMode:
    return _DoubleOperators()  # type: ignore[no-untyped-call]  # torch's modes are untyped


_TO_DOUBLE = (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)


class _AsDouble(TorchFunctionMode):
    """Mode that replaces float32 and the smaller formats of torch's matmuls in calls by float64."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func in (Tensor.float, Tensor.half, Tensor.bfloat16):
            func = Tensor.double
        if getattr(func, "__name__", "") == "hardsigmoid":
            # The backward of torch's kernel uses 1/6 in float32, an error of 3e-9.
            return torch.nn.functional.relu6(args[0] + 3) / 6
        return func(*map(_double, args), **{n: _double(v) for n, v in (kwargs or {}).items()})


def _double(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _TO_DOUBLE else value

"""What the zoo is made of: a spec, the two sets of sizes at which it is checked, and how its step runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from calc.options import Options
from calc.spec import Spec

ZOO: dict[str, Exhibit] = {}

# Where sizes differ each time they are met, a peak is that of a trace with those of the second step.
FIRST_PEAK = frozenset(("memory.peak.first_step",))
# A run with data-dependent sizes does not show which rows are a token's, nor one that indexes a parameter whether it is a table.
ACTIVE = frozenset(("parameters.active",))
INDEXED = ACTIVE | {"parameters.non_embedding"}


@dataclass(frozen=True, slots=True)
class Exhibit:
    """``make`` gives the spec. It is derived at ``sizes`` and checked there and at ``other``; what they leave out is the spec's.

    ``unmeasured`` are quantities that no instrument can see in it. ``slow``: it takes seconds.
    """

    name: str
    make: Callable[[], Spec]
    other: Mapping[str, int]
    sizes: Mapping[str, int] = field(default_factory=dict)
    options: Options = field(default_factory=lambda: Options(optimizer="sgd"))
    unmeasured: frozenset[str] = frozenset()
    slow: bool = False

    def kept(self) -> Spec:
        """The spec with a name for its traces, so that the tests of a run trace it once."""
        return replace(self.make(), key=f"zoo: {self.name}")


def show(
    name: str,
    make: Callable[[], Spec],
    other: Mapping[str, int],
    *,
    optimizer: str = "sgd",
    attention: str = "fused",
    mode: str = "train",
    precision: str = "fp32",
    implementation: str = "loop",
    **more: Any,
) -> None:
    """Put a model into the zoo. Its optimizer is the plainest unless another is named; ``more`` are fields of ``Exhibit``."""
    assert name not in ZOO, f"the zoo has a model {name!r} already"
    options = Options(optimizer=optimizer, attention=attention, mode=mode, precision=precision, implementation=implementation)
    ZOO[name] = Exhibit(name, make, other, options=options, **more)


def network(
    name: str,
    dims: Mapping[str, Any],
    build: Callable[[Any], nn.Module],
    inputs: Callable[[Any], tuple[Tensor, ...]],
    other: Mapping[str, int],
    loss: Callable[..., Tensor] | None = None,
    optimizer: str | Callable[[Any], torch.optim.Optimizer] = "sgd",
    **more: Any,
) -> None:
    """An ordinary module, built and fed by functions of its sizes; the loss is the sum of what it returns unless another is given."""
    own = None if isinstance(optimizer, str) else optimizer
    named = optimizer if isinstance(optimizer, str) else "spec"
    show(name, lambda: Spec(name, dims, build, inputs, loss or _sum, optimizer=own), other, optimizer=named, **more)


def _sum(module: nn.Module, *inputs: Tensor) -> Tensor:
    result: Tensor = module(*inputs)
    return result.sum()


Function = Callable[..., Any]

# A weight of m x n, and k of something else.
SMALL = {"m": 5, "n": 7, "k": 3}
LARGE = {"m": 13, "n": 11, "k": 2}


def operators(
    name: str,
    *functions: Function,
    w: str = "m n",
    inputs: Callable[[Any], tuple[Tensor, ...]] | None = None,
    dims: Mapping[str, Any] | None = None,
    other: Mapping[str, int] | None = None,
    **more: Any,
) -> None:
    """Operators that networks execute rarely, each applied by one of ``functions`` to a weight of shape ``w`` (and the inputs).

    The loss is the sum of all floating results, and of the weight. Sizes that nothing uses are left out.
    """
    sizes = dims or {size: SMALL[size] for size in ("m", "n") if size in w} | ({} if inputs is None else {"k": SMALL["k"]})
    moved = other or {size: LARGE[size] for size in sizes}

    def module(s: Any) -> nn.Module:
        return Functions(functions, [getattr(s, size) for size in w.split()])

    # A step has an input, though functions of the weight alone do not look at it.
    nothing = (lambda s: (torch.rand(getattr(s, w.split()[0])),)) if inputs is None else inputs
    apply = (lambda module, _: module()) if inputs is None else (lambda module, *given: module(*given))
    show(name, lambda: Spec(name, sizes, module, nothing, apply), moved, **more)


class Functions(nn.Module):
    """Applies functions to one weight and adds up what they give."""

    def __init__(self, functions: Sequence[Function], shape: Sequence[Any]) -> None:
        super().__init__()
        self.functions = functions
        self.w = nn.Parameter(torch.rand(shape))

    def forward(self, *inputs: Tensor) -> Tensor:
        total = self.w.sum()
        for function in self.functions:
            for result in _floating(function(self.w, *inputs)):
                total = total + result.sum()
        return total


def _floating(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result] if result.is_floating_point() else []
    return [t for part in result for t in _floating(part)] if isinstance(result, list | tuple) else []

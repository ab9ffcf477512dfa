"""After a trace, be it refused or interrupted, torch is as it was before."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import calc
from calc.spec import Spec
from tests.trace.modules import function, spec
from tests.trace.refused import refusal
from tests.trace.test_refusals import if_positive, raises


def _patched_by_a_trace() -> dict[str, Any]:
    initializers = {f"nn.init.{name}": getattr(nn.init, name) for name in dir(nn.init) if callable(getattr(nn.init, name))}
    return {
        **initializers,
        "LayerNorm": nn.LayerNorm.__init__,
        "RMSNorm": nn.RMSNorm.__init__,
        "FakeTensor": torch._subclasses.FakeTensor,
        "attention": F.scaled_dot_product_attention,
        "sqrt": math.sqrt,
        "hooks": len(torch.nn.modules.module._global_forward_hooks) + len(torch.nn.modules.module._global_forward_pre_hooks),
        "modes": torch.utils._python_dispatch._get_current_dispatch_mode(),
        "grad": torch.is_grad_enabled(),
    }


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Fails if torch is not afterwards what it was before."""
    before = _patched_by_a_trace()
    yield
    after = _patched_by_a_trace()
    assert {name for name in before if after[name] is not before[name] and after[name] != before[name]} == set()


def interrupted(x: Tensor) -> Tensor:
    raise KeyboardInterrupt


def test_a_trace_leaves_torch_as_it_was() -> None:
    """Initializers, norms, attention, hooks and modes."""
    with nothing_left():
        calc.trace(spec(lambda n: nn.Sequential(nn.Linear(n.d, n.d), nn.LayerNorm(n.d))), cache=False)


@pytest.mark.parametrize(
    "s",
    [
        function(raises),
        function(if_positive),
        spec(lambda n: 1 / 0),
        spec(lambda n: "hello"),
        spec(lambda n: nn.Linear(n.d, n.d), inputs=lambda n: ()),
        spec(lambda n: nn.Linear(n.d, n.d), loss=lambda module, x: module(x)),
        function(torch.linalg.svdvals),
    ],
    ids=["raises", "data", "build raises", "no module", "no inputs", "no scalar", "no rule"],
)
def test_a_refused_trace_leaves_torch_as_it_was(s: Spec) -> None:
    """Whatever part failed: the next model must find a clean house."""
    with nothing_left():
        refusal(s)


def test_an_interrupted_trace_leaves_torch_as_it_was() -> None:
    """Ctrl-C is no error of the model's: it goes through, and everything is put back on its way."""
    with nothing_left(), pytest.raises(KeyboardInterrupt):
        calc.trace(function(interrupted), cache=False)


def test_a_real_module_works_after_a_refused_trace() -> None:
    """Weights are initialized, attention computes, gradients flow: no fake tensor is about."""
    refusal(function(raises))
    torch.manual_seed(0)
    layer = nn.Linear(7, 5)
    layer(torch.randn(3, 7)).sum().backward()

    assert type(layer.weight.detach()) is torch.Tensor
    assert float(layer.weight.detach().abs().sum()) > 0
    assert layer.weight.grad is not None
    assert F.scaled_dot_product_attention(*(torch.randn(1, 2, 3, 5) for _ in range(3))).shape == (1, 2, 3, 5)

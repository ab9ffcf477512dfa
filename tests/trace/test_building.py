"""What a model does while it is built: conversions of its parameters, rates laid out over its depth."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import calc
from calc.derive.result import Derivation
from tests.checks import failures
from tests.trace.modules import spec


def _exact(derivation: Derivation, **sizes: int) -> bool:
    return not failures(calc.check(derivation, **sizes))


@pytest.mark.parametrize("convert", [nn.Module.bfloat16, nn.Module.double, lambda module: module.to(torch.float16)])
def test_a_model_is_converted_where_it_is_built(convert: Callable[[nn.Module], nn.Module]) -> None:
    """As real parameters are: the same objects with other data, so what is tied stays so."""

    def build(n: Any) -> nn.Module:
        first, second = nn.Linear(n.d, n.d), nn.Linear(n.d, n.d)
        second.weight = first.weight
        return convert(nn.Sequential(first, second))

    dtype = next(convert(nn.Linear(1, 1)).parameters()).dtype
    s = spec(build, inputs=lambda n: (torch.randn(n.B, n.d, dtype=dtype),))
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert 7 * 7 + 7 + 7 == derivation["parameters"].value
    assert dtype.itemsize * (7 * 7 + 7 + 7) == derivation["parameters.bytes"].value
    assert _exact(derivation)
    assert _exact(derivation, B=2, d=5)


@pytest.mark.slow
def test_torch_warns_of_no_number_of_heads_that_napkin_chose() -> None:
    """A trace takes primes for sizes: an encoder with 2 heads is built with odd ones too. Other warnings of a build are shown."""

    def build(n: Any) -> nn.Module:
        warnings.warn("mine", stacklevel=1)
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(n.d, n.h, n.f, batch_first=True), 1)

    dims: dict[str, Any] = {"B": 2, "T": 5, "d": calc.Dim(12, multiple_of="h"), "h": 2, "f": 17}
    s = calc.Spec("encoder", dims, build, lambda n: (torch.randn(n.B, n.T, n.d),), lambda module, x: module(x).sum())
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        calc.trace(s, cache=False, optimizer="sgd")

    assert {"mine"} == {str(warning.message) for warning in shown if warning.category is UserWarning}


class Thinned(nn.Module):
    """Layers that are left out the more often the deeper they are."""

    def __init__(self, n: Any, rates: Callable[[Any], list[float]]) -> None:
        super().__init__()
        self.layers, self.rates = nn.ModuleList(nn.Linear(n.d, n.d) for _ in range(n.L)), rates(n.L)

    def forward(self, x: Tensor) -> Tensor:
        for layer, rate in zip(self.layers, self.rates, strict=True):
            y = layer(x)
            x = x + (F.dropout(y, rate) if rate > 0 else y)
        return x


@pytest.mark.parametrize(
    "rates",
    [lambda depth: torch.linspace(0, 0.3, depth).tolist(), lambda depth: [rate.item() for rate in torch.linspace(0, 0.3, depth)]],
    ids=["at once", "one by one"],
)
def test_rates_over_the_depth_are_known_while_a_model_is_built(rates: Callable[[Any], list[float]]) -> None:
    """The first is 0, so the first layer drops nothing."""
    derivation = calc.derive(spec(lambda n: Thinned(n, rates), dims={"B": 3, "d": 7, "L": 5}), cache=False, optimizer="sgd")

    assert not derivation.specialized
    assert _exact(derivation)
    assert _exact(derivation, L=11)


def test_a_file_that_a_model_imports_while_it_is_built_is_executed_outside_of_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tensor that belongs to a class of that file is real: the real run moves and uses it, too."""
    (tmp_path / "imported_late.py").write_text(
        "import torch\n\nclass Scaled(torch.nn.Linear):\n    scale = torch.full((1,), 2.0)\n\n"
        "    def forward(self, x):\n        return super().forward(x) * self.scale\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def build(n: Any) -> nn.Module:
        return importlib.import_module("imported_late").Scaled(n.d, n.d)

    derivation = calc.derive(spec(build), cache=False, optimizer="sgd")

    assert type(importlib.import_module("imported_late").Scaled.scale) is Tensor
    assert _exact(derivation)


@pytest.mark.slow
def test_the_first_trace_of_a_process_says_nothing() -> None:
    """Torch imports files of its own in it, also those that leaving the trace takes, and reports one that fails."""
    program = (
        "import calc; from calc.options import Options; from calc.trace import trace_at\n"
        "spec = calc.load('gpt2'); trace_at(spec, {}, spec.sizes({'L': 1}), {}, Options())"
    )
    first = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert ("", "") == (first.stdout, first.stderr)


def test_a_constant_that_no_operator_of_the_step_uses_is_not_in_its_memory() -> None:
    """As every other tensor that a module keeps for itself, it counts from the first operator that takes it."""

    class Strided(nn.Linear):
        def __init__(self, n: Any) -> None:
            super().__init__(n.d, n.d)
            self.strides = torch.tensor([8.0, 16.0, 32.0])

    assert _exact(calc.derive(spec(Strided), cache=False, optimizer="sgd"))

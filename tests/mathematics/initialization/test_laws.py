"""Laws of draws: their moments, and how they are read off a model's own initializers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import sympy as sp
import torch
from torch import nn

from calc.mathematics.initialization.fit import Build, Fans, expressions, fans_of
from calc.mathematics.initialization.moments import GELU, GELU_TANH, RELU, SIGMOID, SILU, TANH, Activation
from calc.spec import Spec
from calc.symbolic import laws
from calc.symbolic.algebra import symbol
from calc.trace.initialization import drawn

LAWS = {
    "normal": (laws.normal(0.3, 1.7), lambda t: nn.init.normal_(t, 0.3, 1.7)),
    "uniform": (laws.uniform(-2.0, 5.0), lambda t: nn.init.uniform_(t, -2.0, 5.0)),
    "cut at one standard deviation": (laws.truncated(0.0, 1.0, -1.0, 1.0), lambda t: nn.init.trunc_normal_(t, 0.0, 1.0, -1.0, 1.0)),
    "cut on one side": (laws.truncated(1.0, 2.0, 0.0, 9.0), lambda t: nn.init.trunc_normal_(t, 1.0, 2.0, 0.0, 9.0)),
    "absolute bounds that cut nothing": (
        laws.truncated(0.0, 1 / 128, -3.0, 3.0),
        lambda t: nn.init.trunc_normal_(t, 0.0, 1 / 128, -3.0, 3.0),
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_a_law_has_the_moments_of_what_torch_draws(name: str) -> None:
    law, draw = LAWS[name]
    torch.manual_seed(1)
    sample = draw(torch.empty(400_000, dtype=torch.float64))
    error = 5 * law.variance**0.5 / math.sqrt(sample.numel())
    assert abs(float(sample.mean()) - law.mean) < error
    assert float(sample.var()) == pytest.approx(law.variance, rel=0.01)


def test_bounds_far_out_leave_the_variance_alone() -> None:
    """a=-3, b=3 are no multiples of the standard deviation: at 1/√16384 they are 384 of them away."""
    assert laws.truncated(0.0, 1 / 128, -3.0, 3.0).variance == pytest.approx(1 / 16384, rel=1e-12)
    assert laws.truncated(0.0, 1.0, -3.0, 3.0).variance == pytest.approx(0.9733369246, rel=1e-9)


class Drawing(nn.Module):
    def __init__(self, n: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(n.d, n.f)
        self.scaled = nn.Parameter(torch.randn(n.d, n.f) / math.sqrt(n.d))
        self.xavier = nn.Parameter(nn.init.xavier_normal_(torch.empty(n.d, n.f)))
        self.cut = nn.Parameter(nn.init.trunc_normal_(torch.empty(n.d, n.f), std=1 / math.sqrt(n.d), a=-3, b=3))
        self.table = nn.Embedding(n.f, n.d, padding_idx=0)
        self.turned = nn.Parameter(nn.init.orthogonal_(torch.empty(n.d, n.d)))


def _spec() -> Spec:
    return Spec("drawing", {"d": 16, "f": 48}, Drawing, lambda n: (torch.randn(3, n.d),), lambda m, x: m.linear(x).sum())


def test_laws_are_read_off_the_initializers() -> None:
    actual, inputs = drawn(_spec(), {"d": 16, "f": 48})
    second = {name: each.law.second for name, each in actual.items() if each.law is not None}
    assert second == pytest.approx(
        {
            "linear.weight": 1 / (3 * 16),
            "linear.bias": 1 / (3 * 16),
            "scaled": 1 / 16,
            "xavier": 2 / (16 + 48),
            "cut": 1 / 16,
            "table.weight": 47 / 48,
        }
    )
    assert inputs["0"].law == laws.normal(0, 1)
    assert actual["turned"].law is None
    assert actual["turned"].made_by.startswith("aten.")


def _texts(fans: Mapping[str, Fans]) -> dict[str, str]:
    spec = _spec()
    return expressions(lambda at: Build(at, {n: d.law for n, d in drawn(spec, at)[0].items()}), {"d": 16, "f": 48}, ["d", "f"], fans)


def test_a_variance_is_written_in_the_sizes_it_goes_with() -> None:
    """Xavier's is no product of powers: it is 2/(in + out), in the sizes of its own sides alone, and else a number."""
    d, f = map(symbol, "df")
    texts = _texts({"xavier": fans_of((d, f)), "cut": fans_of((d, f))})
    assert {name: texts[name] for name in ("linear.weight", "scaled", "cut", "xavier")} == {
        "linear.weight": "1/(3*d)",
        "scaled": "1/d",
        "cut": "1/d",
        "xavier": "2/(d + f)",
    }
    assert "xavier" not in _texts({})
    assert "xavier" not in _texts({"xavier": fans_of((d, 3 * d))})  # right at 16 and 48, and nowhere else


def test_fans_are_those_of_torch() -> None:
    """(out, in, kernel…): 5·7 taps of 3 inputs, and as many of 11 outputs."""
    shape = (11, 3, 5, 7)
    assert fans_of([sp.Integer(n) for n in shape]) == nn.init._calculate_fan_in_and_fan_out(torch.empty(shape)) == (105, 385)


@pytest.mark.parametrize(("f", "real"), [(RELU, torch.relu), (GELU, nn.GELU()), (GELU_TANH, nn.GELU("tanh")), (SILU, nn.SiLU()),
                                         (SIGMOID, torch.sigmoid), (TANH, torch.tanh)])  # fmt: skip
@pytest.mark.parametrize("q", [0.05, 1.0, 6.0])
def test_an_activation_has_the_moments_of_its_samples(f: Activation, real: Any, q: float) -> None:
    torch.manual_seed(2)
    shared, x, y = torch.randn(3, 400_000, dtype=torch.float64)
    first, other = (real(math.sqrt(0.3 * q) * shared + math.sqrt(0.7 * q) * each) for each in (x, y))
    assert float(first.mean()) == pytest.approx(f.mean_at(q), abs=0.01 * math.sqrt(q))
    assert float(first.square().mean()) == pytest.approx(f.second_at(q), rel=0.02)
    assert float((first * other).mean()) == pytest.approx(f.cross_at(q, 0.3 * q), rel=0.03, abs=1e-3 * q)


@pytest.mark.parametrize("f", [RELU, GELU, SIGMOID, TANH])
def test_written_moments_are_the_integrals(f: Activation) -> None:
    import sympy as sp

    assert (f.mean, f.second) != (None, None)
    for q in (0.05, 1.0, 6.0):
        if f.mean is not None:
            assert float(sp.sympify(f.mean, {"q": q})) == pytest.approx(f.mean_at(q), abs=1e-9)
        if f.second is not None:
            assert float(sp.sympify(f.second, {"q": q})) == pytest.approx(f.second_at(q), rel=1e-9)

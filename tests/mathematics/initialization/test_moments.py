"""Moments through the graph are those of sampled modules, and closed forms are the textbook's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import calc
from calc.mathematics.initialization import Initial, initial, rules
from calc.mathematics.initialization.comparison import FAILED, INSIDE, compare
from calc.mathematics.initialization.state import Moments
from calc.measure.sampling import sample
from calc.spec import Spec
from tests.quick import few


class Deep(nn.Module):
    """L linear layers without biases, drawn as the lecture does: randn/√d, or randn alone."""

    def __init__(self, n: Any, scaled: bool) -> None:
        super().__init__()
        by = math.sqrt(n.d) if scaled else 1.0
        self.layers = nn.ParameterList([nn.Parameter(torch.randn(n.d, n.d) / by) for _ in range(3)])
        self.parts = nn.ModuleList([nn.Identity() for _ in range(3)])

    def forward(self, x: Any) -> Any:
        for weight, part in zip(self.layers, self.parts, strict=True):
            x = part(x @ weight)
        return x


def _deep(scaled: bool) -> Spec:
    return Spec("deep", {"B": 5, "d": 64}, lambda n: Deep(n, scaled), lambda n: (torch.randn(n.B, n.d),), lambda m, x: m(x).sum())


def _closed(actual: Initial) -> list[str | None]:
    return [part.closed for part in actual.parts]


def test_a_product_with_a_drawn_matrix_has_the_variance_of_its_fan_in() -> None:
    """And d³ after three of them; rescaled by 1/√d it stays 1 at any depth."""
    raw, scaled = initial(_deep(False)), initial(_deep(True))
    assert _last(raw) == pytest.approx(64**3)
    assert _last(scaled) == pytest.approx(1.0)


def _last(actual: Initial) -> float:
    return [part.second for part in actual.parts if part.second is not None][-1]


def test_the_default_linear_layer_keeps_a_third() -> None:
    """U(-1/√d, 1/√d) has the variance 1/(3d): the cruncher's values lose a factor of 3 a layer."""
    initialization = initial(calc.load("cruncher"), {"B": 2, "D": 4, "L": 2})
    assert [p.closed for p in initialization.parts if p.module_path in ("layers.0", "layers.1", "final")] == ["1/3", "1/9", "1/27"]


def test_xavier_is_a_closed_form_in_both_widths() -> None:
    """2/(in + out): 1/D for D → D, and D · 2/(D + K) for the outputs of D → K, at sizes apart from those it was found at."""
    initialization = initial(calc.load("two-layer"), {"B": 3, "D": 31, "K": 5})
    assert {law.name: law.second for law in initialization.drawn} == {"w1": "1/D", "w2": "2/(D + K)"}
    assert [part.closed for part in initialization.parts] == ["2*D/(D + K)"]
    other = initial(calc.load("two-layer"), {"B": 3, "D": 13, "K": 41})
    assert other.parts[0].second == pytest.approx(2 * 13 / (13 + 41))


class Joined(nn.Module):
    """A layer of d + f inputs, by Xavier; then a number and a norm."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.wide = nn.Linear(n.d + n.f, n.f, bias=False)
        self.odd = nn.Linear(n.f, n.f, bias=False)
        nn.init.xavier_uniform_(self.wide.weight, gain=3.0)
        nn.init.normal_(self.odd.weight, std=1 / (n.f + n.d**2))
        self.norm = nn.LayerNorm(n.f)

    def forward(self, x: Any) -> Any:
        return self.norm(self.odd(self.wide(x) * 2))


def test_a_closed_form_holds_at_all_sizes_or_there_is_none() -> None:
    """9·2/(d + 2f) for (d + f) → f with a gain of 3; no form where the variance of a weight has none, or a factor is missing in it."""
    spec = Spec("joined", {"B": 5, "d": 16, "f": 48}, Joined, lambda n: (torch.randn(n.B, n.d + n.f),), lambda m, x: m(x).sum())
    initialization = initial(spec)
    assert {law.name: law.second for law in initialization.drawn if law.name.endswith("weight")} == {
        "wide.weight": "18/(d + 2*f)",
        "odd.weight": f"{1 / (48 + 16**2) ** 2:.6g}",
        "norm.weight": "1",
    }
    forms = {part.module_path: part.closed for part in initialization.parts}
    assert forms["wide"] in ("18*(d + f)/(d + 2*f)", "(18*d + 18*f)/(d + 2*f)")
    assert (forms["odd"], forms["norm"]) == (None, None)


SAMPLED: dict[str, tuple[dict[str, int], int]] = {
    "mlp": ({"d": 53, "f": 61, "B": 19}, 200),
    "cruncher": ({"D": 67, "B": 23}, 200),
    "gpt2": ({"L": 2, "d": 96, "h": 4, "V": 997, "B": 3, "T": 17, "C": 32}, 40),
    "llama3-8b": ({"L": 2}, 40),
}


@pytest.mark.parametrize("model", [pytest.param(name, marks=[pytest.mark.slow] if name == "llama3-8b" else []) for name in SAMPLED])
def test_every_derived_moment_holds_in_a_sample(model: str) -> None:
    sizes, draws = SAMPLED[model]
    spec = calc.load(model)
    initialization = initial(spec, {**spec.check_at, **sizes})
    lines = compare(initialization, sample(spec, initialization.sizes, draws))
    assert [line for line in lines if line.verdict == FAILED] == []
    assert sum(line.verdict == INSIDE for line in lines) >= 3
    assert any(line.part.second is not None for line in lines)


class Residual(nn.Module):
    def __init__(self, n: Any) -> None:
        super().__init__()
        self.norm, self.one, self.act, self.two = nn.LayerNorm(n.d), nn.Linear(n.d, n.f), nn.ReLU(), nn.Linear(n.f, n.d, bias=False)

    def forward(self, x: Any) -> Any:
        return x + self.two(self.act(self.one(self.norm(x))))


def _residual() -> Spec:
    def inputs(n: Any) -> tuple[Any, ...]:
        return (torch.randn(n.B, n.d),)

    return Spec("residual", {"B": 29, "d": 71, "f": 83}, Residual, inputs, lambda m, x: F.mse_loss(m(x), torch.zeros_like(x)))


# What is planted, where: a factor lost in a product, a sum, an activation, a norm.
PLANTED: dict[str, Callable[[Moments], Moments]] = {
    "affine": lambda m: Moments(m.mean, 1.2 * m.second, m.shared, m.normal, m.sources, module_path=m.module_path),
    "added": lambda m: Moments(m.mean, 1.2 * m.second, m.shared, m.normal, m.sources, module_path=m.module_path),
    "activation": lambda m: Moments(m.mean, 2 * m.second, m.shared, m.normal, m.sources, module_path=m.module_path),
    "normalized": lambda m: Moments(m.mean, 1.2 * m.second, m.shared, m.normal, m.sources, module_path=m.module_path),
}


@pytest.mark.parametrize("planted", ["nothing", *few(PLANTED, 2)])
def test_an_error_planted_in_a_rule_fails_the_comparison(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if planted in PLANTED:
        real = getattr(rules, planted)
        monkeypatch.setattr(rules, planted, lambda *args, **kwargs: PLANTED[planted](real(*args, **kwargs)))
    spec = _residual()
    initialization = initial(spec)
    failed = [line for line in compare(initialization, sample(spec, initialization.sizes, 200)) if line.verdict == FAILED]
    assert bool(failed) == (planted in PLANTED)


def test_what_has_no_rule_is_not_derived_and_says_why() -> None:
    """Max pooling has none; a batch norm behind a convolution knows its result again."""

    def build(n: Any) -> nn.Module:
        return nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(3, n.w, 3, padding=1), nn.BatchNorm2d(n.w))

    def inputs(n: Any) -> tuple[Any, ...]:
        return (torch.randn(n.B, 3, n.S, n.S),)

    spec = Spec("pooled", {"B": 5, "S": 14, "w": 11}, build, inputs, lambda module, x: module(x).square().mean())
    actual = {part.module_path: part for part in initial(spec).parts}

    assert actual["1"].second is None
    assert "max_pool2d" in actual["1"].unknown
    assert actual["2"].second == pytest.approx(1, abs=1e-3)

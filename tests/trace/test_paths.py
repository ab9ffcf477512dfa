"""A size of which every value is another path through the step (a scan that halves a length) is a number, and the rest stays symbolic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import calc
from calc.derive.result import Derivation
from calc.derive.rules_of_thumb import compare
from calc.dimensions import Dim
from calc.pipeline import pipeline
from calc.spec import Spec
from tests.trace.modules import function


def halved(x: Tensor) -> Tensor:
    """Running sums along the second axis, of half as many sums of pairs."""
    n = x.shape[1]
    if n < 2:
        return x
    odd = halved(x[:, :-1:2] + x[:, 1::2])
    even = (odd[:, :-1] if n % 2 == 0 else odd) + x[:, 2::2]
    return woven(torch.cat([x[:, :1], even], 1), odd)


def woven(even: Tensor, odd: Tensor) -> Tensor:
    """The rows of both alternate."""
    n = even.shape[1] + odd.shape[1]
    if even.shape[1] == odd.shape[1] + 1:
        odd = nn.functional.pad(odd, (0, 0, 0, 1))
    return torch.stack([even, odd], 2).flatten(1, 2)[:, :n]


class Scan(nn.Module):
    def __init__(self, n: Any) -> None:
        super().__init__()
        self.inner = nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        return halved(self.inner(x))


@pytest.fixture(scope="module")
def derivation() -> Derivation:
    scan = Spec(
        name="scan",
        dims={"B": 4, "T": 16, "d": 32},
        build=Scan,
        inputs=lambda n: (torch.randn(n.B, n.T, n.d),),
        loss=lambda module, x: module(x).pow(2).mean(),
    )
    return calc.derive(scan, cache=False)


@pytest.mark.slow
def test_bytes_moved_have_a_closed_form_where_no_two_lengths_take_one_path(derivation):
    """A certificate at another length had been taken for a wrong closed form, and all was refused."""
    assert {"T": 16} == derivation.specialized
    assert "B*d" in str(derivation["bytes_moved.forward"].text)
    assert "T" not in str(derivation["bytes_moved.forward"].text)
    assert calc.check(derivation, B=2, d=5).ok


@pytest.mark.slow
def test_a_search_over_lengths_traces_the_step_at_none_of_them(derivation, monkeypatch):
    """Where rules of thumb are near is evaluated at lengths up to a million, at each of which the step would be traced."""
    lengths: set[int] = set()
    traced = pipeline.traced

    def noted(spec: Spec, sizes: Mapping[str, int], run: Any) -> Any:
        lengths.add(sizes["T"])
        return traced(spec, sizes, run)

    monkeypatch.setattr(pipeline, "traced", noted)

    assert any(comparison.applies for comparison in compare(derivation))
    assert lengths <= {16}


class Units(nn.Module):
    """``L`` blocks under names of their own: ``unit0``, ``unit1``."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        for i in range(n.L):
            self.add_module(f"unit{i}", nn.Sequential(nn.Linear(n.d, n.d), nn.PReLU()))

    def forward(self, x: Tensor) -> Tensor:
        for unit in self.children():
            x = unit(x)
        return x


def test_layers_under_numbered_names_are_iterations_of_a_loop():
    """The moments of the last of them had been compared with those of one in the middle of a deeper model."""
    units = Spec(
        name="units",
        dims={"B": 64, "d": 5, "L": 6},
        build=Units,
        inputs=lambda n: (torch.randn(n.B, n.d),),
        loss=lambda module, x: module(x).pow(2).mean(),
    )
    derivation = calc.derive(units, cache=False)

    assert {} == derivation.specialized
    assert None not in (derivation["memory.peak"].text, derivation["memory.peak.first_step"].text)
    assert calc.check(derivation, B=7, L=5).ok


class Causal(nn.Module):
    """Attention with a mask where there is more than one position, as a decoder with a cache says it."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.qkv = nn.Linear(n.d, 3 * n.d)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x)[:, None].chunk(3, -1)
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=x.shape[1] > 1)


def test_a_comparison_of_sizes_may_say_whether_attention_is_causal() -> None:
    """torch takes a truth value there, and no comparison of symbols: the length stays one, and no multiple is assumed."""
    causal = Spec("causal", {"B": 2, "T": 11, "d": 7}, Causal, lambda n: (torch.randn(n.B, n.T, n.d),), lambda module, x: module(x).sum())
    derived = calc.derive(causal, cache=False, optimizer="sgd")

    assert (derived.specialized, [a.expr for a in derived.assumptions]) == ({}, [])
    assert derived["flops.forward.causal"].text == "2*B*T**2*d + 6*B*T*d**2 + 2*B*T*d"


@pytest.mark.parametrize("kernels", ["cpu", "cuda"])
def test_attention_imported_by_name_is_traced_like_any_other(kernels: str) -> None:
    """A comparison says whether it is causal, the mask's savings are credited, and a device's own kernel runs."""

    def attends(of: Callable[..., Tensor]) -> list[str | None]:
        def attention(x: Tensor) -> Tensor:
            q, k, v = x[:, None].chunk(3, -1)
            return of(q, k, v, is_causal=q.shape[2] > 1)

        s = function(attention, dims={"B": 2, "T": 7, "d": Dim(24, multiple_of=3)}, inputs=lambda n: (torch.randn(n.B, n.T, n.d),))
        derived = calc.derive(s, cache=False, kernels=kernels)
        assert {} == dict(derived.specialized)
        return [derived[name].text for name in ("flops.forward.causal", "activations.bytes", "memory.peak")]

    by_name = attends(lambda *of, **how: scaled_dot_product_attention(*of, **how))

    assert attends(lambda *of, **how: nn.functional.scaled_dot_product_attention(*of, **how)) == by_name
    assert None not in by_name

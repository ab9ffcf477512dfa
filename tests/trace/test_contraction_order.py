"""The order in which ``torch.einsum`` contracts three operands, where the package opt_einsum is installed and where it is not."""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.backends.opt_einsum
from torch import Tensor, nn

import calc
from calc import Spec
from tests.checks import failures


class _PathOptimizer:
    """A search of the caller's own, called with the letters of each operand, those of the result, and their sizes."""

    def __call__(self, operands: Sequence[frozenset[str]], result: frozenset[str], sizes: Mapping[str, int], _: None) -> Any:
        raise NotImplementedError


def _cheapest(operands: Sequence[frozenset[str]], result: frozenset[str], sizes: Mapping[str, int], _: None) -> list[tuple[int, int]]:
    """Of the three pairs the one with which the fewest products are made."""
    best: tuple[Any, tuple[int, int]] | None = None
    for i, j in itertools.combinations(range(3), 2):
        (rest,) = {0, 1, 2} - {i, j}
        first = operands[i] | operands[j]
        second = (first & (operands[rest] | result)) | operands[rest]
        cost = sum(math.prod(sizes[letter] for letter in letters) for letters in (first, second))
        if best is None or cost < best[0]:
            best = cost, (i, j)
    assert best is not None
    return [best[1], (0, 1)]


def _contract_path(equation: str, *operands: Tensor, optimize: Any) -> tuple[Any, Decimal]:
    """The order and a report of its cost, as opt_einsum gives them: the report takes plain numbers."""
    letters, _, result = equation.partition("->")
    sizes = {a: int(n) for term, x in zip(letters.split(","), operands, strict=True) for a, n in zip(term, x.shape, strict=True)}
    search = _cheapest if isinstance(optimize, str) else optimize
    return search([*map(frozenset, letters.split(","))], frozenset(result), sizes, None), Decimal(math.prod(sizes.values()))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package as torch sees it: itself, or a substitute where it is not installed."""
    try:
        package: Any = importlib.import_module("opt_einsum")
    except ImportError:
        paths = SimpleNamespace(PathOptimizer=_PathOptimizer, get_path_fn=lambda _: _cheapest)
        package = SimpleNamespace(contract_path=_contract_path, paths=paths)
    _as_torch_sees_it(monkeypatch, package)


def _as_torch_sees_it(monkeypatch: pytest.MonkeyPatch, package: Any) -> None:
    module: Any = torch.backends.opt_einsum
    installed = {"_opt_einsum": package, "is_available": lambda: package is not None}
    for name, value in {**installed, "enabled": package is not None, "strategy": "auto"}.items():
        monkeypatch.setattr(module.m, name, value, raising=False)


class Chain(nn.Module):
    """Three matrices in one einsum: (x a) b takes 2·B·f·(d + e) FLOP, x (a b) takes 2·d·e·(f + B)."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(n.d, n.f)), nn.Parameter(torch.randn(n.f, n.e))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bd,df,fe->be", x, self.a, self.b)


CHAIN = Spec("chain", {"B": 30, "d": 13, "f": 37, "e": 17}, Chain, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())
LEFT: Callable[[int, int, int, int], int] = lambda b, d, f, e: 2 * b * f * (d + e)  # noqa: E731  # formulas
RIGHT: Callable[[int, int, int, int], int] = lambda b, d, f, e: 2 * d * e * (f + b)  # noqa: E731  # as above


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("batch", "order"), [(30, RIGHT), (5, LEFT)])
def test_operands_are_contracted_in_the_order_that_is_cheapest_at_the_sizes(batch: int, order: Callable[..., int]) -> None:
    """Sizes stay symbols, the comparison that determined the order is an assumption, and a real run takes the same order."""
    derivation = calc.derive(CHAIN, {"B": batch}, cache=False, optimizer="sgd")

    assert {} == derivation.specialized
    assert order(batch, 13, 37, 17) == min(f(batch, 13, 37, 17) for f in (LEFT, RIGHT)) == derivation["flops.forward.matmul"].value
    assert any(">" in a.expr or "<" in a.expr for a in derivation.assumptions)
    assert [] == failures(calc.check(derivation))


def test_without_the_package_they_are_contracted_from_left_to_right(monkeypatch: pytest.MonkeyPatch) -> None:
    _as_torch_sees_it(monkeypatch, None)
    derivation = calc.derive(CHAIN, cache=False, optimizer="sgd")

    assert ((), LEFT(30, 13, 37, 17)) == (derivation.assumptions, derivation["flops.forward.matmul"].value)

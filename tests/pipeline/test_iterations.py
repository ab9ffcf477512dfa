"""Layers and positions beyond the few that are traced: whether they run the same operators shows in one forward."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import calc
from calc.derive.result import Derivation
from calc.models.catalogue import CATALOGUE
from calc.pipeline.iterations import Iterations, _Few
from calc.spec import Spec
from tests.checks import failures
from tests.quick import few
from tests.trace import modules

DIMS = {"B": 3, "d": 7, "L": 5}

# How many cells layer i of a number of layers runs.
Cells = Callable[[int, int], int]


class Deep(nn.Module):
    """Layers, each run as often as ``cells`` says."""

    def __init__(self, n: Any, cells: Cells) -> None:
        super().__init__()
        self.cells = cells
        self.layers = nn.ModuleList(nn.Linear(n.d, n.d, bias=False) for _ in range(n.L))

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            for _ in range(self.cells(i, len(self.layers))):
                x = torch.tanh(layer(x))
        return x


def deep(cells: Cells, **changes: Any) -> Spec:
    return modules.spec(lambda n: Deep(n, cells), **{"dims": DIMS, **changes})


def derived(spec: Spec, **sizes: int) -> Derivation:
    return calc.derive(spec, sizes, cache=False, optimizer="sgd")


def cells_run(result: Derivation, **sizes: int) -> int:
    """By the products of the forward: 2 B d² each."""
    return result["flops.forward.matmul"].at(**sizes) // (2 * DIMS["B"] * DIMS["d"] ** 2)


def alike(_: int, __: int) -> int:
    return 1


def two_from_the_ninth(i: int, _: int) -> int:
    return 2 if i >= 8 else 1


def two_in_every_eighth(i: int, _: int) -> int:
    return 2 if i % 8 == 7 else 1


def two_in_all_of_more_than_eight(_: int, depth: int) -> int:
    return 2 if depth > 8 else 1


def two_in_the_last_two(i: int, depth: int) -> int:
    return 2 if i >= depth - 2 else 1


def two_in_every_other(i: int, _: int) -> int:
    return 2 if i % 2 else 1


def two_in_every_third(i: int, _: int) -> int:
    return 2 if i % 3 == 2 else 1


PATTERNS = [
    (two_in_every_other, "Eq(Mod(L, 2), 0)"),
    (two_in_every_third, "Eq(Mod(L, 3), 0)"),
    (two_in_every_eighth, "Eq(Mod(L, 8), 0)"),
    (two_from_the_ninth, "L >= 9"),
]
DIFFERENT = [two_from_the_ninth, two_in_every_eighth, two_in_all_of_more_than_eight]


def slow(values: Iterable[Any]) -> list[Any]:
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


@pytest.mark.parametrize("declared", [(), *slow([("L",)])])
@pytest.mark.parametrize("cells", few(DIFFERENT, 1))
def test_a_depth_at_which_layers_differ_is_a_number(cells: Cells, declared: tuple[str, ...]) -> None:
    result = derived(deep(cells, trip_counts=declared), L=11)

    assert (dict(result.specialized), cells_run(result)) == ({"L": 11}, sum(cells(i, 11) for i in range(11)))
    assert [] == failures(calc.check(result))


@pytest.mark.parametrize("cells", [alike, two_in_the_last_two, *slow(DIFFERENT)])
def test_a_derivation_holds_at_any_depth(cells: Cells) -> None:
    """At 5 layers closed forms in L; at more, of which they may say nothing, another trace is made where that is so."""
    result = derived(deep(cells))
    depths = (5, 7, 9, 16, 7)

    assert dict(result.specialized) == {}
    assert [cells_run(result, L=depth) for depth in depths] == [sum(cells(i, depth) for i in range(depth)) for depth in depths]


def test_without_the_forward_a_derivation_is_wrong_and_a_check_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted error: all iterations are taken for alike. Certificates, of 5 and 6 layers, do not show it."""
    monkeypatch.setattr(Iterations, "unlike", lambda *_: None)
    wrong = derived(deep(two_in_every_eighth), L=11)

    assert cells_run(wrong) == 11
    assert failures(calc.check(wrong))


@pytest.mark.parametrize("declared", [(), *slow([("L",)])])
@pytest.mark.parametrize(("cells", "assumed"), few(PATTERNS, 2, of=lambda cells, _: cells in (two_in_every_other, two_in_every_third)))
def test_layers_that_repeat_a_pattern_have_closed_forms_in_the_depth(cells: Cells, assumed: str, declared: tuple[str, ...]) -> None:
    """24 layers are twelve patterns, or eight, or three, or 16 after the first eight; the closed forms hold at any depth of the same
    remainder."""
    result = derived(deep(cells, trip_counts=declared), L=24)

    assert dict(result.specialized) == {}
    assert [assumed] == [each.expr for each in result.assumptions if "in a forward with 24 layers" in each.because]
    assert [sum(cells(i, depth) for i in range(depth)) for depth in (16, 24, 48)] == [cells_run(result, L=depth) for depth in (16, 24, 48)]
    assert [] == failures(calc.check(result))


@pytest.mark.slow
def test_a_depth_without_a_whole_pattern_is_a_number() -> None:
    """A forward with more layers shows a pattern of four, and three are no whole one."""
    result = derived(deep(lambda i, _: 2 if i % 4 == 3 else 1), L=3)

    assert (dict(result.specialized), cells_run(result)) == ({"L": 3}, 3)


@pytest.mark.slow
def test_the_remainder_of_a_depth_is_that_of_the_requested_one() -> None:
    """19 layers are two patterns and three layers, also where another dimension follows from the depth."""
    result = derived(deep(two_in_every_eighth, dims=DIMS | {"m": calc.Dim("2*L", tied=True)}), L=19)

    assert (dict(result.specialized), cells_run(result)) == ({}, 21)
    assert cells_run(result, L=27) == 30


@pytest.mark.slow
def test_a_pattern_whose_certificates_would_be_too_deep_makes_the_depth_a_number() -> None:
    """Six patterns of 30 layers."""
    result = derived(deep(lambda i, _: 2 if i % 30 == 29 else 1), L=60)
    assert (dict(result.specialized), cells_run(result)) == ({"L": 60}, 62)


class Recomputed(Deep):
    """The ninth layer is recomputed in the backward: it runs the same operators, and its forward keeps less."""

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = checkpoint(self._cell, layer, x, use_reentrant=False) if i == 8 else self._cell(layer, x)
        return x

    @staticmethod
    def _cell(layer: nn.Module, x: Tensor) -> Tensor:
        return torch.tanh(layer(x)).exp()


class Frozen(Deep):
    """From the ninth layer on, no weight is trained."""

    def __init__(self, n: Any, cells: Cells) -> None:
        super().__init__(n, cells)
        for layer in [*self.layers][8:]:
            layer.requires_grad_(False)


class Wider(nn.Module):
    """From the ninth layer on, twice the width."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        widths = [n.d if i < 8 else 2 * n.d for i in range(n.L)]
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(n.d, width), nn.Linear(width, n.d)) for width in widths)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


@pytest.mark.parametrize("build", [lambda n: Recomputed(n, alike), *slow([lambda n: Frozen(n, alike), Wider])])
def test_a_layer_with_the_same_operators_may_differ_in_memory(build: Callable[[Any], nn.Module]) -> None:
    result = derived(modules.spec(build, dims=DIMS), L=11)

    assert result.specialized == {"L": 11}
    assert [] == failures(calc.check(result))


class Hybrid(nn.Module):
    """Two kinds of layers with equal parameters: rows in softmax, in every eighth layer, and without."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(n.d, n.d) for _ in range(n.L))

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x).softmax(-1) if i % 8 == 7 else layer(x)
        return x


def test_the_depth_is_a_number_rather_than_quantities_without_closed_form() -> None:
    """Parameters are a polynomial in the depth, and elementwise FLOPs are not."""
    result = derived(modules.spec(Hybrid, dims=DIMS), L=11)

    assert result.specialized == {"L": 11}
    assert result["flops.forward.elementwise"].text is not None


@pytest.mark.parametrize("mode", ["eval", "infer"])
def test_a_step_without_training_runs_one_forward_as_well(mode: str) -> None:
    result = calc.derive(deep(two_in_every_eighth), {"L": 11}, cache=False, mode=mode)
    assert cells_run(result) == 12


class Walk(nn.Module):
    """A cell at every position, and one more at each twentieth."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.cell = nn.Linear(n.d, n.d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            state = torch.tanh(self.cell(x[:, t] + state))
            if t % 20 == 19:
                state = self.cell(state)
        return state


def walk() -> Spec:
    return modules.spec(Walk, dims={"B": 3, "d": 7, "T": 5}, inputs=lambda n: (torch.randn(n.B, n.T, n.d),))


@pytest.mark.slow
def test_positions_are_iterations_as_well() -> None:
    result = derived(walk(), T=41)
    assert (dict(result.specialized), cells_run(result)) == ({"T": 41}, 43)


def forwards(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, int]]:
    """The sizes at which forwards are run from now on."""
    package = sys.modules["calc.trace"]
    run, at = package.first_forward, list[Mapping[str, int]]()
    monkeypatch.setattr(package, "first_forward", lambda spec, graph, sizes: at.append(sizes) or run(spec, graph, sizes))
    return at


@pytest.mark.slow
def test_a_forward_that_takes_too_long_is_one_of_fewer_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four operators each. What differs beyond is not seen: this is what is not checked of a loop over many positions."""
    ran = forwards(monkeypatch)
    result = derived(deep(alike), L=100_000)
    assert 2_000 < max(sizes["L"] for sizes in ran) < 5_000

    longest = len(ran)
    assert cells_run(result, L=200_000) == 200_000
    assert longest == len(ran)


def test_no_forward_up_to_the_certified_depth_and_one_for_each_larger_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = forwards(monkeypatch)
    result = derived(deep(alike))
    assert [] == ran

    for depth in (6, 30, 20, 30):
        result["flops.forward.matmul"].at(L=depth)
    assert 30 == max(sizes["L"] for sizes in ran)
    assert 3 == len(ran)  # two of them with the traced numbers of layers


@pytest.mark.slow
def test_what_a_forward_has_shown_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three forwards for each of two models; one with more layers is that in which a pattern is looked for."""
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path))
    ran = forwards(monkeypatch)
    for cells, key in ((alike, "alike"), (two_in_every_eighth, "eighth")):
        results = [calc.derive(deep(cells, key=key), {"L": 11}, optimizer="sgd") for _ in range(2)]
        assert [cells_run(result) for result in results] == 2 * [sum(cells(i, 11) for i in range(11))]
    assert 2 * [3, 4, 11] == [sizes["L"] for sizes in ran if "L" in sizes]


def test_polynomials_through_what_was_made_are_continued() -> None:
    few = _Few((3, 4, 5), [{"mm": 3 * n + 1, "cat": n * n, "once": 4, "gone": 10 - n} for n in (3, 4, 5)])
    assert {"mm": 31, "cat": 100, "once": 4} == few.continued(10)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_layers_of_built_in_models_are_alike_at_any_depth(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their stored forms are evaluated at other depths without a forward."""
    ran = forwards(monkeypatch)
    spec = calc.load(name)
    result = derived(spec, **dict.fromkeys(spec.trip_counts, 96))

    assert dict(result.specialized) == {}
    assert spec.trip_counts == () or max(sizes["L"] for sizes in ran) > 50


class ReadsWidths(nn.Module):
    """Multiplies by the root of a head's width, which it makes a tensor of: the width is read as a number."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.heads = n.h
        self.layers = nn.ModuleList(nn.Linear(n.h * n.k, n.h * n.k) for _ in range(n.L))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            heads = layer(x).unflatten(-1, (self.heads, -1))
            x = (heads * torch.sqrt(torch.tensor(heads.size(-1), dtype=torch.float))).flatten(-2)
        return x


def test_a_width_that_is_read_as_a_number_stays_a_symbol_at_many_times_those_traced() -> None:
    """Bytes are no line in it, as those of a number of layers are: forwards at two widths would not say what one at 67 allocates."""
    dims, inputs, loss = {"B": 3, "h": 4, "k": 67, "L": 5}, (lambda n: (torch.randn(n.B, n.h * n.k),)), (lambda module, x: module(x).sum())
    derivation = derived(Spec("reads", dims, ReadsWidths, inputs, loss, trip_counts=("L",), may_specialize=(("h",),)))

    assert not derivation.specialized
    assert 5 * (4 * 67) * (4 * 67 + 1) == derivation["parameters"].value
    assert [] == failures(calc.check(derivation))


class SkipsOver(nn.Module):
    """Half of the layers as skips from the first half to the second; layer 7 has a bias."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(n.d, n.d, bias=i == 7) for i in range(n.L))
        self.skips = nn.Parameter(torch.ones(n.L // 2))

    def forward(self, x: Tensor) -> Tensor:
        before, half = [], len(self.skips)
        for i, layer in enumerate(self.layers):
            x = layer(x + self.skips[i - half] * before.pop() if i >= half else x)
            before += [x] if i < half else []
        return x


@pytest.mark.slow
def test_a_depth_that_is_halved_and_counted_is_a_number_where_layers_differ() -> None:
    """The symbol is half of the depth: the dimension that becomes a number is the depth."""
    spec = Spec("skips", {"B": 3, "d": 7, "L": 12}, SkipsOver, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())
    derivation = derived(spec)

    assert {"L": 12} == derivation.specialized
    assert 12 * 7 * 7 + 7 + 6 == derivation["parameters"].value
    assert [] == failures(calc.check(derivation))


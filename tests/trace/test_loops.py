"""Sizes that are Python loop counts are found by themselves, and end up as symbols like all others."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import calc
from calc.derive.result import Derivation
from calc.dimensions import Dim
from calc.graph.guards import BRANCH
from calc.spec import Spec
from calc.symbolic.tree import text
from tests.checks import failures
from tests.trace.modules import Stack, spec, stack
from tests.trace.test_guards import number


class Recurrent(nn.Module):
    """One cell, applied T times."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.cell = nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            h = torch.tanh(self.cell(x[:, t] + h))
        return h


class TwoStacks(nn.Module):
    """L layers d -> d, then M layers d -> f -> d."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.first = nn.ModuleList([nn.Linear(n.d, n.d, bias=False) for _ in range(n.L)])
        self.second = nn.ModuleList([nn.Sequential(nn.Linear(n.d, n.f), nn.Linear(n.f, n.d)) for _ in range(n.M)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in (*self.first, *self.second):
            x = layer(x)
        return x


class Repeated(nn.Module):
    """One layer, used L times."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(n.d, n.d)
        self.times = n.L

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = torch.tanh(self.layer(x))
        return x


class Alternating(nn.Module):
    """A wide layer after each two narrow ones, in one container."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(n.L):
            wide = nn.Sequential(nn.Linear(n.d, n.f), nn.Linear(n.f, n.d))
            self.layers.extend([nn.Linear(n.d, n.d), nn.Linear(n.d, n.d, bias=False), wide])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Adapted(nn.Module):
    """A layer of its own, and one that all layers share, with an adapter for each of them."""

    def __init__(self, shared: nn.Module, n: Any) -> None:
        super().__init__()
        self.shared, self.own = shared, nn.Linear(n.d, n.d)

    def forward(self, x: Tensor, number: int) -> Tensor:
        return self.own(x + self.shared(x, number))


class Shared(nn.Module):
    """d -> f -> d, to whose middle the adapter of that number adds d -> r -> f."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(n.d, n.f), nn.Linear(n.f, n.d)
        self.adapters = nn.ModuleList([nn.Sequential(nn.Linear(n.d, n.r), nn.Linear(n.r, n.f)) for _ in range(n.L)])

    def forward(self, x: Tensor, number: int) -> Tensor:
        return self.down(torch.relu(self.up(x) + self.adapters[number](x)))


class WithAdapters(nn.Module):
    def __init__(self, n: Any) -> None:
        super().__init__()
        shared = Shared(n)
        self.layers = nn.ModuleList([Adapted(shared, n) for _ in range(n.L)])

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x, i)
        return x


class InChunks(WithAdapters):
    """After them, attention within chunks of 4 positions, the last of which is padded."""

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.pad(super().forward(x), (0, 0, 0, (4 - x.shape[1] % 4) % 4))
        chunks = y.reshape(y.shape[0], -1, 4, y.shape[2])
        return (chunks @ chunks.transpose(-1, -2)).sum(2).flatten(1)[:, : x.shape[1]]


def texts(result: Derivation) -> dict[str, Any]:
    return {name: (result[name].text, result[name].value) for name in result}


def derived(s: Spec, **options: str) -> Derivation:
    return calc.derive(s, cache=False, **options)


def test_a_depth_is_inferred_to_be_a_trip_count() -> None:
    """Nothing declares it; L (d² + d) parameters come out, and the assumption names the line that looped."""
    result = stacked()

    assert result["parameters"].at(B=2, d=11, L=13) == 13 * (11 * 11 + 11)
    (assumption,) = (a for a in result.assumptions if a.expr == "the step is a polynomial in L")
    assert "modules.py:" in assumption.because
    assert "range(n.L)" in assumption.because


def test_a_declared_depth_gives_the_same_as_an_inferred_one() -> None:
    """Declaring it only spares the search."""
    assert texts(stacked()) == texts(derived(stack(trip_counts=("L",))))


@pytest.mark.parametrize("L", [5, 6, 7, 1000])
def test_a_closed_form_in_the_depth_is_that_of_every_depth(L: int) -> None:
    """Each layer: 2 B d² forward; backward twice that but for the first, whose input needs no gradient."""
    result = stacked()
    B, d = 3, 7

    assert result["flops.forward.matmul"].at(L=L) == L * 2 * B * d * d
    assert result["flops.backward.matmul"].at(L=L) == (2 * L - 1) * 2 * B * d * d
    # each layer keeps its input and its tanh's result, which is the next one's input: L + 1 tensors
    assert result["activations.bytes"].at(L=L) == 4 * (L + 1) * B * d
    # two moments of each weight and bias, and their counters
    assert result["optimizer_state.bytes"].at(L=L) == L * (8 * (d * d + d) + 4 * 2)


@functools.cache
def stacked() -> Derivation:
    return derived(stack())


def test_a_sum_over_layers_is_shown_in_the_steps() -> None:
    """One layer, then L of them."""
    steps = [step for step in stacked().steps if step.quantity == "parameters"]
    (over_layers,) = (step for step in steps if step.rule == "sum over layers")

    assert text(over_layers.before) == "L*(d**2 + d)"
    assert over_layers.value == 5 * (49 + 7)


def test_a_recurrence_over_time_is_a_loop_count() -> None:
    """T is the length of a tensor and a number of iterations: one cell of d² + d weights, 2 B T d² products."""
    s = spec(Recurrent, dims={"B": 3, "T": 5, "d": 7}, inputs=lambda n: (torch.randn(n.B, n.T, n.d),))
    result = derived(s, optimizer="sgd")

    assert result["parameters"].text == "d**2 + d"
    assert result["flops.forward.matmul"].at(B=2, T=11, d=13) == 2 * 2 * 11 * 13 * 13
    # backward: the weight's gradient at each iteration, the state's at each iteration but the first
    assert result["flops.backward.matmul"].at(B=2, T=11, d=13) == (2 * 11 - 1) * 2 * 2 * 13 * 13


def test_one_module_used_in_a_loop_is_one_set_of_weights() -> None:
    """d² + d whatever the number of iterations; 2 L B d² products."""
    result = derived(spec(Repeated, dims={"B": 3, "d": 7, "L": 5}), optimizer="sgd")

    assert result["parameters"].text == "d**2 + d"
    assert result["flops.forward.matmul"].at(L=11) == 2 * 11 * 3 * 7 * 7


@pytest.mark.slow
def test_two_loop_counts_are_independent() -> None:
    """L d² and M (2 d f + f + d), each linear in its own count."""
    s = spec(TwoStacks, dims={"B": 3, "d": 7, "f": 11, "L": 5, "M": 7})
    result = derived(s, optimizer="sgd")

    for L, M in ((13, 5), (4, 17), (1000, 3)):
        assert result["parameters"].at(L=L, M=M) == L * 7 * 7 + M * (2 * 7 * 11 + 11 + 7)
        assert result["flops.forward.matmul"].at(L=L, M=M) == 2 * 3 * (L * 7 * 7 + M * 2 * 7 * 11)
    assert {f"the step is a polynomial in {name}" for name in "LM"} <= {a.expr for a in result.assumptions}


def test_layers_that_repeat_a_pattern_add_up() -> None:
    """L times a layer with bias, one without, and a wide pair: d² + d + d² + 2 d f + f + d each."""
    result = derived(spec(Alternating, dims={"B": 3, "d": 7, "f": 11, "L": 5}), optimizer="sgd")

    assert result["parameters"].at(L=13) == 13 * (2 * 7 * 7 + 7 + 2 * 7 * 11 + 11 + 7)


def test_a_stack_of_one_is_its_layer() -> None:
    """A loop of one iteration has no first and last iteration apart: derived at L = 1, the numbers are those of the layer alone."""
    alone = derived(spec(lambda n: nn.Sequential(nn.Linear(n.d, n.d), nn.Tanh())))
    one = calc.derive(stack(), {"L": 1}, cache=False)

    assert one["flops.step.total"].value
    assert {name: one[name].value for name in one} == {name: alone[name].value for name in alone}


def test_a_depth_at_which_the_step_was_not_seen_is_right_or_refused() -> None:
    """One layer, requested of a derivation of five: its own numbers, or a refusal that says what the trace assumes."""
    alone = derived(spec(lambda n: nn.Sequential(nn.Linear(n.d, n.d), nn.Tanh())))
    for name in stacked():
        if stacked()[name].text is not None:
            value = number(functools.partial(stacked()[name].at, L=1))
            assert value == alone[name].value or re.search(r"where L (>=|!=) \d is True, which it is not at these sizes", str(value))


def test_a_fixed_number_of_layers_is_no_loop_count() -> None:
    """Six layers written as a number are six layers."""

    class Six(Stack):
        def __init__(self, n: Any) -> None:
            nn.Module.__init__(self)
            self.layers = nn.ModuleList([nn.Linear(n.d, n.d) for _ in range(6)])

    graph = calc.trace(spec(Six), cache=False, optimizer="sgd")

    assert graph.loops == ()
    assert calc.derive(graph)["parameters"].text == "6*d**2 + 6*d"


class InPairs(nn.Module):
    """As many iterations as there are columns, which must be even; the weight's scale is NumPy's."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(n.T) * np.sqrt(1.0 / float(n.T + n.B)) / np.log(n.T))

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for _ in range(x.shape[1]):
            y = y * self.w
        return y + x[:, : 2 * (x.shape[1] // 2)]


class EvenAndOdd(Stack):
    """Columns in pairs, at one line of a small batch and at another of a large one."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] <= 3:
            pairs = torch.stack((x[:, 0::2].sin(), x[:, 1::2].cos()), dim=2)
        else:
            pairs = torch.stack((x[:, 0::2], x[:, 1::2]), dim=2)
        return super().forward(pairs.flatten(1))


@pytest.mark.slow
def test_a_width_that_fails_at_another_line_bounds_no_batch() -> None:
    """Halves of an odd width do not fit, whatever the batch is: that another line says so at another batch is no bound of it."""
    lines: list[str] = []

    calc.derive(spec(EvenAndOdd, dims={"B": 3, "L": 5, "d": 8}), cache=False, progress=lines.append)

    assert [line for line in lines if line.startswith(("assuming", "B is"))] == ["assuming d to be a multiple of 2"]


def test_what_fails_at_other_counts_alone_is_no_bound() -> None:
    """At 7 iterations the halves do not fit, whatever B is: that says nothing of B, and T is even."""
    s = spec(InPairs, dims={"B": 3, "T": 8}, inputs=lambda n: (torch.randn(n.B, n.T),))

    dims = {dim.name: dim for dim in calc.derive(s, cache=False).dims}

    assert dims["B"].at_most is None
    assert dims["T"].multiple_of == 2


@pytest.mark.slow
def test_lists_in_each_layer_that_grow_together_are_looped_over() -> None:
    """The list in layer i has the child i alone, so none is longer in a deeper trace; that of all layers is, and the depth is a symbol."""
    adapted = spec(
        WithAdapters,
        dims={"B": 2, "d": 3, "f": 7, "r": 5, "L": 11},
        inputs=lambda n: (torch.randn(n.B, n.d),),
        trip_counts=("L",),
        may_specialize=(("L",),),
    )

    result = derived(adapted, optimizer="sgd")

    assert not result.specialized
    assert [] == failures(calc.check(result))


@pytest.mark.slow
def test_a_multiple_is_assumed_before_more_iterations_are_traced() -> None:
    """Few iterations determine no peak, but what the length is a multiple of shows in everything else: nothing deep is traced twice."""
    chunked = spec(
        InChunks,
        dims={"B": 2, "T": 20, "d": 3, "f": 7, "r": 5, "L": 11},
        inputs=lambda n: (torch.randn(n.B, n.T, n.d),),
        trip_counts=("L",),
        may_specialize=(("d",), ("T",), ("L",)),
    )
    lines: list[str] = []
    result = calc.derive(chunked, cache=False, optimizer="sgd", progress=lines.append)

    assert [lines.count(f"tracing the step with symbolic sizes at L = {depth}") for depth in (3, 4, 5, 6)] == [1, 1, 1, 1]
    assert "assuming T to be a multiple of 4" in lines
    assert not result.specialized


class Halving(nn.Module):
    """L convolutions, each twice as wide as the one before and over half as many positions."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv1d(n.c * 2**i, n.c * 2 ** (i + 1), 3, padding=1) for i in range(n.L)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = nn.functional.max_pool1d(layer(x), 2)
        return x


@pytest.mark.slow
def test_a_depth_at_which_nothing_is_left_to_halve_is_a_number_and_no_length_a_multiple() -> None:
    """Three layers have no closed form in their number; with eight, 71 positions are too few, which says nothing of the positions."""
    halved = spec(Halving, dims={"B": 2, "c": 2, "T": 71, "L": 3}, inputs=lambda n: (torch.randn(n.B, n.c, n.T),))
    lines: list[str] = []
    result = calc.derive(halved, cache=False, optimizer="sgd", progress=lines.append)

    assert {*result.specialized} == {"L"}
    assert [line for line in lines if line.startswith("assuming")] == []
    assert [] == failures(calc.check(result, T=16))


class LooksBack(nn.Module):
    """A recurrent layer over S tokens, and a cell that looks back at them at each of T."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.reads, self.writes = nn.GRU(n.d, n.h, batch_first=True, bidirectional=True), nn.GRUCell(n.d + 2 * n.h, n.h)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, (h, _) = self.reads(source)
        states = []
        for t in range(target.shape[1]):
            looks = (memory[:, :, : h.shape[1]] @ h[:, :, None]).softmax(1)
            h = self.writes(torch.cat([target[:, t], (looks * memory).sum(1)], -1), h)
            states.append(h)
        return torch.stack(states, 1).sum()


@pytest.mark.slow
def test_few_iterations_of_two_loops_are_a_case_of_their_own_together() -> None:
    """Three tokens and one of the other: neither alone is what the step does there."""
    s = spec(
        LooksBack,
        dims={"B": 2, "S": 7, "T": 5, "d": 3, "h": 4},
        inputs=lambda n: (torch.randn(n.B, n.S, n.d), torch.randn(n.B, n.T, n.d)),
        loss=lambda module, x, y: module(x, y).sum(),
    )
    derivation = calc.derive(s, {"S": 3, "T": 1, "d": 6, "h": 5}, cache=False, optimizer="sgd")

    assert [] == failures(calc.check(derivation))


class Parts(nn.Module):
    """Of each part of b positions a row, in a loop whose last part is what the others leave."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layer, self.b = nn.Linear(n.d, n.d), n.b

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([(self.layer(part) * part.amax(1, keepdim=True)).sum(1) for part in x.split(self.b, 1)], 1)


@pytest.mark.slow
def test_what_is_left_for_the_last_part_of_a_loop_is_no_branch() -> None:
    """Of five parts it is T - 4*b, compared with zero and one: a part like the others at any number of them, which certificates verify."""
    parts = spec(Parts, dims={"B": 3, "T": Dim(20, multiple_of="b"), "b": 5, "d": 7}, inputs=lambda n: (torch.randn(n.B, n.T, n.d),))
    result = derived(parts, optimizer="sgd")

    assert [a.expr for a in result.assumptions if a.kind == BRANCH] == []
    assert result["flops.forward.matmul"].text == "2*B*T*d**2"
    assert failures(calc.check(result, T=45)) == []


class StackedCells(nn.Module):
    """Two recurrent layers one after the other; what follows the matmul of a cell is in no module of its own."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.cells = nn.ModuleList([nn.Linear(2 * n.d, 2 * n.d) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        for cell in self.cells:
            h = torch.zeros_like(x[:, 0])
            states = []
            for t in range(x.shape[1]):
                gate, new = cell(torch.cat([x[:, t], h], 1)).chunk(2, 1)
                h = h + torch.sigmoid(gate) * torch.tanh(new)
                states.append(h)
            x = torch.stack(states, 1)
        return x


@pytest.mark.slow
def test_loops_over_time_in_stacked_cells_have_a_peak_in_the_length() -> None:
    """The last iteration of the first cell and the first of the second are at ends of loops of their own, though one module runs both."""
    cells = spec(StackedCells, dims={"B": 3, "T": 11, "d": 7}, inputs=lambda n: (torch.randn(n.B, n.T, n.d),))
    result = derived(cells, optimizer="sgd")

    assert result.specialized == {}
    assert {"T"} <= {str(symbol) for symbol in result["memory.peak"].expr.free_symbols}
    assert failures(calc.check(result, T=17)) == []

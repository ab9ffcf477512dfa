"""What a mixture of experts does in Python with the experts that its router chose: which they are depends on the data, what they cost does
not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import calc
from calc import Spec
from calc.errors import DataDependentError
from tests.checks import failures
from tests.quick import few
from tests.trace.refused import refusal


class Expert(nn.Module):
    def __init__(self, d: Any, f: Any) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(d, f, bias=False), nn.Linear(f, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x)))


Chosen = Iterator[tuple[nn.Module, Tensor]]
Loop = Callable[[Any, Tensor, int], Chosen]


class Mixture(nn.Module):
    """A loop over experts, of each token to the ``e`` that score best."""

    def __init__(self, n: Any, loop: Loop, widening: int) -> None:
        super().__init__()
        made = [Expert(n.d, n.f + widening * i) for i in range(n.E)]
        self.router, self.loop, self.count, self.each = nn.Linear(n.d, n.E, bias=False), loop, n.E, n.e
        self.experts = nn.ModuleDict({f"expert_{i}": e for i, e in enumerate(made)}) if loop is by_name else nn.ModuleList(made)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(0, 1)
        weights, chosen = self.router(x).softmax(-1).topk(self.each, -1)
        out = torch.zeros_like(x)
        for expert, mask in self.loop(self.experts, chosen, self.count):
            rows, place = torch.where(mask)
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, place, None])
        return out


def rows_of_counts(experts: Any, chosen: Tensor, count: int) -> Chosen:
    masks = F.one_hot(chosen, count).permute(2, 0, 1)
    for index in torch.greater(masks.sum((-1, -2)), 0).nonzero():
        yield experts[index], masks[index].squeeze(0)


def by_name(experts: Any, chosen: Tensor, count: int) -> Chosen:
    masks = F.one_hot(chosen, count).permute(2, 0, 1)
    for index in torch.greater(masks.sum((-1, -2)), 0).nonzero():
        yield experts[f"expert_{index[0]}"], masks[index].squeeze(0)


def by_item(experts: Any, chosen: Tensor, count: int) -> Chosen:
    for index in torch.bincount(chosen.flatten(), minlength=count).nonzero()[:, 0]:
        yield experts[index.item()], chosen == index


def distinct(experts: Any, chosen: Tensor, count: int) -> Chosen:
    for index in torch.unique(chosen):
        yield experts[index], chosen == index


def distinct_in_a_list(experts: Any, chosen: Tensor, count: int) -> Chosen:
    for index in chosen.unique().tolist():
        yield experts[index], chosen == index


def any_row(experts: Any, chosen: Tensor, count: int) -> Chosen:
    for index, expert in enumerate(experts):
        if (chosen == index).any():
            yield expert, chosen == index


def no_row(experts: Any, chosen: Tensor, count: int) -> Chosen:
    for index, expert in enumerate(experts):
        if (chosen == index).sum() == 0:
            continue
        yield expert, chosen == index


def counts_in_a_list(experts: Any, chosen: Tensor, count: int) -> Chosen:
    counts = torch.bincount(chosen.flatten(), minlength=count).tolist()
    for index, expert in enumerate(experts):
        if counts[index] > 0:
            yield expert, chosen == index


class SortedMixture(Mixture):
    """The rows in the order of their experts, each of which takes its part: by the counts, or from where the one before it ended."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(0, 1)
        weights, chosen = self.router(x).softmax(-1).topk(self.each, -1)
        order = chosen.flatten().argsort()
        rows = order // self.each
        counts = torch.bincount(chosen.flatten(), minlength=self.count).tolist()
        made = torch.cat([*self.loop(self.experts, x[rows], counts)])
        return torch.zeros_like(x).index_add(0, rows, made * weights.flatten()[order, None])


def by_counts(experts: Any, rows: Tensor, counts: Any) -> Iterator[Tensor]:
    for expert, part in zip(experts, rows.split(counts), strict=True):
        yield expert(part)


def from_the_last(experts: Any, rows: Tensor, counts: Any) -> Iterator[Tensor]:
    start = 0
    for expert, count in zip(experts, counts, strict=True):
        if count > 0:
            yield expert(rows[start : start + count])
            start += count


SORTED = {f.__name__: f for f in (by_counts, from_the_last)}
LOOPS = {f.__name__: f for f in (rows_of_counts, by_name, by_item, distinct, distinct_in_a_list, any_row, no_row, counts_in_a_list)}
OF_EACH = ("any_row", "no_row", "counts_in_a_list")  # its loop is over all experts


def spec(loop: Loop, widening: int = 0) -> Spec:
    return Spec(
        "mixture",
        {"B": 2, "T": 17, "d": 7, "f": 11, "E": 8, "e": 2},
        lambda n: Mixture(n, loop, widening),
        lambda n: (torch.randn(n.B, n.T, n.d),),
        lambda model, x: model(x).square().mean(),
    )


@functools.cache
def derived(loop: str) -> calc.Derivation:
    return calc.derive(spec(LOOPS[loop]), cache=False, optimizer="momentum")


@pytest.mark.parametrize("loop", few(LOOPS, 1, str, lambda loop: loop in ("any_row", "no_row", "rows_of_counts", "counts_in_a_list")))
def test_a_loop_over_the_chosen_experts_is_exact(loop: str) -> None:
    """A token uses e of E experts; gradients are those of the experts that were chosen, which are n1, or all by an assumption."""
    derivation = derived(loop)
    assumed = [a for a in derivation.assumptions if "at least one row chooses each expert" in a.because]

    assert "2*d*f*E + d*E" == derivation["parameters"].text
    assert "2*d*f*e + d*E" == derivation["parameters.active"].text
    assert derivation["gradients.bytes"].text == ("8*d*f*E + 4*d*E" if loop in OF_EACH else "8*d*f*n1 + 4*d*E")
    assert bool(assumed) == (loop in OF_EACH)
    assert derivation["gradients.bytes"].value == derivation["parameters.bytes"].value  # all experts, until a run says otherwise
    assert [] == failures(calc.check(derivation, d=5))


@pytest.mark.parametrize("loop", few(SORTED, 1))
def test_rows_in_the_order_of_experts_are_divided_among_these(loop: str) -> None:
    """How many rows each expert has is data-dependent, and adds up: no count of operations, and not one of saved bytes, depends on it."""
    sorted_rows = replace(spec(any_row), build=lambda n: SortedMixture(n, SORTED[loop], 0))
    derivation = calc.derive(sorted_rows, cache=False, optimizer="momentum")

    assert "4*B*T*d*f*e + 2*B*T*d*E" == derivation["flops.forward.matmul"].text
    assert "2*d*f*e + d*E" == derivation["parameters.active"].text
    assert "n1" not in derivation["activations.bytes"].text
    assert [] == failures(calc.check(derivation, d=5))


@pytest.mark.slow
def test_a_run_that_skips_an_expert_of_sorted_rows_decides_about_no_number_that_is_less() -> None:
    """Four choices leave at least four of eight experts without rows, and without a gradient."""
    sorted_rows = replace(spec(any_row), build=lambda n: SortedMixture(n, from_the_last, 0))
    report = calc.check(calc.derive(sorted_rows, cache=False, optimizer="momentum"), B=1, T=2)

    assert [] == [v for v in report.verdicts if v.verdict == "failed"]
    assert "in the real run one has none" in report["gradients.bytes"].because


class OnceARow(Mixture):
    """The rows that chose an expert in any of their choices, flat and as they were."""

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(self.each, -1)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows = (chosen == index).any(-1)
            flat = rows.view(-1)
            if flat.any():
                out[rows] += expert(x.flatten(0, 1)[flat]) * weights.sum(-1)[rows][:, None]
        return out


@pytest.mark.slow
def test_a_row_with_several_choices_is_among_those_of_an_expert_as_many_times_more_often() -> None:
    """It chooses an expert once at most; flat and in its own shape, a mask has as many of them."""
    once = replace(spec(any_row), build=lambda n: OnceARow(n, any_row, 0))
    derivation = calc.derive(once, cache=False, optimizer="momentum")

    assert ["Eq(n1, ceiling(B*T*e/E))"] == [a.expr for a in derivation.assumptions if a.expr.startswith("Eq(n")]
    assert "2*d*f*e + d*E" == derivation["parameters.active"].text
    assert [] == failures(calc.check(derivation, d=5))


class Runs(Mixture):
    """A vector for each run of rows that chose the same expert, and for each expert that any row chose."""

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.router(x.flatten(0, 1)).argmax(-1)
        runs, different = torch.unique_consecutive(chosen), torch.unique(chosen)
        return x.mean() * self.router.weight[runs].mean() * self.router.weight[different].mean()


def test_different_experts_are_no_more_than_experts_and_runs_of_them_no_more_than_rows() -> None:
    """One expert may be chosen again after another one."""
    dims = calc.derive(replace(spec(any_row), build=lambda n: Runs(n, any_row, 0)), cache=False, optimizer="sgd").dims

    assert {"n1": "B*T", "n2": "E"} == {dim.name: dim.at_most for dim in dims if dim.unbacked_at}


@pytest.mark.slow
def test_experts_that_no_token_chooses_have_no_gradient() -> None:
    """Two tokens choose at most four of eight experts."""
    report = calc.check(derived("rows_of_counts"), B=1, T=2)

    assert [] == failures(report)
    assert report["gradients.bytes"].measured < report["parameters.bytes"].measured


@pytest.mark.slow
def test_a_run_in_which_an_expert_is_not_chosen_does_not_decide_about_the_assumption() -> None:
    """With two tokens some of eight experts are skipped: what the run counts is not what was derived, which is no error of either. The
    parameters are those of the module all the same."""
    report = calc.check(derived("any_row"), B=1, T=2)

    assert [] == [v for v in report.verdicts if v.verdict == "failed"]
    assert {"exact"} == {report[name].verdict for name in ("parameters", "parameters.bytes")}
    assert "fewer times than the trace" in report["gradients.bytes"].because


@pytest.mark.parametrize("loop", [by_name, rows_of_counts])
def test_experts_that_differ_are_refused(loop: Loop) -> None:
    """What a step costs would depend on the ones that the data choose."""
    error = refusal(spec(loop, widening=1))

    assert isinstance(error, DataDependentError)
    assert " kinds by the value in a tensor, at test_chosen_experts.py:" in str(error)


def _offset(experts: Any, chosen: Tensor, count: int) -> Chosen:
    for index in torch.unique(chosen).tolist():
        yield experts[index + 0], chosen == index


def _many(experts: Any, chosen: Tensor, count: int) -> Chosen:
    for index, expert in enumerate(experts):
        if (chosen == index).sum().item() > 4:
            yield expert, chosen == index


@pytest.mark.parametrize(("loop", "why"), [(_offset, "computes with the index of an expert"), (_many, "the number of rows that chose an")])
def test_what_is_computed_with_a_choice_is_refused(loop: Loop, why: str) -> None:
    """Only which one it is, and whether any row chose it, says nothing about the data."""
    assert why in str(refusal(spec(loop)))

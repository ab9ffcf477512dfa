"""A check at data-dependent sizes: exact at the mean where every occurrence costs the same, by a trace elsewhere, or open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.derive.result import Derivation
from calc.errors import TraceError
from calc.pipeline.check import Report
from calc.pipeline.observed import at_observed
from calc.pipeline.verdict import EXACT, FAILED, NOT_MEASURED
from calc.spec import Spec

PEAKS = ("memory.peak", "memory.peak.first_step")
TRACED = "derived by a trace with the counts of the run: n1 differed between occurrences, and "


class Shared(nn.Module):
    """E matrices, each for the rows that are labelled with its number."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.first = nn.Linear(n.d, n.d)
        self.experts = nn.ModuleList([nn.Linear(n.d, n.f) for _ in range(n.E)])

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.first(x)
        total = torch.zeros(())
        for i, expert in enumerate(self.experts):
            total = total + expert(x[labels == i]).pow(2).sum()
        return total


def shared(labels: list[int] | None = None) -> Spec:
    """Rows that are labelled by chance, or as given."""

    def inputs(n: Any) -> tuple[Tensor, ...]:
        x = torch.randn(n.B, n.d)
        # What a trace reads of labels is how many there can be.
        given = labels if labels is not None and isinstance(n.B, int) and n.B == len(labels) else None
        return x, torch.randint(n.E, (n.B,)) if given is None else torch.tensor(given)

    return Spec("shared", {"B": 12, "d": 5, "f": 7, "E": 3}, Shared, inputs, lambda module, x, labels: module(x, labels))


@cache
def derivation() -> Derivation:
    return calc.derive(shared(), cache=False, optimizer="sgd")


def checked(*labels: int) -> Report:
    """The check of that derivation on rows labelled so."""
    spec = derivation().spec
    return calc.check(replace(derivation(), spec=replace(spec, inputs=shared(list(labels)).inputs)), B=len(labels), E=3)


def masked() -> Spec:
    """A loss of the rows that a mask selects by chance, three in ten, with small sizes for the check."""

    def inputs(n: Any) -> tuple[Tensor, ...]:
        return torch.randn(n.B, n.d), torch.rand(n.B) < 0.3

    def loss(module: nn.Module, x: Tensor, mask: Tensor) -> Tensor:
        return module(x)[mask].pow(2).sum()

    return Spec("masked", {"B": 211, "d": 5}, lambda n: nn.Linear(n.d, n.d), inputs, loss, {"B": 11})


def verdicts(report: Report, verdict: str) -> list[str]:
    return [v.quantity for v in report.verdicts if v.verdict == verdict]


def test_equal_counts_are_exact_in_every_quantity() -> None:
    """Four rows each: the peak is the peak."""
    report = checked(0, 1, 2, 0, 1, 2, 0, 1, 2, 2, 1, 0)

    assert [] == verdicts(report, FAILED)
    assert {EXACT} == {report[peak].verdict for peak in PEAKS}


def test_a_check_at_small_sizes_has_the_expected_number_of_those_sizes() -> None:
    """211 rows select 64 (three in ten, rounded up), which 11 rows cannot: at 11 rows the number follows them."""
    derivation = calc.derive(masked(), cache=False, optimizer="sgd")

    assert 64 == derivation.sizes["n1"]
    assert [] == verdicts(calc.check(derivation), FAILED)


def test_different_counts_are_exact_where_only_their_sum_matters() -> None:
    """Seven, three and two rows count as three times four; a peak is that of the largest, which no mean tells, but a trace with these."""
    report = checked(0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2)

    assert [] == verdicts(report, FAILED)
    assert {EXACT} == {report[peak].verdict for peak in PEAKS}
    assert f"{TRACED}a maximum is not the maximum of means" in report["memory.peak"].notes
    assert 2 * 12 * 5 * 5 + 2 * 12 * 5 * 7 == report["flops.forward.matmul"].derived == report["flops.forward.matmul"].measured
    assert {EXACT} == {report[name].verdict for name in ("activations.bytes", "bytes_moved.backward", "flops.step.total")}


def test_one_row_counts_as_one() -> None:
    """A sum over one row adds nothing."""
    assert [] == verdicts(checked(0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2), FAILED)


def test_no_row_at_all_is_exact_where_no_rule_counts_from_one() -> None:
    """Products and saved tensors vanish with the rows; a sum of nothing is not minus one addition."""
    report = checked(0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1)

    assert [] == verdicts(report, FAILED)
    assert EXACT == report["flops.backward.matmul"].verdict
    assert EXACT == report["activations.bytes"].verdict
    because = "not derived: n1 was also 0, and rules for sums need at least one element"
    assert because == report["flops.forward.elementwise"].because


class Gated(nn.Module):
    """Two layers for rows drawn at random, of which the first needs no gradient for its input."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(n.d, n.d) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            rows = (torch.rand(x.shape[0]) < 0.5).nonzero()[:, 0]
            x = x.index_add(0, rows, layer(x[rows]))
        return x


def test_a_trace_is_counted_where_times_cost_differently() -> None:
    """The rows of the first layer have one product less in the backward, so it matters which layer had how many."""
    spec = Spec("unlike", {"B": 53, "d": 5}, Gated, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())
    report = calc.check(calc.derive(spec, cache=False, optimizer="sgd"))

    assert [] == verdicts(report, FAILED)
    assert EXACT == report["flops.forward.matmul"].verdict
    assert EXACT == report["flops.backward.matmul"].verdict
    assert f"{TRACED}not every occurrence costs the same" in report["flops.backward.matmul"].notes
    assert NOT_MEASURED == report["memory.peak.first_step"].verdict  # the rows of the first step are others


# -- by hand --------------------------------------------------------------------------------------------------------------


def numbers(counts: Mapping[str, tuple[int, ...]], recount: Mapping[str, int] | None = None) -> Any:
    sizes = {**derivation().sizes}
    place = next(d.unbacked_at for d in derivation().dims if d.unbacked_at)
    decided = {place: counts["n1"]}

    def again() -> Mapping[str, int]:
        if recount is None:
            raise TraceError("the step could not be traced again")
        return recount

    return at_observed(derivation(), sizes, decided, decided, again)


def test_a_recount_that_differs_from_the_closed_form_is_the_number() -> None:
    """2*12*5*5 + 2*5*7*(7 + 3 + 2) = 1440, unless rows of one expert count more than those of another."""
    alike = numbers({"n1": (7, 3, 2)}, {"flops.forward.matmul": 1440})
    unlike = numbers({"n1": (7, 3, 2)}, {"flops.forward.matmul": 1441})

    assert (1440, {}) == (alike.numbers["flops.forward.matmul"], alike.traced)
    assert 1441 == unlike.numbers["flops.forward.matmul"]
    assert {"flops.forward.matmul": f"{TRACED}not every occurrence costs the same"} == unlike.traced


def test_a_recount_says_nothing_about_a_first_step_with_other_counts() -> None:
    """It has those of the second step throughout."""
    place = next(d.unbacked_at for d in derivation().dims if d.unbacked_at)
    recount = dict.fromkeys(PEAKS, 5000)
    observed = at_observed(derivation(), {**derivation().sizes}, {place: (7, 3, 2)}, {place: (6, 4, 2)}, lambda: recount)

    assert (5000, None) == tuple(observed.numbers[peak] for peak in PEAKS)
    assert "n1 differed between occurrences, and a maximum is not the maximum of means" == observed.open_["memory.peak.first_step"]


def test_a_step_that_cannot_be_traced_again_leaves_its_quantities_open() -> None:
    """With the reason; what does not vary needs no recount."""
    assert "the step could not be traced again" == numbers({"n1": (7, 3, 2)}).open_["flops.forward.matmul"]
    assert {} == dict(numbers({"n1": (4, 4, 4)}).open_)


def test_a_place_that_was_never_passed_leaves_its_quantities_open() -> None:
    """There is no mean of nothing."""
    assert "the real run never reached the line that determines n1" == numbers({"n1": ()}).open_["flops.forward.matmul"]


@pytest.mark.parametrize("counts", [(4, 4, 4), (7, 3, 2)])
def test_data_independent_quantities_have_numbers_in_any_case(counts: tuple[int, ...]) -> None:
    """5*5 + 5 and three times 5*7 + 7 parameters."""
    assert 156 == numbers({"n1": counts}, {"parameters": 156}).numbers["parameters"]

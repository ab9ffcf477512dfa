"""Sizes and values that are not data-dependent, though they are read out of tensors: constants, masks with so many ones, numbers copied."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import calc
from calc.derive.result import Derivation
from calc.errors import DataDependentError
from calc.pipeline.check import Report
from calc.spec import Spec
from calc.trace.kernels import operator_overrides
from tests.checks import failures


class Labelled(nn.Module):
    """A linear layer, and what ``of`` makes of its results, labels and number of classes."""

    def __init__(self, n: Any, of: Callable[[Tensor, Tensor, Any], Tensor]) -> None:
        super().__init__()
        self.score, self.classes, self.of = nn.Linear(n.d, n.C), n.C, of
        self.register_buffer("kinds", torch.tensor([0, 0, 1, 2]))
        self.register_buffer("rows", torch.tensor([[1, 1], [0, 1], [1, 1]]).unique(dim=0))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.of(self.score(x), y, self)


def checked(of: Callable[[Tensor, Tensor, Any], Tensor]) -> tuple[Derivation, Report]:
    spec = Spec(
        name="labelled",
        dims={"B": 6, "d": 12, "C": 4},
        build=lambda n: Labelled(n, of),
        inputs=lambda n: (torch.randn(n.B, n.d), torch.randint(0, n.C, (n.B,))),
        loss=lambda model, x, y: model(x, y),
    )
    derivation = calc.derive(spec, cache=False, optimizer="sgd")
    return derivation, calc.check(derivation, B=5, d=7, C=3)


def margin(scores: Tensor, y: Tensor, model: Any) -> Tensor:
    """ArcFace's: the scores of the labels are taken out by a mask with a one in each row."""
    mask = torch.zeros(y.size(0), model.classes)
    mask[torch.arange(y.size(0)), y] = 1
    own = scores[mask == 1]
    return F.cross_entropy(scores + mask * own.cos().unsqueeze(1), y)


def one_hot(scores: Tensor, y: Tensor, model: Any) -> Tensor:
    mask = F.one_hot(y, model.classes).bool()
    return (scores[mask].unsqueeze(1) - scores[~mask].view(y.size(0), model.classes - 1)).relu().sum()


def off_diagonal(scores: Tensor, y: Tensor, model: Any) -> Tensor:
    rows = y.size(0)
    alike = (scores @ scores.t())[~torch.eye(rows, dtype=torch.bool)]
    return alike.view(rows, rows - 1).logsumexp(1).mean()


def first_places(scores: Tensor, y: Tensor, model: Any) -> Tensor:
    best = torch.zeros_like(scores).scatter(1, scores.topk(2, 1).indices, 1.0)
    return scores.masked_select(best > 0).view(y.size(0), 2).sum()


@pytest.mark.parametrize("of", [margin, one_hot, off_diagonal, first_places])
def test_a_mask_whose_ones_sizes_count_chooses_so_many(of: Callable[[Tensor, Tensor, Any], Tensor]) -> None:
    """One in each row, all but a diagonal, two in each row: no data-dependent size, and exact."""
    derivation, report = checked(of)

    assert not [dim.name for dim in derivation.dims if dim.unbacked_at]
    assert [] == failures(report)


def test_classes_are_read_as_often_in_inference_mode() -> None:
    """What torch does is asked once in a process: asked first in inference mode, the answer is the same."""
    asking = operator_overrides._reads_once
    asking.cache_clear()
    with torch.inference_mode():
        first = asking(F.one_hot)
    asking.cache_clear()

    assert first == asking(F.one_hot)


def is_finite(x: Tensor) -> bool:
    if torch.isnan(x).any():
        return False
    if torch.isinf(x).any():
        return False
    return bool(torch.isfinite(x).all())


def only_ones(x: Tensor) -> bool:
    """A padding mask of an image, resized to its features; too large for its values to be computed."""
    mask = torch.ones(x.size(0), 300, 300)
    return bool(F.interpolate(mask[None], size=(7, 7)).to(torch.bool)[0].all())


def ones_written_over(x: Tensor) -> bool:
    mask = torch.ones(x.size(0), 300, 300)
    mask.view(-1)[: x.size(1)] = x[0]
    return bool(mask.to(torch.bool).all())


def other_numbers(x: Tensor) -> bool:
    return bool((x == x.flip(0)).all())


def masked(x: Tensor) -> Tensor:
    return x.masked_fill(torch.ones_like(x, dtype=torch.bool).triu(1), -math.inf)


def masked_is_infinite(x: Tensor) -> bool:
    return not bool(torch.isinf(masked(x)).any())


def mask_added_is_finite(x: Tensor) -> bool:
    return bool(torch.isfinite(x + torch.full((x.size(1),), -math.inf)).all())


def written_in_place(x: Tensor) -> bool:
    y = x.clone()
    y[:, 1:].fill_(-math.inf)
    return bool(torch.isfinite(2 * y).all())


def constant_of_python(x: Tensor) -> bool:
    return bool((torch.where(x > 0, x, torch.tensor(-math.inf)) != -math.inf).all())


def weights_are_finite(x: Tensor) -> bool:
    """A softmax makes finite weights of a masked row."""
    return bool(torch.isfinite(masked(x)[:, :1].softmax(-1)).all())


def asking(is_usual: Callable[[Tensor], bool]) -> Spec:
    """A step that runs a further operator where ``is_usual`` is false."""
    return Spec(
        "asking", {"B": 2, "d": 5}, lambda n: nn.Linear(n.d, n.d), lambda n: (torch.randn(n.B, n.d),),
        lambda module, x: (y if is_usual(y := module(x)) else y.clamp(-1, 1)).sum(),
    )  # fmt: skip


TRUTHS: dict[Callable[[Tensor], bool], list[str]] = {is_finite: ["False", "False", "True"], only_ones: [], weights_are_finite: ["True"]}


@pytest.mark.parametrize("is_usual", TRUTHS)
def test_what_holds_of_all_numbers_is_no_data(is_usual: Callable[[Tensor], bool]) -> None:
    """No number is infinite or NaN, which is said; a mask of ones has nothing else, whatever is selected of it."""
    derivation = calc.derive(asking(is_usual), cache=False, optimizer="sgd")

    assert [] == failures(calc.check(derivation, B=3, d=7))
    said = [a.expr for a in derivation.assumptions if a.because == "no number of the step is infinite or NaN"]
    assert [text.rpartition(" ")[2] for text in said] == TRUTHS[is_usual]


@pytest.mark.parametrize(
    "is_usual", [ones_written_over, other_numbers, masked_is_infinite, mask_added_is_finite, written_in_place, constant_of_python]
)
def test_what_data_may_change_is_refused(is_usual: Callable[[Tensor], bool]) -> None:
    """Ones that were written over, numbers that are compared with others than themselves, and those where the model writes −∞."""
    with pytest.raises(DataDependentError, match=r"^the step reads a value out of a tensor at test_constants"):
        calc.derive(asking(is_usual), cache=False, optimizer="sgd")


def test_a_mask_that_was_written_over_is_counted_by_data() -> None:
    """Ones put over ones may meet, and so may ones at places that are alike."""

    def twice(scores: Tensor, y: Tensor, model: Any) -> Tensor:
        mask = torch.zeros(y.size(0), model.classes)
        mask[torch.arange(y.size(0)), y] = 1
        mask[torch.arange(y.size(0)), y.flip(0)] = 1
        return scores[mask == 1].sum()

    derivation, _ = checked(twice)

    assert [dim.name for dim in derivation.dims if dim.unbacked_at] == ["n1"]


def kinds(scores: Tensor, y: Tensor, model: Any) -> Tensor:
    assert model.kinds.unique().numel() == 3
    assert model.kinds.nonzero().flatten().tolist() == [2, 3]
    return scores.sum() * model.kinds.unique().tolist()[-1]


def copied(scores: Tensor, y: Tensor, model: Any) -> Tensor:
    sums = torch.tensor([scores.detach().sum(), torch.tensor(2.0), 1.0])
    counts = torch.tensor([y.sum(), y.max()])
    return scores.mean() * sums.sum() + counts.sum()


def moved(scores: Tensor, y: Tensor, model: Any) -> Tensor:
    model.to(scores.device)
    model.score.to("cpu")
    return scores.mean()


def bytes_as_truths(scores: Tensor, y: Tensor, model: Any) -> Tensor:
    assert model.rows.shape == (2, 2)
    mask = torch.ones_like(y, dtype=torch.uint8)
    assert mask.all()
    return torch.where(mask[:, None], scores, torch.zeros_like(scores)).sum()


@pytest.mark.parametrize("of", [kinds, copied, moved, bytes_as_truths])
def test_what_a_real_run_does_without_data_is_done(of: Callable[[Tensor, Tensor, Any], Tensor]) -> None:
    """The distinct values and rows of a constant, numbers copied from tensor to tensor, a module moved to where it is, a mask of bytes that
    has the sizes of data and is all ones."""
    derivation, report = checked(of)

    assert not derivation.specialized
    assert [] == failures(report)


def test_a_value_copied_from_data_answers_no_branch() -> None:
    """It is written into a tensor as any other, and is no constant there."""

    def branch(scores: Tensor, y: Tensor, model: Any) -> Tensor:
        return scores.sum() if torch.tensor([scores.sum(), 1.0])[0] > 0 else scores.mean()

    with pytest.raises(calc.errors.DataDependentError, match=r"test_constants\.py:\d+: return scores\.sum\(\) if torch\.tensor"):
        checked(branch)


def test_what_a_trace_replaces_has_the_name_of_what_it_was() -> None:
    """Libraries ask functions of torch for their names, ``torch.fx`` when it goes through its own table of them."""

    def named(scores: Tensor, y: Tensor, model: Any) -> Tensor:
        assert torch.linspace.__name__ == "linspace"
        torch.overrides.get_testing_overrides.__wrapped__.__wrapped__()
        return scores.mean()

    checked(named)


def test_a_trace_leaves_torch_as_it_was() -> None:
    """A tensor without axes is no sequence to torch afterwards either."""
    checked(moved)

    assert torch.tensor([torch.tensor(2.0), 1.0]).tolist() == [2.0, 1.0]


# -- values that depend on sizes -----------------------------------------------------------------------------------------------


class Masked(nn.Module):
    """As autoregressive flows are built: which inputs an output sees, the distinct rows of that, and units for each of them."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        sees = torch.arange(n.d)[:, None] >= torch.arange(n.d)
        rows, self.places = torch.unique(sees, dim=0, return_inverse=True)
        assert not (~rows).all()
        reached = rows.sum(dim=1).nonzero().squeeze(1)
        self.register_buffer("mask", rows[reached[torch.arange(n.f) % len(reached)]].float())
        self.weight = nn.Parameter(torch.randn(n.f, n.d))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * self.mask)


def test_values_that_depend_on_sizes_alone_are_read_at_those_sizes() -> None:
    s = Spec(
        "masked", {"B": 3, "d": 5, "f": 8}, Masked, lambda n: (torch.randn(n.B, n.d),), lambda m, x: m(x).sum(), check_at={"d": 4, "B": 2}
    )

    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert ("d*f", {}) == (derivation["parameters"].text, derivation.specialized)
    assert [] == failures(calc.check(derivation))


def test_constants_repeat_and_are_counted_as_often_as_they_say() -> None:
    """Two, three and one of a row each make six rows; three numbers up to 2 have three counts."""

    def loss(module: nn.Module, x: Tensor) -> Tensor:
        y = module(x).repeat_interleave(torch.tensor([2, 3, 1]), dim=1)
        return (y * y).sum() * torch.bincount(torch.tensor([0, 2, 2])).sum()

    derivation = calc.derive(
        Spec("repeated", {"B": 3}, lambda n: nn.Linear(4, 3), lambda n: (torch.randn(n.B, 4),), loss), cache=False, optimizer="sgd"
    )

    assert [] == failures(calc.check(derivation))


def test_a_state_may_hold_more_than_tensors() -> None:
    """A checkpoint's payload is its tensors: 4·3 + 3 numbers of 4 bytes, and the iteration."""

    class More(nn.Linear):
        def get_extra_state(self) -> dict[str, int]:
            return {"version": 1}

        def set_extra_state(self, state: dict[str, int]) -> None:
            pass

    s = Spec("more", {"B": 3}, lambda n: More(4, 3), lambda n: (torch.randn(n.B, 4),), lambda m, x: m(x).sum())
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert calc.check(derivation)["checkpoint.bytes"].verdict == "exact"


def test_a_count_of_which_the_step_is_no_polynomial_becomes_a_number() -> None:
    """Experts that are given d, d/2, d/3, … units: d·(d + d/2 + d/3) weights of three."""

    def build(n: Any) -> nn.Module:
        return nn.ModuleList(nn.Linear(n.d, n.d // (i + 1), bias=False) for i in range(n.E))

    s = Spec("experts", {"B": 3, "d": 12, "E": 3}, build, lambda n: (torch.randn(n.B, n.d),), lambda m, x: sum(e(x).sum() for e in m))
    derivation = calc.derive(s, cache=False, mode="infer")

    assert {"E": 3} == derivation.specialized
    assert [12 * (12 + 6 + 4), 17 * (17 + 8 + 5)] == [derivation["parameters"].at(d=d) for d in (12, 17)]


def test_weights_may_be_solved_for_when_a_module_is_built() -> None:
    """As splines are fitted to noise, in a ``try`` that hides what is raised."""

    def build(n: Any) -> nn.Module:
        layer = nn.Linear(n.d, n.f, bias=False)
        with contextlib.suppress(Exception):
            layer.weight = nn.Parameter(torch.linalg.lstsq(torch.rand(9, n.f), torch.rand(9, n.d)).solution)
        return layer

    s = Spec("solved", {"B": 3, "d": 5, "f": 4}, build, lambda n: (torch.randn(n.B, n.d),), lambda m, x: m(x).sum())
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert "d*f" == derivation["parameters"].text
    assert [] == failures(calc.check(derivation))


def test_a_size_that_constants_determine_where_others_are_numbers_is_not_data_dependent() -> None:
    """Each row has one positive and 2·B − 2 negatives (SimCLR): labels made of positions count them once B is a number."""

    def contrasted(module: nn.Module, x: Tensor) -> Tensor:
        rows = torch.cat([module(x), module(x + 1)])
        labels = torch.arange(x.shape[0]).repeat(2)
        same = (labels[None] == labels[:, None]).float()[~torch.eye(rows.shape[0], dtype=torch.bool)].view(rows.shape[0], -1)
        scores = (rows @ rows.T)[~torch.eye(rows.shape[0], dtype=torch.bool)].view(rows.shape[0], -1)
        return scores[same.bool()].view(rows.shape[0], -1).sum() - scores[~same.bool()].view(rows.shape[0], -1).logsumexp(1).sum()

    s = Spec("contrasted", {"B": 5, "d": 7}, lambda n: nn.Linear(n.d, n.d), lambda n: (torch.randn(n.B, n.d),), contrasted)
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert {"B": 5} == derivation.specialized
    assert {"B", "d"} == set(derivation.sizes)
    assert [] == failures(calc.check(derivation, d=11))

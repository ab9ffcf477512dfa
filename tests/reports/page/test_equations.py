"""The model and its gradients as equations."""

from __future__ import annotations

import functools
from collections import OrderedDict
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import calc
from calc.mathematics.autodiff.summing import SHIFT
from calc.mathematics.gradients import gradients
from calc.symbolic.algebra import symbol
from reports.jobs import job
from reports.page import equations
from reports.page.equations import EquationTable, ModelSection, equations_document, model_section
from reports.typeset.equations import TIES
from reports.typeset.letters import flops_text, size_text
from reports.typeset.numbers import NBSP
from tests.mathematics.autodiff.models import MODELS


@functools.cache
def _two_layer() -> ModelSection:
    return model_section(gradients(calc.load("two-layer")))


def test_forward_and_gradients_have_shapes_and_flops() -> None:
    """Matmuls in matrix notation, all else with its indices."""
    forward, backward = _two_layer().tables

    assert ["Y = x0 w1", "Y2 = Y w2", "ℒ = mean_b,k((Y2[b,k] − x1[b,k])^2)"] == [row.equation for row in forward.rows]
    assert [("(D, K)", "2·B·D·K"), ("(D, D)", "2·B·D²")] == [(row.shape, row.flops) for row in backward.rows if row.parameter]


def test_flops_have_their_sizes_in_the_order_of_the_dimensions() -> None:
    """As closed forms have them, not by the alphabet."""
    program = gradients(calc.load("two-layer")).program
    B, D, K = map(symbol, "BDK")

    assert flops_text(2 * B * D**2 * K, program) == "2·B·D²·K"
    assert flops_text(2 * B * D**2 * K, replace(program, define={"K": "K", "B": "B", "D": "D"})) == "2·K·B·D²"


def test_the_gradient_of_an_input_is_not_computed() -> None:
    """∂ℒ/∂x0 = ∂ℒ/∂Y w1ᵀ would take 2·B·D² FLOP; x1 is read by no matmul. Both are named with their shapes."""
    assert _two_layer().notes == (
        "Inputs: x0 (B, D), x1 (B, K).",
        "∂ℒ/∂x0 is not computed: inputs need no gradient. That saves 2·B·D² FLOP.",
    )


def test_of_equal_layers_the_one_shown_is_named() -> None:
    """The first in the forward, the last in the backward: what they read is of the embedding and of the final norm."""
    section = model_section(gradients(calc.load("gpt2")))
    forward, backward = (table for table in section.tables if table.layer)

    assert "mean_i(transformer.X[b,t,i])" == forward.rows[0].equation.partition(" = ")[2]
    assert [
        "Forward: transformer.h.0, as in every transformer.h.*; transformer.h.1 has transformer.h.0.Y in place of transformer.X",
        "Gradients, from the loss back: transformer.h.1, as in every transformer.h.*;"
        " transformer.h.0 has transformer.X in place of transformer.h.0.Y",
    ] == [forward.title, backward.title]
    assert ["L = 2 in these equations only; all other sizes are symbols.", "Inputs: ids (B, T) of tokens, targets (B, T)."] == [
        note.replace(NBSP, " ") for note in section.notes
    ]


def test_equations_of_no_layer_say_beside_which_layers_they_are() -> None:
    """The embedding before the layers, the head after them; of the gradients the other way round."""
    titles = [table.title for table in model_section(gradients(calc.load("gpt2"))).tables if not table.layer]

    assert ["Forward, before transformer.h.*", "Forward, after transformer.h.*"] == titles[:2]
    assert ["before transformer.h.*", "after transformer.h.*"] == [t.removeprefix("Gradients, from the loss back, ") for t in titles[2:]]


def test_layers_that_are_alike_are_named_unless_they_are_all_of_a_pattern() -> None:
    """The first layer of a stage may have a downsample, which the rest of it does not have."""
    table = EquationTable("Forward", "layer1.1", "", (), alike=("layer1.2",))
    backward = replace(table, layer="layer3.5", alike=("layer3.4", "layer3.3", "layer3.2", "layer3.1"))

    assert ("Forward: layer1.1, as in layer1.2", "layer1.1 and layer1.2") == (table.title, table.layers)
    assert "Forward: layer3.5, as in layer3.4 to layer3.1" == backward.title
    assert "Forward: layer1.1, as in layer1.2; with other sizes: layer2.1" == replace(table, others=("layer2.1",)).title
    assert "Forward: layer1.1, as in every layer1.*" == replace(table, pattern="layer1.*").title


def test_every_layer_of_a_pattern_is_claimed_only_where_all_have_the_equations() -> None:
    """Of three layers the first has a linear map in place of its skip connection."""
    spec = calc.Spec(
        name="stack",
        dims={"B": 2, "c": 4, "S": 8},
        build=lambda n: nn.Sequential(OrderedDict(layer=nn.Sequential(*(_Block(n.c, i == 0) for i in range(3))))),
        inputs=lambda n: (torch.randn(n.B, n.c),),
        loss=lambda model, x: model(x).square().mean(),
    )
    titles = [table.title for table in model_section(gradients(spec)).tables]

    assert "Forward: layer.1, as in layer.2; layer.2 has layer.1.X in place of layer.0.X" in titles
    assert not [title for title in titles if "every" in title]


class _Block(nn.Module):
    """A linear layer, the first with a second one beside it."""

    def __init__(self, c: int, first: bool) -> None:
        super().__init__()
        self.fc = nn.Linear(c, c)
        self.down = nn.Linear(c, c) if first else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(x)) + (x if self.down is None else self.down(x))


def test_a_step_without_a_backward_has_the_forward_alone() -> None:
    """In evaluation mode nothing is differentiated."""
    section = model_section(gradients(calc.load("two-layer")), mode="eval")

    assert (1, ("Inputs: x0 (B, D), x1 (B, K).",)) == (len(section.tables), section.notes)


def test_the_equations_of_inference_end_with_the_prediction() -> None:
    """Its input is x alone, there is no loss, and no tensor is called ℒ."""
    derivation = calc.derive(calc.load("two-layer"), mode="infer", cache=False)
    (table,), notes = (section := job.equations(derivation, lambda _: None)).tables, section.notes

    assert (["Y = x w1", "Y2 = Y w2"], ("Inputs: x (B, D).",)) == ([row.equation for row in table.rows], notes)


@pytest.mark.parametrize("mode", ["eval", "infer"])
def test_the_equations_of_a_model_that_is_used_have_no_dropout(mode: str) -> None:
    """Training has 8·noise/7, as it scales the seven eighths of the elements that stay."""
    spec = replace(calc.load("linear"), dims={"B": 3, "d": 5}, build=_dropping, inputs=_squares, check_at={})
    used, trained = (job.equations(calc.derive(spec, mode=each, cache=False), lambda _: None) for each in (mode, "train"))

    assert not _with_noise(used)
    assert _with_noise(trained)


def _dropping(n: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(n.d, n.d), nn.Dropout(1 / 8))


def _squares(n: Any) -> tuple[torch.Tensor, ...]:
    return torch.randn(n.B, n.d), torch.randn(n.B, n.d)


def _with_noise(section: ModelSection) -> list[str]:
    return [row.equation for table in section.tables for row in table.rows if "noise" in row.equation]


def test_a_prediction_of_several_tensors_has_no_equations() -> None:
    """The section says so; everything else is derived."""
    spec = replace(calc.load("two-layer"), predict=lambda model, x: (model(x), x))
    derivation = calc.derive(spec, mode="infer", cache=False)

    assert "two-layer: equations are of a prediction that is one tensor, not of a tuple" == job.equations(derivation, lambda _: None).why


def test_a_long_model_names_the_command(monkeypatch) -> None:
    """Its equations are not cut."""
    monkeypatch.setattr(equations, "MOST", 3)

    assert (
        "there are 7 equations: napkin gradients my.py:TWO prints them"
        == model_section(gradients(calc.load("two-layer")), model="my.py:TWO").why
    )


def test_a_model_without_equations_says_why() -> None:
    """A derivation from a graph has no model to trace."""
    derivation = replace(calc.derive(calc.load("mlp")), spec=None)

    assert job.equations(derivation, lambda _: None).why.startswith("they were not derived")


def test_a_page_without_room_for_the_equations_says_where_they_are() -> None:
    """One sentence instead of seven rows; the tables stay in the other formats."""
    section = equations.elsewhere(replace(_two_layer(), model="two-layer"))

    assert ((), "the 7 equations are in the Markdown report, or on a terminal: napkin gradients two-layer") == (section.tables, section.why)


@functools.cache
def _convolution() -> ModelSection:
    """Of an image of height H and width W, its absolute values averaged over both."""
    spec = calc.Spec(
        name="convolution",
        dims={"B": 2, "c": 4, "H": 5, "W": 6},
        build=lambda n: nn.ModuleList([nn.Conv2d(3, n.c, 3, padding=1)]),
        inputs=lambda n: (torch.randn(n.B, 3, n.H, n.W),),
        loss=lambda model, x: model[0](x).abs().mean(dim=(2, 3)).square().mean(),
    )
    return model_section(gradients(spec))


def test_a_convolution_has_indices() -> None:
    """Σ_j,n,m X' W would not say what of X' is multiplied by what of W."""
    rows = {row.equation.partition(" = ")[0]: row.equation.partition(" = ")[2] for table in _convolution().tables for row in table.rows}

    assert "Σ_j,n,m X'[b,j,h,w,n,m] 0.W[i,j,n,m] + bias[i]" == rows["Y[b,i,h,w]"]
    assert "Σ_b,h,w X'[b,j,h,w,n,m] ∂ℒ/∂Y[b,i,h,w]" == rows["∂ℒ/∂0.W[i,j,n,m]"]


def test_the_gradient_of_a_max_pool_divides_by_the_number_of_ties() -> None:
    """A count, Σ 1, rather than 9 times a mean of it; a note says what torch does instead."""
    spec = calc.Spec(
        name="pool",
        dims={"B": 2, "c": 4, "S": 8},
        build=lambda n: nn.Sequential(nn.Conv2d(3, n.c, 3, padding=1), nn.MaxPool2d(3, 2, 1)),
        inputs=lambda n: (torch.randn(n.B, 3, n.S, n.S),),
        loss=lambda model, x: model(x).square().mean(),
    )
    (row,) = (row for table in model_section(gradients(spec)).tables for row in table.rows if TIES in row.notes)

    assert row.equation.startswith("∂ℒ/∂X'[")
    assert "/Σ_" in row.equation
    assert "mean" not in row.equation


def test_a_tensor_is_not_called_like_a_size() -> None:
    """The weight of module 0 is not W, which is the width of the image, nor are the absolute values H, which is its height."""
    names = {row.equation.partition(" = ")[0].partition("[")[0] for table in _convolution().tables for row in table.rows}

    assert "H1" in names
    assert not names & {"H", "W", "∂ℒ/∂H", "∂ℒ/∂W"}


def test_an_element_outside_of_an_image_is_said_to_be_zero() -> None:
    """x[b,j,h+n-1,m+w-1] is read beyond the edge, where the convolution pads; j, n and m are of axes of 3, which is no size."""
    assert _convolution().notation == (
        "In these equations: i is an index of c; every other index runs over the axis at its position in the shape;"
        " an element outside its tensor is 0."
    )


def test_a_gradient_that_is_zero_says_why() -> None:
    """Beside its equation, and as data."""
    section = model_section(gradients(MODELS["multi-head attention"]))
    rows = {row.equation: row.because for table in section.tables for row in table.rows}
    (data,) = (row for row in equations_document(section) if "because" in row)

    assert ("∂ℒ/∂kk.b[p] = 0", SHIFT) == (data["equation"], data["because"])
    assert [SHIFT] == [because for because in rows.values() if because]


def test_the_gradient_of_the_input_of_a_first_convolution_is_not_computed() -> None:
    """The matmul reads patches of x: 2·(3·3·3)·B·c·H·W FLOP are saved."""
    assert "∂ℒ/∂x is not computed: inputs need no gradient. That saves 54·B·c·H·W FLOP." in _convolution().notes


def test_flops_have_their_numbers_as_factors() -> None:
    """3 channels of 3 by 3 are summed over for each of B·c·H·W results."""
    assert ["2·(3·3·3)·B·c·H·W"] * 2 == [row.flops for table in _convolution().tables for row in table.rows if row.flops]


def test_flops_have_their_digits_in_groups_of_three() -> None:
    """As all other numbers of a page; commas in a shape separate its axes."""
    program = gradients(calc.load("two-layer")).program

    assert "50,257·B" == flops_text(50257 * symbol("B"), program)
    assert "50257·B" == size_text(50257 * symbol("B"), program)

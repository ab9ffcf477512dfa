"""Equations as they are read: what is outside a tensor, how rows are sorted, which letter is an index, what is a matrix."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import calc
from reports.page.gradients import EquationEntry, entries, together
from reports.typeset.equations import CONCATENATED, INDICATOR, MERGED, OUTSIDE, RUNNING
from tests.mathematics.autodiff.models import MODELS
from tests.quick import few


class Applied(nn.Module):
    """A function of a linear layer's result."""

    def __init__(self, width: Any, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, bias=False)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        actual: Tensor = self.function(self.linear(x))
        return actual


def applied(function: Callable[[Tensor], Tensor], **how: bool) -> list[EquationEntry]:
    """The equations of a function of Y (B, T, d)."""
    spec = calc.Spec(
        name="applied",
        dims={"B": 2, "T": 5, "d": 7},
        build=lambda n: Applied(n.d, function),
        inputs=lambda n: (torch.randn(n.B, n.T, n.d),),
        loss=lambda m, x: (m(x) ** 2).mean(),
    )
    return entries(calc.gradients(spec), **how)


@functools.cache
def written(name: str, **how: bool) -> list[EquationEntry]:
    return entries(calc.gradients(MODELS.get(name) or calc.load(name)), **how)


def lines(equations: list[EquationEntry]) -> list[str]:
    return [str(entry.equation) for entry in equations]


def legend(equations: list[EquationEntry]) -> tuple[str, ...]:
    return together(entry.notation for entry in equations).legend


# -- outside a tensor ------------------------------------------------------------------------------------------------------


def _labels(**how: bool) -> str:
    """The equation of labels padded with -100, as a language model shifts them."""
    spec = calc.Spec(
        name="shifted labels",
        dims={"B": 2, "T": 5, "V": 7},
        build=lambda n: nn.Embedding(n.V, n.V),
        inputs=lambda n: (torch.randint(n.V, (n.B, n.T)),),
        loss=lambda m, i: F.cross_entropy(m(i).flatten(0, 1), F.pad(i, (0, 1), value=-100)[:, 1:].flatten()),
    )
    return next(line for line in lines(entries(calc.gradients(spec), **how)) if "100" in line)


def test_labels_are_ignored_where_they_are_padded() -> None:
    """Position T is -100, not 0, which is a class."""
    assert "padded[b,t] = {ids[b,t] where t < T; else −100}" == _labels()


def test_padding_is_written_in_latex_too() -> None:
    """As cases."""
    cases = r"\begin{cases} \mathrm{ids}[b,t] & \text{for}\: t < T \\ -100 & \text{otherwise} \end{cases}"

    assert rf"\mathrm{{padded}}[b,t] = {cases}" == _labels(latex=True)


def test_a_padded_maximum_pads_with_minus_infinity() -> None:
    """Windows of 3 by stride 2 over 4 elements: the first begins before the first element, none ends after the last."""
    rows = lines(applied(lambda y: F.max_pool1d(y[:, :, :4], 3, 2, 1)))

    assert "X'[b,t,j,n,m,p] = {linear[b,t,2·n+p-1] where 2·n+p-1 ≥ 0; else −∞}" in rows


def test_what_cannot_be_outside_is_not_explained() -> None:
    """Windows of 2 by stride 2 over 4 elements."""
    assert OUTSIDE not in legend(applied(lambda y: F.avg_pool1d(y[:, :, :4], 2, 2)))


# -- order -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("descending", "sign"), [(True, "−"), (False, "")])
def test_the_direction_of_a_sort_is_written(descending: bool, sign: str) -> None:
    """Of the largest two elements, and of the smallest."""
    rows = lines(applied(lambda y: y.sort(-1, descending=descending).values[..., :2]))

    assert any(row.endswith(f"= argsort_i({sign}linear.Y[b,t,i])") for row in rows)


def test_the_direction_of_a_sort_is_written_in_latex_too() -> None:
    """A minus sign before the keys."""
    rows = lines(applied(lambda y: y.topk(2).values, latex=True))

    assert any(row.endswith(r"\mathrm{argsort}_i(- Y_{\mathrm{linear}}[b,t,i])") for row in rows)


# -- indices ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", few(["grouped-query attention", "encoder layer", "vision", "gpt2"], 2))
def test_no_index_is_the_letter_of_a_size(name: str) -> None:
    """√(k) is the root of the size; elements of Q[b,t,j,m] have other letters."""
    program = calc.gradients(MODELS.get(name) or calc.load(name)).program
    lefts = [entry.equation.left.partition("[")[2].rstrip("]").split(",") for entry in written(name)]
    indices = {letter for letters in lefts for letter in letters if letter}

    assert indices
    assert not indices & set(program.define)


def test_an_index_that_is_not_the_initial_of_its_size_is_explained() -> None:
    """B and T have b and t; d is a letter itself."""
    assert (("i", "d"), ("j", "h"), ("m", "k")) == together(e.notation for e in written("multi-head attention")).indices


def test_an_index_has_one_size_on_a_page() -> None:
    """A letter of d, h, k, f or V is of no other axis."""
    sizes: dict[str, set[str]] = {}
    for entry in written("gpt2"):
        if not entry.equation.shape.strip("()"):
            continue
        letters = entry.equation.left.partition("[")[2].rstrip("]").split(",")
        for letter, size in zip(letters, entry.equation.shape.strip("()").split(", "), strict=True):
            sizes.setdefault(letter, set()).add(size)

    assert {"i": {"d"}, "j": {"h"}, "n": {"k"}, "m": {"f"}, "v": {"V"}, "t": {"T"}}.items() <= sizes.items()


# -- matrices --------------------------------------------------------------------------------------------------------------


def test_a_matrix_for_each_row_has_indices() -> None:
    """As experts have: each row is multiplied by a matrix of its own."""
    rows = lines(applied(lambda y: torch.einsum("btd,btdf->btf", y, y[..., None] + y[..., None, :]), matrix=True))

    assert "Y[b,t,i] = Σ_j linear.Y[b,t,j] X[b,t,j,i]" in rows


def test_a_depthwise_convolution_has_indices() -> None:
    """Each channel has its own kernel, so X' W would be no product of matrices."""
    rows = lines(written("vision", matrix=True))

    assert "depthwise.Y[b,j,h,n] = Σ_m,p depthwise.X'[b,j,h,n,m,p] depthwise.W[j,0,m,p] + depthwise.b[j]" in rows


def test_a_matmul_beside_a_gather_is_a_matrix_product_too() -> None:
    """The gradient of a tied head: ∂Yᵀ H, and a row for each token that was read."""
    (row,) = (row for row in lines(written("gpt2", matrix=True)) if row.startswith("∂ℒ/∂transformer.wte.W[v,i]"))

    assert row.partition(" = ")[2].startswith("((∂ℒ/∂lm_head.Y)ᵀ transformer.ln_f.Y)[v,i] + Σ_b,t [v = ids[b,t]] ")


def test_a_transposed_gradient_is_in_brackets() -> None:
    """dL/dYᵀ would be the derivative by Yᵀ. As LaTeX alike, in which a name with a superscript has braces before another one."""
    as_text, as_latex = (written("linear", matrix=True, latex=latex) for latex in (False, True))
    (first,) = (e for e in written("two-layer", matrix=True, latex=True) if e.of == "w1")

    assert "∂ℒ/∂W = (∂ℒ/∂Y)ᵀ x0" == str(as_text[-1].equation)
    gradient = r"\frac{\partial \mathcal{L}}{\partial %s}"
    assert rf"{gradient % 'W'} = \left({gradient % 'Y'}\right)^{{\top}}\, x^{{(0)}}" == str(as_latex[-1].equation)
    assert rf"{gradient % 'w^{(1)}'} = {{x^{{(0)}}}}^{{\top}}\, {gradient % 'Y'}" == str(first.equation)


def test_a_product_for_each_batch_is_explained() -> None:
    """Q Kᵀ of each row b and head j."""
    (entry,) = (e for e in written("multi-head attention", matrix=True) if str(e.equation) == "S = Q Kᵀ")

    assert ("a matrix product is batched over b and j, which both factors and the result have",) == entry.notation.legend
    assert (("j", "h"),) == entry.notation.indices


def test_a_view_in_matrix_notation_has_indices() -> None:
    """The heads of Q are those of Y, in other axes: Q = Y would be false."""
    rows = lines(written("multi-head attention", matrix=True))

    assert "Q[b,t,j,m] = q.Y[b,t,(j m)]" in rows


def test_a_transposed_tensor_is_transposed_in_matrix_notation() -> None:
    """Y times its own transpose, which is another view of it."""
    rows = lines(applied(lambda y: y @ y.transpose(1, 2), matrix=True))

    assert any(row.endswith(" = linear.Y linear.Yᵀ") for row in rows)


# -- legend ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "notation"),
    [
        (lambda y: y.cumsum(1), RUNNING),
        (lambda y: torch.cat([y, y.sin()], -1), CONCATENATED),
        (lambda y: y.flatten(1).cumsum(1)[:, 1:], MERGED),
        (lambda y: y.gather(1, (y > 0).long()), INDICATOR),
    ],
)
def test_notation_of_its_own_is_in_the_legend(function: Callable[[Tensor], Tensor], notation: str) -> None:
    """Where it occurs."""
    equations = applied(function)

    assert notation in legend(equations)
    assert notation not in legend(applied(torch.sin))


def test_an_index_of_a_sum_of_sizes_is_listed_with_that_sum() -> None:
    """Tokens of an image are p² patches and a class token: j of (B, p² + 1, d) is no index of p alone."""
    written_as_matrices = written("vit-b", matrix=True)

    assert "j of p or p² + 1" in together(entry.notation for entry in written_as_matrices).sentence
    assert "(B, p² + 1, d)" in {entry.equation.shape for entry in written_as_matrices}


def test_the_sigmoid_is_written_out_once() -> None:
    """Its sign is that of a standard deviation too."""
    notes = [note for entry in applied(F.silu) for note in entry.notes]

    assert {"σ(u) = 1/(1 + exp(−u))"} == set(notes)


def test_a_parameter_in_its_layer_is_not_called_like_an_index() -> None:
    """b is an index of B: the bias of the first module has its own name."""
    spec = calc.Spec(
        name="sequence",
        dims={"B": 2, "d": 5},
        build=lambda n: nn.Sequential(nn.Linear(n.d, n.d)),
        inputs=lambda n: (torch.randn(n.B, n.d),),
        loss=lambda m, x: m(x).square().mean(),
    )
    rows = lines(entries(calc.gradients(spec)))

    assert "Y[b,i] = Σ_j x[b,j] W[i,j] + bias[i]" in rows
    assert not [row for row in rows if re.search(r"\bb\[", row)]


def test_a_tensor_of_the_model_is_no_tensor_of_its_layer_of_the_same_name() -> None:
    """Both are called X: the layer's residual sum, and the sum of the embeddings that it reads."""
    equations = [str(entry.equation) for entry in written("vit-b", matrix=True)]

    assert "X = model.X + self_attention.out_proj.Y" in equations


def test_an_axis_of_size_1_has_the_index_0() -> None:
    """A class token is one row; nothing is summed over it."""
    equations = [str(entry.equation) for entry in written("vit-b", matrix=True)]

    assert "∂ℒ/∂class_token[0,0,n] = Σ_b ∂ℒ/∂X[b,0,n]" in equations

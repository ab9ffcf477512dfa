"""Gradients are simplified to the form found in textbooks, each simplification with its reason."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest
import sympy as sp
import torch
import torch.nn.functional as F
from torch import nn

import calc
from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.ir import argument
from calc.mathematics.autodiff.scalar import RESULT, partial
from calc.mathematics.autodiff.summing import SHIFT
from reports.page.gradients import EquationEntry, chain, entries, groups
from reports.typeset.equations import NOISE, EquationLine
from tests.mathematics.autodiff.models import MODELS


@functools.cache
def shown(name: str, matrix: bool = False) -> dict[str, EquationEntry]:
    equations = calc.gradients(MODELS.get(name) or calc.load(name))
    return {f"{e.kind} {e.of}": e for e in entries(equations, matrix=matrix)}


def right(name: str, of: str, matrix: bool = False) -> str:
    return shown(name, matrix)[of].equation.right


def test_softmax() -> None:
    """dx = y ⊙ (dy - Σ y dy), from E = exp(S), Z = Σ E, P = E/Z."""
    expected = "part.P[b,i]·(∂ℒ/∂part.P[b,i] − Σ_j part.P[b,j]·∂ℒ/∂part.P[b,j])"

    assert expected == right("softmax", "gradient linear.Y")


def test_a_softmax_that_is_written_out_has_the_same_gradient() -> None:
    """No operator's name is needed for it; the largest element that was taken off has a gradient of zero."""
    text = right("softmax by hand", "gradient linear.Y")

    assert "P[b,i]·(∂ℒ/∂P[b,i] − Σ_j P[b,j]·∂ℒ/∂P[b,j])" == re.sub(r"part\.Y", "P", text)


def test_cross_entropy() -> None:
    """(p - y)/n, and why: exactly one class is right."""
    entry = shown("cross-entropy")["gradient Y"]

    assert "(P[b,v] − onehot[b,v])/B" == entry.equation.right
    assert "exactly one class is the target: Σ onehot = 1" in entry.because


def test_cross_entropy_with_ignored_rows() -> None:
    """H (p - y)/N, with H = 0 in an ignored row and N = Σ H: no product is divided by log p, which is 0 where p is 1."""
    entry = shown("cross-entropy with ignored rows")["gradient Y"]

    assert "mask[b]·(P[b,v] − onehot[b,v])/N" == re.sub(r"mask\d?\[b\]·", "mask[b]·", entry.equation.right)


def test_a_derivative_divides_by_nothing_that_is_not_in_it() -> None:
    """∂(x y z)/∂x = y z, not (x y z)/x; ∂(x/z)/∂z = -(x/z)/z is shorter than -x/z²."""
    x, y, z = map(argument, range(3))

    assert y * z == partial(x * y * z, 0)
    assert -RESULT / z == partial(x / z, 2)


@pytest.mark.parametrize("name", ["cross-entropy", "cross-entropy with ignored rows", "softmax", "multi-head attention", "layer norm"])
def test_every_tensor_that_a_gradient_reads_is_defined(name: str) -> None:
    """By an equation, or as an input or parameter: also P of a cross-entropy, from which the loss is not computed."""
    equations = calc.gradients(MODELS[name])
    leaves = {equations.names.of.get(n.index) for n in equations.equations.nodes if isinstance(n.op, ir.Leaf)}
    lines = [e.equation for e in entries(equations)]
    defined = {line.left.partition("[")[0].removeprefix("∂ℒ/∂") for line in lines} | leaves
    read = {of for line in lines for of in re.findall(r"([\w.']+)\[", line.right)}

    assert read
    assert read <= defined
    assert name == "layer norm" or any(of.endswith("P") for of in read)


def test_notation_is_explained() -> None:
    """A derivative with a name of its own has its formula beside the equation."""
    (entry,) = (e for e in shown("mlp with GELU").values() if "gelu'(" in e.equation.right)

    assert [note.partition(" = ")[0] for note in entry.notes] == ["gelu'(u)"]
    drawn = [e.notes for e in shown("dropout").values() if "noise[" in e.equation.right]
    assert drawn
    assert all(NOISE in notes for notes in drawn)


def test_layer_norm() -> None:
    """dx = r (dn - mean dn - n mean(dn n)), with dn = dy w."""
    text = right("layer norm", "gradient linear.Y")

    assert 2 == text.count("mean_j(")
    assert text.startswith("part.rstd[b]·(")


def test_a_layer_norm_that_is_written_out() -> None:
    """The same; here dn is a multiple of n, whose mean is 0, so the second mean goes too."""
    text = right("layer norm by hand", "gradient linear.Y")

    assert "part.rstd[b]·(∂ℒ/∂part.x̂[b,i] − part.x̂[b,i]·mean_j(part.x̂[b,j]·∂ℒ/∂part.x̂[b,j]))" == text


def test_rms_norm() -> None:
    """dx = r (dn - n mean(dn n)): one mean, nothing centred."""
    text = right("rms norm", "gradient linear.Y")

    assert text.count("mean_j(") == 1


def test_attention() -> None:
    """dS = P ⊙ (dP - rowsum(dP ⊙ P)); where the mask took a score out, P is 0 already."""
    entry = shown("multi-head attention")["gradient S"]

    assert "P[b,j,t,s]·(∂ℒ/∂P[b,j,t,s] − Σ_u P[b,j,t,u]·∂ℒ/∂P[b,j,t,u])/√(k)" == entry.equation.right
    assert "the masked elements are 0 already" in entry.because


def test_matrix_notation() -> None:
    """∂ℒ/∂W₂ = H₁ᵀ ∂ℒ/∂H₂ and ∂ℒ/∂H₁ = ∂ℒ/∂H₂ W₂ᵀ."""
    assert "Yᵀ ∂ℒ/∂Y2" == right("two-layer", "parameter gradient w2", matrix=True)
    assert "∂ℒ/∂Y2 w2ᵀ" == right("two-layer", "gradient Y", matrix=True)


def test_index_notation() -> None:
    """The same with labels, in whose letters sizes stand."""
    assert "Σ_b Y[b,d] ∂ℒ/∂Y2[b,k]" == right("two-layer", "parameter gradient w2")
    assert "(D, K)" == shown("two-layer")["parameter gradient w2"].equation.shape


def test_a_zero_gradient_is_shown_with_its_reason() -> None:
    """∂ℒ/∂b = 0 before a batch norm."""
    entry = shown("convolution with batch norm")["parameter gradient conv.bias"]

    assert (True, "0") == (entry.zero, entry.equation.right)
    assert "Σ = 0 by the definition of norm.xc" in entry.because
    assert SHIFT not in entry.because


def test_the_gradient_of_a_key_bias_is_zero_because_a_softmax_is_invariant() -> None:
    """A bias of the keys adds q·b to a whole row of scores; alone, and where it is a part of one bias with those of queries and values."""
    alone = shown("multi-head attention")["parameter gradient kk.bias"]
    part = shown("gpt2")["parameter gradient transformer.h.0.attn.c_attn.bias"]

    assert "0" == alone.equation.right
    assert "; 0; " in part.equation.right
    assert SHIFT in alone.because
    assert SHIFT in part.because
    assert [] == [name for name, entry in shown("gpt2").items() if SHIFT in entry.because and "c_attn.bias" not in name]


@pytest.mark.parametrize("name", ["rms norm", "layer norm", "layer norm by hand"])
def test_a_norm_has_the_usual_names(name: str) -> None:
    """Whether one operator computes it or several."""
    names = {entry.of for entry in shown(name).values() if entry.kind == "forward"}
    moments = {"part.x²", "part.ms"} if name == "rms norm" else {"part.μ", "part.xc", "part.xc²", "part.var"}
    result = {"part.Y"} if name == "rms norm" else {"part.x̂"}

    assert names >= {*moments, *result, "part.rstd"}


def test_a_rotary_table_is_called_by_its_function() -> None:
    """cos and sin of the angles θ."""
    rows = {e.of: e.equation.right for e in shown("llama3-8b").values() if e.kind == "forward"}

    assert [("cos(model.θ[t,q])", "sin(model.θ[t,q])")] == [(rows["model.cos"], rows["model.sin"])]


def test_a_square_beside_no_norm_has_no_name_of_a_norm() -> None:
    """The mean of squares is here the loss."""
    assert not {e.of for e in shown("linear").values()} & {"x²", "ms"}


@pytest.mark.slow
def test_a_rotation_is_turned_back() -> None:
    """Rotary embeddings: (c, -s; s, c) forward, its transpose backward."""
    actual = shown("llama3-8b")
    lines = [e.equation.right for n, e in actual.items() if n.startswith("gradient model.layers.0.self_attn.q_")]

    assert any(" − " in line and "model.sin" in line for line in lines)


@pytest.mark.slow
def test_tensors_are_named_by_what_they_are_taken_from_or_for() -> None:
    """Halves of q and k that are rotated, tables of angles with their frequencies in one equation, a router's choice, a gated expert."""
    actual = shown("mixtral")
    layer = "model.layers.0"
    forward = {name.removeprefix("forward "): e.equation.right for name, e in actual.items() if name.startswith("forward ")}

    assert forward["model.θ"] == "t·1000000^((−2·u)/k)"
    assert forward[f"{layer}.self_attn.Q_1"] == "self_attn.q_1[b,t,j,u]·model.cos[t,u] − self_attn.q_2[b,t,j,u]·model.sin[t,u]"
    assert forward[f"{layer}.mlp.picked"] == "mlp.gate[u,mlp.top[u,r]]"
    assert forward[f"{layer}.mlp.experts.gated"] == "mlp.experts.A[u,p]·mlp.experts.up[u,p]"
    assert not [name for name in forward if re.fullmatch(r"model\.layers\..*\bH\d*", name)]


@pytest.mark.slow
def test_a_second_tensor_of_a_name_says_what_it_is_of() -> None:
    """A router sorts twice: experts for each token, then rows by expert. A number is left to what has no telling name."""
    names = {name.rpartition(".")[2] for name in shown("mixtral")}

    assert {"order", "order_top", "top", "top_flat", "sorted_top", "picked", "picked_x", "picked_P", "index_wrapped", "group"} <= names
    assert {"S", "scaled", "masked", "Q_split"} <= names


class _Named(nn.Module):
    def __init__(self, n: Any) -> None:
        super().__init__()
        self.share = nn.Linear(n.d, 2)
        self.first, self.second = nn.Linear(n.d, n.d), nn.Linear(n.d, n.d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares = self.share(x).softmax(-1)
        a, b = self.first(x).relu(), self.second(x).relu()
        half = a.shape[-1] // 2
        rotated = torch.cat((-a[:, half:], a[:, :half]), -1)
        return shares[:, 0:1] * rotated + shares[:, 1:2] * b


def test_tensors_without_a_usual_name_are_called_after_what_they_are_taken_from() -> None:
    """A share of a softmax, an activation of a module's result, halves in the other order with a sign, the losses that are averaged."""
    spec = calc.Spec(
        name="named",
        dims={"B": 3, "d": calc.Dim(10, multiple_of=2)},
        build=_Named,
        inputs=lambda n: (torch.randn(n.B, n.d),),
        loss=lambda model, x: model(x).square().sum(),
    )
    right_of = {e.of: e.equation.right for e in entries(calc.gradients(spec)) if e.kind == "forward"}

    assert ("P[b,0]", "P[b,1]") == (right_of["P_1"], right_of["P_2"])
    assert "A_second" in right_of
    assert right_of["A_rotated"].startswith("[minus_A_1[b,")
    assert "Σ_b,i losses[b,i]" == right_of["ℒ"]


class _Means(nn.Module):
    """Multiplies by the mean of all features, and averages over all positions."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.mix = nn.Linear(n.d, n.d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.mix(x)
        return (x * x.mean(-1, keepdim=True)).tanh().mean(1)


def test_a_mean_over_features_is_no_pooling() -> None:
    """A pooled tensor is one of positions or places."""
    inputs = {"B": 3, "T": 5, "d": 7}
    spec = calc.Spec("means", inputs, _Means, lambda n: (torch.randn(n.B, n.T, n.d),), lambda model, x: model(x).square().sum())
    right_of = {e.of: e.equation.right for e in entries(calc.gradients(spec)) if e.kind == "forward"}

    assert right_of["mean"].startswith("mean_i(")
    assert "mean_t(" in right_of["pooled"]


def test_layers_that_are_alike_are_shown_once() -> None:
    """Two layers of GPT-2, forward and back."""
    actual = groups(entries(calc.gradients(calc.load("gpt2"))))

    assert 2 == len([g for g in actual if g.title == "transformer.h.*" and len(g.layers) == 2])


def test_layers_are_alike_only_if_they_read_the_same_tensors_of_other_layers() -> None:
    """Of ``Y = A B``: C D is, C C is not."""
    line = EquationLine("Y", "A B", "()", sp.Integer(0))
    outside = enumerate(("AB", "CD", "CC"))
    layers = [EquationEntry("forward", f"h.{i}.Y", f"h.{i}", line, unnamed="Y = … …", outside=(a, b)) for i, (a, b) in outside]

    assert [("h.0", "h.1"), ("h.2",)] == [g.layers for g in groups(layers)]


def test_the_chain_names_a_rule_for_every_link() -> None:
    """½(x·w - 5)²: through the half, the square, the difference, the product."""
    links = chain(calc.gradients(MODELS["scalar"]))

    assert [("H2", "1/2"), ("H", "H"), ("Y", "∂ℒ/∂H"), ("w", "x[i] ∂ℒ/∂H")] == [(k.of, k.equation.right) for k in links]
    assert ["map", "map", "map", "contract"] == [k.primitive for k in links]


def test_the_index_of_an_axis_without_a_name_is_none_of_the_tensors() -> None:
    """Classes of a fixed number beside a parameter that is called j."""
    spec = calc.Spec(
        name="two classes",
        dims={"B": 5, "d": 7},
        build=lambda n: nn.ParameterDict({"j": nn.Parameter(torch.randn(2, n.d))}),
        inputs=lambda n: (torch.randn(n.B, n.d), torch.randint(2, (n.B,))),
        loss=lambda m, x, t: F.cross_entropy(x @ m["j"].T, t),
    )
    lines = [str(e.equation) for e in entries(calc.gradients(spec))]

    assert {"Y[b,n] = Σ_i x[b,i] j[n,i]", "onehot[b,n] = [n = targets[b]]"} <= {*lines}

"""Claims on gradients, and on the FLOPs of forward and backward."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from reports.lecture.claim import Topic
from reports.lecture.lab import Lab, closed_form
from reports.lecture.runs import experiment
from reports.lecture.training import LOOSE, MODEL_FLOPS, per_layer, per_parameter_and_token
from reports.lecture.verdicts import ClaimFinding, number, readings, true, yes

GRADIENTS = Topic("Gradients and their FLOPs")
_FORMS = (3, 5, 7)
_AT = {"B": 16384, "D": 32768, "K": 8192}
_GPT2 = {"B": 8, "T": 1024}


@GRADIENTS.claim("grad-123", "For ½(x·w − 5)² at x = (1, 2, 3), w = (1, 1, 1) the gradient of w is (1, 2, 3).")
def _(lab: Lab) -> ClaimFinding:
    autograds, _x = experiment("scalar_model")
    equations, _checked = lab.gradients("scalar")
    _loss, gradients = equations.values({"n": 3}, {("input", "0"): np.array([1.0, 2.0, 3.0]), ("parameter", "w"): np.ones(3)})
    derived = gradients["w"].tolist()
    because = f"(x·w − 5) x with x·w = 6, by the derived equations; autograd's is {'the same' if derived == autograds else autograds}"
    claimed = [1.0, 2.0, 3.0]
    return true(
        derived == claimed == autograds, str(tuple(int(g) for g in derived)), because, "gradients by the chain rule, run in numpy; autograd"
    )


@GRADIENTS.claim("grad-xnone", "x has no gradient after it.")
def _(_: Lab) -> ClaimFinding:
    _w, has = experiment("scalar_model")
    return true(not has, "None", "x does not require one: it is data", "autograd of the model")


@GRADIENTS.claim("grad-x-must", "The derivative with respect to the input has to be computed.")
def _(lab: Lab) -> ClaimFinding:
    backward = lab.derive("two-layer")["flops.backward.matmul"]
    inner, first = per_layer(lab, "flops.backward.matmul"), Fraction(_first_layer(lab))
    because = (
        f"of an inner layer's input, yes ({inner} FLOP a weight and point: half for it); of the network's input, no: autograd executes "
        f"{closed_form(backward)},"
        f" {first} a weight and point in the first layer"
    )
    return readings(inner == 4, first == 4, "not of the network's input", because, "derive two-layer and cruncher: flops.backward.matmul")


def _first_layer(lab: Lab) -> Fraction:
    """FLOPs of the backward of the first layer over its weights and the points."""
    at = {"B": 8, "D": 64, "K": 4}
    flops = lab.derive("two-layer")["flops.backward.matmul"].at(**at) - 4 * at["B"] * at["D"] * at["K"]
    return Fraction(flops, at["B"] * at["D"] ** 2)


def _form(name: str, says: str, form: str, right: str) -> None:
    @GRADIENTS.claim(name, says)
    def _(_: Lab) -> ClaimFinding:
        equal = experiment("two_layer_gradients", *_FORMS)
        claimed, holds = equal[form], equal[right]
        because = (
            f"it equals autograd's at B = 3, D = 5, K = 7: {yes(claimed)}"
            if claimed is True
            else f"shapes do not even fit ({claimed}); {right} is autograd's: {yes(holds)}"
        )
        return true(claimed is True, right, because, "autograd and both forms at B = 3, D = 5, K = 7")


_form("grad-xbdd", "The gradient of x is w1ᵀ times that of h1.", "x.grad = w1.T @ h1.grad", "x.grad = h1.grad @ w1.T")
_form("grad-w2-shape", "The gradient of w2 is h1ᵀ times that of h2.", "w2.grad = h1.T @ h2.grad", "w2.grad = h1.T @ h2.grad")
_form("grad-h1", "The gradient of h1 is w2ᵀ times that of h2.", "h1.grad = w2.T @ h2.grad", "h1.grad = h2.grad @ w2.T")


@GRADIENTS.claim("grad-bk", "The gradient of h2 costs next to nothing, as D is usually much larger than 1.")
def _(lab: Lab) -> ClaimFinding:
    elementwise, products = (lab.value("two-layer", f"flops.backward.{kind}", _AT) for kind in ("elementwise", "matmul"))
    because = (
        f"{elementwise:,} FLOP of elementwise work against {products:,} of products at D = 32768: {elementwise / products:.1e} of them"
    )
    return true(elementwise * 1000 < products, elementwise, because, "derive two-layer: flops.backward.elementwise", unit="FLOP")


def _thumb(name: str, says: str, claimed: str, signed: tuple[tuple[int, str], ...], *layer: str) -> None:
    @GRADIENTS.claim(name, says)
    def _(lab: Lab) -> ClaimFinding:
        gpt2 = per_parameter_and_token(lab, "gpt2", _GPT2, *signed)
        at = lab.value("two-layer", "parameters", _AT) * _AT["B"]
        two_layer = Fraction(sum(sign * lab.value("two-layer", q, _AT) for sign, q in signed), at)
        inner = per_layer(lab, *layer)
        first = ", whose first layer needs no gradient of its input" if two_layer < inner else ""
        because = (
            f"per weight and point: exactly {inner} in an inner linear layer; {float(two_layer):.2f} in the two-layer network{first};"
            f" {float(gpt2):.2f} in GPT-2 at T = 1024, with attention"
        )
        return number(
            claimed, gpt2, because, "derive cruncher, two-layer and gpt2: flops over parameters × points", unit="FLOP", within=LOOSE
        )


_FORWARD, _BACKWARD = "flops.forward.matmul", "flops.backward.matmul"
_BACK = ((1, _BACKWARD), (-1, "flops.backward.recompute"))
_thumb("fwd-2", "The forward takes 2 FLOP for each point and parameter.", "2.00", ((1, _FORWARD),), _FORWARD)
_thumb("bwd-4", "The backward takes 4 FLOP for each point and parameter.", "4.00", _BACK, _BACKWARD)
_thumb("total-6", "Both take 6 FLOP for each point and parameter.", "6.00", MODEL_FLOPS, _FORWARD, _BACKWARD)
_thumb("bwd-nonloss-004", "The backward takes four times the number of parameters, for each point.", "4.00", _BACK, _BACKWARD)


@GRADIENTS.claim("6-general", "In many models this is the bulk of the computation.")
def _(lab: Lab) -> ClaimFinding:
    shares = {
        "gpt2": 6 / per_parameter_and_token(lab, "gpt2", _GPT2, *MODEL_FLOPS),
        "llama3-70b": 6 / per_parameter_and_token(lab, "llama3-70b", {"B": 1, "T": 8192}, *MODEL_FLOPS),
    }
    because = "6·N·D over the exact products of a step: " + ", ".join(f"{name} {float(s):.2f}" for name, s in shares.items())
    return true(all(Fraction(3, 4) < s < Fraction(5, 4) for s in shares.values()), shares["gpt2"], because, "derive gpt2 and llama3-70b")


def shared_matrix_flops(uses: int) -> str:
    """Why a matrix used so many times in a row takes this many FLOPs per parameter and point, forward and backward."""
    return f"{uses} uses at 6 FLOP each, less the 2 of the first use, whose input is data: {6 * uses - 2}"


@GRADIENTS.claim("6-shared", "Where parameters are shared, the rule may not hold.")
def _(lab: Lab) -> ClaimFinding:
    at = {"B": 64, "D": 16, "L": 8}
    flops = sum(lab.value("shared", q, at) for q in (_FORWARD, _BACKWARD))
    ratio = Fraction(flops, at["B"] * lab.value("shared", "parameters", at))
    because = (
        f"one matrix used in {at['L']} layers takes {float(ratio):.0f} FLOP for each parameter and point, not 6: "
        f"{shared_matrix_flops(at['L'])}"
    )
    return true(ratio != 6, ratio, because, "derive a network of one shared matrix: flops over parameters × points", unit="FLOP")


@GRADIENTS.claim("bwd-4bdk", "The backward of the second layer takes 4·B·D·K FLOP.")
def _(lab: Lab) -> ClaimFinding:
    at = {"B": 64, "D": 32, "K": 8}
    more = lab.value("two-layer", _BACKWARD, at) - lab.value("two-layer", _BACKWARD, {**at, "K": 4})
    measured = lab.check("two-layer", {"B": 3, "D": 7, "K": 5})[_BACKWARD]
    because = (
        f"2·B·D·K for the gradient of h1 and as many for that of w2: {closed_form(lab.derive('two-layer')[_BACKWARD])} in all "
        f"({measured.verdict} in a real run)"
    )
    return number(
        str(4 * 64 * 32 * 4), more, because, "derive two-layer: flops.backward.matmul, at K = 8 less at K = 4; check", unit="FLOP"
    )

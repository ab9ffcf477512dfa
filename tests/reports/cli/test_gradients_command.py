"""``napkin gradients`` on the command line."""

from __future__ import annotations

import itertools
import json

import pytest
from click.testing import CliRunner

import calc
from reports.cli import napkin
from reports.page.gradients import entries
from reports.typeset.mathml import piece


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(napkin, ["gradients", *words])
    return result.exit_code, result.stdout, result.stderr


def test_json_has_both_notations_and_latex() -> None:
    """Of one parameter, what it rests on."""
    code, out, _ = run("two-layer", "--parameter", "w2", "--json")
    document = json.loads(out)
    last = document["equations"][-1]

    assert (0, 2, "w2") == (code, document["schema"], last["of"])
    assert ("Yᵀ ∂ℒ/∂Y2", "2*B*D*K") == (last["matrix"].partition(" = ")[2], last["flops"])
    weight, output = (rf"\frac{{\partial \mathcal{{L}}}}{{\partial {name}^{{(2)}}}}" for name in "wY")
    assert rf"{weight}[d,k] = \sum_{{b}} Y[b,d]\, {output}[b,k]" == last["latex"]
    assert {"of", "through", "primitive", "rule", "index", "shape", "flops"} == set(document["chain"][0])


def test_equal_layers_say_what_the_last_of_them_reads_in_place() -> None:
    """Once under each heading of several layers: forward and backward. A name that the layer has too is of the model."""
    lines = run("vit-b")[1].splitlines()
    after = [line for heading, line in itertools.pairwise(lines) if heading.startswith("layers.*   (2 layers, alike: ")]

    assert [
        "    the equations of layers.0; layers.1 has layers.0.Y in place of model.X",
        "    the equations of layers.1; layers.0 has model.X in place of layers.0.Y",
    ] == after
    assert "    ln_1.μ[b,j] = mean_n(model.X[b,j,n])   (B, p² + 1)" in lines
    assert after == [line for line in lines if " in place of " in line]


def test_a_check_says_how_far_autograd_is() -> None:
    """Three sizes, and the FLOPs."""
    code, out, _ = run("linear", "--check")

    assert 0 == code
    assert 3 == out.count("  holds: ")
    assert 2 == out.count("  equal: ")


@pytest.mark.parametrize("model", ["mlp", pytest.param("gpt2", marks=pytest.mark.slow), pytest.param("llama3-8b", marks=pytest.mark.slow)])
def test_every_formula_is_latex_that_reports_can_set(model: str) -> None:
    """By the converter of the HTML report."""
    actual = entries(calc.gradients(calc.load(model)), latex=True)

    assert actual
    assert all(piece(str(e.equation)).startswith("<math>") for e in actual)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("two-layer", "--parameter", "w9"), "unknown parameter 'w9': use one of w1, w2"),
        (("two-layer", "--notation", "tensor"), "unknown notation 'tensor'"),
        (("no-such-model",), "unknown model 'no-such-model'"),
    ],
)
def test_bad_usage_is_one_line(words: tuple[str, ...], said: str) -> None:
    """Exit status 2, nothing on standard output."""
    code, out, err = run(*words)

    assert (2, "") == (code, out)
    assert said in err

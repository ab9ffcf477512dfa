"""The lecture's own accounting of its deep linear network, beside what torch saves and executes, each difference a step.

CS336 lecture 2 counts 36 parameters, 16 activations, 36 gradients and 36 optimizer values at B = 2, D = 4 and two layers:
496 bytes in fp32, and 6·B·36 = 432 FLOP.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

import calc
from calc.symbolic.algebra import evaluate_text
from reports import cli
from tests.checks import failures

SIZES = {"B": 2, "D": 4, "L": 2}
Document = dict[str, Any]


@pytest.fixture(scope="module")
def napkin() -> Any:
    """The command at the lecture's sizes, with an optimizer: its standard output."""

    def run(optimizer: str, *words: str) -> str:
        sizes = [word for name, size in SIZES.items() for word in ("-d", f"{name}={size}")]
        done = CliRunner().invoke(cli.napkin, ["derive", "cruncher", *sizes, "--optimizer", optimizer, *words])
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


@pytest.fixture(scope="module")
def lectures(napkin: Any) -> Document:
    """With the lecture's AdaGrad."""
    return by_rule(json.loads(napkin("spec", "--json")))


@pytest.fixture(scope="module")
def torchs(napkin: Any) -> Document:
    """With torch.optim.Adagrad."""
    return by_rule(json.loads(napkin("adagrad", "--json")))


def by_rule(document: Document) -> Document:
    return {"quantities": document["quantities"], **{entry["rule"]: entry for entry in document["textbook"]}}


def both(entry: Document) -> tuple[int, int, str]:
    """What the lecture says, what is, and in which unit."""
    return entry["value"], entry["exact"], entry["unit"]


def corrections(entry: Document) -> list[tuple[str, int]]:
    return [(step["after"], step["value"]) for step in entry["steps"] if step["rule"] == "correction"]


def test_parameters_gradients_and_state_are_thirty_six_each(lectures: Document) -> None:
    """2·4·4 + 4 = 36 weights, a gradient and a sum of squares for each: the lecture is right, and nothing is corrected."""
    for name in ("D²L + D parameters", "1 gradient per parameter", "1 optimizer value per parameter"):
        assert both(lectures[name]) == (36, 36, "element")
        assert corrections(lectures[name]) == []


def test_the_lecture_counts_sixteen_activations_and_torch_saves_twenty_eight(lectures: Document) -> None:
    """2·4·2 hidden outputs; also x of 2·4, the prediction of 2 and the target of 2: 16 + 8 + 2 + 2 = 28."""
    entry = lectures["BDL activations"]

    assert both(entry) == (16, 28, "element")
    assert corrections(entry) == [("B*D", 8), ("B", 2), ("B", 2)]
    assert 28 * 4 == 112 == lectures["quantities"]["activations.bytes"]["value"]
    reasons = [step["because"].removeprefix("the rule has no such term: ") for step in entry["steps"] if step["rule"] == "correction"]
    assert reasons == [
        "float32 x (model input) saved for the backward of mm",
        "float32 x saved for the backward of mse_loss",
        "float32 target (model input) saved for the backward of mse_loss",
    ]


def test_the_lecture_counts_496_bytes_and_there_are_544(lectures: Document) -> None:
    """4·(36 + 16 + 36 + 36) = 496; 4·(36 + 28 + 36 + 36) = 544: 4·(8 + 2 + 2) = 48 more."""
    entry = lectures["4 bytes per value"]

    assert both(entry) == (496, 544, "byte")
    assert corrections(entry) == [("4*B*D", 32), ("4*B", 8), ("4*B", 8)]


def test_the_lecture_counts_432_flop_and_autograd_executes_368(lectures: Document) -> None:
    """6·2·36 = 432; the gradient of x, a product of 2·2·4·4 = 64, is not computed: 368 = 144 forward + 224 backward."""
    entry = lectures["6BN"]

    assert both(entry) == (432, 368, "FLOP")
    assert corrections(entry) == [("-(2*B*D**2)", -64)]
    (step,) = (s for s in entry["steps"] if s["rule"] == "correction")
    assert step["title"] == "layers.*"
    assert step["because"].startswith("autograd computes no gradient of an input that is data: at layers.* ")
    forward, backward = (lectures["quantities"][f"flops.{phase}.matmul"]["value"] for phase in ("forward", "backward"))
    assert (forward, backward, forward + backward) == (144, 224, 368)


def test_torchs_adagrad_keeps_three_counters_as_well(torchs: Document) -> None:
    """36 + 3 numbers, one counter for each weight tensor: 36·4 + 3·4 = 156 bytes."""
    entry = torchs["1 optimizer value per parameter"]

    assert both(entry) == (36, 39, "element")
    assert corrections(entry) == [("L + 1", 3)]
    assert 36 * 4 + 3 * 4 == 156 == torchs["quantities"]["optimizer_state.bytes"]["value"]
    assert both(torchs["4 bytes per value"]) == (496, 544 + 12, "byte")


@pytest.mark.parametrize("optimizer", ["lectures", "torchs"])
def test_every_step_holds_and_they_lead_from_the_rule_to_what_is(optimizer: str, request: pytest.FixtureRequest) -> None:
    """Both sides of each, and the sum of rule and corrections."""
    entries = request.getfixturevalue(optimizer)
    applying = [entry for name, entry in entries.items() if name != "quantities" and entry["applies"]]
    assert applying
    for entry in applying:
        steps = entry["steps"]
        for step in steps:
            assert step["value"] == evaluate_text(step["before"], SIZES) == evaluate_text(step["after"], SIZES)
        assert steps[0]["value"] == entry["value"]
        assert entry["value"] + sum(value for _, value in corrections(entry)) == entry["exact"] == steps[-1]["value"]


def test_the_terminal_shows_both_numbers(napkin: Any) -> None:
    """Beside each other, with how far off."""
    lines = {line.split("  ")[0]: " ".join(line.replace("\u00a0", " ").split()) for line in napkin("spec").split("\n")}

    assert lines["6BN"].startswith("6BN 432 FLOP 368 FLOP +17.4 % ")
    assert lines["BDL activations"].startswith("BDL activations 16 elements 28 elements −42.9 % ")
    assert lines["4 bytes per value"].startswith("4 bytes per value 496 bytes 544 bytes −8.8 % ")


def test_the_terminal_explains_a_rule_of_thumb(napkin: Any) -> None:
    """Step by step."""
    shown = napkin("spec", "--explain", "6BN").replace("\u00a0", " ")

    for words in ("6·B·(D²·L + D)", "432 FLOP", "− 2·(2·B·D²·L) [twice the forward]", "−64 FLOP", "368 FLOP", "Stanford CS336"):
        assert words in shown


def test_the_lectures_own_optimizer_is_exact() -> None:
    """A user's class, not torch's: one state g2 an element, made in the first step, whose peak is another than that of the second."""
    derivation = calc.derive(calc.load("cruncher"), SIZES, cache=False, optimizer="spec")
    report = calc.check(derivation, **SIZES)

    assert [] == failures(report)
    assert report["optimizer_state.bytes"].measured == 36 * 4
    assert report["memory.peak"].verdict == report["memory.peak.first_step"].verdict == "exact"

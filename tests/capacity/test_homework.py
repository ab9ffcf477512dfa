"""The accounting of a Transformer as exercises: every number by hand, for GPT-2 XL and for the model of the assignment."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest

import calc
from calc.capacity.exercise import Exercise, ExerciseRow, ExerciseTable
from calc.capacity.homework import PlannedTraining, homework
from calc.derive.result import Derivation
from calc.errors import BadInputError
from calc.symbolic.exact import evaluate_text
from calc.symbolic.writer import as_text

V, C, T, LONG = 50257, 1024, 1024, 16384
SMALL, XL = {"d": 768, "L": 12, "h": 12}, {"d": 1600, "L": 48, "h": 25}
DAY = 86400


def forward(d: int, L: int, T: int, f: int, matrices: int = 2) -> dict[str, int]:
    """FLOPs of a forward pass by part, of a sequence: 2·m·k·n each."""
    return {
        "query, key and value": L * 2 * T * d * 3 * d,
        "query keyᵀ": L * 2 * T * T * d,
        "probs value": L * 2 * T * T * d,
        "attention output": L * 2 * T * d * d,
        "feed-forward": L * matrices * 2 * T * d * f,
        "head": 2 * T * d * V,
    }


def by_part(table: ExerciseTable, column: int) -> dict[str, int]:
    return {row.part: row.values[column] for row in table.rows}


@pytest.fixture(scope="module")
def xl() -> Derivation:
    return calc.derive(calc.load("gpt2"), {"T": T, **XL})


@pytest.fixture(scope="module")
def answers(xl: Derivation) -> Mapping[str, Exercise]:
    small = calc.derive(calc.load("gpt2"), {"T": T, **SMALL})
    return {exercise.name: exercise for exercise in homework(xl, (small, xl))}


def values(exercise: Exercise) -> list[Fraction]:
    return [result.value for result in exercise.results]


@pytest.mark.slow
def test_parameters_and_matmuls_of_gpt2_xl(answers: Mapping[str, Exercise]) -> None:
    """12·d² and 13·d a layer, the embeddings and the last norm; 1,557,611,200 in all."""
    d, L = XL["d"], XL["L"]
    count, flops = V * d + C * d + L * (12 * d * d + 13 * d) + 2 * d, forward(d, L, T, 4 * d)

    assert values(answers["parameters"]) == [count, 4 * count] == [1_557_611_200, 6_230_444_800]
    assert answers["parameters"].results[1].because == "4 bytes for each fp32 parameter"
    assert values(answers["matmuls"]) == [sum(flops.values())] == [3_506_703_564_800]
    projections = flops["feed-forward"] // 2
    assert [row.values[0] for row in answers["matmuls"].tables[0].rows] == [
        flops["query, key and value"], flops["query keyᵀ"], flops["probs value"], flops["attention output"], projections, projections,
        flops["head"],
    ]  # fmt: skip
    assert by_part(answers["parts"].tables[0], 0) == flops


def test_a_matmul_is_written_as_its_shapes_are_multiplied(answers: Mapping[str, Exercise]) -> None:
    """Once, for one layer: rows, inner size and columns in that order; all layers together are the closed form."""
    rows = answers["matmuls"].tables[0].rows

    assert [row.once and as_text(row.once) for row in rows] == [
        "2*(B*T)*d*(3*d)", "2*B*h*T*T*k", "2*B*h*T*T*k", "2*(B*T)*d*d", "2*(B*T)*d*f", "2*(B*T)*f*d", "2*(B*T)*d*V",
    ]  # fmt: skip
    sizes = {"B": 1, "T": T, "V": V, "f": 4 * XL["d"], "k": XL["d"] // XL["h"], **XL}
    once = [evaluate_text(as_text(row.once), sizes) for row in rows if row.once]
    assert [*(XL["L"] * flops for flops in once[:-1]), once[-1]] == [row.values[0] for row in rows]


def test_two_matmuls_of_one_module_are_written_apart() -> None:
    """x W₁ and then W₂ of one module, 2·B·D² and 2·B·D·K: each with its own shapes, by the name of its parameter."""
    (exercise,) = homework(calc.derive(calc.load("two-layer")), quantities=("flops.forward.matmul",))[:1]
    rows = exercise.tables[0].rows

    assert [(row.expr, row.once and as_text(row.once)) for row in rows] == [("2*B*D**2", "2*B*D*D"), ("2*B*D*K", "2*B*D*K")]
    assert [row.part for row in rows] == ["(model): x w1", "(model): x w2"]


def test_the_steps_of_an_answer_are_those_at_its_sizes(answers: Mapping[str, Exercise]) -> None:
    """One sequence, the longer one, and the batch that was found."""
    assert answers["matmuls"].at == (("B", 1),)
    assert answers["context"].at == (("B", 1), ("T", LONG), ("C", LONG))
    assert answers["largest-batch"].at == (("B", 10),)


def test_shares_over_sizes_and_lengths(answers: Mapping[str, Exercise]) -> None:
    """Small and XL; 1,024 and 16,384 tokens, at which both attention products together are most of the FLOPs."""
    sizes, context = answers["sizes"], answers["context"]
    for column, at in enumerate((SMALL, XL)):
        flops = forward(at["d"], at["L"], T, 4 * at["d"])
        assert by_part(sizes.tables[0], column) == flops
        assert [row.shares[column] for row in sizes.tables[0].rows] == [Fraction(n, sum(flops.values())) for n in flops.values()]
    long = forward(XL["d"], XL["L"], LONG, 4 * XL["d"])

    assert by_part(context.tables[0], 1) == long
    assert values(context) == [sum(long.values()), Fraction(sum(long.values()), 3_506_703_564_800)]
    assert context.results[1].because == "query keyᵀ and probs value grow with T² (× 256), all else with T (× 16)"
    assert set(sizes.rising) == {"query, key and value", "attention output", "feed-forward"}
    assert set(context.rising) == {"query keyᵀ", "probs value"}
    assert set(sizes.falling) == {"query keyᵀ", "probs value", "head"}


def test_a_share_that_stays_neither_rises_nor_falls() -> None:
    """Of tenths in three columns."""
    tenths = {"up": (1, 2, 3), "down": (4, 3, 2), "both": (2, 3, 2), "same": (3, 3, 3), "late": (0, 0, 1)}
    rows = tuple(ExerciseRow(part, None, shares, tuple(Fraction(n, 10) for n in shares)) for part, shares in tenths.items())
    exercise = Exercise("parts", "", "", tables=(ExerciseTable("", "FLOP", ("1", "2", "3"), rows),))

    assert (("up", "late"), ("down",), ("both",)) == (exercise.rising, exercise.falling, exercise.mixed)


def test_memory_in_the_batch_size_and_the_largest_batch(answers: Mapping[str, Exercise], xl: Derivation) -> None:
    """Of each token autograd saves 8·d fp32 numbers a layer, f twice, statistics, the logits; ids and positions have 8 bytes."""
    d, L, h, count = XL["d"], XL["L"], XL["h"], 1_557_611_200
    a = L * T * (32 * d + 8 * 4 * d + 4 * h + 16) + T * (8 * d + 4 * V + 24)
    state = 16 * count + 4 * (12 * L + 4)  # and a step counter for each tensor
    memory, largest = answers["memory"], answers["largest-batch"]

    assert values(memory) == [4 * count, 4 * count, state - 8 * count, a + 8 * T + 4, state + a + 8 * T + 4]
    assert [result.because for result in memory.results[:3]] == [
        "every parameter is one number, whatever the batch",
        "there is one number for each trainable parameter, whatever the batch",
        "its tensors belong to parameters, whatever the batch",
    ]
    assert memory.tables[0].totals == (a + 8 * T + 4,)
    assert memory.results[-1].because == f"{a:,}·B + {state + 8 * T + 4:,} at these sizes"
    assert values(largest)[0] == (80 * 10**9 - state - 8 * T - 4) // a
    answer = calc.ask("largest-batch", model="gpt2", memory="80GB", T=T, **XL)
    assert values(largest)[1] == answer.value == xl.largest("B", 80 * 10**9)
    assert answer.bound is not None
    assert values(largest)[2:] == [answer.bound.value, answer.bound.further_value]
    slope = answer.bound.further_value - answer.bound.value
    line = f"{int(slope):,}·B + {int(answer.bound.value - slope * answer.value):,}"
    assert largest.results[2].because == f"it fits; the peak is {line} for B from 2"


def test_the_peak_at_the_largest_batch_is_listed_by_role(answers: Mapping[str, Exercise]) -> None:
    """Parameters in 4 bytes, two moments with step counters, ids and targets of 8; all roles together are the peak."""
    count, largest = 1_557_611_200, answers["largest-batch"]
    live = by_part(largest.tables[0], 0)

    assert (live["parameter"], live["input"], live["optimizer state"]) == (4 * count, 16 * 10 * T, 8 * count + 4 * (12 * XL["L"] + 4))
    assert [sum(live.values())] == values(largest)[2:3]


def test_flops_of_the_optimizer_and_days(answers: Mapping[str, Exercise]) -> None:
    """14 operations a parameter and 3 a tensor; three forwards of 1,024 sequences, 400,000 times, at half of 19.5 and 67 TFLOP/s."""
    count, step = 1_557_611_200, 3 * 3_506_703_564_800 * 1024
    total = 14 * count + 3 * (12 * XL["L"] + 4)

    assert values(answers["optimizer"]) == [total, Fraction(total, count)]
    flops, a100, exact, h100, _ = values(answers["days"])
    assert flops == step
    assert (a100, h100) == tuple(Fraction(400_000 * step * 2, rate * DAY) for rate in (195 * 10**11, 67 * 10**12))
    assert exact == a100  # autograd's backward is exactly twice the forward here, without what fused attention recomputes


def test_the_time_of_a_training_is_in_the_largest_unit_of_which_it_takes_one(xl: Derivation) -> None:
    """Sequences, one a step, on an H100 at all of its 67 TFLOP/s; each takes three forwards of 3,506,703,564,800 FLOP, 0.157 seconds."""
    seconds = Fraction(3 * 3_506_703_564_800, 67 * 10**12)
    of_unit = {5: ("seconds", 1, ""), 1_000: ("minutes", 60, " · 60 s"), 100_000: ("hours", 3600, " · 3,600 s")}

    for steps, (unit, length, factor) in of_unit.items():
        run = PlannedTraining(gpus=("h100-sxm",), mfu=Fraction(1), steps=steps, batch=1)
        *_, days = homework(xl, (), run)
        assert [(result.value, result.unit) for result in days.results[1:]] == [(steps * seconds / length, unit)] * 2
        assert days.results[1].because == f"steps · FLOPs of a step / (1 · 67 TFLOP/s{factor}), the dense peak in fp32"


def test_bytes_at_one_sample_are_those_of_one_sample() -> None:
    """The class token of ViT-B is expanded over the batch. At B = 1 its gradient needs no sum, so it is a view into the gradient of all
    tokens: (p² + 1)·d numbers in place of d. All other gradients are those of a larger batch."""
    derivation = calc.derive(calc.load("vit-b"))
    (memory,) = homework(derivation, quantities=("gradients.bytes",))
    several, p, d = derivation["gradients.bytes"].at(B=2), derivation.sizes["p"], derivation.sizes["d"]

    assert memory.results[1].value == several + 4 * p**2 * d
    assert memory.results[1].because == f"one sample runs other operators than several, which take {several:,} for B from 2"
    assert memory.results[1].value == derivation["gradients.bytes"].at(B=1)


@pytest.mark.slow
def test_the_model_of_the_assignment() -> None:
    """No biases, a gate in a feed-forward of 6,400, a head of its own: 2,127,057,600 parameters and six products of d·f."""
    d, f, L = 1600, 6400, 48
    sizes = {"B": 2, "T": T, "d": d, "h": 25, "g": 25, "k": 64, "f": f, "L": L, "V": V}
    answers = {exercise.name: exercise for exercise in homework(calc.derive(calc.load("llama3-8b"), sizes))}
    flops = forward(d, L, T, f, matrices=3)

    assert values(answers["parameters"])[0] == 2 * V * d + L * (4 * d * d + 3 * d * f + 2 * d) + d == 2_127_057_600
    assert values(answers["matmuls"]) == [sum(flops.values())]
    assert by_part(answers["parts"].tables[0], 0) == flops
    assert "sizes" not in answers  # there is nothing to compare


def test_only_the_quantities_that_are_asked_for(xl: Derivation) -> None:
    """Questions of the assignment about them, in its order; a quantity that it does not ask for has a question of its own."""
    chosen = homework(xl, (), quantities=("flops.backward.matmul", "memory.peak", "parameters"))

    assert [exercise.name for exercise in chosen] == ["parameters", "largest-batch", "flops.backward.matmul"]
    backward = chosen[-1]
    flops = forward(XL["d"], XL["L"], T, 4 * XL["d"])
    assert values(backward) == [2 * sum(flops.values()) + flops["query keyᵀ"]]  # fused attention computes query keyᵀ again
    assert backward.tables[0].totals == (values(backward)[0],)
    assert backward.question == (
        "Give flops.backward.matmul in closed form, and its value: matrix multiplications of the backward, as autograd executes them."
    )


@pytest.mark.slow
def test_the_peak_as_a_line_holds_over_the_range_that_it_names(tmp_path: Path) -> None:
    """Experts whose optimizer step has the peak until the batch is large; one sequence runs other operators."""
    config = {
        "model_type": "olmoe", "hidden_size": 32, "intermediate_size": 304, "num_attention_heads": 4, "num_key_value_heads": 4,
        "num_experts": 16, "num_experts_per_tok": 2, "num_hidden_layers": 2, "vocab_size": 60, "max_position_embeddings": 32,
        "pad_token_id": 1, "architectures": ["OlmoeForCausalLM"],
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    derivation = calc.derive(calc.load(f"hf:{tmp_path}"), {"B": 1, "T": 5})
    run = PlannedTraining(memory=Fraction(1))
    (largest,) = homework(derivation, (), run, ("memory.peak",))

    match = re.search(r"the peak is ([\d,]+)·B \+ ([\d,]+) for B from 1 to (\d+)$", largest.results[-1].because)
    assert match is not None
    a, b, last = (int(group.replace(",", "")) for group in match.groups())
    peaks = [derivation["memory.peak"].at(B=batch, T=5) for batch in range(1, last + 2)]
    assert peaks[:-1] == [a * batch + b for batch in range(1, last + 1)]
    assert peaks[-1] > a * (last + 1) + b


def test_a_model_without_a_sequence_has_the_questions_that_need_none() -> None:
    """A linear layer has samples: D·K + K parameters, 2·D·K FLOP each, and 4·D + 8·K bytes saved; there is no longer sequence."""
    answers = {e.name: e for e in homework(calc.derive(calc.load("linear"), {"B": 3, "D": 5, "K": 7}))}

    assert [*answers] == ["parameters", "matmuls", "parts", "memory", "largest-batch", "optimizer", "days"]
    assert (values(answers["parameters"])[0], values(answers["matmuls"])[0]) == (5 * 7 + 7, 2 * 5 * 7)
    assert answers["memory"].results[3].because == f"{4 * 5 + 8 * 7}·B at these sizes"
    assert answers["matmuls"].question.startswith("List the matrix multiplications of a forward pass over one sample. ")


def test_assumptions_of_the_run_change_the_answers(xl: Derivation) -> None:
    """Half of the steps on one device are half of the days."""
    run = PlannedTraining(context=2048, gpus=("h100-sxm",), mfu=Fraction(1, 4), steps=200_000, batch=512)
    answers = {exercise.name: exercise for exercise in homework(xl, (), run)}

    assert values(answers["context"])[0] == sum(forward(XL["d"], XL["L"], 2048, 4 * XL["d"]).values())
    assert values(answers["days"])[1] == Fraction(200_000 * 3 * 3_506_703_564_800 * 512 * 4, 67 * 10**12 * DAY)


@pytest.mark.slow
def test_a_step_without_a_backward_has_no_answer_about_it() -> None:
    derivation = calc.derive(calc.load("gpt2"), mode="infer")
    with pytest.raises(BadInputError, match=r"^gradients\.bytes has no closed form here: mode infer runs no backward$"):
        homework(derivation)
    assert [exercise.name for exercise in homework(derivation, quantities=("parameters",))] == ["parameters"]

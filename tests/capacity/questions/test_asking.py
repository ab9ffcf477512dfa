"""Capacity questions: exact answers with their steps, both ways, refused or flagged where a number makes no sense."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

import calc
from calc.capacity.questions import Answer, ask, solving
from calc.capacity.questions.memory import OPTIMIZER, PRECISION, WEIGHT_BYTES
from calc.capacity.questions.registry import FAMILIES, _of, all_names, all_questions
from calc.symbolic.arithmetic import isolated
from tests.capacity.questions.asked import RUN, refusal

DAYS = Fraction(6 * 70 * 15 * 10**21) / (1024 * Fraction(9895 * 10**11) / 2 * 86400)


@pytest.mark.parametrize("question", all_names())
def test_all_that_is_missing_is_said_at_once_with_an_example_that_works(question: str) -> None:
    """Of every question, asked with nothing; and a question of which the answer of another kind is asked."""
    said = refusal(question)
    example = dict(pair.split("=", 1) for pair in said.partition(", e.g. ")[2].split())

    assert said.startswith(f"{question} needs ")
    assert ask(question, **example).value > 0


# -- answers -------------------------------------------------------------------------------------------------------------------------


def test_training_time_is_exact_with_its_steps() -> None:
    """6 · 70e9 · 15e12 FLOP at 1024 · 989.5e12 · ½ FLOP/s, in days of 86,400 s: 143.93."""
    answer = calc.ask("training-time", gpus=1024, **RUN)

    assert (DAYS, "143.93", "days") == (answer.value, f"{float(answer.value):.2f}", answer.unit)
    assert ["6*N*D", "u*n*P", "C/(86400*R)"] == [line.expr for line in answer.calculation.steps]
    assert "6*N*D/(86400*u*n*P)" == answer.expr
    assert "dtype was not given: the rate is that of dense bf16 matmuls; another one is dtype=…" in answer.notes


def test_the_expression_gives_the_answer() -> None:
    """Of every question that has one: SymPy reads it, and at the inputs it is the value, or what was rounded."""
    sympy = pytest.importorskip("sympy")
    answer = calc.ask("tokens-per-second", parameters="8B", layers=32, kv_heads=8, head_width=128, sequence=4096, batch=32, gpu="h100-sxm")
    variables = {i.symbol: sympy.Rational(i.value) for i in answer.inputs if isinstance(i.value, Fraction)}

    assert sympy.sympify(answer.expr, locals={name: sympy.Symbol(name) for name in variables}).subs(variables) == sympy.Rational(
        answer.value
    )


def test_a_deadline_needs_so_many_devices_rounded_up() -> None:
    """At 1024 devices it is the time of 1024; a second less needs 1025, and 1024 would be late."""
    exactly = ask("training-time", days=DAYS, solve="gpus", **RUN)
    sooner = ask("gpus", days=DAYS - Fraction(1, 86400), **RUN)

    assert (1024, "R = u·n·P, rearranged for n") == (exactly.value, exactly.calculation.steps[-1].because)
    assert sooner.value == 1025
    assert sooner.bound is not None
    assert (sooner.bound.key, sooner.bound.further, sooner.bound.further_value) == ("days", 1024, DAYS)
    assert sooner.bound.value <= sooner.bound.limit < sooner.bound.further_value


def test_a_printed_number_leads_back_to_the_devices_it_came_from() -> None:
    """The digits of a double end after 17: 1023.99999999999999 devices are 1024, and a note says so."""
    answer = ask("gpus", days=float(DAYS), **RUN)
    above = ask("gpus", days=f"{float(DAYS):.15f}", **RUN)

    assert (1024, 1024) == (answer.value, above.value)


def test_forty_billion_parameters_fill_eight_devices() -> None:
    """8 · 80e9 bytes over 4 + 4 + 8."""
    answer = ask("largest-model", devices=8, memory="80GB", optimizer="adamw", precision="fp32")

    assert (40 * 10**9, "n*M/(4 + 4 + 0 + 2*4)") == (answer.value, answer.expr)
    assert ("memory = 80GB is read as 80·10^9 bytes; were 80GiB meant, parameters would be 42,949,672,960",) == answer.flags


def test_published_optima_of_chinchilla() -> None:
    """At Gopher's budget approach 1 has 67 B (table 3). Approach 3 has 40 B in the text (section 3.3), and 32 B by the constants as they
    are printed. 20 tokens a parameter give 69 B, near the 70 B that were trained."""
    third, thumb, first, again = (
        ask("compute-optimal", flops="5.76e23", law=law) for law in ("hoffmann-3", "20-tokens", "hoffmann-1", "besiroglu")
    )

    assert round(float(again["a"]), 1) == 18.4  # tokens a parameter, where the printed constants lead to 93
    assert ("3.22e+10", "6.93e+10", 67 * 10**9) == (f"{float(third.value):.2e}", f"{float(thumb.value):.2e}", first.value)
    # The least loss on the budget: a little more or fewer parameters lose.
    losses = [
        ask("loss", parameters=int(n), tokens=int(96 * 10**21 / n)).value
        for n in (third.value * 11 / 10, third.value, third.value * 9 / 10)
    ]
    assert losses[1] == min(losses)


# Parameters and FLOPs of table 3 (approach 1) and table A3 (approach 2) of Hoffmann et al. 2022.
OPTIMA = {
    "hoffmann-1": {"4e8": "1.92e19", "1e9": "1.21e20", "10e9": "1.23e22", "175e9": "3.85e24", "280e9": "9.90e24", "520e9": "3.43e25",
                   "1e12": "1.27e26", "10e12": "1.30e28"},
    "hoffmann-2": {"4e8": "1.84e19", "1e9": "1.20e20", "175e9": "4.54e24", "280e9": "1.18e25", "520e9": "4.19e25", "1e12": "1.59e26",
                   "10e12": "1.75e28"},
}  # fmt: skip


@pytest.mark.parametrize("law", OPTIMA)
def test_tables_of_chinchilla_are_near(law: str) -> None:
    """As near as exponents of two digits lead, from one row to the others: 4 % and 1 %."""
    assert OPTIMA[law]
    for parameters, flops in OPTIMA[law].items():
        off = ask("compute-optimal", flops=flops, law=law).value / Fraction(parameters) - 1
        assert abs(off) < {"hoffmann-1": Fraction(4, 100), "hoffmann-2": Fraction(1, 100)}[law]


def test_what_bounds_a_token_is_named() -> None:
    """One sequence waits for memory; 4000 of them without a cache to speak of for arithmetic."""
    of = {"parameters": "8B", "layers": 1, "kv_heads": 1, "head_width": 1, "sequence": 1, "gpu": "h100-sxm"}

    assert ask("time-per-token", **of).flags[0].startswith("bound by memory bandwidth: reading takes 4.7761 ms, ")
    assert ask("time-per-token", **of, batch=4000).flags[0].startswith("bound by arithmetic: multiplying takes 64.679 ms, ")


def test_young_and_daly_save_about_as_often() -> None:
    """√(2 · 60 · 172,800) = 4553.7 s; Daly's is a little less."""
    young, daly = (ask("checkpoint-interval", save=60, mtbf=48, law=law) for law in ("young", "daly"))

    assert ("4553.7", "4513.8") == (f"{float(young.value):.1f}", f"{float(daly.value):.1f}")
    assert not young.exact
    assert young["v"] ** 2 < 2 * 60 * 48 * 3600


def test_the_same_time_from_the_paper_that_the_project_has_as_a_formula() -> None:
    """The question and the published formula of checkpoints agree."""
    from calc.memory.formulas import SAVING_INTERVAL
    from tests.memory.daly import SAVING_INTERVAL_HIGHER

    for law, formula in (("young", SAVING_INTERVAL), ("daly", SAVING_INTERVAL_HIGHER)):
        assert float(ask("checkpoint-interval", save=60, mtbf=48, law=law).value) == pytest.approx(
            formula.at(delta=60, M=48 * 3600), rel=1e-12
        )


def test_a_run_stands_beside_known_ones_and_thresholds() -> None:
    """6.3e24 FLOP: 20 times GPT-3, and 63 % of the European threshold."""
    rows = {row.label: row for row in ask("compare", parameters="70e9", tokens="15T").rows}

    assert Fraction(63 * 10**23) / Fraction("3.14e23") == rows["times GPT-3 175B"].value
    assert rows["of the European Union's presumption of systemic risk"].value == Fraction(63, 100)
    assert rows["of the European Union's presumption of systemic risk"].because.startswith("not passed: 1e25 FLOP; ")


def test_flops_alone_are_compared_with_known_runs() -> None:
    """3.14e24 FLOP, without parameters and tokens, are 10 times GPT-3."""
    rows = {row.label: row for row in ask("compare", flops="3.14e24").rows}

    assert rows["times GPT-3 175B"].value == 10
    assert rows["times Chinchilla 70B"].because.startswith("5.88e23 FLOP, 6 · 70e9 · 1.4e12; ")


def test_units_make_no_difference() -> None:
    """15T is 15e12, 50 % a half, 30 days 720 hours."""
    one = ask("gpus", parameters="70B", tokens="15T", gpu="h100-sxm", mfu="50%", days="720h")

    assert one.value == ask("gpus", days=30, **RUN).value


# -- documents and tables ----------------------------------------------------------------------------------------------------------------


def test_the_document_is_what_the_design_says() -> None:
    """Integers beyond 2^53 as strings, fractions as the nearest double with the exact one beside it."""
    document: dict[str, Any] = json.loads(json.dumps(ask("training-time", gpus=1024, **RUN).to_json()))

    assert (2, "training-time") == (document["schema"], document["question"])
    assert {"name": "days", "symbol": "t", "expr": "6*N*D/(86400*u*n*P)", "value": 143.92659381842682, "exact": "13671875/94992",
            "unit": "days", "meaning": "time"} == document["answer"]  # fmt: skip
    assert {"parameters", "tokens", "gpus", "mfu", "peak", "gpu", "dtype", "convention"} == document["inputs"].keys()
    assert "6300000000000000000000000" == document["steps"][0]["value"]
    assert ["C", "R", "t"] == [step["symbol"] for step in document["steps"]]


def test_what_follows_from_a_truncated_root_has_no_exact_value() -> None:
    """The interval is √(2·60·3600·50); the share that is lost follows from it, and F = 50000/1000 does not."""
    document = ask("checkpoint-interval", save=60, **{"device-mtbf": 50000}, gpus=1000).to_json()

    assert [("F", "50"), ("v", None)] == [(step["symbol"], step["exact"]) for step in document["steps"]]
    assert [("x", None)] == [(step["symbol"], step["exact"]) for step in document["also_steps"]]
    assert (None, [None]) == (document["answer"]["exact"], [row["exact"] for row in document["also"]])


def test_a_whole_number_is_exact_where_the_root_before_rounding_is_not() -> None:
    """√(10²⁴/(6·20)) = 91287092917.5… parameters, rounded down; the loss at them is a root again."""
    document = ask("compute-optimal", flops=10**24, law="20-tokens").to_json()

    assert ("91287092917", None) == (document["answer"]["exact"], document["answer"]["unrounded"]["exact"])
    assert {"tokens": True, "tokens for each parameter": True, "loss by the fit, on the paper's own data": False} == {
        row["what"]: row["exact"] is not None for row in document["also"]
    }


def test_every_question_is_in_its_family_and_says_what_it_rests_on() -> None:
    """The registry and the files agree; keys of a question are unambiguous; defaults say why."""
    for family, names in FAMILIES.items():
        assert names == tuple(q.name for q in _of(family))
    assert len(set(all_names())) == len(all_names()) > 40
    for question in all_questions():
        names = [*(name for variable in question.variables for name in variable.names), *(choice.key for choice in question.choices)]
        assert len(names) == len(set(names)), question.name
        assert all(bool(variable.default) == bool(variable.because) for variable in question.variables)
        assert question.variable(question.answer)
        assert question.source or question.equations or question.choices


def test_formats_of_weights_are_those_of_the_inference_module() -> None:
    """Bits an element with the scales of a group."""
    from calc.memory.inference import WEIGHTS

    for name, (text, _) in WEIGHT_BYTES.items():
        how = WEIGHTS[name]
        group = Fraction(8 * how.scale_bytes + how.zero_bits, 8 * how.group) if how.group else Fraction(0)
        assert sum(Fraction(part.strip()) for part in text.split("+")) == Fraction(how.bits, 8) + group, name


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISION.options)
def test_bytes_per_parameter_are_those_of_a_recorded_step(precision: str) -> None:
    """Of every optimizer and recipe that the question offers, term by term."""
    from calc.memory.per_parameter import per_parameter

    assert OPTIMIZER.options
    for optimizer in OPTIMIZER.options:
        state = ask("training-state", parameters=1000, precision=precision, optimizer=optimizer)
        recipe = per_parameter(calc.derive(calc.load("mlp"), precision=precision, optimizer=optimizer))
        assert {t.quantity: t.per_parameter for t in recipe.terms if t.per_parameter} == {
            name: value
            for name, variable in (
                ("parameters.bytes", "w"),
                ("gradients.bytes", "q"),
                ("master_weights.bytes", "m"),
                ("optimizer_state.bytes", "o"),
            )
            if (value := state[variable])
        }, (precision, optimizer)


def test_an_answer_is_found_by_letter_and_by_key() -> None:
    answer: Answer = ask("training-time", gpus=1024, **RUN)

    assert answer["C"] == 63 * 10**23
    assert answer["gpus"] == answer["n"] == 1024


def test_a_wrong_rearrangement_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back into the equation it does not give what it came from; the search finds the devices then, and says what it saw."""
    monkeypatch.setattr(solving, "isolated", lambda text, variable, left: (f"2*({isolated(text, variable, left)[0]})",))
    answer = ask("gpus", days=DAYS, **RUN)

    assert (1024, None) == (answer.value, answer.expr)
    assert answer.calculation.steps[-1].because.startswith("by search: days is 143.927 at 1,024 and ")


def test_a_table_is_left_out_where_its_variables_have_no_values() -> None:
    """Solved for a weight's bytes there is nothing to compare formats of."""
    answer = ask("quantized", weights_bytes="14GB", parameters="7B", solve="weight-bytes")

    assert (2, ()) == (answer.value, answer.rows)


def test_days_follow_from_steps_and_from_a_measured_speed() -> None:
    """400,000 steps of 1,024 sequences of 1,024 tokens: 6·N·D over the rate, or tokens over tokens a second."""
    tokens = 400_000 * 1024 * 1024
    of_steps = {"steps": "400e3", "batch": 1024, "sequence": 1024}

    assert ask("training-time", parameters="1.5e9", peak="312TFLOP/s", gpus=1, mfu=0.5, **of_steps).value == (
        Fraction(6 * 1_500_000_000 * tokens * 2, 312 * 10**12 * 86400)
    )
    assert ask("training-time", tokens="400e3*1024*1024", tokens_per_second=35_000).value == Fraction(tokens, 35_000 * 86400)
    assert ask("training-time", tokens_per_second=35_000, **of_steps).value == Fraction(tokens, 35_000 * 86400)
    assert ask("training-time", days=10, solve="tokens-per-second", **of_steps).value == Fraction(tokens, 10 * 86400)
    assert refusal("training-time", tokens="1e9", tokens_per_second="1e3", mfu=0.5) == "mfu does not affect the answer: leave it out"


def test_a_matmul_moves_elements_of_the_format_that_it_runs_in() -> None:
    """1009 · 2003 + 2003 · 31 + 1009 · 31 elements: 4 bytes in fp32 and tf32, 2 in bf16, the default, 1 in fp8, a half in int4."""
    sides = {"rows": 1009, "inner": 2003, "columns": 31}
    elements = 1009 * 2003 + 2003 * 31 + 1009 * 31

    for dtype, size in (("fp32", 4), ("tf32", 4), ("bf16", 2), ("fp8", 1)):
        assert ask("matmul", **sides, gpu="h100-sxm", dtype=dtype)["Q"] == size * elements
    assert ask("matmul", **sides, gpu="h100-sxm")["Q"] == 2 * elements
    assert ask("matmul", **sides, peak="1e15", bandwidth="1TB/s", dtype="int4")["Q"] == Fraction(elements, 2)
    assert ask("matmul", **sides, gpu="h100-sxm", dtype="fp8", item_bytes=2)["Q"] == 2 * elements


def test_device_hours_may_count_recomputed_layers() -> None:
    """BLOOM (arXiv 2211.05100): 8 · 176e9 · 366e9 FLOP at 150 TFLOP/s, 954,000 h, where the paper has 1.08e6 h in all."""
    run = {"parameters": "176B", "tokens": "366B", "achieved": "150TFLOP/s"}

    assert ask("gpu-hours", **run, convention="8ND").value == Fraction(8 * 176 * 366 * 10**18, 3600 * 150 * 10**12)
    assert ask("cost", **run, convention="8ND", price=2)["H"] == ask("gpu-hours", **run).value * Fraction(8, 6)


def test_the_batch_of_a_step_may_be_in_tokens() -> None:
    """16M tokens are 1,953.125 sequences of 8,192, as Llama 3 has them in its later stages: 6 · 405e9 · 16e6 FLOP a step."""
    run = {"parameters": "405B", "gpus": 16384, "achieved": "400TFLOP/s"}

    assert ask("time-per-step", **run, tokens_per_step="16M").value == Fraction(6 * 405 * 16 * 10**15, 16384 * 4 * 10**14)
    assert ask("training-time", **run, tokens_per_step="16M", steps=10**6).value == ask("training-time", **run, tokens="16T").value
    assert ask("time-per-step", **run, batch=2048, sequence=8192).value == ask("time-per-step", **run, tokens_per_step=2**24).value


def test_a_rate_of_each_device_is_asked_as_papers_print_it() -> None:
    """Touvron et al. 2023 (arXiv 2302.13971), section 2.3 and table 15: 380 tokens a second and device, 2,048 devices, 1.4e12 tokens, about
    21 days and 449 MWh. Narayanan et al. 2021 (arXiv 2104.04473), section 5.1: 140 and 163 TFLOP/s a device, 34 and 84 days."""
    llama = {"tokens": "1.4e12", "gpus": 2048, "tokens_per_second_per_gpu": 380}
    days = Fraction(14 * 10**11, 380 * 2048 * 86400)

    assert (ask("training-time", **llama).value, round(days)) == (days, 21)
    assert ask("gpu-hours", **llama).value == 24 * 2048 * days
    assert round(ask("energy", **llama, power=400, pue="1.1").value / 1000) == 450
    assert ask("gpus", tokens="1.4e12", tokens_per_second_per_gpu=380, days=days).value == 2048
    assert ask("training-time", tokens="1.4e12", gpus=2048, days=days, solve="tokens-per-second-per-gpu").value == 380
    assert ask("training-mfu", parameters="65e9", gpu="a100-sxm-80", gpus=2048, tokens_per_second_per_gpu=380).value == (
        Fraction(6 * 65 * 10**9 * 380, 312 * 10**12)
    )
    for parameters, tokens, gpus, rate, printed in ((175, 300, 1024, 140, 34), (1008, 450, 3072, 163, 84)):
        of = {"parameters": f"{parameters}e9", "tokens": f"{tokens}e9", "achieved": f"{rate}TFLOP/s"}
        flops = 8 * parameters * tokens * 10**18
        time = ask("training-time", **of, gpus=gpus, convention="8ND").value
        assert (time, round(time)) == (Fraction(flops, gpus * rate * 10**12 * 86400), printed)
        assert ask("gpu-hours", flops=flops, achieved=f"{rate}TFLOP/s").value == 24 * gpus * time
    assert ask("device-flops", gpus=1024, achieved="140TFLOP/s", days=34).value == 1024 * 140 * 10**12 * 34 * 86400
    step = ask("time-per-step", parameters="175e9", batch=1536, sequence=2048, gpus=1024, achieved="140TFLOP/s")
    assert step.value == Fraction(6 * 175 * 10**9 * 1536 * 2048, 1024 * 140 * 10**12)
    recomputed = ask("time-per-step", parameters="1008e9", batch=3072, sequence=2048, gpus=3072, achieved="163TFLOP/s", convention="8ND")
    assert recomputed.value == Fraction(8 * 1008 * 10**9 * 2048, 163 * 10**12)
    assert refusal("training-time", **llama, achieved="3TFLOP/s") == "achieved does not affect the answer: leave it out"


def test_days_follow_from_device_hours() -> None:
    """DeepSeek-V3 (arXiv 2412.19437), section 1: 180K hours of an H800 for each trillion tokens are 3.7 days on 2,048 of them."""
    days = ask("training-time", gpu_hours="180e3", gpus=2048).value
    assert (days, round(days, 1)) == (Fraction(180_000, 24 * 2048), Fraction(37, 10))
    assert ask("training-time", days=days, gpus=2048, solve="gpu-hours").value == 180_000
    assert refusal("training-time", gpu_hours=10, gpus=2, parameters="1e9") == "parameters does not affect the answer: leave it out"


def test_a_key_that_is_the_answer_is_named_with_another_to_solve_for() -> None:
    said = "parameters is what compute-optimal answers: with parameters=… leave out another key and solve for it: solve=tokens"
    assert refusal("compute-optimal", parameters="10e9") == said
    assert ask("compute-optimal", parameters="10e9", solve="tokens", law="20-tokens").value == 200 * 10**9


def test_emissions_of_gpt_3_are_those_of_the_publication() -> None:
    """Patterson et al. 2021, table 4: 1,287 MWh at 0.429 kg/kWh are 552.1 t; 10,000 devices of 330 W for 14.8 days at a PUE of 1.1."""
    assert ask("carbon", energy="1287MWh", intensity="0.429kg/kWh").value == Fraction(1_287_000 * 429, 1000)
    by_devices = ask("carbon", gpu_hours="10000*14.8*24", power="330W", pue=1.1, intensity="429g/kWh")
    assert by_devices.value == Fraction(148 * 24 * 1000 * 330 * 11 * 429, 10**7)
    assert round(by_devices.value / 1000) == 553  # within the rounding of 14.8 days
    assert refusal("carbon", gpu_hours=10, gpu="h100-sxm") == (
        "carbon needs pue (power of the building over that of the devices) and intensity (CO₂ equivalent that the grid emits for an energy)"
        ": give them, e.g. pue=1.1 intensity=400g/kWh"
    )


def test_a_utilization_follows_from_the_totals_that_papers_print() -> None:
    """Touvron et al. 2023, Llama 2 (arXiv 2307.09288), table 2: 1,720,320 A100 hours for 70B. DeepSeek-V3 (arXiv 2412.19437), table 1:
    2.664M H800 hours for 14.8T tokens and 37B active parameters. Over days and devices the answer is the same."""
    llama = {"parameters": "70e9", "tokens": "2T", "gpu": "a100-sxm-80"}
    share = Fraction(6 * 70 * 10**9 * 2 * 10**12, 1_720_320 * 3600 * 312 * 10**12)
    deepseek = ask("training-mfu", parameters="37B", tokens="14.8T", gpu_hours="2.664M", gpu="h800-sxm")

    assert ask("training-mfu", **llama, gpu_hours="1,720,320").value == share
    assert ask("training-mfu", **llama, gpus=2048, days=Fraction(1_720_320, 24 * 2048)).value == share
    assert ask("mfu", flops=6 * 70 * 2 * 10**21, gpu_hours="1,720,320", gpu="a100-sxm-80").value == share
    assert ask("gpu-hours", **llama, mfu=share).value == 1_720_320
    assert deepseek.value == Fraction(6 * 37 * 148 * 10**20, 2_664_000 * 3600 * 9895 * 10**11)
    assert [further.label for further in deepseek.also] == ["rate achieved, each device"]  # of each device: how many there are is not given


def test_carbon_is_asked_in_the_units_of_papers() -> None:
    """Luccioni et al. 2022, BLOOM (arXiv 2211.02001), table 3: 1,082,990 hours of 400 W, 433,196 kWh, 57 gCO2eq/kWh, 24.69 tonnes. Llama 2,
    table 2: 291.42 tCO2eq. DeepSeek-V3, table 1: 2.788M hours at $2 are $5.576M."""
    bloom = ask("carbon", gpu_hours="1,082,990", power="400W", pue=1, intensity="57 gCO2eq/kWh")

    assert bloom.value == Fraction(433_196 * 57, 1000)
    assert round(bloom.value / 1000, 2) == Fraction("24.69")
    assert ask("carbon", energy="433,196kWh", intensity="0.057kgCO2eq/KWh").value == bloom.value
    assert round(ask("carbon", gpu_hours=1_720_320, power=400, pue="1.1", intensity="0.385kg/kWh").value / 1000, 2) == Fraction("291.42")
    assert ask("cost", gpu_hours="2.788M", price="$2").value == 5_576_000

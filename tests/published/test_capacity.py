"""Published times, utilizations and costs, asked as questions, each in the convention of its source."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import calc
from tests.published.figures import assert_reproduced, reproduces

TERA = 10**12
A100 = 312 * TERA
SEQUENCE, VOCABULARY = 2048, 51200  # of Megatron-LM and of Korthikanti et al.: the vocabulary is padded


def asked(question: str, **given: Any) -> Fraction:
    return calc.ask(question, **given).value


def percent(share: Fraction) -> Fraction:
    return 100 * share


# -- GPT-2 and Megatron-LM -----------------------------------------------------------------------------------------------------------


@reproduces("nanogpt-train-days")
def test_days_of_nanogpt(row: str) -> None:
    """6·N·D with N = 124,337,664, which has positions and no biases, at 30 % of the dense peak of eight A100."""
    days = asked("training-time", parameters=124337664, tokens="300e9", gpus=8, gpu="a100-sxm-80", mfu="30%")

    assert_reproduced(row, {"days": days})


@reproduces("megatron-train-time-1t")
def test_days_of_a_trillion_parameters(row: str) -> None:
    """Equation 4, 8·T·P/(n·X): every layer's forward is recomputed, and the rate is the one achieved, of 3072 devices."""
    days = asked("training-time", parameters="1008e9", tokens="450e9", convention="8ND", rate=3072 * 163 * TERA)

    assert_reproduced(row, {"days": days})


WIDTHS = {"174.6B": (96, 12288), "529.6B": (105, 20480)}
TABLE_2 = {
    "zero3-174.6B": {384: 144, 768: 88, 1536: 44},
    "zero3-529.6B": {640: 138, 1120: 98, 2240: 48},
    "ptd-174.6B": {384: 153, 768: 149, 1536: 141},
    "ptd-529.6B": {560: 171, 1120: 167, 2240: 159},
}


def of_a_token(layers: int, width: int) -> Fraction:
    """FLOPs by equation 3, which has attention in full and recomputes everything."""
    at = {"batch": 1, "sequence": SEQUENCE, "layers": layers, "width": width, "vocabulary": VOCABULARY}
    return asked("transformer-flops", convention="megatron", **at) / SEQUENCE


@reproduces("megatron-table2-days")
def test_days_of_ptd_and_of_zero_3(row: str) -> None:
    """300 billion tokens at the FLOPs of equation 3 and the rate achieved; rates are printed without decimals, so days are off by 1."""
    days = {}
    for scheme, runs in TABLE_2.items():
        flops = 300 * 10**9 * of_a_token(*WIDTHS[scheme.split("-")[1]])
        days |= {f"{scheme}-{n}gpu": asked("training-time", flops=flops, rate=n * teraflops * TERA) for n, teraflops in runs.items()}

    assert_reproduced(row, days)


# -- Korthikanti et al. --------------------------------------------------------------------------------------------------------------

# Layers, width, devices, sequences of a step, seconds with full recomputation, seconds of the present work.
RUNS = {
    "22b": (48, 6144, 8, 4, "1.42", "1.10"),
    "175b": (96, 12288, 64, 64, "18.13", "13.75"),
    "1t": (128, 25600, 512, 512, "94.42", "71.49"),
}


def utilized(layers: int, width: int, devices: int, batch: int, seconds: str, convention: str) -> Fraction:
    sizes = {"batch": batch, "sequence": SEQUENCE, "layers": layers, "width": width, "vocabulary": VOCABULARY}
    return percent(asked("transformer-mfu", **sizes, gpus=devices, peak=A100, seconds=seconds, convention=convention))


@reproduces(*(f"korthikanti-t5-{size}" for size in RUNS))
def test_utilization_with_selective_recomputation(row: str) -> None:
    """Equation 7 counts the model's FLOPs; equation 8 the hardware's, with attention as three times what is recomputed."""
    layers, width, devices, batch, before, present = RUNS[row.rsplit("-", 1)[1]]
    of = (layers, width, devices, batch, present)
    more = asked("speed-up", seconds=present, other_seconds=before)

    derived = {"mfu": utilized(*of, "korthikanti"), "hfu": utilized(*of, "korthikanti-hardware"), "throughput_increase": percent(more)}
    assert_reproduced(row, derived)


@reproduces("korthikanti-530b-dp8")
def test_utilization_of_530b_with_data_parallelism(row: str) -> None:
    """Equation 7, 2240 devices and as many sequences."""
    assert_reproduced(row, {"mfu": utilized(105, 20480, 2240, 2240, "39.15", "korthikanti")})


# -- PaLM, Llama, DeepSeek -----------------------------------------------------------------------------------------------------------


@reproduces("palm-gopher-mfu")
def test_utilization_of_gopher_as_palm_counts_it(row: str) -> None:
    """6·N + 12·L·H·Q·T for each token: attention in full, no recomputation; 0.0152 steps a second of 3072 sequences."""
    tokens = Fraction("0.0152") * 3072 * SEQUENCE
    sizes = {"parameters": "280e9", "layers": 80, "heads": 128, "head_width": 128, "sequence": SEQUENCE}
    share = asked("training-mfu", **sizes, tokens_per_second=tokens, gpus=4096, gpu="tpu-v3", convention="palm")

    assert_reproduced(row, {"mfu": percent(share)})


LLAMA_2 = {"7b": (6738415616, 184320, 39.1), "13b": (13015864320, 368640, 37.7), "70b": (68976648192, 1720320, 42.8)}
UNRELEASED = 1038336  # device hours of the 34B, from the paper's own table


@reproduces("llama2-gpu-hours")
def test_device_hours_of_llama_2(row: str) -> None:
    """6·N·D on 2.0T tokens: each printed number of hours is a possible utilization of the dense peak, and follows from it again."""
    hours = {}
    for size, (parameters, printed, implied) in LLAMA_2.items():
        run = {"parameters": parameters, "tokens": "2T", "gpu": "a100-sxm-80"}
        share = asked("gpu-hours", **run, gpu_hours=printed, solve="mfu")
        assert round(float(percent(share)), 1) == implied
        hours[size] = asked("gpu-hours", **run, mfu=share)

    assert_reproduced(row, {**hours, "total_printed": sum(hours.values()) + UNRELEASED})


@reproduces("llama3-table4-mfu")
def test_utilization_of_llama_3(row: str) -> None:
    """Rates achieved of each device, printed without decimals, over 989 TFLOP/s, dense: 400 is printed 41."""
    rates = {"row1": 430, "row2": 400, "row3": 380}

    derived = {name: percent(asked("mfu", achieved=f"{rate}TFLOP/s", peak="989TFLOP/s")) for name, rate in rates.items()}
    assert_reproduced(row, derived)


@reproduces("deepseek-v3-cost")
def test_cost_of_deepseek_v3(row: str) -> None:
    """180 thousand hours a trillion tokens in the first stage, 119 thousand for the longer context and 5 thousand after, at 2 $ each."""
    hours = Fraction("14.8") * 180_000 + 119_000 + 5_000

    assert_reproduced(row, {"total_hours": hours, "cost": asked("cost", gpu_hours=hours, price="2$/h")})


@reproduces("deepseek-v2-hours")
def test_hours_that_deepseek_v2_saves(row: str) -> None:
    """172.8 thousand hours a trillion tokens where the dense 67B took 300.6 thousand."""
    assert_reproduced(row, {"saving": percent(asked("saving", amount="172.8", other="300.6"))})


# -- CS336 ---------------------------------------------------------------------------------------------------------------------------


@reproduces("cs336-l2-70b-days")
def test_days_of_the_lectures_70b(row: str) -> None:
    """6·N·D at half of the dense peak, 1979e12/2, of 1024 H100."""
    devices = {"gpus": 1024, "gpu": "h100-sxm", "mfu": "0.5"}
    answer = calc.ask("training-time", parameters="70e9", tokens="15e12", **devices)

    a_day = asked("device-flops", **devices, days=1)
    assert_reproduced(row, {"total_flops": answer["C"], "flops_per_day": a_day, "days": answer.value})


@reproduces("cs336-l2-8h100-week")
def test_flops_of_eight_h100_in_a_week(row: str) -> None:
    """The dense peak for seven days; the lecture says two weeks."""
    assert_reproduced(row, {"flops": asked("device-flops", gpus=8, gpu="h100-sxm", mfu=1, days="1week")})

"""What a question refuses, and what it answers with a flag beside the number."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from calc.capacity.questions import ask
from tests.capacity.questions.asked import RUN, refusal


@pytest.mark.parametrize(("question", "given", "said"), [
    ("training-tim", {}, "unknown question 'training-tim': did you mean training-time?"),
    ("emissions", {}, "unknown question 'emissions': did you mean carbon?"),
    ("memory", {}, "unknown question 'memory': did you mean fits?"),
    ("how-long", {}, "unknown question 'how-long': did you mean training-time?"),
    ("qwxyz", {}, "unknown question 'qwxyz': see napkin list questions"),
    ("fits", {"model": "gpt2", "gpu": "h100-sxm", "zero": 3}, "neither fits nor gpt2 has 'zero': it is a key of sharding and fewest-ranks"),
    ("tokens-per-second", {"model": "gpt2", "gpu": "h100-sxm", "context": 8192},
     "neither tokens-per-second nor gpt2 has 'context': did you mean sequence?"),
    ("training-time", {**RUN, "gpu": "h100-sxn"}, "unknown accelerator 'h100-sxn': did you mean h100-sxm?"),
    ("training-time", {**RUN, "tokens": "-15T"}, "tokens = '-15T' must be more than 0"),
    ("training-time", {**RUN, "mfu": 60}, "mfu = 60 is above 1: did you mean 0.6, or 60%?"),
    ("training-time", {**RUN, "gups": 8}, "training-time has no key 'gups': did you mean gpus? Its keys: napkin list "),
    ("training-time", {"nodes": 8}, "training-time has no key 'nodes': did you mean gpus? Its keys: napkin list "),
    ("training-time", {"gpu_count": 8}, "training-time has no key 'gpu-count': did you mean gpus? Its keys: napkin list "),
    ("training-time", {"model": "gpt2", "hardwar": "my.toml"}, "training-time has no key 'hardwar': did you mean hardware? Its keys: "),
    ("training-time", {**RUN, "gpu": "H100-SXM"}, "unknown accelerator 'H100-SXM': did you mean h100-sxm?"),
    ("training-time", {**RUN, "gpu": "a100 80GB"}, "unknown accelerator 'a100 80GB': did you mean a100-sxm-80 or a100-pcie-80?"),
    ("training-time", {**RUN, "chips": 64}, "training-time has no key 'chips': did you mean gpus? Its keys: napkin list questions"),
    ("cache", {"model": "gpt2", "memory": "1GB"}, "cache has no key 'memory': use one of layers, kv-heads, head-width, "),
    ("mfu", {"model": "llama3-70b", "gpu": "h100-sxm"}, "mfu has no key 'model': use one of flops, seconds, gpus, gpu-hours, peak, rate,"
     " achieved, mfu, gpu, dtype, sparse, hardware, solve. All given keys are keys of training-mfu"),
    ("sharding", {"parameters": "7e9", "dp": 64}, "sharding has no key 'dp': did you mean data? Its keys: napkin list questions sharding"),
    ("training-time", {**RUN, "gpu": "RTX-4090"}, "unknown accelerator 'RTX-4090': did you mean rtx4090?"),
    ("ridge-point", {"gpu": "v100-sxm2-32"},
     "NVIDIA V100 SXM2 32GB (16GB exists) has no published rate in bf16, the default: give dtype=fp64|fp32|fp16|fp16_cuda|int8"),
    ("saving", {"amount": "459MiB", "other": "761MiB"},
     "amount = '459MiB' is an amount of memory: amount is a plain number: leave its unit out, e.g. 1.5"),
    ("saving", {"amount": "459xyz", "other": 1},
     "amount = '459xyz': unknown unit 'xyz'; amount is a plain number: leave its unit out, e.g. 1.5"),
    ("largest-batch", {"layers": 32, "width": 4096, "heads": 32, "sequence": 4096, "gpu": "h100-sxm", "parameters": "7e9"},
     "not even one of the sequences fits: batch = 1 takes memory = 216.15 GB, of which the training state alone takes"
     " 112 GB, and there are 80 GB"),
    ("training-time", {**RUN, "N": 7}, "parameters is given twice: parameters and N are the same key"),
    ("training-time", RUN, "training-time needs gpus (devices): give it, e.g. gpus=64"),
    ("training-time", {"days": 30, "solve": "gpus"},
     "training-time needs parameters (active parameters, those that one token uses, or model=…), tokens, peak (dense peak"
     " rate of one device, or gpu=…) and mfu (model FLOPs utilization): give them, e.g. parameters=8e9 tokens=1e12 gpu=h100-sxm mfu=0.4"),
    ("training-time", {"flops": "6e24", "solve": "gpus"},
     "training-time needs peak (dense peak rate of one device, or gpu=…), mfu (model FLOPs utilization) and days (time): give them, e.g. "
     "gpu=h100-sxm mfu=0.4 days=30"),
    ("largest-sequence", {"layers": 24}, "largest-sequence needs width (model width), heads (attention heads), batch (batch size;"
     " model=… gives all sizes)"
     " and memory (memory of one device, or gpu=…): give them, e.g. width=1024 heads=16 batch=4 gpu=h100-sxm"),
    ("training-time", {**RUN, "days": 30},
     "days is what training-time answers: with days=… leave out another key and solve for it: solve=parameters"),
    ("training-time", {"model": "gpt2", "tokens": "1e12", "days": 30},
     "days is what training-time answers: with days=… leave out another key and solve for it: solve=tokens"),
    ("largest-batch", {"model": "gpt2", "memory": "80GB", "B": 4},
     "batch is what largest-batch answers: with batch=… leave out another key and solve for it: solve=memory"),
    ("largest-batch", {"layers": 24, "memory": "80GB", "batch": 4},
     "batch is what largest-batch answers: with batch=… leave out another key and solve for it: solve=layers"),
    ("training-time", {**RUN, "gpus": 8, "solve": "gpus"}, "gpus is both given and solved for: leave out gpus=…, or solve for another"),
    ("training-time", {**RUN, "gpus": 8, "solve": "vendor"}, "training-time has no 'vendor' to solve for: use one of parameters, tokens, "),
    ("training-time", {**RUN, "gpus": 8, "flops": "1e24"},
     "parameters and tokens do not affect the answer once flops is given: leave them out"),
    ("training-time", {**RUN, "gpus": 8, "days": 1, "mfu": 1, "solve": "peak"},
     "gpu=h100-sxm is not used: what it supplies is given or solved"),
    ("largest-model", {"memory": 80}, "memory = 80 is 80 bytes, less than one layer of a model needs: write 80GB or 80GiB"),
    ("largest-model", {"memory": "80GB", "optimizer": "adamww"}, "unknown optimizer 'adamww': did you mean adamw?"),
    ("largest-model", {"memory": "80GB", "bytes_per_parameter": 16, "optimizer": "adam"},
     "optimizer does not affect the answer: leave it out"),
    ("largest-concurrency", {"parameters": "70B", "layers": 80, "kv_heads": 8, "head_width": 128, "sequence": 1024, "gpu": "h100-sxm"},
     "not even one of the sequences fits: batch = 1 takes memory = 140.34 GB, and there are 80 GB"),
    ("largest-depth", {"width": 65536, "heads": 8, "batch": 1, "sequence": 1024, "memory": "16GB", "V": 1000, "precision": "fp32"},
     "not even one of the layers fits: layers = 1 takes memory = "),
    ("training-time", {**RUN, "gpus": 8, "dtype": "fp17"}, "NVIDIA H100 SXM5 80GB has no published rate in 'fp17': it has "),
    ("training-time", {"parameters": "70e9", "tokens": 1, "gpus": 1, "mfu": 1, "sparse": "yes"}, "sparse goes with gpu: give gpu=…, "),
    ("training-time", {"flops": "1e24", "gpus": 1, "mfu": 1, "peak": "1e15", "hardware": "mine.toml"},
     "hardware goes with gpu: give gpu=…, or the rate itself as peak=…"),
    ("data-parallel-tokens", {"gpu": "h100-sxm", "gpus": 1}, "one device exchanges nothing"),
    ("checkpoint-interval", {"save": 3600, "mtbf": "15min"},
     "saving takes 3,600 s and the run fails every 0.25 h: it would make no progress"),
    ("cost", {"gpu_hours": 10, "gpu": "m4-max"}, "Apple M4 Max (40-core GPU) has no price in the catalogue: give price=2$/h"),
])  # fmt: skip
def test_nonsense_is_refused_with_the_reason(question: str, given: dict[str, Any], said: str) -> None:
    """In one line that names the cause and the way out."""
    assert refusal(question, **given).startswith(said)


def test_a_utilization_above_one_names_the_formats_that_would_explain_it() -> None:
    """16384 · 32768 · 8192 · 2 FLOP in 0.12506 s are 70.33 TFLOP/s: 0.988 of an RTX 3090 in bf16, 1.98 of its fp32 peak."""
    done = {"flops": 8796093022208, "seconds": "0.12506", "gpu": "rtx3090"}

    assert round(float(ask("mfu", **done, dtype="bf16").value), 3) == 0.988
    assert refusal("mfu", **done, dtype="fp32") == (
        "utilization 1.98 is above 1: NVIDIA GeForce RTX 3090 24GB cannot do 70.335 TFLOP/s in fp32, whose dense peak is 35.58 TFLOP/s;"
        " the matmuls ran in bf16 (71.2 TFLOP/s), fp16 (71.2 TFLOP/s) or fp16_fp16acc (142.3 TFLOP/s), with a peak of their own, or the"
        " time was taken before the device had finished, or fewer FLOPs ran"
    )


def test_a_plan_that_outruns_the_peak_is_refused() -> None:
    """One day on 1024 devices would take 72 times their peak."""
    assert refusal("training-time", parameters="70e9", tokens="15e12", gpu="h100-sxm", gpus=1024, days=1, solve="mfu") == (
        "utilization 72 is above 1: NVIDIA H100 SXM5 80GB cannot do 71.208 PFLOP/s in bf16, whose dense peak is 989.5 TFLOP/s;"
        " take more devices or more time"
    )


def test_a_sparse_peak_for_a_dense_one_is_refused_or_flagged() -> None:
    """Refused where the device is known, flagged where only the number is; in fp8 the same number is a dense rate."""
    run = {"flops": "1e24", "gpus": 8, "mfu": "0.5", "peak": "1979TFLOP/s"}
    said = "peak = 1979 TFLOP/s is the rate of NVIDIA H100 SXM5 80GB in bf16 with 2:4 sparsity, and 989.5 TFLOP/s is the dense one"

    assert refusal("training-time", **run, gpu="h100-sxm") == (
        f"{said}: give the one that is meant, or say gpu=h100-sxm without a peak, with dtype=… and sparse=yes"
    )
    assert (f"{said}: was that one meant?",) == ask("training-time", **run).flags
    assert () == ask("training-time", **run, dtype="fp8").flags
    del run["peak"]
    sparse = ask("training-time", **run, gpu="h100-sxm", sparse="yes")
    assert "this is the rate with 2:4 sparsity: no dense matmul reaches it" in sparse.notes


def test_a_peak_of_another_format_is_named() -> None:
    """3958 TFLOP/s are an H100's in 8 bits with sparsity, 1979 its fp8; 989 is 989.5 with a digit less."""
    run = {"flops": "1e24", "gpus": 8, "mfu": "0.5"}
    sparse = "peak = 3958 TFLOP/s is the rate of NVIDIA H100 SXM5 80GB in fp8 with 2:4 sparsity, and 1979 TFLOP/s is the dense one"
    other = "peak = 312 TFLOP/s is not the peak of NVIDIA H100 SXM5 80GB in bf16, 989.5 TFLOP/s dense: the given value is used"

    assert (f"{sparse}: was that one meant?",) == ask("training-time", **run, peak="3958TFLOP/s").flags
    assert refusal("training-time", **run, peak="3958TFLOP/s", gpu="h100-sxm").startswith(sparse)
    assert (other,) == ask("training-time", **run, peak="312TFLOP/s", gpu="h100-sxm").flags
    assert () == ask("training-time", **run, peak="989TFLOP/s", gpu="h100-sxm").flags
    assert ask("training-time", **run, peak="1979TFLOP/s", gpu="b200-hgx").flags[0].startswith("peak = 1979 TFLOP/s is not the peak")


def test_numbers_without_their_suffix_are_refused_or_flagged() -> None:
    """Seventy parameters, a peak in TFLOP/s that was typed as FLOP/s, and kg/kWh that were typed as g/kWh."""
    small = ask("flops", parameters=70, tokens=15)

    assert ("parameters = 70 is 70 parameters: was 70B meant?", "tokens = 15 is 15 tokens: was 15T meant?") == small.flags
    assert () == ask("flops", parameters="70B", tokens="15T").flags
    assert ask("carbon", energy="1287MWh", intensity="0.429").flags == ("intensity = 0.429 is 0.429 g/kWh: was 0.429kg/kWh meant?",)
    assert () == ask("carbon", energy="1287MWh", intensity="0.429kg/kWh").flags == ask("carbon", energy="1287MWh", intensity=429).flags
    assert refusal("training-time", flops="1e24", gpus=8, mfu="0.5", peak=989) == (
        "peak = 989 is 989 FLOP/s, less than any device does: write 989.5TFLOP/s"
    )
    assert refusal("ridge-point", peak="989TFLOP/s", bandwidth=3350) == (
        "bandwidth = 3350 is 3350 bytes/s, less than any device moves: write 3.35TB/s"
    )


def test_a_model_that_does_not_fit_is_flagged_where_it_is_used() -> None:
    """140e9 bytes of weights and 16·8192 tokens of 327,680 bytes: 2.29 times the 80e9 of one device, and room on three."""
    of = {"parameters": "70B", "layers": 80, "kv_heads": 8, "head_width": 128, "sequence": 8192, "batch": 16, "gpu": "h100-sxm"}
    one, three = ask("tokens-per-second", **of), ask("tokens-per-second", **of, gpus=3)

    needed = 140 * 10**9 + 16 * 8192 * 327680
    assert one["U"] == needed
    assert one.flags[1] == "it does not fit: 182.95 GB are needed, 2.2869 times the memory of 1 of these devices"
    assert len(three.flags) == 1


def test_a_memory_that_is_not_the_devices_is_flagged() -> None:
    """80 GiB typed where 80 GB are sold."""
    answer = ask("fits", parameters="1B", gpu="h100-sxm", memory="80GiB")

    assert (
        "memory = 85.899 GB is not what NVIDIA H100 SXM5 80GB is sold with, 80 GB: the given value is used"
        in answer.flags
    )


def test_what_does_not_fit_is_flagged() -> None:
    """70e9 · 16 bytes on eight devices of 80e9: 1.75 times."""
    answer = ask("fits", parameters="70e9", gpu="h100-sxm", gpus=8)

    assert (Fraction(7, 4), ("it does not fit: 1.12 TB are needed, 1.75 times the memory",)) == (
        answer.value,
        answer.flags,
    )


def test_one_price_is_taken_everywhere() -> None:
    """The middle of 2 $ and 5 $ an hour, in a question and in a layout alike, with the range and its date beside it."""
    from calc.capacity.sharding.timing import machine_of
    from calc.hardware.accelerators import accelerator

    actual = next(i for i in ask("cost", gpu_hours=10, gpu="h100-sxm").inputs if i.key == "price")
    machine = machine_of(accelerator("h100-sxm"))

    assert actual.value == Fraction(7, 2) == machine.price
    assert actual.source == machine.price_source
    assert actual.source.startswith("ASSUMPTION of 2026 ")
    assert actual.source.endswith("; the middle of 2 $ to 5 $ an hour")


def test_a_width_is_rounded_down_to_a_multiple_of_the_heads() -> None:
    """3,332 would fit, and 32 heads of 104 are the most that 3,328 divides into; the next width that they divide does not fit."""
    of = {"layers": 32, "heads": 32, "batch": 1, "sequence": 1024}
    answer = ask("largest-width", gpu="h100-sxm", **of)
    peak = {width: ask("largest-width", width=width, solve="memory", **of).value for width in (32 * 104, 3332, 32 * 105)}

    assert 32 * 104 == answer.value
    assert "width is rounded down from 3,332 to a multiple of the 32 heads" in answer.notes
    assert answer.bound is not None
    assert (answer.bound.value, answer.bound.further, answer.bound.further_value) == (peak[3328], 3360, peak[3360])
    assert peak[3332] <= answer.bound.limit < peak[3360]
    back = ask("largest-width", layers=32, batch=1, sequence=1024, width=100, gpu="h100-sxm", solve="heads")
    assert (100, "heads is rounded down from 475 to a divisor of width") == (back.value, back.notes[0])


def test_a_peak_that_is_divided_evenly_is_flagged() -> None:
    """Two devices are not one of twice the memory; one is."""
    of = {"layers": 12, "width": 768, "heads": 12, "sequence": 1024, "gpu": "h100-sxm"}
    flags = ask("largest-batch", gpus=2, **of).flags

    assert () == ask("largest-batch", **of).flags
    assert flags[0].startswith("what one process needs at its peak, ")
    assert flags[0].endswith(
        " GB, is divided evenly among 2 devices, a lower bound that no layout reaches in general:"
        " napkin shard MODEL works a layout out, napkin layout MODEL searches for the best"
    )
    assert not any("peak" in flag for flag in ask("fits", parameters="1B", gpu="h100-sxm", gpus=2).flags)  # state alone can be divided

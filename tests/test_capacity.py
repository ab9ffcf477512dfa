"""Short calculations: exact, with their steps, refused where a number makes no sense."""

from __future__ import annotations

from fractions import Fraction

import pytest

from calc.capacity import decode_bound, device_flops, largest_model, training_flops, training_time, utilization
from calc.errors import BadInputError
from calc.hardware import accelerator, catalogue
from calc.reckoning import Line, given, reckon

H100 = accelerator("h100-sxm")


def test_training_time_is_exact() -> None:
    """6 · 70e9 · 15e12 FLOP at 1024 · 989.5e12 · ½ FLOP/s, in days of 86,400 s: 143.93."""
    found = training_time(70 * 10**9, 15 * 10**12, H100, 1024, 0.5)

    assert found.value == Fraction(6 * 70 * 15 * 10**21) / (1024 * Fraction(9895 * 10**11) / 2 * 86400)
    assert [line.letter for line in found.lines] == ["C", "R", "t"]
    assert found["C"] == training_flops(70 * 10**9, 15 * 10**12).value == 63 * 10**23


def test_published_days_of_a_small_gpt() -> None:
    """6 · 124,337,664 · 300e9 FLOP on eight A100 at 30 % of 312e12: 3.46 days, as nanoGPT's notebook says."""
    assert round(float(training_time(124337664, 300 * 10**9, accelerator("a100-sxm-80"), 8, 0.3).value), 2) == 3.46


def test_largest_model_and_a_week() -> None:
    """8 · 80e9 / 16 = 40e9; 8 · 989.5e12 · 604,800 = 4.7875968e21."""
    assert largest_model(H100, 8, 16).value == 40 * 10**9
    assert device_flops(H100, 8, 7, 1).value == 47875968 * 10**14
    assert device_flops(H100, 8, 7, 1, sparse=True).value == 2 * 47875968 * 10**14


def test_generation_is_bound_by_memory() -> None:
    """Llama 2 13B of 13,015,449,600 parameters in bf16 with 1024 tokens of 40 heads: 124.675 tokens/s on one H100."""
    cache = 1024 * 40 * 128 * 40 * 2 * 2

    assert round(float(decode_bound(2 * 13_015_449_600, cache, H100).value), 3) == 124.675
    assert round(float(decode_bound(2 * 13_015_449_600, cache, H100, 256).value), 2) == 3561.77


def test_a_utilization_above_one_is_refused_with_the_reason() -> None:
    """At the peak it is 1."""
    assert utilization(10**12, 1, 10**12, "fp32").value == 1
    with pytest.raises(BadInputError, match=r"^utilization 1.98 is above 1: no device outruns its peak, so the peak is not that of bf16, "):
        utilization(198, 1, 100, "bf16")


def test_a_utilization_above_one_names_the_formats_whose_peak_explains_it() -> None:
    """A product of 16384 x 32768 x 8192 in 0.12506 s is 70.33 TFLOP/s: 1.98 of an RTX 3090's fp32, and within its bf16."""
    card = accelerator("rtx3090")
    with pytest.raises(BadInputError) as caught:
        utilization(2 * 16384 * 32768 * 8192, 0.12506, card.peak("fp32"), "fp32", card)
    with pytest.raises(BadInputError, match=r"cannot do 8.796e\+15 FLOP/s in fp32, nor in any other format: the time was taken before the "):
        utilization(2 * 16384 * 32768 * 8192, 0.001, card.peak("fp32"), "fp32", card)

    assert str(caught.value) == (
        "utilization 1.98 is above 1: NVIDIA GeForce RTX 3090 24GB cannot do 7.033e+13 FLOP/s in fp32, whose dense peak is 3.558e+13;"
        " the products ran in bf16 (7.12e+13), fp16 (7.12e+13) or fp16_fp16acc (1.423e+14), with a peak of their own, or the time was"
        " taken before the device had finished, or fewer FLOPs ran"
    )


@pytest.mark.parametrize("mfu", [0, -0.5, 1.01])
def test_a_share_is_between_nothing_and_all(mfu: float) -> None:
    """Zero included in neither."""
    with pytest.raises(BadInputError, match=rf"^MFU = {mfu} is no share of a peak: give a number above 0, at most 1$"):
        training_time(1, 1, H100, 1, mfu)


def test_numbers_that_make_no_sense_are_refused() -> None:
    """In one line that names them."""
    with pytest.raises(BadInputError, match=r"^devices = 0 must be more than 0$"):
        largest_model(H100, 0, 16)
    with pytest.raises(BadInputError, match=r"^tokens = inf is no number$"):
        training_flops(1, float("inf"))
    with pytest.raises(BadInputError, match=r"^x: y = a/b needs b, which is not given$"):
        reckon("x", [given("a", 1, "", "a")], [Line("y", "a/b", "", "", "")])


def test_a_decimal_is_what_it_is_written_as() -> None:
    """0.1 is a tenth, not the nearest double."""
    assert given("u", 0.1, "1", "share").value == Fraction(1, 10)


def test_accelerators_have_their_sources() -> None:
    """Every one a source, memory and bandwidth, and at least one dense rate; sparse rates are never below dense ones."""
    assert len(catalogue()) > 30
    for device in catalogue().values():
        assert device.source, device.id
        assert device.memory > 0 < device.bandwidth, device.id
        assert device.peaks, device.id
        assert all(p.sparse is None or p.sparse > p.dense for p in device.peaks.values()), device.id


def test_an_unknown_accelerator_or_rate_is_refused() -> None:
    """With what is near, and what there is."""
    with pytest.raises(BadInputError, match=r"^unknown accelerator 'h100-sxn': did you mean 'h100-sxm', or one of a100-sxm-40, "):
        accelerator("h100-sxn")
    with pytest.raises(BadInputError, match=r"^NVIDIA A100 SXM4 80GB has no published rate in 'fp8': it has fp64, "):
        accelerator("a100-sxm-80").peak("fp8")
    with pytest.raises(BadInputError, match=r"^NVIDIA H100 SXM5 80GB has no published rate in fp64 with sparsity$"):
        H100.peak("fp64", sparse=True)

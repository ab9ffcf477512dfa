"""Utilization in Python's own values, short calculations line by line, and the accelerators that they are of."""

from __future__ import annotations

from fractions import Fraction

import pytest

from calc.capacity.utilization import utilization
from calc.errors import BadInputError
from calc.hardware.accelerators import accelerator, catalogue
from calc.symbolic.worked import WorkedStep, worked_calculation, worked_input

H100 = accelerator("h100-sxm")


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
    with pytest.raises(BadInputError, match=r"cannot do 8.7961 PFLOP/s in fp32, nor in any other format: the time was taken before "):
        utilization(2 * 16384 * 32768 * 8192, 0.001, card.peak("fp32"), "fp32", card)

    assert str(caught.value) == (
        "utilization 1.98 is above 1: NVIDIA GeForce RTX 3090 24GB cannot do 70.335 TFLOP/s in fp32, whose dense peak is 35.58 TFLOP/s;"
        " the matmuls ran in bf16 (71.2 TFLOP/s), fp16 (71.2 TFLOP/s) or fp16_fp16acc (142.3 TFLOP/s), with a peak of their own, or the"
        " time was taken before the device had finished, or fewer FLOPs ran"
    )


def test_a_line_that_lacks_a_letter_is_refused() -> None:
    """In one line that names it."""
    with pytest.raises(BadInputError, match=r"^x: y = a/b needs b, which is not given$"):
        worked_calculation("x", [worked_input("a", 1, "", "a")], [WorkedStep("y", "a/b", "", "", "")])


def test_a_decimal_is_what_it_is_written_as() -> None:
    """0.1 is a tenth, not the nearest double."""
    assert worked_input("u", 0.1, "1", "share").value == Fraction(1, 10)


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
    with pytest.raises(BadInputError, match=r"^unknown accelerator 'h100-sxn': did you mean h100-sxm\?$"):
        accelerator("h100-sxn")
    with pytest.raises(BadInputError, match=r"^NVIDIA A100 SXM4 80GB has no published rate in 'fp8': it has fp64, "):
        accelerator("a100-sxm-80").peak("fp8")
    with pytest.raises(BadInputError, match=r"^NVIDIA H100 SXM5 80GB has no published rate in fp64 with sparsity$"):
        H100.peak("fp64", sparse=True)

"""What bounds an operator, and what rows add up to."""

from __future__ import annotations

from fractions import Fraction
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.derive.operators import Work
from calc.errors import BadInputError
from calc.hardware.accelerators import Accelerator, PeakRate, accelerator
from calc.performance.roofline import COMPUTE, LAUNCH, MEMORY, RooflineCeiling, RooflineRow, roofline
from calc.rules.registry import Operator, View

TERA = 10**12


def _device(**peaks: int) -> Accelerator:
    """1 TB/s, and the rates given in TFLOP/s."""
    rates = {dtype: PeakRate(Fraction(rate * TERA), None, "tensor", False) for dtype, rate in peaks.items()}
    return Accelerator("toy", "Toy", "me", "one", 2026, 10**10, TERA, MappingProxyType(rates), None, None, "made up", False, "")


def _work(
    matmul: int = 0, moved: int = 0, *, elementwise: int = 0, dtype: str = "float32", fused: int | None = None, times: int = 1
) -> Work:
    operator = Operator("aten.mm.default", {"index": View((2,), "int64", 2), "self": View((2, 3), dtype, 6)}, ())
    return Work("forward", "here", operator, matmul, elementwise, 0, moved, moved if fused is None else fused, 1, 1, times)


def _row(work: Work, ceiling: RooflineCeiling) -> RooflineRow:
    (row,) = roofline([work], ceiling).rows
    return row


AT_10 = RooflineCeiling(_device(fp32=10), Fraction(0))


@pytest.mark.parametrize(("flops", "bound"), [(9_999, MEMORY), (10_000, COMPUTE), (10_001, COMPUTE)])
def test_an_operator_at_the_ridge_counts_as_compute(flops: int, bound: str) -> None:
    """10 TFLOP/s over 1 TB/s: the ridge is at 10 FLOP per byte, 10,000 FLOP on 1,000 bytes."""
    assert 10 == AT_10.ridge("fp32")
    assert bound == _row(_work(flops, 1000), AT_10).bound


def test_what_takes_less_than_a_launch_is_bound_by_it() -> None:
    """1,000 bytes take 1 ns of 5 µs."""
    row = _row(_work(0, 1000), RooflineCeiling(_device(fp32=10), Fraction(5, 10**6)))

    assert (LAUNCH, Fraction(5, 10**6)) == (row.bound, row.seconds)


def test_products_run_at_the_rate_of_their_tensors() -> None:
    """bf16 tensors at 40 TFLOP/s, four times as fast; the integers of an argument are not multiplied."""
    ceiling = RooflineCeiling(_device(fp32=10, bf16=40), Fraction(0))

    assert [Fraction(1), Fraction(1, 4)] == [_row(_work(10 * TERA, 1, dtype=dtype), ceiling).seconds for dtype in ("float32", "bfloat16")]


def test_an_override_runs_all_products_at_one_rate() -> None:
    """tf32 for products of float32 tensors: 10 TFLOP at 20 TFLOP/s."""
    assert Fraction(1, 2) == _row(_work(10 * TERA, 1), RooflineCeiling(_device(fp32=10, tf32=20), Fraction(0), "tf32")).seconds


def test_other_arithmetic_runs_at_the_vector_rate_beside_the_products() -> None:
    """The longer of the two counts: 30 TFLOP at 10 over 10 at 100. Without a published rate it takes no time."""
    work = _work(10 * TERA, 1, elementwise=30 * TERA, dtype="bfloat16")

    assert Fraction(3) == _row(work, RooflineCeiling(_device(fp32=10, bf16=100), Fraction(0))).seconds
    assert Fraction(1, 10) == _row(work, RooflineCeiling(_device(bf16=100), Fraction(0))).seconds


def test_a_rate_that_is_not_published_is_refused() -> None:
    """A V100 multiplies no bf16; an integer product has no rate here."""
    with pytest.raises(BadInputError, match=r"^NVIDIA V100 .* has no published rate in 'bf16'"):
        roofline([_work(1, 1, dtype="bfloat16")], RooflineCeiling(accelerator("v100-sxm2-32")))
    with pytest.raises(BadInputError, match=r"^no rate is known for matmuls of no tensors \(aten\.mm\.default\): name one with --dtype$"):
        roofline([_work(1, 1, dtype="int8")], AT_10)


def test_rows_add_up_as_often_as_they_run() -> None:
    """3 times 1 s of compute and 2 s of memory: 5 s, of which compute dominates."""
    total = roofline([_work(10 * TERA, 1, times=3), _work(0, 2 * TERA)], AT_10).total

    assert (30 * TERA, 3 + 2 * TERA, 4, 5) == (total.flops, total.bytes, total.launches, total.seconds)
    assert {COMPUTE: 3, MEMORY: 2, LAUNCH: 0} == total.bounds
    assert COMPUTE == total.dominant


def test_the_fused_traffic_bounds_apart() -> None:
    """The same product, eager bound by memory, fused by compute."""
    works = [_work(10_000, 2000, fused=500)]

    assert [MEMORY, COMPUTE] == [roofline(works, AT_10, fused=fused).rows[0].bound for fused in (False, True)]


def test_a_view_is_no_row() -> None:
    """It launches nothing."""
    view = Work("forward", "here", Operator("aten.view.default", {}, ()), 0, 0, 0, 0, 0, 0, 0)

    assert () == roofline([view], AT_10).rows


@given(st.integers(0, 10**18), st.integers(1, 10**15), st.integers(0, 10**18), st.fractions(0, 1))
def test_no_operator_is_faster_than_any_of_its_bounds(matmul: int, moved: int, elementwise: int, launch: Fraction) -> None:
    """The longest time is the bound's, exactly."""
    row = _row(_work(matmul, moved, elementwise=elementwise), RooflineCeiling(_device(fp32=10), launch))

    compute = Fraction(max(matmul, elementwise), 10 * TERA)
    assert row.seconds == max(compute, Fraction(moved, TERA), launch)
    assert row.seconds == {COMPUTE: compute, MEMORY: Fraction(moved, TERA), LAUNCH: launch}[row.bound]

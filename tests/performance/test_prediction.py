"""What is predicted for a synthetic machine follows from its numbers by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.derive.operators import Work
from calc.hardware.calibration import BACKWARD, COPY, FORWARD, LAUNCH, PRODUCT, VIEW, Calibration
from calc.performance.benchmark_proxy import Stand, as_product, by_bytes
from calc.performance.prediction import Tables, predict
from calc.rules.registry import Operator, View
from tests.performance.calibrated import BANDWIDTH, BY_BYTES, FETCHED, GIGA, MACHINE, OVERHEAD, RATE, added, made, product
from tests.performance.calibrated import by_bytes as point_by_bytes

NANO = 1e-9
ADDED = added()


def _view(*shape: int, dtype: str = "float32") -> View:
    return View(shape, dtype, math.prod(shape))


def _work(name: str, args: dict[str, Any], *outputs: View, phase: str = "optimizer", **counts: Any) -> Work:
    mutates = ("self",) if name.split(".")[1].endswith("_") else ()
    numbers = {"matmul": 0, "elementwise": 0, "recompute": 0, "moved": 0, "fused": 0, "launches": 1, "fused_launches": 1, **counts}
    return Work(phase, "here", Operator(name, args, outputs, mutates), **numbers)


def _mm(m: int, k: int, n: int, **more: Any) -> Work:
    args = {"self": _view(m, k), "mat2": _view(k, n)}
    return _work("aten.mm.default", args, _view(m, n), matmul=2 * m * k * n, moved=4 * (m * k + k * n + m * n), **more)


def _seconds(*works: Work) -> float:
    return predict(works, made()).seconds


@pytest.mark.parametrize("sizes", [(100, 100, 100), (300, 40, 777), (1000, 1000, 1000)])
def test_a_product_takes_its_flops_at_the_calibrated_rate(sizes: tuple[int, int, int]) -> None:
    """On and between the points: 2·m·k·n over 100 GFLOP/s."""
    assert 2 * math.prod(sizes) / RATE * NANO == pytest.approx(_seconds(_mm(*sizes)))


def test_a_product_that_moves_much_takes_the_time_of_its_bytes() -> None:
    """A vector times 4,000 x 4,000: 32 MFLOP take 0.32 ms, 64 MB at 10 GB/s 6.4 ms."""
    assert 4 * (4000 * 4000 + 8000) / BANDWIDTH * NANO == pytest.approx(_seconds(_mm(1, 4000, 4000)), rel=1e-3)


def test_no_product_is_faster_than_a_launch() -> None:
    """16 FLOP."""
    assert OVERHEAD[LAUNCH] * NANO == pytest.approx(_seconds(_mm(2, 2, 2)))


def test_an_operator_bound_by_memory_takes_the_time_of_its_bytes() -> None:
    """Between two points, on straight lines in logarithms, and above the last at its bandwidth."""
    for nbytes in (10**6, 5 * 10**6, 2**28):
        gelu = _work("aten.gelu.default", {"self": _view(10)}, _view(10), moved=nbytes)
        assert nbytes / BANDWIDTH * NANO == pytest.approx(_seconds(gelu))


def test_what_the_phase_touches_first_goes_at_the_speed_of_memory_where_no_cache_holds_it() -> None:
    """2^20 bytes at 100 GB/s, 2^26 at 10: a cache of 2^23. A sum of 2^20 bytes, all cold, takes a tenth of its speed, if there are 9 of
    them and not if there are 7; half cold it takes half of that more."""
    points = [p for p in made().points if p.primitive not in (COPY, "aten.add")]
    for what in (COPY, "aten.add"):
        points += [point_by_bytes(what, 2**20, (2**20 // 100,) * 3), point_by_bytes(what, 2**26)]
    calibration = made(iter(points))
    assert 2**23 == pytest.approx(Tables(calibration).cache)

    def seconds(times: int, cold: int) -> float:
        work = _work("aten.add.Tensor", {"self": _view(1)}, _view(1), moved=2**20, cold=cold, times=times)
        return predict((work,), calibration).seconds / times

    assert [2**20 / 10 * NANO, 2**20 / 100 * NANO] == pytest.approx([seconds(9, 2**20), seconds(7, 2**20)], rel=1e-4)
    assert 2**20 * (1 / 2 / 100 + 1 / 2 / 10) * NANO == pytest.approx(seconds(18, 2**19), rel=1e-4)


def test_a_product_waits_for_weights_that_no_cache_holds() -> None:
    """Its time is that of its arithmetic; what its cold bytes take more than cached ones is added."""
    points = [p for p in made().points if p.primitive != COPY]
    points += [point_by_bytes(COPY, 2**20, (2**20 // 100,) * 3), point_by_bytes(COPY, 2**26)]
    works = [_mm(512, 512, 512, times=9, cold=cold) for cold in (0, 2**20)]

    alone, waiting = (predict((work,), made(iter(points))).seconds / 9 for work in works)

    assert 2**20 * (1 / 10 - 1 / 100) * NANO == pytest.approx(waiting - alone, rel=1e-4)


def test_fewer_bytes_than_were_timed_take_the_time_of_the_fewest() -> None:
    """There the program itself is what takes time: 10^4 bytes took 1 µs."""
    assert 1e-6 == pytest.approx(_seconds(_work("aten.gelu.default", {"self": _view(1)}, _view(1), moved=8)))


def test_a_large_new_result_takes_what_fetching_memory_takes() -> None:
    """Above half way between 16 and 64 MiB a further nanosecond a byte; in place, or below, nothing."""
    large, small = _view(FETCHED // 4 + 1), _view(FETCHED // 4 - 1)
    times = [_seconds(_work(name, {"self": x}, x, moved=10**6)) for name, x in (("aten.add.Tensor", large), ("aten.add.Tensor", small))]
    in_place = _seconds(_work("aten.mul_.Tensor", {"self": large}, large, moved=10**6))

    assert [1e-4 + (FETCHED + 4) * NANO, 1e-4] == pytest.approx(times)
    assert 1e-4 == pytest.approx(in_place)


def test_the_program_adds_its_time_where_the_step_has_a_backward() -> None:
    """In the forward what a recorded module takes beyond a launch, in the backward a node, in the optimizer its loop."""
    phases = {phase: _mm(100, 100, 100, phase=phase) for phase in ("forward", "backward", "optimizer")}
    alone = 2 * 100**3 / RATE * NANO

    actual = predict(tuple(phases.values()), made()).phases

    assert {phase: pytest.approx(alone + nanoseconds * NANO) for phase, nanoseconds in ADDED.items()} == actual
    assert alone == pytest.approx(_seconds(phases["forward"]))


def test_on_a_cuda_device_the_program_runs_ahead() -> None:
    """A large product hides all launches; many small ones take what the program takes for them, views included."""
    points = made().points
    cuda = Calibration({**MACHINE, "device": {"kind": "cuda", "name": "Toy"}}, "events", points)
    view = _work("aten.view.default", {"self": _view(10)}, _view(10), launches=0, fused_launches=0, phase="backward", times=100)
    small, large = _mm(2, 2, 2, phase="backward", times=100), _mm(1000, 1000, 1000, phase="backward")
    program = 100 * (OVERHEAD[LAUNCH] + OVERHEAD[VIEW] + 2 * OVERHEAD[BACKWARD]) * NANO

    assert program == pytest.approx(predict((view, small), cuda).seconds)
    assert 2e9 / RATE * NANO + 100 * OVERHEAD[LAUNCH] * NANO == pytest.approx(predict((view, small, large), cuda).seconds)
    assert predict((view, small, large), made()).seconds > predict((view, small, large), cuda).seconds


def _on_cuda(issued: int) -> Calibration:
    """The machine as a CUDA device: every operator but the overheads is issued in so many nanoseconds."""
    points = [p if p.primitive in OVERHEAD else replace(p, program=(issued,)) for p in made().points]
    return Calibration({**MACHINE, "device": {"kind": "cuda", "name": "Toy"}}, "events", tuple(points))


def test_the_program_takes_for_an_operator_what_it_took_to_issue_its_proxy() -> None:
    """Many small products: 7 µs each, and what the backward adds."""
    small = _mm(2, 2, 2, phase="backward", times=100)

    assert 100 * (7000 + OVERHEAD[BACKWARD]) * NANO == pytest.approx(predict((small,), _on_cuda(7000)).seconds)


def test_the_program_begins_a_phase_while_the_device_works_on_the_one_before() -> None:
    """The forward keeps the device busy for longer than the program needs to issue it: by so much the backward is issued ahead."""
    forward, backward = _mm(1000, 1000, 1000, phase="forward"), _mm(2, 2, 2, phase="backward", times=5000)
    device = 2e9 / RATE * NANO
    issued = (7000 + OVERHEAD[FORWARD] - OVERHEAD[LAUNCH]) * NANO, 5000 * (7000 + OVERHEAD[BACKWARD]) * NANO

    prediction = predict((forward, backward), _on_cuda(7000))

    assert {"forward": pytest.approx(device), "backward": pytest.approx(sum(issued) - device)} == prediction.phases


def test_a_view_takes_the_time_of_a_view() -> None:
    """And no byte moves."""
    view = _work("aten.view.default", {"self": _view(10)}, _view(10), launches=0, fused_launches=0)

    assert OVERHEAD[VIEW] * NANO == pytest.approx(_seconds(view))


def test_reading_a_step_count_runs_no_kernel() -> None:
    """It lies in the program's memory: the program takes what a view takes."""
    count = _work("aten._local_scalar_dense.default", {"self": _view(1)}, _view(1), moved=8, phase="optimizer")

    assert OVERHEAD[VIEW] * NANO == pytest.approx(_seconds(count))


def test_alike_operators_are_timed_as_often_as_they_run() -> None:
    """Twelve layers."""
    assert 12 * _seconds(_mm(100, 100, 100)) == pytest.approx(_seconds(_mm(100, 100, 100, times=12)))


def test_model_flops_leave_out_what_runs_again_and_the_optimizer() -> None:
    """Of 3 products of 2·10^6 FLOP one repeats half of itself and one is the optimizer's."""
    works = (_mm(100, 100, 100, phase="forward"), _mm(100, 100, 100, phase="backward", recompute=10**6), _mm(100, 100, 100))

    prediction = predict(works, made())

    assert (6 * 10**6, 3 * 10**6, "float32") == (prediction.product_flops, prediction.model_flops, prediction.product_dtype)


def test_an_operator_that_nothing_stands_for_is_named_with_its_share() -> None:
    """A product of no known kind goes as a cube, an unknown pointwise one as a sum; together they are all of the time."""
    strange = _work("aten.mv.default", {"self": _view(100, 100), "vec": _view(100)}, _view(100), matmul=2 * 10**6)
    unheard = _work("aten.frobnicate.default", {"self": _view(100)}, _view(100), moved=4 * 10**5)

    proxies = predict((strange, unheard, _work("aten.gelu.default", {"self": _view(10)}, _view(10), moved=8)), made()).inexact_proxies

    assert ["aten.frobnicate.default", "aten.mv.default"] == list(proxies)
    assert 0.9 < sum(proxies.values()) < 1


def test_a_machine_that_is_its_own_model_has_no_band() -> None:
    """Every point is told exactly by the others, and no repetition differs."""
    prediction = predict((_mm(300, 40, 777), _work("aten.gelu.default", {"self": _view(10)}, _view(10), moved=10**7)), made())

    assert 0 == pytest.approx(prediction.error, abs=1e-6 * prediction.seconds)  # nanoseconds are whole
    assert (prediction.seconds, prediction.seconds) == pytest.approx(prediction.band, rel=1e-5)


def test_repetitions_that_differ_make_the_band_wider() -> None:
    """Quartiles 25 % apart around every product: so wide is the band, on either side."""
    points = [
        product(p.primitive, p.flops, tuple(p.flops // RATE * share // 8 for share in (7, 8, 9)), **p.sizes)
        if p.primitive == PRODUCT
        else p
        for p in made().points
    ]
    prediction = predict((_mm(300, 300, 300),), made(iter(points)))

    assert 1 / 8 == pytest.approx(prediction.error / prediction.seconds, rel=0.01)


def test_a_planted_point_that_the_others_do_not_tell_widens_the_band_near_it() -> None:
    """One product at a tenth of the rate: near it the band opens, far from it it does not."""
    points = [
        product(p.primitive, p.flops, (p.flops // RATE * 10,) * 3, **p.sizes) if dict(p.sizes) == {"m": 10, "k": 10, "n": 10} else p
        for p in made().points
    ]
    tables = Tables(made(iter(points)))

    near, far = (tables.rate(Stand(PRODUCT, "float32", {"m": side, "k": side, "n": side}))[1] for side in (12, 1000))

    assert far == pytest.approx(0, abs=1e-9)
    assert near > 0.1


def test_a_dtype_that_was_not_calibrated_goes_by_float32() -> None:
    """The same rate, the same bytes."""
    tables = Tables(made())
    sizes = {"m": 100, "k": 100, "n": 100}

    assert tables.rate(Stand(PRODUCT, "bfloat16", sizes)) == tables.rate(Stand(PRODUCT, "float32", sizes))


@pytest.mark.parametrize(
    ("name", "what", "exact"),
    [
        ("aten.gelu.default", "aten.gelu", True),
        ("aten.gelu_.default", "aten.gelu", True),
        ("aten.add.Tensor", "aten.add", True),
        ("aten.mul.Tensor", "aten.add", True),
        ("aten._foreach_mul_.Scalar", "aten.mul_", True),
        ("aten.var_mean.correction", "aten.sum", True),
        ("aten.odd_.default", "aten.mul_", False),
        ("aten.odd.default", "aten.add", False),
    ],
)
def test_a_primitive_stands_for_what_does_the_same_to_memory(name: str, what: str, exact: bool) -> None:
    """Itself before those like it; what nobody listed by whether it writes in place."""
    operator = _work(name, {"self": _view(10)}, _view(10)).operator

    actual = by_bytes(operator, 80, frozenset(BY_BYTES))

    assert (what, exact) == (actual.primitive, actual.exact)


def test_a_convolution_is_a_product_of_patches() -> None:
    """2 images of 8 channels, 16 out, 5 x 5 kernels on 10 x 10 positions: m = 200, k = 200, n = 16."""
    args = {"input": _view(2, 8, 10, 10), "weight": _view(16, 8, 5, 5), "transposed": False}
    work = _work("aten.convolution.default", args, _view(2, 16, 10, 10), matmul=1)

    assert {"m": 2 * 10 * 10, "k": 8 * 5 * 5, "n": 16, "side": 5} == as_product(work.operator, 1).sizes


@settings(max_examples=30)
@given(st.integers(1, 10**6), st.integers(1, 10**4), st.integers(1, 10**4))
def test_a_longer_product_never_takes_less_time_where_the_rate_is_one(m: int, k: int, n: int) -> None:
    """Twice the rows, at least the time."""
    assert _seconds(_mm(m, k, n)) <= _seconds(_mm(2 * m, k, n)) * (1 + 1e-9)


def test_the_made_up_machine_is_what_it_says() -> None:
    """10 GB/s of everything that memory bounds."""
    assert GIGA * BANDWIDTH == pytest.approx(float(point_by_bytes("aten.add", 10**6).bandwidth))

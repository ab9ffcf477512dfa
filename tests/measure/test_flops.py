"""Matmul FLOPs by torch's counter, and the hazards that must not pass as zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from calc.measure import Measurement, Reading, measure
from calc.options import Options
from calc.spec import Spec
from tests.measure import tiny
from tests.opaque import NAME, twice


def flops(spec: Spec, attention: str = "math") -> Measurement:
    return measure(spec, {}, options=Options(optimizer="sgd", attention=attention))


def values(measurement: Measurement) -> tuple[int | None, int | None, int | None]:
    forward, backward, optimizer = (measurement[f"flops.{phase}.matmul"].value for phase in ("forward", "backward", "optimizer"))
    return forward, backward, optimizer


def test_a_linear_layer_whose_input_needs_no_gradient() -> None:
    """2*3*5*7 = 210 forward, as many for the weight's gradient, none for the input's."""
    assert (210, 210, 0) == values(flops(tiny.linear()))


def test_a_second_layer_needs_the_gradient_of_its_input() -> None:
    """5 -> 7 -> 11: forward 2*3*(35 + 77) = 672; backward 210 for the first, twice 462 for the second."""
    spec = tiny.summed(build=lambda s: nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 11)))

    assert (672, 210 + 2 * 462, 0) == values(flops(spec))


# Attention with B=2, T=7, d=12, V=17: projections 2*14*12*(36 + 12 + 17) = 21840, scores and values 2 * 2*2*7*7*12 = 4704.
ATTENTION = (21840 + 4704, 2 * (21840 + 4704), 0)


def test_math_attention_is_two_products_forward_and_four_backward() -> None:
    """The embedding's row of zeros costs nothing; every projection has an input that needs a gradient."""
    measurement = flops(tiny.attention(), "math")

    assert ATTENTION == values(measurement)
    assert not measurement["flops.forward.matmul"].proxy


def test_fused_attention_is_counted_on_the_math_backend_and_says_so() -> None:
    """The counter alone would give 0 for the kernel; the reading is marked as taken elsewhere, with the kernel's name."""
    measurement = flops(tiny.attention(), "fused")
    reading = measurement["flops.forward.matmul"]

    assert ATTENTION == values(measurement)
    assert "aten._scaled_dot_product_flash_attention_for_cpu.default" in measurement.operators
    assert reading.proxy
    assert reading.instrument.endswith("on the math attention backend")
    assert "_scaled_dot_product_flash_attention_for_cpu" in reading.because
    assert not measurement["flops.optimizer.matmul"].proxy


def test_attention_whose_kernel_the_module_chooses_is_counted_on_the_math_backend() -> None:
    """As libraries allow some kernels around each call, whatever was chosen outside of them."""

    def loss(module: nn.Module, ids: Tensor) -> Tensor:
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            return F.cross_entropy(module(ids).flatten(0, 1), ids.flatten())

    assert ATTENTION == values(flops(replace(tiny.attention(), loss=loss), "fused"))


def test_without_fused_attention_the_option_changes_nothing() -> None:
    """A model without attention gives a plain reading under both options."""
    assert not flops(tiny.linear(), "fused")["flops.forward.matmul"].proxy


def conv(groups: int, *, first: bool, transposed: bool = False) -> Spec:
    """A convolution of width 5 from 6 to 6 channels over 11 positions, batch 2; behind another layer unless it is first."""

    def build(s: object) -> nn.Module:
        layer = (nn.ConvTranspose1d if transposed else nn.Conv1d)(6, 6, 5, groups=groups, bias=False)
        return layer if first else nn.Sequential(nn.LayerNorm(11), layer)

    return tiny.summed(build=build, inputs=lambda s: (torch.randn(2, 6, 11),))


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_convolution_s_backward_is_twice_its_forward_whatever_the_groups(groups: int, transposed: bool) -> None:
    """Each of 7 output positions (11 input positions when transposed) times 5 * 6 * 6/groups weights, batch 2."""
    positions = 11 if transposed else 7
    forward = 2 * 2 * positions * 5 * 6 * (6 // groups)

    assert (forward, 2 * forward, 0) == values(flops(conv(groups, first=False, transposed=transposed)))
    assert (forward, forward, 0) == values(flops(conv(groups, first=True, transposed=transposed)))


def test_torch_s_own_count_of_a_depthwise_backward_is_too_large() -> None:
    """Why the correction exists: the counter charges the weight's gradient for all 6 x 6 channel pairs."""
    x = torch.randn(2, 6, 11)
    y = nn.Conv1d(6, 6, 5, groups=6, bias=False)(x)
    with FlopCounterMode(display=False) as counter:
        y.sum().backward()

    assert 6 * (2 * 2 * 7 * 5 * 6) == counter.get_total_flops()


@pytest.mark.parametrize(
    ("loss", "shapes", "forward"),
    [
        (lambda w, x: w @ x, [(5,)], 2 * 5),  # dot
        (lambda w, x: (x @ w).sum(), [(3, 5)], 2 * 3 * 5),  # matrix times vector
        (lambda w, x, b: torch.addmv(b, x, w).sum(), [(3, 5), (3,)], 2 * 3 * 5),
    ],
)
def test_products_with_a_vector_are_counted_though_the_counter_knows_none(
    loss: Callable[..., Tensor], shapes: list[tuple[int, ...]], forward: int
) -> None:
    """Alone, torch's counter gives 0 for dot, mv and addmv."""
    assert forward == values(flops(tiny.function(loss, *shapes)))[0]


def _refused(measurement: Measurement, phase: str, operator: str) -> None:
    reading: Reading = measurement[f"flops.{phase}.matmul"]
    assert reading.value is None
    assert operator in reading.because


def test_an_lstm_is_measured_cell_by_cell() -> None:
    """On CPU it is one library call that hides its products: 4 gates of 7 from 5 inputs and 7 states, 2 rows, 3 steps."""
    spec = tiny.summed(
        build=lambda s: nn.LSTM(5, 7, batch_first=True), inputs=lambda s: (torch.randn(2, 3, 5),), loss=lambda m, x: m(x)[0].sum()
    )
    measurement = flops(spec)

    assert 3 * 2 * 2 * (4 * 7) * (5 + 7) == measurement["flops.forward.matmul"].value


def test_products_by_expert_are_counted_though_the_counter_knows_none() -> None:
    """Each of 8 rows meets one 16 x 24 matrix: 2*8*16*24 forward, and as many for the gradient of the matrices."""

    def loss(w: Tensor, x: Tensor) -> Tensor:
        offsets = torch.tensor([3, 8], dtype=torch.int32)
        return torch._grouped_mm(x.bfloat16(), w.bfloat16(), offsets).square().float().sum()

    spec = tiny.function(loss, (8, 16), weight=(2, 16, 24))

    assert (2 * 8 * 16 * 24, 2 * 8 * 16 * 24, 0) == values(flops(spec))


@pytest.mark.parametrize(
    ("a", "b", "offsets", "products"),
    [
        pytest.param((8, 16), (2, 16, 24), [3, 8], 8 * 16 * 24, id="each row meets the matrix of its group"),
        pytest.param((24, 16), (2, 16, 8), [3, 24], 24 * 16 * 8, id="however many there are"),
        pytest.param((16, 8), (8, 24), [3, 8], 16 * 8 * 24, id="groups along the contracted axis"),
        pytest.param((2, 16, 8), (8, 24), [3, 24], 16 * 8 * 24, id="each column meets the matrix of its group"),
        pytest.param((2, 8, 16), (2, 16, 24), None, 2 * 8 * 16 * 24, id="a batch of products"),
    ],
)
def test_each_kind_of_grouped_product(a: tuple[int, ...], b: tuple[int, ...], offsets: list[int] | None, products: int) -> None:
    """2 FLOP for each multiply-add that takes place, whatever the groups' sizes."""

    def loss(w: Tensor, x: Tensor) -> Tensor:
        ends = torch.tensor(offsets, dtype=torch.int32) if offsets else None
        return torch._grouped_mm(w.bfloat16(), x.bfloat16(), ends).float().sum() + w.sum()

    spec = tiny.function(lambda w, x: loss(w.detach(), x) + w.sum(), b, weight=a)

    assert 2 * products == values(flops(spec))[0]


def test_an_operator_of_another_library_is_not_measured_rather_than_zero() -> None:
    """Nothing is known of what it does inside."""
    _refused(flops(tiny.function(lambda w, _: twice(w).sum(), (3,))), "forward", NAME)


def test_interpolation_and_pointwise_cells_are_no_matmul() -> None:
    """Names such as upsample_linear1d or gelu do not make a reading doubtful."""
    spec = tiny.function(lambda w, x: F.gelu(F.interpolate(w * x, 7, mode="linear")).sum(), (2, 3, 5))

    assert (0, 0, 0) == values(flops(spec))

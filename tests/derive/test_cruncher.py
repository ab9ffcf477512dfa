"""The lecture's Cruncher at B = 2, D = 4, two layers: small enough to count every number by hand."""

from __future__ import annotations

import pytest

from calc.derive.result import Derivation
from tests.derive.conftest import Derived

SIZES = {"B": 2, "D": 4, "L": 2}


@pytest.fixture
def lectures(derived: Derived) -> Derivation:
    """With the lecture's own AdaGrad."""
    return derived("cruncher", "spec")


@pytest.fixture
def torchs(derived: Derived) -> Derivation:
    """With ``torch.optim.Adagrad``."""
    return derived("cruncher", "adagrad")


def at(result: Derivation, quantity: str) -> int:
    return result[quantity].at(**SIZES)


def test_parameters_gradients_and_state_are_thirty_six_numbers_each(lectures: Derivation) -> None:
    """Two layers of 4·4 and a last one of 4: 36; in fp32, 144 bytes."""
    assert 2 * 4 * 4 + 4 == 36 == at(lectures, "parameters")
    assert 4 * 36 == 144 == at(lectures, "gradients.bytes") == at(lectures, "optimizer_state.bytes")


def test_torchs_adagrad_keeps_a_counter_for_each_weight_as_well(torchs: Derivation) -> None:
    """36 numbers and three counters: 36·4 + 3·4 = 156 bytes."""
    assert 36 * 4 + 3 * 4 == 156 == at(torchs, "optimizer_state.bytes")


def test_twenty_eight_numbers_are_saved_for_the_backward(lectures: Derivation) -> None:
    """x, h1, h2 of 2·4, the prediction and y of 2 each: 28 numbers, 112 bytes. The loss itself is not saved."""
    assert 4 * (3 * 2 * 4 + 2 + 2) == 112 == at(lectures, "activations.bytes")


def test_the_forward_multiplies_and_adds(lectures: Derivation) -> None:
    """Two products of 2·2·4·4 = 64 and one of 2·2·4 = 16."""
    assert 2 * 64 + 16 == 144 == at(lectures, "flops.forward.matmul")


def test_the_backward_executes_no_gradient_of_the_input(lectures: Derivation) -> None:
    """Weights' gradients 64 + 64 + 16, inputs' gradients of the last two alone, 16 + 64: 224, and 368 in all."""
    assert 64 + 64 + 16 + 16 + 64 == 224 == at(lectures, "flops.backward.matmul")
    assert 144 + 224 == 368 == at(lectures, "flops.forward.matmul") + at(lectures, "flops.backward.matmul")


def test_the_squared_error_is_three_operations_a_number_each_way(lectures: Derivation) -> None:
    """Difference and square of 2 numbers, their sum of 1 addition and the division by 2: 2 + 2 + 1 + 1."""
    assert 2 + 2 + 1 + 1 == 6 == at(lectures, "flops.forward.elementwise")


def test_the_peak_is_one_of_the_candidates_listed(lectures: Derivation) -> None:
    """In the second step 36 weights and 36 squares live throughout: at least 2·144, with the inputs of 8 + 2 numbers 328 bytes."""
    moments = [c.value for c in lectures["memory.peak"].candidates]

    assert len(moments) >= 2
    assert at(lectures, "memory.peak") > 2 * 144 + 4 * (8 + 2)


def test_a_checkpoint_holds_weights_state_and_the_iteration(lectures: Derivation) -> None:
    """144 + 144 + 8."""
    assert 144 + 144 + 8 == 296 == at(lectures, "checkpoint.bytes")


def test_the_two_optimizers_differ_in_nothing_but_themselves(lectures: Derivation, torchs: Derivation) -> None:
    """Forward and backward are the same step."""
    for quantity in ("parameters", "activations.bytes", "flops.forward.total", "flops.backward.total", "bytes_moved.backward"):
        assert lectures[quantity].text == torchs[quantity].text

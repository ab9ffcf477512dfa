"""In which format fp32 matrices are multiplied, while a step is timed."""

from __future__ import annotations

import pytest
import torch

from calc.errors import BadInputError
from calc.hardware.times import How, Repeat
from calc.measure.matmul import matmul_dtype, single_precision
from calc.measure.step_time import time_of_steps
from calc.measure.training import training
from calc.options import Options
from tests.measure import tiny


def _set() -> tuple[str, bool]:
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("tf32", [True, False])
def test_products_and_convolutions_are_set_alike_and_put_back(tf32: bool) -> None:
    """Torch convolves in tf32 by default and multiplies in fp32, which no peak describes; also after an error all is as it was."""
    before = _set()
    inside = []

    def fails() -> None:
        with single_precision(tf32, "cuda"):
            inside.append(_set())
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert [("high", True) if tf32 else ("highest", False)] == inside
    assert before == _set()


def test_tf32_is_refused_where_there_are_no_tensor_cores() -> None:
    said = r"^tf32 is a format of CUDA devices, and not of cpu: leave it out$"

    with pytest.raises(BadInputError, match=said), single_precision(True, "cpu"):
        pass


def test_the_format_is_that_of_the_recipe_s_products() -> None:
    """tf32 is a way to multiply fp32, and no other."""
    assert ["fp32", "tf32"] == [matmul_dtype("fp32", tf32) for tf32 in (False, True)]
    assert ["bf16", "bf16", "fp16"] == [matmul_dtype(name, True) for name in ("bf16-autocast", "bf16-master", "fp16-autocast")]


@pytest.mark.slow
def test_a_compiled_step_is_timed_as_one_and_its_modules_are_not_told_apart() -> None:
    """And what was compiled for it is forgotten."""
    spec = tiny.linear()
    with training(spec, spec.sizes(), Options(), "cpu") as run:
        actual = time_of_steps(run, How(Repeat(2, 3, 0), compiled=True))

    assert actual.compiled
    assert ["forward", "backward", "optimizer"] == list(actual.times.parts)
    assert actual.to_json()["modules"] is None

"""Whose an error is: the module's own, at real sizes, or one that symbolic tracing alone brings about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.errors import NapkinError, SizesError
from calc.options import Options
from calc.spec import Spec
from calc.trace import trace_at
from tests.trace.refused import assert_names_line, refusal


class Scored(nn.Module):
    def __init__(self, n: Any, of: Callable[[Tensor, Any], Tensor]) -> None:
        super().__init__()
        self.score, self.width, self.of = nn.Linear(n.d, n.C), n.C, of

    def forward(self, x: Tensor) -> Tensor:
        return self.of(self.score(x), self.width)


def spec(of: Callable[[Tensor, Any], Tensor], **check_at: int) -> Spec:
    return Spec(
        name="scored",
        dims={"B": 6, "d": 12, "C": 4},
        build=lambda n: Scored(n, of),
        inputs=lambda n: (torch.randn(n.B, n.d),),
        loss=lambda model, x: model(x).sum(),
        check_at=check_at,
    )


def test_an_error_of_tracing_alone_is_said_to_be_one() -> None:
    """The values that NumPy reads exist in a real run; the line, and what to do, are named."""

    def sorted_by_numpy(y: Tensor, width: Any) -> Tensor:
        return y[torch.from_numpy(y.detach()[:, 0].numpy().argsort())]

    error = refusal(spec(sorted_by_numpy))

    assert isinstance(error, SizesError)
    assert_names_line(error, sorted_by_numpy)
    assert "(under symbolic tracing; the module itself runs at B=6, d=12, C=4); with plain numbers for sizes too, so it needs" in str(error)


def test_an_error_of_the_modules_own_keeps_its_message() -> None:
    """It is raised without tracing as well, so the message does not mention tracing."""

    def narrow(y: Tensor, width: Any) -> Tensor:
        assert width < 3, f"too many classes: {width}"
        return y

    error = refusal(spec(narrow))

    assert_names_line(error, narrow)
    assert str(error).endswith(": too many classes: 4")


def test_an_error_under_autocast_alone_is_the_modules_own() -> None:
    """torch multiplies no bf16 result by an fp32 tensor with `tensordot`; in fp32 the same module runs."""

    def by_tensordot(y: Tensor, width: Any) -> Tensor:
        return torch.tensordot(y, torch.ones(width, 3), 1)

    error = refusal(spec(by_tensordot), precision="bf16-autocast")

    assert str(error).endswith("1): both inputs should have same dtype")


def test_a_large_module_is_run_at_its_sizes_for_checks() -> None:
    """Its own sizes would take a while: 10⁵ features to 10³ classes."""

    def by_numpy(y: Tensor, width: Any) -> Tensor:
        return y * float(y.detach().numpy().mean())

    large = replace(spec(by_numpy, B=2, d=3, C=5), dims={"B": 6, "d": 10**5, "C": 10**3})
    error = refusal(large)

    assert "(under symbolic tracing; the module itself runs at B=2, d=3, C=5)" in str(error)


def test_a_size_that_becomes_a_number_is_not_blamed_on_the_model() -> None:
    """A text of a size is a number only in a real run; the reason says what raised, and under what."""
    import calc

    def spelled(y: Tensor, width: Any) -> Tensor:
        if not str(width).isdigit():
            raise ValueError(f"no number: {width}")
        return y

    derivation = calc.derive(spec(spelled), cache=False, optimizer="sgd")

    [said] = [a.because for a in derivation.assumptions if a.expr == "C = 4 throughout"]
    assert said.startswith("specialized, not symbolic: under symbolic tracing it raised ValueError at test_blame.py:")


def test_a_long_line_of_source_is_cut_with_an_ellipsis() -> None:
    """A reader sees that more follows."""

    def narrow_with_a_long_message(y: Tensor, width: Any) -> Tensor:
        assert width < 3, f"there are more classes than any model of this kind has ever been trained to tell apart, which is two: {width}"
        return y

    error = str(refusal(spec(narrow_with_a_long_message)))

    assert ": assert width < 3, f\"there are more classes than any model of this kind has ever …: there are more" in error


def test_a_step_that_fails_at_a_batch_of_one_alone_says_at_which_it_runs() -> None:
    """The statistics of a batch norm over rows need two of them: torch's own message, and the way out."""
    normed = replace(spec(lambda y, _: nn.functional.batch_norm(y, None, None, training=True)), dims={"B": 1, "d": 12, "C": 4})
    message = str(refusal(normed, optimizer="sgd"))

    assert "Expected more than 1 value per channel when training, got input size" in message
    assert message.endswith("; with B = 2 the step runs")


_APPLIED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "matrix": lambda x, w: F.linear(x, w.repeat(4, 1)),
    "matrix with bias": lambda x, w: F.linear(x, w.repeat(4, 1), w.repeat(4)[:4]),
    "vector": torch.mv,
    "layer norm": lambda x, w: F.layer_norm(x, (4,), w, w),
    "group norm": lambda x, w: F.group_norm(x, 2, w, w),
    "batch norm": lambda x, w: F.batch_norm(x, None, None, w, w, training=True),
}
_DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


@pytest.mark.parametrize("applied", _APPLIED)
def test_a_step_that_torch_refuses_for_its_dtypes_is_refused(applied: str) -> None:
    """Torch's fake kernels take weights of any dtype: a step that no one can run would have numbers."""
    x, weight = torch.rand(6, 4), torch.rand(4)

    def runs(at: torch.dtype, of: torch.dtype) -> bool:
        try:
            _APPLIED[applied](x.to(at), weight.to(of))
        except RuntimeError:
            return False
        return True

    def is_derived(at: torch.dtype, of: torch.dtype) -> bool:
        cast = spec(lambda y, _: _APPLIED[applied](y.to(at), torch.rand(4).to(of)).float())
        try:
            trace_at(cast, {}, {"B": 6, "d": 12, "C": 4}, {}, Options(optimizer="sgd", mode="infer"))
        except NapkinError:
            return False
        return True

    pairs = [(at, of) for at in _DTYPES for of in _DTYPES]

    assert [runs(*pair) for pair in pairs] == [is_derived(*pair) for pair in pairs]
    assert {runs(*pair) for pair in pairs} == {True, False}

"""Steps by a CUDA device's kernels: their operators against those that an H100 ran (torch 2.11), and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.errors import MeasurementError, SpecError
from calc.options import Options
from calc.trace import trace_at
from calc.trace.kernels import on_cuda
from calc.trace.kernels.on_cuda import POLICIES, autocast_operators

RECORDED = Path(__file__).with_name("recorded")
GPT2 = {"B": 4, "T": 512, "L": 2}
LLAMA = {"d": 512, "h": 8, "g": 2, "f": 1024, "L": 2, "V": 3200, "B": 2, "T": 256}
STEPS: Mapping[str, tuple[str, Mapping[str, int], str]] = {
    "gpt2-bf16-autocast": ("gpt2", GPT2, "bf16-autocast"),
    "llama-bf16-autocast": ("llama3-8b", LLAMA, "bf16-autocast"),
    "llama-bf16-master": ("llama3-8b", LLAMA, "bf16-master"),
    "llama-fp32": ("llama3-8b", LLAMA, "fp32"),
}
_UNTRACED = ("aten.detach.default", "aten.lift_fresh.default")  # neither computes nor allocates
_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_cudnn_attention"  # one kernel each, by another name


def _operators(model: str, sizes: Mapping[str, int], precision: str, kernels: str = "cuda") -> list[str]:
    """Each operator of a later step with the dtypes of its results."""
    spec = calc.load(model)
    options = Options(precision=precision, implementation="foreach", kernels=kernels)
    trace = trace_at(spec, {}, spec.sizes(sizes), {}, options)
    ran = [op for op in trace.ops if op.step == 2 and op.name not in _UNTRACED]
    return [_plain(" ".join((op.name, *(t.dtype for t in op.outputs)))) for op in ran]


def _recorded(name: str) -> list[str]:
    lines = (RECORDED / f"h100-{name}.txt").read_text(encoding="utf-8").splitlines()
    return [_plain(line.replace(_ATTENTION[1], _ATTENTION[0])) for line in lines]


def _plain(line: str) -> str:
    """cuDNN's attention also returns two numbers that its backward draws dropout from. Both ways to view a new tensor are one."""
    name, *dtypes = line.replace("aten._unsafe_view.", "aten.view.").split()
    kept = dtypes[:2] if name.startswith(f"aten.{_ATTENTION[0]}.") else dtypes
    return " ".join((name, *kept))


@pytest.mark.parametrize("name", STEPS)
def test_a_step_runs_the_operators_that_an_h100_ran(name: str) -> None:
    """In the same order, with results of the same dtypes."""
    assert _recorded(name) == _operators(*STEPS[name])


@pytest.mark.parametrize("name", STEPS)
def test_a_cpu_runs_others(name: str) -> None:
    """So that the comparison above can fail."""
    assert _recorded(name) != _operators(*STEPS[name], kernels="cpu")


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="another torch has other operators: those not stated are refused")
def test_the_policy_of_every_operator_that_autocast_casts_on_cuda_is_stated() -> None:
    """Of the pinned torch."""
    assert POLICIES == autocast_operators("AutocastCUDA")


def test_an_operator_whose_policy_is_not_stated_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a newer torch may have one: layer norm is taken off the list."""
    monkeypatch.setattr(on_cuda, "POLICIES", POLICIES - {"layer_norm"})

    with pytest.raises(SpecError, match="what autocast does with layer_norm is not stated: derive the step with kernels=cpu"):
        _operators("gpt2", {"B": 1, "T": 2, "L": 1, "d": 4, "h": 2, "V": 3, "f": 4, "C": 4}, "bf16-autocast")


def _spec(module: Any, inputs: Any) -> calc.Spec:
    dims = {"B": calc.Dim(3, "batch"), "D": calc.Dim(8, "width")}
    return calc.Spec("m", dims, module, inputs, lambda m, x: m(x).float().square().mean())


class Dropped(nn.Module):
    """A linear layer and dropout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.25)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.dropout(self.layer(x))
        return y


def test_dropout_is_one_kernel_with_a_mask_of_a_byte_an_element() -> None:
    """On a CPU the mask has the dtype of the input."""
    spec = _spec(lambda s: Dropped(s.D), lambda s: (torch.randn(s.B, s.D),))
    saved = {kernels: calc.derive(spec, kernels=kernels)["activations.bytes"].value for kernels in ("cpu", "cuda")}

    assert 3 * 3 * 8 == saved["cpu"] - saved["cuda"]  # 3 of 4 bytes of 3·8 elements


class Attending(nn.Module):
    """Attention with dropout of values that are half as wide as queries and keys, or as wide."""

    def __init__(self, width: int, of_values: int) -> None:
        super().__init__()
        self.q, self.v = nn.Linear(width, width), nn.Linear(width, of_values)

    def forward(self, x: Tensor) -> Tensor:
        q, v = self.q(x)[:, None], self.v(x)[:, None]
        return nn.functional.scaled_dot_product_attention(q, q, v, dropout_p=0.5)


def _attending(narrow: bool) -> calc.Spec:
    return _spec(lambda s: Attending(s.D, 4 if narrow else s.D), lambda s: (torch.randn(s.B, 5, s.D),))


def _ran(spec: calc.Spec, **options: str) -> set[str]:
    return {row.operator for row in calc.derive(spec, kernels="cuda", **options).coverage}


def test_a_fused_kernel_draws_dropout_inside_and_the_math_kernel_in_one_operator() -> None:
    """A CPU has no fused kernel with dropout."""
    assert {name for name in _ran(_attending(narrow=False)) if "attention" in name or "dropout" in name} == {
        "aten._scaled_dot_product_flash_attention_for_cpu.default",
        "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
    }
    assert {"aten.native_dropout.default", "aten.native_dropout_backward.default"} <= _ran(_attending(narrow=False), attention="math")


def test_a_fused_kernel_that_a_cpu_lacks_is_refused() -> None:
    """Of values narrower than queries, which cuDNN and memory-efficient attention take."""
    with pytest.raises(SpecError, match=r"a CPU has none to derive it by .*: derive the step with attention=math, or with kernels=cpu"):
        calc.derive(_attending(narrow=True), kernels="cuda")


def test_a_recurrent_layer_is_refused() -> None:
    """cuDNN runs all its steps in one kernel."""
    spec = _spec(lambda s: _Recurrent(s.D), lambda s: (torch.randn(s.B, 5, s.D),))

    with pytest.raises(SpecError, match=r"a CUDA device runs lstm \(LSTM\) in one kernel of cuDNN, which has no rule: .* kernels=cpu"):
        calc.derive(spec, kernels="cuda")


class _Recurrent(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.lstm(x)[0]
        return y


@pytest.mark.parametrize(
    ("dtype", "heads", "width", "masked", "fused"),
    [
        (torch.float32, (8, 8), 64, False, True),
        (torch.float32, (8, 8), 64, True, True),
        (torch.float32, (8, 2), 64, False, False),
        (torch.float32, (8, 8), 66, False, False),
        (torch.bfloat16, (8, 2), 64, False, True),
        (torch.bfloat16, (8, 2), 64, True, True),
        (torch.bfloat16, (8, 2), 256, True, False),
        (torch.bfloat16, (8, 2), 256, False, True),
        (torch.float64, (8, 8), 64, False, False),
    ],
)
def test_attention_has_a_fused_kernel_where_torch_has_one(
    dtype: torch.dtype, heads: tuple[int, int], width: int, masked: bool, fused: bool
) -> None:
    """FlashAttention takes no mask, memory-efficient attention no fewer key heads, cuDNN's no wide heads; fp32 has only the second."""
    query, key = (torch.empty(2, n, 16, width, dtype=dtype) for n in heads)

    assert fused == on_cuda._fused_on_cuda(query, key, key, torch.empty(16, 16) if masked else None)


@pytest.mark.parametrize(
    ("model", "options", "noted"),
    [
        ("llama3-8b", {}, True),
        ("llama3-8b", {"precision": "bf16-autocast"}, False),
        ("llama3-8b", {"kernels": "cuda"}, False),
        ("gpt2", {}, False),
    ],
)
def test_a_step_whose_attention_has_no_fused_kernel_on_cuda_says_so(model: str, options: dict[str, str], noted: bool) -> None:
    """With a CPU's kernels, in fp32 and with fewer key/value heads."""
    spec, chosen = calc.load(model), Options(**options)
    trace = trace_at(spec, {}, spec.sizes({"B": 2, "T": 16, "L": 1}), {}, chosen)

    notes = on_cuda.notes_on_attention(trace, chosen)

    assert noted == any("On a CUDA device torch has no fused kernel for attention" in note for note in notes)


def test_a_cpu_does_not_check_a_cuda_step() -> None:
    """Its kernels are others."""
    derivation = calc.derive(calc.load("two-layer"), kernels="cuda")

    with pytest.raises(MeasurementError, match="does not run on a CPU: napkin measure compares it on a GPU"):
        calc.check(derivation)

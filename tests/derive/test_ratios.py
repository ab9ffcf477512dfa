"""Products of well-known models, forward and backward, against counts made by hand, and what the backward costs beside the forward.

A backward is what autograd executes. It is twice the forward only where every product has two factors that need a gradient.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import calc
from calc.derive.result import Derivation
from calc.dimensions import Dim
from calc.spec import Sizes, Spec
from tests.derive.hand_counts import bert, encoder, gpt2, llama, mamba, mixtral, patches, resnet18, resnet50, stem, t5, vit
from tests.zoo import ZOO

Sized = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Row:
    """A model at ``sizes``: what of its forward is multiplied, and what of that has no input gradient (twice the rest comes back)."""

    make: Callable[[], Spec]
    sizes: Sized
    forward: Callable[[Any], int]
    first: Callable[[Any], int] = lambda n: 0
    mode: str = "train"
    slow: bool = True


def of_the_zoo(name: str) -> Callable[[], Spec]:
    return lambda: ZOO[name].make()


def of_the_library(**config: Any) -> Callable[[], Spec]:
    """The spec of a config, whose file is read when it is made."""

    def make() -> Spec:
        with TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(config))
            return calc.load(f"hf:{folder}")

    return make


class Functions(nn.Module):
    """A product as ``@``, one as einsum, and fused attention: no module of torch's knows of any."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.w, self.v = nn.Parameter(torch.rand(n.d, n.d)), nn.Parameter(torch.rand(n.d, n.h, n.k))

    def forward(self, x: Tensor) -> Tensor:
        q = torch.einsum("btd,dhk->bhtk", x @ self.w, self.v)
        return F.scaled_dot_product_attention(q, q, q)


def functions() -> Spec:
    return Spec(
        "functions",
        {"B": 2, "T": 256, "d": 64, "h": 4, "k": 16},
        Functions,
        lambda n: (torch.rand(n.B, n.T, n.d),),
        lambda module, x: module(x).sum(),
    )


LENGTH = 6


class Recurrent(nn.Module):
    def __init__(self, n: Any) -> None:
        super().__init__()
        self.lstm = nn.LSTM(n.d, n.f, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


def lstm() -> Spec:
    return Spec("lstm", {"B": 2, "d": 64, "f": 96}, Recurrent, lambda n: (torch.rand(n.B, LENGTH, n.d),), lambda module, x: module(x).sum())


LONG = {"B": 2, "T": 256}
NARROW = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "num_hidden_layers": 4}
ROWS: dict[str, Row] = {
    "GPT-2": Row(lambda: calc.load("gpt2"), LONG, gpt2),
    "Llama of 12 layers": Row(lambda: calc.load("llama3-8b"), LONG | {"L": 12, "d": 768, "h": 12, "g": 4, "f": 2048, "V": 32000}, llama),
    "Mixtral": Row(lambda: calc.load("mixtral"), LONG | {"L": 4, "d": 64, "h": 4, "g": 2, "f": 96, "V": 512}, mixtral),
    "Mixtral of the library, experts grouped": Row(
        of_the_library(
            model_type="mixtral", architectures=["MixtralForCausalLM"], num_local_experts=8, num_experts_per_tok=2, vocab_size=512, **NARROW
        ),
        LONG,
        mixtral,
    ),
    "T5 small": Row(
        of_the_library(model_type="t5", architectures=["T5ForConditionalGeneration"], decoder_start_token_id=0, vocab_size=32128),
        LONG,
        t5,
    ),
    "BERT base": Row(of_the_library(model_type="bert", architectures=["BertForMaskedLM"]), LONG, bert),
    "ViT base": Row(lambda: calc.load("vit-b"), {"B": 2}, vit, patches),
    "Mamba": Row(
        of_the_library(
            model_type="mamba", architectures=["MambaForCausalLM"], hidden_size=64, num_hidden_layers=4, vocab_size=512, state_size=8
        ),
        {"B": 2, "T": 12},
        mamba,
    ),
    "LSTM": Row(
        lstm,
        {},
        lambda n: 2 * n.B * LENGTH * 4 * n.f * (n.d + n.f),
        lambda n: 2 * n.B * 4 * n.f * (LENGTH * n.d + n.f),  # the input, and the state before the first token
        slow=False,
    ),
    "ResNet-18": Row(of_the_zoo("resnet-18"), {"B": 2, "S": 224, "w": 64, "K": 1000}, resnet18, stem),
    "ResNet-50": Row(lambda: calc.load("resnet50"), {"B": 2}, resnet50, stem),
    "functions": Row(
        functions,
        {},
        lambda n: 2 * n.B * n.T * n.d * (n.d + n.h * n.k) + 4 * n.B * n.T**2 * n.h * n.k,
        lambda n: 2 * n.B * n.T * n.d**2,
        slow=False,
    ),
    "encoder of torch in evaluation": Row(
        of_the_zoo("encoder of relu, norm last, eval"), {"B": 2, "T": 256, "h": 8, "k": 64, "f": 2048}, encoder, mode="eval", slow=False
    ),
}


@cache
def derived(name: str) -> Derivation:
    """Lengths over which a model loops in Python stay as requested."""
    row = ROWS[name]
    return calc.derive(row.make(), row.sizes, cache=False, optimizer="sgd", mode=row.mode)


def rows(*, trained: bool = False) -> list[Any]:
    wanted = [name for name, row in ROWS.items() if row.mode == "train" or not trained]
    return [pytest.param(name, marks=[pytest.mark.slow] if ROWS[name].slow else []) for name in wanted]


@pytest.mark.parametrize("name", rows())
def test_the_forward_is_the_count_by_hand(name: str) -> None:
    """The ratio is 1 as integers."""
    derivation = derived(name)

    assert ROWS[name].forward(Sizes(**derivation.sizes)) == derivation["flops.forward.matmul"].value


@pytest.mark.parametrize("name", rows(trained=True))
def test_the_backward_is_the_count_by_hand(name: str) -> None:
    """Two products for each of the forward, one where its input is data; what only repeats the forward is taken off."""
    row, derivation = ROWS[name], derived(name)
    n = Sizes(**derivation.sizes)
    executed, repeated = (derivation[f"flops.backward.{part}"].value for part in ("matmul", "recompute"))
    assert executed is not None
    assert repeated is not None

    assert 2 * row.forward(n) - row.first(n) == executed - repeated


def test_an_encoder_in_evaluation_has_no_backward() -> None:
    """Unknown with a reason, not zero."""
    backward = derived("encoder of torch in evaluation")["flops.backward.matmul"]

    assert backward.value is None
    assert backward.unknown


# -- the backward beside the forward ------------------------------------------------------------------------------------------------


def counted(spec: Spec) -> tuple[int, int]:
    """Forward and backward by torch's own counter, on a real run: it sees plain products rightly."""
    n = Sizes(**spec.sizes({}))
    module, inputs = spec.build(n), spec.inputs(n)
    with FlopCounterMode(display=False) as forward:
        loss = spec.loss(module, *inputs)
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


def dense(build: Callable[[Any], nn.Module]) -> Spec:
    return Spec(
        "dense", {"B": 3, "d": 5, "f": 7, "r": 2}, build, lambda n: (torch.rand(n.B, n.d),), lambda module, x: module(x).square().sum()
    )


def layers(n: Any, *frozen: int) -> nn.Module:
    """Three layers of d f each."""
    network = nn.Sequential(nn.Linear(n.d, n.f), nn.Linear(n.f, n.d), nn.Linear(n.d, n.f))
    for i in frozen:
        network[i].requires_grad_(False)
    return network


class Adapted(nn.Module):
    """A frozen layer and two thin ones beside it."""

    def __init__(self, inner: Any, outer: Any, rank: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(inner, outer).requires_grad_(False)
        self.narrow, self.widen = nn.Linear(inner, rank, bias=False), nn.Linear(rank, outer, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.widen(self.narrow(x))


WIDE = 2 * 3 * 5 * 7  # one product of B d f
THIN_D, THIN_F = 2 * 3 * 5 * 2, 2 * 3 * 7 * 2  # of B d r, of B f r

# Name: the module, its forward, its backward.
CASES: dict[str, tuple[Callable[[Any], nn.Module], int, int]] = {
    "one layer: only its weight has a gradient": (lambda n: nn.Linear(n.d, n.f), WIDE, WIDE),
    "three layers: the first has no input gradient": (lambda n: layers(n), 3 * WIDE, 5 * WIDE),
    "the first layer frozen: nothing reaches it": (lambda n: layers(n, 0), 3 * WIDE, 3 * WIDE),
    "the second layer frozen: the gradient passes through": (lambda n: layers(n, 1), 3 * WIDE, 4 * WIDE),
    "the last layer frozen: the gradient passes through": (lambda n: layers(n, 2), 3 * WIDE, 4 * WIDE),
    "the first two frozen: only the last learns": (lambda n: layers(n, 0, 1), 3 * WIDE, WIDE),
    "adapters: frozen weights have no gradient": (
        lambda n: nn.Sequential(Adapted(n.d, n.f, n.r), Adapted(n.f, n.d, n.r)),
        2 * (WIDE + THIN_D + THIN_F),
        THIN_D + 2 * THIN_F + WIDE + 2 * THIN_F + 2 * THIN_D,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_backward_is_what_autograd_executes(case: str) -> None:
    """By hand, by torch's counter on a real run, and derived."""
    build, forward, backward = CASES[case]
    spec = dense(build)
    derivation = calc.derive(spec, cache=False, optimizer="sgd")

    assert (forward, backward) == counted(spec)
    assert (forward, backward) == tuple(derivation[f"flops.{phase}.matmul"].value for phase in ("forward", "backward"))


RATIOS = {"ResNet-18": 1.935, "ResNet-50": 1.971, "ViT base": 1.993, "LSTM": 1.5, "Mamba": 2.0}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] if ROWS[name].slow else []) for name in RATIOS])
def test_the_ratio_of_backward_to_forward_is_not_always_two(name: str) -> None:
    """As they come out, without what fused attention repeats; Mamba's is 2, since its first products are of words."""
    derivation = derived(name)
    forward, backward, repeated = (
        derivation[quantity].value or 0 for quantity in ("flops.forward.matmul", "flops.backward.matmul", "flops.backward.recompute")
    )

    assert RATIOS[name] == round((backward - repeated) / forward, 3)


def test_torchs_counter_charges_every_channel_of_a_depthwise_convolution_with_every_other() -> None:
    """Why it is not what Mamba is compared with: its weight gradient is C times what is executed."""
    spec = Spec(
        "depthwise",
        {"B": 2, "C": 8, "T": Dim(12)},
        lambda n: nn.Sequential(nn.Conv1d(n.C, n.C, 1, bias=False), nn.Conv1d(n.C, n.C, 3, groups=n.C, bias=False)),
        lambda n: (torch.rand(n.B, n.C, n.T),),
        lambda module, x: module(x).square().sum(),
    )
    pointwise, depthwise = 2 * 2 * 8 * 8 * 12, 2 * 2 * 8 * 3 * 10
    derivation = calc.derive(spec, cache=False, optimizer="sgd")

    assert derivation["flops.backward.matmul"].value == pointwise + 2 * depthwise
    assert counted(spec)[1] > pointwise + 2 * depthwise

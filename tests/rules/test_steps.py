"""Whole training steps, every operator of which has a rule that agrees with torch's own count of that very call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import calc.rules.families  # noqa: F401  # importing it fills the registry
from calc.rules.registry import REGISTRY
from tests.rules.operators import Comparing

PLAIN = (
    F.relu, F.gelu, F.silu, F.tanh, F.sigmoid, F.softplus, F.leaky_relu, F.elu, F.mish, F.hardswish, F.relu6, F.selu, F.celu, F.hardtanh,
    F.hardsigmoid, F.logsigmoid, F.softsign, F.glu,
)  # fmt: skip
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {f.__name__: f for f in PLAIN}
ACTIVATIONS |= {"tanh gelu": lambda x: F.gelu(x, approximate="tanh"), "dropout": lambda x: F.dropout(x, 0.25)}

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd with decay": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "centred rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True),
    "adam": torch.optim.Adam,
    "amsgrad": lambda p: torch.optim.Adam(p, amsgrad=True, weight_decay=0.1),
    "adamw": torch.optim.AdamW,
    "adamax": torch.optim.Adamax,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "adadelta": torch.optim.Adadelta,
    "adafactor": torch.optim.Adafactor,
}

NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "layer norm": (lambda: nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7)), (2, 3, 5)),
    "rms norm": (lambda: nn.Sequential(nn.Linear(5, 7), nn.RMSNorm(7)), (2, 3, 5)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)), (2, 4, 7, 11)),
    "depthwise": (lambda: nn.Sequential(nn.Conv1d(6, 6, 3, groups=6, padding=2), nn.GroupNorm(2, 6), nn.AvgPool1d(3)), (2, 6, 11)),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(4, 6, 3, stride=2), nn.AdaptiveAvgPool2d(1)), (2, 4, 5, 7)),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), (3, 5, 8)),
}


def differences(step: Callable[[], object], context: AbstractContextManager[object] | None = None) -> list[str]:
    with context or nullcontext(), Comparing(REGISTRY) as mode:
        step()

    assert mode.compared
    return mode.differences


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_operator_of_an_mlp_is_counted(name: str) -> None:
    """Forward and backward of two linear layers around each activation, with a squared loss."""
    up, down = nn.Linear(3, 10), nn.Linear(5 if name == "glu" else 10, 7)
    x, y = torch.rand(11, 3), torch.rand(11, 7)

    assert [] == differences(lambda: F.mse_loss(down(ACTIVATIONS[name](up(x))), y).backward())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_operator_of_an_optimizer_is_counted(name: str) -> None:
    """Two steps: the first makes the state, the second is the one that is measured."""
    model = nn.Linear(3, 5)
    optimizer = OPTIMIZERS[name](model.parameters())

    def steps() -> None:
        for _ in range(2):
            model(torch.rand(2, 3)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    assert [] == differences(steps)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_operator_of_a_network_is_counted(name: str) -> None:
    """Normalizations, convolutions, pooling and an encoder layer, forward and backward, with gradients of the input."""
    build, shape = NETWORKS[name]
    model, x = build(), torch.rand(shape, requires_grad=True)

    assert [] == differences(lambda: model(x).sum().backward())


@pytest.mark.parametrize("precision", ["fp32", "bf16-autocast"])
@pytest.mark.parametrize("attention", ["fused", "math"])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_every_operator_of_a_language_model_is_counted(family: str, attention: str, precision: str) -> None:
    """Small GPT-2 and Llama of transformers, with their own loss, dropout, grouped-query heads and rotary positions."""
    transformers = pytest.importorskip("transformers")
    common = {"vocab_size": 31, "bos_token_id": 1, "eos_token_id": 2}
    if family == "gpt2":
        dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0} if attention == "fused" else {}
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_positions=13, n_embd=24, n_layer=2, n_head=3, **common, **dropout))
    else:
        sizes = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2}
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(max_position_embeddings=13, **sizes, **common))
    ids = torch.randint(31, (2, 7))

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision != "fp32"):
            loss = model(ids, labels=ids, use_cache=False).loss
        loss.backward()

    assert [] == differences(step, sdpa_kernel(SDPBackend.MATH) if attention == "math" else None)

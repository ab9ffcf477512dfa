"""GPT-2 as a short ordinary module: learned positions, pre-norm blocks, tied head, mean cross-entropy over all tokens.

Module names are those of the published checkpoints. Sizes by letter: B batch, T tokens, d width, h heads, k = d/h,
f feed-forward width, L blocks, V vocabulary, C positions.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.dimensions import Dim
from calc.errors import BadInputError
from calc.spec import Spec


class Attention(nn.Module):
    """Causal self-attention with one fused projection for queries, keys and values."""

    def __init__(self, d: Any, h: Any, k: Any, dropout: float) -> None:
        super().__init__()
        self.h, self.k, self.dropout = h, k, dropout
        self.c_attn = nn.Linear(d, 3 * d)
        self.c_proj = nn.Linear(d, d)
        self.resid_dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        B, T, d = x.shape
        q, k, v = self.c_attn(x).split([d, d, d], dim=2)  # each (B, T, d)
        q = q.view(B, T, self.h, self.k).transpose(1, 2)  # (B, h, T, k)
        k = k.view(B, T, self.h, self.k).transpose(1, 2)  # (B, h, T, k)
        v = v.view(B, T, self.h, self.k).transpose(1, 2)  # (B, h, T, k)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)  # (B, h, T, k)
        y = y.transpose(1, 2).reshape(B, T, d)
        projected: Tensor = self.resid_dropout(self.c_proj(y))
        return projected


class FeedForward(nn.Module):
    """Two projections with the tanh form of GELU between them."""

    def __init__(self, d: Any, f: Any, dropout: float) -> None:
        super().__init__()
        self.c_fc = nn.Linear(d, f)
        self.c_proj = nn.Linear(f, d)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.c_fc(x), approximate="tanh")  # (B, T, f)
        projected: Tensor = self.dropout(self.c_proj(x))  # (B, T, d)
        return projected


class Block(nn.Module):
    """Attention and feed-forward, each on a normalized copy and added to the residual stream."""

    def __init__(self, n: Any, dropout: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm((n.d,))
        self.attn = Attention(n.d, n.h, n.k, dropout)
        self.ln_2 = nn.LayerNorm((n.d,))
        self.mlp = FeedForward(n.d, n.f, dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        y: Tensor = x + self.mlp(self.ln_2(x))
        return y


class Trunk(nn.Module):
    """Token ids (B, T) to normalized hidden states (B, T, d)."""

    def __init__(self, n: Any, dropout: float) -> None:
        super().__init__()
        self.wte = nn.Embedding(n.V, n.d)
        self.wpe = nn.Embedding(n.C, n.d)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList([Block(n, dropout) for _ in range(n.L)])
        self.ln_f = nn.LayerNorm((n.d,))

    def forward(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)  # (T,)
        x: Tensor = self.drop(self.wte(ids) + self.wpe(positions))  # (B, T, d)
        for block in self.h:
            x = block(x)
        normalized: Tensor = self.ln_f(x)
        return normalized


class GPT2(nn.Module):
    """Token ids (B, T) to logits (B, T, V)."""

    def __init__(self, n: Any, dropout: float = 0.0) -> None:
        super().__init__()
        self.transformer = Trunk(n, dropout)
        self.lm_head = nn.Linear(n.d, n.V, bias=False)
        self.lm_head.weight = self.transformer.wte.weight  # tied: one storage, counted once
        self.apply(_initialize)
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):  # 2 L branches add to the residual stream: keep its variance
                nn.init.normal_(parameter, std=0.02 / (2 * n.L) ** 0.5)

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.lm_head(self.transformer(ids))
        return logits


def _initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def _inputs(n: Any) -> tuple[Tensor, ...]:
    return torch.randint(n.V, (n.B, n.T)), torch.randint(n.V, (n.B, n.T))


def _loss(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())


def spec(dropout: float = 0.0) -> Spec:
    """GPT-2 124M; ``dropout`` is the rate of all four places that have one."""
    if not 0.0 <= dropout < 1.0:
        raise BadInputError(f"dropout = {dropout} is not a rate: give a number from 0 to below 1")
    return Spec(
        name=f"gpt2:dropout={dropout}" if dropout else "gpt2",
        dims={
            "B": 8,
            "T": Dim(1024, at_most="C"),
            "d": Dim(768, multiple_of="h", because="each head takes an equal part of the width"),
            "h": 12,
            "k": Dim("d/h", tied=True),
            "f": "4*d",
            "L": 12,
            "V": 50257,
            "C": 1024,
        },
        build=lambda n: GPT2(n, dropout),
        inputs=_inputs,
        loss=_loss,
        predict=lambda model, ids: model(ids),
        check_at={"B": 2, "T": 64},
        source="built-in",
        trip_counts=("L",),
    )

"""Networks for sequences, whole: recurrent, with a state space, with decaying memory, and torch's own transformers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.dimensions import Dim
from tests.zoo.exhibit import network


def words(n: Any) -> tuple[Tensor, ...]:
    return torch.randint(n.V, (n.B, n.T)), torch.randint(n.V, (n.B, n.T))


def next_word(module: nn.Module, ids: Tensor, following: Tensor) -> Tensor:
    return F.cross_entropy(module(ids).flatten(0, 1), following.flatten())


TEXT = {"B": 3, "T": 7, "d": 5, "f": 11, "V": 13}
OTHER_TEXT = {"B": 2, "T": 5, "d": 3, "f": 7, "V": 17}

# -- recurrent ------------------------------------------------------------------------------------------------------------------


class RecurrentLanguageModel(nn.Module):
    """An embedding, two LSTM layers, a head."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.words, self.lstm, self.head = nn.Embedding(n.V, n.d), nn.LSTM(n.d, n.f, 2, batch_first=True), nn.Linear(n.f, n.V)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.words(ids))[0])


def of_six_words(n: Any) -> tuple[Tensor, ...]:
    return torch.randint(n.V, (n.B, 6)), torch.randint(n.V, (n.B, 6))


network(
    "lstm language model",
    {"B": 3, "d": 5, "f": 11, "V": 13},
    RecurrentLanguageModel,
    of_six_words,
    {"B": 2, "d": 3, "f": 7, "V": 17},
    next_word,
    slow=True,
)

# -- a selective state space, as Mamba has it -----------------------------------------------------------------------------------


class Scan(nn.Module):
    """h[t] = kept[t] h[t-1] + given[t], read off by out_of[t]."""

    def forward(self, kept: Tensor, given: Tensor, out_of: Tensor) -> Tensor:
        state, seen = torch.zeros_like(given[:, 0]), []
        for keep, give, out in zip(kept.unbind(1), given.unbind(1), out_of.unbind(1), strict=True):
            state = keep * state + give  # (B, f, s)
            seen.append((state @ out[..., None]).squeeze(-1))  # (B, f)
        return torch.stack(seen, 1)


class Selective(nn.Module):
    """A state of s numbers for each of f channels, whose decay and input depend on the token. T is a loop of Python."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.s, self.scan = n.s, Scan()
        self.words, self.inner, self.head = nn.Embedding(n.V, n.d), nn.Linear(n.d, 2 * n.f, bias=False), nn.Linear(n.d, n.V, bias=False)
        self.near = nn.Conv1d(n.f, n.f, 4, padding=3, groups=n.f)
        self.select, self.step = nn.Linear(n.f, 1 + 2 * n.s, bias=False), nn.Linear(1, n.f)
        self.decay, self.skip, self.outer = nn.Parameter(torch.rand(n.f, n.s)), nn.Parameter(torch.ones(n.f)), nn.Linear(n.f, n.d)

    def forward(self, ids: Tensor) -> Tensor:
        T = ids.shape[1]
        x, gate = self.inner(self.words(ids)).chunk(2, -1)  # each (B, T, f)
        x = F.silu(self.near(x.transpose(1, 2))[..., :T].transpose(1, 2))
        step, into, out_of = self.select(x).split([1, self.s, self.s], -1)
        step = F.softplus(self.step(step))  # (B, T, f)
        kept = torch.exp(-step[..., None] * self.decay.exp())  # (B, T, f, s)
        given = (step * x)[..., None] * into[:, :, None]  # (B, T, f, s)
        y = self.scan(kept, given, out_of) + self.skip * x
        return self.head(self.outer(y * F.silu(gate)))


network("selective scan", TEXT | {"s": 2}, Selective, words, OTHER_TEXT | {"B": 11, "s": 4}, next_word, slow=True)

# -- decaying memory, as RWKV has it --------------------------------------------------------------------------------------------


class TimeMixing(nn.Module):
    """Each channel remembers what it was given, less with every step; a token is mixed with the one before it."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(n.V, n.d), nn.Linear(n.d, n.V)
        self.mix = nn.Parameter(torch.rand(3, n.d))
        self.receive, self.key, self.value = (nn.Linear(n.d, n.f, bias=False) for _ in range(3))
        self.decay, self.first, self.out = nn.Parameter(torch.rand(n.f)), nn.Parameter(torch.rand(n.f)), nn.Linear(n.f, n.d)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        before = F.pad(x, (0, 0, 1, -1))  # the same, one step later
        r, k, v = (layer(torch.lerp(before, x, m)) for layer, m in zip((self.receive, self.key, self.value), self.mix, strict=True))
        T = ids.shape[1]
        places = torch.arange(T, device=ids.device)
        age = places[:, None] - places  # (T, T)
        weight = torch.where(age[..., None] == 0, self.first, -age[..., None] * self.decay.exp())  # (T, T, f)
        weight = weight.masked_fill(age[..., None] < 0, float("-inf"))
        share = torch.softmax(weight + k[:, None], dim=2)  # (B, T, T, f)
        return self.head(self.out(r.sigmoid() * torch.einsum("btsf,bsf->btf", share, v)))


network("time mixing", TEXT, TimeMixing, words, OTHER_TEXT, next_word)

# -- torch's own ----------------------------------------------------------------------------------------------------------------

HEADS = {"d": Dim(10, multiple_of="h"), "h": 2, "k": Dim("d/h", tied=True)}
OTHER_HEADS = {"d": 21, "h": 3}


class Translation(nn.Module):
    """An embedding on each side of torch's transformer, with a causal mask on the second."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(n.V, n.d), nn.Embedding(n.V, n.d)
        self.transformer = nn.Transformer(n.d, n.h, 1, 2, n.f, dropout=0.1, batch_first=True)
        self.head = nn.Linear(n.d, n.V)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool, device=target.device).triu(1)
        return self.head(self.transformer(self.source(source), self.target(target), tgt_mask=mask))


network(
    "torch transformer",
    HEADS | {"B": 3, "T": 7, "S": 11, "f": 13, "V": 17},
    Translation,
    lambda n: (torch.randint(n.V, (n.B, n.S)), torch.randint(n.V, (n.B, n.T)), torch.randint(n.V, (n.B, n.T))),
    OTHER_HEADS | {"B": 2, "T": 5, "S": 13, "f": 11, "V": 19},
    lambda module, source, target, following: F.cross_entropy(module(source, target).flatten(0, 1), following.flatten()),
    optimizer="adam",
    slow=True,
)


class Encoder(nn.Module):
    """L of torch's encoder layers, post-norm, in batches that come second."""

    def __init__(self, n: Any, **options: Any) -> None:
        super().__init__()
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(n.d, n.h, n.f, 0.0, **options), n.L, nn.LayerNorm(n.d))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


ENCODED = HEADS | {"B": 3, "T": 7, "f": 13, "L": 4}
OTHER_ENCODED = OTHER_HEADS | {"B": 11, "T": 5, "f": 17, "L": 6}
for name, options in {"post-norm": {}, "pre-norm": {"norm_first": True, "activation": "gelu"}}.items():
    network(
        f"torch encoder, {name}",
        ENCODED,
        lambda n, o=options: Encoder(n, **o),
        lambda n: (torch.rand(n.T, n.B, n.d),),
        OTHER_ENCODED,
        slow=True,
    )

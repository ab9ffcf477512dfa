"""Small models, each with a loss, whose gradients are derived and compared."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc import Dim, Spec

ACTIVATIONS = (
    "ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "ELU", "SELU", "CELU", "Softplus", "LeakyReLU", "Mish", "Hardswish", "Hardtanh",
    "Softsign", "LogSigmoid", "ReLU6", "PReLU", "Softshrink", "Tanhshrink",
)  # fmt: skip


def _square(model: nn.Module, *inputs: Tensor) -> Tensor:
    return (model(*inputs) ** 2).mean()


def _rows(n: Any) -> tuple[Tensor, ...]:
    return (torch.randn(n.B, n.d),)


def _tokens(n: Any) -> tuple[Tensor, ...]:
    return (torch.randn(n.B, n.T, n.d),)


def _images(n: Any) -> tuple[Tensor, ...]:
    return (torch.randn(n.B, n.c, n.H, n.H),)


def model(name: str, dims: dict[str, Any], build: Any, inputs: Any, loss: Any = _square) -> Spec:
    return Spec(name=name, dims=dims, build=build, inputs=inputs, loss=loss)


class After(nn.Module):
    """A part behind a linear layer, so that what comes before it needs a gradient too."""

    def __init__(self, part: nn.Module, d: Any, f: Any = None) -> None:
        super().__init__()
        self.linear = nn.Linear(d, d if f is None else f)
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        actual: Tensor = self.part(self.linear(x))
        return actual


class HandSoftmax(nn.Module):
    """A softmax written out, the largest element taken off."""

    def forward(self, x: Tensor) -> Tensor:
        e = torch.exp(x - x.max(-1, keepdim=True).values)
        return e / e.sum(-1, keepdim=True)


class HandNorm(nn.Module):
    """A layer norm written out."""

    def forward(self, x: Tensor) -> Tensor:
        c = x - x.mean(-1, keepdim=True)
        return c * torch.rsqrt((c * c).mean(-1, keepdim=True) + 1e-5)


class Attention(nn.Module):
    """Causal self-attention with ``g`` key/value heads for ``h`` query heads, biases everywhere."""

    def __init__(self, d: Any, h: Any, g: Any, k: Any) -> None:
        super().__init__()
        self.h, self.g, self.k = h, g, k
        self.q, self.kk, self.v = nn.Linear(d, h * k), nn.Linear(d, g * k), nn.Linear(d, g * k)
        self.o = nn.Linear(h * k, d)

    def forward(self, x: Tensor) -> Tensor:
        B, T, _ = x.shape
        q, k, v = (part(x).view(B, T, n, self.k).transpose(1, 2) for part, n in ((self.q, self.h), (self.kk, self.g), (self.v, self.g)))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        actual: Tensor = self.o(y.transpose(1, 2).reshape(B, T, self.h * self.k))
        return actual


class ConvNorm(nn.Module):
    """A convolution with a bias before a batch norm."""

    def __init__(self, c: Any, o: Any) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(c, o, 3, padding=1), nn.BatchNorm2d(o)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)))


class Vision(nn.Module):
    """Strided, depthwise and transposed convolutions, group norm, pooling."""

    def __init__(self, c: Any, o: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(c, o, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, o)
        self.depthwise = nn.Conv2d(o, o, 3, padding=1, groups=o)
        self.up = nn.ConvTranspose2d(o, o, 2, stride=2)
        self.head = nn.Linear(o, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.gelu(self.norm(self.first(x))), 2)
        x = F.avg_pool2d(self.up(self.depthwise(x)), 2)
        actual: Tensor = self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return actual


class Tied(nn.Module):
    """An embedding that is the head as well."""

    def __init__(self, V: Any, d: Any) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(V, d), nn.Linear(d, V, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, i: Tensor) -> Tensor:
        actual: Tensor = self.head(self.embedding(i))
        return actual


class OneRow(nn.Module):
    """A table with one row, as of token types where there is one type, one whose row is for padding, and one with one column."""

    def __init__(self, d: Any) -> None:
        super().__init__()
        self.types, self.padded, self.column = nn.Embedding(1, d), nn.Embedding(1, d, padding_idx=0), nn.Embedding(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        zeros = torch.zeros(x.shape[0], dtype=torch.long)
        return x * self.types(zeros) + self.padded(zeros) * self.column(zeros + 2)


class Scalar(nn.Module):
    """½(x·w - 5)²."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(n))

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * (x @ self.w - 5) ** 2


class Shuffled(nn.Module):
    """Reading, writing and rearranging: cumulative sums, slices written over, sorting, gathers, padding, norms of vectors."""

    def __init__(self, d: Any) -> None:
        super().__init__()
        self.w, self.v = nn.Parameter(torch.randn(d, d)), nn.Parameter(torch.randn(d))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.einsum("bd,de->be", x, self.w).cumsum(-1)
        z = torch.cat([y[:, 2:], y[:, :2]], -1)
        z = torch.where(z > 0, z, z.exp()).clamp(-2, 1.5)
        z = z.masked_fill(z > 1, 0.3) + self.v.flip(0).roll(1)
        z[:, 1:] *= self.v[1:]
        z = torch.stack([z, z.sin()], 1).amax(1)
        i = torch.arange(x.shape[0])
        top = z.topk(2, -1).values.sum(-1, keepdim=True)
        put = torch.zeros_like(z).index_add(0, i, z).scatter_add(1, (z > 0).long(), z * z)
        lengths = z.std(-1, keepdim=True) + z.norm(dim=-1, keepdim=True) + torch.logsumexp(z, -1, keepdim=True)
        return z.sort(-1).values * top + lengths + z[i.flip(0)] + put + F.pad(z, (1, -1)) + z.prod(-1, keepdim=True)


def _next_token(model: nn.Module, i: Tensor) -> Tensor:
    return F.cross_entropy(model(i)[:, :-1].flatten(0, 1), i[:, 1:].flatten())


def _ignoring(model: nn.Module, x: Tensor, t: Tensor) -> Tensor:
    ignored = (t == 0) & (torch.arange(x.shape[0]) > 0)  # never all of them
    return F.cross_entropy(model(x), torch.where(ignored, -100, t))


HEADS = {"B": 2, "T": 3, "d": 6, "h": Dim(4, multiple_of="g"), "g": 2, "k": 5}

MODELS = {
    **{
        f"mlp with {a}": model(
            f"mlp {a}",
            {"B": 4, "d": 5, "f": 7},
            lambda n, a=a: nn.Sequential(nn.Linear(n.d, n.f), getattr(nn, a)(), nn.Linear(n.f, n.d)),
            _rows,
        )
        for a in ACTIVATIONS
    },
    "layer norm": model("layer norm", {"B": 4, "d": 5}, lambda n: After(nn.LayerNorm(n.d), n.d), _rows),
    "rms norm": model("rms norm", {"B": 4, "d": 5}, lambda n: After(nn.RMSNorm(n.d), n.d), _rows),
    "softmax": model("softmax", {"B": 4, "d": 5}, lambda n: After(nn.Softmax(-1), n.d), _rows),
    "softmax by hand": model("softmax by hand", {"B": 4, "d": 5}, lambda n: After(HandSoftmax(), n.d), _rows),
    "layer norm by hand": model("layer norm by hand", {"B": 4, "d": 5}, lambda n: After(HandNorm(), n.d), _rows),
    "cross-entropy": model(
        "cross-entropy",
        {"B": 4, "d": 5, "V": 6},
        lambda n: nn.Linear(n.d, n.V),
        lambda n: (torch.randn(n.B, n.d), torch.randint(n.V, (n.B,))),
        lambda m, x, t: F.cross_entropy(m(x), t),
    ),
    "cross-entropy with ignored rows": model(
        "ignoring",
        {"B": 7, "d": 5, "V": 6},
        lambda n: nn.Linear(n.d, n.V),
        lambda n: (torch.randn(n.B, n.d), torch.randint(n.V, (n.B,))),
        _ignoring,
    ),
    "grouped-query attention": model("gqa", HEADS, lambda n: Attention(n.d, n.h, n.g, n.k), _tokens),
    "multi-head attention": model("mha", {**HEADS, "g": Dim("h", tied=True), "h": 3}, lambda n: Attention(n.d, n.h, n.h, n.k), _tokens),
    "encoder layer": model(
        "encoder",
        {"B": 2, "T": 3, "d": Dim(12, multiple_of="h"), "h": 2, "f": 7},
        lambda n: nn.TransformerEncoderLayer(n.d, n.h, n.f, dropout=0.0, batch_first=True),
        _tokens,
    ),
    "convolution with batch norm": model("conv norm", {"B": 2, "c": 3, "o": 4, "H": 6}, lambda n: ConvNorm(n.c, n.o), _images),
    "vision": model("vision", {"B": 2, "c": 3, "H": 16}, lambda n: Vision(n.c, 4), _images),
    "tied head": model(
        "tied", {"B": 2, "T": 3, "V": 7, "d": 5}, lambda n: Tied(n.V, n.d), lambda n: (torch.randint(n.V, (n.B, n.T)),), _next_token
    ),
    "tables of one row": model("one row", {"B": 4, "d": 5}, lambda n: OneRow(n.d), _rows),
    "scalar": model("scalar", {"n": 3}, lambda n: Scalar(n.n), lambda n: (torch.randn(n.n),), lambda m, x: m(x)),
    "shuffled": model("shuffled", {"B": 4, "d": 5}, lambda n: Shuffled(n.d), _rows),
    "dropout": model("dropout", {"B": 4, "d": 5}, lambda n: After(nn.Dropout(0.4), n.d), _rows),
}

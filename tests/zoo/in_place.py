"""Operators in place on views, and gradients of gradients: where autograd goes other ways than through plain layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.dimensions import Dim
from tests.zoo.exhibit import network

SEQUENCE = {"B": 2, "T": 5, "d": 3, "f": 7}
OTHER_SEQUENCE = {"B": 3, "T": 4, "d": 5, "f": 11}


def _sequence(n: Any) -> tuple[Tensor, ...]:
    return (torch.randn(n.B, n.T, n.d),)


class Between(nn.Module):
    """A function between two layers. The first gives a view of a product: its input has three axes."""

    def __init__(self, n: Any, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.up, self.down, self.function = nn.Linear(n.d, n.f), nn.Linear(n.f, n.d), function

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(self.function(self.up(x)))
        return y


def _part(y: Tensor) -> Tensor:
    """A part changed, and used beside the whole."""
    part = y[:, 1:]
    part.mul_(2)
    return torch.cat([y, part], 1)


def _other_view(y: Tensor) -> Tensor:
    """One view changed, another used."""
    y.view(-1).add_(1)
    return y.tanh()


def _views_of_views(y: Tensor) -> Tensor:
    wide = y.unsqueeze(1).transpose(2, 3)
    wide.clamp_(-1, 1)
    narrow = wide.squeeze(1)
    narrow.tanh_()
    return narrow.transpose(1, 2)


def _put(y: Tensor) -> Tensor:
    """Rows put into a copy, one of them scaled there."""
    x = y.clone()
    x[:, 0] = x[:, 1] * 2
    x[..., 1:] += x[..., :-1].detach()
    x[:, -1].mul_(3.0)
    return x


for name, function in {
    "relu": nn.ReLU(inplace=True),
    "dropout": nn.Dropout(0.1, inplace=True),
    "a part": _part,
    "another view": _other_view,
    "views of views": _views_of_views,
    "rows that are put": _put,
}.items():
    network(f"in place on a view, {name}", SEQUENCE, lambda n, f=function: Between(n, f), _sequence, OTHER_SEQUENCE)


# -- gradients of gradients ---------------------------------------------------------------------------------------------------


def penalised(module: nn.Module, x: Tensor) -> Tensor:
    """A critic's score, and how far the norm of its gradient is from 1 (Gulrajani et al. 2017, equation 3)."""
    x = x.detach().requires_grad_(True)
    score = module(x)
    (gradient,) = torch.autograd.grad(score.sum(), x, create_graph=True)
    penalty: Tensor = (gradient.flatten(1).norm(2, dim=1) - 1).square().mean()
    return score.mean() + 10 * penalty


def _critic(n: Any) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, n.c, 4, 2, 1),
        nn.InstanceNorm2d(n.c, affine=True),
        nn.LeakyReLU(0.2, inplace=True),
        nn.ConvTranspose2d(n.c, n.c, 3, padding=1, groups=2),
        nn.Tanh(),
        nn.Conv2d(n.c, 1, 4, 1, 0),
    )


IMAGE = {"B": 3, "c": 4, "H": 10}
OTHER_IMAGE = {"B": 2, "c": 6, "H": 14}
network("a critic of images, penalised", IMAGE, _critic, lambda n: (torch.randn(n.B, 2, n.H, n.H),), OTHER_IMAGE, penalised, slow=True)
network(
    "a batch norm, penalised",
    {"B": 5, "d": 3, "f": 7},
    lambda n: nn.Sequential(nn.Linear(n.d, n.f), nn.BatchNorm1d(n.f), nn.SiLU(), nn.Linear(n.f, 1)),
    lambda n: (torch.randn(n.B, n.d),),
    {"B": 4, "d": 5, "f": 11},
    penalised,
)


def adapted(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Two steps of its own before the loss that counts (Finn et al. 2017, MAML)."""
    weights = dict(module.named_parameters())

    def predict(w: dict[str, Tensor]) -> Tensor:
        return F.linear(F.relu(F.linear(x, w["0.weight"], w["0.bias"])), w["2.weight"], w["2.bias"])

    for _ in range(2):
        gradients = torch.autograd.grad(F.mse_loss(predict(weights), y), [*weights.values()], create_graph=True)
        weights = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), gradients, strict=True)}
    return F.mse_loss(predict(weights), y)


network(
    "a learner that adapts",
    {"B": 4, "d": 3, "f": 7},
    lambda n: nn.Sequential(nn.Linear(n.d, n.f), nn.ReLU(), nn.Linear(n.f, 1)),
    lambda n: (torch.randn(n.B, n.d), torch.randn(n.B, 1)),
    {"B": 5, "d": 2, "f": 11},
    adapted,
)


# -- windows that overlap, sizes that must divide ------------------------------------------------------------------------------


def _overlapping(y: Tensor) -> Tensor:
    """Each two neighbors as one row, without a copy."""
    batch, length, width = y.shape
    return y.as_strided((batch, length - 1, 2 * width), (length * width, width, 1)).chunk(2, -1)[0]


network("overlapping windows", SEQUENCE, lambda n: Between(n, _overlapping), _sequence, OTHER_SEQUENCE)
network(
    "spectra of windows",
    {"B": 2, "N": 23},
    lambda n: nn.Conv1d(1, 1, 3, padding=1),
    lambda n: (torch.randn(n.B, 1, n.N),),
    {"B": 3, "N": 37},
    lambda module, x: torch.stft(module(x)[:, 0], 8, 4, 6, window=torch.hann_window(6), return_complex=True).abs().sum(),
)


def _through_spectra(module: nn.Module, x: Tensor) -> Tensor:
    """The inverse reads the sizes of its tensors in C++: they are numbers."""
    window, y = torch.hann_window(8), module(x)[:, 0]
    spectra = torch.stft(y, 8, 4, window=window, return_complex=True)
    return torch.istft(spectra * 0.5, 8, 4, window=window, length=y.shape[-1]).abs().sum()


network(
    "waves from spectra",
    {"B": 2, "N": 24},
    lambda n: nn.Conv1d(1, 1, 3, padding=1),
    lambda n: (torch.randn(n.B, 1, n.N),),
    {"B": 3, "N": 40},
    _through_spectra,
)


class Averaged(nn.Module):
    """Channels last, as layer norms of images have them, then averaged over the image."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.widen, self.norm = nn.Conv2d(1, n.c, 3, padding=1), nn.LayerNorm(n.c)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = F.adaptive_avg_pool2d(self.norm(self.widen(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2), 1)
        return y


network(
    "an average of channels last", {"B": 2, "c": 5, "H": 7}, Averaged, lambda n: (torch.randn(n.B, 1, n.H, n.H),), {"B": 3, "c": 4, "H": 6}
)


class Quarters(nn.Module):
    """An image halved twice, its places then seen in squares of 2 x 2; sizes go with no word about what divides them."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.halve = nn.Sequential(nn.Conv2d(1, n.c, 2, 2), nn.GELU(), nn.MaxPool2d(2))
        self.mix = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = (x := self.halve(x)).shape
        squares = x.view(batch, channels, height // 2, 2, width // 2, 2).permute(0, 1, 2, 4, 3, 5)
        y: Tensor = self.mix(squares.reshape(batch, -1, 4))
        return y


network("squares of an image", {"B": 2, "c": 3, "H": 16}, Quarters, lambda n: (torch.randn(n.B, 1, n.H, n.H),), {"B": 3, "c": 5, "H": 24})
network(
    "a given number of groups of channels",
    {"B": 2, "c": Dim(15, multiple_of="g"), "g": 3, "N": 7},
    lambda n: nn.Sequential(nn.Conv1d(1, n.c, 1), nn.GroupNorm(n.g, n.c), nn.SiLU(inplace=True)),
    lambda n: (torch.randn(n.B, 1, n.N),),
    {"B": 3, "c": 8, "g": 4, "N": 5},
)


class Turned(nn.Module):
    """An image turned and cut as it says itself."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.places, self.turn = nn.Linear(n.H, 6), nn.Conv2d(1, n.c, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        grid = F.affine_grid(self.places(x.mean((1, 2))).view(-1, 2, 3), list(x.shape), align_corners=False)
        y: Tensor = self.turn(F.grid_sample(x, grid, align_corners=False))
        return y


network(
    "an image that turns itself",
    {"B": 2, "c": 3, "H": 7},
    Turned,
    lambda n: (torch.randn(n.B, 1, n.H, n.H),),
    {"B": 3, "c": 5, "H": 11},
)


class Decoder(nn.Module):
    """A sequence read by one recurrent layer and written by a cell that looks back at it, step by step."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.words, self.reader, self.cell = nn.Embedding(n.V, n.d), nn.GRU(n.d, n.h, batch_first=True), nn.GRUCell(n.d + n.h, n.h)
        self.key, self.out = nn.Linear(n.h, n.h, bias=False), nn.Linear(n.h, n.V)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        read, last = self.reader(self.words(x))
        state, scores = last[0], []
        for t in range(y.shape[1]):
            weights = torch.bmm(self.key(read), state.unsqueeze(2)).softmax(1)
            state = self.cell(torch.cat([self.words(y[:, t]), (weights * read).sum(1)], 1), state)
            scores.append(self.out(state))
        return F.cross_entropy(torch.stack(scores, 1).flatten(0, 1), y.flatten())


network(
    "a decoder that looks back",
    {"B": 2, "T": 5, "V": 17, "d": 4, "h": 7},
    Decoder,
    lambda n: (torch.randint(n.V, (n.B, n.T)), torch.randint(n.V, (n.B, 3))),
    {"B": 3, "T": 4, "V": 13, "d": 5, "h": 11},
    lambda module, x, y: module(x, y),
    slow=True,
)
network(
    "parts of every row, by mapping",
    {"B": 4, "d": 3, "f": 7},
    lambda n: nn.Linear(n.d, n.f),
    lambda n: (torch.randn(n.B, n.d),),
    {"B": 5, "d": 2, "f": 11},
    lambda module, x: torch.vmap(lambda row: torch.tanh(module(row)).sum())(x).sum(),
)
network(
    "places along an axis, and products of all pairs",
    {"B": 4, "d": 3, "f": 7},
    lambda n: nn.Linear(n.d, n.f),
    lambda n: (torch.randn(n.B, n.d),),
    {"B": 5, "d": 2, "f": 11},
    lambda module, x: torch.take_along_dim(module(x), module(x).argsort(-1)[:, :2], -1).sum() + torch.kron(module.weight, x).sum(),
)


class Apart(nn.Module):
    """Similarities of every pair, without those of a row with itself; then a tall matrix filled in steps, and a cube along its diagonal."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.rows, self.tall, self.cube = nn.Linear(n.d, n.f), nn.Linear(n.d, 2), nn.Linear(n.d, n.B * n.B)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.rows(x)
        alike = (rows @ rows.T).fill_diagonal_(-1e9).softmax(-1)
        steps = self.tall(x).mul(2.0).fill_diagonal_(0.5, wrap=True)
        cube = self.cube(x).view(x.shape[0], x.shape[0], x.shape[0]).mul(3.0).fill_diagonal_(0.0)
        return alike.sum() + steps.pow(2).sum() + cube.pow(2).sum()


network(
    "filled diagonals",
    {"B": 7, "d": 3, "f": 5},
    Apart,
    lambda n: (torch.randn(n.B, n.d),),
    {"B": 11, "d": 2, "f": 13},
)

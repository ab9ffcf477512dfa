"""Small experiments with optimizers, initialization and training; results are plain data, and the same in every run (seeded)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from calc.measure.experiments import SEED, forked, randn, seeded

# -- optimizers ----------------------------------------------------------------------------------------------------------------


def momentum_is_average(steps: int = 10, beta: float = 0.9) -> float:
    """Largest relative difference between (1 − β) times torch's momentum buffer and an exponential moving average, in float64."""
    p = nn.Parameter(torch.zeros(5, dtype=torch.float64))
    optimizer, average = torch.optim.SGD([p], lr=0.1, momentum=beta), torch.zeros(5, dtype=torch.float64)
    worst = 0.0
    for grad in _gradients(steps):
        p.grad = grad
        optimizer.step()
        average = beta * average + (1 - beta) * grad
        worst = max(worst, float((optimizer.state[p]["momentum_buffer"] * (1 - beta) - average).abs().max() / average.abs().max()))
    return worst


def adagrad_state(steps: int = 10) -> dict[str, bool]:
    """Whether AdaGrad's state equals the sum, and whether it equals the mean, of squared gradients."""
    p = nn.Parameter(torch.zeros(5, dtype=torch.float64))
    optimizer = torch.optim.Adagrad([p])
    grads = list(_gradients(steps))
    for grad in grads:
        p.grad = grad
        optimizer.step()
    squares = torch.stack(grads).square()
    state = optimizer.state[p]["sum"]
    return {"sum": torch.allclose(state, squares.sum(0)), "average": torch.allclose(state, squares.mean(0))}


def adagrad_eps(gradient: float, lr: float = 0.01, inside: float = 1e-5) -> tuple[float, float]:
    """The first step of AdaGrad with ε inside the square root, and of torch's AdaGrad with its default ε outside."""
    p = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    p.grad = torch.full((1,), gradient, dtype=torch.float64)
    torch.optim.Adagrad([p], lr=lr).step()
    return lr * gradient / (gradient**2 + inside) ** 0.5, -float(p.detach())


def adam_parts(steps: int = 10, betas: tuple[float, float] = (0.9, 0.999)) -> dict[str, bool | float]:
    """Whether Adam's moments are the averages of momentum and RMSProp, and the ratio of its step to theirs, first and last."""
    p = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.Adam([p], lr=1.0, betas=betas, eps=0.0)
    first, second, ratios = 0.0, 0.0, []
    equal = True
    for grad in _gradients(steps):
        before = float(p.detach())
        g = float(grad[0])
        p.grad = grad[:1].clone()
        optimizer.step()
        first, second = betas[0] * first + (1 - betas[0]) * g, betas[1] * second + (1 - betas[1]) * g * g
        state = optimizer.state[p]
        equal &= abs(float(state["exp_avg"]) - first) < 1e-12 and abs(float(state["exp_avg_sq"]) - second) < 1e-12
        ratios.append((before - float(p.detach())) / (first / second**0.5))
    return {"moments": equal, "first": ratios[0], "last": ratios[-1]}


def _gradients(steps: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(SEED)
    for _ in range(steps):
        yield torch.randn(5, dtype=torch.float64, generator=generator)


# -- training ------------------------------------------------------------------------------------------------------------------


def trained(width: int = 16, steps: int = 60, seed: int = SEED, given_lr: float = 0.01) -> dict[str, Any]:
    """A linear network trained on a known linear model, by a loop that ignores ``given_lr`` and uses SGD at 0.01."""
    with forked():
        torch.manual_seed(seed)
        true = torch.arange(width, dtype=torch.float32)
        model = _network(width, 0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        losses = []
        for _ in range(steps):
            x = torch.randn(8, width)
            loss = F.mse_loss(model(x).squeeze(-1), x @ true)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]  # torch's own is untyped
            optimizer.step()
            losses.append(loss.item())
        return {
            "given": given_lr,
            "used": optimizer.param_groups[0]["lr"],
            "losses": losses,
            "weights": [float(w) for p in model.parameters() for w in p.detach().flatten()],
            "parameters": sum(p.numel() for p in model.parameters()),
        }


def state_before_training() -> dict[str, int]:
    """Elements of the parameters, and of optimizer state and gradients before and after the first step of AdamW."""
    model = seeded(lambda: nn.Linear(7, 5, bias=False))
    optimizer = torch.optim.AdamW(model.parameters())
    count = sum(p.numel() for p in model.parameters())
    before = sum(t.numel() for state in optimizer.state.values() for t in state.values()) + sum(
        p.grad.numel() for p in model.parameters() if p.grad is not None
    )
    model(randn(3, 7)).sum().backward()
    optimizer.step()
    after = sum(t.numel() for state in optimizer.state.values() for t in state.values() if t.dim()) + sum(
        p.grad.numel() for p in model.parameters() if p.grad is not None
    )
    return {"parameters": count, "before": before, "after": after}


def losses_of_two_runs(seed: int, other_seed: int) -> tuple[bool, bool]:
    """Whether two trainings with the same seed agree in every loss, and whether two with different seeds do."""
    first, repeated, differently = (trained(seed=s)["losses"] for s in (seed, seed, other_seed))
    return first == repeated, first == differently


# -- initialization --------------------------------------------------------------------------------------------------------------


def output_variance(width: int, scale: float = 1.0, outputs: int = 64, points: int = 64, cut: float | None = None) -> dict[str, float]:
    """Variance of ``x W`` for standard normal x and normal W with standard deviation ``scale``, truncated at ±``cut``: the mean square
    over points and outputs, its standard error, the fraction within one standard deviation, and the largest weight."""
    with forked():
        torch.manual_seed(SEED)
        w = torch.empty(width, outputs)
        if cut is None:
            nn.init.normal_(w, std=scale)
        else:
            nn.init.trunc_normal_(w, std=scale, a=-cut, b=cut)
        y = torch.randn(points, width) @ w
    by_output = y.square().mean(0)
    variance = float(by_output.mean())
    return {
        "variance": variance,
        "error": float(by_output.std()) / math.sqrt(outputs) + variance * math.sqrt(2 / (points * outputs)),
        "within": float((y.abs() < math.sqrt(variance)).float().mean()),
        "largest weight": float(w.abs().max()),
    }


def xavier_variance(inputs: int, outputs: int) -> float:
    """Variance of the weights that ``xavier_normal_`` draws for a layer."""
    with forked():
        torch.manual_seed(SEED)
        w = torch.empty(outputs, inputs)
        nn.init.xavier_normal_(w)
    return float(w.var())


def depth_variance(width: int, depth: int, scale: float, networks: int = 64, points: int = 16) -> dict[str, float]:
    """Variance of a deep linear network's outputs at initialization: the mean over random networks, with its standard error.
    In float64, since it may grow by a factor of ``width`` per layer."""
    with forked():
        torch.manual_seed(SEED)
        squares = []
        for _ in range(networks):
            x = torch.randn(points, width, dtype=torch.float64)
            for _ in range(depth):
                x = x @ (torch.randn(width, width, dtype=torch.float64) * scale)
            squares.append(float(x.square().mean()))
    samples = torch.tensor(squares, dtype=torch.float64)
    return {"variance": float(samples.mean()), "error": float(samples.std()) / math.sqrt(networks)}


def step_flops(width: int, points: int, layers: int = 0) -> int:
    """Matmul FLOPs of one step of the network that ``trained`` trains, by torch's counter around a real step."""
    model = seeded(lambda: _network(width, layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = randn(points, width), randn(points)
    with FlopCounterMode(display=False) as counter:
        F.mse_loss(model(x).squeeze(-1), y).backward()  # type: ignore[no-untyped-call]  # torch's own is untyped
        optimizer.step()
    return int(counter.get_total_flops())


def _network(width: int, layers: int) -> nn.Module:
    """``layers`` linear layers of ``width`` to ``width`` and one to a single output, all without bias."""
    hidden = (nn.Linear(width, width, bias=False) for _ in range(layers))
    return nn.Sequential(*hidden, nn.Linear(width, 1, bias=False))

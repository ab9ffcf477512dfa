"""Steps of torch's own optimizers on given gradients, in fp64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from calc.errors import MeasurementError
from calc.experiment.precision import double_by_default


class LectureAdagrad(torch.optim.Optimizer):
    """AdaGrad as in the lecture's notes: ε is inside the square root."""

    def __init__(self, parameters: Sequence[Tensor], lr: float = 0.01, eps: float = 1e-5) -> None:
        super().__init__(parameters, {"lr": lr, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # torch's also serves closures that return the loss
        for group in self.param_groups:
            for p in group["params"]:
                squares = self.state[p].setdefault("squares", torch.zeros_like(p))
                squares.add_(p.grad.square())
                p.sub_(group["lr"] * p.grad / (squares + group["eps"]).sqrt())


def trajectory(kind: str, options: Mapping[str, Any], start: Any, gradients: Sequence[Any], keys: Sequence[str]) -> list[dict[str, Any]]:
    """The parameter (under ``""``) and the ``keys`` of its state after each step of ``kind``: a class of torch.optim, or an empty
    string for the lecture's AdaGrad. Raises ``MeasurementError`` if the class rejects its arguments."""
    optimizer_class = getattr(torch.optim, kind) if kind else LectureAdagrad
    with double_by_default():
        parameter = torch.nn.Parameter(torch.tensor(start))
        try:
            optimizer = optimizer_class([parameter], **options)
        except (TypeError, ValueError) as error:
            raise MeasurementError(f"torch's {kind or 'optimizer'} refuses {dict(options)}: {error}") from None
        after: list[dict[str, Any]] = []
        for gradient in gradients:
            parameter.grad = torch.tensor(gradient)
            optimizer.step()
            state = optimizer.state[parameter]
            after.append({"": parameter.detach().tolist(), **{key: torch.as_tensor(state[key]).tolist() for key in keys}})
    return after

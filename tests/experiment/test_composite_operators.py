"""What runs in inference mode: the operators of a forward without gradients, with the same casts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from calc.experiment.composite_operators import decomposed, is_composite


class Seen(TorchDispatchMode):
    """The operators that run inside, each with the dtypes of its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[tuple[str, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_composite(func):
            return decomposed(self, func, args, kwargs)
        self.operators.append((str(func), *(str(x.dtype) for x in args if isinstance(x, torch.Tensor))))
        return func(*args, **(kwargs or {}))


torch.manual_seed(0)
X, Y = torch.rand(3, 5, 6), torch.rand(3, 6, 7)
RNN = nn.GRU(6, 6, batch_first=True).requires_grad_(False)
DECODER = nn.TransformerDecoderLayer(6, 2, 8, batch_first=True).requires_grad_(False)


def _partly(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False):
        z = torch.einsum("bij,bjk->bik", x, y)
    return torch.einsum("bik,bij->bjk", z, x)


FORWARDS: dict[str, Callable[[], Any]] = {
    "einsum": lambda: torch.einsum("bij,bjk->bik", X, Y),
    "autocast off for a part": lambda: _partly(X, Y),
    "tensordot": lambda: torch.tensordot(X, Y[0], 1),
    "chain of matrices": lambda: torch.linalg.multi_dot([X[0], Y[0], Y[0].T]),
    "matmul": lambda: X @ Y,
    "linear": lambda: nn.functional.linear(X, Y[0].T),
    "distances": lambda: torch.cdist(X, X),
    "cosines": lambda: nn.functional.cosine_similarity(X, X),
    "bilinear": lambda: nn.functional.bilinear(X[0], X[0], Y[0][:, :6].expand(4, 6, 6)),
    "recurrent": lambda: RNN(X)[0],
    "decoder": lambda: DECODER(X, X),
    "loss": lambda: nn.functional.cross_entropy(X.flatten(0, 1), torch.zeros(15, dtype=torch.long)),
    "loss of angles": lambda: nn.functional.cosine_embedding_loss(X[0], X[0], torch.ones(5)),
}


@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("forward", FORWARDS)
def test_the_operators_are_those_of_a_forward_without_gradients(forward: str, dtype: torch.dtype | None) -> None:
    """Torch leaves composite operators to a dispatch mode in inference mode, below autocast; they are to be cast all the same."""
    with torch.no_grad(), torch.autocast("cpu", dtype, enabled=dtype is not None), Seen() as without_gradients:
        FORWARDS[forward]()
    with torch.inference_mode(), torch.autocast("cpu", dtype, enabled=dtype is not None), Seen() as inference:
        FORWARDS[forward]()

    assert without_gradients.operators == inference.operators
    assert without_gradients.operators


@torch.library.custom_op("napkin_composite::gram", mutates_args=())
def gram(x: torch.Tensor) -> torch.Tensor:
    """An operator written in Python, of one that torch decomposes."""
    return torch.matmul(x, x.transpose(1, 2)).clone()


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_an_operator_written_in_python_shows_what_it_runs(mode: Callable[[], Any], dtype: torch.dtype | None) -> None:
    """Its operators, and the dtype of its result, are those of the same function called by itself."""
    with mode(), torch.autocast("cpu", dtype, enabled=dtype is not None):
        alone = gram(X).dtype
        with Seen() as whole:
            inside = gram(X).dtype
        with torch.no_grad(), Seen() as plain:
            gram._init_fn(X)

    assert alone == inside
    assert plain.operators == whole.operators
    assert plain.operators


def test_an_operator_whose_cost_a_rule_states_is_one_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule counts all that runs inside it."""
    monkeypatch.setattr("calc.experiment.composite_operators.STATED", {"napkin_composite.gram.default"})
    with Seen() as seen:
        gram(X)

    assert [("napkin_composite.gram.default", "torch.float32")] == seen.operators

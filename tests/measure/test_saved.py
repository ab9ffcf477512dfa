"""Bytes that autograd holds when the forward returns, counted by hand."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from calc.measure import Reading, measure
from calc.options import Options
from calc.spec import Spec
from tests.measure import tiny


def saved(spec: Spec, attention: str = "fused") -> Reading:
    return measure(spec, {}, options=Options(optimizer="sgd", attention=attention))["activations.bytes"]


def test_a_linear_layer_saves_its_input_and_the_loss_its_two_arguments() -> None:
    """x (3, 5), the prediction (3, 7) and the target (3, 7) in fp32: 60 + 84 + 84 bytes; the weight is no activation."""
    assert 4 * (3 * 5 + 3 * 7 + 3 * 7) == saved(tiny.linear()).value


def test_a_storage_saved_twice_counts_once() -> None:
    """exp saves its result (3, 5) and the square saves the same tensor again: 60 bytes."""
    assert 4 * 3 * 5 == saved(tiny.function(lambda w, x: (w + x).exp().square().sum(), (3, 5))).value


def test_a_view_that_is_saved_counts_its_whole_storage() -> None:
    """Multiplying the weight with the first of 3 rows saves a view of x, whose storage has 15 elements."""
    assert 4 * 3 * 5 == saved(tiny.function(lambda w, x: (w * x[0]).sum(), (3, 5))).value


def test_what_was_packed_but_released_does_not_count() -> None:
    """A branch whose result is dropped in the forward is no longer held: only the input of the product that remains."""

    def loss(w: Tensor, x: Tensor) -> Tensor:
        dropped = (w * 2).exp().sum()
        del dropped
        return (w * x).sum()

    assert 4 * 5 == saved(tiny.function(loss, (5,))).value


def test_parameters_and_buffers_do_not_count() -> None:
    """w * buffer * x saves the buffer and the weight (both excluded), the product (5) and x (5): 40 bytes."""

    class Scaled(nn.Module):
        scale: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(5))
            self.register_buffer("scale", torch.randn(5))

    spec = tiny.summed(build=lambda s: Scaled(), inputs=lambda s: (torch.randn(5),), loss=lambda m, x: (m.w * m.scale * x).sum().square())

    # w * scale saves scale; times x saves x, since only the product needs a gradient; the square saves the sum, 1 element.
    assert 4 * (5 + 1) == saved(spec).value


def test_a_reused_module_saves_at_every_use() -> None:
    """A square layer applied twice saves x and its first result: 2 * 4 * 3*5 bytes."""
    spec = tiny.summed(build=lambda s: nn.Linear(s.n, s.n), loss=lambda module, x: module(module(x)).sum())

    assert 2 * 4 * 3 * 5 == saved(spec).value


def test_ids_and_labels_count_eight_bytes_each_and_shared_ones_once() -> None:
    """Ids used as input and as label are one int64 storage: saved bytes differ by it alone when labels are a copy."""

    def spec(copied: bool) -> Spec:
        def loss(module: nn.Module, ids: Tensor) -> Tensor:
            return F.cross_entropy(module(ids), ids.clone() if copied else ids)

        return Spec("ids", {"B": 11, "V": 13}, lambda s: nn.Embedding(s.V, s.V), lambda s: (torch.arange(s.B),), loss)

    shared, copied = saved(spec(False)).value, saved(spec(True)).value

    # log-probabilities (11, 13), ids (11), and the loss's total weight, one fp32.
    assert 4 * 11 * 13 + 8 * 11 + 4 == shared
    assert copied is not None
    assert 8 * 11 == copied - shared


def test_what_a_hand_written_function_keeps_as_an_attribute_counts() -> None:
    """A context's plain attribute passes no hook, but autograd holds it all the same."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, w: Tensor) -> Tensor:
            ctx.kept = torch.full((7,), 2.0)
            return w * 2

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0] * 2

    assert 4 * 7 == saved(tiny.function(lambda w, _: Double.apply(w).sum(), (3,))).value


def test_a_checkpointed_region_keeps_its_arguments_only() -> None:
    """Of w * x, exp and sin, only x (5) is held, and not the two results in between."""

    def loss(w: Tensor, x: Tensor) -> Tensor:
        inner: Tensor = checkpoint(lambda w, x: (w * x).exp().sin(), w, x, use_reentrant=False)
        return inner.sum()

    assert 4 * 5 == saved(tiny.function(loss, (5,))).value


def test_what_a_checkpointed_region_takes_from_outside_counts() -> None:
    """An intermediate that only the region's function refers to is held by its closure: exp(x) (5) and x (5)."""

    def loss(w: Tensor, x: Tensor) -> Tensor:
        taken = x.exp()
        inner: Tensor = checkpoint(lambda w, x: (w * x * taken).sin(), w, x, use_reentrant=False)
        return inner.sum()

    assert 4 * (5 + 5) == saved(tiny.function(loss, (5,))).value


def test_what_a_module_keeps_for_itself_is_not_autograds() -> None:
    """A result that the module remembers is alive after the forward, and after its graph is gone: only x (3, 5) is saved."""

    class Remembering(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            self.last = y.detach() * 2
            return y

    assert 4 * 3 * 5 == saved(tiny.summed(build=lambda s: Remembering(5, 7))).value


def test_the_state_of_a_random_generator_does_not_count() -> None:
    """A region with dropout keeps it to repeat the noise; no operator shows it, so it is not in the peak either."""

    def loss(w: Tensor, x: Tensor) -> Tensor:
        inner: Tensor = checkpoint(lambda w, x: F.dropout(w * x), w, x, use_reentrant=True)
        return inner.sum()

    assert 4 * 5 == saved(tiny.function(loss, (5,))).value


def test_dropout_saves_its_noise() -> None:
    """The module runs in training mode: x (3, 5) for the weight's gradient, and the noise (3, 5), both fp32."""
    assert 2 * 4 * 3 * 5 == saved(tiny.summed(build=lambda s: nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.5)))).value


def test_math_attention_saves_the_scores_that_fused_attention_does_not() -> None:
    """With 7 tokens the two backends hold different bytes, so the option really changes the run."""
    assert saved(tiny.attention()).value != saved(tiny.attention(), attention="math").value

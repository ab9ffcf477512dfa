"""Calls of attention kernels, and of torch's fast path for encoder layers."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import flop_counter

from tests.rules.calls import add, on_meta, r
from tests.rules.operators import Case

# -- attention: B = 2, h = 6 query heads, T = 5 queries, S = 7 keys, k = 11, v = 13 ----------


def _heads(g: int, v: int = 11, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return r(2, 6, 5, 11, device=device), r(2, g, 7, 11, device=device), r(2, g, 7, v, device=device)


def _products(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> int:
    return int(flop_counter.sdpa_flop_count(q.shape, *_for_each_head(q, k, v)))


def _five_products(out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> int:
    return int(flop_counter.sdpa_backward_flop_count(out.shape, q.shape, *_for_each_head(q, k, v)))


def _for_each_head(q: torch.Tensor, *shared: torch.Tensor) -> list[tuple[int, ...]]:
    """Shapes of keys and values that heads share, repeated for each: torch 2.11 counts nothing else."""
    return [(*q.shape[:2], *x.shape[2:]) for x in shared]


QK = 2 * 2 * 6 * 5 * 7 * 11


def _flash_cpu(g: int = 6, causal: bool = False, **kwargs: Any) -> Case:
    q, k, v = _heads(g)
    return Case((q, k, v, 0.0, causal), kwargs, matmul=_products(q, k, v), causal=(5, 7) if causal else None)


def _flash_cpu_backward(g: int = 6, causal: bool = False, **kwargs: Any) -> Case:
    q, k, v = _heads(g)
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, **kwargs)
    case = (torch.rand_like(out), q, k, v, out, lse, 0.0, causal)
    return Case(case, kwargs, _five_products(out, q, k, v), QK, (5, 7) if causal else None)


add(
    "_scaled_dot_product_flash_attention_for_cpu.default",
    _flash_cpu,
    lambda: _flash_cpu(2, causal=True),
    lambda: _flash_cpu(attn_mask=r(2, 6, 5, 7)),
)
add(
    "_scaled_dot_product_flash_attention_for_cpu_backward.default",
    _flash_cpu_backward,
    lambda: _flash_cpu_backward(2, causal=True),
    lambda: _flash_cpu_backward(attn_mask=r(2, 6, 5, 7)),
)


def _saved(q: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return on_meta(*q.shape[:-1], v.shape[-1]), on_meta(*q.shape[:-1])


def _counter() -> torch.Tensor:
    return torch.empty((), dtype=torch.int64, device="meta")


def _fused(*more: Any, g: int = 6, v: int = 11, causal: bool = False) -> Case:
    q, k, value = _heads(g, v, device="meta")
    return Case((q, k, value, *more), matmul=_products(q, k, value), causal=(5, 7) if causal else None)


add("_scaled_dot_product_flash_attention.default", lambda: _fused(0.0, False), lambda: _fused(0.25, True, causal=True))
add(
    "_scaled_dot_product_efficient_attention.default",
    lambda: _fused(None, True, 0.0, False, v=13),
    lambda: _fused(on_meta(2, 6, 5, 7), True, 0.25, True, causal=True),
)
add(
    "_scaled_dot_product_cudnn_attention.default",
    lambda: _fused(None, True, 0.0, False),
    lambda: _fused(on_meta(2, 6, 5, 7), True, 0.25, True, causal=True),
)


def _backward(order: str, dropout: float = 0.0, causal: bool = False, g: int = 6, v: int = 11, bias: bool = False) -> Case:
    """Arguments by letter: o output, l log-sum-exp, p random state, b bias, c cumulative lengths, d dropout, m mask, i causal."""
    q, k, value = _heads(g, v, device="meta")
    out, lse = _saved(q, value)
    mask = on_meta(2, 6, 5, 7) if bias else torch.empty(0, device="meta")
    letters: dict[str, tuple[Any, ...]] = {
        "o": (out,), "l": (lse,), "p": (_counter(), _counter()), "b": (mask,), "c": (None, None, 5, 7),
        "e": (_counter(), _counter(), 5, 7), "d": (dropout,), "m": ([True, True, True, False],), "i": (causal,),
    }  # fmt: skip
    args = (torch.empty_like(out), q, k, value, *(a for letter in order for a in letters[letter]))
    return Case(args, matmul=_five_products(out, q, k, value), recompute=QK, causal=(5, 7) if causal else None)


add(
    "_scaled_dot_product_flash_attention_backward.default",
    lambda: _backward("oledip"),
    lambda: _backward("oledip", 0.25, True, g=2),
)
add(
    "_scaled_dot_product_efficient_attention_backward.default",
    lambda: _backward("bolpdmi", v=13),
    lambda: _backward("bolpdmi", 0.25, True, bias=True, g=2),
)
add(
    "_scaled_dot_product_cudnn_attention_backward.default",
    lambda: _backward("olpbedi"),
    lambda: _backward("olpbedi", 0.25, True, bias=True, g=2),
)


# -- torch's fast path for encoder layers ----------


def _attended(heads: int, **options: Any) -> Case:
    """7 positions of 6 for each of 2 sequences attend to themselves: 2*2*7*6*(3*6) + 2*2*2*7*7*6 + 2*2*7*6*6 = 6384."""
    x = r(2, 7, 6)
    return Case((x, x, x, 6, heads, r(18, 6), r(18), r(6, 6), r(6)), options, matmul=6384)


def _encoded(gelu: bool, norm_first: bool) -> Case:
    """The same, and a feed-forward of 11: 6384 + 2*2*2*7*6*11 = 10080."""
    norms, ffn = (r(6), r(6), r(6), r(6)), (r(11, 6), r(11), r(6, 11), r(6))
    return Case((r(2, 7, 6), 6, 2, r(18, 6), r(18), r(6, 6), r(6), gelu, norm_first, 1e-5, *norms, *ffn), matmul=10080)


add(
    "_native_multi_head_attention.default",
    lambda: _attended(2, need_weights=False),
    lambda: _attended(3),
    lambda: _attended(3, average_attn_weights=False),
)
add(
    "_transformer_encoder_layer_fwd.default",
    lambda: _encoded(gelu=False, norm_first=False),
    lambda: _encoded(gelu=True, norm_first=True),
)

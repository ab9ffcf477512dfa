"""Attention, its replacements, and whole models of sequences."""

from __future__ import annotations

from typing import Any

import torch

from tests.thirdparty.case import Case


def _tokens(n: Any) -> tuple[torch.Tensor, ...]:
    return (torch.randint(0, n.V, (n.B, n.T)),)


def _features(n: Any) -> tuple[torch.Tensor, ...]:
    return (torch.randn(n.B, n.T, n.d),)


_LANGUAGE = {"B": 4, "T": 24, "d": 64, "h": 4, "V": 1000}
_FEATURES = {"B": 4, "T": 24, "d": 64, "h": 4}

CASES = (
    Case(
        "x-transformers",
        "x_transformers",
        "TransformerWrapper",
        {**_LANGUAGE, "L": 3},
        lambda m, n: m.TransformerWrapper(
            num_tokens=n.V, max_seq_len=512, attn_layers=m.Decoder(dim=n.d, depth=n.L, heads=n.h, rotary_pos_emb=True)
        ),
        _tokens,
        ({"B": 1}, {"d": 96, "h": 6, "T": 30}),
    ),
    Case(
        "x-transformers",
        "x_transformers",
        "Encoder, ff_glu",
        _FEATURES,
        lambda m, n: m.Encoder(dim=n.d, depth=2, heads=n.h, ff_glu=True, use_rmsnorm=True, attn_qk_norm=True),
        _features,
        ({"B": 1}, {"d": 120, "h": 6}),
    ),
    Case(
        "x-transformers",
        "x_transformers",
        "ContinuousTransformerWrapper",
        {"B": 4, "T": 24, "d": 64, "h": 4, "i": 10},
        lambda m, n: m.ContinuousTransformerWrapper(
            dim_in=n.i, dim_out=n.i, max_seq_len=64, attn_layers=m.Encoder(dim=n.d, depth=2, heads=n.h, sandwich_norm=True)
        ),
        lambda n: (torch.randn(n.B, n.T, n.i),),
        ({"B": 1, "T": 64}, {"d": 192, "i": 12}),
    ),
    Case(
        "linformer",
        "linformer",
        "Linformer",
        {"B": 4, "T": 32, "d": 64, "h": 4, "k": 16},
        lambda m, n: m.Linformer(dim=n.d, seq_len=n.T, depth=2, heads=n.h, k=n.k, one_kv_head=True, share_kv=True),
        _features,
        ({"B": 1}, {"d": 96, "T": 48, "k": 12}),
    ),
    Case(
        "performer-pytorch",
        "performer_pytorch",
        "SelfAttention",
        {**_FEATURES, "m": 32},
        lambda m, n: m.SelfAttention(dim=n.d, heads=n.h, dim_head=n.d // n.h, nb_features=n.m, causal=False),
        _features,
        ({"B": 1}, {"d": 96}),
    ),
    Case(
        "nystrom-attention",
        "nystrom_attention",
        "Nystromformer",
        {**_FEATURES, "m": 8},
        lambda m, n: m.Nystromformer(dim=n.d, dim_head=16, heads=n.h, depth=2, num_landmarks=n.m),
        _features,
        ({"B": 1}, {"d": 96, "T": 40}),
    ),
    Case(
        "local-attention",
        "local_attention",
        "LocalTransformer",
        {"B": 2, "T": 64, "d": 64, "h": 4, "V": 256, "w": 16},
        lambda m, n: m.LocalTransformer(
            num_tokens=n.V, dim=n.d, depth=2, heads=n.h, causal=True, local_attn_window_size=n.w, max_seq_len=1024
        ),
        _tokens,
        ({"B": 1}, {"d": 96, "T": 96}),
    ),
    Case(
        "linear-attention-transformer",
        "linear_attention_transformer",
        "LinearAttentionTransformerLM",
        {"B": 2, "T": 32, "d": 64, "h": 4, "V": 300},
        lambda m, n: m.LinearAttentionTransformerLM(num_tokens=n.V, dim=n.d, heads=n.h, depth=2, max_seq_len=n.T, causal=False),
        _tokens,
        ({"B": 1}, {"d": 96, "T": 40}),
    ),
    Case(
        "axial-attention",
        "axial_attention",
        "AxialAttention",
        {"B": 2, "H": 8, "W": 6, "d": 48, "h": 4},
        lambda m, n: m.AxialAttention(dim=n.d, dim_index=1, heads=n.h, num_dimensions=2),
        lambda n: (torch.randn(n.B, n.d, n.H, n.W),),
        ({"B": 1}, {"d": 96, "H": 6}),
    ),
    Case(
        "gateloop-transformer",
        "gateloop_transformer",
        "SimpleGateLoopLayer",
        {"B": 2, "T": 16, "d": 32},
        lambda m, n: m.SimpleGateLoopLayer(n.d),
        _features,
        ({"B": 1}, {"d": 48, "T": 32}),
    ),
    Case(
        "gateloop-transformer",
        "gateloop_transformer",
        "Transformer",
        {"B": 2, "T": 16, "d": 32, "V": 256},
        lambda m, n: m.Transformer(num_tokens=n.V, dim=n.d, depth=2, use_gate_looped_attn=True),
        _tokens,
        ({"B": 1}, {"d": 48, "T": 24}),
    ),
    Case(
        "conformer",
        "conformer",
        "Conformer",
        {**_FEATURES, "k": 16},
        lambda m, n: m.Conformer(dim=n.d, depth=2, dim_head=n.k, heads=n.h, ff_mult=4, conv_expansion_factor=2, conv_kernel_size=7),
        _features,
        ({"B": 1}, {"d": 96, "k": 8}),
    ),
    Case(
        "hyper-connections",
        "hyper_connections",
        "HyperConnections",
        {"B": 4, "T": 12, "d": 64},
        lambda m, n: m.HyperConnections(4, dim=n.d, branch=torch.nn.Linear(n.d, n.d)),
        lambda n: (torch.randn(4 * n.B, n.T, n.d),),
        ({"B": 1}, {"d": 96}),
    ),
    Case(
        "perceiver-pytorch",
        "perceiver_pytorch",
        "PerceiverIO",
        {"B": 2, "T": 20, "i": 12, "d": 32, "m": 8},
        lambda m, n: m.PerceiverIO(
            dim=n.i, queries_dim=n.d, num_latents=n.m, latent_dim=n.d, depth=2, cross_dim_head=16, latent_dim_head=16, latent_heads=2
        ),
        lambda n: (torch.randn(n.B, n.T, n.i),),
        ({"B": 1}, {"d": 48, "i": 16}),
    ),
    Case(
        "mambapy",
        "mambapy.mamba",
        "Mamba, sequential scan",
        {"B": 2, "T": 8, "d": 32},
        lambda m, n: m.Mamba(m.MambaConfig(d_model=n.d, n_layers=2, pscan=False)),
        _features,
        ({"B": 1}, {"d": 48}),
    ),
    Case(
        "st-moe-pytorch",
        "st_moe_pytorch",
        "MoE",
        {"B": 2, "T": 16, "d": 32, "E": 4},
        lambda m, n: m.MoE(dim=n.d, num_experts=n.E, gating_top_n=2),
        _features,
        ({"B": 1}, {"d": 48, "T": 24}),
    ),
    Case(
        "soft-moe-pytorch",
        "soft_moe_pytorch",
        "SoftMoE",
        {"B": 2, "T": 16, "d": 32, "E": 4},
        lambda m, n: m.SoftMoE(dim=n.d, seq_len=n.T, num_experts=n.E),
        _features,
        ({"B": 1}, {"d": 48, "T": 24}),
    ),
)

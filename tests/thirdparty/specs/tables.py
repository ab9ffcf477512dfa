"""Models of tables of features."""

from __future__ import annotations

import torch

from tests.thirdparty.case import Case

CASES = (
    Case(
        "rtdl-revisiting-models",
        "rtdl_revisiting_models",
        "FTTransformer",
        {"B": 16, "c": 6, "d": 64},
        lambda m, n: m.FTTransformer(
            n_cont_features=n.c,
            cat_cardinalities=[2, 3, 5],
            d_out=1,
            n_blocks=2,
            d_block=n.d,
            attention_n_heads=8,
            attention_dropout=0.1,
            ffn_d_hidden=None,
            ffn_d_hidden_multiplier=4 / 3,
            ffn_dropout=0.1,
            residual_dropout=0.0,
        ),
        lambda n: (torch.randn(n.B, n.c), torch.cat([torch.randint(0, c, (n.B, 1)) for c in (2, 3, 5)], dim=1)),
        ({"B": 1}, {"d": 192}, {"d": 96, "c": 8}),
    ),
    Case(
        "rtdl-revisiting-models",
        "rtdl_revisiting_models",
        "ResNet",
        {"B": 16, "c": 10, "d": 48},
        lambda m, n: m.ResNet(
            d_in=n.c, d_out=1, n_blocks=2, d_block=n.d, d_hidden=None, d_hidden_multiplier=2.5, dropout1=0.2, dropout2=0.0
        ),
        lambda n: (torch.randn(n.B, n.c),),
        ({"B": 3, "d": 50}, {"d": 96, "c": 8}),
    ),
    Case(
        "rtdl-num-embeddings",
        "rtdl_num_embeddings",
        "PeriodicEmbeddings",
        {"B": 16, "c": 10, "d": 24, "F": 8},
        lambda m, n: m.PeriodicEmbeddings(n.c, n.d, n_frequencies=n.F, lite=False),
        lambda n: (torch.randn(n.B, n.c),),
        ({"B": 1}, {"d": 48, "c": 8}),
    ),
    Case(
        "tabm",
        "tabm",
        "TabM",
        {"B": 16, "c": 10, "d": 64, "k": 8},
        lambda m, n: m.TabM(
            n_num_features=n.c, d_out=1, n_blocks=2, d_block=n.d, dropout=0.1, k=n.k, arch_type="tabm", start_scaling_init="random-signs"
        ),
        lambda n: (torch.randn(n.B, n.c),),
        ({"B": 1}, {"d": 96, "c": 8}),
    ),
    Case(
        "pytorch-tabnet",
        "pytorch_tabnet.tab_network",
        "TabNet",
        {"B": 32, "c": 12, "d": 16},
        lambda m, n: m.TabNet(
            n.c, 2, n_d=n.d, n_a=n.d, n_steps=3, virtual_batch_size=128, group_attention_matrix=torch.eye(n.c), cat_idxs=[], cat_dims=[]
        ),
        lambda n: (torch.randn(n.B, n.c),),
        ({"B": 6, "d": 12}, {"d": 8, "c": 8}),
    ),
    Case(
        "tab-transformer-pytorch",
        "tab_transformer_pytorch",
        "TabTransformer",
        {"B": 16, "c": 6, "d": 32},
        lambda m, n: m.TabTransformer(
            categories=(10, 5, 6),
            num_continuous=n.c,
            dim=n.d,
            dim_out=1,
            depth=2,
            heads=4,
            attn_dropout=0.1,
            ff_dropout=0.1,
            mlp_act=torch.nn.ReLU(),
        ),
        lambda n: (torch.cat([torch.randint(0, c, (n.B, 1)) for c in (10, 5, 6)], dim=1), torch.randn(n.B, n.c)),
        ({"B": 2}, {"d": 48, "c": 8}),
    ),
)

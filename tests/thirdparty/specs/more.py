"""Blocks and whole models of further packages."""

from __future__ import annotations

from typing import Any

import torch

from calc.dimensions import Dim
from tests.thirdparty.case import Case, mean_square


def _features(n: Any) -> tuple[torch.Tensor, ...]:
    return (torch.randn(n.B, n.T, n.d),)


def _image(n: Any) -> tuple[torch.Tensor, ...]:
    return (torch.randn(n.B, 3, n.S, n.S),)


def _labelled(n: Any) -> tuple[torch.Tensor, ...]:
    return (torch.randn(n.B, 3, n.S, n.S), torch.randint(0, n.V, (n.B,)))


def _cross_entropy(model: Any, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(image), label)


def _graph(n: Any) -> tuple[torch.Tensor, ...]:
    return (torch.randn(n.N, n.d), torch.randint(0, n.N, (2, n.M)))


def _transformers() -> Any:
    import transformers

    return transformers


_LLAMA = {"B": 2, "T": 12, "d": 32, "r": 4, "V": 100}


def _llama(n: Any) -> Any:
    config = _transformers().LlamaConfig(
        hidden_size=n.d,
        intermediate_size=2 * n.d,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=n.V,
        max_position_embeddings=64,
    )
    return _transformers().LlamaForCausalLM(config)


def _language(model: Any, ids: torch.Tensor) -> Any:
    return model(input_ids=ids, labels=ids, use_cache=False).loss


CASES = (
    Case(
        "pykan",
        "kan.KANLayer",
        "KANLayer",
        {"B": 8, "d": 6, "f": 5},
        lambda m, n: m.KANLayer(in_dim=n.d, out_dim=n.f, num=5, k=3),
        lambda n: (torch.randn(n.B, n.d),),
        ({"B": 1}, {"d": 9}),
    ),
    Case(
        "pytorch-wavelets",
        "pytorch_wavelets",
        "DWTForward of a convolution",
        {"B": 2, "S": 16, "c": 4},
        lambda m, n: torch.nn.Sequential(torch.nn.Conv2d(3, n.c, 3, padding=1), m.DWTForward(J=2, wave="db2", mode="zero")),
        _image,
        ({"B": 1}, {"S": 24, "c": 6}),
    ),
    Case(
        "mixture-of-experts",
        "mixture_of_experts",
        "MoE",
        {"B": 2, "T": 16, "d": 16, "E": 4},
        lambda m, n: m.MoE(dim=n.d, num_experts=n.E, hidden_dim=2 * n.d),
        _features,
        ({"B": 1}, {"d": 24, "T": 20}),
    ),
    Case(
        "pytorch-forecasting",
        "pytorch_forecasting.models.temporal_fusion_transformer.sub_modules",
        "GatedResidualNetwork",
        {"B": 4, "T": 10, "d": 16, "f": 24, "c": 5},
        lambda m, n: m.GatedResidualNetwork(n.d, n.f, n.d, dropout=0.1, context_size=n.c),
        lambda n: (torch.randn(n.B, n.T, n.d), torch.randn(n.B, n.T, n.c)),
        ({"B": 1}, {"d": 24, "f": 12}),
    ),
    Case(
        "pytorch-forecasting",
        "pytorch_forecasting.models.temporal_fusion_transformer.sub_modules",
        "InterpretableMultiHeadAttention",
        {"B": 4, "T": 10, "d": 16, "h": 4},
        lambda m, n: m.InterpretableMultiHeadAttention(n_head=n.h, d_model=n.d),
        _features,
        ({"B": 1}, {"d": 24, "T": 12}),
        lambda model, x: mean_square(model(x, x, x)),
    ),
    Case(
        "reformer-pytorch",
        "reformer_pytorch",
        "LSHSelfAttention",
        {"B": 2, "T": 32, "d": 32, "h": 4},
        lambda m, n: m.LSHSelfAttention(dim=n.d, heads=n.h, bucket_size=4, n_hashes=2, causal=True),
        _features,
        ({"B": 1}, {"d": 48, "T": 48}),
    ),
    Case(
        "lambda-networks",
        "lambda_networks",
        "LambdaLayer",
        {"B": 2, "S": 8, "d": 16},
        lambda m, n: m.LambdaLayer(dim=n.d, dim_out=n.d, r=5, dim_k=8, heads=2, dim_u=1),
        lambda n: (torch.randn(n.B, n.d, n.S, n.S),),
        ({"B": 1}, {"d": 24, "S": 12}),
    ),
    Case(
        "halonet-pytorch",
        "halonet_pytorch",
        "HaloAttention",
        {"B": 2, "S": 16, "d": 16, "h": 2},
        lambda m, n: m.HaloAttention(dim=n.d, block_size=4, halo_size=2, dim_head=8, heads=n.h),
        lambda n: (torch.randn(n.B, n.d, n.S, n.S),),
        ({"B": 1}, {"d": 24, "S": 24}),
    ),
    Case(
        "slot-attention",
        "slot_attention",
        "SlotAttention",
        {"B": 2, "T": 20, "d": 16, "s": 5},
        lambda m, n: m.SlotAttention(num_slots=n.s, dim=n.d, iters=2),
        _features,
        ({"B": 1}, {"d": 24, "s": 7}),
    ),
    Case(
        "iTransformer",
        "iTransformer",
        "iTransformer",
        {"B": 2, "T": 24, "d": 16, "h": 2, "V": 7},
        lambda m, n: m.iTransformer(
            num_variates=n.V, lookback_len=n.T, dim=n.d, depth=2, heads=n.h, dim_head=8, pred_length=(12,), num_tokens_per_variate=1
        ),
        lambda n: (torch.randn(n.B, n.T, n.V),),
        ({"B": 1}, {"d": 24, "V": 9}),
    ),
    Case(
        "g-mlp-pytorch",
        "g_mlp_pytorch",
        "gMLP",
        {"B": 2, "T": 16, "d": 16, "V": 50},
        lambda m, n: m.gMLP(num_tokens=n.V, dim=n.d, depth=2, seq_len=n.T),
        lambda n: (torch.randint(0, n.V, (n.B, n.T)),),
        ({"B": 1}, {"d": 24, "T": 20}),
    ),
    Case(
        "MEGABYTE-pytorch",
        "MEGABYTE_pytorch",
        "MEGABYTE",
        {"B": 2, "d": 32, "V": 64},
        lambda m, n: m.MEGABYTE(num_tokens=n.V, dim=(n.d, n.d // 2), max_seq_len=(8, 4), depth=(2, 1), dim_head=8, heads=2),
        lambda n: (torch.randint(0, n.V, (n.B, 8, 4)),),
        ({"B": 1}, {"d": 48}),
        lambda model, ids: model(ids, return_loss=True),
    ),
    Case(
        "efficientnet-pytorch",
        "efficientnet_pytorch",
        "EfficientNet b0",
        {"B": 2, "S": 64, "V": 10},
        lambda m, n: m.EfficientNet.from_name("efficientnet-b0", num_classes=n.V),
        _labelled,
        ({"S": 96},),
        _cross_entropy,
    ),
    Case(
        "normflows",
        "normflows.flows",
        "CoupledRationalQuadraticSpline",
        {"B": 64, "d": 6, "f": 16},
        lambda m, n: m.CoupledRationalQuadraticSpline(n.d, 2, n.f),
        lambda n: (4 * torch.randn(n.B, n.d),),  # within the interval of the spline and outside
        ({"B": 48}, {"f": 24}),
    ),
    Case(
        "deepctr-torch",
        "deepctr_torch.layers",
        "CIN",
        {"B": 8, "c": 5, "d": 6},
        lambda m, n: m.CIN(n.c, (12, 8)),
        lambda n: (torch.randn(n.B, n.c, n.d),),
        ({"B": 1}, {"c": 7, "d": 8}),
    ),
    Case(
        "deepctr-torch",
        "deepctr_torch.layers",
        "InteractingLayer",
        {"B": 8, "c": 5, "d": 8},
        lambda m, n: m.InteractingLayer(n.d, head_num=2),
        lambda n: (torch.randn(n.B, n.c, n.d),),
        ({"B": 1}, {"c": 7, "d": 12}),
    ),
    Case(
        "segment-anything",
        "segment_anything.modeling",
        "ImageEncoderViT",
        {"B": 1, "S": Dim(64, multiple_of=8), "d": Dim(32, multiple_of="h"), "h": 2},
        lambda m, n: m.ImageEncoderViT(
            img_size=n.S,
            patch_size=8,
            embed_dim=n.d,
            depth=2,
            num_heads=n.h,
            out_chans=16,
            use_rel_pos=True,
            window_size=3,
            global_attn_indexes=(1,),
        ),
        _image,
        ({"B": 2}, {"d": 48, "S": 96}),
    ),
    Case(
        "segment-anything",
        "segment_anything.modeling.transformer",
        "TwoWayTransformer",
        {"B": 2, "S": 6, "T": 5, "d": 32, "h": 4},
        lambda m, n: m.TwoWayTransformer(depth=2, embedding_dim=n.d, num_heads=n.h, mlp_dim=2 * n.d),
        lambda n: (torch.randn(n.B, n.d, n.S, n.S), torch.randn(n.B, n.d, n.S, n.S), torch.randn(n.B, n.T, n.d)),
        ({"B": 1}, {"d": 48, "S": 8}),
    ),
    Case(
        "mega-pytorch",
        "mega_pytorch.mega_pytorch",
        "MegaLayer",
        {"B": 2, "T": 16, "d": 16},
        lambda m, n: m.MegaLayer(dim=n.d, ema_heads=4, attn_dim_qk=8, attn_dim_value=16, laplacian_attn_fn=True),
        _features,
        ({"B": 1}, {"d": 24, "T": 20}),
    ),
    Case(
        "vit-pytorch",
        "vit_pytorch.cvt",
        "CvT",
        {"B": 2, "S": 64, "V": 10},
        lambda m, n: m.CvT(num_classes=n.V, s1_emb_dim=16, s2_emb_dim=32, s3_emb_dim=48, s2_depth=1, s3_depth=1, s2_heads=2, s3_heads=2),
        _labelled,
        ({"S": 96},),
        _cross_entropy,
    ),
    Case(
        "vit-pytorch",
        "vit_pytorch.cross_vit",
        "CrossViT",
        {"B": 2, "V": 10, "d": 32},
        lambda m, n: m.CrossViT(
            image_size=64,
            num_classes=n.V,
            depth=1,
            sm_dim=n.d,
            sm_patch_size=16,
            sm_enc_depth=1,
            sm_enc_heads=2,
            sm_enc_mlp_dim=64,
            lg_dim=2 * n.d,
            lg_patch_size=32,
            lg_enc_depth=1,
            lg_enc_heads=2,
            lg_enc_mlp_dim=64,
        ),
        lambda n: (torch.randn(n.B, 3, 64, 64), torch.randint(0, n.V, (n.B,))),
        ({"B": 1}, {"d": 48}),
        _cross_entropy,
    ),
    Case(
        "timm",
        "timm.models.convnext",
        "ConvNeXt",
        {"B": 2, "S": 64, "d": 16, "V": 10},
        lambda m, n: m.ConvNeXt(num_classes=n.V, depths=(1, 1, 1, 1), dims=(n.d, 2 * n.d, 4 * n.d, 8 * n.d)),
        _labelled,
        ({"B": 1}, {"S": 96, "d": 24}),
        _cross_entropy,
    ),
    Case(
        "timm",
        "timm.models.beit",
        "Beit",
        {"B": 2, "d": 32, "h": 2, "V": 10},
        lambda m, n: m.Beit(img_size=32, patch_size=8, num_classes=n.V, embed_dim=n.d, depth=2, num_heads=n.h, use_rel_pos_bias=True),
        lambda n: (torch.randn(n.B, 3, 32, 32), torch.randint(0, n.V, (n.B,))),
        ({"B": 1}, {"d": 48}),
        _cross_entropy,
    ),
    Case(
        "torchvision",
        "torchvision.models.swin_transformer",
        "SwinTransformer v2",
        {"B": 2, "d": 16, "V": 10},
        lambda m, n: m.SwinTransformer(
            patch_size=[4, 4],
            embed_dim=n.d,
            depths=[2, 2],
            num_heads=[2, 4],
            window_size=[4, 4],
            num_classes=n.V,
            block=m.SwinTransformerBlockV2,
            downsample_layer=m.PatchMergingV2,
        ),
        lambda n: (torch.randn(n.B, 3, 64, 64), torch.randint(0, n.V, (n.B,))),
        ({"B": 1}, {"d": 24}),
        _cross_entropy,
    ),
    Case(
        "torchvision",
        "torchvision.ops",
        "FeaturePyramidNetwork",
        {"B": 2, "S": 16, "c": 8, "f": 12},
        lambda m, n: m.FeaturePyramidNetwork([n.c, 2 * n.c], n.f),
        lambda n: (torch.randn(n.B, n.c, n.S, n.S), torch.randn(n.B, 2 * n.c, n.S // 2, n.S // 2)),
        ({"B": 1}, {"S": 24, "c": 10}),
        lambda model, x, y: sum(mean_square(part) for part in model({"x": x, "y": y}).values()),
    ),
    Case(
        "x-transformers",
        "x_transformers",
        "Decoder, grouped queries and alibi",
        {"B": 2, "T": 16, "d": 32, "h": 4, "V": 60},
        lambda m, n: m.TransformerWrapper(
            num_tokens=n.V,
            max_seq_len=64,
            use_abs_pos_emb=False,
            attn_layers=m.Decoder(dim=n.d, depth=2, heads=n.h, attn_kv_heads=2, attn_dim_head=8, alibi_pos_bias=True, shift_tokens=1),
        ),
        lambda n: (torch.randint(0, n.V, (n.B, n.T)),),
        ({"B": 1}, {"d": 48, "T": 20}),
    ),
    Case(
        "torch-geometric",
        "torch_geometric.nn",
        "TransformerConv",
        {"N": 30, "M": 100, "d": 16, "f": 8, "h": 2},
        lambda m, n: m.TransformerConv(n.d, n.f, heads=n.h, beta=True),
        _graph,
        ({"h": 1}, {"d": 24}),
    ),
    Case(
        "torch-geometric",
        "torch_geometric.nn",
        "EdgeConv",
        {"N": 30, "M": 100, "d": 16, "f": 8},
        lambda m, n: m.EdgeConv(torch.nn.Sequential(torch.nn.Linear(2 * n.d, n.f), torch.nn.ReLU(), torch.nn.Linear(n.f, n.f))),
        _graph,
        ({"M": 1}, {"d": 24}),
    ),
    Case(
        "peft",
        "peft",
        "IA3 of a Llama",
        _LLAMA,
        lambda m, n: m.get_peft_model(
            _llama(n), m.IA3Config(target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"])
        ),
        lambda n: (torch.randint(0, n.V, (n.B, n.T)),),
        ({"B": 1}, {"d": 48}),
        _language,
    ),
    Case(
        "peft",
        "peft",
        "DoRA of a Llama",
        _LLAMA,
        lambda m, n: m.get_peft_model(_llama(n), m.LoraConfig(r=n.r, use_dora=True, target_modules=["q_proj", "v_proj"])),
        lambda n: (torch.randint(0, n.V, (n.B, n.T)),),
        ({"B": 1}, {"d": 48}),
        _language,
    ),
    Case(
        "monai",
        "monai.networks.nets",
        "AttentionUnet",
        {"B": 2, "S": 16, "c": 4},
        lambda m, n: m.AttentionUnet(spatial_dims=2, in_channels=1, out_channels=2, channels=(n.c, 2 * n.c), strides=(2,)),
        lambda n: (torch.randn(n.B, 1, n.S, n.S),),
        ({"B": 1}, {"S": 24, "c": 6}),
    ),
    Case(
        "kornia",
        "kornia.filters",
        "UnsharpMask of a convolution",
        {"B": 2, "S": 16, "c": 3},
        lambda m, n: torch.nn.Sequential(torch.nn.Conv2d(3, n.c, 3, padding=1), m.UnsharpMask((5, 5), (1.5, 1.5))),
        _image,
        ({"B": 1}, {"S": 24, "c": 4}),
    ),
    Case(
        "diffusers",
        "diffusers.models.resnet",
        "ResnetBlock2D",
        {"B": 2, "S": 8, "c": 16, "f": 24, "t": 20},
        lambda m, n: m.ResnetBlock2D(in_channels=n.c, out_channels=n.f, temb_channels=n.t, groups=8),
        lambda n: (torch.randn(n.B, n.c, n.S, n.S), torch.randn(n.B, n.t)),
        ({"B": 1}, {"c": 24, "f": 32}),
    ),
)

"""Images and volumes."""

from __future__ import annotations

from typing import Any

import torch

from tests.thirdparty.case import Case


def _image(n: Any) -> tuple[torch.Tensor, ...]:
    return (torch.randn(n.B, 3, n.S, n.S),)


def _labelled(n: Any) -> tuple[torch.Tensor, ...]:
    return (torch.randn(n.B, 3, n.S, n.S), torch.randint(0, n.V, (n.B,)))


def _cross_entropy(model: Any, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(image), label)


def _volume(n: Any) -> tuple[torch.Tensor, ...]:
    return (torch.randn(n.B, 1, n.S, n.S, n.S),)


CASES = (
    Case(
        "vit-pytorch",
        "vit_pytorch",
        "ViT",
        {"B": 4, "S": 32, "d": 64, "h": 4, "f": "2*d", "V": 10},
        lambda m, n: m.ViT(
            image_size=n.S, patch_size=8, num_classes=n.V, dim=n.d, depth=2, heads=n.h, mlp_dim=n.f, dim_head=16, dropout=0.1
        ),
        _labelled,
        ({"B": 1}, {"S": 48, "d": 96}),
        _cross_entropy,
    ),
    Case(
        "vit-pytorch",
        "vit_pytorch.cait",
        "CaiT",
        {"B": 4, "S": 32, "d": 64, "h": 4, "V": 10},
        lambda m, n: m.CaiT(
            image_size=n.S, patch_size=8, num_classes=n.V, dim=n.d, depth=2, cls_depth=2, heads=n.h, mlp_dim=2 * n.d, dim_head=16
        ),
        _labelled,
        ({"B": 1}, {"S": 48, "d": 96}),
        _cross_entropy,
    ),
    Case(
        "vit-pytorch",
        "vit_pytorch.max_vit",
        "MaxViT",
        {"B": 2, "d": 32, "V": 10},
        lambda m, n: m.MaxViT(num_classes=n.V, dim=n.d, dim_conv_stem=n.d, depth=(1, 1), dim_head=16, window_size=4, dropout=0.0),
        lambda n: (torch.randn(n.B, 3, 64, 64), torch.randint(0, n.V, (n.B,))),
        ({"B": 1}, {"d": 48}),
        _cross_entropy,
    ),
    Case(
        "mlp-mixer-pytorch",
        "mlp_mixer_pytorch",
        "MLPMixer",
        {"B": 4, "S": 32, "d": 64, "V": 10},
        lambda m, n: m.MLPMixer(image_size=n.S, channels=3, patch_size=8, dim=n.d, depth=2, num_classes=n.V),
        _labelled,
        ({"B": 1}, {"S": 48, "d": 96}),
        _cross_entropy,
    ),
    Case(
        "deformable-attention",
        "deformable_attention",
        "DeformableAttention",
        {"B": 2, "S": 16, "d": 32, "h": 4},
        lambda m, n: m.DeformableAttention(
            dim=n.d, dim_head=16, heads=n.h, downsample_factor=4, offset_scale=4, offset_groups=None, offset_kernel_size=6
        ),
        lambda n: (torch.randn(n.B, n.d, n.S, n.S),),
        ({"B": 1}, {"d": 48, "S": 24}),
    ),
    Case(
        "timm",
        "timm",
        "resnet18",
        {"B": 4, "S": 64, "V": 10},
        lambda m, n: m.create_model("resnet18", num_classes=n.V),
        _labelled,
        ({"B": 2, "S": 96}, {"S": 72}),
        _cross_entropy,
    ),
    Case(
        "timm",
        "timm.models.vision_transformer",
        "VisionTransformer",
        {"B": 4, "S": 32, "d": 64, "h": 4, "L": 2, "V": 10},
        lambda m, n: m.VisionTransformer(img_size=n.S, patch_size=8, num_classes=n.V, embed_dim=n.d, depth=n.L, num_heads=n.h),
        _labelled,
        ({"B": 1}, {"S": 48, "d": 96, "h": 6}),
        _cross_entropy,
    ),
    Case(
        "timm",
        "timm.models.swin_transformer",
        "SwinTransformer",
        {"B": 2, "d": 24, "V": 10},
        lambda m, n: m.SwinTransformer(
            img_size=64, patch_size=4, num_classes=n.V, embed_dim=n.d, depths=(2, 2), num_heads=(2, 4), window_size=4, drop_path_rate=0.0
        ),
        lambda n: (torch.randn(n.B, 3, 64, 64), torch.randint(0, n.V, (n.B,))),
        ({"B": 1}, {"d": 48}),
        _cross_entropy,
    ),
    Case(
        "timm",
        "timm",
        "mobilenetv3_small_100",
        {"B": 4, "S": 64, "V": 10},
        lambda m, n: m.create_model("mobilenetv3_small_100", num_classes=n.V),
        _labelled,
        ({"B": 2, "S": 96},),
        _cross_entropy,
    ),
    Case(
        "torchvision",
        "torchvision.models",
        "resnet18",
        {"B": 4, "S": 64, "V": 10, "w": 64},
        lambda m, n: m.ResNet(m.resnet.BasicBlock, [2, 2, 2, 2], num_classes=n.V),
        _labelled,
        ({"B": 1}, {"S": 96}),
        _cross_entropy,
    ),
    Case(
        "torchvision",
        "torchvision.models",
        "vit",
        {"B": 2, "S": 32, "d": 48, "h": 4, "V": 10},
        lambda m, n: m.VisionTransformer(
            image_size=n.S, patch_size=8, num_layers=2, num_heads=n.h, hidden_dim=n.d, mlp_dim=4 * n.d, num_classes=n.V
        ),
        _labelled,
        ({"B": 1}, {"S": 48, "d": 96}),
        _cross_entropy,
    ),
    Case(
        "segmentation_models_pytorch",
        "segmentation_models_pytorch",
        "Unet",
        {"B": 2, "S": 64, "V": 3},
        lambda m, n: m.Unet("resnet18", encoder_weights=None, classes=n.V),
        _image,
        ({"B": 1}, {"S": 96}),
    ),
    Case(
        "segmentation_models_pytorch",
        "segmentation_models_pytorch",
        "FPN",
        {"B": 2, "S": 64, "V": 3},
        lambda m, n: m.FPN("resnet18", encoder_weights=None, classes=n.V),
        _image,
        ({"B": 1}, {"S": 96}),
    ),
    Case(
        "open_clip_torch",
        "open_clip.transformer",
        "TextTransformer",
        {"B": 4, "T": 16, "d": 64, "h": 4, "V": 400},
        lambda m, n: m.TextTransformer(context_length=n.T, vocab_size=n.V, width=n.d, heads=n.h, layers=2, output_dim=32),
        lambda n: (torch.randint(0, n.V, (n.B, n.T)),),
        ({"B": 1}, {"d": 96, "T": 20}),
    ),
    Case(
        "monai",
        "monai.networks.nets",
        "UNet",
        {"B": 2, "S": 16, "c": 8},
        lambda m, n: m.UNet(
            spatial_dims=3, in_channels=1, out_channels=2, channels=(n.c, 2 * n.c, 4 * n.c), strides=(2, 2), num_res_units=2
        ),
        _volume,
        ({"B": 1}, {"S": 24, "c": 6}),
    ),
    Case(
        "monai",
        "monai.networks.nets",
        "SegResNet",
        {"B": 2, "S": 16, "c": 8},
        lambda m, n: m.SegResNet(spatial_dims=3, init_filters=n.c, blocks_down=(1, 2), blocks_up=(1,)),
        _volume,
        ({"B": 1}, {"S": 24, "c": 16}),
    ),
    Case(
        "monai",
        "monai.networks.nets",
        "VNet",
        {"B": 1, "S": 32},
        lambda m, n: m.VNet(spatial_dims=2, in_channels=1, out_channels=2),
        lambda n: (torch.randn(n.B, 1, n.S, n.S),),
        ({"B": 2}, {"S": 48}),
    ),
    Case(
        "monai",
        "monai.networks.nets",
        "UNETR",
        {"B": 2, "S": 32, "d": 48, "c": 4},
        lambda m, n: m.UNETR(1, 2, (n.S, n.S), feature_size=n.c, hidden_size=n.d, mlp_dim=2 * n.d, num_heads=4, spatial_dims=2),
        lambda n: (torch.randn(n.B, 1, n.S, n.S),),
        ({"B": 1}, {"S": 48, "d": 96}),
    ),
    Case(
        "diffusers",
        "diffusers",
        "UNet2DModel",
        {"B": 2, "S": 16, "c": 32},
        lambda m, n: m.UNet2DModel(
            sample_size=16,
            block_out_channels=(n.c, 2 * n.c),
            norm_num_groups=8,
            layers_per_block=1,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        ),
        lambda n: (torch.randn(n.B, 3, n.S, n.S), torch.randint(0, 1000, (n.B,))),
        ({"B": 1}, {"S": 24, "c": 48}),
        lambda model, x, t: (model(x, t).sample - x).square().mean(),
    ),
    Case(
        "diffusers",
        "diffusers.models.attention",
        "BasicTransformerBlock",
        {"B": 2, "T": 20, "d": 32, "h": 4, "c": 24, "S": 7},
        lambda m, n: m.BasicTransformerBlock(n.d, n.h, 16, cross_attention_dim=n.c),
        lambda n: (torch.randn(n.B, n.T, n.d), torch.randn(n.B, n.S, n.c)),
        ({"B": 1}, {"d": 48, "c": 32}),
        lambda model, x, context: model(x, encoder_hidden_states=context).square().mean(),
    ),
    Case(
        "diffusers",
        "diffusers",
        "AutoencoderKL",
        {"B": 2, "S": 16, "c": 16},
        lambda m, n: m.AutoencoderKL(
            block_out_channels=(n.c, 2 * n.c),
            norm_num_groups=8,
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
        ),
        _image,
        ({"B": 1}, {"S": 24, "c": 24}),
        lambda model, x: (model(x).sample - x).square().mean(),
    ),
    Case(
        "denoising-diffusion-pytorch",
        "denoising_diffusion_pytorch",
        "Unet",
        {"B": 2, "S": 16, "c": 16},
        lambda m, n: m.Unet(dim=n.c, dim_mults=(1, 2), attn_heads=2, attn_dim_head=8),
        lambda n: (torch.randn(n.B, 3, n.S, n.S), torch.rand(n.B)),
        ({"B": 1}, {"S": 24, "c": 24}),
    ),
    Case(
        "kornia",
        "kornia.feature",
        "HardNet",
        {"B": 8},
        lambda m, n: m.HardNet(pretrained=False),
        lambda n: (torch.randn(n.B, 1, 32, 32),),
        ({"B": 2}, {"B": 36}),
    ),
    Case(
        "kornia",
        "kornia.feature.loftr.loftr_module.transformer",
        "LoFTREncoderLayer",
        {"B": 2, "T": 20, "S": 28, "d": 32, "h": 4},
        lambda m, n: m.LoFTREncoderLayer(n.d, n.h, "linear"),
        lambda n: (torch.randn(n.B, n.T, n.d), torch.randn(n.B, n.S, n.d)),
        ({"B": 1}, {"d": 48, "S": 20}),
    ),
    Case(
        "pytorch-msssim",
        "pytorch_msssim",
        "SSIM of a convolution",
        {"B": 2, "S": 32, "c": 3},
        lambda m, n: torch.nn.Sequential(torch.nn.Conv2d(n.c, n.c, 3, padding=1), torch.nn.Sigmoid()),
        lambda n: (torch.rand(n.B, n.c, n.S, n.S), torch.rand(n.B, n.c, n.S, n.S)),
        ({"B": 1}, {"S": 40, "c": 4}),
        lambda model, x, y: 1 - __import__("pytorch_msssim").ssim(model(x), y, data_range=1.0),
    ),
)

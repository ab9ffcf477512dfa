"""ViT-B/16 and ResNet-50 v1.5: parameters and products by hand, and what makes them these models."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import calc
from calc.errors import DimensionError
from calc.models.load import load
from tests.models.building import build, parameters

VIT = {"B": 2, "S": 21, "P": 7, "d": 26, "h": 2, "f": 11, "L": 4, "K": 17}
RESNET = {"B": 3, "S": 64, "w": 7, "K": 11}


def products(name: str, **sizes: int) -> int:
    """Forward multiply-adds by torch's counter, on tensors without memory (where no kernel is fused)."""
    with torch.device("meta"):
        module, inputs, _ = build(load(name), **sizes)
        with FlopCounterMode(display=False) as counter:
            module(inputs[0])
    return counter.get_total_flops() // 2


# -- ViT ----------------------------------------------------------------------------------------------------------------------


def test_vit_has_the_published_number_of_parameters() -> None:
    """Patches 3*16^2 d + d, a class token d, 14^2 + 1 positions, blocks of 4 d^2 + 2 d f + 9 d + f, a norm 2 d, a head 1000 d + 1000."""
    d, f = 768, 3072
    blocks = 12 * (4 * d**2 + 4 * d + 2 * d * f + d + f + 4 * d)

    assert 3 * 16**2 * d + d + d + 197 * d + blocks + 2 * d + 1000 * d + 1000 == 86_567_656
    assert parameters("vit-b") == 86_567_656


def test_vit_multiplies_as_often_as_published() -> None:
    """A sequence of N = 197: 196 patches of 3*16^2 d; blocks of N (4 d^2 + 2 d f) + 2 N^2 d; a head of 1000 d: 17.564 G."""
    N, d, f = 197, 768, 3072

    assert 196 * 768 * d + 12 * (N * (4 * d**2 + 2 * d * f) + 2 * N**2 * d) + 1000 * d == 17_563_828_224
    assert products("vit-b", B=1) == 17_563_828_224


def test_vit_follows_every_one_of_its_dimensions() -> None:
    """At P 7, nine patches, d 26, f 11, L 4, K 17."""
    blocks = 4 * (4 * 26**2 + 2 * 26 * 11 + 9 * 26 + 11)

    assert 3 * 7**2 * 26 + 26 + 26 + 10 * 26 + blocks + 2 * 26 + 17 * 26 + 17 == parameters("vit-b", **VIT)


def test_vit_looks_at_every_pixel() -> None:
    """The logits, which are read off the class token, have a gradient in each."""
    torch.manual_seed(0)
    module, (images, _), _ = build(load("vit-b"), **VIT)

    module(images.requires_grad_()).square().sum().backward()

    assert images.grad is not None
    assert bool(images.grad.all())


def test_vit_refuses_an_image_that_is_not_made_of_patches() -> None:
    """225 is not a multiple of 16."""
    with pytest.raises(DimensionError, match=r"^p = S/P is not an integer at S = 225, P = 16: choose S as a multiple of P, e.g. S = 224$"):
        load("vit-b").sizes({"S": 225})


# -- ResNet ---------------------------------------------------------------------------------------------------------------------


def test_resnet_has_the_published_number_of_parameters() -> None:
    """25.6 M: the convolutions of a block of inner width i are i w + 9 w^2 + 4 w^2, its norms 2 (w + w + 4 w); see below."""
    convolutions = norms = 0
    inner = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        w = 64 * 2**stage
        for block in range(blocks):
            convolutions += inner * w + 9 * w**2 + 4 * w**2 + (4 * inner * w if block == 0 else 0)
            norms += 2 * 6 * w + (2 * 4 * w if block == 0 else 0)
            inner = 4 * w

    assert 3 * 64 * 49 + 2 * 64 + convolutions + norms + 2048 * 1000 + 1000 == 25_557_032
    assert parameters("resnet50") == 25_557_032


def test_resnet_multiplies_as_often_as_version_1_5() -> None:
    """4.089 G. With the stride in the first convolution of a stage, as in the paper, it would be 3.858 G."""
    assert products("resnet50", B=1) == 4_089_184_256


def test_resnet_has_its_strides_in_the_wide_convolutions() -> None:
    """Which is what makes it version 1.5."""
    module, _, _ = build(load("resnet50"), **RESNET)
    strided = [name for name, m in module.named_modules() if isinstance(m, nn.Conv2d) and m.stride == (2, 2)]

    assert strided == ["conv1", *(f"layer{i}.0.{name}" for i in (2, 3, 4) for name in ("conv2", "downsample.0"))]


def test_resnet_names_its_modules_as_published_checkpoints_do() -> None:
    """So that module paths in a report are those its reader knows."""
    module, _, _ = build(load("resnet50"), **RESNET)

    assert {"conv1", "bn1", "layer1.0.downsample.0", "layer3.5.conv3", "layer4.2.bn3", "fc"} <= {name for name, _ in module.named_modules()}


def test_resnet_refuses_an_image_that_cannot_be_halved_five_times() -> None:
    """200 is not a multiple of 32."""
    with pytest.raises(DimensionError, match=r"^S = 200 is not divisible by 32: this model needs S to be a multiple of 32$"):
        load("resnet50").sizes({"S": 200})


@pytest.mark.slow
def test_vit_in_inference_mode() -> None:
    """The class token is a parameter, made outside that mode, and the forward makes views of it inside."""
    trained, used = (calc.derive(load("vit-b"), cache=False, mode=mode, optimizer="sgd") for mode in ("train", "infer"))

    assert trained["flops.forward.matmul"].expr == used["flops.forward.matmul"].expr

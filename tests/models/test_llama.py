"""Llama and Mixtral: parameters by hand, and the same numbers and the same logits as the library's models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.models.load import load
from calc.spec import Sizes
from tests.models.building import build, parameters

SMALL = {"B": 2, "T": 7, "d": 24, "h": 6, "g": 3, "k": 10, "f": 16, "L": 4, "V": 17}
EXPERTS = SMALL | {"E": 5, "e": 2}
CONFIG = {
    "hidden_size": SMALL["d"],
    "num_attention_heads": SMALL["h"],
    "num_key_value_heads": SMALL["g"],
    "head_dim": SMALL["k"],
    "intermediate_size": SMALL["f"],
    "num_hidden_layers": SMALL["L"],
    "vocab_size": SMALL["V"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "rms_norm_eps": 1e-5,
}
LLAMA = CONFIG | {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}


def by_hand(d: int, q: int, kv: int, L: int, V: int, feed_forward: int) -> int:
    """Embedding and head 2 V d; L blocks of attention 2 d q + 2 d kv, two norms 2 d, and what follows; a last norm d."""
    return 2 * V * d + L * (2 * d * q + 2 * d * kv + 2 * d + feed_forward) + d


@pytest.mark.parametrize(
    ("name", "d", "f", "L", "published"),
    [("llama3-8b", 4096, 14336, 32, 8_030_261_248), ("llama3-70b", 8192, 28672, 80, 70_553_706_496)],
)
def test_llama_has_the_published_number_of_parameters(name: str, d: int, f: int, L: int, published: int) -> None:
    """Queries as wide as the model, eight key and value heads of 128, a gated feed-forward of 3 d f."""
    assert by_hand(d, d, 8 * 128, L, 128256, 3 * d * f) == published
    assert parameters(name) == published


def test_mixtral_has_the_published_number_of_parameters() -> None:
    """46.7 B: eight experts of 3 d f each and a router of 8 d in every block."""
    d, f = 4096, 14336

    assert by_hand(d, d, 8 * 128, 32, 32000, 8 * 3 * d * f + 8 * d) == 46_702_792_704
    assert parameters("mixtral") == 46_702_792_704


@pytest.mark.parametrize(("name", "sizes", "each"), [("llama3-8b", SMALL, 3 * 24 * 16), ("mixtral", EXPERTS, 5 * 3 * 24 * 16 + 5 * 24)])
def test_every_width_is_a_dimension(name: str, sizes: dict[str, int], each: int) -> None:
    """At d 24, h k = 60, g k = 30, L 4, V 17 too."""
    assert by_hand(24, 60, 30, 4, 17, each) == parameters(name, **sizes)


def library(architecture: str, config: dict[str, Any]) -> nn.Module:
    """The library's model of that config."""
    transformers = pytest.importorskip("transformers")
    config_class = getattr(transformers, architecture.removesuffix("ForCausalLM") + "Config")
    torch.manual_seed(0)
    return getattr(transformers, architecture)(config_class(**config))


def logits_of(model: nn.Module, ids: Tensor) -> Tensor:
    logits: Tensor = model(input_ids=ids, use_cache=False).logits
    return logits


def test_llama_computes_what_the_library_computes() -> None:
    """With the library's weights, under the same names, the logits are the same."""
    theirs = library("LlamaForCausalLM", LLAMA)
    ours, (ids, _), _ = build(load("llama3-8b"), **SMALL)

    ours.load_state_dict(theirs.state_dict())

    torch.testing.assert_close(ours(ids), logits_of(theirs, ids))


def test_mixtral_computes_what_the_library_computes() -> None:
    """With the library's weights, each expert's matrices transposed, the logits are the same."""
    own = {"num_local_experts": 5, "num_experts_per_tok": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
    theirs = library("MixtralForCausalLM", CONFIG | own)
    ours, (ids, _), _ = build(load("mixtral"), **EXPERTS)

    ours.load_state_dict({name: w.mT if ".experts." in name else w for name, w in theirs.state_dict().items()})

    torch.testing.assert_close(ours(ids), logits_of(theirs, ids))


@pytest.mark.slow
def test_llama_costs_what_the_library_costs(tmp_path: Path) -> None:
    """Parameters, products and optimizer state of the closed forms of both, derived apart, are equal at sizes of neither."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    theirs, ours = calc.derive(load(f"hf:{tmp_path}"), cache=False), calc.derive(load("llama3-8b"), cache=False)
    at = {"B": 3, "T": 11, "d": 28, "h": 14, "g": 7, "k": 8, "f": 19, "L": 5, "V": 23}

    for quantity in ("parameters", "optimizer_state.bytes", "flops.forward.matmul", "flops.backward.matmul", "flops.backward.recompute"):
        assert ours[quantity].at(**at) == theirs[quantity].at(**at)


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral"])
def test_attention_is_causal(name: str) -> None:
    """Logits of a position do not change with the tokens after it, and do with the one at it."""
    torch.manual_seed(0)
    module, (ids, _), n = build(load(name), **(EXPERTS if name == "mixtral" else SMALL))
    other = ids.clone()
    other[:, 4] = (ids[:, 4] + 1) % n.V

    before, after = module(ids), module(other)

    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])


def test_rotation_depends_on_the_distance_of_positions_only() -> None:
    """The product of a rotated query and key is the same one position further on."""
    from calc.models.llama import rotate, rotations

    torch.manual_seed(0)
    q, k = torch.randn(10).expand(1, 1, 7, 10), torch.randn(10).expand(1, 1, 7, 10)
    rotation = rotations(torch.zeros(1, 7, 3), 10, 100.0)

    products = (rotate(q, rotation) @ rotate(k, rotation).mT)[0, 0]

    torch.testing.assert_close(products[1:, 1:], products[:-1, :-1])
    assert not torch.allclose(products[1:, 1:], products[1:, :-1])


def test_experts_multiply_as_many_rows_whatever_is_chosen() -> None:
    """A router that sends every token to the same two experts leaves the others without rows; all else is as ever."""
    spec = load("mixtral")
    module, inputs, _ = build(spec, **EXPERTS)
    with torch.no_grad():
        for name, p in module.named_parameters():
            if name.endswith("mlp.gate.weight"):
                p.zero_()

    spec.loss(module, *inputs).backward()

    gradient = module.get_parameter("model.layers.0.mlp.experts.down_proj").grad
    assert gradient is not None
    assert [bool(g.any()) for g in gradient].count(False) == 3


def test_mixtral_refuses_more_experts_per_token_than_experts() -> None:
    """There are E of them."""
    with pytest.raises(calc.NapkinError, match=r"^e = 9 is more than E = 8: this model needs e <= E: lower e or raise E$"):
        load("mixtral").sizes({"e": 9})


def test_sizes_of_a_mixture_are_those_of_its_spec() -> None:
    """Every dimension of the spec is read when the module is built or fed."""
    spec = load("mixtral")
    read = set()

    class Watched(Sizes):
        def __getattribute__(self, name: str) -> Any:
            read.add(name)
            return super().__getattribute__(name)

    n = Watched(**spec.sizes(EXPERTS))
    spec.build(n)
    spec.inputs(n)

    assert set(spec.dims) <= read

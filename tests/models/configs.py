"""Configs of small models of the library, and the specs that are made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from calc.models.load import load
from calc.spec import Sizes, Spec

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 48,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "vocab_size": 97,
    "max_position_embeddings": 64,
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "n_embd": 48,
    "n_head": 6,
    "n_layer": 3,
    "vocab_size": 97,
    "n_positions": 64,
}
OF = {"hidden_size": 47, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 97, "intermediate_size": 80}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama, grouped heads": LLAMA,
    "llama, as many key/value heads": LLAMA | {"num_key_value_heads": 6},
    "llama, one key/value head": LLAMA | {"num_key_value_heads": 1},
    "llama, tied head": LLAMA | {"tie_word_embeddings": True},
    "llama, head width of its own": LLAMA | {"head_dim": 10},
    "llama, padding token beyond a small vocabulary": LLAMA | {"pad_token_id": 96},
    "gpt2": GPT2,
    "gpt2, untied, own feed-forward width": GPT2 | {"tie_word_embeddings": False, "n_inner": 100},
    "mistral": LLAMA | {"model_type": "mistral", "architectures": ["MistralForCausalLM"]},
    "qwen2": LLAMA | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "layer_types": ["full_attention"] * 3},
    "qwen3": LLAMA | OF | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]},
}
DINOV2 = {
    "model_type": "dinov2",
    "architectures": ["Dinov2Model"],
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_hidden_layers": 5,
    "image_size": 28,
    "patch_size": 14,
}


def written(folder: Path, config: dict[str, Any] | str) -> str:
    """``config`` as a file; its path."""
    file = folder / "config.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config))
    return str(file)


def spec_of(folder: Path, config: dict[str, Any]) -> Spec:
    return load(f"hf:{written(folder, config)}")


def shapes(spec: Spec, **sizes: int) -> dict[str, tuple[int, ...]]:
    """Parameters by name, built without memory."""
    with torch.device("meta"):
        module = spec.build(Sizes(**spec.sizes(sizes)))
    return {name: tuple(p.shape) for name, p in module.named_parameters()}


def parameters(spec: Spec, **sizes: int) -> int:
    with torch.device("meta"):
        module = spec.build(Sizes(**spec.sizes(sizes)))
    return sum(p.numel() for p in module.parameters())

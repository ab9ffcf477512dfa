"""Published memory of training state and of keys and values, from what a step keeps and from what a class caches."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import cache
from pathlib import Path

import calc
from calc.memory.inference import cache as cached
from calc.memory.inference import layers_of
from calc.memory.per_parameter import PerParameter, per_parameter, sharded
from calc.models.load import load
from tests.published.figures import assert_reproduced, reproduces

GB = 10**9
STAGES = {"Pos": 1, "Pos+g": 2, "Pos+g+p": 3}
DEVICES = (1, 4, 16, 64, 256, 1024)


@cache
def mixed_precision() -> PerParameter:
    """Adam on fp32 copies of bf16 weights: bf16 has the bytes of the paper's fp16. What is left over beside the rule of thumb, 4 bytes
    of step counter a tensor, the paper does not count."""
    recipe = per_parameter(calc.derive(calc.load("mlp"), cache=False, precision="bf16-master", optimizer="adam"))
    assert 4 * 4 == recipe.remainder  # four tensors
    return recipe


@reproduces("zero-bytes-per-param")
def test_bytes_per_parameter_of_zero(row: str) -> None:
    """2 of weights, 2 of gradients, and K = 12: 4 of the fp32 copy, 4 + 4 of the two moments."""
    whole = {term.quantity: term.per_parameter for term in mixed_precision().terms}
    kept = whole["master_weights.bytes"] + whole["optimizer_state.bytes"]
    parts = {"params": whole["parameters.bytes"], "grads": whole["gradients.bytes"], "optimizer_K": kept}

    assert_reproduced(row, {**parts, "total": mixed_precision().per_parameter})


def per_device(parameters: int, devices: int, stage: int) -> Fraction:
    return parameters * sharded(mixed_precision(), devices, stage) / GB


@reproduces("zero-table1-7.5b", "zero-table1-1t")
def test_state_on_each_device_of_zero(row: str) -> None:
    """The last digits that the paper cuts off rather than rounds are within the row's distance."""
    parameters = 10**12 if row.endswith("1t") else 75 * 10**8
    derived = {f"{name}_DP{n}": per_device(parameters, n, stage) for name, stage in STAGES.items() for n in DEVICES}

    assert_reproduced(row, derived)


@reproduces("zero-fig1")
def test_the_first_figure_of_zero(row: str) -> None:
    """7.5 billion parameters on 64 devices."""
    names = ("baseline", "P_os", "P_os_g", "P_os_g_p")

    assert_reproduced(row, {name: per_device(75 * 10**8, 64, stage) for stage, name in enumerate(names)})


@reproduces("deepseek-v2-kv", slow=True)
def test_the_latent_cache_of_deepseek_v2(row: str, tmp_path: Path) -> None:
    """(512 + 64) · 60 elements a token, from the config's own fields; printed rounded to hundreds."""
    fields = {
        "model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"], "vocab_size": 102400, "hidden_size": 5120,
        "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_hidden_layers": 60, "num_attention_heads": 128,
        "num_key_value_heads": 128, "n_shared_experts": 2, "n_routed_experts": 160, "kv_lora_rank": 512, "q_lora_rank": 1536,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128, "topk_group": 3, "n_group": 8, "num_experts_per_tok": 6,
        "first_k_dense_replace": 1, "max_position_embeddings": 163840,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(fields))
    spec = load(f"hf:{tmp_path}")
    sizes = spec.sizes({"B": 1, "T": 1})
    elements = Fraction(cached(layers_of(spec, sizes), sizes, "bf16").value, 2)

    assert_reproduced(row, {"mla_large": elements, "printed": elements})

"""Published models of the library, by the numbers of their own configs."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]


def _config(model_type: str, architecture: str, **fields: Any) -> Config:
    return {"model_type": model_type, "architectures": [architecture], **fields}


def _pythia(d: int, L: int, h: int, V: int) -> Config:
    sizes = {"hidden_size": d, "num_hidden_layers": L, "num_attention_heads": h, "intermediate_size": 4 * d, "vocab_size": V}
    return _config("gpt_neox", "GPTNeoXForCausalLM", **sizes, max_position_embeddings=2048, tie_word_embeddings=False)


def _gemma2(d: int, f: int, L: int, h: int, g: int, k: int) -> Config:
    heads = {"num_attention_heads": h, "num_key_value_heads": g, "head_dim": k, "query_pre_attn_scalar": k}
    return _config("gemma2", "Gemma2ForCausalLM", hidden_size=d, intermediate_size=f, num_hidden_layers=L, vocab_size=256000, **heads)


def _deepseek_v2(d: int, L: int, h: int, E: int, expert: int, dense: int, q_rank: int | None) -> Config:
    experts = {"n_routed_experts": E, "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": expert}
    attention = {"num_attention_heads": h, "num_key_value_heads": h, "q_lora_rank": q_rank, "kv_lora_rank": 512}
    widths = {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 1}
    return _config(
        "deepseek_v2",
        "DeepseekV2ForCausalLM",
        hidden_size=d,
        num_hidden_layers=L,
        intermediate_size=dense,
        vocab_size=102400,
        **experts,
        **attention,
        **widths,
    )


CONFIGS: dict[str, Config] = {
    "params-pythia-1.4b": _pythia(2048, 24, 16, 50304),
    "params-pythia-6.9b": _pythia(4096, 32, 32, 50432),
    "params-pythia-12b": _pythia(5120, 36, 40, 50688),
    "params-opt-175b": _config(
        "opt",
        "OPTForCausalLM",
        hidden_size=12288,
        num_hidden_layers=96,
        num_attention_heads=96,
        ffn_dim=49152,
        word_embed_proj_dim=12288,
        vocab_size=50272,
        max_position_embeddings=2048,
    ),
    "params-gpt-j-6b": _config("gptj", "GPTJForCausalLM", n_embd=4096, n_layer=28, n_head=16, vocab_size=50400, rotary_dim=64),
    "params-gemma-7b": _config(
        "gemma",
        "GemmaForCausalLM",
        hidden_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=16,
        head_dim=256,
        intermediate_size=24576,
        vocab_size=256000,
    ),
    "params-t5-large": _config(
        "t5",
        "T5ForConditionalGeneration",
        d_model=1024,
        num_layers=24,
        num_heads=16,
        d_kv=64,
        d_ff=4096,
        vocab_size=32128,
        decoder_start_token_id=0,
    ),
    "params-mamba-2.8b": _config("mamba", "MambaForCausalLM", hidden_size=2560, num_hidden_layers=64, vocab_size=50280),
    "params-olmo2-7b": _config(
        "olmo2",
        "Olmo2ForCausalLM",
        hidden_size=4096,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=32,
        intermediate_size=11008,
        vocab_size=100352,
    ),
    "gemma2-2b": _gemma2(2304, 9216, 26, 8, 4, 256),
    "gemma2-27b": _gemma2(4608, 36864, 46, 32, 16, 128) | {"query_pre_attn_scalar": 144},
    "deepseek-v2": _deepseek_v2(5120, 60, 128, 160, 1536, 12288, 1536),
    "deepseek-v2-lite": _deepseek_v2(2048, 27, 16, 64, 1408, 10944, None),
}

"""Memory of a model in use: weights in each format, keys and values by kind of layer, each checked against a cache that a run keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from calc.errors import BadInputError
from calc.measure.cache import cache_elements
from calc.memory import caches
from calc.memory.inference import InferenceTerm, Layers, cache, checked, document, inference, layers_of, measured_cache, weight_format
from calc.memory.inference import weights as weights_of
from calc.models.load import load
from calc.options import Options
from calc.pipeline.pipeline import derive, trace
from calc.spec import Spec
from tests.measure import tiny
from tests.quick import few

BASE: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 6,
    "max_position_embeddings": 256, "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {
    "q_lora_rank": 20, "kv_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 12, "n_routed_experts": 8,
    "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "moe_intermediate_size": 32,
    "num_key_value_heads": 6,
}  # fmt: skip
DELTA = {
    "num_key_value_heads": 2, "head_dim": 8, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "shared_expert_intermediate_size": 32, **EXPERTS,
}  # fmt: skip
GPT2: dict[str, Any] = {"n_embd": 48, "n_head": 6, "n_layer": 3}
MAMBA = {"state_size": 5, "conv_kernel": 4, "expand": 2, "time_step_rank": 3}
GROUPED = {"num_key_value_heads": 2}
WINDOW = {**GROUPED, "sliding_window": 11}


def config(folder: Path, model_type: str, architecture: str, fields: Mapping[str, Any]) -> Spec:
    path = folder / "config.json"
    path.write_text(json.dumps({**BASE, **fields, "model_type": model_type, "architectures": [architecture]}))
    return load(f"hf:{path}")


# kind of attention, library's name, class, fields → elements kept, per sequence
CASES: list[tuple[str, str, str, dict[str, Any], str]] = [
    ("multi-head", "gpt2", "GPT2LMHeadModel", GPT2, "L*T*2*h*k"),
    ("grouped", "llama", "LlamaForCausalLM", GROUPED, "L*T*2*g*k"),
    ("multi-query", "gpt_bigcode", "GPTBigCodeForCausalLM", {**GPT2, "multi_query": True}, "L*T*2*k"),
    ("sliding window", "mistral", "MistralForCausalLM", WINDOW, "L*Min(T, 10)*2*g*k"),
    (
        "five sliding to one full", "gemma3_text", "Gemma3ForCausalLM", {**WINDOW, "head_dim": 8, "num_hidden_layers": 12},
        "5*L/6*Min(T, 10)*2*g*k + L/6*T*2*g*k",
    ),
    ("latent", "deepseek_v3", "DeepseekV3ForCausalLM", LATENT, "L*T*(kv_lora_rank + qk_rope_head_dim)"),
    ("recurrent", "mamba", "MambaForCausalLM", MAMBA, "L*f*(4 + state_size)"),
    (
        "a recurrent state in all but the last", "qwen3_next", "Qwen3NextForCausalLM", DELTA,
        "(L - 1)*((2*linear_num_key_heads*linear_key_head_dim + linear_num_value_heads*linear_value_head_dim)*4"
        " + linear_num_value_heads*linear_key_head_dim*linear_value_head_dim) + T*2*g*k",
    ),
]  # fmt: skip


def test_layers_of_all_kinds_may_share_their_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """As transformers 5.17 gives them: one dictionary with the window, which full attention does not take."""
    shared = ["full_attention", "sliding_attention", "sliding_attention"], {"sliding_window": 11, "number_of_states": 1}
    monkeypatch.setattr("transformers.cache_utils.get_layer_types_and_kwargs", lambda _: shared)
    module = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda decoder: None))

    assert {("full_attention", 0): 1, ("sliding_attention", 11): 2} == caches._kinds(module)


@pytest.mark.parametrize(
    ("model_type", "architecture", "fields", "elements"), few([case[1:] for case in CASES], 4), ids=[case[0] for case in CASES]
)
def test_what_layers_keep_is_what_the_library_s_cache_holds(
    tmp_path: Path, model_type: str, architecture: str, fields: dict[str, Any], elements: str
) -> None:
    """The closed form is the one expected, and a real run keeps exactly as many bytes; without memory at full size, where it can."""
    from calc.symbolic.algebra import to_sympy

    spec = config(tmp_path, model_type, architecture, fields)
    sizes = spec.sizes()
    layers = layers_of(spec, sizes)
    real, *others = checked(spec, layers, sizes)

    assert 0 == (to_sympy(cache(layers, sizes, "bf16").expr) - 2 * to_sympy("B") * to_sympy(elements)).expand()
    assert "exact" == real.verdict
    assert "failed" not in [other.verdict for other in others]


def test_experts_in_grouped_matmuls_are_run_without_memory_too(tmp_path: Path) -> None:
    """On the meta device these take bf16 alone; at the full size of DeepSeek V3 nothing was measured for that reason."""
    spec = config(tmp_path, "deepseek_v3", "DeepseekV3ForCausalLM", LATENT)
    actual = cache_elements(spec, spec.sizes({"B": 3, "T": 7}), without_memory=True)

    assert (3 * 4 * 7 * (24 + 8), "") == (actual.elements, actual.because)


def test_a_run_that_fails_in_either_dtype_has_the_reason_of_its_own() -> None:
    """bf16 is only tried because some operators take nothing else without memory."""

    def fails(module: Any, x: Any) -> Any:
        raise RuntimeError(f"no kernel for {module.weight.dtype}")

    spec = Spec("failing", {"B": 3}, lambda n: nn.Linear(5, 7), lambda n: (torch.randn(n.B, 5),), fails)

    assert cache_elements(spec, spec.sizes(), without_memory=True).because.endswith("no kernel for torch.float32")


def test_a_wrong_closed_form_fails_the_check(tmp_path: Path) -> None:
    """A head too many, a token too many and a layer too few: each is noticed by the run."""
    spec = config(tmp_path, "mistral", "MistralForCausalLM", WINDOW)
    (right,) = layers_of(spec, spec.sizes())
    for wrong in (
        Layers(right.kind, right.count, right.positions, "2*(g + 1)*k", ""),
        Layers(right.kind, right.count, "Min(T, 11)", right.values, ""),
        Layers(right.kind, "L - 1", right.positions, right.values, ""),
    ):
        assert "failed" == checked(spec, [wrong], spec.sizes())[0].verdict


def test_a_class_that_reads_its_fields_otherwise_is_refused_rather_than_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No number, and both of those that disagree in the reason."""
    from calc.memory import inference as module

    spec = config(tmp_path, "llama", "LlamaForCausalLM", GROUPED)
    monkeypatch.setattr(module, "layers_of", lambda *_: (Layers("full_attention", "L", "T", "2*h*k", ""),))

    actual, unknown, _ = measured_cache(spec, spec.sizes(), "bf16")

    assert actual is None
    assert unknown.startswith("the cache of a layer differs from that of its kind: the closed form gives 49,152 bytes but a run has 16,384")


def test_a_class_without_a_cache_is_refused(tmp_path: Path) -> None:
    """An encoder keeps nothing between tokens."""
    spec = config(tmp_path, "bert", "BertForMaskedLM", {})

    assert (None, "no run confirms a cache: the class returns no cache") == measured_cache(spec, spec.sizes(), "bf16")[:2]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("cruncher", "cruncher is not autoregressive: it has no key/value cache"),
        ("vit-b", "vit-b is not autoregressive: it has no key/value cache"),
    ],
)
def test_models_that_write_no_tokens_have_no_cache(model: str, said: str) -> None:
    """The reason names the model."""
    spec = load(model)
    with pytest.raises(BadInputError, match=f"^{said}$"):
        layers_of(spec, spec.sizes())


def test_a_module_of_one_s_own_is_refused() -> None:
    """What its code keeps of a token is not stated anywhere."""
    with pytest.raises(BadInputError, match=r"^attention: caches are known for .*, not for a module's code$"):
        layers_of(tiny.attention(), tiny.attention().sizes())


@pytest.mark.parametrize(("model", "heads"), [("gpt2", "h"), ("llama3-8b", "g"), ("mixtral", "g")])
def test_built_in_models_keep_a_key_and_a_value_a_head(model: str, heads: str) -> None:
    """2·heads·k per token and layer: what their attention calls are given."""
    spec = load(model)
    spec = replace(spec, check_at={**spec.check_at, "L": 3, "V": 503})
    (layers,) = layers_of(spec, spec.sizes())

    assert ("L", "T", f"2*{heads}*k") == (layers.count, layers.positions, layers.values)
    assert "exact" == checked(spec, [layers], spec.sizes({"T": 64}))[0].verdict


# -- weights -----------------------------------------------------------------------------------------------------------------

# A llama of d = 48, h = 6, g = 2, k = 8, f = 80, L = 4, V = 97: by layer q and o of 48·48, k and v of 16·48, three of 48·80, two norms.
MATRICES = 4 * (2 * 48 * 48 + 2 * 16 * 48 + 3 * 48 * 80) + 97 * 48  # with the head
KEPT = 97 * 48 + 4 * 2 * 48 + 48  # table and norms
ROWS_OF_48 = 4 * (48 + 48 + 2 * 16 + 2 * 80) + 97
ROWS_OF_80 = 4 * 48


@pytest.mark.parametrize(
    ("weights", "group", "expected"),
    few(
        [
            ("fp32", None, 4 * (MATRICES + KEPT)),
            ("bf16", None, 2 * (MATRICES + KEPT)),
            ("fp8", None, MATRICES + 4 * (4 * 7 + 1) + 2 * KEPT),  # a 4-byte scale for each of 29 matrices
            ("int8", None, MATRICES + 2 * (ROWS_OF_48 + ROWS_OF_80) + 2 * KEPT),
            ("int4", None, MATRICES // 2 + 2 * (ROWS_OF_48 + ROWS_OF_80) + 2 * KEPT),  # groups of 128: one a row
            ("int4", 16, MATRICES // 2 + 2 * MATRICES // 16 + 2 * KEPT),  # n/2 + n/group · 2
            ("int4-zero", 16, MATRICES // 2 + 2 * MATRICES // 16 + MATRICES // 32 + 1 // 2 + 2 * KEPT),
        ],
        1,
    ),
)
def test_weights_take_their_bits_and_their_scales(tmp_path: Path, weights: str, group: int | None, expected: int) -> None:
    """Matrices in the format; the table that is looked up and the norms in bf16."""
    spec = config(tmp_path, "llama", "LlamaForCausalLM", GROUPED)

    usage = inference(spec, weights_in=weights, group=group)
    head_zeros = -(-97 * 3 // 2) - 97 * 3 // 2 if weights == "int4-zero" else 0  # 291 zero points of half a byte are 146

    assert expected + head_zeros == usage.weights.value
    assert sum(line.value for line in usage.weights.lines) == usage.weights.value


def lines_of(spec: Spec) -> tuple[InferenceTerm, ...]:
    graph = trace(spec, {}, options=Options(mode="infer"))
    return weights_of(graph, derive(graph), spec.sizes(), "bf16").lines


@pytest.mark.slow
def test_tables_are_looked_up_unless_a_matmul_uses_them_too() -> None:
    """GPT-2's token table is the head's as well. Llama 3 8B has 8,030,261,248 parameters, of them a table of 128,256 rows of 4096."""
    tied, lines = (lines_of(load(name)) for name in ("gpt2", "llama3-8b"))

    assert ["transformer.wpe.weight"] == [line.label for line in tied if line.looked_up]
    assert ["model.embed_tokens.weight"] == [line.label for line in lines if line.looked_up]
    assert 2 * (8_030_261_248 - 128_256 * 4096) == 15_009_849_344 == sum(line.value for line in lines if not line.looked_up)


@pytest.mark.parametrize(
    ("name", "group", "said"),
    [
        ("int3", None, r"^unknown weight format 'int3': did you mean int8\? \(fp32, bf16, fp16, fp8, int8, int4, int4-zero\)$"),
        ("bf16", 64, r"^bf16 has no groups of weights: give a group with int4 or int4-zero$"),
        ("int4", 3, r"^a group of 3 weights cannot be packed: give an even number from 2$"),
    ],
)
def test_formats_that_are_none_are_refused(name: str, group: int | None, said: str) -> None:
    """In a line that names those that are."""
    with pytest.raises(BadInputError, match=said):
        weight_format(name, group)


@pytest.mark.slow
def test_the_document_holds_what_was_found(tmp_path: Path) -> None:
    """Terms add up to the quantities, and the checks are in it."""
    made = document(inference(config(tmp_path, "llama", "LlamaForCausalLM", GROUPED), {"B": 3, "T": 50}, weights_in="int4"))

    cached = made["quantities"]["cache.bytes"]
    assert 2 * 3 * 4 * 50 * 2 * 2 * 8 == cached["value"]
    assert "4*B*L*T*g*k" == cached["expr"]
    weights = made["quantities"]["weights.bytes"]
    assert sum(term["value"] for term in weights["terms"]) == weights["value"]
    assert made["total"] == cached["value"] + weights["value"]
    assert ["exact", "exact"] == [check["verdict"] for check in made["checks"]]

"""A model read off its derivation is that derivation, taken apart: parameters, what the backward keeps, and FLOPs add up to it."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

import calc
from calc.capacity.sharding import Layout, ShardedModel, account, decoder, machine_of, state_of
from calc.capacity.sharding.derived import model_of
from calc.capacity.sharding.module_tensors import own_tensors
from calc.derive.result import Derivation
from calc.hardware.accelerators import accelerator

SIZES = {
    "llama3-8b": {"B": 2, "T": 16, "d": 44, "h": 6, "g": 3, "k": 8, "f": 211, "L": 3, "V": 503},
    "mixtral": {"B": 2, "T": 16, "d": 48, "h": 6, "g": 3, "k": 8, "f": 88, "L": 3, "V": 503, "E": 5, "e": 2},
    "gpt2": {"B": 2, "T": 16, "d": 42, "h": 6, "f": 170, "L": 3, "V": 503, "C": 31},
    "vit-b": {"B": 2},
}
H100 = machine_of(accelerator("h100-sxm"))


@cache
def derived(name: str, attention: str = "fused") -> Derivation:
    return calc.derive(calc.load(name), SIZES[name], precision="bf16", attention=attention, optimizer="sgd")


def read(name: str, attention: str = "fused") -> ShardedModel:
    derivation = derived(name, attention)
    return model_of(derivation, own_tensors(calc.load(name), derivation.sizes))


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", SIZES)
def test_parameters_and_activations_on_one_device_are_those_derived(name: str) -> None:
    """Off the polynomial of a decoder, and off the module's own tensors."""
    actual, derivation = read(name), derived(name)

    for model in (actual, replace(actual, own=())) if not actual.only_data else (actual,):
        lines = account(model, Layout(micro=2), state_of("bf16", "sgd")).fullest
        assert derivation["parameters"].value == lines.calculation["N"]
        assert derivation["activations.bytes"].value == lines.kinds["activations"]


@pytest.mark.parametrize(("name", "attention"), [("llama3-8b", "fused"), ("gpt2", "fused"), ("gpt2", "math")])
def test_flops_on_one_device_are_those_derived(name: str, attention: str) -> None:
    """Forward, backward, and what fused attention recomputes."""
    derivation = derived(name, attention)
    lines = account(read(name, attention), Layout(micro=2), state_of("bf16", "sgd"), H100).stages[0].calculation

    assert derivation["flops.forward.matmul"].value + derivation["flops.backward.matmul"].value == lines["F"]


@pytest.mark.parametrize("name", ["llama3-8b", "gpt2", "mixtral"])
def test_a_decoder_by_its_sizes_has_the_same_tensors(name: str) -> None:
    """On one rank, and divided by two: biases of heads are divided, others are not."""
    sizes = {name: size for name, size in derived(name).sizes.items() if name != "B"}
    decoder_model = decoder(sizes, gated=name != "gpt2", bias=name == "gpt2", tied=name == "gpt2")

    for tensor in (1, 2) if name == "gpt2" else (1, 3):
        if all(sizes[name] % tensor == 0 for name in "hf"):
            one, other = (account(m, Layout(tensor=tensor), state_of()).fullest.calculation["N"] for m in (read(name), decoder_model))
            assert one == other


def test_a_decoder_in_bf16_by_its_sizes_keeps_less_than_torch_s_composite_norms() -> None:
    """Torch's RMS norm is made of operators here: an fp32 copy of its argument and an fp32 product, 4 + 4 bytes, beside its result; one
    fused kernel keeps the 2-byte argument. Statistics are 4 bytes a token and norm, which the published account leaves out."""
    derivation = derived("llama3-8b")
    T, d = 16, 44
    decoder_model = decoder({name: size for name, size in derivation.sizes.items() if name != "B"})
    theirs, ours = (account(m, Layout(micro=2), state_of()).fullest.calculation["Al"] for m in (read("llama3-8b"), decoder_model))
    merged_again = 2 * T * 6 * 8  # heads put together for the projection, which written so are copied

    assert Fraction(2 * (2 * (4 + 4 - 2) * T * d + 2 * 4 * T + merged_again)) == theirs - ours


@pytest.mark.parametrize("batch", [1, 2])
def test_a_config_of_the_library_is_a_decoder_too(tmp_path: Path, batch: int) -> None:
    """One sequence is traced separately there: the saved tensors are those of that special case."""
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2, "num_hidden_layers": 4}
    widths = {"vocab_size": 503, "hidden_size": 48, "intermediate_size": 200, "max_position_embeddings": 64}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": False, **heads, **widths}
    (tmp_path / "config.json").write_text(json.dumps(config))
    spec = calc.load(f"hf:{tmp_path}")
    derivation = calc.derive(spec, {"B": batch, "T": 16}, precision="bf16", optimizer="sgd")
    model = model_of(derivation, own_tensors(spec, derivation.sizes))

    assert model.only_data == ""
    one, two = (account(model, Layout(tensor=tensor, micro=batch), state_of("bf16", "sgd")).fullest for tensor in (1, 2))
    assert derivation["activations.bytes"].value == one.kinds["activations"]
    divided = sum(item.under == "divided" for item in model.items)
    assert divided == 10
    assert one.kinds["activations"] > two.kinds["activations"]


def test_what_is_no_decoder_is_divided_by_data_only() -> None:
    """And says why; its own tensors are cut all the same."""
    actual = read("vit-b")

    assert actual.only_data == "it has no dimension V (vocabulary size)"
    divided = account(actual, Layout(data=4, zero=3), state_of("bf16", "sgd")).fullest
    assert Fraction(derived("vit-b")["parameters"].value or 0, 4) <= divided.calculation["S"]

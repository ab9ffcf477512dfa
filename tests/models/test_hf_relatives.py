"""Small relatives of large published configs, at which a check runs the step, and the dimensions that let a class build them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import calc
from calc.dimensions import Dim
from calc.models.hf.source import source_of
from calc.models.load import load
from calc.spec import Sizes
from tests.checks import failures
from tests.models.configs import LLAMA, spec_of
from tests.quick import few

PUBLISHED = Path(__file__).parents[1] / "published" / "configs"

MAMBA2 = {
    "model_type": "mamba2",
    "architectures": ["Mamba2ForCausalLM"],
    "hidden_size": 32,
    "num_heads": 4,
    "head_dim": 16,
    "expand": 2,
    "n_groups": 2,
    "state_size": 8,
    "num_hidden_layers": 2,
    "vocab_size": 97,
    "chunk_size": 8,
}
DBRX = {
    "model_type": "dbrx",
    "architectures": ["DbrxForCausalLM"],
    "d_model": 32,
    "n_heads": 4,
    "n_layers": 2,
    "max_seq_len": 64,
    "vocab_size": 97,
    "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8},
    "ffn_config": {"ffn_hidden_size": 48, "hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2},
}
OPT = {
    "model_type": "opt",
    "architectures": ["OPTForCausalLM"],
    "hidden_size": 32,
    "word_embed_proj_dim": 32,
    "num_attention_heads": 4,
    "ffn_dim": 48,
    "num_hidden_layers": 2,
    "vocab_size": 97,
    "max_position_embeddings": 64,
}


def test_what_a_class_computes_from_its_sizes_follows_them_where_the_file_repeats_it() -> None:
    """The widths of the attention and of the heads are 2 d, 2 d/h and 2 d/n here; the file states them, and the class has no parameter for
    them. A depth that it has no parameter for either, and does not compute, stays."""
    raw = json.loads((PUBLISHED / "zamba2-1.2b.json").read_text(encoding="utf-8"))
    source = source_of("it", raw | {"extra_layers": 3})

    assert {*raw} - {*source.raw, *_NO_FIELDS} == {
        "attention_hidden_size", "attention_head_dim", "mamba_headdim", "kv_channels", "num_query_groups",
    }  # fmt: skip
    assert source.raw["extra_layers"] == 3
    assert source.config({"hidden_size": 4096}).mamba_headdim == 2 * raw["mamba_headdim"]
    assert source_of("it", raw | {"mamba_headdim": 32}).raw["mamba_headdim"] == 32


_NO_FIELDS = ("architectures", "model_type", "transformers_version", "torch_dtype", "use_cache")


@pytest.mark.parametrize("name", few(["bamba-9b", "dbrx", "gpt-j-6b", "mamba-codestral-7b"], 2))
def test_a_check_is_at_sizes_at_which_the_class_runs(name: str) -> None:
    """Where a class compares products of widths, groups heads by a fixed number or rotates a fixed share of each, the relative fits it."""
    spec = load(f"hf:{PUBLISHED / name}.json")
    sizes = spec.sizes(spec.check_at)
    module = spec.build(Sizes(**sizes))
    assert spec.predict is not None
    logits = spec.predict(module, *spec.inputs(Sizes(**sizes)))

    assert (sizes["B"], sizes["T"], sizes["V"]) == tuple(logits.shape)
    assert sizes["d"] <= 1024
    assert sum(p.numel() for p in module.parameters()) < 40_000_000


def test_a_width_that_the_class_compares_with_a_product_moves_the_head_width(tmp_path: Path) -> None:
    """Mamba2 takes heads times head width to be ``expand`` times the width."""
    spec = spec_of(tmp_path, MAMBA2)

    assert Dim("2*d/h", tied=True) == spec.dims["k"]
    assert "h" == spec.dims["d"].multiple_of
    assert 48 == spec.sizes({"d": 96})["k"]


def test_fields_of_parts_of_blocks_are_the_model_s_own(tmp_path: Path) -> None:
    """Heads of keys and values in ``attn_config``, experts in ``ffn_config``: the usual letters, with what divides what."""
    dims = spec_of(tmp_path, DBRX).dims

    assert {"B", "T", "d", "h", "g", "k", "f", "L", "V", "E", "e"} == dims.keys()
    assert ("g", "h") == (dims["h"].multiple_of, dims["d"].multiple_of)
    assert (2, 48, 4, 2) == tuple(dims[name].default for name in ("g", "f", "E", "e"))


def test_a_size_that_equals_the_width_moves_with_it(tmp_path: Path) -> None:
    """OPT projects its embeddings only where their width is another than the model's: a narrow relative is none of these."""
    spec = spec_of(tmp_path, OPT)

    assert "d" == spec.dims["word_embed_proj_dim"].default
    assert 64 == spec.sizes({"d": 64})["word_embed_proj_dim"]


def test_half_sines_and_half_cosines_make_the_head_width_even() -> None:
    """Whisper's class builds no odd width; and its first token is one of any vocabulary, so that a small one has a loss."""
    spec = load(f"hf:{PUBLISHED / 'whisper-large-v3.json'}")
    n = Sizes(**spec.sizes(spec.check_at))

    assert 2 == spec.dims["k"].multiple_of
    assert spec.loss(spec.build(n), *spec.inputs(n)).isfinite()


@pytest.mark.slow
def test_a_large_model_whose_text_width_has_a_name_of_its_own_is_loaded(tmp_path: Path) -> None:
    """``embed_dim`` is no field of d: the relatives that are tried for the check have heads of their own, and no d."""
    text = {"embed_dim": 1024, "attention_heads": 16, "ffn_dim": 64, "layers": 2, "vocab_size": 250_000, "max_position_embeddings": 64}
    seeing = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 40, "image_size": 28}
    config = {"model_type": "kosmos-2", "architectures": ["Kosmos2ForConditionalGeneration"], "text_config": text, "vision_config": seeing}
    spec = spec_of(tmp_path, config)

    assert ("d" in spec.dims, spec.sizes()["h"]) == (False, 16)


@pytest.mark.slow
def test_a_config_of_no_experts_is_of_a_model_without(tmp_path: Path) -> None:
    """As the small models of a family with experts say it. Experts and experts per token are no dimensions then."""
    attention = {"num_hidden_layers": 3, "layer_types": ["attention"] * 3, "shared_intermediate_size": 80, "mamba_n_heads": 12}
    config = LLAMA | attention | {"model_type": "granitemoehybrid", "architectures": ["GraniteMoeHybridForCausalLM"], "mamba_d_head": 8}
    spec = spec_of(tmp_path, config | {"num_local_experts": 0, "num_experts_per_tok": 0})

    assert {"E", "e"}.isdisjoint(spec.dims)
    assert [] == failures(calc.check(calc.derive(spec, cache=False, optimizer="sgd")))


@pytest.mark.slow
def test_heads_that_are_split_among_four_devices_are_a_multiple_of_four(tmp_path: Path) -> None:
    """CodeGen reshapes (B, T, 3 h k) to (B, T, 4, …): what both sides of that division have in common says nothing about h and k."""
    sizes = {"n_embd": 96, "n_head": 8, "n_layer": 3, "n_inner": 80, "n_positions": 512, "n_ctx": 512, "rotary_dim": 4, "vocab_size": 97}
    spec = spec_of(tmp_path, {"model_type": "codegen", "architectures": ["CodeGenForCausalLM"], **sizes})
    derivation = calc.derive(spec, cache=False, mode="infer")

    assert not derivation.specialization_reasons
    assert {"Eq(Mod(h, 4), 0)", "Eq(Mod(k, 4), 0)"} <= {a.expr for a in derivation.assumptions}
    assert [] == failures(calc.check(derivation))


def test_towers_whose_vectors_are_multiplied_have_one_width(tmp_path: Path) -> None:
    """SigLIP has no projection: it runs with no other width of its images. CLIP projects both, so that its widths are two dimensions."""
    tower = {"hidden_size": 48, "intermediate_size": 80, "num_attention_heads": 6, "num_hidden_layers": 2}
    seeing, reading = tower | {"image_size": 28, "patch_size": 14}, tower | {"vocab_size": 97, "max_position_embeddings": 16}
    siglip, clip = (
        spec_of(tmp_path, {"model_type": kind, "architectures": [name], "text_config": reading, "vision_config": seeing}).dims
        for kind, name in (("siglip", "SiglipModel"), ("clip", "CLIPModel"))
    )

    assert ("d", "h", "k") == tuple(siglip[f"vision_{name}"].default for name in ("d", "h", "k"))
    assert all(siglip[f"vision_{name}"].tied for name in ("d", "h", "k"))
    assert 48 == clip["vision_d"].default


@pytest.mark.slow
def test_a_size_that_is_the_width_of_what_another_part_returns_is_tied_to_it(tmp_path: Path) -> None:
    """The decoder of TrOCR reads its encoder's vectors, and has a field for their width. 40 is also a width of its own there."""
    seeing = {"model_type": "vit", "hidden_size": 40, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 44}
    reading = {"model_type": "trocr", "d_model": 48, "decoder_attention_heads": 4, "decoder_layers": 2, "decoder_ffn_dim": 40}
    parts = {
        "encoder": seeing | {"image_size": 32, "patch_size": 16},
        "decoder": reading | {"cross_attention_hidden_size": 40, "vocab_size": 97, "max_position_embeddings": 64, "is_decoder": True},
    }
    ids = {"decoder_start_token_id": 2, "pad_token_id": 1}
    spec = spec_of(tmp_path, {"model_type": "vision-encoder-decoder", "architectures": ["VisionEncoderDecoderModel"], **parts, **ids})

    assert "encoder_d" == spec.dims["cross_attention_hidden_size"].default
    assert 40 == spec.dims["f"].default
    assert {} == dict(calc.derive(spec, cache=False, optimizer="sgd").specialization_reasons)


def test_a_depth_of_which_layers_have_numbers_is_a_number(tmp_path: Path) -> None:
    """Depth Anything reads the layers 1 to 4 of its backbone, so that it has no fewer; all widths are symbols."""
    layers = [f"stage{i}" for i in (1, 2, 3, 4)]
    backbone = {"model_type": "dinov2", "hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 4, "out_features": layers}
    widths = {"reassemble_hidden_size": 24, "neck_hidden_sizes": [4, 8, 12, 16], "fusion_hidden_size": 8, "head_hidden_size": 6}
    config = {"model_type": "depth_anything", "architectures": ["DepthAnythingForDepthEstimation"], "patch_size": 14, **widths}
    seen = {"image_size": 28, "patch_size": 14, "reshape_hidden_states": False}
    spec = spec_of(tmp_path, config | {"backbone_config": backbone | seen})

    assert ("backbone_L" in spec.dims, spec.dims["reassemble_hidden_size"].default) == (False, "backbone_d")


@pytest.mark.slow
def test_a_size_that_the_class_needs_to_be_the_width_is_tied_to_it(tmp_path: Path) -> None:
    """Else every size would become a number, as the class refuses an embedding of another width with any symbols."""
    squeezed = {"model_type": "squeezebert", "architectures": ["SqueezeBertForMaskedLM"], "num_hidden_layers": 5, "vocab_size": 97}
    sizes = {"hidden_size": 32, "embedding_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 64}
    spec = spec_of(tmp_path, squeezed | sizes)
    width = spec.dimensions["embedding_size"]

    assert ("d", True, "the class needs it to be the width of the model") == (width.default, width.tied, width.because)
    derivation = calc.derive(spec, cache=False, mode="infer")
    assert not derivation.specialized
    assert [] == failures(calc.check(derivation))


def test_a_class_that_normalizes_over_the_batch_has_two_pictures_by_default(tmp_path: Path) -> None:
    """LeViT's head has one value per channel and picture, of which torch takes no mean of one; a ResNet's layers have more."""
    levit = {"model_type": "levit", "architectures": ["LevitForImageClassification"], "image_size": 64, "hidden_sizes": [16, 24, 32]}
    levit |= {"num_attention_heads": [2, 3, 4], "depths": [1, 1, 1], "key_dim": [8, 8, 8]}
    resnet = {"model_type": "resnet", "architectures": ["ResNetForImageClassification"], "hidden_sizes": [16, 24], "depths": [1, 1]}

    assert 2 == spec_of(tmp_path, levit).dimensions["B"].default
    assert 1 == spec_of(tmp_path, resnet).dimensions["B"].default


def test_layers_that_are_counted_beside_the_others_are_a_part_of_them(tmp_path: Path) -> None:
    """One of three blocks has experts, by the number of such blocks: of nine, three; one of twelve then has four."""
    switch = {"model_type": "switch_transformers", "architectures": ["SwitchTransformersForConditionalGeneration"], "num_experts": 5}
    switch |= {"d_model": 24, "d_kv": 12, "d_ff": 36, "num_heads": 2, "num_layers": 9, "num_decoder_layers": 9, "vocab_size": 97}
    spec = spec_of(tmp_path, switch | {"num_sparse_encoder_layers": 3, "num_sparse_decoder_layers": 3})

    assert {"L", "E"} <= spec.dims.keys()
    made = spec.build(Sizes(**spec.sizes({"L": 12})))
    assert [[1, 4, 7, 10]] * 2 == [[i for i, block in enumerate(part.block) if block.is_sparse] for part in (made.encoder, made.decoder)]


@pytest.mark.slow
def test_a_head_width_of_which_a_share_is_rotated_moves_with_that_share(tmp_path: Path) -> None:
    """As the library saves a config of latent attention: it names the rotated width twice. Each alone would become a number."""
    latent = {"kv_lora_rank": 12, "q_lora_rank": 20, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16, "head_dim": 8}
    youtu = LLAMA | latent | {"model_type": "youtu", "architectures": ["YoutuForCausalLM"], "num_key_value_heads": 6}
    spec = spec_of(tmp_path, youtu)

    assert ("qk_rope_head_dim", True) == (spec.dimensions["k"].default, spec.dimensions["k"].tied)
    assert {} == calc.derive(spec, cache=False, mode="infer").specialization_reasons


CLAP = {
    "model_type": "clap",
    "architectures": ["ClapModel"],
    "projection_dim": 20,
    "text_config": {
        "hidden_size": 24,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 37,
        "vocab_size": 97,
        "max_position_embeddings": 64,
        "pad_token_id": 1,
    },
    "audio_config": {
        "spec_size": 32,
        "num_mel_bins": 8,
        "window_size": 2,
        "depths": [1, 1],
        "num_attention_heads": [1, 2],
        "patch_embeds_hidden_size": 8,
        "hidden_size": 16,
        "num_hidden_layers": 2,
    },
}


@pytest.mark.slow
def test_texts_and_sounds_are_compared_as_texts_and_pictures_are(tmp_path: Path) -> None:
    """A spectrum that is folded into a square picture of 32 has four times 32 frames of 8 bins."""
    spec = spec_of(tmp_path, CLAP)
    short = {"B": 3, "T": 7}

    assert [(3, 7), (3, 1, 128, 8)] == [tuple(tensor.shape) for tensor in spec.inputs(Sizes(**spec.sizes(short)))]
    assert [] == failures(calc.check(calc.derive(spec, short, cache=False)))

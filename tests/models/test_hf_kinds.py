"""Classes of the library beside language models: what each kind is fed, and which loss it has."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import calc
from calc.dimensions import Dim
from calc.experiment.inputs import inputs_at
from calc.options import Options
from calc.spec import Sizes, Spec
from tests.checks import failures
from tests.models.configs import LLAMA, shapes, spec_of
from tests.quick import few

CLIP: dict[str, Any] = {
    "model_type": "clip",
    "architectures": ["CLIPModel"],
    "text_config": {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 44, "vocab_size": 97},
    "vision_config": {"hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 3, "image_size": 32, "patch_size": 16},
    "projection_dim": 20,
}


def test_the_text_goes_by_the_letters_and_the_pictures_by_their_own(tmp_path: Path) -> None:
    """A config of two: what reads tokens has the plain letters, the other one's dimensions begin with its name."""
    spec = spec_of(tmp_path, CLIP)

    assert list(spec.dims) == ["B", "T", "d", "h", "k", "f", "L", "V", "C", "vision_d", "vision_h", "vision_k", "vision_f"]
    width = Dim(24, "model width (vision)", multiple_of="vision_h", because="each head takes an equal part of the width")
    assert spec.dimensions["vision_d"] == width
    assert spec.dimensions["vision_k"] == Dim("vision_d/vision_h", "head width (vision)", tied=True)
    assert "the depth and the sizes of images and audio of vision_config are numbers here" in spec.notes


def test_what_has_channels_sees_pictures_however_its_makers_call_them(tmp_path: Path) -> None:
    """A config of pictures without a picture's size has dimensions of its own, which a small check can narrow."""
    seeing = {"depth": 2, "embed_dim": 32, "num_heads": 4, "in_channels": 3, "hidden_size": 48, "patch_size": 14}
    rope = {"rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}}
    spec = spec_of(
        tmp_path, LLAMA | rope | {"model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"], "vision_config": seeing}
    )

    assert {"vision_h", "vision_embed_dim"} <= spec.dims.keys()
    assert (16, 3, 2, 14, 14) == shapes(spec, vision_embed_dim=16)["model.visual.patch_embed.proj.weight"]


def test_sizes_are_set_in_the_config_they_belong_to(tmp_path: Path) -> None:
    """The widths of the two towers move apart; the projections join them at 20."""
    shape = shapes(spec_of(tmp_path, CLIP), d=36, vision_d=26, f=50)

    assert shape["text_projection.weight"] == (20, 36)
    assert shape["visual_projection.weight"] == (20, 26)
    assert shape["text_model.encoder.layers.1.mlp.fc1.weight"] == (50, 36)


GEMMA = {
    "hidden_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 12, "intermediate_size": 37, "num_hidden_layers": 2,
    "vocab_size": 97,
}  # fmt: skip

KINDS: dict[str, tuple[dict[str, Any], list[tuple[int, ...]]]] = {
    "text in pictures": (
        {
            "model_type": "mgp-str",
            "architectures": ["MgpstrForSceneTextRecognition"],
            "image_size": [8, 16],
            "hidden_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "max_token_length": 5,
            "num_character_labels": 11,
            "num_bpe_labels": 53,
            "num_wordpiece_labels": 31,
        },
        [(3, 3, 8, 16)],
    ),
    "text and picture": (CLIP, [(3, 7), (3, 3, 32, 32)]),
    "classes of texts": (LLAMA | {"architectures": ["LlamaForSequenceClassification"], "pad_token_id": 0}, [(3, 7), (3,)]),
    "classes of tokens": (LLAMA | {"architectures": ["LlamaForTokenClassification"]}, [(3, 7), (3, 7)]),
    "answers": (LLAMA | {"architectures": ["LlamaForQuestionAnswering"]}, [(3, 7), (3,), (3,)]),
    "encoder": (LLAMA | {"architectures": ["LlamaModel"]}, [(3, 7)]),
    "detection": (
        {
            "model_type": "yolos",
            "architectures": ["YolosForObjectDetection"],
            "image_size": [32, 48],
            "hidden_size": 24,
            "num_attention_heads": 2,
        },
        [(3, 3, 32, 48)],
    ),
    "segmentation": (
        {
            "model_type": "segformer",
            "architectures": ["SegformerForSemanticSegmentation"],
            "image_size": [32, 64],
            "num_labels": 5,
        },
        [(3, 3, 32, 64), (3, 32, 64)],
    ),
    "hidden patches": (
        {
            "model_type": "vit",
            "architectures": ["ViTForMaskedImageModeling"],
            "image_size": 32,
            "hidden_size": 24,
            "num_attention_heads": 2,
        },
        [(3, 3, 32, 32), (3, 4)],
    ),
    "speech": (
        {
            "model_type": "whisper",
            "architectures": ["WhisperForConditionalGeneration"],
            "max_source_positions": 9,
            "num_mel_bins": 5,
            "vocab_size": 97,
            "decoder_start_token_id": 1,
            "pad_token_id": 0,
        },
        [(3, 5, 18), (3, 4)],
    ),
    "tokens and masks": (
        {
            "model_type": "t5gemma",
            "architectures": ["T5GemmaForConditionalGeneration"],
            "encoder": GEMMA,
            "decoder": GEMMA,
            "vocab_size": 97,
        },
        [(3, 7), (3, 4), (3, 7), (3, 4)],
    ),
    "pairs in none of the lists": (
        {
            "model_type": "owlvit",
            "architectures": ["OwlViTModel"],
            "projection_dim": 12,
            "text_config": {
                "hidden_size": 24, "num_attention_heads": 2, "intermediate_size": 37, "num_hidden_layers": 2,
                "vocab_size": 97, "max_position_embeddings": 16,
            },
            "vision_config": {
                "hidden_size": 24, "num_attention_heads": 2, "intermediate_size": 37, "num_hidden_layers": 2,
                "image_size": 32, "patch_size": 16,
            },
        },
        [(3, 7), (3, 3, 32, 32)],
    ),
    "no token to begin with": (
        {
            "model_type": "longt5",
            "architectures": ["LongT5ForConditionalGeneration"],
            "d_model": 24, "d_kv": 12, "d_ff": 37, "num_heads": 2, "num_layers": 2, "vocab_size": 97, "local_radius": 5,
        },
        [(3, 7), (3, 4)],
    ),
    "patches with their places": (
        {
            "model_type": "pix2struct",
            "architectures": ["Pix2StructForConditionalGeneration"],
            "text_config": {"hidden_size": 24, "d_kv": 12, "d_ff": 37, "num_heads": 2, "num_layers": 2, "vocab_size": 97},
            "vision_config": {
                "hidden_size": 24,
                "patch_embed_hidden_size": 12,
                "d_ff": 31,
                "d_kv": 12,
                "num_attention_heads": 2,
                "seq_len": 9,
            },
        },
        [(3, 2048, 14), (3, 4), (3, 2048), (3, 4)],
    ),
    "recognition": (
        {
            "model_type": "wav2vec2",
            "architectures": ["Wav2Vec2ForCTC"],
            "vocab_size": 32,
            "hidden_size": 24,
            "num_attention_heads": 2,
            "conv_dim": [16, 16],
            "conv_kernel": [20, 16],
            "conv_stride": [20, 16],
            "num_conv_pos_embeddings": 4,
            "num_conv_pos_embedding_groups": 2,
            "layerdrop": 0.1,
        },
        [(3, 16000), (3, 4)],
    ),
    "sounds": (
        {
            "model_type": "audio-spectrogram-transformer",
            "architectures": ["ASTForAudioClassification"],
            "max_length": 64,
            "num_mel_bins": 32,
            "hidden_size": 24,
            "num_attention_heads": 2,
        },
        [(3, 64, 32), (3,)],
    ),
    "forecast": (
        {
            "model_type": "patchtst",
            "architectures": ["PatchTSTForPrediction"],
            "num_input_channels": 2,
            "context_length": 16,
            "prediction_length": 5,
            "patch_length": 4,
            "patch_stride": 4,
            "d_model": 16,
            "num_attention_heads": 2,
            "ffn_dim": 20,
            "num_hidden_layers": 2,
        },
        [(3, 16, 2), (3, 5, 2)],
    ),
    "forecast from lags": (
        {
            "model_type": "informer",
            "architectures": ["InformerForPrediction"],
            "context_length": 16,
            "prediction_length": 5,
            "lags_sequence": [1, 3],
            "num_time_features": 2,
            "num_static_categorical_features": 1,
            "cardinality": [7],
            "embedding_dimension": [3],
            "d_model": 16,
            "encoder_layers": 2,
            "decoder_layers": 2,
        },
        [(3, 19), (3, 19, 2), (3, 19), (3, 1), (3, 5), (3, 5, 2)],
    ),
    "steps of an agent": (
        {
            "model_type": "decision_transformer",
            "architectures": ["DecisionTransformerModel"],
            "state_dim": 5,
            "act_dim": 2,
            "hidden_size": 16,
            "n_head": 2,
            "n_layer": 2,
        },
        [(3, 7, 5), (3, 7, 2), (3, 7, 1), (3, 7, 1), (3, 7)],
    ),
    "video": (
        {
            "model_type": "videomae",
            "architectures": ["VideoMAEForVideoClassification"],
            "image_size": 32,
            "num_frames": 4,
            "hidden_size": 24,
            "num_attention_heads": 2,
        },
        [(3, 4, 3, 32, 32), (3,)],
    ),
    "text of a picture": (
        {
            "model_type": "vision-encoder-decoder",
            "architectures": ["VisionEncoderDecoderModel"],
            "encoder": {"model_type": "vit", "image_size": 32, "hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2},
            "decoder": {"model_type": "trocr", "d_model": 16, "decoder_attention_heads": 2, "decoder_layers": 2, "vocab_size": 97},
            "decoder_start_token_id": 2,
            "pad_token_id": 1,
        },
        [(3, 3, 32, 32), (3, 4)],
    ),
    "masked autoencoder": (
        {
            "model_type": "vit_mae",
            "architectures": ["ViTMAEForPreTraining"],
            "image_size": 32,
            "hidden_size": 24,
            "num_attention_heads": 2,
            "decoder_hidden_size": 20,
            "decoder_num_attention_heads": 2,
        },
        [(3, 3, 32, 32)],
    ),
    "codec": (
        {
            "model_type": "encodec",
            "architectures": ["EncodecModel"],
            "num_filters": 4,
            "hidden_size": 16,
            "upsampling_ratios": [4, 2],
            "target_bandwidths": [60.0],
        },
        [(3, 1, 16_000)],
    ),
    "codec that does not count channels": (
        {
            "model_type": "dac",
            "architectures": ["DacModel"],
            "encoder_hidden_size": 8,
            "downsampling_ratios": [4, 2],
            "decoder_hidden_size": 32,
            "upsampling_ratios": [2, 4],
            "n_codebooks": 2,
            "codebook_size": 32,
        },
        [(3, 1, 16_000)],
    ),
    "without labels": (
        {
            "model_type": "deit",
            "architectures": ["DeiTForImageClassificationWithTeacher"],
            "image_size": 32,
            "hidden_size": 24,
            "num_attention_heads": 2,
        },
        [(3, 3, 32, 32)],
    ),
}


@pytest.mark.parametrize("kind", few(KINDS, 9))
def test_each_kind_of_class_is_fed_what_it_takes(kind: str, tmp_path: Path) -> None:
    """Shapes of the inputs at B = 3, T = 7, S = 4, and a finite loss of a real forward."""
    config, fed = KINDS[kind]
    spec = spec_of(tmp_path, config)
    n = Sizes(**spec.sizes({name: size for name, size in {"B": 3, "T": 7, "S": 4, "L": 2}.items() if name in spec.dims}))
    torch.manual_seed(0)
    inputs = spec.inputs(n)

    assert [tuple(x.shape) for x in inputs] == fed
    assert torch.isfinite(spec.loss(spec.build(n), *inputs))


@pytest.mark.parametrize("kind", few(["classes of texts", "answers", "recognition", "segmentation", "hidden patches", "sounds"], 3))
def test_inference_of_a_class_has_no_labels(kind: str, tmp_path: Path) -> None:
    """Its only input is what the class is named for; with labels at hand the prediction is the same."""
    spec = spec_of(tmp_path, KINDS[kind][0])
    n = Sizes(**spec.sizes(spec.check_at))
    torch.manual_seed(0)
    (main,) = inputs_at(spec, n, Options(mode="infer"))
    module = spec.build(n).eval()

    assert len(spec.inputs(n)) > 1
    assert spec.predict is not None
    with torch.no_grad():
        assert torch.equal(spec.predict(module, main), spec.predict(module, main, *spec.inputs(n)[1:]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classes of texts", "tokens and masks"])
def test_inference_of_a_class_is_derived_and_measured_alike(kind: str, tmp_path: Path) -> None:
    """One without labels; one whose labels the decoder reads, and masks."""
    derivation = calc.derive(spec_of(tmp_path, KINDS[kind][0]), cache=False, mode="infer")

    assert [] == failures(calc.check(derivation))


def test_states_and_actions_are_as_wide_as_the_sizes_say(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, next(config for config, _ in KINDS.values() if config["model_type"] == "decision_transformer"))
    states, actions, *_ = spec.inputs(Sizes(**spec.sizes({"state_dim": 13, "act_dim": 7})))

    assert (13, 7) == (states.shape[2], actions.shape[2])


def test_a_loss_that_is_not_the_librarys_own_is_said_to_be_another(tmp_path: Path) -> None:
    """A class without a head, boxes that the library would match to objects by the data, and outputs without labels; a forecast and a
    masked autoencoder have their own."""
    assert spec_of(tmp_path, KINDS["encoder"][0]).notes[0].startswith("The class has no head and no loss of its own")
    assert spec_of(tmp_path, KINDS["detection"][0]).notes[0].startswith("The library's loss first matches boxes to objects")
    assert spec_of(tmp_path, KINDS["without labels"][0]).notes == (
        "The class is run without labels: the loss here is the sum of the mean squares of its outputs.",
    )
    assert not any("loss" in note for kind in ("forecast", "masked autoencoder") for note in spec_of(tmp_path, KINDS[kind][0]).notes)
    assert any(note.startswith("The library's loss leaves blanks out") for note in spec_of(tmp_path, KINDS["recognition"][0]).notes)


def test_a_loss_without_labels_reaches_every_output(tmp_path: Path) -> None:
    """Of the two heads of a teacher's student, the library returns both beside their mean; each gets a gradient."""
    spec = spec_of(tmp_path, KINDS["without labels"][0])
    n = Sizes(**spec.sizes({"B": 2, "L": 2}))
    model = spec.build(n)
    spec.loss(model, *spec.inputs(n)).backward()

    assert all(p.grad is not None for head in (model.cls_classifier, model.distillation_classifier) for p in head.parameters())


def test_layers_that_chance_skips_all_run_and_a_note_says_so(tmp_path: Path) -> None:
    """Nor is any part of the input hidden at random."""
    spec = spec_of(tmp_path, KINDS["recognition"][0])
    made = spec.build(Sizes(**spec.sizes())).config

    assert (made.layerdrop, made.apply_spec_augment) == (0, False)
    assert "layerdrop is 0 here, so every layer runs in every step; at 0.1 a step skips each layer with that probability" in spec.notes
    assert (
        "apply_spec_augment is off here, so the step hides no part of its input; the library's own masks random parts at every step"
        in spec.notes
    )


def test_a_class_that_heeds_padding_is_fed_masks_without_any(tmp_path: Path) -> None:
    """It masks tokens that are its padding token, and asks whether there are any: a branch on data. With masks of ones there is none."""
    spec = spec_of(tmp_path, KINDS["tokens and masks"][0])
    ids, labels, mask, mask_of_labels = spec.inputs(Sizes(**spec.sizes(spec.check_at)))

    assert (mask.shape, mask_of_labels.shape) == (ids.shape, labels.shape)
    assert mask.all()
    assert mask_of_labels.all()
    assert sum("where a token is padding" in note for note in spec.notes) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["recognition", "segmentation", "tokens and masks", "patches with their places"])
def test_losses_over_steps_and_over_pixels_are_derived_and_measured_alike(kind: str, tmp_path: Path) -> None:
    derivation = calc.derive(spec_of(tmp_path, KINDS[kind][0]), cache=False, optimizer="sgd")

    assert [] == failures(calc.check(derivation))


def test_heads_as_wide_as_the_config_says_need_not_share_the_width(tmp_path: Path) -> None:
    """A projection of three heads of 8 in a model of width 16, under either name of the field."""
    of_t5 = {"d_model": 16, "num_heads": 3, "d_kv": 8, "d_ff": 20, "vocab_size": 97, "num_layers": 2, "decoder_start_token_id": 0}
    spec = spec_of(tmp_path, {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]} | of_t5)

    assert (spec.sizes()["k"], spec.dims["k"].tied) == (8, False)
    assert shapes(spec, k=10)["encoder.block.0.layer.0.SelfAttention.q.weight"] == (30, 16)


def test_a_switch_that_the_class_sets_otherwise_is_named(tmp_path: Path) -> None:
    """T5 v1.1 is published with an output matrix of its own, which the library's class ties to the input's; a Llama's is its own."""
    of_t5 = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 16, "num_heads": 2, "vocab_size": 97}
    untied = {"tie_word_embeddings": False}

    assert (
        "tie_word_embeddings is false in the file, but T5Config of the library always sets it to true, so what is built here is so"
        in spec_of(tmp_path, of_t5 | untied | {"num_layers": 2}).notes
    )
    assert not [note for note in spec_of(tmp_path, LLAMA | untied).notes if "in the file" in note]


MISTRAL3: dict[str, Any] = {
    "model_type": "mistral3",
    "architectures": ["Mistral3ForConditionalGeneration"],
    "text_config": {"model_type": "mistral", "hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8,
                    "num_hidden_layers": 2, "intermediate_size": 88, "vocab_size": 97},
    "vision_config": {"model_type": "pixtral", "hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2,
                      "intermediate_size": 36, "image_size": 28, "patch_size": 14},
}  # fmt: skip


def test_a_file_that_leaves_open_whether_weights_are_tied_is_named(tmp_path: Path) -> None:
    """Mistral Small 3.1 is published with a head of its own, and its file does not say so: the library looks into the checkpoint."""
    note = (
        "the file does not say tie_word_embeddings: Mistral3Config of the library makes the head and the embedding one weight, which"
        " MistralConfig would not; if the published weights have both, write tie_word_embeddings: false at the top of the file"
    )
    tied, untied = spec_of(tmp_path, MISTRAL3), spec_of(tmp_path, MISTRAL3 | {"tie_word_embeddings": False})

    assert (True, False) == (note in tied.notes, note in untied.notes)
    assert 97 * 48 == elements(untied) - elements(tied)


@pytest.mark.parametrize("field", ["dtype", "torch_dtype"])
def test_a_part_is_built_in_the_precision_of_the_step(tmp_path: Path, field: str) -> None:
    """A nested config may name the dtype in which the weights are published, as the file itself does; neither is an option here."""
    parts = {part: {**MISTRAL3[part], field: "bfloat16"} for part in ("text_config", "vision_config")}
    spec = spec_of(tmp_path, {**MISTRAL3, **parts, field: "bfloat16"})

    assert {torch.float32} == {weight.dtype for weight in spec.build(Sizes(**spec.sizes())).parameters()}


def elements(spec: Spec) -> int:
    return sum(weight.numel() for weight in spec.build(Sizes(**spec.sizes())).parameters())


def test_a_class_with_several_heads_predicts_tokens(tmp_path: Path) -> None:
    """Its scores have a name of their own, and those of tokens are the first."""
    bert = {"model_type": "big_bird", "architectures": ["BigBirdForPreTraining"], "attention_type": "original_full"}
    small = {"num_attention_heads": 6, "hidden_size": 48, "num_hidden_layers": 2, "vocab_size": 97, "intermediate_size": 64}
    spec = spec_of(tmp_path, bert | small)
    sizes = Sizes(**spec.sizes({"B": 2, "T": 5}))
    assert spec.predict is not None

    assert (2, 5, 97) == tuple(spec.predict(spec.build(sizes), *spec.inputs(sizes)).shape)


MARIAN = {
    "architectures": ["MarianMTModel"], "model_type": "marian", "d_model": 32, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "encoder_layers": 3, "decoder_layers": 3, "max_position_embeddings": 64,
    "vocab_size": 97, "decoder_vocab_size": 97, "pad_token_id": 96, "decoder_start_token_id": 96, "eos_token_id": 0,
}  # fmt: skip


@pytest.mark.slow
def test_weights_that_are_initialized_by_numpy_leave_widths_symbols(tmp_path: Path) -> None:
    """Marian's sinusoids: they are numbers of the first step, and no size of it."""
    sizes = {"B": 2, "T": 5, "S": 7, "d": 24, "h": 3, "f": 11}
    derivation = calc.derive(spec_of(tmp_path, MARIAN), sizes, cache=False, optimizer="sgd")

    assert {"d", "h", "f", "C"}.isdisjoint(derivation.specialized)
    assert [] == failures(calc.check(derivation, **sizes))


@pytest.mark.parametrize(
    ("architecture", "label", "fields"),
    [
        pytest.param("FNetForPreTraining", "next_sentence_label", {"model_type": "fnet"}, marks=pytest.mark.slow),
        ("AlbertForPreTraining", "sentence_order_label", {"model_type": "albert", "embedding_size": 12, "num_attention_heads": 2}),
    ],
)
def test_a_class_for_pre_training_is_fed_the_label_of_its_pair_of_sentences(
    tmp_path: Path, architecture: str, label: str, fields: dict[str, Any]
) -> None:
    """Without it the class has no loss. The forward ends in two classifiers' cross-entropies: of V words and of 2 labels."""
    config = {"architectures": [architecture], "hidden_size": 24, "num_hidden_layers": 3, "intermediate_size": 40, "vocab_size": 97}
    spec = spec_of(tmp_path, config | fields | {"max_position_embeddings": 32})
    derivation = calc.derive(spec, {"B": 3, "T": 5}, cache=False, optimizer="sgd")

    assert len(spec.inputs(Sizes(**spec.sizes({"B": 3, "T": 5})))) == 2
    assert label in inspect.signature(getattr(transformers, architecture).forward).parameters
    assert [] == failures(calc.check(derivation, B=3, T=5))

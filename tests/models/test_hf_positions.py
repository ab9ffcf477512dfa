"""Lengths that a table of positions of a Hugging Face config allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import calc
from calc.derive.sensitivity import doublings
from calc.errors import DimensionError
from calc.models.hf.positions import begins_after_padding
from calc.spec import Sizes
from tests.checks import failures
from tests.models.configs import spec_of
from tests.quick import few

SIZES: dict[str, Any] = {
    "hidden_size": 48,
    "num_attention_heads": 6,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "vocab_size": 97,
    "max_position_embeddings": 34,
    "pad_token_id": 1,
}
BART = {"d_model": 48, "encoder_attention_heads": 6, "decoder_attention_heads": 6, "encoder_ffn_dim": 80, "decoder_ffn_dim": 80}
BART |= {"encoder_layers": 3, "decoder_layers": 3, "vocab_size": 97, "max_position_embeddings": 34, "decoder_start_token_id": 2}


def config(model_type: str, architecture: str, sizes: dict[str, Any] = SIZES, **fields: Any) -> dict[str, Any]:
    return {"model_type": model_type, "architectures": [architecture], **sizes, **fields}


ROBERTA = config("roberta", "RobertaForMaskedLM")
# A padding index that the class has of its own, an attention that pads, a table of a class that is no torch.nn.Embedding.
AFTER_PADDING = {
    "roberta": ROBERTA,
    "mpnet": config("mpnet", "MPNetForMaskedLM"),
    "longformer": config("longformer", "LongformerForMaskedLM", attention_window=4),
    "ibert": config("ibert", "IBertForMaskedLM"),
}
# No row for padding; two rows more than positions.
FROM_THE_FIRST = {
    "bert": config("bert", "BertForMaskedLM"),
    "opt": config("opt", "OPTForCausalLM", ffn_dim=80, word_embed_proj_dim=48),
    "bart": config("bart", "BartForConditionalGeneration", BART),
}


@pytest.mark.parametrize("name", few(AFTER_PADDING, 3))
def test_positions_after_that_of_padding_are_fewer_than_rows(name: str, tmp_path: Path) -> None:
    """Padding is token 1, so of 34 rows the first two are for no token: 32 tokens."""
    spec = spec_of(tmp_path, AFTER_PADDING[name])

    assert (32, "C - 2") == (spec.sizes()["T"], spec.dims["T"].at_most)
    with pytest.raises(DimensionError, match=r"^T = 33 is more than C - 2 = 32: this model needs T <= C - 2: lower T or raise C$"):
        spec.sizes({"T": 33})


def test_the_class_itself_takes_no_more(tmp_path: Path) -> None:
    """With its own padding token and no token that is padding."""
    from transformers import RobertaConfig, RobertaForMaskedLM

    model = RobertaForMaskedLM(RobertaConfig(**SIZES))

    model(torch.full((1, 32), 5))
    with pytest.raises(Exception, match="index"):
        model(torch.full((1, 33), 5))


@pytest.mark.parametrize("name", FROM_THE_FIRST)
def test_positions_from_the_first_row_are_as_many_as_the_config_says(name: str, tmp_path: Path) -> None:
    assert (34, "C") == ((spec := spec_of(tmp_path, FROM_THE_FIRST[name])).sizes()["T"], spec.dims["T"].at_most)


def test_another_padding_token_leaves_other_rows(tmp_path: Path) -> None:
    """Token 4: positions begin in row 5. A note says so."""
    spec = spec_of(tmp_path, ROBERTA | {"pad_token_id": 4})

    assert "C - 5" == spec.dims["T"].at_most
    assert "the rows of the table of positions up to that for padding are for no token, so that C - 5 are left" == spec.notes[-1]


def test_the_default_length_is_still_at_most_1024(tmp_path: Path) -> None:
    assert 1024 == spec_of(tmp_path, ROBERTA | {"max_position_embeddings": 4098}).sizes()["T"]


class Positions(torch.nn.Module):
    """A table of positions with a row for padding, whose first token reads row ``first``."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.table, self.first = torch.nn.Embedding(13, 3, padding_idx=0), first

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.table(torch.arange(self.first, self.first + tokens.shape[0]))
        return result


@pytest.mark.parametrize(("first", "after"), [(0, False), (1, True)])
def test_a_row_for_padding_is_one_of_a_position_where_the_class_reads_it_so(first: int, after: bool) -> None:
    """As in LXMERT, whose table has a row for padding that is that of its first position."""
    module = Positions(first)

    assert after is begins_after_padding(module, 13, 5, lambda token: module(torch.full((5,), token)))


@pytest.mark.slow
def test_the_step_at_the_longest_sequence_is_that_of_a_real_run(tmp_path: Path) -> None:
    """Also what doubling the length is said to do: it is not possible."""
    derivation = calc.derive(spec_of(tmp_path, ROBERTA), cache=False, mode="infer")

    assert [] == failures(calc.check(derivation, T=32, B=2))
    assert ["T is at most C - 2 = 32"] == [d.because for d in doublings(derivation, "flops.forward.total") if d.dim == "T"]


def test_inputs_have_that_length(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, ROBERTA)

    assert (1, 32) == spec.inputs(Sizes(**spec.sizes()))[0].shape

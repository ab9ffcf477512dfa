"""Published counts of models of the library, from its own classes at the sizes of their configs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import calc
from calc.derive.result import Derivation
from calc.spec import Spec
from tests.published.figures import assert_reproduced, reproduces
from tests.published.library import CONFIGS


def derived(name: str, folder: Path) -> Derivation:
    """The forward of a config, on a short batch: parameters do not depend on it, and some of these loop over the tokens."""
    (folder / "config.json").write_text(json.dumps(CONFIGS[name]))
    return calc.derive(calc.load(f"hf:{folder}"), {"B": 2, "T": 16}, cache=False, mode="eval")


@reproduces(*(row for row in CONFIGS if row.startswith("params-")), slow=True)
def test_parameters_of_the_library(row: str, tmp_path: Path) -> None:
    """To the last one."""
    assert_reproduced(row, {"params": derived(row, tmp_path)["parameters"].value})


@reproduces("gemma2-2b", "gemma2-27b", slow=True)
def test_gemma2_by_part(row: str, tmp_path: Path) -> None:
    """The paper has 256,128 words where the checkpoint has 256,000."""
    derivation = derived(row, tmp_path)
    count, without = derivation["parameters"], derivation["parameters.non_embedding"].value

    assert_reproduced(row, {"non_embedding": without, "embedding": count.at(V=256128) - without})


@reproduces("deepseek-v2", slow=True)
def test_deepseek_v2_in_all_and_per_token(row: str, tmp_path: Path) -> None:
    """A token uses 6 of the routed experts. Of the small one the paper leaves the embedding out there."""
    actual: dict[str, Any] = {}
    for name, model in (("v2", "deepseek-v2"), ("lite", "deepseek-v2-lite")):
        derivation = derived(model, tmp_path)
        actual[f"{name}_total"] = derivation["parameters"].value
        actual[f"{name}_active"] = derivation["parameters.active"].value
    actual["lite_active"] -= 102400 * 2048

    assert_reproduced(row, actual)


def _bert() -> Spec:
    """The encoder with its pooler, without a head: one size, that of the checkpoint."""

    def build(_: Any) -> torch.nn.Module:
        from transformers import BertConfig, BertModel

        return BertModel(BertConfig())

    return Spec(
        name="bert",
        dims={"B": 2, "T": 64},
        build=build,
        inputs=lambda n: (torch.randint(30522, (n.B, n.T)),),
        loss=lambda model, ids: model(input_ids=ids).pooler_output.sum(),
    )


@reproduces("params-bert-base")
@pytest.mark.slow
def test_bert_without_a_head(row: str) -> None:
    """Three embeddings, twelve layers, the pooler."""
    assert_reproduced(row, {"params": calc.derive(_bert(), cache=False, mode="eval")["parameters"].value})

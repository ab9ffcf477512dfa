"""The words that several pages share."""

from __future__ import annotations

import pytest

from reports.typeset.wording import model_title


@pytest.mark.parametrize(
    ("model", "title"),
    [
        ("gpt2", "gpt2"),
        ("my model", "my model"),
        ("hf:/data/models/Mistral-7B-v0.1/config.json", "Mistral-7B-v0.1"),
        ("hf:/data/models/qwen2.5-7b.json", "qwen2.5-7b"),
        ("hf:config.json", "config.json"),
        ("hf:org/model-v0.1", "model-v0.1"),
        ("hf:models/", "models"),
        ("hf:", ""),
    ],
)
def test_a_heading_names_a_config_without_its_path(model: str, title: str) -> None:
    assert model_title(model) == title

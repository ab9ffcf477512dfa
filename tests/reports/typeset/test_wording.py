"""The words that several pages share."""

from __future__ import annotations

import pytest

from calc.graph.guards import TracedDim
from reports.typeset.wording import declared, model_title


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


def test_a_bound_on_a_size_is_given_in_words() -> None:
    """e ≤ E by what the letters mean, not by the letters once more."""
    dims = (TracedDim("e", "experts per token", 2, at_most="E"), TracedDim("E", "experts", 8))

    assert [a.because for a in declared(iter(dims), ())] == ["experts per token cannot exceed experts"]

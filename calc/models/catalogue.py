"""The built-in models by name, for ``napkin list`` and ``load``. Torch-free: the models themselves are imported when loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

# Bundled configs of transformers: a class of the library at its default sizes.
CONFIGS = Path(__file__).resolve().parent.parent / "data" / "configs"


def configs() -> tuple[str, ...]:
    """Names of the bundled configs, as in ``transformers:llama``."""
    return tuple(sorted(path.stem for path in CONFIGS.glob("*.json")))


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A built-in model. ``attribute`` of ``module`` is its spec, or a function that makes it from ``options``."""

    name: str
    description: str
    module: str
    attribute: str = "SPEC"
    options: Mapping[str, str] = field(default_factory=dict)


CATALOGUE: dict[str, CatalogueEntry] = {
    entry.name: entry
    for entry in (
        CatalogueEntry("linear", "one linear layer with bias, mean squared error", "calc.models.linear"),
        CatalogueEntry("two-layer", "x W1 W2 without biases, mean squared error against y", "calc.models.two_layer"),
        CatalogueEntry(
            "cruncher", "deep linear network D -> ... -> D -> 1; optimizer 'spec' is the lecture's AdaGrad", "calc.models.cruncher"
        ),
        CatalogueEntry("mlp", "linear, GELU, linear, cross-entropy over classes", "calc.models.mlp"),
        CatalogueEntry(
            "gpt2",
            "GPT-2 124M: learned positions, tied head, cross-entropy over all tokens",
            "calc.models.gpt2",
            "spec",
            {"dropout": "rate of its dropouts, 0 by default: gpt2:dropout=0.1"},
        ),
        CatalogueEntry("llama3-8b", "Llama 3 8B: rotary positions, grouped-query attention, SwiGLU", "calc.models.llama", "LLAMA3_8B"),
        CatalogueEntry("llama3-70b", "Llama 3 70B: the same module, wider and deeper", "calc.models.llama", "LLAMA3_70B"),
        CatalogueEntry("mixtral", "Mixtral 8x7B: two of eight experts per token, sorted into one grouped matmul", "calc.models.mixtral"),
        CatalogueEntry(
            "vit-b", "ViT-B/16: an image as a sequence of patches, a class token, cross-entropy over classes", "calc.models.vit"
        ),
        CatalogueEntry("resnet50", "ResNet-50 v1.5: convolutions and batch norms, cross-entropy over classes", "calc.models.resnet"),
    )
}

"""The gallery: what each entry is, and the command that makes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "reports" / "gallery"


@dataclass(frozen=True, slots=True)
class Entry:
    """Files ``name.*`` made by ``napkin report words``. One of no words is made by a ``command`` of its own, or written by hand and
    ``verified`` by a command."""

    name: str
    title: str
    words: str = ""
    command: str = ""
    verified: str = ""

    @property
    def origin(self) -> str:
        """Where the files come from, as a sentence."""
        return f"Verified by `{self.verified}`" if self.verified else f"Made by `{self.command or f'napkin report {self.words}'}`"


PICTURED = "gpt2"  # the README shows its first screen

ENTRIES = (
    Entry("gpt2", "GPT-2 124M, one AdamW step of 8 sequences of 1024 tokens", "gpt2 -d B=8 -d T=1024 --gpu h100-sxm"),
    Entry(
        "gpt2-h100",
        "GPT-2 124M as an H100 runs it, in bf16, beside recorded runs",
        "gpt2 -d B=8 -d T=1024 --precision bf16-autocast --kernels cuda --gpu h100-sxm",
    ),
    Entry("llama3-8b", "Llama-3-8B, one AdamW step on 4096 tokens", "llama3-8b -d B=1 -d T=4096 --gpu h100-sxm"),
    Entry("llama3-8b-inference", "Llama-3-8B inference: one forward on 4096 tokens", "llama3-8b -d B=1 -d T=4096 --mode infer"),
    Entry("mixtral", "Mixtral-8x7B, one AdamW step on 4096 tokens", "mixtral -d B=1 -d T=4096"),
    Entry("resnet50", "ResNet-50, one SGD step on 32 images", "resnet50 -d B=32 --optimizer sgd"),
    Entry("vit-b", "ViT-B/16, one AdamW step", "vit-b"),
    Entry("homework", "The two-layer network of the lecture, as a homework solution", "two-layer --template homework --quantity all"),
    Entry("design-section", "GPT-2 124M as a section of a design document", "gpt2 -d B=8 -d T=1024 --template design-section"),
    Entry("design-70b", "A live design document: 70B on 1024 H100", verified="napkin verify reports/gallery/design-70b.md"),
    Entry("lecture", "Claims of lecture notes, each recomputed", command="napkin lecture -o reports/gallery"),
    Entry("thirdparty", "Modules of other packages, derived and measured", command="make test-thirdparty"),
    Entry("architectures", "Every architecture of transformers, derived and measured", command="make sweep"),
)

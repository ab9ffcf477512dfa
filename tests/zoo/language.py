"""Language models: the library's own, from configs as they are published, and this project's."""

from __future__ import annotations

from pathlib import Path

import calc
from tests.zoo.exhibit import show

HERE = Path(__file__).parent
SIZES = {
    "gpt2": ({"B": 4, "T": 7}, {"B": 6, "T": 5, "d": 14, "h": 2, "L": 3, "V": 17, "C": 11}),
    "llama": ({"B": 5, "T": 7, "L": 3}, {"B": 2, "T": 5, "d": 72, "h": 12, "g": 3, "f": 13, "L": 4, "V": 17}),
}

for family, (sizes, other) in SIZES.items():
    for attention in ("fused", "math"):
        show(
            f"{family} of transformers, {attention}",
            lambda f=family: calc.load(f"hf:{HERE / f}.json"),
            other,
            sizes=sizes,
            slow=True,
            optimizer="adamw",
            attention=attention,
        )

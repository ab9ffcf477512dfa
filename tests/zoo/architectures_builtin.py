"""The built-in models at small sizes."""

from __future__ import annotations

import calc
from tests.zoo.exhibit import show

Sizes = dict[str, int]

SIZES: dict[str, tuple[Sizes, Sizes]] = {
    "llama3-8b": (
        {"B": 2, "T": 7, "d": 24, "h": 6, "g": 3, "k": 10, "f": 16, "L": 4, "V": 17},
        {"B": 5, "T": 11, "d": 14, "h": 8, "g": 4, "k": 6, "f": 13, "L": 3, "V": 19},
    ),
    "mixtral": (
        {"B": 3, "T": 11, "d": 16, "h": 6, "g": 2, "k": 10, "f": 8, "L": 5, "V": 17, "E": 7, "e": 4},
        {"B": 2, "T": 7, "d": 24, "h": 12, "g": 4, "k": 14, "f": 40, "L": 3, "V": 19, "E": 13, "e": 5},
    ),
    "vit-b": (
        {"B": 5, "S": 21, "P": 7, "d": 26, "h": 2, "f": 11, "L": 4, "K": 17},
        {"B": 3, "S": 40, "P": 8, "d": 24, "h": 4, "f": 13, "L": 7, "K": 19},
    ),
    "resnet50": ({"B": 5, "S": 64, "w": 7, "K": 11}, {"B": 3, "S": 96, "w": 2, "K": 5}),
}

for name, (sizes, other) in SIZES.items():
    show(name, lambda name=name: calc.load(name), other, sizes=sizes, optimizer="adamw", slow=True)

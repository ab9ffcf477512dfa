"""What is measured on a GPU: models at fixed widths, the sizes of their inputs, and the formats of their products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calc.options import Options


@dataclass(frozen=True)
class Model:
    """A built-in model at fixed widths, and the sizes of the inputs with which its steps run."""

    name: str
    of: str
    widths: Mapping[str, int]
    cases: tuple[Mapping[str, int], ...]

    @property
    def sizes(self) -> tuple[dict[str, int], ...]:
        return tuple({**self.widths, **case} for case in self.cases)


def _tokens(*cases: tuple[int, int]) -> tuple[Mapping[str, int], ...]:
    return tuple({"B": batch, "T": length} for batch, length in cases)


_LLAMA = {"d": 2048, "h": 32, "g": 8, "f": 8192, "L": 16, "V": 32000}
_EXPERTS = {"d": 1024, "h": 16, "g": 4, "f": 3584, "L": 8, "V": 32000}
GPT2 = Model("gpt2-124m", "gpt2", {}, _tokens((4, 512), (7, 769), (8, 1024)))
LLAMA = Model("llama-1b", "llama3-8b", _LLAMA, _tokens((1, 1024), (2, 1536), (4, 1024)))
EXPERTS = Model("moe", "mixtral", _EXPERTS, _tokens((2, 512), (3, 769), (4, 1024)))
RESNET = Model("resnet-50", "resnet50", {}, ({"B": 16, "S": 224}, {"B": 32, "S": 160}, {"B": 64, "S": 224}))

OF_MEMORY = (GPT2, LLAMA, EXPERTS)
OF_TIME = (GPT2, LLAMA, RESNET)


@dataclass(frozen=True)
class Format:
    """A recipe of number formats; ``tf32`` says what fp32 products are made in."""

    name: str
    precision: str
    tf32: bool = False


FORMATS = (Format("fp32", "fp32"), Format("tf32", "fp32", tf32=True), Format("bf16-autocast", "bf16-autocast"))


def options_of(recipe: str) -> Options:
    """The recipe as torch runs it on a device by default."""
    return Options(precision=recipe, implementation="foreach")

"""What is measured on a GPU, in which order, and at which sizes: the real run, and its rehearsal at toy sizes.

The order is that of value, for a run that may be cut off at any moment: the lecture's products, GPT-2's steps, its memory, what predicts
its steps, transfers, then the rest; within it, nothing is timed while steps are derived.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from calc.hardware.times import Repeat
from calc.options import Options
from calc.performance.matmul import LECTURE

RECIPES = ("fp32", "bf16-autocast", "bf16-master")
PARTS = ("products", "eager", "compiled", "memory", "calibration", "predictions", "transfers", "largest")


@dataclass(frozen=True)
class Model:
    """A built-in model at fixed widths, and the sizes of the inputs with which its steps run; the last is the main one."""

    name: str
    of: str
    widths: Mapping[str, int]
    cases: tuple[Mapping[str, int], ...]

    @property
    def sizes(self) -> tuple[dict[str, int], ...]:
        return tuple({**self.widths, **case} for case in self.cases)


@dataclass(frozen=True)
class Format:
    """A recipe of number formats; ``tf32`` says what fp32 products are made in."""

    name: str
    precision: str
    tf32: bool = False


_ALL = (Format("bf16-autocast", "bf16-autocast"), Format("tf32", "fp32", tf32=True), Format("fp32", "fp32"))
FORMATS = {form.name: form for form in _ALL}


@dataclass(frozen=True)
class Task:
    """One thing to measure, which may fail alone. After ``limit`` seconds it is stopped and the next begins."""

    part: str
    limit: float
    model: str = ""
    form: str = ""

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.part, self.model, self.form)))


@dataclass(frozen=True)
class Plan:
    """``first`` is the model that comes first, ``timed`` and ``filled`` are the others whose time and memory are measured."""

    product: tuple[int, int, int]
    products: Repeat
    steps: Repeat
    first: Model
    timed: tuple[Model, ...]
    filled: tuple[Model, ...]
    copied: int  # bytes
    copies: Repeat
    calibrated: int  # FLOP and bytes of the largest primitive of a calibration

    def model(self, name: str) -> Model:
        return next(model for model in (self.first, *self.timed, *self.filled) if model.name == name)


def _tokens(*cases: tuple[int, int]) -> tuple[Mapping[str, int], ...]:
    return tuple({"B": batch, "T": length} for batch, length in cases)


_LLAMA = {"d": 2048, "h": 32, "g": 8, "f": 8192, "L": 16, "V": 32000}
_EXPERTS = {"d": 1024, "h": 16, "g": 4, "f": 3584, "L": 8, "V": 32000}
GPT2 = Model("gpt2-124m", "gpt2", {}, _tokens((4, 512), (7, 769), (8, 1024)))
LLAMA = Model("llama-1b", "llama3-8b", _LLAMA, _tokens((1, 1024), (2, 1536), (4, 1024)))
EXPERTS = Model("moe", "mixtral", _EXPERTS, _tokens((2, 512), (3, 769), (4, 1024)))
RESNET = Model("resnet-50", "resnet50", {}, ({"B": 16, "S": 224}, {"B": 32, "S": 160}, {"B": 64, "S": 224}))
TOY = Model("toy", "mlp", {"d": 11, "f": 13}, ({"B": 7}, {"B": 17}))
OTHER_TOY = Model("other-toy", "linear", {"D": 11}, ({"B": 7},))

REAL = Plan(LECTURE, Repeat(3, 10, 1.0), Repeat(3, 10, 1.0, 200), GPT2, (LLAMA, RESNET), (LLAMA, EXPERTS), 2**28, Repeat(2, 10, 0.5), 2**63)
REHEARSED = Plan((64, 128, 32), Repeat(1, 2, 0), Repeat(1, 2, 0, 5), TOY, (OTHER_TOY,), (OTHER_TOY,), 2**16, Repeat(1, 2, 0), 2**20)


def tasks(plan: Plan) -> Iterator[Task]:
    """The most valuable first; predictions are joined to what was timed as soon as there is a calibration, and again at the end."""
    first = plan.first.name
    yield Task("products", 90)
    yield from (Task("eager", 75, first, form) for form in FORMATS)
    yield Task("compiled", 150, first, "bf16-autocast")
    yield from (Task("memory", 75, first, recipe) for recipe in RECIPES)
    yield Task("calibration", 120)
    yield Task("predictions", 30)
    yield Task("transfers", 60)
    yield from (Task("memory", 75, model.name, recipe) for model in plan.filled for recipe in RECIPES)
    yield from (Task("eager", 75, model.name, form) for model in plan.timed for form in FORMATS)
    yield Task("predictions", 30)
    yield from (Task("largest", 120, first, recipe) for recipe in RECIPES)
    yield from (Task("compiled", 120, first, form) for form in FORMATS if form != "bf16-autocast")
    yield from (Task("compiled", 150, model.name, "bf16-autocast") for model in plan.timed)


Step = tuple[str, Mapping[str, int], str]  # model, sizes, recipe


def derived_first(plan: Plan) -> list[Step]:
    """Steps that are derived while the products run: nothing that is timed waits for others."""
    return [(plan.first.of, sizes, recipe) for sizes in reversed(plan.first.sizes) for recipe in RECIPES]


def derived_later(plan: Plan) -> list[Step]:
    """Those that are derived while nothing is timed: beside steps whose memory is read, which wait for them."""
    filled = [(model.of, sizes, recipe) for model in plan.filled for recipe in RECIPES for sizes in model.sizes]
    timed = [(model.of, sizes, form.precision) for model in plan.timed for sizes in model.sizes for form in FORMATS.values()]
    return list({named(step): step for step in (*filled, *timed)}.values())


def named(step: Step) -> str:
    """A name that a file may have."""
    model, sizes, recipe = step
    return "-".join((model, *(f"{name}{size}" for name, size in sorted(sizes.items())), recipe))


def options_of(recipe: str) -> Options:
    """The recipe as torch runs it on a device by default."""
    return Options(precision=recipe, implementation="foreach")


def derived_options(recipe: str) -> Options:
    """The same, by a CUDA device's kernels."""
    return replace(options_of(recipe), kernels="cuda")

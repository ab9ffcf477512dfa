"""Memory to the byte over models, optimizers, number formats and checkpointing: derived equals a real run.

The design covers every combination of model, optimizer and precision, and each two of those with and without checkpointing; sizes
are drawn from a seed. A seeded sample runs with the quick tests.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

import calc
from calc.errors import BadInputError
from calc.pipeline.verdict import NOT_MEASURED
from calc.spec import Spec
from tests.checks import failures
from tests.zoo import ZOO

SEED = 20
QUICK = 1
MEMORY = ("parameters.bytes", "gradients.bytes", "optimizer_state.bytes", "activations.bytes", "memory.peak", "memory.peak.first_step")

OPTIMIZERS = ("sgd", "momentum", "adagrad", "rmsprop", "adamw", "adafactor", "muon")
PRECISIONS = ("fp32", "bf16-autocast", "bf16", "bf16-master")
Sizes = Mapping[str, int]


def _gpt2(draw: random.Random) -> Sizes:
    h = draw.choice([2, 3])
    t = draw.randint(5, 13)
    return {"B": draw.randint(2, 5), "T": t, "C": t + draw.randint(0, 7), "d": 8 * h, "h": h, "f": draw.randint(17, 41), "L": 3, "V": 53}


def _llama(draw: random.Random) -> Sizes:
    return {"B": draw.randint(2, 5), "T": draw.randint(5, 13), "d": draw.choice([24, 26]), "h": 4, "g": 2, "k": 6, "f": 31, "L": 3, "V": 47}


def _mixtral(draw: random.Random) -> Sizes:
    return {
        "B": draw.randint(2, 4), "T": draw.randint(5, 11), "d": 16, "h": 4, "g": 2, "k": 8, "f": draw.choice([24, 40]), "L": 3, "V": 41,
        "E": 5, "e": 2,
    }  # fmt: skip


def _vit(draw: random.Random) -> Sizes:
    return {"B": draw.randint(2, 5), "S": draw.choice([14, 21]), "P": 7, "d": 18, "h": 3, "f": draw.randint(19, 37), "L": 3, "K": 11}


def _bert(draw: random.Random) -> Sizes:
    return {"B": draw.randint(2, 5), "T": draw.randint(5, 13)}


def _resnet(draw: random.Random) -> Sizes:
    return {"B": draw.randint(2, 4)}


@cache
def _bert_config(folder: Path) -> Spec:
    path = folder / "config.json"
    sizes = {"hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 41, "num_hidden_layers": 3, "vocab_size": 43}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = {"model_type": "bert", "architectures": ["BertForMaskedLM"], **sizes, **dropout, "max_position_embeddings": 16}
    path.write_text(json.dumps(config))
    return calc.load(f"hf:{path}")


MODELS: dict[str, Callable[[random.Random], Sizes]] = {
    "gpt2": _gpt2, "llama3-8b": _llama, "mixtral": _mixtral, "vit-b": _vit, "bert": _bert, "resnet-18": _resnet,
}  # fmt: skip
MODEL_NAMES = tuple(MODELS)

# A half of them runs blocks again: the half in which every two of model, optimizer and precision occur with it and without it.
DESIGN = [
    (MODEL_NAMES[i], OPTIMIZERS[j], PRECISIONS[k], "block" if (i + j + k) % 2 else "none")
    for i, j, k in itertools.product(range(len(MODEL_NAMES)), range(len(OPTIMIZERS)), range(len(PRECISIONS)))
]
SAMPLE = set(random.Random(SEED).sample(range(len(DESIGN)), QUICK))


def _spec(model: str, folder: Path) -> Spec:
    if model == "bert":
        return _bert_config(folder)
    return ZOO[model].make() if model in ZOO and model.startswith("resnet") else calc.load(model)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bert")


def test_the_design_has_at_least_150_combinations() -> None:
    assert len(DESIGN) >= 150


def test_any_two_choices_meet() -> None:
    """Every model, optimizer and precision is run with checkpointing and without, and so are all pairs of two of them."""
    choices = (MODELS, OPTIMIZERS, PRECISIONS, ("none", "block"))
    for first, second in itertools.combinations(range(4), 2):
        met = {(row[first], row[second]) for row in DESIGN}
        assert set(itertools.product(choices[first], choices[second])) == met


@pytest.mark.parametrize(
    ("model", "optimizer", "precision", "checkpointing"),
    [pytest.param(*row, marks=[] if i in SAMPLE else [pytest.mark.slow]) for i, row in enumerate(DESIGN)],
)
def test_memory_is_that_of_a_real_run(model: str, optimizer: str, precision: str, checkpointing: str, folder: Path) -> None:
    spec = _spec(model, folder)
    sizes = MODELS[model](random.Random(f"{SEED} {model} {optimizer} {precision}"))
    options = {"optimizer": optimizer, "precision": precision, "checkpointing": checkpointing}
    try:
        derivation = calc.derive(spec, sizes, cache=False, **options)
    except BadInputError as error:
        pytest.skip(f"refused: {error}")  # torch's own class refuses such parameters
    report = calc.check(derivation, **sizes)

    assert derivation.steps  # each is checked when it is made
    assert [] == failures(report)
    assert [name for name in MEMORY if report[name].verdict == NOT_MEASURED] == []

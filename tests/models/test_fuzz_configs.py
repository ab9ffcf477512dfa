"""Configs of published models with fields that nobody would write: a spec or one line, soon, whatever stands in them."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from calc.errors import NapkinError
from calc.models import hf
from calc.models.hf.table import FIELDS
from calc.spec import Spec

PUBLISHED = Path(__file__).resolve().parent.parent / "published" / "configs"
TEXTS = {file.stem: file.read_text(encoding="utf-8") for file in sorted(PUBLISHED.glob("*.json"))}
# They load in a third of a second; these take from three to twenty, so they are drawn seldom.
SLOW = ("bamba-9b", "clip-vit-large-patch14", "deepseek-v3", "mamba-codestral-7b", "zamba2-1.2b")
QUICK = ("ernie-4.5-0.3b", "falcon-7b", "llama-2-7b", "gemma-2b", "olmo-2-7b")
SECONDS = 120


class TooLateError(BaseException):
    """Not an ``Exception``, so that nobody takes it for an objection of the library's."""


def deep(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


VALUES: tuple[Any, ...] = (
    0, -1, 1, 2, 3, 7, 100, 2_000, 2_001, 10**6, 10**9, 2**31, 2**62, 2**63 - 1, 2**63, 10**30, -(10**30),
    0.0, -0.0, 0.5, 1.5, 1e300, 1e-300, float("nan"), float("inf"), True, False, None,
    "", "48", "auto", "x" * 10_000, "\x00", "\ud800", "a\nb", "../../etc/passwd",
    [], {}, [1, 2], [None], [-1], [[10**9]], [["x"], 10**9], [[["global", "local"], 10**9]], ["full_attention"] * 7, [0] * 1_000,
    {"a": 1}, {"type": "x"}, {"rope_type": "linear", "factor": 0}, {"0": "x"}, deep(10), deep(25), deep(400),
)  # fmt: skip
# Fields that the library's classes, or we, take for something, and names of what the classes have themselves.
NAMES = (
    *sorted(FIELDS.sizes), *FIELDS.rotary, *FIELDS.groups_of_experts, *FIELDS.inputs, *FIELDS.ignored,
    "num_labels", "id2label", "label2id", "layer_types", "text_config", "vision_config", "model_type", "architectures",
    "is_decoder", "is_encoder_decoder", "tie_word_embeddings", "pad_token_id", "hidden_act", "sliding_window",
    "first_k_dense_replace", "attention_types", "output_attentions", "return_dict", "problem_type", "add_cross_attention",
    "chunk_size_feed_forward", "pruned_heads", "name_or_path", "self", "kwargs", "cls", "to_dict", "to_diff_dict",
    "attribute_map", "sub_configs", "__class__", "__dict__", "get_text_config", "x" * 5_000, "", "a.b", "\n", "\ud800",
)  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every table or list with every key in it."""
    if isinstance(value, dict | list):
        for key, inner in [*value.items()] if isinstance(value, dict) else [*enumerate(value)][:20]:
            yield value, key
            yield from places(inner)


def replaced(chance: random.Random, config: dict[str, Any]) -> None:
    inner, key = chance.choice([*places(config)])
    inner[key] = chance.choice(VALUES)


def scaled(chance: random.Random, config: dict[str, Any]) -> None:
    numbers = [(inner, key) for inner, key in places(config) if type(inner[key]) in (int, float)]
    if numbers:
        inner, key = chance.choice(numbers)
        change: Callable[[Any], Any] = chance.choice(
            [lambda v: -v, lambda v: 2 * v, lambda v: v + 1, lambda v: v // 2, lambda v: v * v, str, float]
        )
        inner[key] = change(inner[key])


def removed(chance: random.Random, config: dict[str, Any]) -> None:
    inner, key = chance.choice([*places(config)])
    del inner[key]


def added(chance: random.Random, config: dict[str, Any]) -> None:
    config[chance.choice(NAMES)] = chance.choice(VALUES)


def swapped(chance: random.Random, config: dict[str, Any]) -> None:
    (one, first), (other, second) = chance.sample([*places(config)], 2)
    with contextlib.suppress(ValueError):  # one holds the other
        json.dumps([one, other])
        one[first], other[second] = other[second], one[first]


def of_another(chance: random.Random, config: dict[str, Any]) -> None:
    other = json.loads(TEXTS[chance.choice([*TEXTS])])
    for name in chance.sample([*other], chance.randint(1, 4)):
        config[name] = other[name]


MUTATIONS = (replaced, replaced, replaced, scaled, scaled, removed, added, added, swapped, of_another)


def mutated(chance: random.Random, names: tuple[str, ...]) -> bytes:
    """A config of one of the models, with one to three changes, now and then cut off or no text."""
    text = TEXTS[chance.choice(names)]
    config = json.loads(text)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        with contextlib.suppress(IndexError, ValueError, OverflowError, RecursionError):  # nothing is left to change
            chance.choice(MUTATIONS)(chance, config)
    with contextlib.suppress(ValueError, RecursionError):  # it holds itself
        text = json.dumps(config)
    content = text.encode("utf-8", "surrogatepass")
    if chance.random() < 0.04:
        at = chance.randrange(len(content))
        content = (
            content[:at]
            + chance.choice([b"", b"\xff", b"\x00", b"[" * 10_000, b"9" * 5_000, b",", b"NaN"])
            + content[at + chance.choice([0, 1, 10**6]) :]
        )
    return content


@pytest.fixture
def bounded() -> Iterator[None]:
    """What takes two minutes, or more memory than a workstation has, ends with an exception."""

    def late(*_: object) -> None:
        raise TooLateError

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (24 * 2**30, hard))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def outcome(file: Path, content: bytes) -> str:
    """What is wrong with what comes of a config; nothing where it is a spec or a refusal of one line."""
    file.write_bytes(content)
    signal.alarm(SECONDS)
    try:
        loaded = hf.spec(str(file))
    except NapkinError as error:
        said = str(error)
        return "" if 0 < len(said) < 1_000 else f"says {said[:2_000]!r}"
    except BaseException as error:
        return f"raises {type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return "" if isinstance(loaded, Spec) else f"is {loaded!r}"


def wrong(folder: Path, seed: int, count: int, names: tuple[str, ...]) -> Iterator[str]:
    """The first configs of a seed of which neither a spec nor one line comes."""
    chance = random.Random(seed)
    for number in range(count):
        content = mutated(chance, names)
        said = outcome(folder / "config.json", content)
        if said:
            yield f"seed {seed}, config {number}: {said}\n{content[:3_000]!r}"


@pytest.mark.slow
def test_thirty_configs_are_a_spec_or_one_line(tmp_path: Path, bounded: None) -> None:
    """A sample of what the slow test tries."""
    assert [] == [*wrong(tmp_path, 0, 30, QUICK)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_two_thousand_configs_are_a_spec_or_one_line(seed: int, tmp_path: Path, bounded: None) -> None:
    """Five hundred of each seed, of which a few are of the models that take long to load."""
    usual = tuple(name for name in TEXTS if name not in SLOW)

    assert [] == [*wrong(tmp_path, seed, 490, usual), *wrong(tmp_path, 100 + seed, 10, SLOW)]

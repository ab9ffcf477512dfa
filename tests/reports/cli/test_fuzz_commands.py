"""Random command lines: exit status 0 or 2 and one line for every refusal, whatever is typed; 1 only where a check failed."""

from __future__ import annotations

import importlib
import random
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner, Result

from calc.errors import BadInputError
from reports import cli
from tests.reports import hostile
from tests.reports.inert import controls
from tests.reports.process.test_process import done

# Every command that answers without torch, and of the others what is refused before torch is needed.
LINES: tuple[Sequence[str], ...] = tuple(
    tuple(line.split("|"))
    for line in (
        "list|models",
        "list|hardware|h100",
        "list|rules|convolution",
        "list|dtypes|--json",
        "list|questions",
        "list|hardware|--hardware|own.toml",
        "ask|training-time|parameters=70e9|tokens=15T|gpu=h100-sxm|mfu=50%|days=30|solve=gpus",
        "ask|largest-model|devices=8|memory=80GB|optimizer=adamw|precision=fp32",
        "ask|sharding|parameters=7.5e9|data=64|zero=3|--json",
        "ask|training-time|parameters=1e9|tokens=1e9|peak=1e12|mfu=0.5|gpus=8|sparse=yes",
        "ask|largest-batch|model=gpt2|gpu=h100-sxm|T=1024",
        "shard|parameters=7.5e9|data=64|zero=2",
        "shard|gpt2|data=8|zero=3|gpu=h100-sxm|--json",
        "shard|L=126|d=16384|h=128|g=8|f=53248|V=128256|T=8192|data=128|tensor=8|pipeline=16|batch=2048",
        "layout|gpt2|devices=8|gpu=h100-sxm|batch=64",
        "dtype|bf16|0.1",
        "dtype|e3m4|--bits|0 01000 0100011111",
        "dtype|fp8|--json",
        "einsum|b s d, d f -> b s f|b=2|s=3|--json",
        "einsum|b (h k) -> b h k|h=4|--dtype|bf16",
        "einsum|b s d -> b d|--reduce|mean",
        "storage|--tensor|4x4|--do|x.transpose(0, 1).contiguous()|--index|1,2|--json",
        "sweep|--expr|12*L*d**2|L=1,2,4|d=1024:8192:1024",
        "sweep|--expr|B*T|B=1Ki..16Ki×2|T=3|--json|--most|100",
        "sweep|gpt2|B=1,2|--quantity|memory.peak|--plot|x.svg|--over|B",
        "derive|linear|-d|B=8|--optimizer|sgd|--mode|train|--explain|parameters",
        "derive|hf:config.json|--accumulation|2|--json|--values",
        "derive|own.py:spec|--peak|--no-cache",
        "compare|gpt2 B=8|gpt2 B=4|optimizer=sgd|--explain|parameters",
        "inference|gpt2|-d|T=8|--weights|int4|--group|64",
        "checkpointing|gpt2|--memory|80GB",
        "checkpoint|gpt2|--save-seconds|60|--failure-hours|4",
        "bytes-per-parameter|gpt2|--devices|8",
        "gradients|mlp|--parameter|x|--notation|matrix|--steps",
        "initialization|mlp|-d|B=3|--draws|30",
        "roofline|gpt2|--gpu|h100-sxm|--dtype|tf32|--launch|5e-6|--top|3",
        "predict|mlp|--calibration|own.toml",
        "report|mlp|-o|out|--template|homework|--templates|mine|--latex",
        "check|mlp|--device|cpu|--strict",
        "measure|mlp|--device|abacus|--repeat|3",
        "verify|live.md|--require-claims|1|--unmarked",
        "verify|live.md|--format|json|--diff",
        "optimizer|--help",
        "--version",
        "--help",
    )
)
WORDS = (
    "", " ", "-", "--", "-d", "-h", "--json", "--no-cache", "-o", "=", "B=", "=3", "B=0", "B=-1", "B=1e9", "B=2**63", "d=x", "0", "-1",
    "1e999", "1e-999", "nan", "inf", "9" * 50, "9" * 5000, "0x1", "½", "٣", "fp32", "bf16", "gpt2", "linear", "hf:", "hf:.", ":", "x.py:y",
    "own.py:nothing", "own.py:3", "memory.peak", "solve=gpus", "gpu=h100-sxm", "gpu=none", "model=gpt2", "zero=4", "data=0", "days=-3",
    "memory=80XB", "mfu=200%", "a" * 3000, "(" * 300, "1/0", "B**B**B", "L=1:10**12:1", "B=1..4×1", "\x1b[31m", "\u202ex", "\ud800",
    "a\0b", "\n", "*", "../..", "/", ".", "own.toml", "live.md", "[bold]", "{{ 7*7 }}", "%s", "--mode", "infer", "--device", "cuda",
    "--optimizer", "muon",
)  # fmt: skip
FILES = {
    "live.md": "The model has 3<!--= 3 --> layers, and 4<!--= 2*2 -->.\n",
    "own.toml": "[mine]\nname = 3\n",
    "config.json": '{"model_type": "nothing"}',
    "own.py": "from calc import Spec\nspec = Spec(name='x', dims={'B': 2}, build=len, inputs=len, loss=len)\n",
}


def line(dice: random.Random) -> list[str]:
    """A command line with a few words replaced, dropped, doubled or put in."""
    words = list(dice.choice(LINES))
    for _ in range(dice.choice((0, 1, 1, 1, 2, 2, 3, 5))):
        at = dice.randrange(len(words) + 1)
        new = dice.choice(WORDS) if dice.random() < 0.8 else dice.choice(hostile.ALL)
        match dice.choice(("replace", "drop", "double", "insert", "value", "cut", "letters")):
            case "replace" if at and at < len(words):
                words[at] = new
            case "drop" if at < len(words) and len(words) > 1:
                del words[at]
            case "double" if at < len(words):
                words.insert(at, words[at])
            case "value" if at and at < len(words) and "=" in words[at]:
                words[at] = f"{words[at].partition('=')[0]}={new}"
            case "letters" if at < len(words) and words[at]:
                letters = list(words[at])
                letters[dice.randrange(len(letters))] = dice.choice((*letters, *"()*/=-+,. :^%[]{}0123456789e", "\u200b", ""))
                words[at] = "".join(letters)
            case "cut" if at < len(words):
                words[at] = words[at][: dice.randrange(len(words[at]) + 1)]
            case _:
                words.insert(at, new)
    return words


@pytest.fixture(autouse=True)
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with some files, in which no model is ever derived: what loads is refused then."""
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module("calc.models.load")
    load = module.load

    def loaded(name: str) -> NoReturn:
        load(name)
        raise BadInputError("a model, and nothing is derived here")

    monkeypatch.setattr(module, "load", loaded)
    (tmp_path / "mine").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def orderly(actual: Result, words: Sequence[str]) -> None:
    """No traceback, nothing that acts, one bounded line for a refusal (verify has one for each file), and 1 for a check alone."""
    shown = [word[:80] for word in words]
    assert actual.exception is None or isinstance(actual.exception, SystemExit), (shown, actual.exc_info)
    assert "a bug of Napkin" not in actual.stderr, (shown, actual.stderr)
    assert actual.exit_code in ((0, 1, 2) if "verify" in words else (0, 2)), shown
    assert controls(actual.stdout + actual.stderr) == [], shown
    said = [text for text in actual.stderr.split("\n") if text and not text.endswith(" …")]
    if actual.exit_code == 2 and not _shows_help(actual):
        refusals = sum(text.startswith("napkin: ") for text in said)
        assert 1 <= refusals <= (len(words) if "verify" in words else 1) or _without_values(said), (shown, actual.stderr[:2000])
        assert len(max(said, key=len)) < 2_000, shown


def _shows_help(actual: Result) -> bool:
    return actual.stderr.startswith("Usage: ")


def _without_values(said: Sequence[str]) -> bool:
    """A sweep says where its points have no value, and has the rest of the table."""
    return any(re.search(r"points ha(s|ve) no value", text) for text in said)


def fuzz(count: int, seed: int) -> None:
    dice, statuses = random.Random(seed), set()
    for _ in range(count):
        words = line(dice)
        began = time.process_time()
        actual = CliRunner().invoke(cli.napkin, words)
        assert time.process_time() - began < 120, words
        orderly(actual, words)
        statuses.add(actual.exit_code)
    assert {0, 2} <= statuses


def test_a_hundred_random_command_lines_are_answered_or_refused() -> None:
    fuzz(100, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_random_command_lines_are_answered_or_refused(seed: int) -> None:
    """Six thousand in all."""
    fuzz(1_000, seed)


@pytest.mark.slow
def test_random_command_lines_end_in_order_as_processes() -> None:
    """With a reader that leaves, a full disk, or closed streams."""
    dice = random.Random(9)
    endings = ("| head -c 1 >/dev/null; exit ${PIPESTATUS[0]}", ">/dev/full", ">&-", "2>&-", "")
    lines = [
        words for words in LINES if words[0] in ("list", "dtype", "einsum", "--version", "ask", "storage") and "model=" not in str(words)
    ]
    for _ in range(20):
        words, ending = dice.choice(lines), dice.choice(endings)
        actual = done(words, shell=ending)
        assert actual.returncode in (0, 2, 141), (words, ending, actual.stderr)
        assert "Traceback" not in actual.stderr
        assert actual.returncode != 141 or "head" in ending

"""``napkin ask`` on the command line: the answer first, refusals in one line, and no heavy import on the way."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from typing import Any

import pytest
from click.testing import CliRunner, Result

from calc.capacity.questions.registry import all_names
from calc.pipeline.precomputed import why_not
from reports.cli import napkin as command


def napkin(*words: str) -> Result:
    return CliRunner().invoke(command, list(words))


TRAINING = ("training-time", "parameters=70e9", "tokens=15e12", "gpu=h100-sxm", "gpus=1024", "mfu=0.5")
STATE = ("largest-model", "devices=8", "memory=80GB", "optimizer=adamw", "precision=fp32")


def test_forty_billion_parameters() -> None:
    """8 · 80e9 / 16."""
    assert napkin("ask", *STATE).stdout.startswith("40,000,000,000 parameters (40e9): parameters (largest-model: ")


def test_the_document_is_json() -> None:
    """The answer's value is a number that any reader takes, and its exact fraction stands beside it."""
    document: dict[str, Any] = json.loads(napkin("ask", *TRAINING, "--json").stdout)

    assert (2, "training-time", "days") == (document["schema"], document["question"], document["answer"]["unit"])
    assert float(document["answer"]["value"]) == float(Fraction(document["answer"]["exact"]))


def test_numbers_in_formulas_have_separators_on_a_terminal_alone() -> None:
    """As closed forms of ``napkin derive`` have them; in JSON a formula is one that Python reads."""
    text = napkin("ask", *TRAINING).stdout
    steps = json.loads(napkin("ask", *TRAINING, "--json").stdout)["steps"]

    assert "t = C/(86,400·R) = 6.3e24 / (86,400 · 506.62e15)" in text
    assert "C/(86400*R)" in [step["expr"] for step in steps]


@pytest.mark.parametrize(("arguments", "said"), [
    (("training-time", "tokens=-1"), "napkin: tokens = '-1' must be more than 0"),
    (("training-time", "mfu=60"), "napkin: mfu = '60' is above 1: did you mean 0.6, or 60%?"),
    (("training-time", "tokens"), "napkin: cannot read 'tokens': write KEY=VALUE, e.g. gpus=1024"),
    (("training-time", "tokens=1", "tokens=2"), "napkin: tokens is given twice, '1' and '2': give it once"),
    (("training-time", "days=3\x1b[31m"), "napkin: days = '3\\x1b[31m': unknown unit '[31m'; days is in days, e.g. 30days, 12h, 5min, 3ms"),
    (("largest-model", "memory=80"), "napkin: memory = 80 is 80 bytes, less than one layer of a model needs: write 80GB or 80GiB"),
    (("largest-batch", "model=gpt3", "memory=80GB"), "napkin: unknown model 'gpt3': did you mean gpt2?"),
])  # fmt: skip
def test_nonsense_is_one_line_and_status_2(arguments: tuple[str, ...], said: str) -> None:
    """Nothing on standard output, no traceback."""
    result = napkin("ask", *arguments)

    assert (2, "") == (result.exit_code, result.stdout)
    assert result.stderr.splitlines()[-1].startswith(said.split("\\x1b")[0])
    assert "\x1b" not in result.stderr


def test_the_list_has_every_question_with_its_keys_and_units() -> None:
    """As text and as JSON."""
    document = json.loads(napkin("list", "questions", "--json").stdout)
    keys = {entry["name"]: {k["key"]: k["unit"] for k in entry["keys"]} for entry in document["questions"]}

    assert tuple(keys) == all_names()
    assert keys["training-time"]["mfu"] == "share"
    assert "convention = 6ND | 8ND" in " ".join(napkin("list", "questions", "training-time").stdout.split())


def test_every_source_of_numbers_is_explained() -> None:
    """What goes with a device and with a model, and the other word for gpus."""
    explained = napkin("ask", "--help").stdout
    listed = " ".join(napkin("list", "questions", "training-time").stdout.split())
    refused = napkin("ask", "training-time", "xyzzy=mine.toml").stderr

    for word in ("dtype=FORMAT", "sparse=yes", "hardware=FILE", "devices is another word for", "T=4096"):
        assert word in explained
    for word in ("gpus or devices n devices", "dtype = ", "sparse = yes", "hardware = file", "its own sizes, e.g. T=4096"):
        assert word in listed
    assert "gpu, dtype, sparse, hardware, model, solve" in refused


@pytest.mark.parametrize("name", ["training-time", "largest-batch", "checkpoint-interval"])
def test_the_keys_of_a_question_end_with_a_command_that_answers_it(name: str) -> None:
    """The last line is typed as it stands."""
    last = napkin("list", "questions", name).stdout.splitlines()[-1]
    example = last.removeprefix("Example: napkin ").split()

    assert example[:2] == ["ask", name]
    assert napkin(*example).exit_code == 0


@pytest.mark.parametrize("arguments", [TRAINING, STATE, ("compare", "flops=1e24"), ("compute-optimal", "flops=1e24")])
def test_an_answer_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    """Neither torch nor SymPy nor numpy: the answer would wait for them."""
    _run_without(arguments, "torch", "sympy", "numpy", "transformers")


def _run_without(arguments: tuple[str, ...], *modules: str) -> None:
    """Asked in a fresh process, which has imported none of ``modules`` in the end."""
    code = (
        f"import sys; sys.argv = ['napkin', 'ask', *{arguments!r}]\n"
        "from reports.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        f"assert not {set(modules)!r} & sys.modules.keys()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert result.returncode == 0, result.stderr[-500:]


@pytest.mark.parametrize("arguments", [
    ("training-time", "model=llama3-8b", *TRAINING[2:]), ("largest-batch", "model=llama3-8b", "gpu=h100-sxm", "gpus=8", "T=4096"),
])  # fmt: skip
def test_a_stored_model_needs_neither_torch_nor_sympy(arguments: tuple[str, ...]) -> None:
    """Its closed forms are evaluated as they are stored."""
    if why_not("llama3-8b"):
        pytest.skip("the stored closed forms were made by other code")
    _run_without(arguments, "torch", "sympy", "transformers")

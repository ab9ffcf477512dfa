"""Closed forms that a command keeps answer later ones as a derivation would, without torch."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import calc
from calc.capacity.questions import ask
from calc.derive.result import Derivation
from calc.options import Options
from calc.pipeline.precomputed import Stored, form_of, keep, kept, stored
from calc.pipeline.precomputed.kept import places
from calc.pipeline.precomputed.produced import ROOT
from calc.pipeline.precomputed.writing import of_derivation
from reports import cli
from tests.models.configs import LLAMA, written

KEPT = "closed forms that an earlier command derived"
SGD = ("--optimizer", "sgd")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A config, and an empty cache."""
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path / "cache"))
    return f"hf:{written(tmp_path, LLAMA)}"


def _derive(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, ["derive", *words])


def _forms() -> list[Path]:
    return [*Path(os.environ["NAPKIN_CACHE"]).glob("*.form")]


@pytest.fixture
def built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Derivation:
    """A derivation with options for which no form is bundled, and an empty cache."""
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path / "cache"))
    return calc.derive(calc.load("linear"), optimizer="sgd")


@pytest.mark.slow
def test_later_commands_answer_as_if_nothing_had_been_derived_and_without_torch(model: str) -> None:
    """The form of a batch of five is general; that of a batch of one has a case beside it, of which nothing is said at other batches."""
    five, one = _derive(model, "B=5", *SGD), _derive(model, "B=1", *SGD)
    form = stored(model, Options(optimizer="sgd").to_json())
    assert form is not None
    assert form.cases
    assert [five.stdout, one.stdout] == [_derive(model, size, *SGD).stdout for size in ("B=5", "B=1")]

    code = f"""
import sys
sys.argv = ["napkin", "derive", {model!r}, "B=1", *{SGD!r}]
from reports.cli import main
try:
    main()
except SystemExit as done:
    assert not done.code
assert not {{"torch", "sympy", "numpy", "transformers"}} & set(sys.modules), sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT.parent, capture_output=True, text=True, timeout=60, check=False)
    assert (0, "") == (done.returncode, done.stderr.partition(KEPT)[0]), done.stderr[-2000:]
    assert [False, False, True] == [KEPT in text for text in (five.stderr, one.stderr, done.stderr)]
    assert len(_forms()) == 1


def test_a_changed_config_has_no_form(model: str) -> None:
    config = Path(model.removeprefix("hf:"))
    before = places(model, None)
    config.write_text(config.read_text().replace("48", "60"))

    assert before is not None
    assert before != places(model, None)


@pytest.mark.slow
def test_a_config_that_changes_while_it_is_derived_has_no_form(model: str) -> None:
    derivation = calc.derive(calc.load(model), mode="infer")
    config = Path(model.removeprefix("hf:"))
    before = config.read_text()
    config.write_text(before.replace("48", "60"))
    keep(model, derivation)
    assert [] == _forms()

    config.write_text(before)
    keep(model, derivation)
    assert 1 == len(_forms())


@pytest.mark.slow
def test_a_form_with_every_case_does_not_depend_on_earlier_derivations(model: str) -> None:
    """A derivation at five examples has no case of one example; the page of a report and a sweep have it nevertheless."""
    derivation = calc.derive(calc.load(model), {"B": 5}, optimizer="sgd")
    keep(model, derivation)
    five, every = stored(model, derivation.options), form_of(model, derivation.options)
    later = stored(model, derivation.options)
    assert five is not None
    assert later is not None
    assert [[], [{"B": "1"}], [{"B": "1"}]] == [[case.equal for case in form.cases] for form in (five, every, later)]
    assert 2 == len(_forms())


@pytest.mark.slow
def test_an_answer_does_not_say_whether_a_form_was_kept(model: str) -> None:
    given = {"model": model, "tokens": "1e9", "gpus": "8", "peak": "1e15", "mfu": "0.4"}
    first, later = (ask("training-time", **given) for _ in range(2))
    assert 1 == len(_forms())
    assert first == later


def test_a_form_of_another_schema_is_not_read(built_in: Derivation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code that writes and reads forms is not part of the code that derives."""
    keep("linear", built_in)
    monkeypatch.setattr(kept, "SCHEMA", kept.SCHEMA + 1)
    assert stored("linear", built_in.options) is None


def test_a_form_is_of_its_options(built_in: Derivation) -> None:
    keep("linear", built_in)
    form = stored("linear", built_in.options)
    assert form is not None
    assert built_in["memory.peak"].value == form.quantity("memory.peak").at()
    assert stored("linear", {**built_in.options, "precision": "bf16"}) is None
    assert stored("two-layer", built_in.options) is None


@pytest.mark.parametrize("damage", [lambda text: text.replace("2", "3"), lambda text: text[: len(text) // 2], lambda _: "no form"])
def test_a_damaged_form_is_deleted(built_in: Derivation, damage: Callable[[str], str]) -> None:
    keep("linear", built_in)
    (file,) = _forms()
    file.write_text(damage(file.read_text()))

    assert stored("linear", built_in.options) is None
    assert [] == _forms()


def test_nothing_is_kept_without_a_cache_or_of_code(built_in: Derivation, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the code of a model says shows only when it runs; what is bundled need not be kept."""
    keep("model.py:spec", built_in)
    assert 0 == _derive("linear", "--optimizer", "sgd", "--no-cache").exit_code
    with monkeypatch.context() as patch:
        patch.setenv("NAPKIN_CACHE", "off")
        keep("linear", built_in)
    assert [] == _forms()


def test_a_derivation_with_a_value_but_no_closed_form_is_not_kept(built_in: Derivation) -> None:
    form = of_derivation("linear", built_in)
    assert form is not None
    assert built_in["parameters"].value == Stored(json.loads(json.dumps(form))).quantity("parameters").at()

    without = dataclasses.replace(built_in["parameters"], text=None, unknown="none")
    assert of_derivation("linear", dataclasses.replace(built_in, quantities={**built_in.quantities, "parameters": without})) is None


def test_the_default_options_are_those_of_no_options(built_in: Derivation) -> None:
    assert places("linear", Options().to_json()) == places("linear", None) != places("linear", built_in.options)

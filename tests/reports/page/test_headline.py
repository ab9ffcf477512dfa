"""What comes before all numbers where closed forms lack dimensions, and assumptions put together where there are many."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from calc.graph.step import Assumption
from reports import cli
from reports.typeset.wording import FEW, Stated, headline, stated

MODEL = """
import torch
from torch import nn
from calc import Spec


def build(n):
    n.d.to_bytes(2, "big")  # torch's symbolic integers have no such method
    return nn.Linear(n.d, 5)


spec = Spec("bytes", {"B": 3, "d": 31}, build, lambda n: (torch.randn(n.B, n.d),), lambda m, x: m(x).sum())
"""
FIRST = "Specialized: the closed forms hold for d = 31 only; there is none in d ("


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "bytes_model.py").write_text(MODEL, encoding="utf-8")
    return f"{tmp_path / 'bytes_model.py'}:spec"


def _said(text: str) -> str:
    return " ".join(text.replace("\N{NO-BREAK SPACE}", " ").replace("&nbsp;", " ").replace("\u202f", " ").split())


def _run(*words: str) -> str:
    done = CliRunner().invoke(cli.napkin, [*words, "--optimizer", "sgd"])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("command", [("derive",), ("derive", "--explain", "parameters"), ("check",)], ids=" ".join)
def test_a_form_without_a_named_dimension_says_so_first(command: tuple[str, ...], model: str) -> None:
    """The first words of the output, with the value that each is specialized to, and the line that asked."""
    assert _said(_run(command[0], model, *command[1:])).startswith(FIRST)


@pytest.mark.parametrize("command", [("derive", "--json"), ("derive", "--json", "--values"), ("check", "--json")], ids=" ".join)
def test_so_does_a_field_of_the_json(command: tuple[str, ...], model: str) -> None:
    document = json.loads(_run(command[0], model, *command[1:]))

    assert {"d": 31} == {name: entry["value"] for name, entry in document["specialized"].items()}
    assert all("bytes_model.py:8" in entry["because"] for entry in document["specialized"].values())


def test_so_do_reports(model: str, tmp_path: Path) -> None:
    """Before any number, in every format."""
    _run("report", model, "-o", str(tmp_path), "--latex")
    markdown, page, document, tex = ((tmp_path / f"report.{kind}").read_text(encoding="utf-8") for kind in ("md", "html", "json", "tex"))

    assert all("Specialized: the closed forms hold for" in text.partition("Exact integers")[0] for text in (markdown, page, tex))
    assert {"d"} == json.loads(document)["specialized"].keys()


def test_a_form_in_all_dimensions_has_no_such_line() -> None:
    assert "" == headline({}, {"B": 3})


def test_several_reasons_are_counted() -> None:
    assert "(one, and 1 further reason among the assumptions)" in headline({"d": "one", "B": "other"}, {"d": 31, "B": 3})


def test_more_than_ten_assumptions_are_put_together_by_their_reason() -> None:
    """Each line that asked, with how many and the first three; ten stand one by one."""
    many = [Assumption(f"d <= {number}", "asked at model.py:7") for number in range(FEW)]
    other = Assumption("B != 1", "asked at model.py:9")

    assert [1] * FEW == [len(group.assumptions) for group in stated(many)]
    assert [FEW, 1] == [len(group.assumptions) for group in stated([*many, other])]
    assert "d ≤ 0; d ≤ 1; d ≤ 2; and 7 more" == _said(stated([*many, other])[0].words)


def test_two_writings_of_one_condition_are_one_of_a_group() -> None:
    """An equation has no first side, and what is not equal is different."""
    alike = ("R != 29*p", "not (R == 29*p)", "29*p != R", "d == Max(1, d)", "Max(1, d) == d", "h > 1")

    assert "R ≠ 29*p; d = Max(1, d); h > 1" == Stated(tuple(Assumption(each, "asked at model.py:7") for each in alike)).words

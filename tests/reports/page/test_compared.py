"""A comparison as a page: written whole, verified by making it again, and inert whatever the sides are called."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from calc.derive.compare import Change, Comparison, TermChange
from calc.derive.side_by_side import PartRow, QuantityTable
from calc.units import Unit
from reports import cli
from reports.jobs import compared
from reports.page.inputs import Inputs
from tests.reports import hostile
from tests.reports.inert import html_is_inert, markdown_is_inert

SUFFIXES = (".md", ".html", ".json")


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, list(words))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a comparison of two sizes and two optimizers."""
    folder = tmp_path_factory.mktemp("compared")
    actual = run("compare", "mlp B=5", "f=7 optimizer=sgd", "d=3", "K=2", "-o", str(folder))
    assert actual.exit_code == 0
    assert actual.stderr.endswith("".join(f"wrote {folder / f'compare{suffix}'}\n" for suffix in SUFFIXES))
    return folder


def test_three_files_say_the_same(made: Path) -> None:
    """(d + 1 + K)·(7 - 12) = -30 parameters, in each."""
    assert sorted(file.suffix for file in made.iterdir()) == sorted(SUFFIXES)
    body = json.loads((made / "compare.json").read_text())
    assert body["quantities"]["parameters"]["difference"]["value"] == -30
    for suffix in (".md", ".html"):
        text = (made / f"compare{suffix}").read_text(encoding="utf-8")
        assert "−30\u00a0elements" in text
        assert "mlp B=5 → mlp B=5 f=7 optimizer=sgd" in text
    assert "& -5\\,K -5\\,d -5\n" in (made / "compare.md").read_text(encoding="utf-8")


def test_totals_are_shown_by_part_with_the_shares_of_both_sides(made: Path) -> None:
    """d·f + f = 48 of 74 parameters and 28 of 44; FLOPs 2·B·d·f of 2·B·f·(d + K) are 3/5 on both. The terminal shows what differs."""
    text = (made / "compare.md").read_text(encoding="utf-8")
    assert "| `0` | 64.9\u00a0% | 63.6\u00a0% |\n| `2` | 35.1\u00a0% | 36.4\u00a0% |" in text
    assert "| `0` | $`d\\,f +f`$ | 48 | 28 |" in text
    assert 'id="figure-shares-memory.peak"' in (made / "compare.html").read_text(encoding="utf-8")
    body = json.loads((made / "compare.json").read_text())["quantities"]
    assert body["flops.forward.matmul"]["parts"][0]["shares"] == ["3/5", "3/5"]
    shown = run("compare", "mlp B=5", "f=7 optimizer=sgd", "d=3", "K=2").stdout
    assert re.search(r"\n0 +48 +64\.9\u00a0% +28 +63\.6\u00a0% +d·f \+ f\n", shown)
    assert "\nPart " not in run("compare", "mlp B=5", "zero-grad=zero", "--explain", "parameters").stdout


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_was_not_touched_is_verified_and_what_was_edited_is_not(suffix: str, made: Path, tmp_path: Path) -> None:
    """The difference with another digit: its place and what is right."""
    text = (made / f"compare{suffix}").read_text(encoding="utf-8")
    file = tmp_path / f"x{suffix}"
    file.write_text(text, encoding="utf-8")
    assert run("verify", str(file)).stdout.startswith(f"{file}: verified: made again from its inputs, every character is the same\n")

    number = '"value": -30' if suffix == ".json" else "−30"
    assert number in text
    file.write_text(text.replace(number, number.replace("3", "4"), 1), encoding="utf-8")
    actual = run("verify", str(file))
    assert actual.exit_code == 1
    assert "says '40', right is '30'" in actual.stdout


def test_other_sides_in_its_inputs_make_another_comparison(made: Path, tmp_path: Path) -> None:
    """f = 7 there, and 8 in the inputs."""
    file = tmp_path / "x.md"
    text = (made / "compare.md").read_text(encoding="utf-8")
    file.write_text(text.replace('"other": "mlp B=5 f=7', '"other": "mlp B=5 f=8'), encoding="utf-8")

    assert run("verify", str(file)).exit_code == 1


SPEC = """
import torch
from calc import Spec

spec = Spec("mine", dims={"B": 5, "d": 7}, build=lambda n: torch.nn.Linear(n.d, 3), inputs=lambda n: (torch.randn(n.B, n.d),),
            loss=lambda model, x: model(x).sum())
"""


def test_files_of_ones_own_are_loaded_only_where_they_are_named(tmp_path: Path) -> None:
    """Of either side; each by its own digest."""
    for name, width in (("one", 3), ("two", 4)):
        (tmp_path / f"{name}.py").write_text(SPEC.replace("n.d, 3", f"n.d, {width}"))
    one, two = (str(tmp_path / f"{name}.py") for name in ("one", "two"))
    assert run("compare", f"{one}:spec", f"{two}:spec", "-o", str(tmp_path)).exit_code == 0
    file = str(tmp_path / "compare.md")

    assert run("verify", file).stdout == f"{file}: not verified: it is about {one}, a file of your own: name it with --source FILE\n"
    assert run("verify", file, "--source", one).stdout == (
        f"{file}: not verified: it was made from another file than {one}: the SHA-256 differs\n"
    )
    assert run("verify", file, "--source", one, "--source", two).exit_code == 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model": "mlp 'B"}, 'it cannot be made again: cannot read "mlp \'B": No closing quotation'),
        ({"other": ""}, "it cannot be made again: a side is empty: write a model, as in 'gpt2 B=8'"),
        ({"other": "nothing-like-it"}, "it cannot be made again: unknown model"),
        ({"options": {"B": "0"}}, "it cannot be made again: B = 0"),
    ],
)
def test_inputs_that_compare_nothing_are_not_verified(changes: Mapping[str, object], why: str, tmp_path: Path) -> None:
    inputs = replace(Inputs("compare", "mlp", other="mlp f=7"), **changes)
    (tmp_path / "x.md").write_text(f"# x\n\n<!-- napkin-inputs {inputs.text()} -->\n")
    actual = run("verify", str(tmp_path / "x.md"))

    assert actual.exit_code == 1
    assert actual.stdout.startswith(f"{tmp_path / 'x.md'}: not verified: {why}")


def named(names: Sequence[str]) -> Mapping[str, str]:
    """A comparison in which everything has one of these names."""
    terms = tuple(TermChange(name, "2*d", "3*d", 20, 30, "d", name) for name in names)
    changes = tuple(Change(f"q{i}", name, Unit.ELEMENT, 20, 30, "d", terms if i == 0 else (), name) for i, name in enumerate(names))
    rows = tuple(PartRow(name, "d", (10, 15)) for name in names)
    table = QuantityTable("parameters", names[0], Unit.ELEMENT, None, (10 * len(names), 15 * len(names)), ("", ""), rows)
    options = {name: (name, name) for name in names}
    actual = Comparison(names[0], names[1], {"d": 10}, {}, options, changes, by_part=(table,))
    return compared.texts(actual, Inputs("compare", names[0], other=names[1], date="2026-01-01"))


def test_hostile_names_are_inert() -> None:
    """As on every page."""
    texts, usual = named(hostile.ALL), named([f"{chr(0x100 + i)}{'n' * (len(text) - 1)}" for i, text in enumerate(hostile.ALL)])

    html_is_inert(texts["compare.html"], usual["compare.html"])
    markdown_is_inert(texts["compare.md"], usual["compare.md"])
    assert texts["compare.json"].isascii()


def test_what_does_not_differ_says_so() -> None:
    """No table of terms that would be empty."""
    change = Change("parameters", "elements", Unit.ELEMENT, 20, 20, "0", ())
    texts = compared.texts(Comparison("a", "a", {}, {}, {}, (change,)), Inputs("compare", "a", other="a", date="2026-01-01"))

    assert "Nothing differs." in texts["compare.md"]
    assert "Both sides have the same sizes and options." in texts["compare.html"]
    assert re.search(r"\| parameters \| 20\u00a0elements \| 20\u00a0elements \| 0 \| 1\.00 \|", texts["compare.md"])


def test_a_model_with_options_is_a_side_and_no_change() -> None:
    """mlp:n=1 is a model's name; a key given twice within a side or for both is refused, one of both may be set by a side."""
    assert compared.sides("mlp B=5", "gpt2:dropout=0.1 T=7", {}).right == ("gpt2:dropout=0.1", "T=7")
    assert compared.sides("mlp B=5", "B=7 zero-grad=zero", {}).right == ("mlp", "B=7", "zero-grad=zero")
    for words in (("compare", "mlp B=5 B=7", "d=3"), ("compare", "mlp B=5", "mlp B=5 B=7"), ("compare", "mlp", "d=3", "B=5", "B=7")):
        actual = run(*words)
        assert (actual.exit_code, actual.stderr) == (2, "napkin: B is given twice, '5' and '7': give it once\n")

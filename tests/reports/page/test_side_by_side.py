"""Several steps as one page: three files with the same numbers, verified by making them again, inert, and refusals in one line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from calc.derive.side_by_side import PartRow, QuantityTable, SideBySide
from calc.units import Unit
from reports import cli
from reports.figures.shares import shares
from reports.jobs import side_by_side as jobs
from reports.page.inputs import Inputs
from tests.reports import hostile
from tests.reports.inert import html_is_inert, markdown_is_inert

SUFFIXES = (".md", ".html", ".json")
WORDS = ("compare", "mlp", "d=3,5", "f=7,11", "K=2", "B=13", "mode=infer", "--quantity", "parameters", "--quantity", "flops.forward.matmul")


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, list(words))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a table of two sizes."""
    folder = tmp_path_factory.mktemp("table")
    done = run(*WORDS, "-o", str(folder))
    assert done.exit_code == 0, done.stderr
    return folder


def test_every_format_has_the_values_and_the_shares(made: Path) -> None:
    """3·7 + 7 + 7·2 + 2 = 44 parameters and 5·11 + 11 + 11·2 + 2 = 90; the first layer is 28/44 = 63.6 % and 66/90 = 73.3 %."""
    body = json.loads((made / "compare.json").read_text())
    assert body["steps"] == ["d=3", "d=5"]
    parameters = body["quantities"]["parameters"]
    assert (parameters["values"], parameters["parts"][0]["shares"]) == ([44, 90], ["7/11", "11/15"])
    assert "63.6\u00a0% | 73.3\u00a0% |" in (made / "compare.md").read_text(encoding="utf-8")
    page = (made / "compare.md").read_text(encoding="utf-8")
    assert "| `0` | 60.0\u00a0% | 71.4\u00a0% |\n| `2` | 40.0\u00a0% | 28.6\u00a0% |\n\n" in page  # d of d + K, of the last quantity too
    html = (made / "compare.html").read_text(encoding="utf-8")
    assert "63.6\u00a0%" in html
    assert 'id="figure-shares-parameters"' in html
    shown = run(*WORDS).stdout
    assert "28   63.6\u00a0%" in shown
    assert "66   73.3\u00a0%" in shown


@pytest.mark.slow
def test_a_row_of_attention_is_explained_where_it_is(tmp_path: Path) -> None:
    """Saved bytes of fused attention are of no line of it; FLOPs are of query keyᵀ and of probs value, without such a row."""
    words = ("compare", "gpt2", "d=15,21", "h=3", "L=2", "V=11", "C=5", "T=5", "B=2")
    counts = {}
    for quantity in ("activations.bytes", "flops.forward.matmul"):
        shown = run(*words, "--quantity", quantity, "-o", str(tmp_path)).stdout
        texts = (shown, (tmp_path / "compare.md").read_text(encoding="utf-8"))
        counts[quantity] = [text.count("attention: what query keyᵀ, softmax and probs value share") for text in texts]
    assert counts == {"activations.bytes": [1, 1], "flops.forward.matmul": [0, 0]}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_table_is_verified_by_making_it_again(suffix: str, made: Path, tmp_path: Path) -> None:
    file = tmp_path / f"x{suffix}"
    text = (made / f"compare{suffix}").read_text(encoding="utf-8")
    file.write_text(text, encoding="utf-8")
    assert run("verify", str(file)).stdout.startswith(f"{file}: verified: made again from its inputs, every character is the same\n")

    file.write_text(text.replace("44", "45", 1), encoding="utf-8")
    assert run("verify", str(file)).exit_code == 1


def test_files_of_ones_own_are_loaded_only_where_they_are_named(tmp_path: Path) -> None:
    """Each by its own digest; the built-in one has none."""
    source = tmp_path / "mine.py"
    source.write_text(
        "import torch\nfrom calc import Spec\n"
        'spec = Spec("mine", dims={"B": 5, "d": 7}, build=lambda n: torch.nn.Linear(n.d, 3), inputs=lambda n: (torch.randn(n.B, n.d),),\n'
        "            loss=lambda model, x: model(x).sum())\n"
    )
    assert run("compare", "linear", f"{source}:spec", "--quantity", "parameters", "-o", str(tmp_path)).exit_code == 0
    file = str(tmp_path / "compare.md")

    assert run("verify", file).stdout == f"{file}: not verified: it is about {source}, a file of your own: name it with --source FILE\n"
    assert run("verify", file, "--source", str(source)).exit_code == 0
    assert run("verify", file, "--source", f"{source}:spec").exit_code == 0  # as the model is called


REFUSED = {
    "mlp d=3,5 f=7,11,13": "d has 2 values and f has 3: lists vary together, so give as many values of each",
    "mlp d=3,": "a value of d is empty in '3,': leave out the comma",
    "mlp d=3,3": "two steps of the table are the same: give each model, and each place of the lists, once",
    "mlp linear mlp": "two steps of the table are the same: give each model, and each place of the lists, once",
    "mlp d=3,0": "d = 0 is not positive: sizes are integers from 1 to 2**63 - 1",
    "mlp f=7 --quantity speed": "no quantity 'speed': see napkin list quantities",
    "d=3,5": "the model comes before its sizes: napkin compare gpt2 d=768,1024",
    "mlp": "nothing to compare 'mlp' with: name another model, or what changes, as in T=4096",
    "mlp d=3,5 --explain parameters": "--explain has no effect in a table of several steps, which has every part: leave it out",
    f"mlp d={','.join(map(str, range(1, 26)))}": "25 steps are more than a table has columns for: give at most 24, or use napkin sweep",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_makes_no_table_is_refused_in_one_line(words: str) -> None:
    done = run("compare", *words.split())

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(f"napkin: {REFUSED[words]}")


def test_steps_are_named_by_what_tells_them_apart() -> None:
    """A size that alone does is enough; several models are named, each with its own settings; a change goes to the first model."""
    assert jobs.steps(("mlp",), {"B": "2", "d": "3,3", "f": "5,7"}, ()).names == ("d=3 f=5", "d=3 f=7")
    assert jobs.steps(("mlp",), {"d": "3,5", "f": "5,7"}, ()).names == ("d=3", "d=5")
    assert jobs.steps(("mlp B=2", "linear"), {}, ()).names == ("mlp B=2", "linear")
    assert jobs.steps(("mlp B=2", "d=3"), {}, ()).names == ("mlp B=2", "mlp B=2 d=3")


def test_the_bars_of_a_figure_are_the_shares() -> None:
    """1/4 and 3/4 of the first step, all and nothing of the second; a step without a value has no bar."""
    rows = (PartRow("a", None, (1, 5, 0)), PartRow("b", None, (3, 0, 0)))
    figure = shares(QuantityTable("q", "", Unit.FLOP, None, (4, 5, None), ("", "", "no"), rows), ("x", "y", "z"))

    assert [(r.x, r.width) for r in figure.rects] == [("0.00%", "25.00%"), ("25.00%", "75.00%"), ("0.00%", "100.00%")]
    assert [label.words for label in figure.labels] == ["x", "4\u00a0FLOP", "y", "5\u00a0FLOP", "A", "B", "A"]
    assert figure.finding == "From the first column to the last, the share of a changes most: 25.0\u00a0% (x), 100.0\u00a0% (y)."


def named(names: Sequence[str]) -> Mapping[str, str]:
    """A table in which everything has one of these names."""
    rows = tuple(PartRow(name, "2*d", (20, 30)) for name in names)
    whole = 20 * len(names), 30 * len(names)
    quantities = tuple(QuantityTable(name, name, Unit.BYTE, "d", whole, ("", ""), rows if i == 0 else ()) for i, name in enumerate(names))
    table = SideBySide((names[0], names[1]), {}, {}, {name: (name, name) for name in names}, quantities)
    return jobs.texts(table, Inputs("table", names[0], date="2026-01-01"))


def test_hostile_names_are_inert() -> None:
    """As on every page."""
    texts, usual = named(hostile.ALL), named([f"{chr(0x100 + i)}{'n' * (len(text) - 1)}" for i, text in enumerate(hostile.ALL)])

    html_is_inert(texts["compare.html"], usual["compare.html"])
    markdown_is_inert(texts["compare.md"], usual["compare.md"])
    assert texts["compare.json"].isascii()

"""``napkin sweep``: tables, files and drawings of what ``calc.pipeline.sweep`` gives, and one line for every refusal."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from reports.cli import napkin

# 12·L·d² of two depths and two widths: 12·2·3² = 216, 12·2·5² = 600, 12·4·3² = 432, 12·4·5² = 1,200.
EXPR = ["--expr", "12*L*d**2", "-d", "L=2,4", "-d", "d=3,5"]
TABLE = "L,d,12*L*d**2\n2,3,216\n2,5,600\n4,3,432\n4,5,1200\n"


def _run(*words: str) -> Result:
    return CliRunner().invoke(napkin, ["sweep", *words])


def test_a_grid_is_a_table() -> None:
    """A line of names, then a line for each point, the last size moving first."""
    actual = _run(*EXPR)

    assert (0, TABLE, "") == (actual.exit_code, actual.stdout, actual.stderr)


def test_sizes_are_read_without_their_option_too() -> None:
    """As questions and layouts have them; what is no size is refused with the way to write a quantity."""
    actual, refused = _run("--expr", "12*L*d**2", "L=2,4", "d=3,5"), _run("mlp", "memory.peak", "B=1")

    assert (0, TABLE) == (actual.exit_code, actual.stdout)
    assert (2, "") == (refused.exit_code, refused.stdout)
    assert refused.stderr.splitlines()[-1] == (
        "napkin: cannot read 'memory.peak': sizes are NAME=SIZES, e.g. B=1,2,4; a quantity is --quantity memory.peak"
    )


def test_a_table_goes_to_a_file_and_its_points_come_from_one(tmp_path: Path) -> None:
    """Beside a file, -d sets one size in every line."""
    target, points = tmp_path / "out.csv", tmp_path / "points.csv"
    points.write_text("L\n2\n4\n")

    assert _run(*EXPR, "--csv", str(target)).exit_code == 0
    assert target.read_text() == TABLE
    assert _run("--expr", "12*L*d**2", "--from", str(points), "-d", "d=3").stdout == "L,d,12*L*d**2\n2,3,216\n4,3,432\n"
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".partial"] == []


HALVES = """
import torch
from calc import Dim, Spec

spec = Spec(name="halves", dims={"B": 3, "h": 2, "d": Dim(6, multiple_of="h")}, build=lambda n: torch.nn.Linear(n.d // n.h, n.h),
            inputs=lambda n: (torch.ones(n.B, n.d // n.h),), loss=lambda model, x: model(x).sum())
"""


def test_gaps_are_empty_cells_and_one_line_of_talk(tmp_path: Path) -> None:
    """A matrix of d/h columns and h rows with as many biases: 3·2 + 2 = 8 for 6 columns in halves, and 4 does not divide 6. Where no point
    is left that a model can have, the request was not met."""
    (tmp_path / "halves.py").write_text(HALVES, encoding="utf-8")
    model = f"{tmp_path / 'halves.py'}:spec"
    actual, nothing = (_run(model, "-d", sizes, "-d", "d=6", "--quantity", "parameters") for sizes in ("h=2,4", "h=4,5"))

    assert (0, "h,d,parameters\n2,6,8\n4,6,\n") == (actual.exit_code, actual.stdout)
    assert actual.stderr.splitlines()[-1] == "1 of 2 points has no value, the first at h = 4, d = 6: d is not divisible by h"
    assert (2, "h,d,parameters\n4,6,\n5,6,\n") == (nothing.exit_code, nothing.stdout)


def test_points_at_which_the_step_runs_otherwise_have_the_values_of_their_case() -> None:
    """two-layer has D·D + D·K parameters: 25 + 5 = 30 at K = 1, where it had no value and the status was 0."""
    actual = _run("two-layer", "-d", "K=1,2", "-d", "D=5", "--quantity", "parameters")

    assert (0, "K,D,parameters\n1,5,30\n2,5,35\n") == (actual.exit_code, actual.stdout)
    assert "the step runs other operators at K = 1, D = 5: tracing it there" in actual.stderr
    assert "no value" not in actual.stderr


def test_json_keeps_every_digit() -> None:
    """3⁴⁰ = 12157665459056928801 is beyond 2⁵³ and a string."""
    actual = json.loads(_run("--expr", "L**40", "-d", "L=3,1", "--json").stdout)

    assert actual == {
        "schema": 1,
        "points": "grid",
        "sizes": {"L": [3, 1]},
        "quantities": {"L**40": {"unit": None, "values": ["12157665459056928801", 1]}},
        "gaps": [],
    }


def test_a_drawing_has_a_line_for_each_choice_of_the_others(tmp_path: Path) -> None:
    """Well-formed SVG without script: two lines of two points, and the sizes and values in words."""
    target = tmp_path / "plot.svg"

    assert _run(*EXPR, "--plot", str(target)).exit_code == 0
    root = ElementTree.fromstring(target.read_text())
    lines = [e for e in root.iter() if e.tag.endswith("polyline")]
    words = [e.text for e in root.iter() if e.tag.endswith("text")]
    assert [2, 2] == [len(line.attrib["points"].split()) for line in lines]
    assert {"12*L*d**2, over d", "L = 2", "L = 4", "3", "5", "1,000"} <= {*words}
    assert "script" not in target.read_text()


def test_a_hostile_expression_is_inert_in_a_drawing_and_a_table(tmp_path: Path) -> None:
    """A name is text: in SVG it is escaped, in CSV it is one quoted cell."""
    target = tmp_path / "plot.svg"
    _run("--expr", "L<d", "-d", "L=1,2", "-d", "d=1", "--plot", str(target))
    assert not target.exists()  # a comparison is no size

    assert _run("--expr", "Max(L, d)", "-d", "L=1,2", "-d", "d=1").stdout.splitlines()[0] == 'L,d,"Max(L, d)"'


REFUSED = {
    "nothing": ([], "napkin: name a model, or give --expr: one of them"),
    "both": (["gpt2", "--expr", "L"], "name a model, or give --expr: one of them"),
    "a billion points": (
        ["--expr", "a*b", "-d", "a=1:100000", "-d", "b=1:10000"],
        "napkin: 1,000,000,000 points, more than --most 20,000,000: give fewer sizes, or --most 1000000000",
    ),
    "twice": (["--expr", "a", "-d", "a=1", "-d", "a=2"], "napkin: a is given twice: give its sizes in one -d, as in -d B=1,2,4"),
    "no file": (["--expr", "a", "--from", "nowhere.csv"], "napkin: cannot read nowhere.csv: No such file or directory"),
    "no folder": ([*EXPR, "--csv", "no/where.csv"], "napkin: cannot write no/where.csv: there is no folder "),
    "no such size to draw over": ([*EXPR, "--plot", "x.svg", "--over", "q"], "napkin: --over 'q' is not swept: use one of L, d"),
    "too many lines": (
        ["--expr", "a*b", "-d", "a=1:9", "-d", "b=1:3", "--plot", "x.svg"],
        "napkin: a drawing over b would have 9 lines, more than 8: give fewer sizes of the others",
    ),
    "hostile": (["--expr", "a\x1b[31m", "-d", "a=1"], "napkin: cannot read the expression 'a\\x1b[31m': write it with"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused(case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Status 2, one line, nothing on standard output and no file."""
    monkeypatch.chdir(tmp_path)
    words, message = REFUSED[case]
    actual = _run(*words)

    assert (2, "") == (actual.exit_code, actual.stdout)
    assert message in actual.stderr
    assert "Traceback" not in actual.stderr
    assert [] == list(tmp_path.iterdir())

"""The roofline as a page: dots stand on the roof or below it, and what the figure shows is in the tables."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from calc.hardware.accelerators import accelerator
from calc.options import Options
from calc.performance.roofline import RooflineCeiling
from reports import cli
from reports.figures.roofline_bounds import RooflinePair, finding
from reports.jobs import roofline
from reports.jobs.job import Request
from reports.page import roofline as roofline_page

TODAY = datetime.date(2026, 1, 2)


@pytest.fixture(scope="module")
def rooflines() -> RooflinePair:
    """A step whose products are large enough to be bound by compute, on an A100."""
    request = Request("two-layer", {"B": 4096, "D": 4096, "K": 64}, Options(optimizer="sgd"))
    return roofline.compute(request, RooflineCeiling(accelerator("a100-sxm-80")), lambda words: None)


def test_no_dot_stands_above_the_roof(rooflines: RooflinePair) -> None:
    """A lower bound never gives more FLOP/s than the roof has at that intensity; upwards is smaller in a drawing."""
    made = roofline_page.page(rooflines, TODAY).plot
    ((points, _),) = made.roofs
    (x0, y0), (x1, y1), (_, y2) = (tuple(map(float, point.split(","))) for point in points.split())

    assert made.dots
    for dot in made.dots:
        x, y = float(dot.x), float(dot.y)
        roof = y0 + (y1 - y0) * (x - x0) / (x1 - x0) if x < x1 else y2
        assert y >= roof - 0.2, dot


def test_dots_of_compute_stand_to_the_right_of_the_ridge(rooflines: RooflinePair) -> None:
    """And those of memory to its left."""
    made = roofline_page.page(rooflines, TODAY).plot
    ridge = float(made.roofs[0][0].split()[1].split(",")[0])
    sides = {dot.css: float(dot.x) > ridge for dot in made.dots if dot.css != "bound-launch"}

    assert {"bound-compute": True, "bound-memory": False} == sides


def test_every_dot_is_a_row_of_the_table(rooflines: RooflinePair) -> None:
    """By its name, and the table has the others too."""
    made = roofline_page.page(rooflines, TODAY)

    assert len(made.plot.dots) <= len(made.operators) == len(rooflines.eager.rows)
    for dot in made.plot.dots:
        assert any(f"{row[2]} {row[0]} at " in dot.words for row in made.operators)


def test_ticks_are_round_and_in_order(rooflines: RooflinePair) -> None:
    """Powers of ten without trailing zeros, from left to right and from below upwards."""
    made = roofline_page.page(rooflines, TODAY).plot
    across, upwards = [float(k.x) for k in made.across], [float(k.y) for k in made.upwards]

    assert across == sorted(across)
    assert upwards == sorted(upwards, reverse=True)
    assert made.upwards
    assert all(re.fullmatch(r"10{0,2}\u00a0[kMGTP]?FLOP/s", k.words) for k in made.upwards)


def test_the_page_is_one_file_with_a_described_figure(rooflines: RooflinePair) -> None:
    """A title with the finding, a description, no script and no request."""
    text = roofline.write(rooflines, TODAY)

    assert f'<title id="roof-title">{finding(rooflines)}</title>' in text
    assert "kinds of operators by FLOP per byte and FLOP/s, both axes logarithmic" in text
    assert "<script" not in text
    assert not re.search(r'(src|href)="http', text)


def test_names_of_a_model_stay_text(rooflines: RooflinePair) -> None:
    """A hostile name ends no element."""
    from dataclasses import replace

    text = roofline.write(replace(rooflines, model="</title><script>alert(1)</script>"), TODAY)

    assert "<script" not in text


def test_the_command_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rooflines: RooflinePair) -> None:
    """Beside what it shows; a place that cannot be is one line."""
    monkeypatch.setattr(roofline, "compute", lambda request, ceiling, progress: rooflines)
    words = ["roofline", "two-layer", "--gpu", "a100-sxm-80", "-o"]

    made = CliRunner().invoke(cli.napkin, [*words, str(tmp_path / "roof.html")])
    refused = CliRunner().invoke(cli.napkin, [*words, "/proc/none/roof.html"])

    assert 0 == made.exit_code, made.stderr
    assert (tmp_path / "roof.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert (2, "") == (refused.exit_code, refused.stdout)
    assert refused.stderr.startswith("napkin: cannot write a report to /proc/none/roof.html: there is no folder /proc/none")

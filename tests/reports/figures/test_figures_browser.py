"""Figures as a browser draws them: their labels can be read, do not touch, and stand out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from calc.derive.rules_of_thumb import compare
from reports.figures.roofline import figure as roofline
from reports.figures.sensitivity import growth
from reports.page.build import PageContent, build
from reports.page.sensitivity import doubled
from reports.writers import html
from tests.reports import drawings, sample
from tests.reports.browser import CHROMIUM, Browser, browser
from tests.reports.writers.test_browser import CONTRAST, LABELS, WIDE, overlapping


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as actual:
        yield actual


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Figures as full as they get: capacities on both sides of the peak, and a roofline of 40 sites."""
    derivation = sample.derivation()
    full = drawings.of_peak(derivation, 700_000)
    roof = roofline(drawings.rooflines(tuple(f"blocks.*.part_{i}" for i in range(40))))
    made = build(PageContent(full, comparisons=compare(derivation), roof=roof))
    grown = growth(derivation, doubled(derivation))  # which evaluates the peak as it is
    made = replace(made, figures=replace(made.figures, sensitivity=grown))
    file = tmp_path_factory.mktemp("crowded") / "page.html"
    file.write_text(html.write(made), encoding="utf-8")
    return file


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_labels_can_be_read_and_do_not_touch(width: int, chromium: Browser, crowded: Path) -> None:
    """At least 9 pixels, none on another, none beyond the page."""
    chromium.open(crowded, width)
    labels = chromium.eval(LABELS)

    assert [] == [label for label in labels if label[1] < 9]
    assert [] == overlapping(labels)
    assert {"page": 0, "out": []} == chromium.eval(WIDE)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
@pytest.mark.parametrize("medium", ["light", "dark", "print"])
def test_labels_stand_out(medium: str, chromium: Browser, crowded: Path) -> None:
    """A contrast of 4.5 to 1 on the ground of the page."""
    chromium.open(crowded, dark=medium == "dark")
    if medium == "print":
        chromium.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert [] == chromium.eval(CONTRAST)
    finally:
        chromium.call("Emulation.setEmulatedMedia", media="")

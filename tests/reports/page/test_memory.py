"""Memory in reports: the figure, what is alive at the peak, what moves it, and what is saved for backward."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from click.testing import CliRunner

import calc
from calc.derive.live_bytes import Timeline
from calc.derive.names import PeakPlace
from calc.derive.peak_crossovers import PeakCrossovers, PeakInterval
from calc.pipeline import pipeline
from reports.cli import napkin
from reports.figures import live_bytes as drawn_live
from reports.page.build import PageContent, build
from reports.page.memory import _peak_crossover, memory
from reports.page.report import Page
from reports.writers import html, markdown
from tests.reports import live_bytes, sample


@pytest.fixture(scope="module")
def page() -> Page:
    return build(PageContent(sample.derivation(), timeline=live_bytes.timeline()))


@pytest.fixture(scope="module")
def text(page: Page) -> str:
    return html.write(page)


def test_the_title_of_the_figure_is_what_it_shows(page: Page) -> None:
    """How large the peak is, and when it comes."""
    assert page.memory.live_bytes is not None
    assert "The peak of 2.20\u00a0kB is at the start of the backward: mm at lm_head" == page.memory.live_bytes.finding


def test_areas_stack_up_to_the_live_bytes() -> None:
    """At the peak the uppermost area touches the top; parameters reach 400 of 2,200 bytes: 1,000 − ⌊400 · 1,000/2,200 + ½⌋ = 818."""
    drawn = drawn_live.drawing(live_bytes.timeline())

    assert ["parameter", "activation", "temporary"] == [a.role for a in drawn.areas]
    assert "M0 1000V818H8V1000H0Z" == drawn.areas[0].path
    assert "V0H4" in drawn.areas[-1].path


def test_an_area_is_closed_and_stays_inside() -> None:
    """Every coordinate lies within the operators of the step and the height there is."""
    drawn = drawn_live.drawing(live_bytes.timeline())
    assert drawn.areas
    for area in drawn.areas:
        assert re.fullmatch(r"M0 1000(V\d+H\d+)+Z", area.path)
        assert all(0 <= int(y) <= drawn.height for y in re.findall(r"V(\d+)", area.path))
        assert all(0 <= int(x) <= drawn.width for x in re.findall(r"H(\d+)", area.path))


def test_ticks_are_round_and_few() -> None:
    """0, 1 kB and 2 kB under a peak of 2.2 kB; the lowest stands at the bottom."""
    ticks = drawn_live.drawing(live_bytes.timeline()).ticks

    assert ["0", "1\u00a0kB", "2\u00a0kB"] == [t.words for t in ticks]
    assert str(drawn_live.TOP + drawn_live.PLOT) == ticks[0].y


def test_neighbouring_phases_are_named_in_rows_of_their_own() -> None:
    """So that no label touches the next, however narrow the page; the last one ends where the step does."""
    phases = drawn_live.drawing(live_bytes.timeline()).phases

    assert ["forward", "backward", "optimizer"] == [p.words for p in phases]
    assert phases[0].y != phases[1].y != phases[2].y
    assert ("end", "100.00%") == (phases[-1].anchor, phases[-1].x)


def test_the_figure_is_small_and_has_no_script_or_style(text: str) -> None:
    """Under 60 kB, described for those who do not see it, colored by classes alone."""
    drawn = re.search(r'<figure class="live" id="figure-live-bytes">.*?</figure>', text, re.DOTALL)

    assert drawn is not None
    assert len(drawn.group().encode()) < 60_000
    assert "style=" not in drawn.group()
    assert 'role="img" aria-labelledby="live-title live-text"' in drawn.group()


def test_every_role_has_a_color_and_a_name(text: str, page: Page) -> None:
    """In the legend in the order of the areas, with its bytes at the peak: color is not the only signal."""
    assert page.memory.live_bytes is not None
    for role, css, held, _ in page.memory.live_bytes.roles:
        assert f".{css}{{fill:" in text
        assert f'</svg> {role} <span class="n">{held}</span>' in text
    assert ["temporary", "activation", "parameter"] == [role for role, *_ in page.memory.live_bytes.roles]


def test_the_long_tail_is_one_row_and_the_table_adds_up(page: Page) -> None:
    """Twelve rows, then the six that are left: 150 bytes of 2,200."""
    timing = page.memory.live_bytes
    assert timing is not None
    assert timing.rest is not None

    assert 12 == len(timing.alive)
    assert ("6 further kinds of storage", "150") == (timing.rest.name, timing.rest.total)
    assert 2_200 == sum(int(a.total.replace(",", "")) for a in (*timing.alive, timing.rest))


def test_a_shallower_record_is_said_to_be_one() -> None:
    """With its depth."""
    actual = memory(sample.derivation(), live_bytes.timeline({"L": 4}))

    assert actual.live_bytes is not None
    assert "This is the deepest trace that the derivation has, L\u00a0=\u00a04, not the requested depth." in actual.live_bytes.note


def test_without_a_timeline_the_reason_stands_there() -> None:
    """In both formats, in place of the figure."""
    page = build(PageContent(sample.derivation(), no_timeline="no torch here"))
    for written in (html.write(page), markdown.write(page)):
        assert "Live bytes over the step are not shown: no torch here." in written
        assert "live-title" not in written


def test_a_crossover_is_said_in_order_with_the_size_at_hand_marked() -> None:
    """``B ≤ 12`` first, ``B ≥ 13`` last; B = 2 lies in the first."""
    at = PeakPlace("backward", "mm", "lm_head")
    actual = PeakCrossovers("B", (PeakInterval(1, 12, at), PeakInterval(13, 20, at), PeakInterval(21, 99, at)))
    row = _peak_crossover(actual, sample.derivation())

    assert [("B ≤ 12", True), ("13 ≤ B ≤ 20", False), ("B ≥ 21", False)] == [
        (r.words.replace("\u00a0", " "), r.is_current) for r in row.intervals
    ]
    assert "1\u00a0…\u00a099" == row.searched


def test_what_cannot_be_searched_says_why() -> None:
    """Instead of a range."""
    row = _peak_crossover(PeakCrossovers("T", (), because="T//2 is not a polynomial in T"), sample.derivation())

    assert "not searched: T//2 is not a polynomial in T" == row.searched


def test_every_kept_tensor_is_on_the_page(text: str) -> None:
    """With the operator that needs it and the reason; one that is counted already says where."""
    for written in (text, markdown.write(build(PageContent(sample.derivation())))):
        plain = re.sub(r"[\\`]|<[^>]*>", "", written)
        for kept in sample.SAVED:
            assert kept.because.split(" ")[0] in plain
            assert kept.node in plain
        assert "same storage as softmax at h.*.attn, saved at h.*.attn" in plain


def test_a_forward_alone_keeps_nothing() -> None:
    """And says so, rather than showing an empty table."""
    assert "No tensor is saved for backward." in html.write(build(PageContent(replace(sample.derivation(), saved=()))))


def test_the_command_line_shows_the_peak() -> None:
    """``--peak`` as JSON: what is alive then adds up to it."""
    import json

    data = json.loads(CliRunner().invoke(napkin, ["derive", "linear", "--peak", "--json"]).stdout)

    assert data["quantities"]["memory.peak"]["value"] == data["timeline"]["peak"]["value"]
    assert data["timeline"]["peak"]["value"] == sum(a["value"] for a in data["timeline"]["alive"])


def test_one_thing_is_shown_at_a_time() -> None:
    """Asking for two is refused in one line."""
    result = CliRunner().invoke(napkin, ["derive", "linear", "--saved", "--peak"])

    assert 2 == result.exit_code
    assert "napkin: --explain, --coverage, --saved and --peak each show one thing: give one of them\n" == result.stderr


@pytest.mark.slow
def test_a_real_timeline_fits_the_page() -> None:
    """GPT-2 at its own size: the figure stays under 60 kB, and says what is alive at the peak."""
    result = calc.derive(calc.load("gpt2"), {"d": 12, "h": 3, "V": 17, "C": 8, "T": 8, "B": 2})
    actual: Timeline = pipeline.timeline(result)
    written = html.write(build(PageContent(result, timeline=actual)))
    drawn = re.search(r'<figure class="live" id="figure-live-bytes">.*?</figure>', written, re.DOTALL)

    assert drawn is not None
    assert len(drawn.group().encode()) < 60_000


def test_the_allocator_s_table_says_that_it_is_no_measurement(page: Page, text: str) -> None:
    """First and steady step, 3,584 − 2,200 bytes of rounding, and what a library holds beside, in both formats."""
    assert page.memory.live_bytes is not None
    steady = page.memory.live_bytes.allocator[1]

    assert ("steady step", "2,200", "3,584") == (steady.step, steady.live, steady.allocated)
    assert ("2,097,152", "1") == (steady.reserved, steady.segments)
    for written in (text, markdown.write(page)):
        assert "not measured without a CUDA device" in written
        assert "cuBLAS" in written
        assert "3,584" in written


def test_a_shallower_record_has_no_allocator_s_table() -> None:
    actual = memory(sample.derivation(), live_bytes.timeline({"L": 4}))

    assert actual.live_bytes is not None
    assert ((), ()) == (actual.live_bytes.allocator, actual.live_bytes.simulated)


def test_the_command_line_shows_what_the_allocator_would_make_of_it() -> None:
    """As data, with its verdict."""
    import json

    data = json.loads(CliRunner().invoke(napkin, ["derive", "linear", "--peak", "--json"]).stdout)["timeline"]["allocator"]

    assert "not measured" == data["verdict"]
    assert all(step["live"] <= step["allocated"] <= step["reserved"] for step in (data["first_step"], data["steady_step"]))

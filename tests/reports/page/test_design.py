"""A section for a design document."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import calc
from calc.derive.names import PeakPlace
from calc.derive.result import Derivation
from calc.hardware.accelerators import accelerator
from calc.memory.peak_levers import PeakLever, StepChange
from calc.pipeline import pipeline
from calc.units import Unit
from reports import cli
from reports.figures import memory
from reports.live.document import read
from reports.live.engine import Engine
from reports.live.verify_documents import JudgedClaim, judge
from reports.page.build import PageContent, build
from reports.page.design import DesignSection, design_section
from reports.page.peak import LeverRow, peak_story
from reports.page.report import Page
from reports.typeset import numbers
from reports.writers import html, markdown
from reports.writers.render import look_of
from tests.reports import sample

LEVER = PeakLever(StepChange({"checkpointing": "block"}), 10**9, PeakPlace("backward", "mm", "lm_head"), 10**12)


def _section(derivation: Derivation, gpu: str = "h100-sxm", levers: tuple[PeakLever, ...] = ()) -> DesignSection:
    board = accelerator(gpu)
    section = design_section(derivation, peak_story(derivation, None, levers, board), levers, board)
    assert section is not None
    return section


def _page() -> Page:
    derivation = calc.derive(calc.load("mlp"), {"B": 32})
    return build(PageContent(derivation, timeline=pipeline.timeline(derivation), chosen={"B": 32}, with_design=True))


def _judged(text: str, folder: Path) -> list[JudgedClaim]:
    document = read(text)
    return judge(document, Engine(folder).run(document.statements))


def test_its_claims_hold_where_it_is_pasted(tmp_path: Path) -> None:
    """The statements come with it; an edited number is noticed."""
    text = markdown.write(_page(), look_of("design-section", ""))
    assert len(read(text).claims) >= 10
    assert all(claim.holds for claim in _judged(text, tmp_path))

    edited = re.sub(r"\*\*[\d.,]+", "**999", text, count=1)
    assert not all(claim.holds for claim in _judged(edited, tmp_path))


def test_it_says_how_to_make_it_again(tmp_path: Path) -> None:
    """With its layout: without, the command makes the plain report."""
    words = ["report", "linear", "B=3", "--template", "design-section", "-o", str(tmp_path)]
    assert CliRunner().invoke(cli.napkin, words).exit_code == 0

    assert "\nnapkin report linear B=3 --template design-section\n" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_the_largest_parts_of_the_peak_are_a_sentence() -> None:
    """As the page's paragraph has them, without marks of code."""
    derivation = calc.derive(calc.load("mlp"), {"B": 32})
    line, board = pipeline.timeline(derivation), accelerator("h100-sxm")
    story = peak_story(derivation, line, (), board)
    section = design_section(derivation, story, (), board)
    assert story is not None
    assert section is not None
    sentence = "".join(part.words for part in section.sentences[2])

    largest = "; ".join(f"{part.words} ({part.share}, {part.size})" for part in story.parts)
    assert sentence == f"The peak is {story.when}. Its largest parts: {largest}.".replace("`", "")
    assert "'" not in sentence.replace("'s ", "")


def test_each_common_device_says_whether_it_fits_and_up_to_which_batch() -> None:
    """The batch of a row fits its device and one more does not, by the closed form itself; the named device has a row of its own."""
    derivation = calc.derive(calc.load("gpt2"), {"B": 24, "T": 1024})
    peak, board = derivation["memory.peak"], accelerator("mi300x")
    rows = {row.device: row for row in _section(derivation, board.id).devices}
    boards = [accelerator(name) for name in memory.COMMON]
    at = peak.at(B=24)

    assert board.name in rows
    assert {row.fits for row in rows.values()} == {"yes", "no"}
    for device in (*boards, board):
        row = rows[device.name]
        batch = int(row.batch.replace(",", ""))
        assert peak.at(B=batch) <= device.memory < peak.at(B=batch + 1)
        assert (row.fits == "yes") == (at <= device.memory) == row.margin.endswith("left")


def test_where_the_closed_form_ends_no_batch_is_called_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    derivation = calc.derive(calc.load("mlp"), {"B": 32})
    batch = _section(derivation, "t4").devices[0].batch
    ends = int(batch.replace(",", "")) - 1
    monkeypatch.setattr(Derivation, "holds_at", lambda self, sizes: sizes.get("B", 1) <= ends)

    assert batch
    assert _section(derivation, "t4").devices[0].batch == "unknown"


def test_a_change_of_the_weights_rounding_is_recommended_only_where_no_other_fits() -> None:
    """And then with what it does."""
    derivation = calc.derive(calc.load("mlp"), {"B": 2**30})
    bf16 = PeakLever(StepChange({"precision": "bf16"}), 10**9, None, None)
    alone = _section(derivation, levers=(bf16,)).recommendation
    beside = _section(derivation, levers=(bf16, LEVER)).recommendation

    assert alone.startswith("Use bf16 for everything on NVIDIA H100")
    assert alone.endswith("is rounded away.")
    assert beside.startswith("Use activation checkpointing of every block on NVIDIA H100")
    assert "of the changes above that fit and round no weight it costs" in beside


def test_zero_divides_what_the_peak_holds() -> None:
    """The hand-written peak has parts by role; a stage never raises the bound."""
    rows = [row for row, _ in _section(sample.derivation()).changes if row.change.startswith("ZeRO")]
    values = [int(row.peak.exact.replace(",", "")) for row in rows]

    assert values
    assert sorted(values, reverse=True) == values


def test_the_grid_has_the_peak_of_every_size() -> None:
    """Exact peaks, marked by the device's capacity."""
    derivation = calc.derive(calc.load("mlp"), {"B": 32})
    rows = dict(_section(derivation).rows)

    assert {"B\u00a0=\u00a08", "B\u00a0=\u00a0256"} <= rows.keys()
    assert all(cell.endswith("✓") for cells in rows.values() for cell in cells)


def test_a_step_that_fits_is_recommended_as_it_is() -> None:
    """What would change it is the largest batch that fits."""
    section = _section(calc.derive(calc.load("mlp"), {"B": 32}))
    batch = int(re.search(r"B\u00a0=\u00a0([\d,]+)", section.otherwise)[1].replace(",", ""))
    at = calc.derive(calc.load("mlp"))["memory.peak"].at

    assert section.recommendation.startswith("Run the step as it is on NVIDIA H100 SXM5 80GB: it fits")
    assert at(B=batch) <= 80 * 10**9 < at(B=batch + 1)


def test_the_peak_of_each_change_is_a_claim_of_its_own_model() -> None:
    """Whose statement has the options of the change beside those of the step; a bound has none."""
    derivation = calc.derive(calc.load("mlp"), {"B": 32}, optimizer="sgd")
    story = peak_story(derivation, None, (LEVER,))
    section = design_section(derivation, story, (LEVER,), None, "mlp", {"B": 32})
    assert section is not None
    (_, peak), *bounds = section.changes

    assert peak.expr == "m_block.memory.peak"
    assert "model mlp as m_block B=32 optimizer=sgd checkpointing=block" in section.statements
    assert not [claim for _, claim in bounds if claim.expr]


def test_a_device_that_holds_no_batch_says_so() -> None:
    """Not one of a single sequence; which is no unknown."""
    derivation = calc.derive(calc.load("gpt2"), {"B": 1, "T": 64, "d": 12 * 4096, "L": 6})

    assert _section(derivation, "t4").devices[0].batch == "none"


def test_no_column_of_the_grid_is_longer_than_the_learned_positions() -> None:
    """At T = C the columns are T and shorter."""
    section = _section(calc.derive(calc.load("gpt2"), {"B": 8, "T": 1024}))

    assert [column.split("\u00a0")[-1] for column in section.columns] == ["64", "128", "256", "512", "1,024"]
    assert not [cell for _, cells in section.rows for cell in cells if cell == "–"]


def test_where_the_weights_must_not_be_rounded_a_bound_is_offered() -> None:
    """The first change that may fit, of those of which only a bound is derived."""
    derivation = calc.derive(calc.load("mlp"), {"B": 2**30})
    bf16 = PeakLever(StepChange({"precision": "bf16"}), 10**9, None, None)
    row = LeverRow("ZeRO-2 on 8 devices", numbers.amount(10**9, Unit.BYTE), "", "", "unchanged", "perhaps")
    story = peak_story(derivation, None, (bf16,))
    assert story is not None
    section = design_section(derivation, replace(story, levers=(row,)), (bf16,))
    assert section is not None

    assert section.recommendation.endswith("If that matters, ZeRO-2 on 8 devices may fit: at least 1.00\u00a0GB on each device.")


def test_a_step_that_does_not_fit_takes_the_cheapest_change_that_does() -> None:
    """Without one, the step is not recommended on one device."""
    derivation = calc.derive(calc.load("mlp"), {"B": 100_000_000})

    assert _section(derivation, levers=(LEVER,)).recommendation.startswith("Use activation checkpointing of every block on ")
    assert _section(derivation).recommendation.startswith("Do not run it on one ")


def test_the_claims_are_in_markdown_alone() -> None:
    """In HTML a claim is a number."""
    text = html.write(_page(), look_of("design-section", ""))

    assert "m.memory.peak" not in text.replace("device.memory", "").partition("</pre>")[2]

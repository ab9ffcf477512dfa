"""Pages that would be too heavy leave parts to the Markdown report, and say so."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from reports.jobs import report as jobs
from reports.page.equations import EquationRow, EquationTable, ModelSection
from reports.page.lighter import lighter
from reports.page.model import Chapter, StepView
from reports.page.report import Page
from reports.writers import html, markdown
from reports.writers.render import PLAIN
from tests.reports.pages import page
from tests.reports.writers.test_html import Reader


@functools.cache  # one page, so that all versions have one date
def _long() -> Page:
    """The sample's page, with ten peak candidates for each of its own, and with steps wherever it has none."""
    shown = replace(page(), equations=_equations())
    steps = next(c.steps for c in shown.chapters if c.quantity == "parameters")
    return replace(shown, chapters=tuple(_longer(c, steps) for c in shown.chapters))


def _equations() -> ModelSection:
    """Two blocks that differ by their number only, a wider one, and one of another kind; a matmul and an elementwise operator in each."""
    narrow, wide = ("(B, d)", "2·B·d²"), ("(B, f)", "2·B·d·f")
    tables = (
        EquationTable(
            "Forward", f"block.{number}", "", (EquationRow(f"Y = block.{before}.A W", *shape, False), _elementwise(sign))
        )
        for number, before, sign, shape in ((1, 0, "+", narrow), (2, 1, "+", narrow), (3, 2, "+", wide), (4, 3, "-", narrow))
    )
    return ModelSection(tuple(tables), (), "")


def _elementwise(sign: str) -> EquationRow:
    return EquationRow(f"A[b,d] = X[b,d] {sign} Y[b,d]", "(B, d)", "", False)


def _longer(chapter: Chapter, steps: tuple[StepView, ...]) -> Chapter:
    own = chapter.steps or tuple(replace(step, anchor=f"{chapter.anchor}-{step.anchor}") for step in steps)
    return replace(chapter, candidates=chapter.candidates * 10, steps=own)


@functools.cache
def _versions() -> tuple[Page, ...]:
    """The eight lighter ones."""
    return tuple(lighter(_long()))


@functools.cache
def _written(version: int) -> str:
    """The HTML of a lighter one."""
    return html.write(_versions()[version])


def test_each_version_is_lighter_than_the_one_before() -> None:
    """Eight pieces can be left out; the sample has no special case whose general form could be."""
    sizes = [len(text) for text in (html.write(_long()), *map(_written, range(8)))]

    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes) == 9


def test_equations_are_shortened_before_they_are_left_out() -> None:
    """First to one block of each kind, then to matmuls; of steps, all that can be left out are."""
    whole, kinds, _, matmuls, *_, shortest, without = (each.equations.tables for each in (_long(), *_versions()))

    assert ["Forward: block.1, as in block.2; with other sizes: block.3", "Forward: block.4"] == [table.title for table in kinds]
    assert [table.rows for table in kinds] == [whole[0].rows, whole[3].rows]
    assert [table.rows for table in matmuls] == [whole[0].rows[:1], whole[3].rows[:1]]
    assert matmuls == shortest
    assert not without


@pytest.mark.parametrize("version", range(8))
def test_links_of_a_lighter_page_lead_somewhere(version: int) -> None:
    """No step refers to one that was left out."""
    read = Reader(_written(version))
    ids = {f"#{attributes['id']}" for _, attributes in read.elements if "id" in attributes}

    assert {a["href"] for _, a in read.elements if (a.get("href") or "").startswith("#")} <= ids


def test_a_lighter_page_says_where_the_rest_is() -> None:
    """Equations, candidates and steps are in the Markdown report."""
    text = _written(7)

    assert "are in the Markdown report, or on a terminal: napkin gradients" in text
    assert "peak candidates; the Markdown report has all" in text
    assert "in the Markdown report, or on a terminal with --explain activations.bytes" in text


def test_a_table_by_module_path_is_left_out_with_its_steps() -> None:
    """Where the steps are elsewhere, the number of terms is named beside the number of steps."""
    *_, tables, _ = _versions()
    aside = next(chapter for chapter in tables.chapters if chapter.quantity == "activations.bytes")

    assert not aside.terms
    assert aside.titles["aside"].startswith(f"{aside.titles['terms']} and ")


def test_the_general_form_of_a_special_case_is_left_out() -> None:
    """Of each quantity that has one."""
    shown = _long()
    formula = next(chapter.formula for chapter in shown.chapters if chapter.formula is not None)
    by_cases = replace(shown, chapters=tuple(replace(chapter, where="B = 1", otherwise=formula) for chapter in shown.chapters))
    *_, last = lighter(by_cases)

    assert not [chapter.quantity for chapter in last.chapters if chapter.otherwise is not None]


def test_a_report_takes_the_first_version_that_is_light_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole where it fits; the lightest where none does."""
    texts = [html.write(_long()), *map(_written, range(8))]
    for limit, expected in ((len(texts[0].encode()) + 1, texts[0]), (len(texts[2].encode()) + 1, texts[2]), (1, texts[-1])):
        monkeypatch.setattr(jobs, "_MOST_BYTES", limit)
        assert jobs._light(".html", _long(), PLAIN, None) == expected


def test_a_heavy_markdown_report_has_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows equations of one block of each kind alone, and leaves out nothing else."""
    monkeypatch.setattr(jobs, "_MOST_BYTES", 1)

    assert jobs._light(".md", _long(), PLAIN, None) == markdown.write(_versions()[0])
    assert "Forward: block.2" in markdown.write(_long())

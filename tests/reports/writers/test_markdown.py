"""The Markdown report: tables and mathematics as GitHub reads them, and nothing a name could break."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt

from calc.derive.rules_of_thumb import RULES
from reports.writers import markdown
from tests.reports import allowed, pages, sample

BLOCK = {r"\begin", r"\end", "\\\\"}


@pytest.fixture(scope="module")
def text():
    return markdown.write(pages.page())


def _tokens(text):
    return MarkdownIt("commonmark").enable("table").parse(text)


def _tables(text):
    """Header cells of each table."""
    actual, cells = [], None
    for token in _tokens(text):
        if token.type == "thead_open":
            cells = []
        elif token.type == "thead_close":
            actual.append(tuple(cells))
            cells = None
        elif token.type == "inline" and cells is not None:
            cells.append(token.content)
    return actual


def test_the_tables_parse(text):
    """Those that a reader looks for, with their columns."""
    tables = _tables(text)

    assert ("Quantity", "Value", "Check", "Closed form") in tables
    assert ("Symbol", "Meaning", "Unit", "Value", "Source") in tables
    assert ("Quantity", "Derived", "Measured", "Difference", "Tolerance", "Verdict", "Note") in tables
    assert ("Rule", "Estimate", "Exact", "Error", "Verdict") in tables


def test_every_row_has_the_cells_of_its_header(text):
    """No stray pipe splits a cell."""
    width = tables = 0
    for line in text.split("\n"):
        if re.fullmatch(r"\|(?: -+:? \|| :?-+:? \|)+", line):
            width = line.count("|")
            tables += 1
        elif line.startswith("|") and width:
            assert width == len(re.findall(r"(?<!\\)\|", line)), line
        else:
            width = 0
    assert tables


def test_mathematics_uses_allowed_commands_only(text):
    """Inline and in blocks; GitHub refuses the rest."""
    blocks = re.findall(r"```math\n(.*?)\n```", text, re.DOTALL)
    inline = re.findall(r"\$`(.*?)`\$", text)

    assert blocks
    assert inline
    assert allowed.commands_in(" ".join((*blocks, *inline))) <= allowed.COMMANDS | BLOCK
    assert "$$" not in text
    assert all(len(b) < 1000 for b in blocks)


def test_at_most_four_terms_stand_in_a_row(text):
    """A longer row does not fit a phone."""
    blocks = re.findall(r"\\begin\{aligned\}\n(.*?)\n\\end", text, re.DOTALL)
    assert blocks
    for block in blocks:
        for row in block.split("\\\\\n"):
            body = re.sub(r"\([^()]*\)", "", re.sub(r"\\(?:left|right|text)\b|_\{[^{}]*\}", "", row))
            assert len(re.findall(r"(?<=[^(\s{]) ?\+", body)) <= 4, row


def test_every_step_is_there(text):
    """Under a heading with its number, and an anchor of its own."""
    anchors = {view.anchor for chapter in pages.page().chapters for view in chapter.steps}
    assert len(anchors) == len(sample.derivation().steps)
    assert all(f'<a id="{anchor}"></a>' in text for anchor in anchors)
    headings = re.findall(r"^#### (4\.\d+\.\d+) ", text, re.MULTILINE)

    assert len(sample.derivation().steps) == len(headings)


def test_every_link_ends_somewhere(text):
    """Each #target has its anchor."""
    anchors = re.findall(r'<a id="([^"]+)"></a>', text)

    assert len(anchors) == len(set(anchors))
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= set(anchors)


def test_hostile_names_are_inert():
    """Rendered with HTML allowed, only anchors, folds and code spans are elements, and no link leaves but citations."""
    text = markdown.write(pages.hostile())
    tokens = _tokens(text)
    raw = [t.content for t in tokens if t.type == "html_block"]
    raw += [c.content for t in tokens if t.type == "inline" for c in t.children if c.type == "html_inline"]
    links = [c.attrs["href"] for t in tokens if t.type == "inline" for c in t.children if c.type == "link_open"]

    assert {"a", "code", "details", "summary"} >= set(re.findall(r"</?(\w+)", " ".join(raw)))
    assert links
    assert all(link.startswith("#") or link in {rule.link for rule in RULES} for link in links)
    assert not any(t.type == "heading_open" and t.tag == "h1" for t in tokens[3:])
    assert 0 == len(re.findall(r"[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text))


def test_a_hostile_command_stays_in_its_fence():
    """Fences open and close in turn."""
    text = markdown.write(pages.hostile())

    assert 0 == len(re.findall(r"^```", text, re.MULTILINE)) % 2
    assert all(t.info in ("sh", "math") for t in _tokens(text) if t.type == "fence")


def test_equal_pages_give_equal_bytes(text):
    """Nothing in it depends on a hash or on order of sets."""
    assert text == markdown.write(pages.page())


def test_both_writers_print_the_same_numbers(text):
    """Every exact number of the Markdown stands in the HTML too, and the other way round."""
    from reports.writers import html

    def numbers(source):
        return set(re.findall(r"\d{1,3}(?:,\d{3})+", source.replace("{,}", ",")))

    page = re.sub(r"<style>.*?</style>", "", html.write(pages.page()), flags=re.DOTALL)

    assert numbers(text) == numbers(page)

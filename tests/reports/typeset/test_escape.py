"""Hostile names are inert wherever they are printed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from reports.typeset import escape

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "a | b | c",
    "`code` ``` fence",
    "**bold** _em_ ~~gone~~",
    "$`x`$ and $$y$$",
    "\\`escaped\\|",
    "# heading",
    "- item",
    "&lt;b&gt;",
    "line\nbreak\r\n\n# heading",
    "\x1b[31mred\x1b[0m\x07\x9b2J",
    "\u202eevil\u2066",
    "https://evil.example/x www.evil.example @someone a@b.example",
    "![i](x)",
    "1. one",
    "<!-- -->",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_markdown_shows_a_hostile_name_as_plain_text(name):
    """Rendered, the escaped name is one paragraph of text: no element, and the text of the name itself."""
    html = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(f"x {escape.markdown(name)}")

    assert re.fullmatch(r"<p>[^<]*</p>\n", html), html


@pytest.mark.parametrize("name", HOSTILE)
def test_a_table_cell_holds_a_hostile_name(name):
    """Neither a pipe nor a backtick in a name adds a cell or a row."""
    parser = MarkdownIt("commonmark").enable("table")
    table = f"| a | b |\n| --- | --- |\n| {escape.markdown_code(name)} | {escape.markdown(name)} |\n"

    tokens = parser.parse(table)

    assert 2 == sum(t.type == "td_open" for t in tokens)
    assert {"table_open"} == {t.type for t in tokens if t.level == 0 and t.nesting == 1}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_control_character_reaches_a_terminal(name):
    """What is shown is one line of printable characters."""
    shown = escape.visible(name)

    assert shown.isprintable()


@pytest.mark.parametrize("name", ["\u3164", "a\u2800b", "\u115f", "a\u200bb", "\u00ad"])
def test_a_name_that_shows_nothing_is_shown(name):
    """By the numbers of its characters."""
    shown = escape.visible(name)

    assert re.search(r"\\[xu][0-9a-f]{2,4}", shown)


@given(st.text())
def test_any_text_becomes_a_safe_id(text):
    """A slug holds letters, digits, dot, dash and underscore, is not hidden and is bounded."""
    actual = escape.slug(text)

    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}", actual) or actual == "", actual


def test_different_names_keep_different_slugs():
    """What the cleaning would merge is told apart by a digest."""
    assert escape.slug("a/b") != escape.slug("a b")
    assert "h.ln_1" == escape.slug("h.ln_1")


def test_a_path_cannot_climb_out_of_a_slug():
    """../../etc/passwd holds no separator any more, and does not begin with a dot."""
    actual = escape.slug("../../etc/passwd")

    assert "/" not in actual
    assert not actual.startswith(".")


def test_a_fence_cannot_be_closed_from_inside():
    """Three backticks in a command are broken up."""
    assert "```" not in escape.fenced("echo ```\n```")

"""A spec's notes are a stranger's Markdown: formatted where that is harmless, inert everywhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from reports.page.build import PageContent, build
from reports.typeset import prose
from reports.writers import html, markdown
from tests.reports import sample
from tests.reports.writers.test_html import CITED, Reader

ROOT = Path(__file__).resolve().parents[3]

HOSTILE = (
    "<script>alert(1)</script>",
    '<img src="http://evil.example/x.png" onerror=alert(1)>',
    "[click](javascript:alert(1)) and [here](http://evil.example)",
    "![pixel](http://evil.example/p.png)",
    "<http://evil.example> and http://evil.example and www.evil.example and @someone",
    "[r]\n\n[r]: javascript:alert(1)",
    "`<script>alert(1)</script>` and **<b onmouseover=alert(1)>bold</b>**",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "text <!-- comment --> <?php echo 1 ?> <style>*{display:none}</style>",
    "# heading\n\n| a | b |\n|---|---|\n| c | d |\n\n---\n\n```math\n\\href{javascript:alert(1)}{x}\n```",
    "$`\\href{javascript:alert(1)}{x}`$ </li></ul></section><h1>taken over</h1>",
    "\x1b[31mred\u202etxt.exe",
)  # fmt: skip


def test_html_keeps_emphasis_code_and_lists():
    """One paragraph stands without its tags, as part of a list item of ours."""
    assert "<strong>all</strong> of <em>it</em>, <code>B &lt; T</code>" == prose.html("**all** of *it*, `B < T`")
    assert "<ul>\n<li>one</li>\n<li>two</li>\n</ul>" == prose.html("- one\n- two")


def test_markdown_keeps_emphasis_and_code():
    """On one line; the rest is literal."""
    assert r"**all** of *it*, `B, T` \[no\]\(link)" == prose.markdown("**all** of *it*,\n`B, T` [no](link)")


@pytest.mark.parametrize("note", HOSTILE)
def test_a_hostile_note_makes_harmless_elements_only(note):
    """No attribute, so neither handler nor address; no element but those of plain prose."""
    read = Reader(str(prose.html(note)))

    assert {tag for tag, _ in read.elements} <= prose.TAGS
    assert not [a for _, attributes in read.elements for a in attributes]


@pytest.mark.parametrize("note", HOSTILE)
def test_a_hostile_note_makes_no_html_and_no_link_in_markdown(note):
    """Read by another reader, with HTML and tables allowed: text, emphasis and code; no bare address, no mention, no mathematics."""
    written = str(prose.markdown(note))
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(f"- {written}\n")
    inline = [child for token in tokens if token.type == "inline" for child in token.children]

    assert {t.type for t in tokens} == {"bullet_list_open", "list_item_open", "paragraph_open", "inline"} | {
        "paragraph_close", "list_item_close", "bullet_list_close",
    }  # fmt: skip
    allowed = {"text", "code_inline", "em_open", "em_close", "strong_open", "strong_close", "html_inline"}
    assert {c.type for c in inline} <= allowed
    assert {c.content for c in inline if c.type == "html_inline"} <= {"<code>", "</code>"}
    assert not re.findall(r"https?://|www\.|@\w|(?<!\\)\$", written)


def test_hostile_notes_leave_the_page_as_it_is():
    """All of them at once: as many sections, tables and links as without, and what was planted is there as text."""
    pages = [build(PageContent(sample.derivation(notes=notes))) for notes in (("a",) * len(HOSTILE), HOSTILE)]
    plain, planted = (Reader(html.write(page)) for page in pages)

    for tags in (("h1",), ("h2",), ("h3",), ("section",), ("table",), ("a",), ("style",), ("script", "img", "iframe")):
        assert len(plain.all(*tags)) == len(planted.all(*tags)), tags
    assert {a["href"] for a in planted.all("a") if not a["href"].startswith("#")} <= CITED
    assert "<script>alert(1)</script>" in "".join(planted.text)
    lines = [len(markdown.write(page).split("\n")) for page in pages]
    assert lines[0] == lines[1]


def test_control_characters_of_a_note_are_shown():
    """In all formats: neither an escape sequence nor a change of direction leaves the note."""
    for written in (prose.html(HOSTILE[-1]), prose.markdown(HOSTILE[-1])):
        assert "\x1b" not in written
        assert "\u202e" not in written
        assert "u202e" in written


@pytest.mark.parametrize("note", ["[" * 3900, "- " * 1900, "> " * 1900, "**a" * 1300, "![[" * 1300, "`a" * 1900, "a" * 100_000])
def test_a_note_made_to_be_slow_or_deep_is_shown_as_it_is(note):
    """Nothing that nests or repeats breaks the reader."""
    assert prose.html(note)
    assert prose.markdown(note)


@pytest.mark.slow
def test_the_readers_of_prose_are_imported_where_html_is_written_only():
    """Deriving, and writing Markdown, needs neither."""
    code = "import sys; from tests.reports import pages; from reports.writers import markdown, html; from reports.jobs import job, report;"
    code += "p = pages.page();"
    code += "both = {'nh3', 'markdown'}; markdown.write(p); print(both & set(sys.modules)); html.write(p); print(both <= set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert "set()\nTrue\n" == done.stdout

"""The HTML report: self-contained, inert, accessible, and made of MathML Core."""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import calc
from calc.derive.rules_of_thumb import RULES
from reports.page.build import PageContent, build
from reports.writers import html, markdown
from tests.reports import allowed, pages, sample

VOID = {"meta", "input", "wbr", "br", "hr", "img", "link"}
ENDED_BY_THE_NEXT = {"td": {"td", "th"}, "th": {"td", "th"}, "tr": {"td", "th", "tr"}}  # HTML lets these end tags be left out
CITED = {rule.link for rule in RULES}


class Reader(HTMLParser):
    """Elements with their attributes, in order; unbalanced ones are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert [] == self._open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._end(ENDED_BY_THE_NEXT.get(tag, ()))
        if tag not in VOID:
            self._open.append(tag)

    def _end(self, tags):
        while self._open and self._open[-1] in tags:
            self._open.pop()

    def handle_endtag(self, tag):
        if tag == "tbody":
            self._end(ENDED_BY_THE_NEXT["tr"])
        assert tag == self._open.pop(), tag

    def handle_data(self, data):
        if "style" not in self._open:
            self.text.append(data)

    def all(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag in tags]


@pytest.fixture(scope="module")
def text():
    return html.write(pages.page())


@pytest.fixture(scope="module")
def read(text):
    return Reader(text)


def test_the_page_runs_no_script_and_loads_nothing(read):
    """No script, frame, style sheet, image or handler; every URL is a citation or a place in the page."""
    assert not read.all("script", "iframe", "link", "img", "object", "embed", "form")
    assert not [a for _, attributes in read.elements for a in attributes if a.startswith("on") or a in ("src", "style")]
    assert CITED == {a["href"] for a in read.all("a") if not a["href"].startswith("#")}


def test_the_policy_allows_the_pages_own_style_and_font_only(text, read):
    """Default none; the style sheet by its hash, so planted style is refused as well."""
    policy = next(m["content"] for m in read.all("meta") if "http-equiv" in m)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()

    assert f"default-src 'none'; style-src 'sha256-{digest}'; font-src data:; base-uri 'none'; form-action 'none'" == policy
    assert set(re.findall(r"url\((\w+:)", style)) == {"data:"}
    assert "@import" not in style


def test_a_cell_on_a_phone_shows_the_name_of_its_column(text, read):
    """A style rule of the table's class holds the names; on narrow screens each cell begins with the one of its place."""
    table = re.search(r'<table class="(?:\w+ )?(h\d+)">\n<caption>Symbols</caption>', text)

    assert table is not None
    assert f'.{table[1]}{{--c1:"Symbol";--c2:"Meaning";--c3:"Unit";--c4:"Value";--c5:"Source";}}' in text
    assert 'td:nth-child(5)::before{content:var(--c5) " "' in text


def test_a_name_of_a_column_cannot_end_its_string_of_style() -> None:
    """Quotes, backslashes and brackets are escapes of CSS: T = 1 is a name of a column, and a size can be called anything."""
    heads = html._TableHeads()

    assert "h0" == heads([('a"};b\\<', "text")])
    assert '.h0{--c1:"a\\22 \\7d \\3b b\\5c \\3c ";}' == heads.css()


def test_every_link_ends_somewhere(read):
    """Each #target is an id of the page, and no id is given twice."""
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]

    assert len(ids) == len(set(ids))
    assert {a["href"][1:] for a in read.all("a") if a["href"].startswith("#")} <= set(ids)


def test_a_peak_candidate_without_steps_on_the_page_is_no_link() -> None:
    """Those of the first step: their steps are in Markdown, with a link to each."""
    page = build(PageContent(calc.derive(calc.load("two-layer"))))
    read = Reader(html.write(page))

    test_every_link_ends_somewhere(read)
    assert "F₁" in read.text
    assert "[F₁](#first-" in markdown.write(page)


def test_mathematics_is_mathml_core(text, read):
    """Formulas are there, and use no element outside the core."""
    inside = set(re.findall(r"<(\w+)", " ".join(re.findall(r"<math>.*?</math>", text, re.DOTALL))))

    assert len(read.all("math")) > 50
    assert inside <= allowed.ELEMENTS
    assert {"math", "mn", "mi", "mo", "msup", "munder", "munderover"} <= inside


def test_every_step_is_on_the_page(text, read):
    """With its title and reason."""
    words = "".join(read.text)
    steps = sample.derivation().steps
    anchors = {view.anchor for chapter in pages.page().chapters for view in chapter.steps}
    assert len(anchors) == len(steps) > 0
    assert all(f'id="{anchor}"' in text for anchor in anchors)
    for step in steps:
        assert step.title in words
        assert step.because in words


def test_a_screen_reader_finds_its_way(read):
    """Language, skip link, landmarks, ordered headings, captions and scopes."""
    levels = [int(tag[1]) for tag, _ in read.elements if re.fullmatch("h[1-6]", tag)]

    assert {"en"} == {e["lang"] for e in read.all("html")}
    assert "#content" == read.all("a")[0]["href"]
    assert 1 == len(read.all("main")) == levels.count(1)
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    assert len(read.all("table")) == len(read.all("caption"))
    assert all(th.get("scope") in ("col", "row") for th in read.all("th"))
    assert all("aria-label" in n for n in read.all("nav"))


def test_what_scrolls_is_labelled_and_can_be_reached(read):
    """Every scroll box is a focusable region with a name."""
    boxes = [e for e in read.all("div") if set((e.get("class") or "").split()) & {"scroll", "wide"}]

    assert boxes
    assert all(b.get("tabindex") == "0" and b.get("role") == "region" and b.get("aria-label") for b in boxes)


def test_numbers_do_not_break(text):
    """What is marked as a number holds no ordinary space; columns of numbers do not wrap."""
    assert ".n{white-space:nowrap;" in text
    assert ":is(td,th).n,.ns td,.ps td:is(:nth-child(2),:nth-child(3)){text-align:right;white-space:nowrap;" in text
    for number in re.findall(r'<span class="n(?: subst)?">([^<]*)</', text):
        assert " " not in number, number


def test_a_failed_check_shows_before_any_section():
    """On the first screen, in words."""
    failing = html.write(pages.hostile())

    head = failing[: failing.index('<section id="answers"')]

    assert '<p class="tally bad"' in head
    assert "<b>1</b> failed" in head


def test_hostile_names_are_inert():
    """No planted element or attribute exists; the planted text is there as text."""
    read = Reader(html.write(pages.hostile()))

    assert not read.all("script", "img")
    assert not [a for _, attributes in read.elements for a in attributes if a.startswith("on")]
    assert not [a for a in read.all("a") if "javascript" in (a["href"] or "")]
    assert "<script>alert(1)</script>" in "".join(read.text)


def test_equal_pages_give_equal_bytes(text):
    """Nothing in it depends on a hash or on order of sets."""
    assert text == html.write(pages.page())


@pytest.mark.slow
def test_bytes_do_not_depend_on_the_hash_seed():
    """A process with another seed than this one writes the same page and the same Markdown."""
    code = "from tests.reports import pages; from reports.writers import html, markdown; import hashlib; p = pages.page();"
    code += "print(hash('a'), hashlib.sha256((html.write(p) + markdown.write(p)).encode()).hexdigest())"
    root = Path(__file__).resolve().parents[3]
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
    )
    page = pages.page()
    hashed, digest = done.stdout.split()

    assert int(hashed) != hash("a")
    assert digest == hashlib.sha256((html.write(page) + markdown.write(page)).encode()).hexdigest()


def test_sixty_steps_stay_small():
    """At most 250 kB for sixty steps and more: the sample's, those of its counted quantities twelve times."""
    full = sample.derivation()
    counted = [s for s in full.steps if s.quantity != "memory.peak"]
    steps = (*full.steps, *(replace(s, id=f"{s.id}-{i}") for i in range(11) for s in counted))

    assert 64 == len(steps)
    assert len(html.write(build(PageContent(replace(full, steps=steps)))).encode()) <= 250_000

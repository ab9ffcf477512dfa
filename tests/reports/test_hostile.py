"""Reports with two hundred and fifty hostile texts as names: inert in every format, wherever they come out."""

from __future__ import annotations

import functools
import io
import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from calc.derive.rules_of_thumb import compare
from calc.errors import SpecError
from calc.spec import Spec
from reports.jobs import job
from reports.page.chapters import reported
from reports.page.inputs import Inputs, embedded
from reports.page.report import Page
from reports.typeset.escape import brief
from reports.typeset.prose import TAGS
from reports.views import answers, checks, explained, memory
from reports.writers import html, markdown, tex
from reports.writers.terminal import Terminal
from tests.reports import hostile, pages, planting
from tests.reports.browser import CHROMIUM, browser
from tests.reports.inert import LETTERS, controls, html_is_inert, latex_is_inert, markdown_is_inert

# Names of the same lengths, on which the layout depends, each another one: a letter of its own in front.
BENIGN = {text: f"{chr(0x100 + i)}{'n' * (len(text) - 1)}" for i, text in enumerate(hostile.ALL)}
STARTS = tuple(part * len(hostile.ALL) // 3 for part in range(3))


def turned(start: int) -> tuple[str, ...]:
    """All of the texts, from another one on: each comes to stand in other places."""
    return (*hostile.ALL[start:], *hostile.ALL[:start])


@pytest.fixture(scope="module", params=STARTS, ids=lambda start: f"from {start}")
def start(request: pytest.FixtureRequest) -> int:
    actual: int = request.param
    return actual


@pytest.fixture(scope="module")
def page(start: int) -> Page:
    """A page on which every name is one of them."""
    return planting.page(turned(start))


@pytest.fixture(scope="module")
def plain(start: int) -> Page:
    """The same page with names that could hurt nobody."""
    return planting.page([BENIGN[text] for text in turned(start)])


def test_there_are_two_hundred_of_them_and_more() -> None:
    """In fifteen families, no two the same."""
    assert len(set(hostile.ALL)) == len(hostile.ALL) >= 200
    assert len(hostile.FAMILIES) == 15


# -- HTML ------------------------------------------------------------------------------------------------------------------------------


def test_html_has_no_element_of_theirs(page: Page, plain: Page) -> None:
    """Nor an attribute, a handler, a link or a comment."""
    html_is_inert(html.write(page), html.write(plain))


def test_an_element_of_theirs_would_show() -> None:
    """The comparison above can fail."""
    text = short(4)[html.write]
    for planted in ("<b onclick=x>", "<section>", "<!-- x -->", '<a href="https://x.example">', "\u202e"):
        with pytest.raises(AssertionError):
            html_is_inert(text.replace("</main>", f"{planted}</main>"), text)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_a_browser_makes_no_element_of_theirs_either(page: Page, plain: Page, tmp_path: Path) -> None:
    """Its own parser, element by element; no dialog, no request, no handler."""
    count = "(() => { const n = {}; for (const e of document.querySelectorAll('*')) if (!e.closest('math'))"
    count += " n[e.localName] = (n[e.localName] || 0) + 1; return n; })()"
    handlers = "[...document.querySelectorAll('*')].flatMap(e => [...e.attributes]).filter(a => a.name.startsWith('on')).length"
    actual = []
    with browser() as chromium:
        for name, made in (("plain", plain), ("page", page)):
            file = tmp_path / f"{name}.html"
            file.write_text(html.write(made), encoding="utf-8")
            chromium.open(file)
            counted = chromium.eval(count)
            actual.append({tag: n for tag, n in counted.items() if tag not in TAGS | LETTERS})
            assert chromium.eval(handlers) == 0
            asked = [e["params"]["request"]["url"] for e in chromium.events if e.get("method") == "Network.requestWillBeSent"]
            assert [url for url in asked if not url.startswith("data:font/")] == [file.as_uri()]
            assert not [e for e in chromium.events if e.get("method") == "Page.javascriptDialogOpening"]

    assert actual[0] == actual[1]


# -- Markdown --------------------------------------------------------------------------------------------------------------------------


def test_markdown_has_no_element_of_theirs(page: Page, plain: Page) -> None:
    """As markdown-it-py reads it."""
    markdown_is_inert(markdown.write(page), markdown.write(plain))


def test_markdown_of_theirs_would_show() -> None:
    """The comparison above can fail."""
    text = short(4)[markdown.write]
    for planted in ("\n# heading\n", "[x](https://x.example)", "![x](y)", "<b>x</b>", "https://x.example", "\x1b", "\n```\n", "\n- x\n"):
        with pytest.raises(AssertionError):
            markdown_is_inert(f"{text}\n{planted}\n", text)


# -- LaTeX -----------------------------------------------------------------------------------------------------------------------------


def test_latex_has_no_command_of_theirs(page: Page, plain: Page) -> None:
    """Inside formulas neither."""
    latex_is_inert(tex.write(page), tex.write(plain))


def test_latex_of_theirs_would_show() -> None:
    """The comparison above can fail."""
    text = short(4)[tex.write]
    for planted in (r"\input{x}", r"\def\x{}", "{", "} %", r"\end{document}", "^^5c", r"\write18{x}"):
        with pytest.raises(AssertionError):
            latex_is_inert(text.replace(r"\bigskip", planted + r"\bigskip"), text)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex here")
def test_a_stock_latex_compiles_all_of_them(page: Page, tmp_path: Path) -> None:
    """And writes no file but its own."""
    (tmp_path / "r.tex").write_text(tex.write(page), encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "r.tex"], cwd=tmp_path, capture_output=True, timeout=200
    )

    assert done.returncode == 0, done.stdout.decode(errors="replace")[-800:]
    assert {file.suffix for file in tmp_path.iterdir()} <= {".tex", ".pdf", ".log", ".aux", ".toc", ".out"}


# -- terminal, JSON, symbols -----------------------------------------------------------------------------------------------------------


def test_nothing_acts_on_a_terminal(start: int, page: Page) -> None:
    """Every screen that shows a model: printed, and no character of it but line ends acts."""
    file = io.StringIO()
    out, names = Terminal(140, file), turned(start)
    derivation = planting.derivation(names)
    comparisons = compare(derivation)
    answers.show(answers.of_derivation(derivation, comparisons), out)
    checks.show(derivation, planting.checks(itertools.cycle(names)), out)
    memory.show_saved(derivation, out)
    memory.show_peak(derivation, planting.timeline(names), "", out)
    for name in reported(derivation):
        explained.show_quantity(derivation, name, out)
    for comparison in comparisons:
        explained.show_rule_of_thumb(derivation, comparison, out)
    explained.show(page.model, page.coverage, out)
    shown = file.getvalue()

    assert len(shown) > 10_000
    assert controls(shown) == []


def test_json_holds_them_as_they_are() -> None:
    """Only ASCII on the way, the same text behind it."""
    made = planting.document(hostile.ALL)
    text = job.json_text(made)

    assert text.isascii()
    assert controls(text) == []
    assert json.loads(text) == json.loads(json.dumps(made))


def test_what_a_report_carries_reads_back(page: Page) -> None:
    """In every format the inputs are found again, and no other text is taken for them."""
    for suffix, write in ((".html", html.write), (".md", markdown.write), (".tex", tex.write)):
        actual = embedded(write(page), suffix)
        assert actual is not None
        assert actual.text() == page.inputs


def test_no_inputs_end_what_they_stand_in() -> None:
    """One line of ASCII without a sign of markup, the same when read."""
    for text in hostile.ALL:
        inputs = Inputs("report", text, environment={text: text})
        line = inputs.text()

        assert line.isascii()
        assert line.isprintable()
        assert not re.search(r"--|[<>&'`]", line)
        assert embedded(f"<!-- napkin-inputs {line} -->", ".md") == inputs


def test_a_symbol_is_a_plain_name_or_refused() -> None:
    """Letters, digits and underscores; the refusal is one line, and shows nothing that acts."""
    for text in hostile.ALL:
        if re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII):
            continue
        with pytest.raises(SpecError) as refused:
            Spec("m", {text: 3}, build=lambda n: None, inputs=lambda n: (), loss=lambda m: None)
        assert controls(brief(str(refused.value))) == []  # as the command line prints it
        assert "\n" not in str(refused.value)


# -- each of them in every place at once -----------------------------------------------------------------------------------------------


WRITERS = ((html.write, html_is_inert), (markdown.write, markdown_is_inert), (tex.write, latex_is_inert))


@functools.cache
def short(length: int) -> Mapping[Callable[[Page], str], str]:
    """A short page on which everything has one name of that length, in each format."""
    made = planting.page(("n" * length,), 3)
    return {write: write(made) for write, _ in WRITERS}


@pytest.mark.slow
@pytest.mark.parametrize("family", hostile.FAMILIES)
def test_each_of_them_is_inert_in_every_place(family: str) -> None:
    """One page for each, on which everything is called so."""
    for text in hostile.FAMILIES[family]:
        made, usual = planting.page((text,), 3), short(len(text))
        for write, inert in WRITERS:
            try:
                inert(write(made), usual[write])
            except AssertionError as error:
                raise AssertionError(f"{text!a}: {error}") from None


def test_the_sample_page_of_one_name_is_the_same(plain: Page) -> None:
    """What these tests plant into is the sample that other tests read."""
    quantities = {c.quantity for c in plain.chapters}

    assert "memory.peak" in quantities
    assert quantities == {c.quantity for c in pages.page().chapters}

"""Each statement on what a report must be has tests that are there; those that stand nowhere else are here."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from calc.derive.rules_of_thumb import compare
from calc.derive.to_json import to_json
from reports.page.build import PageContent, build
from reports.page.model import Badge
from reports.page.report import Page
from reports.typeset import numbers
from reports.typeset.numbers import NBSP, PrintedAmount
from reports.views import checks
from reports.writers import html, markdown, tex
from reports.writers.terminal import Terminal
from tests.reports import pages, sample
from tests.reports.browser import CHROMIUM, browser
from tests.reports.statements import STATEMENTS

ROOT = Path(__file__).resolve().parents[2]
WRITERS = (html.write, markdown.write, tex.write)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")


@pytest.fixture(scope="module")
def page() -> Page:
    return pages.page()


def found_in(value: Any, kind: type) -> Iterator[Any]:
    """Everything of a kind that a page holds, however deep."""
    if isinstance(value, kind):
        yield value
    if is_dataclass(value):
        for field in fields(value):
            yield from found_in(getattr(value, field.name), kind)
    elif isinstance(value, tuple):
        for each in value:
            yield from found_in(each, kind)


def plain(text: str) -> str:
    """The text without what groups digits in a formula or breaks lines."""
    return re.sub(r"<[^>]*>|\{,\}|\\allowbreak(?:\{\})?", lambda m: "," if m[0] == "{,}" else "", text).replace("&#44;", ",")


def test_every_statement_has_tests_that_are_there() -> None:
    """All twenty-five; by the names that stand in the files."""
    assert list(STATEMENTS) == list(range(1, 26))
    for number, statement in STATEMENTS.items():
        assert statement.tests, number
        for test in statement.tests:
            file, _, name = test.partition("::")
            tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (number, test)


# -- 4 ---------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_another_hash_seed_gives_the_same_report(tmp_path: Path) -> None:
    """All four files of a real report, made by two processes on a day that is fixed."""
    made = []
    for seed in ("1", "2"):
        words = ["report", "mlp", "-d", "B=5", "--latex", "-o", str(tmp_path / seed)]
        fixed = {"PYTHONHASHSEED": seed, "SOURCE_DATE_EPOCH": "86400", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "reports.cli", *words]
        subprocess.run(command, cwd=ROOT, env={**os.environ, **fixed}, check=True, capture_output=True)
        made.append({file.name: file.read_bytes() for file in (tmp_path / seed).iterdir()})

    assert len(made[0]) == 4
    assert made[0] == made[1]
    assert b"1970-01-02" in made[0]["report.html"]


# -- 5 ---------------------------------------------------------------------------------------------------------------------------------


def test_every_value_of_the_results_is_in_every_format(page: Page) -> None:
    """Each quantity's and each step's, with all of its digits."""
    derivation = sample.derivation()
    document = to_json(derivation, sample.checks(), compare(derivation))
    texts = [plain(write(page)) for write in WRITERS]
    assert derivation.quantities
    for quantity in derivation.quantities.values():
        assert document["quantities"][quantity.name]["value"] == quantity.value
        for text in texts:
            assert quantity.value is None or numbers.integer(quantity.value) in text
    assert derivation.steps
    for step, written in zip(derivation.steps, document["steps"], strict=True):
        assert (step.id, step.value) == (written["id"], written["value"])
        for text in texts:
            assert numbers.integer(step.value) in text


def test_another_result_changes_every_format() -> None:
    """One value of the results object, no writer touched: every format prints it, and none of them the old one."""
    derivation = sample.derivation()
    old = derivation["activations.bytes"]
    assert old.value == 23_180
    other = replace(derivation, quantities={**derivation.quantities, old.name: replace(old, value=987_654_321, terms=(), parts=())})
    made = build(PageContent(other))
    texts = [*(plain(write(made)) for write in WRITERS), json.dumps(to_json(other)).replace("987654321", "987,654,321")]

    assert ["987,654,321" in text for text in texts] == [True] * 4
    assert ["23,180" in text for text in texts] == [False] * 4


# -- 6, 12, 13, 14 ---------------------------------------------------------------------------------------------------------------------


def test_every_symbol_has_meaning_unit_value_and_source(page: Page) -> None:
    """No cell of the table is empty."""
    assert len(page.symbols) > 8
    for row in page.symbols:
        assert all((row.meaning, row.unit, row.value, row.source)), row


def test_a_tolerance_stands_beside_every_measured_result(page: Page) -> None:
    """In the row of the check, in every format and on the terminal; what was not measured has none."""
    measured = {row.quantity: row.tolerance for row in page.checks if row.measured != "not measured"}
    assert measured == dict.fromkeys(("parameters", "flops.forward.matmul", "flops.backward.matmul"), "0")
    assert {row.tolerance for row in page.checks if row.measured == "not measured"} == {"–"}
    (within,) = (row for row in build(PageContent(sample.derivation(), sample.checks(LOOSE))).checks if row.quantity == LOOSE.quantity)
    assert within.tolerance == "at most 5 %"
    made = build(PageContent(sample.derivation(), sample.checks(LOOSE)))
    out = io.StringIO()
    checks.show(sample.derivation(), sample.checks(LOOSE), Terminal(200, out))
    for text in (html.write(made), markdown.write(made), tex.write(made).replace(r"\%", "%").replace("~", " "), out.getvalue()):
        assert "at most 5 %" in text


LOOSE = sample.Verdict("activations.bytes", 23_180, 23_000, "an instrument", "within", "at most 5 %")


def test_roles_of_memory_add_up(page: Page) -> None:
    """At every landmark to its total, and at every moment where memory can peak, to the byte."""

    def whole(text: str) -> int:
        return int(re.sub(r"[^\d]", "", text) or 0)

    timing = page.memory.live_bytes
    assert timing is not None
    assert timing.landmarks
    for row in timing.landmarks:
        assert sum(map(whole, row.values)) == whole(row.total)
    candidates = sample.derivation()["memory.peak"].candidates
    assert [row.value.exact for chapter in page.chapters for row in chapter.candidates] == [f"{c.value:,}" for c in candidates]
    assert candidates
    for candidate in candidates:
        assert sum(candidate.part_values.values()) == candidate.value


_SCALES = {f"{prefix}{unit}": 1000**power for power, prefix in enumerate(("", "k", "M", "G", "T", "P")) for unit in ("B", "FLOP")}
_SCALES |= {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGTP", 1)}
_SCALES |= {"million": 10**6, "billion": 10**9, "trillion": 10**12}


def test_every_amount_of_a_page_has_its_unit_and_readings_that_are_right(page: Page) -> None:
    """Bytes, FLOP or elements behind the exact number; each rounded reading is the number in its own unit, to half of its last digit."""
    amounts = list(found_in(page, PrintedAmount))
    assert len(amounts) > 40
    for amount in amounts:
        assert amount.unit in ("byte", "bytes", "FLOP", "element", "elements")
        exact = int(amount.exact.replace(",", "").replace("−", "-"))
        for reading in amount.readings:
            digits, unit = reading.split(NBSP)
            places = len(digits.partition(".")[2])
            off = abs(Fraction(digits.replace(",", "").replace("−", "-")) - Fraction(exact, _SCALES[unit]))
            assert off <= max(Fraction(1, 2 * 10**places), Fraction(5, 1000) * abs(Fraction(exact, _SCALES[unit])))
            assert unit.endswith("B") == amount.unit.startswith("byte")


def test_a_reading_in_the_wrong_unit_would_show() -> None:
    """2**30 bytes are 1.00 GiB; called GB, the number is 7 % off."""
    wrong = Fraction(1) - Fraction(2**30, _SCALES["GB"])
    assert abs(wrong) > max(Fraction(1, 200), Fraction(5, 1000))


# -- 19, 20, 22 ------------------------------------------------------------------------------------------------------------------------


def test_badges_differ_in_sign_and_words_where_they_differ_in_color(page: Page) -> None:
    """No two tones share a sign; every badge has words."""
    badges = {*found_in(page, Badge), *found_in(pages.hostile(), Badge)}
    tones: dict[str, set[str]] = {}
    for badge in badges:
        assert badge.words
        tones.setdefault(badge.sign, set()).add(badge.tone)

    assert len(tones) >= 3
    assert all(len(actual) == 1 for actual in tones.values())


@pytest.mark.slow
@needs_chromium
@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="there is no pdftotext here")
def test_no_step_is_split_in_print(page: Page, tmp_path: Path) -> None:
    """Its number and title, which begin it, and its rule, or that it is that of the step before, which ends it, are on one sheet of the
    PDF."""
    (tmp_path / "page.html").write_text(html.write(page), encoding="utf-8")
    with browser() as chromium:
        chromium.open(tmp_path / "page.html")
        (tmp_path / "page.pdf").write_bytes(chromium.pdf())
    done = subprocess.run(["pdftotext", str(tmp_path / "page.pdf"), "-"], capture_output=True, check=True)
    sheets = ["".join(sheet.split()) for sheet in done.stdout.decode().split("\f")]
    split = []
    for step in (step for chapter in page.chapters for step in chapter.steps):
        last = "same reason, rule and check" if step.same_reason else f"rule {step.rule.words}"
        begins, ends = ("".join(text.split()) for text in (f"4.{step.number}{step.title}", last))
        whole = [sheet for sheet in sheets if begins in sheet and ends in sheet.partition(begins)[2]]
        split += [] if whole else [step.number]

    assert len(sheets) > 3
    assert split == []


_BROKEN = """[...document.querySelectorAll('.n, td.n *, small')].filter(e => e.getClientRects().length && !e.querySelector('*'))
  .filter(e => { const r = document.createRange(); r.selectNodeContents(e);
    return new Set([...r.getClientRects()].map(b => Math.round(b.top))).size > 1; }).map(e => e.textContent)"""


@pytest.mark.slow
@needs_chromium
def test_no_number_breaks_on_a_phone(page: Page, tmp_path: Path) -> None:
    """At 320 pixels each stands on one line, with every fold open; one that may break would be noticed."""
    (tmp_path / "page.html").write_text(html.write(page), encoding="utf-8")
    with browser() as chromium:
        chromium.open(tmp_path / "page.html", 320)
        chromium.eval("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert chromium.eval("document.querySelectorAll('.n').length") > 100
        assert chromium.eval(_BROKEN) == []
        chromium.eval("document.querySelectorAll('.n').forEach(e => { e.style.whiteSpace = 'normal'; e.textContent = '1 2 '.repeat(99); })")
        assert chromium.eval(_BROKEN) != []


# -- 25 --------------------------------------------------------------------------------------------------------------------------------


def test_what_is_unknown_says_so_in_every_format(page: Page) -> None:
    """The row of the quantity holds the word and the reason, and no number."""
    (row,) = (answer for answer in page.answers if answer.quantity == "flops.forward.causal")
    assert (row.value, row.formula, row.unknown) == (None, None, sample.NO_MASK)
    (line,) = (line for line in markdown.write(page).split("\n") if line.startswith("| [flops.forward.causal]"))
    assert re.findall(r"\bunknown\b", line) == ["unknown", "unknown"]
    assert not re.search(r"\d", line.replace("flops.forward.causal", "").partition("](#")[2].partition(")")[2])
    table = html.write(page).partition('id="answers"')[2].partition("</section>")[0].replace("<wbr>", "")
    (cell,) = re.findall(r"<tr>(?:(?!<tr>).)*?flops\.forward\.causal.*?(?=<tr>|</tbody>)", table, re.DOTALL)
    assert "unknown" in cell
    assert not re.search(r">\s*[-−]?\d", cell)
    assert f"unknown: {sample.NO_MASK}" in tex.write(page)

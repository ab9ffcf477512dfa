"""``napkin site``: its links lead somewhere, its bytes are fixed, and its questions give Python's answers in a real Chromium."""

from __future__ import annotations

import json
import random
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calc.capacity.questions import answered
from calc.capacity.questions.registry import all_questions, question
from calc.errors import BadInputError
from calc.pipeline import precomputed
from calc.pipeline.precomputed import index
from reports import cli
from reports.jobs import site
from reports.page.questions import question_row
from reports.writers import html
from tests.reports import browser


@pytest.fixture
def valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored forms are taken whatever derived them."""

    def why_not(name: str, options: dict[str, str] | None = None) -> str:
        return "" if index._entry(name, options) else "there is none"

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    monkeypatch.setattr(index, "why_not", why_not)
    monkeypatch.setattr(site, "why_not", why_not)


@pytest.fixture
def pages(valid: None) -> dict[str, str]:
    return dict(site.texts(lambda _: None))


@pytest.fixture
def of_gpt2(valid: None, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The pages of a site of one model."""
    monkeypatch.setattr(site, "names", lambda: ("gpt2",))
    return dict(site.texts(lambda _: None))


def test_every_link_leads_to_a_page_and_a_quantity_of_it(pages: dict[str, str]) -> None:
    """Every stored model has a page; the numbers of the first page lead to quantities that the page's data has."""
    links = [link for page in pages.values() for link in re.findall(r'href="([^"#][^"]*)"', page)]
    of_quantities = [link.partition("#") for link in links if "#" in link]

    assert {link.partition("#")[0] for link in links} == pages.keys()
    assert len(pages) == len(precomputed.names()) + 2
    assert {target for _, _, target in of_quantities} == {"q-parameters", "q-memory.peak", "q-flops.step.total"}
    assert all('"memory.peak":' in pages[file] for file, _, _ in of_quantities)


def test_the_first_page_has_no_script_and_the_bytes_are_fixed(pages: dict[str, str]) -> None:
    """Pages made twice are equal; only pages that evaluate have a script."""
    assert pages == dict(site.texts(lambda _: None))
    assert "<script" not in pages[site.HOME]
    assert all(page.count("<script") == 2 for file, page in pages.items() if file != site.HOME)


def test_a_page_is_verified_and_an_edited_digit_is_not(of_gpt2: dict[str, str], tmp_path: Path) -> None:
    """The pages are made again once for all files."""
    for file in (site.HOME, "gpt2.html"):
        (tmp_path / file).write_text(of_gpt2[file], encoding="utf-8")
    (tmp_path / "wrong.html").write_text(of_gpt2["gpt2.html"].replace("50257", "50258", 1), encoding="utf-8")
    files = [str(tmp_path / file) for file in (site.HOME, "gpt2.html", "wrong.html")]

    right, wrong = (CliRunner().invoke(cli.napkin, ["verify", *some]) for some in (files[:2], files[2:]))

    assert (right.exit_code, right.stdout.count("every character is the same")) == (0, 2)
    assert (wrong.exit_code, "says '50258', right is '50257'" in wrong.stdout) == (1, True)


def test_a_page_by_another_name_is_refused(of_gpt2: dict[str, str], tmp_path: Path) -> None:
    """Its inputs name the page."""
    (tmp_path / "x.html").write_text(of_gpt2["gpt2.html"].replace("gpt2.html", "gpt3.html", 1), encoding="utf-8")

    shown = CliRunner().invoke(cli.napkin, ["verify", str(tmp_path / "x.html")])

    assert (shown.exit_code, "Napkin writes no site as /gpt3.html" in shown.stdout) == (1, True)


def test_stored_forms_that_are_not_valid_here_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason, and without a page."""
    monkeypatch.setattr(index, "why_not", lambda *_: "made by another torch")
    monkeypatch.setattr(site, "why_not", lambda *_: "made by another torch")

    with pytest.raises(BadInputError, match=r"^there is no page to write: made by another torch$"):
        site.texts(lambda _: None)


_BY_SCRIPT = """(cases) => cases.map(([name, given]) => {
  const question = DATA.questions.find((each) => each.name === name);
  const text = ({ n, d }) => (d === 1n ? `${n}` : `${n}/${d}`);
  const values = new Map(Object.entries(given).map(([symbol, number]) => [symbol, typed(number)]));
  if (question.inputs.some(([symbol, , unit]) => unit === "share" && order(values.get(symbol), ratio(1n)) > 0)) return "refused";
  try {
    const { result, real } = answerOf(question, values);
    return [text(result), text(real)];
  } catch (error) {
    if (error instanceof Refused || error instanceof DivisionByZero) return "refused";
    throw error;
  }
})"""


def _asked() -> tuple[list[tuple[str, dict[str, str]]], list[Any]]:
    """Questions at their examples and at random inputs, and what Python answers."""
    generator, cases, answers = random.Random(7), [], []
    for each in all_questions():
        data = question_row(each).data
        for i in range(6 if data else 0):
            assert data is not None
            numbers = {symbol: Fraction(text) for symbol, _, _, _, text, _ in data["inputs"]}
            for symbol, _, _, _, _, whole in data["inputs"] if i else ():
                moved = numbers[symbol] * Fraction(generator.randint(1, 40), generator.randint(1, 40))
                numbers[symbol] = Fraction(max(1, round(moved))) if whole else moved
            keys = {symbol: key for symbol, key, *_ in data["inputs"]}
            cases.append((each.name, {symbol: str(number) for symbol, number in numbers.items()}))
            try:
                answer = answered(each, {keys[symbol]: number for symbol, number in numbers.items()} | dict(data["fixed"]))
                answers.append([str(answer.value), str(answer.unrounded)])
            except BadInputError:
                answers.append("refused")
    return cases, answers


def test_a_flag_of_the_questions_page_names_the_units_of_its_numbers() -> None:
    """The script puts bare numbers in; Python's sentence has 4.6408 ms, with a unit that fits."""
    data = question_row(question("tokens-per-second")).data

    assert data is not None
    assert "bound by memory bandwidth: reading takes {m} s, multiplying {c} s" in [message for _, message, _ in data["conditions"]]


@pytest.mark.slow
@pytest.mark.skipif(browser.CHROMIUM is None, reason="no Chromium here")
def test_the_questions_page_gives_pythons_answers(tmp_path: Path) -> None:
    """Fifty questions, at their examples and at random inputs: the same fractions, and refused where Python refuses."""
    cases, answers = _asked()
    file = tmp_path / "questions.html"
    file.write_text(html.write_scripted(site._questions("2026-01-02")), encoding="utf-8")
    with browser.browser() as chromium:
        chromium.open(file)
        for case, ours, theirs in zip(cases, answers, chromium.eval(f"({_BY_SCRIPT})({json.dumps(cases)})"), strict=True):
            assert ours == theirs, case

    assert len({name for name, _ in cases}) >= 50
    assert "refused" in answers


@pytest.mark.skipif(browser.CHROMIUM is None, reason="no Chromium here")
def test_a_number_of_the_first_page_opens_its_derivation(pages: dict[str, str], tmp_path: Path) -> None:
    """The address of GPT-2's peak opens the candidates that it is the maximum of."""
    (tmp_path / "gpt2.html").write_text(pages["gpt2.html"], encoding="utf-8")
    with browser.browser() as chromium:
        chromium.open(tmp_path / "gpt2.html")
        chromium.eval("location.hash = '#q-memory.peak'")
        chromium.eval("new Promise(done => setTimeout(done, 100))")

        assert "The maximum of 20 peak candidates" in chromium.eval("document.getElementById('q-memory.peak').innerText")

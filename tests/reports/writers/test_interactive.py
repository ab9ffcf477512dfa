"""Pages with a script: what it evaluates in a real Chromium equals Python's integers, and it refuses where Python needs a new trace."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from calc.derive.quantities import applies
from calc.errors import DimensionError
from calc.hardware.accelerators import catalogue
from calc.pipeline.precomputed import Stored
from calc.pipeline.precomputed.index import FOLDER
from reports.page.what_if import WhatIf, document, page_of, script_text
from reports.writers import html
from tests.quick import few
from tests.reports import browser, hostile

needs_browser = pytest.mark.skipif(browser.CHROMIUM is None, reason="no Chromium here")
MODELS = ("gpt2", "cruncher", "mlp", "vit-b", "gpt2-infer", "transformers-gpt2", "transformers-t5", "transformers-deepseek_v3")


def form_of(file: str) -> Stored:
    """A stored form, whatever derived it: what is compared is two evaluations of it."""
    return Stored(json.loads((FOLDER / f"{file}.json").read_text(encoding="utf-8")))


def shown(*files: str, model: str = "gpt2") -> WhatIf:
    return WhatIf(model, tuple(map(form_of, files)), tuple(catalogue().values()), "h100-sxm", {}, {})


def text_of(what: WhatIf) -> str:
    return html.write_scripted(page_of(what, "a test", "2026-01-02"))


def sizes_near(form: Stored, generator: random.Random) -> dict[str, int]:
    """Sizes of some dimensions: small, large, 1, those of the model, multiples of what they must divide by, or invalid."""
    given: dict[str, int] = {}
    for dim in form.dims:
        if dim.tied or generator.random() < 0.3:
            continue
        part = given.get(str(dim.multiple_of), 1) if isinstance(dim.multiple_of, str) else dim.multiple_of or 1
        size = generator.choice((1, 2, 3, generator.randint(1, 9), generator.randint(1, 99), generator.randint(1, 10**5), dim.value))
        given[dim.name] = size * part + dim.plus if generator.random() < 0.9 else size
    return given


def by_python(form: Stored, given: Mapping[str, int]) -> Any:
    """Every quantity as text, with the winning peak candidate; else why there is none."""
    try:
        sizes = form.sizes(given)
    except DimensionError:
        return "invalid"
    if form.failed_guards(sizes):
        return "new trace"
    names = [name for name, q in form.quantities.items() if applies(name, q.unknown, form.options)]
    derived = {name: form.derived(name, sizes) for name in names}
    values = {name: None if q.value is None else f"{q.value:d}" for name, q in derived.items()}
    peaks = {name: [str(q.candidates[0].at), len(q.candidates)] for name, q in derived.items() if q.candidates}
    terms = {name: str(sum(term.value for term in q.terms)) for name, q in derived.items() if q.terms}
    return {"values": values, "peaks": peaks, "terms": terms}


_BY_SCRIPT = """
(cases) => cases.map(([number, given]) => {
  const { form } = DATA.recipes[number];
  try {
    const { failed, evaluation } = evaluate(form, new Map(Object.entries(given).map(([name, size]) => [name, BigInt(size)])));
    if (failed) return "new trace";
    const [values, peaks, terms] = [{}, {}, {}];
    for (const name of Object.keys(form.quantities)) {
      values[name] = evaluation.value(name)?.toString() ?? null;
      const quantity = evaluation.of(name).form.quantities[name];
      const all = "candidates" in quantity ? evaluation.candidates(name) : [];
      const sum = (total, term) => plus(total, term[2]);
      if (all.length) peaks[name] = [text(all[0].at), all.length];
      else if (quantity.terms?.length) terms[name] = evaluation.terms(name).reduce(sum, ratio(0n)).n.toString();
    }
    return { values, peaks, terms };
  } catch (error) {
    if (error instanceof SizeError) return "invalid";
    throw error;
  }
})
"""


def test_sizes_that_follow_others_are_written_as_in_a_report() -> None:
    """With the sign of a product, not that of Python."""
    dims = document(shown("gpt2"))["recipes"][0]["form"]["dims"]

    assert {"f": "4·d"} == {dim["name"]: dim["written"] for dim in dims if "written" in dim and "·" in dim["written"]}
    assert not any("*" in dim.get(key, "") for dim in dims for key in ("written", "bound"))


@pytest.fixture(scope="module")
def chromium() -> Iterator[browser.Browser]:
    with browser.browser() as process:
        yield process


@pytest.fixture
def several(chromium: browser.Browser, tmp_path: Path) -> browser.Browser:
    """A browser that shows a page of several models, one for each recipe."""
    return opened(chromium, tmp_path / "several.html", shown(*MODELS))


def opened(chromium: browser.Browser, file: Path, what: WhatIf) -> browser.Browser:
    file.write_text(text_of(what), encoding="utf-8")
    chromium.open(file)
    return chromium


def compare(several: browser.Browser, number: int) -> list[Any]:
    """What Python gives at random sizes, and the script gives too."""
    forms, generator = tuple(map(form_of, MODELS)), random.Random(20260102)
    cases = [(i % len(forms), sizes_near(forms[i % len(forms)], generator)) for i in range(number)]
    expected = [by_python(forms[i], given) for i, given in cases]
    for case, ours, theirs in zip(cases, expected, several.eval(f"({_BY_SCRIPT})({json.dumps(cases)})"), strict=True):
        assert ours == theirs, case
    return expected


@needs_browser
def test_the_script_gives_pythons_integers_at_random_sizes(several: browser.Browser) -> None:
    """Values, winning candidates, sums of terms, invalid sizes and sizes that need a new trace; each kind occurs."""
    expected = compare(several, 160)

    assert {str(each) for each in expected} >= {"invalid", "new trace"}
    assert sum(isinstance(each, dict) for each in expected) > 20


@pytest.mark.slow
@needs_browser
def test_the_script_gives_pythons_integers_at_a_thousand_random_sizes(several: browser.Browser) -> None:
    """The same at a thousand sizes."""
    assert sum(isinstance(each, dict) for each in compare(several, 1_000)) > 100


# -- the page ----------------------------------------------------------------------------------------------------------------


def test_the_policy_allows_the_one_script_by_its_hash() -> None:
    """One script runs, whose bytes have the hash in the policy; the data is no script, and nothing else is allowed."""
    page = text_of(shown("gpt2"))
    (data, _), (script, source) = re.findall(r"<script([^>]*)>(.*?)</script>", page, re.DOTALL)
    style, policy = re.search(r"<style>(.*?)</style>", page, re.DOTALL), re.search(r'Policy" content="([^"]*)"', page)
    assert style is not None
    assert policy is not None
    allowed = f"default-src 'none'; style-src '{digest(style[1])}'; font-src data:; base-uri 'none'; form-action 'none'"

    assert unescape(policy[1]) == f"{allowed}; script-src '{digest(source)}'"
    assert (data, script) == (' type="application/json" id="data"', "")
    assert not re.search(r"\beval\(|\bFunction\(|innerHTML|insertAdjacent|document\.write|setTimeout\([^(]", source)


def digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def test_the_page_is_small_and_asks_for_nothing() -> None:
    """Five recipes of GPT-2 take less than 250 kB, and no address is in the page."""
    page = text_of(shown(*("gpt2",) * 5))

    assert len(page.encode()) < 250_000
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)


def hostile_form(*texts: str) -> Stored:
    """A form whose every text is one of ``texts``, in turn."""
    form, text = form_of("mlp"), itertools.cycle(texts)
    form.dims = tuple(replace(dim, meaning=next(text)) for dim in form.dims)
    for quantity in form.quantities.values():
        quantity.terms = [(next(text), polynomial, next(text)) for _, polynomial, _ in quantity.terms]
        quantity.candidates = tuple(replace(one, at=next(text)) for one in quantity.candidates)
    return form


@pytest.mark.parametrize("name", few(hostile.ALL, 100))
def test_hostile_texts_stay_data(name: str) -> None:
    """They come back from the data as they are shown elsewhere, and make no element of the page."""
    what = replace(shown("mlp", model=name), forms=(hostile_form(name),), refused=((name, name),))
    page, plain = text_of(what), text_of(shown("mlp"))
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None

    assert json.loads(data[1]) == json.loads(script_text(document(what)))
    assert not set("<>&") & set(data[1])
    scripts = re.compile(r"<script.*?</script>", re.DOTALL)
    tags = [re.findall(r"<[/!]?[a-z]+", scripts.sub("", text)) for text in (page, plain)]
    assert tags[0] == tags[1]


# -- in a browser ------------------------------------------------------------------------------------------------------------

TYPE = """([name, text]) => {
  const input = document.getElementById(name);
  input.value = text;
  input.dispatchEvent(new Event("input", { bubbles: true }));
}"""
CHOOSE = """([name, index]) => {
  const choice = document.getElementById(name);
  choice.selectedIndex = index;
  for (const kind of ["input", "change"]) choice.dispatchEvent(new Event(kind, { bubbles: true }));
}"""


@pytest.fixture
def gpt2(chromium: browser.Browser, tmp_path: Path) -> browser.Browser:
    """A browser that shows GPT-2, in training and in inference."""
    return opened(chromium, tmp_path / "gpt2.html", shown("gpt2", "gpt2-infer"))


def write(chromium: browser.Browser, field: str, text: str) -> None:
    """Types into a field."""
    chromium.eval(f"({TYPE})({json.dumps([field, text])})")


def choose(chromium: browser.Browser, field: str, index: int) -> None:
    """Selects an entry of a list."""
    chromium.eval(f"({CHOOSE})({json.dumps([field, index])})")


def errors(chromium: browser.Browser) -> list[Any]:
    """What the browser has to say against a page."""
    return [e for e in chromium.events if e.get("method") in ("Runtime.exceptionThrown", "Page.javascriptDialogOpening", "Log.entryAdded")]


def words(chromium: browser.Browser, query: str) -> str:
    """The text that is to be seen; empty where nothing is."""
    script = f"[...document.querySelectorAll({json.dumps(query)})].map(e => e.innerText).join(' | ')"
    return str(chromium.eval(script)).replace("\u00a0", " ")


@needs_browser
def test_numbers_follow_what_is_typed(gpt2: browser.Browser) -> None:
    """A batch of 16 instead of 8: the same integers as Python's, in tiles, verdict and derivation; the device decides what fits."""
    form = form_of("gpt2")
    peaks = [form.quantity("memory.peak").at(B=batch) for batch in (8, 16)]
    assert f"{peaks[0]:,} bytes" in words(gpt2, "#tiles")
    write(gpt2, "size-B", "16")
    assert f"{peaks[1]:,} bytes" in words(gpt2, "#tiles")
    assert str(form.derived("memory.peak", form.sizes({"B": 16})).candidates[0].at) == words(gpt2, "#winner")
    assert "NVIDIA H100 SXM5 80GB: fits" in words(gpt2, "#status")

    choose(gpt2, "device", [device.id for device in shown("gpt2").devices].index("t4"))
    assert "NVIDIA T4 16GB: does not fit" in words(gpt2, "#status")
    assert "21.2 GB ×" in words(gpt2, "#fit")


@needs_browser
def test_sizes_that_need_a_new_trace_show_no_number_but_the_command(gpt2: browser.Browser) -> None:
    """One layer was not traced: every result is hidden, and the command is there, with its sizes; going back brings the numbers back."""
    write(gpt2, "size-T", "1")
    write(gpt2, "size-B", "3")

    assert not form_of("gpt2").covers({"T": 1, "B": 3})
    assert not re.search(r"\d", words(gpt2, "#results"))
    assert gpt2.eval("document.getElementById('results').hidden")
    assert "need a new trace" in words(gpt2, "#status")
    assert words(gpt2, "#status code") == "napkin derive gpt2 B=3 T=1"
    write(gpt2, "size-T", "1024")
    assert "GB" in words(gpt2, "#tiles")


@needs_browser
@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("size-d", "770", "d = 770 is not a multiple of h = 12"),
        ("size-T", "1025", "T = 1025 is more than C = 1,024"),
        ("size-B", "0", "B = 0 is not positive"),
        ("size-B", "1.5", "B must be a whole number from 1 to 2⁶³ − 1"),
    ],
)
def test_invalid_sizes_are_marked_where_they_are_typed(field: str, text: str, message: str, gpt2: browser.Browser) -> None:
    """The field says what is wrong, to eyes and to a screen reader, and no number is shown."""
    write(gpt2, field, text)

    assert words(gpt2, f"#{field}-note") == message
    assert gpt2.eval(f"document.getElementById('{field}').getAttribute('aria-invalid')") == "true"
    assert gpt2.eval(f"document.getElementById('{field}').getAttribute('aria-describedby')") == f"{field}-note"
    assert not re.search(r"\d", words(gpt2, "#results"))
    assert words(gpt2, "#status").startswith(message)


@needs_browser
@pytest.mark.parametrize("text", ["0", "140", "-3", ""])
def test_an_invalid_utilization_gives_no_time_and_everything_else(text: str, gpt2: browser.Browser) -> None:
    write(gpt2, "mfu", text)

    assert words(gpt2, "#mfu-note") == "a percentage above 0, at most 100"
    assert "Time of the step unknown" in re.sub(r"\s+", " ", words(gpt2, "#tiles"))
    assert f"{form_of('gpt2').quantity('memory.peak').at(B=8):,} bytes" in words(gpt2, "#tiles")


@needs_browser
def test_another_recipe_has_other_closed_forms(gpt2: browser.Browser) -> None:
    """The typed sizes stay; a step without a backward has fewer quantities, and no time at an MFU."""
    write(gpt2, "size-B", "4")
    choose(gpt2, "recipe", 1)

    assert f"{form_of('gpt2-infer').quantity('memory.peak').at(B=4):,} bytes" in words(gpt2, "#tiles")
    assert "gradients.bytes" not in words(gpt2, "#quantities")
    assert "it needs a training step, a rate of the device and an MFU" in words(gpt2, "#tiles")


@needs_browser
def test_every_number_opens_its_derivation(gpt2: browser.Browser) -> None:
    """The addends of a quantity, by module, with a sum that is the quantity."""
    gpt2.eval("location.hash = '#q-parameters'")
    gpt2.eval("new Promise(done => setTimeout(done, 100))")

    opened_ = words(gpt2, "#q-parameters table")
    assert "Part\tValue\tClosed form\tWhat" == opened_.splitlines()[1]
    assert "transformer.wte.weight\t38,597,376\td·V\telements" in opened_
    assert "sum\t124,439,808" in opened_


@needs_browser
@pytest.mark.parametrize(
    ("recipe", "quantity", "because"),
    [
        (0, "parameters", ", because every operator and tensor of the step is in exactly one part, so the parts add."),
        (0, "flops.step.total", ", because every operation is counted in exactly one of them, so they add."),
        (1, "flops.step.total", ", because of its parts, only this one runs in this step."),
        (0, "flops.optimizer.matmul", " = 0"),
    ],
)
def test_a_sum_has_the_reason_of_the_report(recipe: int, quantity: str, because: str, gpt2: browser.Browser) -> None:
    """Why the addends add, not what they are; a quantity without any has none."""
    choose(gpt2, "recipe", recipe)
    place = f"#q-{quantity}".replace(".", "\\.")
    gpt2.eval(f"location.hash = '#q-{quantity}'")
    gpt2.eval("new Promise(done => setTimeout(done, 100))")

    assert words(gpt2, f"{place} p:not(.note)").endswith(because)


@needs_browser
@pytest.mark.parametrize("width", few([320, 390, 1280], 1))
def test_nothing_overflows_and_nothing_is_asked_for(width: int, gpt2: browser.Browser, tmp_path: Path) -> None:
    """Also with every derivation open; no request, no error."""
    gpt2.open(tmp_path / "gpt2.html", width, touch=width < 500)
    gpt2.eval("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    gpt2.eval("new Promise(done => setTimeout(done, 300))")
    wide = "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1)"
    asked = [e["params"]["request"]["url"] for e in gpt2.events if e.get("method") == "Network.requestWillBeSent"]

    assert gpt2.eval(f"{wide}.map(e => e.outerHTML.slice(0, 90)).slice(0, 5)") == []
    assert gpt2.eval("document.documentElement.scrollWidth <= innerWidth")
    assert [url for url in asked if not url.startswith(("data:font/", "file:"))] == []
    assert errors(gpt2) == []
    assert gpt2.eval("[...document.querySelectorAll('input, select')].every(e => e.labels.length === 1)")


@needs_browser
def test_a_browser_makes_no_element_of_hostile_texts(chromium: browser.Browser, tmp_path: Path) -> None:
    """Every derivation open, every text hostile: they are shown as text, nothing runs, nothing is asked for."""
    what = replace(shown("mlp", model=hostile.MARKUP[0]), forms=(hostile_form(*hostile.ALL),))
    opened(chromium, tmp_path / "hostile.html", what)
    chromium.eval("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    chromium.eval("new Promise(done => setTimeout(done, 300))")
    made = set(chromium.eval("[...document.querySelectorAll('main *')].map(e => e.localName)"))
    attributes = chromium.eval("[...document.querySelectorAll('*')].flatMap(e => [...e.attributes]).map(a => a.name)")

    assert made & {"img", "script", "iframe", "body", "base", "meta", "object", "link", "style", "math"} == set()
    assert "<img src=x onerror=alert(1)>" in words(chromium, "#quantities")
    assert errors(chromium) == []
    assert [name for name in attributes if name.startswith("on")] == []

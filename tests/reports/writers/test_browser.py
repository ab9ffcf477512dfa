"""Reports in a real browser, opened from the file: nothing is requested, nothing runs, nothing overflows, and everything can be read."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reports.writers import html
from tests.reports import pages
from tests.reports.browser import CHROMIUM, Browser, browser

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")]
KINDS = ("plain", "hostile")
GALLERY = Path(__file__).resolve().parents[3] / "reports" / "gallery"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as actual:
        yield actual


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report, and one in which every name is hostile."""
    folder = tmp_path_factory.mktemp("pages")
    for kind, page in (("plain", pages.page()), ("hostile", pages.hostile())):
        (folder / f"{kind}.html").write_text(html.write(page), encoding="utf-8")
    return {kind: folder / f"{kind}.html" for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_no_request_leaves_and_nothing_runs(kind: str, chromium: Browser, files: dict[str, Path]) -> None:
    """The file itself and the font inside it are all that is read; no script, no error, no dialog."""
    chromium.open(files[kind])
    asked = [e["params"]["request"]["url"] for e in chromium.events if e.get("method") == "Network.requestWillBeSent"]
    wrong = ("Runtime.exceptionThrown", "Page.javascriptDialogOpening", "Log.entryAdded")
    errors = [event for event in chromium.events if event.get("method") in wrong]

    assert [url for url in asked if not url.startswith("data:font/")] == [files[kind].as_uri()]
    assert errors == []
    assert chromium.eval("document.scripts.length") == 0
    attributes = "[...document.querySelectorAll('*')].flatMap(e => [...e.attributes])"
    assert chromium.eval(f"{attributes}.filter(a => a.name.startsWith('on')).length") == 0


WIDE = """(() => { const page = document.documentElement.clientWidth;
  const inside = e => e.closest('.scroll, [role=region]');
  return {page: document.documentElement.scrollWidth - page,
    out: [...document.querySelectorAll('main *')].filter(e => !inside(e) && e.getBoundingClientRect().right > page + 1)
      .slice(0, 5).map(e => e.outerHTML.slice(0, 120))}; })()"""


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_overflows(kind: str, width: int, chromium: Browser, files: dict[str, Path]) -> None:
    """Outside labelled boxes that scroll, also with every fold open."""
    chromium.open(files[kind], width)
    chromium.eval("document.querySelectorAll('details').forEach(d => d.open = true)")

    assert chromium.eval(WIDE) == {"page": 0, "out": []}


@pytest.mark.parametrize("name", sorted(file.name for file in GALLERY.glob("*.html")))
def test_nothing_of_the_gallery_overflows(name: str, chromium: Browser) -> None:
    """Pages of real models have longer sizes, sites and formulas than a sample."""
    for width in (320, 390, 768, 1280):
        chromium.open(GALLERY / name, width)
        chromium.eval("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert (width, chromium.eval(WIDE)) == (width, {"page": 0, "out": []})


@pytest.mark.parametrize("kind", KINDS)
def test_boxes_that_scroll_have_a_name_and_take_the_focus(kind: str, chromium: Browser, files: dict[str, Path]) -> None:
    chromium.open(files[kind], 390)
    bare = "[...document.querySelectorAll('.scroll')].filter(e => e.tabIndex !== 0 || !e.hasAttribute('aria-label')).length"

    assert chromium.eval(bare) == 0


CONTRAST = """(() => {
  const parse = c => { const m = c.match(/[\\d.]+/g).map(Number); return {rgb: m.slice(0, 3), a: m.length > 3 ? m[3] : 1}; };
  const light = c => { const [r, g, b] = c.map(x => (x /= 255) <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const over = (top, below) => top.rgb.map((x, i) => x * top.a + below[i] * (1 - top.a));
  const back = e => { const chain = []; for (let n = e; n; n = n.parentElement) chain.unshift(parse(getComputedStyle(n).backgroundColor));
    return chain.reduce((below, top) => over(top, below), [255, 255, 255]); };
  const poor = new Map();
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    if (!e.getClientRects().length || getComputedStyle(e).visibility === 'hidden' || e.closest('.skip')) continue;
    const below = back(e), style = getComputedStyle(e);
    const ink = e.closest('svg') ? style.fill : style.color;
    if (!/^rgb/.test(ink)) continue;
    const [x, y] = [light(over(parse(ink), below)), light(below)], ratio = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
    if (ratio < 4.5) poor.set(e.tagName + '.' + e.className, Math.round(ratio * 100) / 100);
  }
  return [...poor.entries()]; })()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_stands_out_from_its_ground(dark: bool, chromium: Browser, files: dict[str, Path]) -> None:
    """A contrast of 4.5 to 1, with every fold open."""
    chromium.open(files["plain"], dark=dark)
    chromium.eval("document.querySelectorAll('details').forEach(d => d.open = true)")

    assert chromium.eval(CONTRAST) == []


def test_pale_text_and_wide_boxes_are_noticed(chromium: Browser, files: dict[str, Path]) -> None:
    """The two measures above would fail if there were any."""
    chromium.open(files["plain"], 390)
    chromium.eval("(() => { const p = document.querySelector('main p'); p.style.color = '#bbb'; p.style.width = '600px'; })()")

    assert [tag for tag, _ in chromium.eval(CONTRAST)] != []
    assert chromium.eval(WIDE)["out"] != []


def test_the_dark_page_is_dark(chromium: Browser, files: dict[str, Path]) -> None:
    ground = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
    grounds = []
    for dark in (False, True):
        chromium.open(files["plain"], dark=dark)
        grounds.append(chromium.eval(ground))

    assert grounds[0] > 600 > 200 > grounds[1]


LABELS = """[...document.querySelectorAll('svg text')].map(t => { const r = t.getBoundingClientRect();
  return [t.textContent, parseFloat(getComputedStyle(t).fontSize) * r.height / Math.max(t.getBBox().height, 1e-9),
    r.left, r.top, r.right, r.bottom]; })"""


def overlapping(labels: list[Any]) -> list[tuple[str, str]]:
    """Pairs of labels that touch by more than a pixel."""
    return [
        (a[0], b[0])
        for i, a in enumerate(labels)
        for b in labels[:i]
        if a[2] < b[4] - 1 and b[2] < a[4] - 1 and a[3] < b[5] - 1 and b[3] < a[5] - 1
    ]


def test_figures_can_be_read_on_a_phone(chromium: Browser, files: dict[str, Path]) -> None:
    """Text of at least 9 pixels at 390, no two labels on one another."""
    chromium.open(files["plain"], 390)
    labels = chromium.eval(LABELS)

    assert [label for label in labels if label[1] < 9] == []
    assert overlapping(labels) == []


def test_the_first_tab_leads_past_the_head(chromium: Browser, files: dict[str, Path]) -> None:
    """And its focus can be seen."""
    chromium.open(files["plain"])
    for kind in ("keyDown", "keyUp"):
        chromium.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
    focus = "(() => { const e = document.activeElement, r = e.getBoundingClientRect();"
    focus += " return [e.getAttribute('href'), r.top >= 0 && r.width > 0]; })()"

    assert chromium.eval(focus) == ["#content", True]


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="there is no pdftotext here")
def test_printed_every_step_is_there_and_its_text_can_be_taken_out(chromium: Browser, files: dict[str, Path], tmp_path: Path) -> None:
    """Folds are open in print."""
    chromium.open(files["plain"])
    (tmp_path / "page.pdf").write_bytes(chromium.pdf())
    text = subprocess.run(["pdftotext", "-layout", str(tmp_path / "page.pdf"), "-"], capture_output=True, check=True).stdout.decode()
    reasons = {step.because for chapter in pages.page().chapters for step in chapter.steps}

    missing = [reason for reason in reasons if "".join(reason.split())[:40] not in "".join(text.split())]
    assert missing == []

"""Two hundred and fifty hostile texts as names, document text and file names: inert wherever they come out, or refused in one line."""

from __future__ import annotations

import functools
import io
import json
import re
import shutil
import subprocess
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import jinja2.bccache
import pytest
from click.testing import CliRunner, Result
from markdown_it import MarkdownIt
from rich.console import Console

from calc.errors import BadInputError, SpecError
from calc.spec import Spec
from calc.textbook import RULES
from reports import cli, html, job, latex, markdown, render, terminal, tex
from reports.inputs import Inputs, embedded
from reports.page import Page
from reports.prose import TAGS
from tests.reports import hostile, pages, planting
from tests.reports.browser import CHROMIUM, browser

# Names of the same lengths, on which the layout depends, each another one: a letter of its own in front.
BENIGN = {text: f"{chr(0x100 + i)}{'n' * (len(text) - 1)}" for i, text in enumerate(hostile.ALL)}
CITED = {rule.link for rule in RULES}
ACTING = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
STARTS = tuple(part * len(hostile.ALL) // 3 for part in range(3))


def turned(start: int) -> tuple[str, ...]:
    """All of the texts, from another one on: each comes to stand in other places."""
    return (*hostile.ALL[start:], *hostile.ALL[:start])


class Compiled(jinja2.BytecodeCache):
    """Templates of one format, compiled once: these tests write a thousand pages."""

    def __init__(self) -> None:
        self.codes: dict[str, bytes] = {}

    def load_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        if bucket.key in self.codes:
            bucket.bytecode_from_string(self.codes[bucket.key])

    def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        self.codes[bucket.key] = bucket.bytecode_to_string()


@pytest.fixture(scope="module", autouse=True)
def compiled() -> Iterator[None]:
    """The writers as they are, but for the time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (html, markdown, tex):
            kept = Compiled()

            def environment(*words: Any, kept: Compiled = kept) -> jinja2.Environment:
                made = render.environment(*words)
                made.bytecode_cache = kept
                return made

            patch.setattr(module, "environment", environment)
        yield


@pytest.fixture(scope="module", params=STARTS, ids=lambda start: f"from {start}")
def start(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.fixture(scope="module")
def page(start: int) -> Page:
    """A page on which every name is one of them."""
    return planting.page(turned(start))


@pytest.fixture(scope="module")
def plain(start: int) -> Page:
    """The same page with names that could hurt nobody."""
    return planting.page([BENIGN[text] for text in turned(start)])


def controls(text: str) -> list[str]:
    """Characters that act on a terminal or on the direction of a text, line ends apart."""
    return [c for c in text if c != "\n" and unicodedata.category(c) in ACTING]


def test_there_are_two_hundred_of_them_and_more() -> None:
    """In fifteen families, no two the same."""
    assert len(set(hostile.ALL)) == len(hostile.ALL) >= 200
    assert len(hostile.FAMILIES) == 15


# -- HTML ------------------------------------------------------------------------------------------------------------------------------


_LETTERS = {"wbr", "small", "span", "i", "sub", "sup"}  # what breaks a long name, and what formulas are set in


class Elements(HTMLParser):
    """Elements and attributes of a page, counted; those that formulas and users' emphasis make are left out of the count."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: set[tuple[str, str]] = set()
        self.addresses: set[str] = set()
        self.other: list[str] = []
        self.maths = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.maths += tag == "math"
        if not self.maths and tag not in TAGS | _LETTERS:
            self.tags[tag] += 1
        self.attributes |= {(tag, name) for name, _ in attrs}
        self.addresses |= {value or "" for name, value in attrs if name in ("href", "src", "action")}

    def handle_endtag(self, tag: str) -> None:
        self.maths -= tag == "math"

    def handle_comment(self, data: str) -> None:
        self.other.append(data)

    def unknown_decl(self, data: str) -> None:
        self.other.append(data)

    def handle_pi(self, data: str) -> None:
        self.other.append(data)


def html_is_inert(text: str, plain: str) -> None:
    """The elements are those of the plain page, one by one; no attribute is new, no address but citations and places of the page."""
    found, usual = Elements(text), Elements(plain)

    assert found.tags == usual.tags
    assert found.attributes <= usual.attributes
    assert {address for address in found.addresses if not address.startswith("#")} <= CITED
    assert found.other == usual.other
    assert controls(text) == []


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
    found = []
    with browser() as chromium:
        for name, made in (("plain", plain), ("page", page)):
            file = tmp_path / f"{name}.html"
            file.write_text(html.write(made), encoding="utf-8")
            chromium.open(file)
            counted = chromium.eval(count)
            found.append({tag: n for tag, n in counted.items() if tag not in TAGS | _LETTERS})
            assert chromium.eval(handlers) == 0
            asked = [e["params"]["request"]["url"] for e in chromium.events if e.get("method") == "Network.requestWillBeSent"]
            assert [url for url in asked if not url.startswith("data:font/")] == [file.as_uri()]
            assert not [e for e in chromium.events if e.get("method") == "Page.javascriptDialogOpening"]

    assert found[0] == found[1]


# -- Markdown --------------------------------------------------------------------------------------------------------------------------

_EMPHASIS = {"em_open", "em_close", "strong_open", "strong_close", "code_inline", "html_inline", "text", "softbreak"}
_EMPHASIS |= {"inline", "paragraph_open", "paragraph_close"}  # a name of spaces leaves none


def read(text: str) -> tuple[Counter[str], list[str], list[str]]:
    """Kinds of tokens, raw HTML, and addresses, as a Markdown reader sees them. Text and emphasis are left out of the count."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    every = [*tokens, *(child for token in tokens for child in token.children or ())]
    kinds = Counter(token.type for token in every if token.type not in _EMPHASIS)
    raw = [token.content for token in every if token.type in ("html_block", "html_inline")]
    return kinds, raw, [str(token.attrs.get("href", token.attrs.get("src"))) for token in every if {"href", "src"} & token.attrs.keys()]


def markdown_is_inert(text: str, plain: str) -> None:
    """The tables, headings, lists, fences and links of the plain page; HTML is anchors, folds and code; nothing links by itself."""
    kinds, raw, addresses = read(text)
    inputs = re.compile(r"<!-- napkin-inputs .*? -->")

    assert kinds == read(plain)[0]
    for element in re.findall(r"<[^>]*>", inputs.sub("", " ".join(raw))):
        assert re.fullmatch(r'</?(?:code|details|summary)>|<a id="[A-Za-z0-9._-]+">|</a>', element)
    assert {address for address in addresses if not address.startswith("#")} <= CITED
    bare = re.sub(r'```.*?```|<a id="[^"]*">|\]\([^)\s]*\)|`[^`\n]*`', "", inputs.sub("", text), flags=re.DOTALL)
    assert not re.search(r"https?://|\bwww\.|@\w", bare)
    assert controls(text.replace("\u200b", "")) == []  # which breaks up a fence in a command
    for formula in [*re.findall(r"```math\n(.*?)\n```", text, re.DOTALL), *re.findall(r"\$`(.*?)`\$", text)]:
        assert latex.commands_in(formula) <= latex.COMMANDS | {r"\begin", r"\end", "\\\\"}


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

_SIGN = re.compile(r"\\[A-Za-z]+|\\.", re.DOTALL)
_PRINTING = latex.COMMANDS | {r"\ensuremath", r"\allowbreak", r"\mathrm"}
_PRINTING |= {command for sign in (*tex._SPECIAL.values(), *tex._MATHS.values()) for command in _SIGN.findall(sign)}


def commands(text: str) -> Counter[str]:
    """Commands outside comments, those that print one sign left out."""
    body = re.sub(r"(?m)^%.*$", "", text)
    return Counter(sign for sign in _SIGN.findall(body) if sign.startswith("\\") and len(sign) > 1 and sign[1].isalpha())


def latex_is_inert(text: str, plain: str) -> None:
    """Commands that do something stand as often as on the plain page; braces are closed, and no comment hides a line's rest."""
    found, usual = commands(text), commands(plain)
    body = re.sub(r"(?m)^%.*$|\\.", "", text)

    assert {c: n for c, n in found.items() if c not in _PRINTING} == {c: n for c, n in usual.items() if c not in _PRINTING}
    assert body.count("{") == body.count("}")
    assert "%" not in body
    assert "^^" not in body
    assert controls(text) == []


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


def test_nothing_acts_on_a_terminal(page: Page) -> None:
    """Every screen that shows a model: printed, and no character of it but line ends acts."""
    out = Console(file=io.StringIO(), width=140, highlight=False, color_system=None)
    for show in (terminal.show_derivation, terminal.show_checks, terminal.show_saved, terminal.show_peak):
        show(page, out)
    for chapter in page.chapters:
        terminal.show_quantity(page, chapter.quantity, out)
    for thumb in page.thumbs:
        terminal.show_thumb(page, thumb.name, out)
    terminal.show_coverage(page.model, page.coverage, out)
    shown = out.file.getvalue()  # type: ignore[attr-defined]  # it is the StringIO above

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
        found = embedded(write(page), suffix)
        assert found is not None
        assert found.text() == page.inputs


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
        assert controls(str(refused.value)) == []
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


# -- the command line ------------------------------------------------------------------------------------------------------------------


def run(words: Sequence[str]) -> Result:
    return CliRunner().invoke(cli.napkin, list(words))


def some_quick(places: Iterable[str], *quick: str) -> list[Any]:
    """All places, those that are not ``quick`` among the slow tests."""
    return [place if place in quick else pytest.param(place, marks=pytest.mark.slow) for place in places]


def orderly(found: Result, words: Sequence[str]) -> None:
    """No traceback, nothing that acts; where it is refused, one bounded line and no data."""
    assert found.exception is None or isinstance(found.exception, SystemExit), (words, found.exc_info)
    assert found.exit_code in (0, 1, 2), words
    assert controls(found.stdout + found.stderr) == [], words
    if found.exit_code == 2:
        said = [line for line in found.stderr.rstrip("\n").split("\n") if not re.fullmatch(r"(?:loading|precision) .* …", line)]
        assert len(said) == 1, (words, found.stderr)
        assert len(said[0]) < 2_000, words
        assert found.stdout == "", words


ARGUMENTS: dict[str, Callable[[str], Sequence[str]]] = {
    "a command": lambda s: ["--", s],
    "a model": lambda s: ["derive", "--", s],
    "options of a model": lambda s: ["derive", f"mlp:{s}"],
    "a config": lambda s: ["derive", f"hf:{s}"],
    "a folder of a config": lambda s: ["derive", f"hf:nowhere/{s}"],
    "a configuration of the library": lambda s: ["derive", f"transformers:{s}"],
    "a file of one's own": lambda s: ["derive", f"{s}.py:spec"],
    "a name in a file": lambda s: ["derive", f"nowhere.py:{s}"],
    "a size": lambda s: ["derive", "mlp", "-d", f"{s}=3"],
    "the value of a size": lambda s: ["derive", "mlp", "-d", f"B={s}x"],
    "an optimizer": lambda s: ["derive", "mlp", "--optimizer", s],
    "what is explained": lambda s: ["derive", "mlp", "--explain", s],
    "a device": lambda s: ["check", "mlp", "--device", s],
    "a template": lambda s: ["report", "mlp", "--template", f"{s}!"],
    "a folder of templates": lambda s: ["report", "mlp", "--templates", f"nowhere/{s}"],
    "what is verified": lambda s: ["verify", "--", f"{s}.md"],
    "a form of messages": lambda s: ["verify", "x.md", "--format", s],
    "a list": lambda s: ["list", "--", f"{s}!"],
    "words of a list": lambda s: ["list", "models", "--", s],
    "a file of accelerators": lambda s: ["list", "hardware", "--hardware", s],
    "an accelerator": lambda s: ["roofline", "mlp", "--gpu", s],
    "an accelerator of one's own": lambda s: ["roofline", "mlp", "--gpu", "x", "--hardware", s],
    "a question": lambda s: ["ask", "--", f"{s}!"],
    "a letter of a question": lambda s: ["ask", "training-time", f"{s}=3"],
    "the value of a letter": lambda s: ["ask", "training-time", f"gpu={s}"],
    "named dimensions": lambda s: ["einsum", "--", f"{s}!"],
    "a number": lambda s: ["dtype", "bf16", "--", s],
    "what is compared": lambda s: ["compare", "--", s, "nothing"],
    "points of a sweep": lambda s: ["sweep", "mlp", "--from", s],
    "a layout": lambda s: ["shard", "llama3-8b", f"{s}=3"],
    "a calibration": lambda s: ["predict", "mlp", "--calibration", s],
}


@pytest.mark.parametrize("place", ARGUMENTS)
def test_the_command_line_takes_them_for_what_they_are(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal of one line wherever they stand for something that is not there."""
    monkeypatch.chdir(tmp_path)
    for text in hostile.ALL:
        words = ARGUMENTS[place](text)
        orderly(run(words), words)

    assert list(tmp_path.iterdir()) == []


# -- file names ------------------------------------------------------------------------------------------------------------------------


def files_of(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if not file.is_dir())


def test_a_report_goes_into_the_folder_of_that_name_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``-o NAME``, for all that stay inside of a folder."""
    texts = {"report.md": "a", "report.html": "b", "report.json": "c"}

    def report(request: object, directory: Path, *rest: object) -> SimpleNamespace:
        return SimpleNamespace(files=job.write_all(directory, texts), checks=None, unchecked="", page=SimpleNamespace(tally=None))

    monkeypatch.setattr(job, "report", report)
    monkeypatch.setattr(terminal, "show_derivation", lambda *_: None)
    monkeypatch.setattr(terminal, "tally", lambda _: "")
    outcomes: Counter[int] = Counter()
    for number, text in enumerate(hostile.ALL):
        room = tmp_path / str(number) / "a" / "b"
        room.mkdir(parents=True)
        monkeypatch.chdir(room)
        name = text.lstrip("/") or "x"  # inside of the room, or two above it
        found = run(["report", "mlp", "-o", name if "../../.." not in name else "x"])
        outcomes[found.exit_code] += 1
        orderly(found, [name])
        written = sorted(file.name for file in files_of(tmp_path / str(number)))
        assert written == (sorted(texts) if found.exit_code == 0 else []), ascii(name)

    assert outcomes[0] > 200
    assert outcomes[2] > 10


def test_a_table_goes_into_the_file_of_that_name_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--csv NAME`` of a sweep; the values come without a model."""
    from reports import swept

    for number, text in enumerate(hostile.ALL):
        room = tmp_path / str(number)
        room.mkdir()
        monkeypatch.chdir(room)
        refused = ""
        try:
            swept.write(text.replace("/", "∕"), ["a\n", "1\n"])
        except BadInputError as error:
            refused = str(error)
        assert [file.read_text() for file in room.iterdir()] == ([] if refused else ["a\n1\n"])


def test_a_place_that_is_taken_by_a_folder_leaves_all_files_as_they_were(tmp_path: Path) -> None:
    """Also those that could have been replaced before it."""
    (tmp_path / "a.md").write_text("old")
    (tmp_path / "b.md").mkdir()
    with pytest.raises(BadInputError, match=r"b\.md: it is a folder"):
        job.write_all(tmp_path, {"a.md": "new", "b.md": "new"})

    assert (tmp_path / "a.md").read_text() == "old"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.md", "b.md"]


def test_files_of_those_names_are_read_as_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--hardware``, ``hf:``, ``--templates``, ``--source`` and ``verify`` of files that are there under such a name."""
    inputs = Inputs("report", "mine.py:x", digest="0" * 64)
    (tmp_path / "r.md").write_text(f"# r\n\n<!-- napkin-inputs {inputs.text()} -->\n")
    made = 0
    for number, text in enumerate(hostile.ALL):
        room = tmp_path / str(number)
        room.mkdir()
        monkeypatch.chdir(room)
        name = text.replace("/", "∕")
        try:
            Path(f"x{name}").mkdir()
            Path(f"{name}.md").write_text("3<!--= 4 -->\n")
        except (OSError, ValueError):
            continue
        made += 1
        for words in (
            ["verify", "--", f"{name}.md"],
            ["verify", "--format", "github", "--", f"{name}.md"],
            ["verify", "--source", f"{name}.md", "--", "../r.md"],
            ["verify", "--templates", f"x{name}", "--", "../r.md"],
            ["list", "hardware", "--hardware", f"{name}.md"],
            ["derive", f"hf:{name}.md"],
            ["derive", f"hf:x{name}"],
            ["report", "mlp", "--template", "none", "--templates", f"x{name}"],
        ):
            found = run(words)
            orderly(found, words)
            assert found.exit_code in (1, 2), words

    assert made > 200


# -- live documents --------------------------------------------------------------------------------------------------------------------

DOCUMENTS: dict[str, Callable[[str], str]] = {
    "prose": lambda s: f"# {s}\n\n{s} 3<!--= 3 --> {s}\n",
    "an expression": lambda s: f"3<!--= {s} -->\n",
    "what stands before a claim": lambda s: f"{s}<!--= 3 -->\n",
    "a unit": lambda s: f"3 {s}<!--= 3 -->\n",
    "a statement": lambda s: f"```napkin\n{s}\n```\n",
    "a model": lambda s: f'```napkin\nmodel "{s}" as g\n```\n',
    "a config": lambda s: f'```napkin\nmodel "hf:{s}" as g\n```\n',
    "code": lambda s: f'```napkin\nmodel "{s}.py:x" as g\n```\n',
    "a size": lambda s: f'```napkin\nmodel mlp as g "B={s}"\n```\n',
    "a name": lambda s: f"```napkin\n{s} = 3\n```\n",
    "a question": lambda s: f'```napkin\nask training-time parameters="{s}" as g\n```\n',
    "a device": lambda s: f'```napkin\ndevice "{s}" as g\n```\n',
}


@pytest.mark.parametrize("place", some_quick(DOCUMENTS, "prose", "an expression", "a config", "a name"))
def test_a_document_holds_them_as_text(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checked, or refused in one line; nothing of a document runs, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    for text in hostile.ALL:
        written = DOCUMENTS[place](text).encode("utf-8", "surrogatepass")
        Path("d.md").write_bytes(written)
        orderly(run(["verify", "d.md"]), [place, text])
        assert [file.read_bytes() for file in tmp_path.iterdir()] == [written]


REPORTS: dict[str, Callable[[str], Inputs]] = {
    "kind": lambda s: Inputs(s or "x", "mlp"),
    "model": lambda s: Inputs("report", s),
    "config": lambda s: Inputs("report", f"hf:{s}", digest="0"),
    "size": lambda s: Inputs("report", "mlp", {s: 3}),
    "option": lambda s: Inputs("report", "mlp", options={s: "x"}),
    "device": lambda s: Inputs("report", "mlp", device=f"{s}!"),
    "template": lambda s: Inputs("report", "mlp", template=f"{s}!"),
}


@pytest.mark.parametrize("place", some_quick(REPORTS, "model"))
def test_a_report_that_says_it_was_made_from_them_is_not_verified(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, whatever stands in its inputs."""
    monkeypatch.chdir(tmp_path)
    for text in hostile.ALL:
        Path("r.md").write_text(f"# r\n\n<!-- napkin-inputs {REPORTS[place](text).text()} -->\n")
        found = run(["verify", "r.md"])
        orderly(found, [place, text])
        assert found.exit_code == 1
        assert found.stdout.startswith("r.md: not verified: ")
        assert found.stdout.count("\n") == 1


def test_the_sample_page_of_one_name_is_the_same(plain: Page) -> None:
    """What these tests plant into is the sample that other tests read."""
    assert {c.quantity for c in plain.chapters} == {c.quantity for c in pages.page().chapters}

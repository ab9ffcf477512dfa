"""Other layouts of a report: those that ship, and a user's own, which can read the page and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from calc.errors import BadInputError
from reports import cli
from reports.jobs import report as report_job
from reports.jobs.job import Request
from reports.page.report import Page
from reports.writers import html, markdown, render, tex
from reports.writers.render import Look, look_of
from tests.reports import pages
from tests.reports.writers.test_html import Reader

SHIPPED = ("report", "homework", "design-section")


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("page", [pytest.param(pages.page, marks=pytest.mark.slow), pages.hostile], ids=["plain", "hostile"])
def test_links_of_a_shipped_layout_lead_somewhere(name: str, page: Callable[[], Page]) -> None:
    """In every format, and nothing of a hostile name acts."""
    look = look_of(name, "")
    read = Reader(html.write(page(), look))
    written, source = markdown.write(page(), look), tex.write(page(), look)
    ids = {a["id"] for _, a in read.elements if "id" in a}

    assert not read.all("script", "img", "iframe")
    assert {a["href"] for _, a in read.elements if (a.get("href") or "").startswith("#")} <= {f"#{each}" for each in ids}
    assert set(re.findall(r"\]\(#([^)]+)\)", written)) <= set(re.findall(r'<a id="([^"]+)">', written))
    assert set(re.findall(r"\\hyperref\[([^]]*)\]", source)) <= set(re.findall(r"\\label\{([^}]*)\}", source))


def test_a_homework_has_every_step_and_a_section_has_none() -> None:
    """The one is for following along, the other for one page of a document."""
    page = pages.page()
    titles = [step.title for chapter in page.chapters for step in chapter.steps]
    homework, section = (markdown.write(page, look_of(name, "")) for name in ("homework", "design-section"))

    assert titles
    assert all(f" {markdown.escape.markdown(title)}\n" in homework for title in titles)
    assert "because" not in section.split("## Assumptions")[0]


def test_a_users_template_goes_before_ours(tmp_path: Path) -> None:
    """It may use our macros; what it does not bring is ours."""
    (tmp_path / "report.j2").write_text(
        "{% import macros as m with context %}{% call m.document(page) %}{{ m.heading('x', 'Mine: ' ~ page.model) }}{% endcall %}"
    )
    written = markdown.write(pages.page(), Look("report.j2", tmp_path))

    assert re.search(r"^## Mine: tiny-gpt$", written, re.MULTILINE)
    assert "Derivation" not in written


def test_a_users_style_sheet_goes_before_ours_and_stands_in_the_policy(tmp_path: Path) -> None:
    (tmp_path / "report.css").write_text("body { color: rebeccapurple }")
    written = html.write(pages.page(), Look(folder=tmp_path))

    [style] = re.findall(r"<style>(.*?)</style>", written)
    assert re.fullmatch(r"body\{color:rebeccapurple\}(\.h\d+\{[^}]*\})*", style)  # and the names of the tables' columns
    assert "style-src &#39;sha256-" in written


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n{{ page.modle }}", "template own.j2, line 2: 'reports.page.report.Page object' has no attribute 'modle'"),
        ("{{ missing }}", "template own.j2, line 1: 'missing' is undefined"),
        ("{{ page.model", "template own.j2, line 1: unexpected end of template, expected 'end of print statement'."),
        ("{% for %}", "template own.j2, line 1: Expected an expression, got 'end of statement block'"),
        ("{{ page.__class__.__mro__ }}", "template own.j2, line 1: access to attribute '__class__' of 'Page' object is unsafe."),
        ("{{ ''.__class__ }}", "template own.j2, line 1: access to attribute '__class__' of 'str' object is unsafe."),
        ("{{ page.tiles.append(1) }}", "template own.j2, line 1: 'tuple object' has no attribute 'append'"),
        ("{{ 1 / 0 }}", "template own.j2, line 1: division by zero"),
        ("{{ range(10**9)|list }}", "template own.j2, line 1: Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000)."),
        ("{% include '../../etc/passwd' %}", "no template ../../etc/passwd"),
        ("{% include 'gone.j2' %}", "no template gone.j2"),
    ],
)
def test_what_is_wrong_with_a_users_template_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    """With the template and the line."""
    (tmp_path / "own.j2").write_text(text)

    with pytest.raises(BadInputError) as caught:
        markdown.write(pages.page(), look_of("own", str(tmp_path)))

    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


LOOP = "{% for a in range(100000) %}"
DOUBLED = "{% set ns = namespace(x='0123456789') %}{% for a in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ 'x'*10**10 }}", "a text or list of 10,000,000,000 elements, of 1,000,000 at most"),
        ("{{ 10**7 * [0] }}", "a text or list of 10,000,000 elements, of 1,000,000 at most"),
        ("{{ 10**(10**10) }}", "a number of 40,000,000,000 bits, of 10,000 at most"),
        ("{{ (10**2000) * (10**2000) }}", "a number of 13,288 bits, of 10,000 at most"),
        (LOOP + "{{ 'x' * 10**6 }}{% endfor %}", "a page of more than 50,000,000 characters"),
        (DOUBLED, "it takes more memory than 0.25 GiB: make less of it"),
        ("{{ 'x'.center(10**11) }}", "it takes more memory than 0.25 GiB: make less of it"),
        (LOOP * 3 + "{% endfor %}" * 3, "it takes more than 0.5 s"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "maximum recursion depth exceeded"),
    ],
)
def test_a_template_that_asks_for_too_much_is_refused(text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory, time and output are bounded, whatever a template multiplies or repeats."""
    monkeypatch.setattr(render, "_MOST_SECONDS", 0.5 if "0.5 s" in said else 60)
    monkeypatch.setattr(render, "_MOST_MEMORY", 2**28)
    (tmp_path / "own.j2").write_text(text)

    with pytest.raises(BadInputError) as caught:
        filled(tmp_path)

    assert str(caught.value).startswith(f"template own.j2, line 1: {said}")
    assert "\n" not in str(caught.value)


def test_a_template_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """Bytes that are not UTF-8, and a folder of that name."""
    (tmp_path / "own.j2").write_bytes(b"\xff\xfe")

    with pytest.raises(
        BadInputError, match=r"^template own\.j2, line 1: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte$"
    ):
        filled(tmp_path)


def filled(folder: Path) -> str:
    """The template ``own`` of a folder over a page that holds nothing."""
    return render.render(render.Format("markdown.j2", None, {}), SimpleNamespace(sections={}), look_of("own", str(folder)))


def test_a_style_sheet_cannot_end_its_element(tmp_path: Path) -> None:
    (tmp_path / "report.css").write_text("</style><script>alert(1)</script>")

    with pytest.raises(BadInputError, match=r"report\.css: a style sheet with < could end its element: leave it out$"):
        html.write(pages.page(), Look(folder=tmp_path))


@pytest.mark.parametrize("name", ["nothing", "../report", "a" * 61])
def test_a_template_that_is_not_there_is_refused_before_any_work(name: str, tmp_path: Path) -> None:
    actual = run("report", "mlp", "--template", name, "-o", str(tmp_path / "out"))

    assert actual.exit_code == 2
    names = "design-section, homework, report"
    suggested = f"did you mean report? ({names})" if "report" in name else f"use one of {names}"
    assert actual.stderr == f"napkin: unknown template {name[:60]!r}: {suggested}\n"
    assert not (tmp_path / "out").exists()


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, list(words))


@pytest.mark.slow
def test_a_report_by_templates_of_ones_own_is_verified_by_those(tmp_path: Path) -> None:
    """Named, and unchanged since."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "report.j2").write_text("{% import macros as m with context %}{% call m.document(page) %}{{ page.sizes }}{% endcall %}")
    made = report_job.make(Request("linear"), report_job.ReportChoices(look=look_of("", str(folder))), lambda _: None)
    (tmp_path / "r.md").write_text(made.texts["report.md"], encoding="utf-8")
    unnamed, named = run("verify", str(tmp_path / "r.md")), run("verify", str(tmp_path / "r.md"), "--templates", str(folder))
    (folder / "report.j2").write_text("{{ page.sizes }}")
    changed = run("verify", str(tmp_path / "r.md"), "--templates", str(folder))

    assert (unnamed.exit_code, named.exit_code, changed.exit_code) == (1, 0, 1)
    assert "it uses templates of your own: name their folder with --templates DIR" in unnamed.stdout
    assert f"it was made with other templates than those in {folder}: the SHA-256 differs" in changed.stdout

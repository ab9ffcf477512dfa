"""LaTeX source: hostile text stays text, formulas are those of the other formats, and where there is a pdflatex it compiles."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from reports.page.report import Page
from reports.writers import tex
from tests.reports import pages

HOSTILE = r"\input{/etc/passwd} \write18{rm} $x$ %c ~ ^^M {unbalanced & # _ \end{document} 𝕏 ‮ é ß → ℓ"


@pytest.fixture(scope="module")
def text() -> str:
    """The source of a sample page."""
    return tex.write(pages.page())


def test_hostile_text_has_no_command_of_its_own() -> None:
    """Only commands that print a sign; braces are balanced; what no font has is shown by its number."""
    written = tex.escape(HOSTILE)
    signs = r"\\(?:text[a-z]+\{\}|ensuremath\{\\?[a-z]+\}|allowbreak\{\}|[{}$&#%_])|\{[][*]\}"
    rest = re.sub(signs, "", written)

    assert not re.search(r"[\\{}$&#%_^~]", rest)
    assert "{[}U+1D54F{]}" in written
    assert "é ß" in written


def test_every_printable_sign_of_the_product_has_a_command() -> None:
    """Nothing that a report says is shown as a code point."""
    assert [] == re.findall(r"U\+[0-9A-F]{4,}", tex.write(pages.page()))


def test_a_sign_of_a_template_has_a_command(text: str) -> None:
    """A report says 10⁹ bytes and rule ÷ exact − 1; a stock font has neither ⁹ nor −. Accented letters are left, which it has."""
    assert r"1 GB = 10\ensuremath{^{9}} bytes" in text
    assert re.findall(r"[^\x00-\xff]", text) == []


def test_each_row_has_a_cell_for_each_column(text: str) -> None:
    """One more is an error of LaTeX, which leaves the cell out."""
    tables = re.findall(r"\\begin\{longtable\}\{([^\n]*)\}\n(.*?)\\end\{longtable\}", text, flags=re.DOTALL)
    assert tables != []
    for columns, rows in tables:
        expected = columns.count("arraybackslash") - 1
        lines = [line for line in rows.splitlines() if line.endswith(r"\\")]

        assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {expected}


def test_two_hyphens_of_an_option_stay_two() -> None:
    """LaTeX would set a dash."""
    assert tex.escape("--kernels cuda") == "-{}-{}kernels cuda"


def test_a_title_that_a_fold_and_its_table_share_is_printed_once(text: str) -> None:
    title = "Forward: w1"
    assert rf"\textit{{{title}}}" in text
    assert f"{title}:" not in text


def test_environments_are_balanced(text: str) -> None:
    """Begun as often as ended, in order."""
    open_: list[str] = []
    ends = re.findall(r"\\(begin|end)\{(\w+\*?)\}", text)
    assert ("begin", "document") in ends
    for kind, name in ends:
        if kind == "begin":
            open_.append(name)
        else:
            assert open_.pop() == name

    assert open_ == []


def test_every_reference_has_its_label(text: str) -> None:
    labels = set(re.findall(r"\\label\{([^}]*)\}", text))

    assert set(re.findall(r"\\hyperref\[([^]]*)\]", text)) <= labels


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex here")
@pytest.mark.parametrize("page", [pages.page, pages.hostile], ids=["plain", "hostile"])
def test_a_stock_latex_compiles_it(page: Callable[[], Page], tmp_path: Path) -> None:
    """Also where every name is hostile."""
    (tmp_path / "r.tex").write_text(tex.write(page()), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "r.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120)

    assert done.returncode == 0, done.stdout.decode(errors="replace")[-800:]

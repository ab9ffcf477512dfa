"""A page as GitHub-flavoured Markdown: tables, fenced ``math`` blocks and $`…`$ inline, no HTML but anchors and folds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup
from markupsafe import escape as html_escape

from calc.symbolic import latex
from calc.symbolic.marks import Marks, as_latex
from reports.page.model import TypesetFormula
from reports.typeset import escape, prose
from reports.writers.render import PLAIN, Format, Look, render

if TYPE_CHECKING:
    from reports.page.comparison import ComparisonPage
    from reports.page.homework import HomeworkPage
    from reports.page.lecture import LecturePage
    from reports.page.report import Page
    from reports.page.side_by_side import SideBySidePage

BLOCK_LENGTH = 900  # GitHub gives up on blocks of over 1,000 characters
ROW_TERMS = 4


def write(page: Page | LecturePage | ComparisonPage | SideBySidePage | HomeworkPage, look: Look = PLAIN) -> str:
    """The Markdown text of a page."""
    text = render(_MARKDOWN, page, look)
    text = re.sub(r"[ \t]+\n", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _oneline(text: str) -> Markup:
    return Markup(re.sub(r"[ \t\n]+", " ", str(text)).strip())


def _rows(text: str) -> Markup:
    """Table rows without the blank lines that would end the table."""
    return Markup("\n".join(line for line in str(text).split("\n") if line.strip()))


def _uncaptioned(text: Markup, title: str) -> Markup:
    """The inside of a fold without the caption of its first table, where that says no more than the title."""
    inside, caption = str(text).lstrip("\n"), f"{escape.markdown(title)}:\n"
    return Markup(inside.removeprefix(caption))


def _inline(formula: TypesetFormula) -> Markup:
    return Markup(f"$`{_joined(formula.pieces)}`$")


def _joined(pieces: Sequence[Marks]) -> str:
    return " ".join(as_latex(piece, apart=True) for piece in pieces)


def _equations(lines: Sequence[tuple[str, TypesetFormula]]) -> list[Markup]:
    """``before = after = …`` as aligned blocks, each short enough for GitHub."""
    return [Markup(block) for block in _blocks([row for sign, formula in lines for row in _aligned(sign, formula)])]


def _aligned(sign: str, formula: TypesetFormula) -> Iterator[str]:
    first = True
    for pieces, label in formula.rows or ((formula.pieces, ""),):
        for i in range(0, len(pieces), ROW_TERMS):
            row = f"{f'{sign}{{}}' if first and sign else ''}& {_joined(pieces[i : i + ROW_TERMS])}"
            first = False
            yield f"{row} && {latex.text(label, apart=True)}" if label and i + ROW_TERMS >= len(pieces) else row


def _blocks(rows: Sequence[str]) -> Iterator[str]:
    """Rows gathered into ``aligned`` environments; a row alone and too long stays a block of its own."""
    gathered: list[str] = []
    for row in rows:
        if gathered and sum(len(r) + 4 for r in gathered) + len(row) > BLOCK_LENGTH:
            yield _environment(gathered)
            gathered = []
        gathered.append(row)
    if gathered:
        yield _environment(gathered)


def _environment(rows: Sequence[str]) -> str:
    return "\\begin{aligned}\n" + " \\\\\n".join(rows) + "\n\\end{aligned}"


_MARKDOWN = Format(
    "markdown.j2",
    escape.markdown,
    {
        "oneline": _oneline,
        "rows": _rows,
        "code": lambda text: Markup(escape.markdown_code(text)),
        "html": lambda text: Markup(html_escape(escape.visible(text))),
        "fenced": lambda text: Markup(escape.fenced(text)),
        "address": lambda text: Markup(re.sub(r"[^A-Za-z0-9:/._~#-]", "", text)),
        "anchor": lambda text: Markup(re.sub(r"[^A-Za-z0-9._-]", "-", text)),  # an id has no escapes: what it cannot hold is replaced
        "inline_math": _inline,
        "equations": _equations,
        "uncaptioned": _uncaptioned,
        "prose": prose.markdown,
        "verbatim": Markup,  # a line that was made so that nothing in it can end a comment
    },
)

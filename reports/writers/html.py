"""A page as one self-contained HTML file: no script, no request, the font inside, a policy that forbids the rest."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from calc.errors import BadInputError
from calc.platform import files
from calc.symbolic.marks import Marks, as_latex
from reports.page.model import TypesetFormula
from reports.typeset import inline, mathml, prose
from reports.typeset.escape import visible
from reports.writers.render import PLAIN, TEMPLATES, Format, Look, render

if TYPE_CHECKING:
    from reports.page.comparison import ComparisonPage
    from reports.page.homework import HomeworkPage
    from reports.page.lecture import LecturePage
    from reports.page.report import Page
    from reports.page.roofline import RooflinePage
    from reports.page.side_by_side import SideBySidePage
    from reports.page.what_if import ScriptedPage

_SHEET = "report.css"
_MORE = "interactive.css"  # of pages with a script
_OWN = files.Kind(10**6, "the style sheet")
_FITS_ANY_SCREEN = 32  # characters of a dotted name
_LONG_PART = 20  # characters of a part of a dotted name
_LONG = 28  # characters of a product beyond which it may not fit a phone's screen
_DATA = Path(__file__).resolve().parent.parent / "data"
_FONTS = {"font": "stix-two-math-subset.woff2", "italic": "stix-two-math-italic.woff2"}


def write(page: Page | LecturePage | RooflinePage | ComparisonPage | SideBySidePage | HomeworkPage, look: Look = PLAIN) -> str:
    """The HTML text of a page."""
    heads = _TableHeads()
    html = render(_HTML, page, look, style=_STYLE, policy=_POLICY, heads=heads)
    html = _with_style(html, _style(look.folder) + heads.css())
    return re.sub(r"\n\s*\n+", "\n", html).strip() + "\n"


def write_scripted(page: ScriptedPage, look: Look = PLAIN) -> str:
    """The HTML text of a page whose numbers a script makes, out of the page's data. The policy allows that script alone."""
    heads = _TableHeads()
    script = "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in page.scripts)
    assert not re.search("</|<!--", script), "the script would end its element"
    context = {"style": _STYLE, "policy": _POLICY, "script": Markup(script), "data": Markup(page.data), "heads": heads}
    html = render(_HTML, page, Look(page.template), **context).strip() + "\n"
    style = f"{_style(look.folder)}{_shortened((TEMPLATES / _MORE).read_text(encoding='utf-8'))}{heads.css()}"
    return _with_style(html, style, f"; script-src '{_hash(script)}'" if script else "")


def _formula(formula: TypesetFormula) -> Markup:
    return mathml.formula(map(as_latex, formula.pieces))


def _inline(pieces: Sequence[Marks]) -> Markup:
    return inline.formula(pieces)


def _row(pieces: Sequence[Marks]) -> Markup:
    return inline.formula(pieces, continues=True)


def _digits(formula: TypesetFormula) -> Markup:
    """A formula of numbers alone, as text. It may break between its terms, and a long product after a dot, but never in a number."""
    terms = (str(escape(term)) for term in formula.plain)
    return Markup(" ".join(term.replace("·", "·<wbr>") if len(term) > _LONG else term for term in terms))


def _module_path(text: str) -> Markup:
    """A dotted name that may break after its dots, and after the underscores of its long parts, unless it fits any screen."""
    if len(text) <= _FITS_ANY_SCREEN:
        return escape(visible(text))
    parts = str(escape(visible(text))).split(".")
    return Markup(".<wbr>".join(re.sub(r"(?<=\w_)(?=\w)", "<wbr>", part) if len(part) > _LONG_PART else part for part in parts))


def _file_path(text: str) -> Markup:
    """A name that may break after its slashes."""
    return Markup("/<wbr>".join(escape(part) for part in visible(text).split("/")))


# Where the policy and the style go, whose hash the policy has: both depend on the tables of the page. No text of a page has a NUL.
_POLICY, _STYLE = Markup("\0policy\0"), Markup("\0style\0")


def _with_style(html: str, style: str, further_policy: str = "") -> str:
    """The page with its style sheet and its policy."""
    return html.replace(_POLICY, str(escape(_policy(style) + further_policy)), 1).replace(_STYLE, style, 1)


class _TableHeads:
    """The columns of a page's tables, each with its class. On a phone, where a row is a block, each cell shows its column's name."""

    def __init__(self) -> None:
        self._classes: dict[tuple[str, ...], str] = {}

    def __call__(self, columns: Sequence[tuple[str, str]]) -> str:
        """The class of a table with these columns."""
        names = tuple(name for name, _ in columns)
        return self._classes.setdefault(names, f"h{len(self._classes)}")

    def css(self) -> str:
        """For each class a rule that holds the name of column n in the variable ``--cn``."""
        rules = ("".join(f"--c{i}:{_css_string(name)};" for i, name in enumerate(names, 1) if name) for names in self._classes)
        return "".join(f".{css_class}{{{rule}}}" for css_class, rule in zip(self._classes.values(), rules, strict=True))


def _css_string(text: str) -> str:
    """A text as a string of CSS, in which no character can end it."""
    return '"' + "".join(c if c.isalnum() or c == " " else f"\\{ord(c):x} " for c in text) + '"'


_CELL_KINDS = {("number", "number", "math"): "ps", ("number", "number", "math", "text"): "ps"}


def _cell_kinds(columns: Sequence[tuple[str, str]]) -> str:
    """The class of a table that says of what kind its cells are; empty where each cell says it."""
    kinds = tuple(kind for _, kind in columns[1:])
    return "ns" if set(kinds) == {"number"} else _CELL_KINDS.get(kinds, "")


_HTML = Format(
    "html.j2",
    None,
    {
        "mathml": _formula,
        "inline": _inline,
        "inline_row": _row,
        "digits": _digits,
        "module_path": _module_path,
        "file_path": _file_path,
        "prose": prose.html,
        "cell_kinds": _cell_kinds,
    },
)


def _style(folder: Path | None = None) -> str:
    """The style sheet, a user's own where there is one, with the font in it. It stands in the policy by its hash, so it is made before
    the page."""
    own = folder / _SHEET if folder is not None else None
    css = (TEMPLATES / _SHEET).read_text(encoding="utf-8") if own is None or not own.exists() else _OWN.read_text(own)
    if "<" in css:
        raise BadInputError(f"{own}: a style sheet with < could end its element: leave it out")
    css = _shortened(css)
    for name, file in _FONTS.items():
        font = base64.b64encode((_DATA / file).read_bytes()).decode("ascii")
        css = css.replace(f"{{{{{name}}}}}", f"data:font/woff2;base64,{font}")
    return css.strip()


def _shortened(css: str) -> str:
    """A style sheet without comments and spaces that mean nothing."""
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    return re.sub(r"\s*([{};,>])\s*|(?<=:)\s+|\s*\n\s*", r"\1", css)


def _policy(style: str) -> str:
    return f"default-src 'none'; style-src '{_hash(style)}'; font-src data:; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    """The hash of a text, as a policy names it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}"

"""A page as one self-contained HTML file: no script, no request, the font inside, a policy that forbids the rest."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from reports import mathml, prose
from reports.escape import visible
from reports.page import Formula, Page
from reports.render import TEMPLATES, environment, render

if TYPE_CHECKING:
    from reports.lecture_page import LecturePage

_FONT = Path(__file__).resolve().parent / "data" / "stix-two-math-subset.woff2"


def write(page: Page | LecturePage, template: str = "report.j2") -> str:
    """The HTML text of a page."""
    style = _style()
    env = environment(None, {"mathml": _formula, "mathml_row": _row, "sites": _sites, "prose": prose.html}, page.sections)
    html = render(env, "html.j2", page, template, style=Markup(style), policy=_policy(style))
    return re.sub(r"\n\s*\n+", "\n", html).strip() + "\n"


def _formula(formula: Formula) -> Markup:
    return mathml.formula(formula.pieces)


def _row(pieces: Sequence[str]) -> Markup:
    return mathml.formula(pieces, continues=True)


def _sites(text: str) -> Markup:
    """A dotted name that may break after its dots and underscores, and nowhere else."""
    return Markup(re.sub(r"([._])(?=\w)", r"\1<wbr>", str(escape(visible(text)))))


def _style() -> str:
    """The style sheet with the font in it. It stands in the policy by its hash, so it is made before the page."""
    font = base64.b64encode(_FONT.read_bytes()).decode("ascii")
    css = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    css = re.sub(r"\s*([{};,>])\s*|(?<=:)\s+|\s*\n\s*", r"\1", css)
    return css.strip().replace("{{font}}", f"data:font/woff2;base64,{font}")


def _policy(style: str) -> str:
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    return f"default-src 'none'; style-src 'sha256-{digest}'; font-src data:; base-uri 'none'; form-action 'none'"

"""LaTeX as MathML Core. The converter is imported here only.

A formula becomes one inline ``<math>`` for each of its pieces, joined by ``<wbr>``: MathML has no line breaking of its
own, so this is how a long sum wraps on a narrow screen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from markupsafe import Markup

_GROUPED = re.compile(r"<mn>(\d+)</mn>((?:<mo[^>]*>,</mo><mn>\d{3}</mn>)+)")
_LEADING = re.compile(r"^<math><mo[^>]*>([+−])</mo>")


@cache
def _converter() -> Any:
    import math_core

    return math_core.LatexToMathML()


@cache
def piece(latex: str, first: bool = True) -> str:
    """One inline ``<math>`` element. Not ``first``: it continues a sum, and its sign stands between two terms."""
    markup: str = _converter().convert_with_local_state(latex, displaystyle=False)
    # The converter sets 124{,}439 as number, comma, number; it is one number and must read and copy as one.
    markup = _GROUPED.sub(lambda m: f"<mn>{m.group(1)}{re.sub(r'<[^>]*>', '', m.group(2))}</mn>", markup)
    if not first:
        markup = _LEADING.sub(r"<math><mo>\1</mo>", markup)
    # The style sheet sets the thin space between factors, at a third of the bytes.
    markup = markup.replace('<mspace width="0.16666667em"/>', "").replace("<mrow><mspace/><mi>", "<mrow><mi>")
    return markup.replace(' lspace="0.2222em" rspace="0.2222em"', "")


def formula(pieces: Iterable[str]) -> Markup:
    """All pieces of a formula, with a place to break a line before each."""
    return Markup("<wbr>".join(piece(p, i == 0) for i, p in enumerate(pieces)))

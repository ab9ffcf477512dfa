"""Short formulas as ordinary text of a page: sums of products, which need no typesetting but italic letters and raised digits.

``24<i>BTd</i>`` takes a fifth of the bytes of the same product in MathML, wraps like text, and is found and copied as it reads. What has
a tall fraction or a brace stays MathML.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from markupsafe import Markup, escape

from reports.typeset import mathml

_TOKEN = re.compile(
    "|".join((
        r"(?P<number>\d+(?:\{,\}\d{3})*)",
        r"(?P<letter>[A-Za-z])",
        r"\\mathrm\{(?P<word>(?:\\_|[^{}\\])*)\}",
        r"\\sum_\{(?P<index>\\ell|[A-Za-z])=1\}\^\{(?P<sum>[^{}]*)\}",
        r"\\frac\{(?P<top>[^{}]*)\}\{(?P<half>\d+)\}",
        r"\^\{(?P<power>\d+)\}",
        r"_\{(?P<below>\d+)\}",
        r"(?P<dot>\s*\\cdot\s*)",
        r"(?P<thin>\s*\\,)",
        r"(?P<sign>\s*[+-]\s*)",
        r"(?P<word_of>\\max(?=\()|\\ldots)",
        r"(?P<nothing>[{}]|\s+|\\(?:left|right)(?=[()]))",
        r"(?P<itself>[(),])",
    ))
)  # fmt: skip
_TIED = "\N{NO-BREAK SPACE}"
_NARROW = "\N{NARROW NO-BREAK SPACE}"


def formula(pieces: Sequence[str], *, continues: bool = False) -> Markup:
    """All pieces of a formula, with a place to break a line before each. ``continues``: a sum goes on in the first of them."""
    return Markup(" ").join(_piece(p, i == 0 and not continues) for i, p in enumerate(pieces))


def _piece(latex: str, first: bool) -> Markup:
    written = text(latex, first)
    return Markup(mathml.piece(latex, first)) if written is None else Markup(written)


@cache
def text(latex: str, first: bool = True) -> str | None:
    """One piece as marked-up text in which no line breaks, or ``None`` where it is more than sums, products and powers."""
    out: list[str] = []
    at = 0
    while at < len(latex):
        token = _TOKEN.match(latex, at)
        written = _written(token, leads=not out and first) if token is not None else None
        if token is None or written is None:
            return None
        out.append(written)
        at = token.end()
    return _joined(out)


def _written(token: re.Match[str], *, leads: bool) -> str | None:
    kind = str(token.lastgroup)
    what = token[kind]
    match kind:
        case "number":
            return what.replace("{,}", ",")
        case "letter":
            return f"<i>{what}</i>"
        case "word":
            return str(escape(what.replace(r"\_", "_")))
        case "sum":
            upper = text(what)
            return None if upper is None else f"∑<sub>{token['index'].replace(chr(92) + 'ell', 'ℓ')}=1</sub><sup>{upper}</sup>{_NARROW}"
        case "half":
            upper = text(token["top"])
            return upper and (f"<sup>{upper}</sup>⁄<sub>{what}</sub>" if upper.isdigit() else f"({upper}/{what})")
        case "power":
            return f"<sup>{what}</sup>"
        case "below":
            return f"<sub>{what}</sub>"
        case "sign":
            sign = "−" if "-" in what else "+"
            return sign if leads else f"{_TIED}{sign}{_TIED}"
        case "itself":
            return what
        case _:
            return _WRITTEN.get(kind, _WRITTEN.get(what))


_WRITTEN = {"dot": "·", "thin": _NARROW, "nothing": "", r"\max": "max", r"\ldots": "…"}


def _joined(parts: Sequence[str]) -> str:
    """Letters of a product side by side stand in one element, whose style sets them apart; other factors keep the thin space."""
    written = "".join(parts).replace(f"</i>{_NARROW}<i>", "").replace("</i><i>", "")
    written = re.sub(rf"(\d|\)|</su[bp]>){_NARROW}(?=<i>|\()", r"\1", written)
    return written.replace(f"({_TIED}", "(").lstrip(_TIED)

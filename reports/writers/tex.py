"""A page as LaTeX source that a stock pdflatex compiles: for homework and papers.

Text may hold any character: those that LaTeX knows a command for get it, others are shown by their number, and none acts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from calc.symbolic.marks import Marks, as_latex
from reports.page.model import TypesetFormula
from reports.typeset.escape import visible
from reports.writers.render import PLAIN, Format, Look, render

if TYPE_CHECKING:
    from reports.page.homework import HomeworkPage
    from reports.page.lecture import LecturePage
    from reports.page.report import Page

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}",
    "[": "{[}",  # behind the end of a row or an item, a bracket would begin an argument, and a star another form
    "]": "{]}",
    "*": "{*}",
    "-": "-{}",  # two hyphens of an option would be a dash
    "–": "--",
    "\u00a0": "~",
    "\u202f": r"\,",
    "…": r"\ldots{}",
    "µ": r"\textmu{}",
    "°": r"\textdegree{}",
    "’": "'",
    "“": "``",
    "”": "''",
    "›": r"\textgreater{}",
    "‹": r"\textless{}",
}
_GREEK = ("alpha", "beta", "gamma", "delta", "epsilon", "eta", "theta", "lambda", "mu", "pi", "rho", "sigma", "tau", "phi", "psi")
_MATHS = {
    "·": r"\cdot",
    "×": r"\times",
    "−": "-",
    "±": r"\pm",
    "∓": r"\mp",
    "≈": r"\approx",
    "≠": r"\neq",
    "≤": r"\leq",
    "≥": r"\geq",
    "→": r"\to",
    "←": r"\leftarrow",
    "Σ": r"\Sigma",
    "∑": r"\sum",
    "Π": r"\Pi",
    "Φ": r"\Phi",
    "Γ": r"\Gamma",
    "√": r"\surd",
    "∂": r"\partial",
    "ℒ": r"\mathcal{L}",
    "∞": r"\infty",
    "⊙": r"\odot",
    "∘": r"\circ",
    "⋆": r"\star",
    "∼": r"\sim",
    "∣": r"\mid",
    "∖": r"\setminus",
    "∎": r"\blacksquare",
    "∴": r"\therefore",
    "ℓ": r"\ell",
    "′": "'",
    "⌊": r"\lfloor",
    "⌋": r"\rfloor",
    "⌈": r"\lceil",
    "⌉": r"\rceil",
    "⟦": r"[\![",
    "⟧": r"]\!]",
    "✓": r"\checkmark",
    "✗": r"\times",
    "○": r"\circ",
    "∈": r"\in",
    "ᵀ": r"^{\mathsf{T}}",
    "⁻": "^{-}",
    "₊": "_{+}",
    "₋": "_{-}",
    **{sign: f"\\{name}" for sign, name in zip("αβγδεηθλμπρστφψ", _GREEK, strict=True)},
    **{sign: f"^{{{letter}}}" for sign, letter in zip("⁰¹²³⁴⁵⁶⁷⁸⁹ⁿᵇᵖˣ", "0123456789nbpx", strict=True)},
    **{sign: f"_{{{letter}}}" for sign, letter in zip("₀₁₂₃₄₅₆₇₈₉ₖₙⱼₒ", "0123456789knjo", strict=True)},
}  # fmt: skip
_BREAKS = re.compile(r"(?<=[._/=,:-])(?=\w)")
_KNOWN_ACCENTS = re.compile(r"[\u0020-\u007e\u00a1-\u00ff]")


_HATTED = re.compile(r"[^\W_]\u0302|.", re.DOTALL)
_LONG = re.compile(r"\S{24,}")


def escape(text: str) -> str:
    """``text`` as LaTeX prints it literally; long dotted names may break."""
    parts: list[str] = []
    end = 0
    for word in _LONG.finditer(shown := visible(text)):
        parts += [_literal(shown[end : word.start()]), _breakable(word[0])]
        end = word.end()
    return "".join([*parts, _literal(shown[end:])])


def _literal(text: str) -> str:
    """A hat is a character of its own behind its letter; LaTeX has it in front."""
    return "".join(rf"\^{{{_character(part[0])}}}" if part[1:] == "\u0302" else _character(part) for part in _HATTED.findall(text))


def _character(c: str) -> str:
    if c in _SPECIAL:
        return _SPECIAL[c]
    if c in _MATHS:
        return f"\\ensuremath{{{_MATHS[c]}}}"
    if _KNOWN_ACCENTS.fullmatch(c):
        return c
    return f"{_SPECIAL['[']}U+{ord(c):04X}{_SPECIAL[']']}"


def write(page: Page | LecturePage | HomeworkPage, look: Look = PLAIN) -> str:
    """The LaTeX text of a page. Signs that templates themselves have, such as 10⁹, get their commands here; names are escaped already."""
    text = re.sub(r"[^\x00-\x7f]", lambda sign: _character(sign[0]), render(_LATEX, page, look))
    text = re.sub(r"[ \t]+\n", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _breakable(text: str) -> str:
    """Code that may break after its dots, underscores and slashes."""
    return r"\allowbreak{}".join(_literal(part) for part in _BREAKS.split(visible(text)))


def _label(target: str) -> Markup:
    return Markup(re.sub(r"[^A-Za-z0-9.]", "-", target))


def _maths(pieces: Sequence[Marks]) -> Markup:
    return Markup("$" + r" \allowbreak ".join(map(_inside, pieces)) + "$")


def _inside(piece: Marks) -> str:
    """A formula with the characters that are no letters of a stock font as commands."""
    return "".join(part if part.isascii() else rf"\text{{{_literal(part)}}}" for part in _HATTED.findall(as_latex(piece)))


def _equations(lines: Sequence[tuple[str, TypesetFormula]]) -> list[Markup]:
    """``before = after = …``: a paragraph for each line, which breaks between terms, and in its label, as text does."""
    return [Markup(rf"${sign}\displaystyle {row}${label}") for sign, formula in lines for row, label in _rows(formula)]


def _rows(formula: TypesetFormula) -> Iterator[tuple[str, str]]:
    """Each row and its label, as text behind it."""
    for pieces, label in formula.rows or ((formula.pieces, ""),):
        yield r" \allowbreak ".join(_inside(piece) for piece in pieces), rf"\qquad {escape(label)}" if label else ""


def _columns(columns: Sequence[tuple[str, str]]) -> Markup:
    """Column widths as shares of the line: equations get the most room, then mathematics, words, numbers and symbols."""
    weights = [{"equation": 3.0, "math": 1.6, "number": 1.1, "symbol": 0.5}.get(kind, 1.2) for _, kind in columns]
    room = 0.98 - 0.022 * len(columns)
    widths = [f"{room * weight / sum(weights):.3f}" for weight in weights]
    align = [r"\raggedleft" if kind == "number" else r"\raggedright" for _, kind in columns]
    return Markup("".join(rf">{{{side}\arraybackslash}}p{{{width}\linewidth}}" for side, width in zip(align, widths, strict=True)))


_LATEX = Format(
    "latex.j2",
    escape,
    {
        "oneline": lambda text: Markup(re.sub(r"\s+", " ", str(text)).strip()),
        "code": lambda text: Markup(rf"\texttt{{{_breakable(text)}}}"),
        "label": _label,
        "address": lambda text: Markup(re.sub(r"[^A-Za-z0-9:/._~-]", "", text)),
        "inline_math": lambda formula: _maths(formula.pieces),
        "equations": _equations,
        "prose": lambda text: Markup(escape(text)),
        "columns": _columns,
        "verbatim": Markup,  # one line that was made so that nothing in it acts, behind a comment sign
    },
)

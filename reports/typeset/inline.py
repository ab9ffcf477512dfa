"""Short formulas as ordinary text of a page: sums of products, which need no typesetting but italic letters and raised digits.

``24<i>BTd</i>`` takes a fifth of the bytes of the same product in MathML, wraps like text, and is searched and copied as it reads. What has
a tall fraction or a brace stays MathML.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from calc.symbolic import marks
from calc.symbolic.marks import Marks
from reports.typeset import mathml


def formula(pieces: Sequence[Marks], *, continues: bool = False) -> Markup:
    """All pieces of a formula, with a place to break a line before each. ``continues``: a sum goes on in the first of them."""
    return Markup(" ").join(_piece(piece, leads=i == 0 and not continues) for i, piece in enumerate(pieces))


def _piece(piece: Marks, *, leads: bool) -> Markup:
    text = marks.text(piece, leads=leads)
    return Markup(mathml.piece(marks.as_latex(piece), leads) if text is None else text)

"""Numbers in a document: sign of relation, digits, exponent, unit. The written precision is the tolerance.

A number is read backwards from the comment that follows it, character by character, without backtracking.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from calc.errors import BadInputError
from reports.live import units
from reports.live.language import UnitValue
from reports.live.units import UnitWord

NEAR = Fraction(5, 100)
"""The tolerance of ``≈``, as a share of the value."""

MOST_DIGITS = 100
_WINDOW = 2 * MOST_DIGITS
"""Characters before a comment that are searched for its number."""

_RELATIONS = {
    "<=": "≤", ">=": "≥", "&lt;": "<", "&gt;": ">", "~": "≈", "\\approx": "≈", "\\le": "≤", "\\leq": "≤", "\\ge": "≥", "\\geq": "≥",
}  # fmt: skip
_SIGNS = (*_RELATIONS, "<", ">", "≤", "≥", "≈")
_MARKS = ("**", "__", "*", "_", "`")
_SPACES = " \u00a0\u202f"
_TIMES = ("×", "·", "\\times", "\\cdot")
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DIGITS = "0123456789"
_RAISED = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
_UP = str.maketrans(_RAISED, "-0123456789")
_UNIT = re.compile(r"×|[A-Za-zµ$%][A-Za-z$%]*(?:/[A-Za-z]+)?")
_NUMBER = re.compile(r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?")
_FORMULAS = (("$$", "$$"), ("$`", "`$"), ("$", "$"))
_LATEX_COMMA = "{,}"  # 124{,}439{,}808, without the space that LaTeX sets behind a comma
_LATEX_SIGNS = {"\\times": "×", "\\%": "%"}
_LATEX_UNIT = re.compile(r"\\(?:text|mathrm)\{[ ~]?([A-Za-z]+(?:/[A-Za-z]+)?)\}")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")


@dataclass(frozen=True)
class WrittenNumber:
    """A number in a line. ``start``, ``end``: positions of its digits, from 0. ``relation``: = ≈ < > ≤ ≥."""

    relation: str
    digits: str
    exponent: int
    unit: str
    start: int
    end: int

    @cached_property
    def number(self) -> Fraction:
        """The written number with its exponent, without the unit."""
        return self.plain * Fraction(10) ** self.exponent

    @property
    def plain(self) -> Fraction:
        return Fraction(self.shown.replace(",", "").replace("−", "-"))

    @property
    def shown(self) -> str:
        """The digits as a message shows them."""
        return self.digits.replace(_LATEX_COMMA, ",")

    @property
    def power(self) -> str:
        """The exponent as a message shows it, ``e9``; empty without one."""
        return f"e{self.exponent}" if self.exponent else ""

    @property
    def places(self) -> int:
        return len(self.digits.partition(".")[2])

    @cached_property
    def half(self) -> Fraction:
        """Half a unit of the last written decimal."""
        return Fraction(1, 2 * 10**self.places) * Fraction(10) ** self.exponent


def written_before(line: str, end: int) -> WrittenNumber | None:
    """The number that ends at position ``end``; ``None`` if there is none. Raises ``BadInputError`` if it is too long."""
    from_ = max(0, end - _WINDOW)
    text = _without_mark(line[from_:end].rstrip(_SPACES)).rstrip(_SPACES)
    text, formula = _formula(text)
    head, unit = _unit(text, bool(formula))
    if unit and not formula:  # behind a formula, as in $8.03$ GB
        between = "$" if unit.startswith("$") else ""
        head, formula = _formula(f"{head}{between}".rstrip(_SPACES))
        unit = unit.removeprefix(between) if formula else unit
        head = head if formula else head.removesuffix(between)
    if unit and not _UNIT.fullmatch(unit):
        return None
    head = _without_mark(head.rstrip(_SPACES) if unit else head)
    mantissa, exponent = _exponent(head)
    head = _before_digits(mantissa)
    digits = mantissa[len(head) :]
    if len(digits) > MOST_DIGITS:
        raise BadInputError(f"a number of {len(digits)} characters or more, Napkin reads at most {MOST_DIGITS}: write it as 1.5e30")
    if not _NUMBER.fullmatch(digits.replace(_LATEX_COMMA, ",")):
        return None
    if head.endswith(("-", "−")):
        digits, head = f"{head[-1]}{digits}", head[:-1]
    if head and (head[-1].isalnum() or head[-1] in "_.,"):
        return None  # the end of a word or of another number
    stop = from_ + len(head) + len(digits)
    if formula:
        head = head.removesuffix(formula)
    elif head.endswith("$"):
        unit, head = f"{unit}$", head[:-1]
    is_quoted = not from_ and not head.strip(f"{_SPACES}>")  # a line that begins with > is a quotation
    return WrittenNumber("=" if is_quoted else _relation(head), digits, exponent, unit, stop - len(digits), stop)


def _formula(text: str) -> tuple[str, str]:
    """(text without the mark that ends a formula, the mark that begins it; empty if none ends here): ``$8.03\\times10^9$``, not ``5 $``."""
    for opening, closing in _FORMULAS:
        begin = text.rfind(opening, 0, max(len(text) - len(closing), 0))
        inside = text[begin + len(opening) : -len(closing)]
        if text.endswith(closing) and begin >= 0 and inside.strip(_SPACES) == inside and inside and text[:begin].count("$") % 2 == 0:
            return text[: -len(closing)], opening
    return text, ""


def _unit(text: str, in_formula: bool) -> tuple[str, str]:
    """(text before the unit at its end, the unit or empty): ``GB``, in a formula also ``\\text{ GB}``, ``\\times`` and ``\\%``."""
    if in_formula:
        begin = text.rfind("\\")
        latex, word = text[begin:], _LATEX_UNIT.fullmatch(text, max(begin, 0))
        if word or latex in _LATEX_SIGNS:
            return text[:begin].rstrip(_SPACES).removesuffix("\\,").removesuffix("~"), word[1] if word else _LATEX_SIGNS[latex]
    head = text.rstrip(f"{_LETTERS}µ$%/×")
    return head, text[len(head) :]


def _before_digits(text: str) -> str:
    """The text before the digits at its end."""
    head = text.rstrip(f"{_DIGITS},.")
    while head.endswith(_LATEX_COMMA):
        head = head.removesuffix(_LATEX_COMMA).rstrip(f"{_DIGITS},.")
    return head


def _without_mark(text: str) -> str:
    """The text without Markdown emphasis at its end."""
    mark = next((mark for mark in _MARKS if text.endswith(mark)), "")
    return text.removesuffix(mark)


def _relation(text: str) -> str:
    """The sign before a number, outside its emphasis or inside; ``=`` if there is none."""
    inner = _sign_at_end(text.rstrip(_SPACES))
    outer = _without_mark(text.rstrip(_SPACES).removesuffix(inner).rstrip(_SPACES)).rstrip(_SPACES)
    sign = _sign_at_end(outer) or inner or "="
    return _RELATIONS.get(sign, sign)


def _sign_at_end(text: str) -> str:
    """The sign that ends the text. The ``>`` of an arrow, an HTML tag or a comment is none."""
    if text.endswith(("->", "=>")) or _TAG.fullmatch(text, max(text.rfind("<"), 0)):
        return ""
    return next((sign for sign in _SIGNS if text.endswith(sign)), "")


def _exponent(text: str) -> tuple[str, int]:
    """(text before a power of ten, exponent) for ``1.5e30``, ``1.5 × 10^30``, ``1.5·10³⁰``; exponent 0 if there is none."""
    head = text.rstrip(_RAISED)
    raised = text[len(head) :]
    if raised:
        mantissa = _before_ten(head)
        return (text, 0) if mantissa is None else (mantissa, _power(raised.translate(_UP), f"10{raised}"))
    bare = text.removesuffix("}")
    head = bare.rstrip(_DIGITS)
    digits = bare[len(head) :]
    sign = head[-1:] if head.endswith(("+", "-")) else ""
    head = head.removesuffix(sign)
    if not digits:
        return text, 0
    if head.removesuffix("{").endswith("^"):
        mantissa = _before_ten(head.removesuffix("{").removesuffix("^"))
        return (text, 0) if mantissa is None else (mantissa, _power(f"{sign}{digits}", f"10^{sign}{digits}"))
    if head.endswith(("e", "E")) and head[-2:-1] in (*_DIGITS,) and bare == text:
        return head[:-1], _power(f"{sign}{digits}", f"{head[-1]}{sign}{digits}")
    return text, 0


def _before_ten(text: str) -> str | None:
    """The text before ``× 10``; ``None`` if the text does not end in it."""
    if not text.endswith("10"):
        return None
    head = text[:-3] if text[:-2].endswith(tuple(_SPACES)) else text[:-2]
    sign = next((sign for sign in _TIMES if head.endswith(sign)), "")
    if not sign:
        return None
    head = head.removesuffix(sign)
    return head[:-1] if head.endswith(tuple(_SPACES)) else head


def _power(digits: str, shown: str) -> int:
    if not re.fullmatch("[+-]?[0-9]{1,3}", digits):
        shown = shown if len(shown) <= 20 else f"{shown[:19]}…"
        raise BadInputError(f"the exponent of {shown} is not a number of one to three digits: write it as 1.5e30")
    return int(digits)


def reading(written: WrittenNumber, value: UnitValue) -> UnitWord | None:
    """The meaning of the written unit that fits the value; ``None`` if no meaning does."""
    if not written.unit:
        return UnitWord("", value.kind, Fraction(1)) if value.kind == units.NUMBER else None
    return next((w for w in units.meanings(written.unit) if w.kind == value.kind), None)


def holds(written: WrittenNumber, word: UnitWord, value: UnitValue) -> bool:
    """Whether the written number holds for the value: to its precision, or by its relation."""
    says, is_ = written.number * word.scale, value.number
    match written.relation:
        case "<":
            return is_ < says
        case ">":
            return is_ > says
        case "≤":
            return is_ <= says
        case "≥":
            return is_ >= says
        case "≈":
            return abs(says - is_) <= max(NEAR * abs(is_), written.half * word.scale)
    if _is_exact(written, word, value):
        return says == is_
    return abs(says - is_) <= written.half * word.scale


def _is_exact(written: WrittenNumber, word: UnitWord, value: UnitValue) -> bool:
    """Whether the number must be equal: an integer without exponent, in the base unit."""
    return word.scale == 1 and not written.places and not written.exponent and value.number.denominator == 1


def rewritten(written: WrittenNumber, word: UnitWord, value: UnitValue) -> str:
    """The correct digits, with as many decimals and with commas as written."""
    right = value.number / word.scale / Fraction(10) ** written.exponent
    digits = digits_of(right, written.places, commas="," in written.digits or (abs(right) >= 10**4 and written.places == 0))
    return digits.replace(",", _LATEX_COMMA) if _LATEX_COMMA in written.digits else digits


def digits_of(number: Fraction, places: int, *, commas: bool = True) -> str:
    """A number with ``places`` decimals, ties to even."""
    scaled = round(number * 10**places)
    sign, text = "-" if scaled < 0 else "", str(abs(scaled)).rjust(places + 1, "0")
    above, below = (text[:-places], text[-places:]) if places else (text, "")
    grouped = f"{int(above):,}" if commas else above
    return f"{sign}{grouped}{'.' if places else ''}{below}"

"""Numbers in a document: relation, digits, exponent, unit. The written precision is the tolerance.

A number is read backwards from the comment that follows it. What has no one meaning is refused, with what to write instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from reports.live import units
from reports.live.language import UnitValue
from reports.live.numerals import GROUP_SPACES, LATEX_COMMA, Numeral, numeral_at_end
from reports.live.numerals import MOST_DIGITS as MOST_DIGITS
from reports.live.relations import SPACES, relation_before
from reports.live.units import UnitWord
from reports.live.unread_numbers import UnreadNumberError, cannot_read, part_of_longer, regrouped, unread

NEAR = Fraction(5, 100)
"""The tolerance of ``≈``, as a share of the value."""

_WINDOW = 2 * MOST_DIGITS
"""Characters before a comment that are searched for its number."""

_MARKS = ("**", "__", "*", "_", "`")
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_UNIT = re.compile(r"×|(?:[A-Za-z]+[ -]){0,2}[A-Za-zµ$%][A-Za-z$%]*(?:/[A-Za-z]+)?")
_FORMULAS = (("$$", "$$"), ("$`", "`$"), ("$", "$"))
_LATEX_SIGNS = {"\\times": "×", "\\%": "%"}
_LATEX_UNIT = re.compile(r"\\(?:text|mathrm)\{[ ~]?([A-Za-z]+(?:/[A-Za-z]+)?)\}")
_LATEX_SPACE = re.compile(rf"(?:\\[,;: ]|~|[{SPACES}])+$")
_SEVERAL_WORDS = re.compile(
    rf"(?<=[0-9$*{SPACES}])(?P<scale>(?:{'|'.join(units.SCALES)})[{SPACES}]+)?"
    r"(?P<devices>(?:GPU|device)[- ])?(?P<unit>[A-Za-z]+(?:/[A-Za-z]+)?)$"
)
_CURRENCY = re.compile(r"(?:\b[A-Z]{1,3}|\\)?\$$")  # $5, US$5, and \$5, which is no formula
_SEPARATORS = re.compile(f"[,{GROUP_SPACES}]")


@dataclass(frozen=True)
class WrittenNumber:
    """A number in a line. ``start``, ``end``: positions of its digits, from 0. ``relation``: = ≈ < > ≤ ≥, in ``words`` if these are not
    empty. ``exact``: the value of a fraction or a power, which has no rounded digits."""

    relation: str
    digits: str
    exponent: int
    unit: str
    start: int
    end: int
    words: str = ""
    exact: Fraction | None = None

    @cached_property
    def number(self) -> Fraction:
        """The written number with its exponent, without the unit."""
        return self.plain * Fraction(10) ** self.exponent if self.exact is None else self.exact

    @property
    def plain(self) -> Fraction:
        return Fraction(_SEPARATORS.sub("", self.shown).replace("−", "-"))

    @property
    def shown(self) -> str:
        """The digits as a message shows them."""
        return self.digits.replace(LATEX_COMMA, ",")

    @property
    def power(self) -> str:
        """The exponent as a message shows it, ``e9``; empty without one."""
        return f"e{self.exponent}" if self.exponent else ""

    @property
    def said(self) -> str:
        """The number as a message shows it, with its relation and unit."""
        relation = self.words or self.relation.removeprefix("=")
        return " ".join(filter(None, (relation, f"{self.shown}{self.power}", self.unit)))

    @property
    def is_rewritable(self) -> bool:
        """Whether other digits say the same of another value. Bounds, words, fractions and powers are the author's."""
        return self.relation in ("=", "≈") and not self.words and self.exact is None

    @property
    def places(self) -> int:
        return len(self.digits.partition(".")[2])

    @property
    def separator(self) -> str:
        """What separates groups of three digits; empty if nothing does."""
        return next((c for c in (LATEX_COMMA, ",", *GROUP_SPACES) if c in self.digits), "")

    @cached_property
    def half(self) -> Fraction:
        """Half a unit of the last written decimal."""
        return Fraction(1, 2 * 10**self.places) * Fraction(10) ** self.exponent if self.exact is None else Fraction(0)


@dataclass(frozen=True, slots=True)
class _Ending:
    """A text that a number ends, without its unit. ``opening``: the mark that begins its formula, or empty."""

    head: str
    unit: str
    opening: str
    emphasized: bool


def written_before(line: str, end: int) -> WrittenNumber:
    """The number that ends at position ``end``. Raises ``UnreadNumberError`` if there is none or it has no one meaning, and
    ``BadInputError`` if it is too long."""
    from_ = max(0, end - _WINDOW)
    marked = line[from_:end].rstrip(SPACES)
    text = _without_mark(marked).rstrip(SPACES)
    ending = _ending(text, text != marked)
    numeral = numeral_at_end(ending.head, ending.emphasized) if not ending.unit or _UNIT.fullmatch(ending.unit) else None
    if numeral is None:
        start, message = unread(text, ending.head, ending.unit)
        raise UnreadNumberError(message, from_ + start)
    return _written(text, numeral, ending, from_)


def _ending(text: str, emphasized: bool) -> _Ending:
    text, opening = _formula(text)
    head, unit = _unit(text, bool(opening))
    if unit and not opening:  # behind a formula, as in $8.03$ GB
        between = "$" if unit.startswith("$") else ""
        head, opening = _formula(f"{head}{between}".rstrip(SPACES))
        unit = unit.removeprefix(between) if opening else unit
        head = head if opening else head.removesuffix(between)
    bare = head.rstrip(SPACES) if unit else head
    plain = _without_mark(bare) if unit else bare
    return _Ending(plain, unit, opening, emphasized or plain != bare)


def _written(text: str, numeral: Numeral, ending: _Ending, from_: int) -> WrittenNumber:
    """The number, once nothing before it makes it a part of something longer."""
    head, digits = _with_sign(numeral)
    begin = len(head)
    currency = None if ending.opening else _CURRENCY.search(head)
    head = head[: currency.start()] if currency else head.removesuffix(ending.opening)
    unit = f"{ending.unit}$" if currency else ending.unit
    relation = relation_before(head, not from_)
    longer = part_of_longer(head, digits, unit, relation.sign != "=")
    if longer:
        shown = ending.head[longer.start :]
        suggestion = regrouped(shown)
        advice = f"write {f'{suggestion} {unit}'.strip()}" if suggestion else longer.advice
        raise UnreadNumberError(cannot_read(text[longer.start :], advice), from_ + longer.start)
    if relation.unclear:
        raise UnreadNumberError(relation.unclear, from_ + begin)
    start = from_ + begin
    return WrittenNumber(
        relation.sign, digits, numeral.exponent, unit, start, start + len(digits), relation.words, _signed(numeral.exact, digits)
    )


def _with_sign(numeral: Numeral) -> tuple[str, str]:
    """(text before a number, its digits with their minus sign). The hyphen of a range, 10-12, is none."""
    head = numeral.head
    if not head.endswith(("-", "−")) or head[:-1].endswith(("-->", *"0123456789")):
        return head, numeral.digits
    return head[:-1], f"{head[-1]}{numeral.digits}"


def _signed(exact: Fraction | None, digits: str) -> Fraction | None:
    return -exact if exact is not None and digits.startswith(("-", "−")) else exact


def _formula(text: str) -> tuple[str, str]:
    """(text without the mark that ends a formula, the mark that begins it; empty if none ends here): ``$8.03\\times10^9$``, not ``5 $``."""
    for opening, closing in _FORMULAS:
        begin = text.rfind(opening, 0, max(len(text) - len(closing), 0))
        inside = text[begin + len(opening) : -len(closing)]
        if text.endswith(closing) and begin >= 0 and inside.strip(SPACES) == inside and inside and text[:begin].count("$") % 2 == 0:
            return text[: -len(closing)], opening
    return text, ""


def _unit(text: str, in_formula: bool) -> tuple[str, str]:
    """(text before the unit at its end, the unit or empty): ``GB``, in a formula also ``\\text{ GB}``, ``\\times`` and ``\\%``."""
    if in_formula:
        begin = text.rfind("\\")
        latex, word = text[begin:], _LATEX_UNIT.fullmatch(text, max(begin, 0))
        if word or latex in _LATEX_SIGNS:
            return _LATEX_SPACE.sub("", text[:begin]), word[1] if word else _LATEX_SIGNS[latex]
    several = _SEVERAL_WORDS.search(text)
    if several and (several["scale"] or several["devices"]):
        unit = " ".join(filter(None, ((several["scale"] or "").rstrip(SPACES), f"{several['devices'] or ''}{several['unit']}")))
        if units.meanings(unit):
            return text[: several.start()], unit
    head = text.rstrip(f"{_LETTERS}µ$%/×")
    return head, text[len(head) :]


def _without_mark(text: str) -> str:
    """The text without Markdown emphasis at its end."""
    mark = next((mark for mark in _MARKS if text.endswith(mark)), "")
    return text.removesuffix(mark)


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
    """Whether the number must be equal: a fraction, a power, or an integer without exponent in the base unit."""
    is_integer = word.scale == 1 and not written.places and not written.exponent and value.number.denominator == 1
    return written.exact is not None or is_integer


def rewritten(written: WrittenNumber, word: UnitWord, value: UnitValue) -> str:
    """The correct digits, with as many decimals and with the separator as written."""
    right = value.number / word.scale / Fraction(10) ** written.exponent
    separator = written.separator
    digits = digits_of(right, written.places, commas=bool(separator) or (abs(right) >= 10**4 and written.places == 0))
    return digits.replace(",", separator or ",")


def digits_of(number: Fraction, places: int, *, commas: bool = True) -> str:
    """A number with ``places`` decimals, ties to even."""
    scaled = round(number * 10**places)
    sign, text = "-" if scaled < 0 else "", str(abs(scaled)).rjust(places + 1, "0")
    above, below = (text[:-places], text[-places:]) if places else (text, "")
    grouped = f"{int(above):,}" if commas else above
    return f"{sign}{grouped}{'.' if places else ''}{below}"

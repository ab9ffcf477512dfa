"""Numbers as a document writes them: digits, a unit, how sure it is. The written precision is the tolerance."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from reports.live import units
from reports.live.language import Value
from reports.live.units import Word

NEAR = Fraction(5, 100)
"""What ``≈`` allows, as a share of the value."""

_RELATIONS = {"<=": "≤", ">=": "≥", "&lt;": "<", "&gt;": ">", "~": "≈"}
_UP = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SPACE = r"[ \u00a0\u202f]"
_NUMBER = re.compile(
    rf"""(?P<relation><=|>=|&lt;|&gt;|[<>≤≥≈~])?{_SPACE}*
    (?P<mark>\*\*|__|[*_`])?{_SPACE}*
    (?P<relation2><=|>=|&lt;|&gt;|[<>≤≥≈~])?{_SPACE}*
    (?P<money>\$)?
    (?P<digits>[-−]?(?:\d{{1,3}}(?:,\d{{3}})+|\d+)(?:\.\d+)?)
    (?:[eE](?P<e>[+-]?\d{{1,3}})|{_SPACE}?[×·]{_SPACE}?10(?:\^\{{?(?P<hat>[+-]?\d{{1,3}})\}}?|(?P<up>[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]{{1,4}})))?
    (?:\*\*|__|[*_`])?{_SPACE}*(?P<unit>[A-Za-zµ$%][A-Za-z$%]*(?:/[A-Za-z]+)?)?
    {_SPACE}*(?P<mark2>\*\*|__|[*_`])?{_SPACE}*$""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Written:
    """A number in a text: ``start`` and ``end`` are where its digits stand in the line, from 0. ``places`` are its decimals."""

    relation: str
    digits: str
    exponent: int
    unit: str
    start: int
    end: int

    @property
    def number(self) -> Fraction:
        """As the digits say, without the unit."""
        return self.plain * Fraction(10) ** self.exponent

    @property
    def plain(self) -> Fraction:
        return Fraction(self.digits.replace(",", "").replace("−", "-"))

    @property
    def places(self) -> int:
        return len(self.digits.partition(".")[2])

    @property
    def half(self) -> Fraction:
        """Half a unit of the last place."""
        return Fraction(1, 2 * 10**self.places) * Fraction(10) ** self.exponent


def written_before(line: str, end: int) -> Written | None:
    """The number that ends where a comment begins; ``None`` where there is none."""
    from_ = max(0, end - 120)
    found = _NUMBER.search(line, from_, end) if end - from_ < 120 else _NUMBER.search(line[:end], from_)
    if found is None or (found.start("digits") > from_ and re.match(r"[\w.,]", line[found.start("digits") - 1]) and not found["money"]):
        return None
    relation = found["relation"] or found["relation2"] or "="
    exponent = int(found["e"] or found["hat"] or (found["up"] or "0").translate(_UP))
    unit = "$" if found["money"] and not found["unit"] else f"{found['unit']}$" if found["money"] else found["unit"] or ""
    return Written(_RELATIONS.get(relation, relation), found["digits"], exponent, unit, *found.span("digits"))


def reading(written: Written, value: Value) -> Word | None:
    """What the unit that is written means beside such a value; ``None`` where it is the unit of something else."""
    if not written.unit:
        return Word("", value.kind, Fraction(1)) if value.kind == units.NUMBER else None
    return next((w for w in units.meanings(written.unit) if w.kind == value.kind), None)


def holds(written: Written, word: Word, value: Value) -> bool:
    """Whether what is written is true of the value: to the written precision, or as its sign says."""
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


def _is_exact(written: Written, word: Word, value: Value) -> bool:
    """A whole number written out in single units is meant to the last digit."""
    return word.scale == 1 and not written.places and not written.exponent and value.number.denominator == 1


def rewritten(written: Written, word: Word, value: Value) -> str:
    """The digits that would be right: as many places, commas where there were some."""
    right = value.number / word.scale / Fraction(10) ** written.exponent
    return digits_of(right, written.places, commas="," in written.digits or (abs(right) >= 10**4 and written.places == 0))


def digits_of(number: Fraction, places: int, *, commas: bool = True) -> str:
    """A number with so many decimals, ties to even."""
    whole = round(number * 10**places)
    sign, text = "-" if whole < 0 else "", str(abs(whole)).rjust(places + 1, "0")
    above, below = (text[:-places], text[-places:]) if places else (text, "")
    grouped = f"{int(above):,}" if commas else above
    return f"{sign}{grouped}{'.' if places else ''}{below}"

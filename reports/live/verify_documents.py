"""Checks of a live document: each claim against the value of its expression, with a message that has both values and the error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction

from calc.errors import BadInputError
from reports.live import units
from reports.live.document import DocumentClaim, LiveDocument, blocks, without_code
from reports.live.engine import Scope
from reports.live.language import LanguageError, UnitValue, evaluate
from reports.live.units import UnitWord
from reports.live.written_numbers import WrittenNumber, digits_of, holds, reading, rewritten

_SMALLEST, _LARGEST = Fraction(1, 10**300), Fraction(10**300)  # a float between them has full precision
_MOST_EXACT = 10**24  # a longer number is not shown to the last digit
_JUDGING = 10  # cost of a claim in operations, without its expression


class _UnreadError(BadInputError):
    """An expression at ``place`` of a document that has no value, for this ``reason``."""

    def __init__(self, place: str, reason: object) -> None:
        super().__init__(f"{place}: {reason}")
        self.reason = str(reason)


@dataclass(frozen=True, slots=True)
class JudgedClaim:
    """A claim with its verdict. ``right``: the correct digits; empty if new digits would not make the claim hold. ``exact``: the value to
    the last digit, where ``is_`` is rounded. ``unread``: why the expression has no value; then nothing else is known of it."""

    claim: DocumentClaim
    holds: bool
    says: str
    is_: str
    message: str
    right: str = ""
    exact: str = ""
    unread: str = ""


def judge(document: LiveDocument, scope: Scope) -> list[JudgedClaim]:
    """Each claim with its verdict, also where others cannot be read. Raises ``BadInputError`` if none can: that is bad input, not a failed
    claim; and where the document takes too many operations."""
    judged = [_read(claim, scope) for claim in document.claims]
    if all(claim.unread for claim in judged):
        for first in (*map(str, scope.failed), *(claim.unread for claim in judged)):
            raise BadInputError(first)
    return judged


def _read(claim: DocumentClaim, scope: Scope) -> JudgedClaim:
    try:
        return _judged(claim, _value(claim, scope))
    except BadInputError as error:
        if scope.work.remaining < 0:
            raise
        reason = error.reason if isinstance(error, _UnreadError) else str(error)
        return JudgedClaim(claim, False, "", "", f"not verified: {reason}", unread=str(error))


def _value(claim: DocumentClaim, scope: Scope) -> UnitValue:
    if claim.unread:
        raise _UnreadError(f"line {claim.line}, column {claim.column}", claim.unread)
    try:
        scope.work.spend(_JUDGING)
        return evaluate(claim.expr, scope.lookup, scope.work)
    except LanguageError as error:
        raise _UnreadError(f"line {claim.line}, column {claim.expr_column + error.column}", error) from None
    except BadInputError as error:
        raise _UnreadError(f"line {claim.line}", error) from None


def _judged(claim: DocumentClaim, value: UnitValue) -> JudgedClaim:
    written = claim.written
    if written is None:
        is_ = shown(value)
        return JudgedClaim(claim, False, "", is_, f"{claim.expr} = {is_}, but {claim.no_number}")
    says = written.said
    word = reading(written, value)
    if word is None:
        return _unit_mismatch(claim, written, value, says)
    number = _near(written, word, value) if written.relation in ("=", "≈") else _short(value.number / word.scale)
    is_ = f"{number}{f' {word.text}' if word.text else ''}"
    if holds(written, word, value):
        return JudgedClaim(claim, True, says, is_, "")
    off = f" ({_off(written.number * word.scale, value.number)})" if written.relation in ("=", "≈") else ""
    exact = _exactly(value, word, is_)
    hint = _hint(written, word, value)
    message = f"{claim.expr} = {is_}{f', exactly {exact}' if exact else ''}, document says {says}{off}{hint}"
    fixable = written.is_rewritable and not hint
    return JudgedClaim(claim, False, says, is_, message, rewritten(written, word, value) if fixable else "", exact)


def _exactly(value: UnitValue, word: UnitWord, is_: str) -> str:
    """The exact value that ``is_`` rounds: an integer in its base unit, else a fraction in that of ``word``, as a time is always. Empty
    where ``is_`` has every digit or the exact value is too long."""
    in_unit = value.number / word.scale
    if value.number.denominator == 1 and value.kind != units.SECOND:
        exact, unit = value.number, "bytes" if value.kind == units.BYTE and value.number != 1 else units.named(value.kind)
    else:
        exact, unit = in_unit, word.text
    if max(abs(exact.numerator), exact.denominator) >= _MOST_EXACT or _is_shown(in_unit, is_) or _is_shown(exact, is_):
        return ""
    return f"{_fraction(exact)} {unit}".strip()


def _is_shown(number: Fraction, text: str) -> bool:
    """Whether the digits at the beginning of a text are this number, not a rounded one."""
    return Fraction(text.partition(" ")[0].replace(",", "")) == number


def _fraction(number: Fraction) -> str:
    return digits_of(number, 0) if number.denominator == 1 else str(number)


_SHARES = ("%", "x", "×", "times")  # of one amount in another


def _unit_mismatch(claim: DocumentClaim, written: WrittenNumber, value: UnitValue, says: str) -> JudgedClaim:
    is_ = shown(value)
    unit = "bytes" if value.kind == units.BYTE else units.named(value.kind) or "a bare number"
    if not written.unit and any(word.kind == value.kind for word in units.meanings(claim.behind)):
        why = f"the number has no unit before its comment: put the comment after {claim.behind}"
    elif not written.unit:
        why = f"the number has no unit: write one, such as {is_.partition(' ')[2]}"
    elif written.unit.removesuffix("s") in ("month", "year"):
        why = f"{written.unit} differ in length: write days"
    elif not units.meanings(written.unit):
        why = f'unknown unit "{written.unit}": {_instead_of_unit(written, value) or f"expected {unit}"}'
    elif written.unit in _SHARES:
        why = f"wrong unit {written.unit}: the expression is in {unit}; divide it by an amount in {unit}, with its unit"
    else:
        why = f"wrong unit {written.unit}: expected {unit}{_with_unit(written.unit) if value.kind == units.NUMBER else ''}"
    return JudgedClaim(claim, False, says, is_, f"{claim.expr} = {is_}, document says {says}: {why}")


def _with_unit(unit: str) -> str:
    """How an expression gets the kind of a unit; empty if it has no base unit of its own."""
    base = {units.BYTE: "B", units.FLOP: "FLOP", units.SECOND: "s"}.get(units.meanings(unit)[0].kind)
    return f"; an amount in an expression has its unit, such as 2 {base}" if base else ""


def _instead_of_unit(written: WrittenNumber, value: UnitValue) -> str:
    """What to write instead of an unknown unit; empty if nothing is near. ``Ki`` is 1,024, which no unit of a document is."""
    near = units.nearest(written.unit, value.kind)
    scale = units.binary_scale(written.unit)
    number = written.number * (scale or 1)
    is_count = scale is not None and value.kind == units.NUMBER and number.denominator == 1
    return f"did you mean {near}?" if near else f"write {digits_of(number, 0)}" if is_count else ""


def _hint(written: WrittenNumber, word: UnitWord, value: UnitValue) -> str:
    """The other unit of the same kind in which the digits are correct, or that they are without one; empty if there is none."""
    if written.relation != "=":
        return ""
    if word.scale != 1 and value.kind == units.NUMBER and holds(written, _NO_UNIT, value):
        return f": the number is correct without {word.text}: write {written.shown}{written.power}"
    near = abs(value.number / written.number) if written.number else None  # half a unit of the last place is at most half the number
    for candidate in units.words_of(value.kind):
        if near is not None and not near <= 2 * candidate.scale <= 4 * near:
            continue
        if candidate.scale not in (word.scale, 1 if value.kind == units.NUMBER else 0) and holds(written, candidate, value):
            return f": the number is correct in {candidate.text}; write {candidate.text}"
    return ""


_NO_UNIT = UnitWord("", units.NUMBER, Fraction(1))


def _near(written: WrittenNumber, word: UnitWord, value: UnitValue) -> str:
    """The value in the written unit, with enough digits to differ from the written number, three at least."""
    number = value.number / word.scale
    places = written.places if not written.exponent else 0
    if written.exponent or written.exact is not None:
        return _short(number)
    while places < 12 and round(number, places) != number and (round(number, places) == written.number or abs(number) * 10**places < 100):
        places += 1
    if number.denominator == 1 and not written.places:
        places = 0
    return digits_of(number, places)


def _off(says: Fraction, is_: Fraction) -> str:
    if not is_:
        return "the value is 0"
    share = 100 * (says - is_) / abs(is_)
    if abs(share) >= 10**6:
        return "wrong by orders of magnitude"
    if abs(share) >= 100:
        return f"{round(share):+,} %"
    rounded = (f"{float(share):+.{digits}g}" for digits in range(2, 16))
    return f"{next((text for text in rounded if abs(float(text)) < 100), '-100')} %"  # below 100 in size, unless a 0 is written


def shown(value: UnitValue) -> str:
    """A value in the largest decimal unit that leaves it above 1, at most days."""
    usual = (w for w in units.words_of(value.kind) if w.text and not any(part in w.text for part in ("i", "week", "FLOPs")))
    fitting = [w for w in usual if abs(value.number) >= w.scale]
    if value.kind == units.NUMBER or not fitting:
        exact = value.number.denominator == 1 and abs(value.number) < 10**15
        text = f"{int(value.number):,}" if exact else _short(value.number)
        return f"{text} {units.named(value.kind)}".strip()
    return f"{_short(value.number / fitting[-1].scale)} {fitting[-1].text}"


def _short(number: Fraction) -> str:
    """A number with six significant digits, also outside the range of a float; its exponent as documents write it, ``e9`` and ``e-9``."""
    if not number or _SMALLEST < abs(number) < _LARGEST:
        text = f"{float(number):.6g}"
    else:
        context = Context(prec=6, Emax=99_999, Emin=-99_999)
        text = f"{context.divide(Decimal(number.numerator), Decimal(number.denominator)).normalize(context):.6g}"
    digits, _, exponent = text.partition("e")
    return f"{digits}e{int(exponent)}" if exponent else digits


def fixed(document: LiveDocument, findings: Sequence[JudgedClaim]) -> str:
    """The document with corrected digits for failed claims; wrong units and inequalities are unchanged."""
    right: dict[int, list[tuple[WrittenNumber, str]]] = {}
    for finding in findings:
        if finding.right and finding.claim.written is not None:
            right.setdefault(finding.claim.line, []).append((finding.claim.written, finding.right))
    lines = [_replaced(line, right.get(number, ())) for number, line in enumerate(document.lines, 1)]
    return document.mark + "".join(f"{line}{end}" for line, end in zip(lines, document.ends, strict=True))


def _replaced(line: str, right: Sequence[tuple[WrittenNumber, str]]) -> str:
    pieces: list[str] = []
    at = 0
    for written, digits in right:
        pieces += (line[at : written.start], digits)
        at = written.end
    return "".join((*pieces, line[at:]))


# A number in prose begins outside words, numbers, paths and links: digits and commas, then fraction and exponent.
_BEGIN = re.compile(r"(?<![\w.,#/:(\[-])[0-9][0-9,]*")
_FRACTION = re.compile(r"(?:\.[0-9]+)?")
_EXPONENT = re.compile(r"(?:[eE][+-]?[0-9]+)?")
_BEHIND = re.compile(r"[\w-]*")
_NUMBERING = re.compile(r"\s*(?:#+\s*[0-9]+|[0-9]+[.)])\s")
_HIDING = re.compile(r"<!--|\]\(|`")
_HIDDEN_TO = {"<!--": "-->", "](": ")", "`": "`"}


def unmarked(document: LiveDocument) -> Iterator[tuple[int, int, str]]:
    """(line, column, digits) of each number in prose without a claim; code, links and numbering are left out."""
    claimed = {(c.line, at) for c in document.claims if not c.unread for at in range(c.column - 1, c.expr_column)}
    for number, line, block in blocks(document.lines):
        if block:
            continue
        for start, digits in _numbers(_prose(line)):
            if (number, start) not in claimed:
                yield number, start + 1, digits


def _numbers(prose: str) -> Iterator[tuple[int, str]]:
    """(start, digits) of each number; dates, ranges and fractions (2026-11-24, 3/4) are left out."""
    for begin in _BEGIN.finditer(prose):
        end = begin.start() + len(begin[0].rstrip(","))
        end += _length(_FRACTION, prose, end) if end == begin.end() else 0
        behind = end + _length(_BEHIND, prose, end)
        if re.search("-[0-9]", prose[end:behind]) or re.match("/[0-9]", prose[behind : behind + 2]):
            continue
        yield begin.start(), prose[begin.start() : end + _length(_EXPONENT, prose, end)]


def _length(pattern: re.Pattern[str], text: str, at: int) -> int:
    """The length of the match at ``at``; 0 if there is none."""
    match = pattern.match(text, at)
    return len(match[0]) if match else 0


def _prose(line: str) -> str:
    """The line with spaces for comments, link targets, code and the number of a heading or list item."""
    text = without_code(line)
    numbering = _NUMBERING.match(text)
    at = numbering.end() if numbering else 0
    pieces = [" " * at]
    unclosed: set[str] = set()
    for opened in _HIDING.finditer(text):
        if opened.start() < at or opened[0] in unclosed:
            continue
        sign = _HIDDEN_TO[opened[0]]
        close = text.find(sign, opened.end())
        if close < 0:
            unclosed.add(opened[0])
            continue
        pieces += (text[at : opened.start()], " " * (close + len(sign) - opened.start()))
        at = close + len(sign)
    return "".join((*pieces, text[at:]))

"""Checking a live document: every claim against what its expression comes to, with a message that says where, what and how far off."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.errors import BadInputError
from reports.live import units
from reports.live.document import Claim, Document, blocks, without_code
from reports.live.engine import Scope
from reports.live.language import LanguageError, Value, evaluate
from reports.live.units import Word
from reports.live.written import Written, digits_of, holds, reading, rewritten


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim with its verdict. ``right`` are the digits that would hold, empty where rewriting them would not be enough."""

    claim: Claim
    holds: bool
    says: str
    is_: str
    message: str
    right: str = ""


def judge(document: Document, scope: Scope) -> list[Finding]:
    """A finding for each claim. An expression that says nothing is bad input, not a failed claim."""
    return [_judged(claim, _value(claim, scope)) for claim in document.claims]


def _value(claim: Claim, scope: Scope) -> Value:
    try:
        return evaluate(claim.expr, scope.lookup)
    except LanguageError as error:
        raise BadInputError(f"line {claim.line}, column {claim.expr_column + error.column}: {error}") from None


def _judged(claim: Claim, value: Value) -> Finding:
    written = claim.written
    if written is None:
        is_ = shown(value)
        return Finding(claim, False, "", is_, f"{claim.expr} = {is_}, and no number stands before the comment: write one")
    says = f"{_sign(written)}{written.digits}{_exponent(written)}{f' {written.unit}' if written.unit else ''}"
    word = reading(written, value)
    if word is None:
        return _of_other_unit(claim, written, value, says)
    is_ = f"{_near(written, word, value)}{f' {word.text}' if word.text else ''}"
    if holds(written, word, value):
        return Finding(claim, True, says, is_, "")
    off = _off(written.number * word.scale, value.number)
    message = f"{claim.expr} = {is_}, document says {says} ({off}){_hint(written, word, value)}"
    fixable = written.relation in ("=", "≈") and not _hint(written, word, value)
    return Finding(claim, False, says, is_, message, rewritten(written, word, value) if fixable else "")


def _of_other_unit(claim: Claim, written: Written, value: Value, says: str) -> Finding:
    is_ = shown(value)
    unit = units.named(value.kind) or "a bare number"
    if not written.unit:
        why = f"the number has no unit and the value is in {unit}: write the unit"
    elif written.unit.removesuffix("s") in ("month", "year"):
        why = f"{written.unit} are not all equally long: write days"
    elif not units.meanings(written.unit):
        why = f"{written.unit} is no unit that is known here"
    else:
        why = f"{written.unit} is not a unit of it: the value is in {unit}"
    return Finding(claim, False, says, is_, f"{claim.expr} = {is_}, document says {says}: {why}")


def _hint(written: Written, word: Word, value: Value) -> str:
    """Where the digits are right in another unit of the same kind: which."""
    if written.relation != "=":
        return ""
    for other in units.words_of(value.kind):
        if other.scale != word.scale and other.text and holds(written, other, value):
            return f": the number is right in {other.text}; write {other.text}"
    return ""


def _near(written: Written, word: Word, value: Value) -> str:
    """The value in the written unit, with enough digits to tell it from what is written."""
    number = value.number / word.scale
    places = written.places if not written.exponent else 0
    if written.exponent:
        return f"{float(number):.6g}"
    while places < 12 and round(number, places) == written.number and number != written.number:
        places += 1
    if number.denominator == 1 and not written.places:
        places = 0
    return digits_of(number, places)


def _off(says: Fraction, is_: Fraction) -> str:
    if not is_:
        return "the value is 0"
    share = 100 * (says - is_) / abs(is_)
    return f"{float(share):+.2g} %" if abs(share) < 10**6 else "another order of magnitude"


def shown(value: Value) -> str:
    """A value in the largest decimal unit that leaves it above 1; a time in days at most, as nobody says weeks of what takes months."""
    usual = (w for w in units.words_of(value.kind) if w.text and "i" not in w.text and not w.text.startswith("week"))
    fitting = [w for w in usual if abs(value.number) >= w.scale]
    if value.kind == units.NUMBER or not fitting:
        exact = value.number.denominator == 1 and abs(value.number) < 10**15
        text = f"{int(value.number):,}" if exact else f"{float(value.number):.6g}"
        return f"{text} {units.named(value.kind)}".strip()
    return f"{float(value.number / fitting[-1].scale):.6g} {fitting[-1].text}"


def _sign(written: Written) -> str:
    return "" if written.relation == "=" else f"{written.relation} "


def _exponent(written: Written) -> str:
    return f"e{written.exponent}" if written.exponent else ""


def fixed(document: Document, findings: Sequence[Finding]) -> str:
    """The document with the digits of failed claims replaced where that is enough; unit questions and inequalities stay."""
    lines = list(document.lines)
    for finding in reversed([f for f in findings if f.right]):
        written, at = finding.claim.written, finding.claim.line - 1
        assert written is not None  # what has right digits has some to replace
        lines[at] = lines[at][: written.start] + finding.right + lines[at][written.end :]
    return "\n".join(lines)


_ANY = re.compile(r"(?<![\w.,#/:(\[-])\d(?:[\d,]*\d)?(?:\.\d+)?(?![\w-]*[-/]\d)(?:[eE][+-]?\d+)?")


def unmarked(document: Document) -> Iterator[tuple[int, int, str]]:
    """Numbers of the prose that no comment stands behind, with line and column. Code, links and numbering are left out."""
    claimed = {(c.line, c.written.start) for c in document.claims if c.written is not None}
    for number, line, block in blocks(document.lines):
        if block:
            continue
        prose = re.sub(r"<!--.*?-->|\]\([^)]*\)|`[^`]*`|^\s*(?:#+\s*\d+|\d+[.)])\s", lambda m: " " * len(m[0]), without_code(line))
        for found in _ANY.finditer(prose):
            if (number, found.start()) not in claimed:
                yield number, found.start() + 1, found.group()

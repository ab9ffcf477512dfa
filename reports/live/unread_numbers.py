"""Why a number before a comment cannot be read, and what to write instead.

Digits that are part of a word, a range or a product are no number by themselves: 808 in ``124 43 808``, 7 in ``5–7``. A claim of them
could hold, or be rewritten, where the document says something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from calc.errors import BadInputError
from reports.live import units
from reports.live.relations import SPACES

_LONGEST_SHOWN = 60
_WORD = "put the comment directly after the number"
_RANGE = "put a comment after each end"
_PRODUCT = "put a comment after each number, or write the result"
_SEVERAL = "put a comma between two numbers, or write one as 1,234,567"
_CHARACTER = "write the character itself, not its entity"
_PLAIN = "write its digits, or a power of ten as 1.5e30"

_UNIT = r"(?P<unit>[A-Za-zµ$%][A-Za-z$%/]*)"
_NUMBER = r"(?<![\w.,])(?<![A-Za-z]-)[-−]?[0-9](?:[0-9.,]*[0-9])?[⁰¹²³⁴⁵⁶⁷⁸⁹]*[)\]}]*"
_OPERAND = re.compile(rf"{_NUMBER}(?:[{SPACES}]*{_UNIT})?$")
_BETWEEN = re.compile(rf"\bbetween\s+{_NUMBER}[{SPACES}]*{_UNIT}?\s+and\s+$", re.IGNORECASE)
_TO = ("to", "through", "till", "until", "–", "—", "‒", "−", "-", "…", "~", "〜")
_TIMES = ("by", "plus", "minus", "times", "x", "+", "±", "×", "·", "⋅", "*", "/", "÷", "\\times", "\\cdot", "\\pm", "\\*")
_AFTER_CLAIM = re.compile(rf"-->\s*(?:[A-Za-z$%/]+\s+)?(?:{'|'.join(map(re.escape, (*_TO, *_TIMES, ':')))})\s*$")
_BLOCKS = {"td", "th", "tr", "li", "p", "br", "div", "table", "dd", "dt", "h1", "h2", "h3", "h4", "hr", "summary", "caption"}
_TAG_AT_END = re.compile(r"</?([A-Za-z][A-Za-z0-9]*)[^<>]*>$")
# What ends the text before digits, so that these are a part of something longer.
_PARTS = (
    (re.compile(r"[0-9]['’´]$"), _PLAIN),
    (re.compile(r"[.,^/\\}]$"), _PLAIN),
    (re.compile(r"[√∛±∓]\s*$"), "write the result"),
    (re.compile(r"[≠≪≫≲≳∝]\s*$"), "write one of ≈ < > ≤ ≥ before it"),
    (re.compile(r"[€£¥₩₹]\s*$"), "write it in dollars"),
    (re.compile(r"[0-9]:$"), _PRODUCT),
    (re.compile(r"[\w)\]][·⋅]$"), _PRODUCT),
    (re.compile(r"[A-Za-z)\]]\s*[×÷±+]\s*$"), _PRODUCT),
    (re.compile(r"[-−‐‑‒–]$"), "write one minus sign, as -"),
    (re.compile(r"[0-9]\\[,;:! ]\s*$"), _PLAIN),
    (re.compile(r"\\(?!(?:approx|sim|leq?|geq?|[lg]t|q?quad)\b)[A-Za-z]+\s*$"), _PLAIN),
    (re.compile(r"[0-9]\s*&(?!(?:lt|gt);)#?\w{1,20};\s*$"), _CHARACTER),
    (re.compile(r"&(?!(?:lt|gt|nbsp|ensp|emsp|thinsp|quot|amp);)#?\w{1,20};\s*$"), _CHARACTER),
)
_SEPARATED = re.compile(rf"(?<![\w.,])[.,]?[0-9](?:[0-9.,_'’{SPACES}]|\{{,\}}|\\,)*$")
_INTERRUPTED = re.compile(
    rf"(?<![\w.,])[0-9](?:[0-9.,]*[0-9])?[{SPACES}]*[A-Za-zµ$%/]*(?P<between>[{SPACES}]*[A-Za-z]*[\s)\]}}|.,;:!?\"'*_`+~]*)$"
)
_GROUPED = re.compile(rf"[0-9]{{1,3}}(?:(?:\.[0-9]{{3}}){{2,}}|(?:,[0-9]{{2,3}}){{2,}}|(?:[_'’{SPACES}][0-9]{{3}})+)")
_WITH_ENTITY = re.compile(r"[0-9][0-9.,]*&nbsp;[A-Za-zµ$%/]*$")


class UnreadNumberError(BadInputError):
    """The number before a comment cannot be read. ``start``: the position in its line at which it begins, from 0."""

    def __init__(self, message: str, start: int) -> None:
        super().__init__(message)
        self.start = start


@dataclass(frozen=True, slots=True)
class PartOfLonger:
    """Digits that are no number by themselves. ``start``: the position at which the longer expression begins."""

    start: int
    advice: str


def cannot_read(shown: str, advice: str) -> str:
    """The message for a number that is written as ``shown``."""
    text = shown.strip()
    return f'cannot read "{text if len(text) <= _LONGEST_SHOWN else f"…{text[1 - _LONGEST_SHOWN :]}"}" as a number: {advice}'


def part_of_longer(head: str, digits: str, unit: str, is_related: bool) -> PartOfLonger | None:
    """What the ``digits`` after ``head`` are a part of, ``None`` if they are a number. ``is_related``: a relation precedes them."""
    if _AFTER_CLAIM.search(head):
        return None  # each number of a range or a product has its claim
    text = _visible(head)
    readings = (_operators(text, unit), _parts(text, head), _neighbors(text, digits, unit, is_related or text != head))
    return next((part for parts in readings for part in parts), None)


def _visible(head: str) -> str:
    """The text that a reader sees directly before a number: without emphasis, inline tags and comments at its end."""
    while True:
        text = head.rstrip("*_`")
        tag = _TAG_AT_END.search(text, max(text.rfind("<"), 0))
        if tag and tag[1].lower() not in _BLOCKS:
            text = text[: tag.start()]
        if text.endswith("-->") and "<!--" in text:
            text = text[: text.rindex("<!--")]
        if text == head:
            return text
        head = text


def _word_start(text: str) -> int:
    """The position at which the last word of a text begins."""
    word = re.search(r"[^\s|(]*\s*$", text)
    return word.start() if word else len(text)


def _parts(text: str, head: str) -> Iterator[PartOfLonger]:
    if text[-1:].isalnum():
        yield PartOfLonger(_word_start(text), _PRODUCT if head.endswith("*") else _WORD)
    for pattern, advice in _PARTS:
        if pattern.search(text):
            yield PartOfLonger(_word_start(text), advice)


def _operators(text: str, unit: str) -> Iterator[PartOfLonger]:
    """Ranges, sums and products that the digits end."""
    between = _BETWEEN.search(text)
    if between:
        yield PartOfLonger(between.start(), _RANGE)
    for signs, fitting, advice in ((_TO, unit, _RANGE), (_TIMES, None, _PRODUCT)):
        operands = (_operand(_before_sign(text, sign), fitting) for sign in signs)
        yield from (PartOfLonger(operand.start(), advice) for operand in operands if operand)


def _before_sign(text: str, sign: str) -> str:
    """The text before a sign at its end; empty if it does not end in it. Spaces surround a word, and one follows ``*``."""
    bare = text.rstrip(SPACES)
    left = bare.removesuffix(sign)
    adjoins = (bare == text and (sign == "*" or sign.isalpha())) or (sign.isalpha() and left == left.rstrip(SPACES))
    return "" if left == bare or adjoins or (sign == "*" and left.endswith("*")) else left


def _operand(text: str, unit: str | None) -> re.Match[str] | None:
    """The number that ends a text, bare or with a unit that fits ``unit``; with any that is defined if that is ``None``."""
    operand = _OPERAND.search(text.rstrip(f"{SPACES}*_`"))
    if operand is None or not operand["unit"]:
        return operand
    return operand if units.meanings(operand["unit"]) and (unit is None or _are_alike(operand["unit"], unit)) else None


def _are_alike(first: str, second: str) -> bool:
    """Whether two unit words may measure the same. Things do not: 8 layers, 12 heads."""
    kinds = {meaning.kind for meaning in units.meanings(first)}
    return first not in units.THINGS and any(meaning.kind in kinds for meaning in units.meanings(second))


def _neighbors(text: str, digits: str, unit: str, is_set_off: bool) -> Iterator[PartOfLonger]:
    """Numbers and words that only spaces separate from the digits: 2024 124, 2 h 30, GPT 2 124 439. ``is_set_off``: a relation or a mark
    of emphasis says where these begin."""
    left = text.rstrip(SPACES)
    operand = _operand(left, unit) if left != text else None
    if operand and not left.endswith((")", "]", "}")):
        yield PartOfLonger(operand.start(), _SEVERAL)
    space = next((c for c in digits if c in SPACES), "")
    if space and left[-1:].isalnum() and not is_set_off and (space == " " or text.endswith(space)):
        yield PartOfLonger(_word_start(text), f"write {regrouped(digits)}, or put a comma before the number")


def regrouped(digits: str) -> str:
    """Digits with other separators, as Napkin reads them: 8,03 is 8.03, 124'439 is 124,439; empty if they have no one meaning."""
    text = digits.replace("\\,", " ").replace("{,}", ",")
    if _GROUPED.fullmatch(text):
        return f"{int(re.sub('[^0-9]', '', text)):,}"
    if re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+", text):
        return text.replace(".", "_").replace(",", ".").replace("_", ",")
    decimal = re.fullmatch(r"([0-9]*)[.,]([0-9]+)", text)
    return f"{decimal[1] or 0}.{decimal[2]}" if decimal else ""


def unread(text: str, head: str, unit: str) -> tuple[int, str]:
    """(position, message) for a ``text`` that ends in no number; ``head`` is the text without the ``unit`` at its end."""
    separated = _SEPARATED.search(head)
    suggestion = regrouped(separated[0].rstrip(SPACES)) if separated else ""
    if separated and suggestion:
        return separated.start(), cannot_read(text[separated.start() :], f"write {f'{suggestion} {unit}'.strip()}")
    entity = _WITH_ENTITY.search(text)
    if entity:
        return entity.start(), cannot_read(entity[0], f"write {entity[0].replace('&nbsp;', ' ')}")
    interrupted = _INTERRUPTED.search(text)
    if interrupted and interrupted["between"].strip():
        between = interrupted["between"].strip()
        quote = "'" if '"' in between else '"'
        return interrupted.start(), f"{quote}{between}{quote} separates the number from its comment: {_WORD}"
    token = text[_word_start(text) :]
    if any(c.isdigit() for c in token):
        return len(text) - len(token), cannot_read(token, _PLAIN if token.endswith("}") else _WORD)
    return len(text), "no number in digits precedes the comment: write one"

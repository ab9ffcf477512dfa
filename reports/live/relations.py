"""What a document says of a number: that it is equal, above, below or near, by a sign or in words.

Words are as binding as signs: ``less than 200 M`` holds where the value is less. Where words have a second meaning, nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_RELATIONS = {
    "<=": "≤", ">=": "≥", "&lt;": "<", "&gt;": ">", "~": "≈", "\\approx": "≈", "\\sim": "≈",
    "\\le": "≤", "\\leq": "≤", "\\ge": "≥", "\\geq": "≥", "\\lt": "<", "\\gt": ">",
}  # fmt: skip
_SIGNS = (*_RELATIONS, "<", ">", "≤", "≥", "≈")
_WORDS = {
    "<": "less than|fewer than|smaller than|lower than|under|below",
    ">": "more than|greater than|larger than|higher than|over|above",
    "≤": "at most|up to",
    "≥": "at least",
    "≈": "about|approximately|roughly|around|nearly|almost",
}
_NEGATED = {"<": "≥", ">": "≤", "≤": ">", "≥": "<"}
_PHRASE = re.compile(rf"(?<![\w-])(?P<no>(?:not|no|never)\s+)?(?P<words>{'|'.join(_WORDS.values())})$".replace(" ", r"\s+"), re.IGNORECASE)
_CONTRACTED = re.compile(r"n['’]t\s+$", re.IGNORECASE)
# Verbs after which the words are no bound: parts are sharded over 8 devices, and add up to 12.
_UNCLEAR = {
    "over": re.compile(
        r"(?:\w+ed|split|spread|sums?|means?|averages?|products?|loops?|iterates?|r[au]ns?|shards?|reduces?|Σ|∑)\s+$", re.IGNORECASE
    ),
    "up to": re.compile(r"(?:add(?:s|ed|ing)?|sum(?:s|med|ming)?|comes?)\s+$", re.IGNORECASE),
}
_MEANT = {"over": "write > or across", "up to": "write = or ≤"}
_MARKS = "*_`"
SPACES = " \u00a0\u202f\u2009"
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")


@dataclass(frozen=True, slots=True)
class WrittenRelation:
    """``sign``: = ≈ < > ≤ ≥. ``words``: as the document has it, empty for a sign. ``unclear``: why it cannot be read; empty if it can."""

    sign: str = "="
    words: str = ""
    unclear: str = ""


def relation_before(text: str, begins_line: bool) -> WrittenRelation:
    """The relation at the end of the text before a number, outside its emphasis or inside. ``begins_line``: the text is all of its line."""
    relations = list(_relations(text, begins_line))
    if not relations:
        return WrittenRelation()
    unclear = next((relation.unclear for relation in relations if relation.unclear), "") or _contradiction(relations)
    return WrittenRelation(relations[0].sign, next((relation.words for relation in relations if relation.words), ""), unclear)


def _contradiction(relations: list[WrittenRelation]) -> str:
    shown = [relation.words or relation.sign for relation in reversed(relations)]
    differ = len({relation.sign for relation in relations}) > 1
    return f'cannot read "{" ".join(shown)}" as one relation: write one of them' if differ else ""


def _relations(text: str, begins_line: bool) -> Iterator[WrittenRelation]:
    """The relations at the end of a text, the last one first: of ``less than about`` there are two."""
    while True:
        text = text.rstrip(SPACES)
        if begins_line and not text.strip(f"{SPACES}>"):
            return  # a line that begins with > is a quotation
        sign, phrase = _sign_at_end(text), _PHRASE.search(text)
        bare = text.rstrip(_MARKS)
        if sign:
            yield WrittenRelation(_RELATIONS.get(sign, sign))
            text = text.removesuffix(sign)
        elif phrase:
            yield _worded(text, phrase)
            text = text[: phrase.start()]
        elif bare == text:
            return
        else:
            text = bare


def _sign_at_end(text: str) -> str:
    """The sign that ends the text. The ``>`` of an arrow, an HTML tag or a comment is none."""
    if text.endswith(("->", "=>")) or _TAG.fullmatch(text, max(text.rfind("<"), 0)):
        return ""
    return next((sign for sign in _SIGNS if text.endswith(sign)), "")


def _worded(text: str, phrase: re.Match[str]) -> WrittenRelation:
    words = " ".join(phrase["words"].lower().split())
    sign = next(sign for sign, phrases in _WORDS.items() if words in phrases.split("|"))
    before = text[: phrase.start()]
    shown = " ".join(phrase[0].lower().split())
    if not phrase["no"] and not _CONTRACTED.search(before):
        return WrittenRelation(sign, shown, _unclear(words, before))
    if sign in _NEGATED:
        return WrittenRelation(_NEGATED[sign], shown if phrase["no"] else f"not {shown}")
    return WrittenRelation(sign, shown, f'cannot read "not {words}" as a relation: write < or >')


def _unclear(words: str, before: str) -> str:
    """Why the words after ``before`` may be no bound; empty if they are one."""
    verb = _UNCLEAR[words].search(before) if words in _UNCLEAR else None
    return f'"{verb[0].strip()} {words}" may be a bound or not: {_MEANT[words]}' if verb else ""

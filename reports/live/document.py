"""A Markdown document as a checker reads it: its ```` ```napkin ```` blocks, and the numbers that a comment says what they must equal.

A block may also be a comment, from a line ``<!--napkin`` to a line ``-->``: what a reader of the page is spared. What stands in other
fenced blocks, in inline code or in HTML comments of other kinds is text, not a claim.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from calc.errors import BadInputError
from reports.live.written import Written, written_before

LONGEST = 5_000_000
_MOST = 10_000
_FENCE = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})\s*(?P<word>[\w-]*)[^`]*$")
_HIDDEN = re.compile(r" {0,3}<!--\s?napkin\s*$")
_CLAIM = re.compile(r"<!--=(?P<expr>.*?)-->")
_OPEN = re.compile(r"<!--=(?!.*-->)")


@dataclass(frozen=True, slots=True)
class Statement:
    """A line of a ``napkin`` block; line and column count from 1."""

    text: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A number and the expression that it must equal. ``written`` is ``None`` where no number stands before the comment."""

    expr: str
    written: Written | None
    line: int
    column: int
    expr_column: int


@dataclass(frozen=True, slots=True)
class Document:
    lines: tuple[str, ...]
    statements: tuple[Statement, ...]
    claims: tuple[Claim, ...]


def read(text: str) -> Document:
    """The document's statements and claims, in order."""
    if len(text) > LONGEST:
        raise BadInputError(f"a document of {len(text):,} characters: {LONGEST:,} are the most that is read")
    lines = text.split("\n")
    statements: list[Statement] = []
    claims: list[Claim] = []
    for number, line, block in blocks(lines):
        if block == "napkin":
            said = re.sub(r"(^|\s)#.*", "", line).strip()
            if said:
                statements.append(Statement(said, number, len(line) - len(line.lstrip()) + 1))
        elif not block:
            claims += _claims(number, line)
    if len(claims) > _MOST:
        raise BadInputError(f"a document of {len(claims):,} claims: {_MOST:,} are the most that is read")
    return Document(tuple(lines), tuple(statements), tuple(claims))


def blocks(lines: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Each line with its number and the word of the block it is in, fenced or hidden; what begins and ends a block is left out."""
    end, word, began = "", "", 0
    for number, line in enumerate(lines, 1):
        found = _FENCE.match(line)
        if not end and found:
            end, word, began = found["fence"], found["word"] or "text", number
        elif not end and _HIDDEN.match(line):
            end, word, began = "-->", "napkin", number
        elif end and _ends(line, end, found):
            end = word = ""
        else:
            yield number, line, word
    if end and word == "napkin":
        raise BadInputError(f"line {began}: the napkin block that begins here does not end: close it with {end}")


def _ends(line: str, end: str, fence: re.Match[str] | None) -> bool:
    if end == "-->":
        return line.strip() == end
    return fence is not None and not fence["word"] and fence["fence"].startswith(end)


def _claims(number: int, line: str) -> Iterator[Claim]:
    shown = without_code(line)
    unclosed = _OPEN.search(shown)
    if unclosed:
        raise BadInputError(f"line {number}, column {unclosed.start() + 1}: a claim begins with <!--= and its line has no --> behind it")
    for found in _CLAIM.finditer(shown):
        expr = found["expr"]
        written = written_before(line, found.start())
        column = (written.start if written else found.start()) + 1
        yield Claim(expr.strip(), written, number, column, found.start("expr") + len(expr) - len(expr.lstrip()) + 1)


def without_code(line: str) -> str:
    """The line with inline code blanked out where a comment stands in it: a claim that is quoted is none."""
    return re.sub(r"(`+)(?!`)(.*?)(?<!`)\1(?!`)", lambda m: " " * len(m[0]) if "<!--" in m[0] else m[0], line)

"""Markdown text → ``LiveDocument``: the statements of its ```` ```napkin ```` blocks, and its claims (numbers followed by a comment).

A block may also be a comment from a line ``<!--napkin`` to a line ``-->``, which readers of the page do not see. Text in other fenced
blocks, in inline code or in other HTML comments is no claim.

Each line is read once, in time proportional to its length; lengths and counts are bounded.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from calc.errors import BadInputError
from reports.live.unread_numbers import UnreadNumberError
from reports.live.written_numbers import WrittenNumber, written_before

LONGEST = 5_000_000
LONGEST_LINE = 1_000_000
LONGEST_STATEMENT = 2_000
MOST_LINES = 200_000
MOST_STATEMENTS = 2_000
MOST_CLAIMS = 5_000
MOST_LAYERS = 10_000
_MARK = "\ufeff"  # the byte order mark, which some editors write first
_OPEN, _CLOSE = "<!--=", "-->"
_SPACED = re.compile(r"<!--\s+=(?!=)")
_UNIT_BEHIND = re.compile(r"[*_`$ ]*([A-Za-zµ%][A-Za-z%]*(?:/[A-Za-z]+)?)")
_MORE_DIGITS = re.compile(r"[*_`]*[.,]?[0-9]")


@dataclass(frozen=True, slots=True)
class Statement:
    """A line of a ``napkin`` block; line and column count from 1."""

    text: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class DocumentClaim:
    """A number and the expression that it must equal. ``written``: ``None`` if the comment follows no number that can be read, for the
    reason ``no_number``. Columns count from 1. ``unread``: why the claim cannot be read, empty if it can.
    ``behind``: the word after the comment, which may be the unit."""

    expr: str
    written: WrittenNumber | None
    line: int
    column: int
    expr_column: int
    unread: str = ""
    no_number: str = ""
    behind: str = ""


@dataclass(frozen=True, slots=True)
class LiveDocument:
    """A document. ``lines`` exclude their line ends, which are in ``ends``; ``mark``: the byte order mark, or empty."""

    lines: tuple[str, ...]
    statements: tuple[Statement, ...]
    claims: tuple[DocumentClaim, ...]
    ends: tuple[str, ...] = ()
    mark: str = ""


def read(text: str) -> LiveDocument:
    """The document with its statements and claims, in order. Raises ``BadInputError`` for a malformed or too large one."""
    _require_at_most(LONGEST, len(text), "characters")
    _require_at_most(MOST_LINES, text.count("\n") + text.count("\r") - text.count("\r\n"), "lines")
    mark = _MARK if text.startswith(_MARK) else ""
    ended = list(io.StringIO(text.removeprefix(mark), newline=""))  # a line ends with \n, \r\n or \r, as in CommonMark
    lines = tuple(line.rstrip("\r\n") for line in ended)
    ends = tuple(full_line[len(line) :] for full_line, line in zip(ended, lines, strict=True))
    statements: list[Statement] = []
    claims: list[DocumentClaim] = []
    for number, line, block in blocks(lines):
        if block == "napkin":
            statements += _statements(number, line)
            _require_at_most(MOST_STATEMENTS, len(statements), "statements")
        elif not block:
            claims += (*_claims(number, line), *_spaced(number, line))
            _require_at_most(MOST_CLAIMS, len(claims), "claims")
    return LiveDocument(lines, tuple(statements), tuple(claims), ends, mark)


def _require_at_most(most: int, count: int, noun: str) -> None:
    if count > most:
        raise BadInputError(f"the document has {count:,} {noun}, Napkin reads at most {most:,}: split it")


def blocks(lines: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """(line number, line, language of its block or empty) for each line, without the lines that begin or end a block.

    Raises ``BadInputError`` for a block that does not end: it would hide the rest of the document.
    """
    end, word, began = "", "", 0
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_LINE:
            raise BadInputError(f"line {number} has {len(line):,} characters, Napkin reads at most {LONGEST_LINE:,}: break it")
        fence, info = _fence(line)
        if not end and fence:
            end, word, began = fence, _word(info), number
        elif not end and _is_hidden(line):
            end, word, began = _CLOSE, "napkin", number
        elif end and _ends(line, end, fence, info):
            end = word = ""
        else:
            yield number, line, word
    if end and word == "napkin":
        raise BadInputError(f"line {began}: the napkin block that begins here does not end: close it with {end}")
    if end:
        raise BadInputError(f"line {began}: the code block that begins here does not end and hides the rest: close it with {end}")


def _fence(line: str) -> tuple[str, str]:
    """(backquotes or tildes, text after them) of a fence; two empty strings if the line is none."""
    text = line.lstrip(" ")
    sign = text[:1]
    if len(line) - len(text) > 3 or sign not in ("`", "~"):
        return "", ""
    info = text.lstrip(sign)
    if len(text) - len(info) < 3 or (sign == "`" and "`" in info):
        return "", ""
    return sign * (len(text) - len(info)), info.strip()


def _word(info: str) -> str:
    """The language of a fenced block; ``text`` if it has none."""
    language = re.match(r"[\w-]+", info)
    return language[0] if language else "text"


def _is_hidden(line: str) -> bool:
    text = line.lstrip(" ")
    return len(line) - len(text) <= 3 and text.startswith("<!--") and text.rstrip() in ("<!--napkin", "<!-- napkin", "<!--\tnapkin")


def _ends(line: str, end: str, fence: str, info: str) -> bool:
    return line.strip() == end if end == _CLOSE else fence.startswith(end) and not info


def _statements(number: int, line: str) -> Iterator[Statement]:
    text = re.sub(r"(^|\s)#.*", "", line).strip()
    if len(text) > LONGEST_STATEMENT:
        raise BadInputError(f"line {number}: a statement of {len(text):,} characters, at most {LONGEST_STATEMENT:,} are allowed: use names")
    if text:
        yield Statement(text, number, len(line) - len(line.lstrip()) + 1)


def _claims(number: int, line: str) -> Iterator[DocumentClaim]:
    shown = without_code(line)
    start = shown.find(_OPEN)
    while start >= 0:
        begin = start + len(_OPEN)
        end = shown.find(_CLOSE, begin)
        if end < 0:
            yield DocumentClaim("", None, number, start + 1, begin + 1, "the claim begins with <!--= but its line has no -->: close it")
            return
        yield _claim(number, line, start, end)
        start = shown.find(_OPEN, end + len(_CLOSE))


def _spaced(number: int, line: str) -> Iterator[DocumentClaim]:
    """Comments that would be claims without a space: ``<!-- = g.parameters -->``."""
    for comment in _SPACED.finditer(without_code(line)):
        why = "a claim begins with <!--= and this comment with <!-- =: leave out the space"
        yield DocumentClaim("", None, number, comment.start() + 1, comment.end() + 1, why)


def _claim(number: int, line: str, start: int, end: int) -> DocumentClaim:
    """The claim whose comment begins at ``start`` and ends at ``end``."""
    begin = start + len(_OPEN)
    text = line[begin:end]
    expr, column = text.strip(), begin + len(text) - len(text.lstrip()) + 1
    if not expr:
        return DocumentClaim("", None, number, start + 1, begin + 1, "the claim is empty: write what the number must equal after <!--=")
    try:
        written = written_before(line, start)
        _require_last_digit(line, start, end + len(_CLOSE))
    except UnreadNumberError as error:
        return DocumentClaim(expr, None, number, error.start + 1, column, no_number=str(error))
    except BadInputError as error:
        return DocumentClaim(expr, None, number, start + 1, begin + 1, str(error))
    behind = _UNIT_BEHIND.match(line, end + len(_CLOSE))
    return DocumentClaim(expr, written, number, written.start + 1, column, behind=behind[1] if behind else "")


def _require_last_digit(line: str, start: int, end: int) -> None:
    """Raise ``UnreadNumberError`` if the digits of a number go on behind its comment."""
    if _MORE_DIGITS.match(line, end):
        raise UnreadNumberError("digits follow the comment: put it after the last digit of the number", start)


def without_code(line: str) -> str:
    """The line with spaces for inline code that contains a comment: a quoted claim is none."""
    if "`" not in line or "<!--" not in line:
        return line
    pieces: list[str] = []
    at = 0
    for start, end in _code(line):
        code = line[start:end]
        pieces += (line[at:start], " " * len(code) if "<!--" in code else code)
        at = end
    return "".join((*pieces, line[at:]))


def _code(line: str) -> Iterator[tuple[int, int]]:
    """(start, end) of each inline code: from a run of backquotes to the next run of the same length."""
    runs = [run.span() for run in re.finditer("`+", line)]
    begins = [start + _is_escaped(line, start) for start, _ in runs]
    ends: list[int | None] = []  # by run, the index of the one that closes it
    next_of: dict[int, int] = {}
    for index in reversed(range(len(runs))):
        start, end = runs[index]
        ends.append(next_of.get(end - begins[index]))
        next_of[end - start] = index
    ends.reverse()
    index = 0
    while index < len(runs):
        last = ends[index]
        if last is None:
            index += 1
        else:
            yield begins[index], runs[last][1]
            index = last + 1


def _is_escaped(line: str, at: int) -> bool:
    """Whether an odd number of backslashes precedes a position."""
    start = at
    while start and line[start - 1] == "\\":
        start -= 1
    return (at - start) % 2 == 1


def line_of_report(document: LiveDocument) -> int:
    """The number of the first line that only a report of Napkin has, such as the comment of its inputs; 0 if there is none."""
    derived = anchored = 0
    for number, line, block in blocks(document.lines):
        if block:
            continue
        if line.startswith(("Made by Napkin on ", '<a id="q-')) or "<!-- napkin-inputs" in without_code(line):
            return number
        derived = derived or number * (line.startswith("# ") and line.endswith(", derived"))
        anchored = anchored or number * line.startswith('<a id="')
    return derived if anchored else 0

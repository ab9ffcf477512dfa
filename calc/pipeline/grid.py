"""Parses the sizes of a sweep: lists, ranges, columns of a table. Counts the points before any is created."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from fractions import Fraction

from calc.dimensions import LARGEST, check_size, number_in, size_of
from calc.errors import BadInputError
from calc.symbolic.assignments import assignment

MOST = 20_000_000  # default limit on the number of points
_MOST_OF_ONE = 10_000_000
_FORMS = "write 1,2,4 or 1024:8192:1024 (both ends, and the step) or 1Ki..16Ki×2 (both ends, and the factor)"


def parsed(text: str) -> tuple[str, list[int]]:
    """``"T=1024:4096:1024"`` → ``("T", [1024, 2048, 3072, 4096])``."""
    name, values = assignment(text, "a dimension and its sizes as NAME=SIZES, e.g. B=1,2,4")
    return name, sizes(name, values)


def sizes(name: str, text: str) -> list[int]:
    """The sizes of one dimension, in the order in which they are written."""
    listed: list[int] = []
    for part in text.split(","):
        listed += _part(name, part.strip(), text)
        if len(listed) > _MOST_OF_ONE:
            raise BadInputError(f"{name[:40]} has more than {_MOST_OF_ONE:,} sizes: give fewer")
    return listed


def _part(name: str, part: str, text: str) -> list[int]:
    if ".." in part:
        ends, _, factor = part.replace("x", "×").replace("*", "×").partition("×")
        first, _, last = ends.partition("..")
        return _geometric(name, _size(name, first), _size(name, last), _number(name, factor, part))
    ends_ = part.split(":")
    if len(ends_) in (2, 3):
        first_, last_, step = _size(name, ends_[0]), _size(name, ends_[1]), _size(name, ends_[2]) if len(ends_) == 3 else 1
        _in_order(name, first_, last_, part)
        many = (last_ - first_) // step + 1
        if many > _MOST_OF_ONE:
            raise BadInputError(f"{name[:40]} = {part[:60]} are {many:,} sizes, more than {_MOST_OF_ONE:,}: give a larger step")
        return list(range(first_, last_ + 1, step))
    if len(ends_) > 3 or not part:
        raise BadInputError(f"cannot read {text[:60]!r} as sizes of {name[:40]}: {_FORMS}")
    return [_size(name, part)]


def _geometric(name: str, first: int, last: int, factor: Fraction) -> list[int]:
    _in_order(name, first, last, f"{first}..{last}")
    if factor.denominator != 1 or factor < 2:
        raise BadInputError(f"{name[:40]}: a factor is an integer from 2 on, not {factor}: write 1Ki..16Ki×2")
    powers = [first]
    while powers[-1] * int(factor) <= last:
        powers.append(powers[-1] * int(factor))
    return powers


def _in_order(name: str, first: int, last: int, part: str) -> None:
    if last < first:
        raise BadInputError(f"{name[:40]} = {part[:60]} ends before it begins: give the smaller end first")


def _size(name: str, text: str) -> int:
    return size_of(name[:40], _number(name, text, text), text)


def _number(name: str, text: str, whole: str) -> Fraction:
    number = number_in(text)
    if number is None:
        raise BadInputError(f"cannot read {whole[:60]!r} as sizes of {name[:40]}: {_FORMS}")
    return number


def require_few(counts: Iterable[int], most: int) -> int:
    """The number of points of a grid; more than ``most`` are refused."""
    total = 1
    for count in counts:
        total *= count
    if total > most:
        raise BadInputError(f"that are {total:,} points, more than {most:,}: give fewer sizes, or --most {total}")
    return total


def read(lines: Iterable[str], where: str, most: int) -> dict[str, list[int]]:
    """Columns of sizes of a CSV file: a line of names, then lines of integers."""
    rows = csv.reader(lines, strict=True)
    try:
        names = _names(next(rows, []), where)
        columns: list[list[int]] = [[] for _ in names]
        for number, row in enumerate(rows, 2):
            if row:
                _add(columns, names, row, f"{where} line {number}")
                require_few([len(columns[0])], most)
    except csv.Error as error:
        raise BadInputError(f"{where} is not CSV: {error}") from None
    if not columns[0]:
        raise BadInputError(f"{where} has names and no sizes: give a line of integers for each point")
    return dict(zip(names, columns, strict=True))


def _names(row: Sequence[str], where: str) -> list[str]:
    names = [cell.strip() for cell in row]
    for i, name in enumerate(names):
        if not name.isidentifier() or not name.isascii():
            raise BadInputError(f"{where} line 1: {name[:40]!r} cannot name a dimension: begin with a line of names such as B,T")
        if name in names[:i]:
            raise BadInputError(f"{where} line 1: {name[:40]} appears twice: give each dimension one column")
    if not names:
        raise BadInputError(f"{where} is empty: give a line of names such as B,T, then lines of integers")
    return names


def _add(columns: Sequence[list[int]], names: Sequence[str], row: Sequence[str], where: str) -> None:
    if len(row) != len(names):
        raise BadInputError(f"{where} has {len(row)} cells, and there are {len(names)} names: give one integer for each")
    for column, name, cell in zip(columns, names, row, strict=True):
        text = cell.strip()
        if not text.isdecimal() or len(text) > len(str(LARGEST)):
            raise BadInputError(f"{where}: {name} = {text[:40]!r} is not a size: sizes are integers from 1 to 2**63 - 1")
        column.append(check_size(f"{where}: {name}", int(text)))

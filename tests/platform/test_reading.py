"""Readers of plain data give what a value stands for, exactly, or say where it is and what is expected in its place."""

from __future__ import annotations

import json
import tomllib
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from calc.platform.reading import (
    Read,
    Wrong,
    at,
    each,
    flag,
    mapping,
    maybe,
    one_of,
    optional,
    part,
    positive,
    row,
    short,
    table,
    text,
    whole,
    written,
)

NAMED = mapping(text, each(row(text, whole(1))))


def refusal(read: Read[Any], value: Any) -> str:
    with pytest.raises(Wrong) as caught:
        read(value)
    return str(caught.value)


def test_nothing_is_converted() -> None:
    """Neither text, nor true, nor a double is an integer, and no integer is true or text."""
    for value in ("3", True, 3.0, None, [3], Decimal(3)):
        assert refusal(whole(0), value).endswith("expected an integer from 0 on")
    assert "it is 1, expected true or false" == refusal(flag, 1)
    assert "it is 1, expected text" == refusal(text, 1)
    assert "it is true, expected a number above 0" == refusal(positive, True)


def test_integers_are_exact_beyond_doubles() -> None:
    """2**53 + 1 as a number and as the text that JSON of ours has for it; other texts are none."""
    assert 2**53 + 1 == whole(0)(json.loads(str(2**53 + 1))) == written(whole(0))(str(2**53 + 1))
    for odd in ("", "-1", "1.0", " 1", "²", "9" * 40):
        assert refusal(written(whole(0)), odd) == f"it is {odd!r}, expected an integer from 0 on"


def test_a_refusal_has_the_whole_path() -> None:
    """Keys of objects and places in lists, from the outermost in."""
    assert {"a": (["x", 1],)} == NAMED({"a": [["x", 1]]})
    assert "a[1][1] is 0, expected an integer from 1 on" == refusal(NAMED, {"a": [["x", 1], ["y", 0]]})
    assert "a.b.c is null, expected text" == refusal(lambda data: at(data, "a.b.c", text), {"a": {"b": {"c": None}}})
    assert "a.b lacks 'c'" == refusal(lambda data: at(data, "a.b.c", text), {"a": {"b": {}}})
    assert "a is a list of 0, expected an object" == refusal(lambda data: at(data, "a.b.c", text), {"a": []})


def test_what_may_be_missing_is_read_where_it_is() -> None:
    """Missing and null are nothing; anything else must be of its kind."""
    assert [None, None, "x"] == [optional(data, "a", text) for data in ({}, {"a": None}, {"a": "x"})]
    assert "a is 1, expected text" == refusal(lambda data: optional(data, "a", text), {"a": 1})
    assert "it is 7, expected an object" == refusal(lambda data: optional(data, "a", text), 7)
    assert maybe(text)(None) is None


def test_a_table_has_its_keys_and_no_others() -> None:
    """What it lacks and what it has too much is named, with what there is."""
    read: Read[Any] = lambda value: table(value, ("low", "high"), ("basis",))  # noqa: E731  # a reader as the others are

    assert {"low": 1, "high": 2} == read({"low": 1, "high": 2})
    assert "it lacks high: an entry needs low, high" == refusal(read, {"low": 1})
    assert "it has an unknown key 'mid': use one of low, high, basis" == refusal(read, {"low": 1, "high": 2, "mid": 3})
    assert "it is 5, expected a table with low, high" == refusal(read, 5)


def test_other_refusals_say_what_is_there() -> None:
    """Values that TOML has and JSON has not, long ones, and ranges in powers of ten."""
    assert "a is 2026-01-31, expected text" == refusal(lambda data: part(data, "a", text), tomllib.loads("a = 2026-01-31"))
    assert "it is 1E+9, expected a whole number of bytes from 1 to 10^18" == refusal(
        whole(1, 10**18 + 1, "a whole number of bytes"), Decimal("1E9")
    )
    assert "it is 'xxxx', expected text of at most 3 characters" == refusal(short(3), "xxxx")
    assert "it is 2, expected the schema that this reads: 1" == refusal(one_of((1,), "the schema that this reads"), 2)
    assert "it is a list of 0, expected a list of at least 1" == refusal(each(text, least=1), [])
    assert Fraction(1, 10) == positive(0.1)

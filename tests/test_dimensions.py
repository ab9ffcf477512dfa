"""Dimensions: what their values may be, how defaults follow one another, and the one line said about a bad one."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.dimensions import LARGEST, MEANINGS, Dim, evaluate, meaning_of, ordered_names, parse_assignment, resolve
from calc.errors import DimensionError, SpecError
from calc.pipeline import sweep_grid

TRANSFORMER = {
    "B": Dim(2),
    "T": Dim(7, at_most="C"),
    "d": Dim(15, multiple_of="h"),
    "h": Dim(3),
    "k": Dim("d/h", tied=True),
    "f": Dim("4*d"),
    "C": Dim(11),
}


def refusal(given: dict[str, int], dims: dict[str, Dim] = TRANSFORMER) -> str:
    """The message that refuses ``given``, which must be one line."""
    with pytest.raises((DimensionError, SpecError)) as caught:
        resolve(dims, given)
    message = str(caught.value)

    assert "\n" not in message
    return message


# -- values that follow -------------------------------------------------------------------------------------------------


def test_defaults_follow_what_is_given() -> None:
    """Setting d moves f = 4*d and k = d/h: 4 * 21 = 84, 21 / 3 = 7."""
    assert {"B": 2, "T": 7, "d": 21, "h": 3, "k": 7, "f": 84, "C": 11} == resolve(TRANSFORMER, {"d": 21})


def test_a_default_does_not_follow_when_it_is_given_too() -> None:
    """f = 13 stays 13 whatever d is."""
    assert resolve(TRANSFORMER, {"d": 21, "f": 13})["f"] == 13


def test_the_order_of_declaration_does_not_matter() -> None:
    """A default may mention dimensions declared after it, through several others: c = a + b = 3 + 2*3 = 9."""
    assert {"c": 9, "b": 6, "a": 3} == resolve({"c": Dim("a + b"), "b": Dim("2*a"), "a": Dim(3)}, {})


@given(d_per_h=st.integers(1, 10**6), h=st.integers(1, 10**6))
def test_a_tied_quotient_is_exact_at_any_size(d_per_h: int, h: int) -> None:
    """k = d/h has no rounding, at sizes far beyond a float's 2**53 too."""
    assert resolve(TRANSFORMER, {"d": d_per_h * h, "h": h})["k"] == d_per_h


def test_the_largest_size_is_accepted() -> None:
    """2**63 - 1 is a size, 2**63 is not."""
    assert resolve({"B": Dim(1)}, {"B": LARGEST})["B"] == 2**63 - 1
    assert refusal({"B": LARGEST + 1}, {"B": Dim(1)}) == "B is too large (about 10**19): sizes are integers from 1 to 2**63 - 1"


# -- values that are refused --------------------------------------------------------------------------------------------


def test_indivisible_heads_are_refused() -> None:
    """16 is not a multiple of 3, whether or not the head width is a dimension too."""
    without_k = {name: dim for name, dim in TRANSFORMER.items() if name != "k"}

    assert refusal({"d": 16}, without_k) == "d = 16 is not divisible by h = 3: this model needs d to be a multiple of h"
    assert refusal({"d": 16}) == "k = d/h is not an integer at d = 16, h = 3: choose d as a multiple of h, e.g. d = 15"


def test_a_length_beyond_the_learned_positions_is_refused() -> None:
    """There is no row of the table for a twelfth position of 11."""
    assert refusal({"T": 12}) == "T = 12 is more than C = 11: this model needs T <= C: lower T or raise C"


def test_a_number_that_must_divide_is_named() -> None:
    """An odd rotary head width cannot be split in pairs."""
    assert refusal({"k": 7}, {"k": Dim(8, multiple_of=2)}) == "k = 7 is not divisible by 2: this model needs k to be a multiple of 2"


def test_a_tied_dimension_cannot_be_set() -> None:
    """The message says which ones can be."""
    assert refusal({"k": 4}) == "k cannot be set: in this model k = d/h; set d or h"


def test_an_unknown_dimension_is_refused_with_those_there_are() -> None:
    """-d Q=3 on a model without Q."""
    assert refusal({"Q": 3}) == "this model has no dimension 'Q': it has B, T, d, h, k, f, C"


def test_an_unknown_dimension_near_a_known_one_names_it() -> None:
    """A long name misspelt by one letter."""
    assert refusal({"layer": 3}, {"layers": Dim(2)}).endswith("it has layers; did you mean layers?")


@pytest.mark.parametrize(("typed", "meant"), [("b", "B"), ("batch", "B"), ("t", "T"), ("Layers", "L"), ("vocabulary", "V")])
def test_a_name_in_another_case_or_in_words_has_the_symbol(typed: str, meant: str) -> None:
    """By the meanings of the table of symbols."""
    assert refusal({typed: 3}, {each: Dim(2) for each in "BTLV"}).endswith(f"it has B, T, L, V; did you mean {meant}?")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("B=0", "B = 0 is not positive: sizes are integers from 1 to 2**63 - 1"),
        ("B=-8", "B = -8 is not positive: sizes are integers from 1 to 2**63 - 1"),
        ("B=2.5", "B = 2.5 is not an integer: sizes are integers from 1 to 2**63 - 1"),
        ("B=", "cannot read 'B=': write a dimension as NAME=INTEGER, e.g. B=8"),
        ("B=8e", "B = 8e is not a size: write an integer from 1 to 2**63 - 1, as 1024, 1e3 or 1Ki"),
        ("B=8e99", "B is too large (about 10**99): sizes are integers from 1 to 2**63 - 1"),
        ("B=8e400", "B = 8e400 is not a size: write an integer from 1 to 2**63 - 1, as 1024, 1e3 or 1Ki"),
        ("B", "cannot read 'B': write a dimension as NAME=INTEGER, e.g. B=8"),
        ("=8", "cannot read '=8': write a dimension as NAME=INTEGER, e.g. B=8"),
        (
            f"B={10**400}",
            "B = 100000000000000000…00000000 (401 characters) is too large: sizes are integers from 1 to 2**63 - 1",
        ),
        (
            f"B={'9' * 10_000}",  # past the 4300 digits at which Python's int() refuses with words of its own
            "B = 999999999999999999…99999999 (10000 characters) is too large: sizes are integers from 1 to 2**63 - 1",
        ),
    ],
)
def test_a_malformed_assignment_is_refused(text: str, message: str) -> None:
    """Each in one line that says what a size is."""
    with pytest.raises(DimensionError, match=f"^{re.escape(message)}$"):
        parse_assignment(text)


def test_an_assignment_is_read() -> None:
    """Blanks around the name and the number do not matter."""
    assert parse_assignment(" T = 37 ") == ("T", 37)


@pytest.mark.parametrize(
    ("written", "size"), [("1e3", 1000), ("1.5e3", 1500), ("4k", 4000), ("4Ki", 4096), ("2Mi", 2 << 20), ("1_024", 1024), ("0.5Ki", 512)]
)
def test_a_size_is_read_as_people_write_it(written: str, size: int) -> None:
    """In every command the same: a sweep's ends are sizes too."""
    assert parse_assignment(f"T={written}") == ("T", size)
    assert sweep_grid.parsed(f"T={written}:{written}") == ("T", [size])


@pytest.mark.parametrize("value", [2.5, True, "8", None, 10**400])
def test_only_integers_in_range_are_sizes_from_python_too(value: object) -> None:
    """True is no size, nor is text."""
    assert refusal({"B": value}).startswith("B ")


# -- declarations that are refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"a": Dim("2*b"), "b": Dim("a")}, "the default of dimension 'a' depends on itself: give one of them a number"),
        ({"a": Dim("2*z")}, "a dimension expression mentions 'z', which is not a dimension of this model"),
        ({"a": Dim("2*")}, "cannot read the dimension expression '2*': write it with + - * / and dimension names"),
        ({"a": Dim("2*a", tied=True)}, "the default of dimension 'a' depends on itself: give one of them a number"),
        ({"a": Dim("a if 1 else 2")}, "cannot read the dimension expression 'a if 1 else 2': write it with + - * / and dimension names"),
        ({"a": Dim("floor(9/2)")}, "cannot read the dimension expression 'floor(9/2)': write it with + - * / and dimension names"),
        ({"a": Dim("~3")}, "cannot read the dimension expression '~3': write it with + - * / and dimension names"),
        ({"a": Dim("1/0")}, "cannot read the dimension expression '1/0': write it with + - * / and dimension names"),
        ({"a": Dim("9**9**9")}, "cannot read the dimension expression '9**9**9': write it with + - * / and dimension names"),
        ({"a": Dim(4, multiple_of="h")}, "dimension a is declared a multiple of 'h', which is not a dimension of this model"),
        ({"a": Dim(4, multiple_of=0)}, "dimension a is declared a multiple of 0: give a positive integer or the name of a dimension"),
        ({"a": Dim(4, at_most="C")}, "dimension a is declared at most 'C', which is not a dimension of this model"),
        ({"a": Dim("3 - 5")}, "a = -2 is not positive: sizes are integers from 1 to 2**63 - 1"),
        ({"a": Dim(0)}, "a = 0 is not positive: sizes are integers from 1 to 2**63 - 1"),
    ],
)
def test_a_malformed_declaration_is_refused(dims: dict[str, Dim], message: str) -> None:
    """A spec whose own numbers are wrong is told so before anything runs."""
    assert refusal({}, dims) == message


# -- expressions ---------------------------------------------------------------------------------------------------------


def test_expressions_are_evaluated_exactly() -> None:
    """(8*12 - 4)/3 = 92/3 stays a fraction."""
    assert evaluate("(8*d - 4)/h", {"d": 12, "h": 3}) == Fraction(92, 3)


def test_names_come_in_the_order_they_are_read() -> None:
    """Once for each mention."""
    assert ordered_names("d/h + d") == ("d", "h", "d")


def test_a_guard_may_be_longer_than_what_a_spec_may_say_of_a_dimension() -> None:
    """Guards on strides of windows of padded images have thousands of characters; a default of 2,001 is refused."""
    guard = f"Eq(d, {' + '.join(['T'] * 1_000)})"

    assert len(guard) > 2_000
    assert ordered_names(guard) == ("d", *["T"] * 1_000)
    with pytest.raises(SpecError, match=r"is too long: write it with at most 2,000 characters$"):
        resolve({"d": Dim(f"T{' + T' * 1_000}"), "T": Dim(2)}, {})


def test_a_spec_may_say_what_its_letters_mean() -> None:
    """Its own words come before the field's usual ones, and a letter without either is still named."""
    assert meaning_of("K", Dim(3, "classes")) == "classes"
    assert meaning_of("h", Dim(3)) == MEANINGS["h"]
    assert meaning_of("q", Dim(3)) == "dimension q"

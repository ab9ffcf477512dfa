"""Numbers as documents write them: each is read whole or refused, so no part of one is checked, or rewritten, for the whole."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from reports.live import units
from reports.live.document import read
from reports.live.engine import NamedValues, Scope
from reports.live.language import UnitValue
from reports.live.verify_documents import fixed, judge
from tests.reports.live.documents import run

MEMORY = UnitValue(Fraction(80 * 10**9), units.BYTE)
SCOPE = Scope({"g": NamedValues("g", {"parameters": UnitValue(Fraction(124_439_808))}), "h": NamedValues("h", {"memory": MEMORY})})
NARROW, NO_BREAK = "\u202f", "\u00a0"


def message(text: str) -> str:
    """What is wrong with the last claim of a line; empty where it holds."""
    return judge(read(text), SCOPE)[-1].message


def repaired(text: str) -> str:
    """The text after ``--fix``."""
    document = read(text)
    return fixed(document, judge(document, SCOPE))


@pytest.mark.parametrize(
    "text", ["1.24 x 10^8<!--= 8 -->", "1/2<!--= 2 -->", "2^20<!--= 20 -->", "124 439 808<!--= 808 -->", "1,24 439<!--= 439 -->"]
)
def test_the_last_digits_of_a_number_are_not_the_number(text: str) -> None:
    """8 of 1.24 x 10^8, 2 of 1/2, 808 of 124 439 808: each held."""
    assert message(text) != ""


@pytest.mark.parametrize(
    "text",
    [
        "1.24 x 10^8<!--= g.parameters -->",
        "1.24 * 10^8<!--= g.parameters -->",
        "1.24×10**8<!--= g.parameters -->",
        "1.24 × 10<sup>8</sup><!--= g.parameters -->",
        "1.24 ⋅ 10⁸ parameters<!--= g.parameters -->",
        "10^8<!--= 10**8 -->",
        "10⁸<!--= 10**8 -->",
        "10**8<!--= 10**8 -->",
        "$10^{-3}$<!--= 1/1000 -->",
        "5 × 10^−3<!--= 5/1000 -->",
        "2^20<!--= 2**20 -->",
        "2<sup>20</sup> bytes<!--= 1 MiB -->",
        "1/2<!--= 1/2 -->",
        "-1/2<!--= -1/2 -->",
        "124 439 808<!--= g.parameters -->",
        "| 124 439 808<!--= g.parameters --> |",
        "has **124 439 808**<!--= g.parameters --> parameters",
        f"has 124{NARROW}439{NARROW}808<!--= g.parameters --> parameters",
        f"has 124{NO_BREAK}439{NO_BREAK}808<!--= g.parameters --> parameters",
        "12 439.5<!--= 24879/2 -->",
    ],
)
def test_powers_fractions_and_grouped_digits_are_read(text: str) -> None:
    """2^20 bytes is 1 MiB; 24,879/2 is 12,439.5."""
    assert message(text) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("10^8<!--= g.parameters -->", "g.parameters = 1.2444e8, exactly 124,439,808, document says 10^8 (-20 %)"),
        ("1/2<!--= 2 -->", "2 = 2, document says 1/2 (-75 %)"),
        ("2^20<!--= 10**6 -->", "10**6 = 1e6, document says 2^20 (+4.9 %)"),
    ],
)
def test_a_power_and_a_fraction_are_exact(text: str, said: str) -> None:
    """Without digits that were rounded there is no tolerance: 2^20 is 1,048,576."""
    assert message(text) == said


@pytest.mark.parametrize(
    ("text", "shown", "advice"),
    [
        ("124'439'808", "124'439'808", "write 124,439,808"),
        ("124_439_808", "124_439_808", "write 124,439,808"),
        ("124.439.808", "124.439.808", "write 124,439,808"),
        ("12,34,567", "12,34,567", "write 1,234,567"),
        ("1.240,5", "1.240,5", "write 1,240.5"),
        ("8,03", "8,03", "write 8.03"),
        ("8,03 GB", "8,03 GB", "write 8.03 GB"),
        ("is .5", ".5", "write 0.5"),
        ("11.3&nbsp;GB", "11.3&nbsp;GB", "write 11.3 GB"),
        ("GPT-2", "GPT-2", "put the comment directly after the number"),
        ("1,24 439", "1,24 439", "put a comma between two numbers, or write one as 1,234,567"),
        ("124 43 808", "124 43 808", "put a comma between two numbers, or write one as 1,234,567"),
        ("in 2024 124 M", "2024 124 M", "put a comma between two numbers, or write one as 1,234,567"),
        ("2 h 30 min", "2 h 30 min", "put a comma between two numbers, or write one as 1,234,567"),
        ("GPT 2 124 439 808", "GPT 2 124 439 808", "write 2,124,439,808, or put a comma before the number"),
        ("has 124 439 808", "has 124 439 808", "write 124,439,808, or put a comma before the number"),
        ("5–7", "5–7", "put a comment after each end"),
        ("5 - 7", "5 - 7", "put a comment after each end"),
        ("5-7 GB", "5-7 GB", "put a comment after each end"),
        ("5 to 7 days", "5 to 7 days", "put a comment after each end"),
        ("from 5 GB to 7 GB", "5 GB to 7 GB", "put a comment after each end"),
        ("between 5 and 7", "between 5 and 7", "put a comment after each end"),
        ("5~7", "5~7", "put a comment after each end"),
        ("–5", "–5", "write one minus sign, as -"),
        ("--5", "--5", "write one minus sign, as -"),
        ("x_{a}5", "x_{a}5", "write its digits, or a power of ten as 1.5e30"),
        ("8 × 1024", "8 × 1024", "put a comment after each number, or write the result"),
        ("8*1024", "8*1024", "put a comment after each number, or write the result"),
        ("3 × 2^20", "3 × 2^20", "put a comment after each number, or write the result"),
        ("3 GB + 5 GB", "3 GB + 5 GB", "put a comment after each number, or write the result"),
        ("5 ± 1", "5 ± 1", "put a comment after each number, or write the result"),
        ("1:8", "1:8", "put a comment after each number, or write the result"),
        ("1.5^20", "1.5^20", "write its digits, or a power of ten as 1.5e30"),
        ("1<b>24", "1<b>24", "put the comment directly after the number"),
        ("≠ 12", "≠ 12", "write one of ≈ < > ≤ ≥ before it"),
        ("√2", "√2", "write the result"),
        ("5&ndash;7", "5&ndash;7", "write the character itself, not its entity"),
    ],
)
def test_what_cannot_be_read_whole_is_refused_and_left_as_it_is(text: str, shown: str, advice: str) -> None:
    """With what to write instead."""
    claim = f"{text}<!--= g.parameters -->"

    assert message(claim) == f'g.parameters = 124,439,808, but cannot read "{shown}" as a number: {advice}'
    assert repaired(claim) == claim


@pytest.mark.parametrize(
    ("text", "between"), [("(124 M)", ")"), ("124 M.", "."), ("124 M neurons", "neurons"), ("| 124 M |", "|"), ("124 M of", "of")]
)
def test_what_separates_a_number_from_its_comment_is_named(text: str, between: str) -> None:
    """The number is there, so none is missing."""
    said = f'"{between}" separates the number from its comment: put the comment directly after the number'

    assert message(f"{text}<!--= g.parameters -->") == f"g.parameters = 124,439,808, but {said}"


@pytest.mark.parametrize("text", ["12<!--= 12 -->4,439", "12<!--= 12 -->.5", "**12<!--= 12 -->**4"])
def test_digits_behind_the_comment_belong_to_the_number(text: str) -> None:
    """A reader of the page sees 124,439."""
    assert message(text) == "12 = 12, but digits follow the comment: put it after the last digit of the number"


@pytest.mark.parametrize(
    "text",
    [
        "H100 80 GB<!--= h.memory -->",
        "GPT-2 124 M<!--= g.parameters -->",
        "GPT-3.5 124 M<!--= g.parameters -->",
        "in 2024, 124 M<!--= g.parameters -->",
        "(2024) 124 M<!--= g.parameters -->",
        "8 GPUs 80 GB<!--= h.memory --> each",
        "12 layers – 124 M<!--= g.parameters -->",
        "5<!--= 5 -->–7<!--= 7 -->",
        "5<!--= 5 -->-7<!--= 7 -->",
        "from 5<!--= 5 --> to 7<!--= 7 -->",
        "8<!--= 8 --> GPUs × 80 GB<!--= h.memory -->",
        "1<!--= 1 -->/2<!--= 2 -->",
        "2·12 = 24<!--= 24 -->",
        "- 12<!--= 12 -->",
        "* 12<!--= 12 -->",
        "1. 12<!--= 12 -->",
        r"\$5 k<!--= 5 k$ -->",
        "US$5 k<!--= 5 k$ -->",
        "| 5 | 7<!--= 7 --> |",
        "<td>5</td><td>7<!--= 7 --></td>",
    ],
)
def test_words_marks_and_claims_before_a_number_are_no_part_of_it(text: str) -> None:
    """Names with digits, lists, cells, and ranges of which each end has its claim."""
    assert message(text) == ""


def test_fixing_writes_thousands_with_the_space_of_the_document() -> None:
    """Whichever it is."""
    for space in (" ", NO_BREAK, NARROW):
        wrong, right = (f"124{space}439{space}{last}<!--= g.parameters -->" for last in (809, 808))

        assert repaired(wrong) == right


def test_fixing_leaves_fractions_and_powers_to_the_author(tmp_path: Path) -> None:
    """3/4 is no rounded number, and 2^20 has no other digits."""
    text = "3/4<!--= 1/2 -->, 2^20<!--= 2**30 --> and 1.24 x 10^8<!--= 3e8 -->\n"
    actual = run(tmp_path, text, "--fix")

    assert actual.stdout.splitlines()[-1] == f"{tmp_path / 'plan.md'}: 0 of 3 claims hold, 1 rewritten, 2 left to repair by hand"
    assert (tmp_path / "plan.md").read_text() == text.replace("1.24 x", "3.00 x")


def test_a_document_with_a_number_that_cannot_be_read_fails(tmp_path: Path) -> None:
    """Exit 1 with the place of the number, and it needs no second claim."""
    actual = run(tmp_path, "It is 8,03<!--= 8.03 -->.\n", "--unmarked")
    file = tmp_path / "plan.md"

    assert (1, f'{file}:1:7: 8.03 = 8.03, but cannot read "8,03" as a number: write 8.03\n{file}: 0 of 1 claims hold\n') == (
        actual.exit_code, actual.stdout,
    )  # fmt: skip

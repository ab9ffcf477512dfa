"""Bounds in words: they are checked as their signs are, and left to the author, since other digits could make a false sentence."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from reports.live.document import read
from reports.live.engine import NamedValues, Scope
from reports.live.language import UnitValue
from reports.live.verify_documents import fixed, judge
from tests.reports.live.documents import run

SCOPE = Scope({"g": NamedValues("g", {"parameters": UnitValue(Fraction(124_439_808))})})
BELOW = ("less than", "fewer than", "smaller than", "lower than", "under", "below")
ABOVE = ("more than", "greater than", "larger than", "higher than", "over", "above")
NEAR = ("about", "approximately", "roughly", "around", "nearly", "almost")


def message(text: str) -> str:
    """What is wrong with the claim of one line; empty where it holds."""
    (finding,) = judge(read(text), SCOPE)
    return finding.message


def values(words: str) -> list[int]:
    """Those of 11, 12 and 13 for which a claim of 12 holds, after these words."""
    return [value for value in (11, 12, 13) if message(f"It has {words} 12<!--= {value} --> layers.") == ""]


@pytest.mark.parametrize(
    ("words", "holding"),
    [
        *((words, [11]) for words in BELOW),
        *((words, [13]) for words in ABOVE),
        *((words, [12]) for words in NEAR),
        ("at most", [11, 12]), ("up to", [11, 12]), ("at least", [12, 13]),
        ("no more than", [11, 12]), ("not over", [11, 12]), ("no fewer than", [12, 13]), ("never below", [12, 13]),
        ("what isn't more than", [11, 12]), ("what isn’t under", [12, 13]), ("not at least", [11]),
        ("what is not", [12]), ("a turnover", [12]),
    ],
)  # fmt: skip
def test_words_before_a_number_are_relations(words: str, holding: list[int]) -> None:
    """Each with its meaning, also negated; of 12, 11 is 8 % off, more than the 5 % of ≈."""
    assert values(words) == holding


@pytest.mark.parametrize(
    "before", ["Under 200 M", "**under 200 M**", "under **200 M**", "**under** 200 M", "> under 200 M", "under < 200 M"]
)
def test_words_are_relations_in_any_case_and_emphasis(before: str) -> None:
    """A sign that says the same may follow, and a line may be a quotation."""
    assert message(f"{before}<!--= g.parameters -->") == ""
    assert message(f"{before.replace('200', '100')}<!--= g.parameters -->") != ""


@pytest.mark.parametrize("words", ["less than", "at most", "about", "roughly"])
def test_a_failed_bound_in_words_is_left_to_repair_by_hand(words: str, tmp_path: Path) -> None:
    """``less than 124 M`` would be false, too."""
    text, file = f"It has {words} 90 M<!--= 124439808 --> parameters.\n", tmp_path / "plan.md"
    actual = run(tmp_path, text, "--fix")

    assert actual.stdout.splitlines()[-1] == f"{file}: 0 of 1 claims hold, 0 rewritten, 1 left to repair by hand"
    assert f"document says {words} 90 M" in actual.stdout
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("less than about 200 M", 'cannot read "less than about" as one relation: write one of them'),
        ("less than ~200 M", 'cannot read "less than ≈" as one relation: write one of them'),
        ("not about 200 M", 'cannot read "not about" as a relation: write < or >'),
        ("sharded over 4", '"sharded over" may be a bound or not: write > or across'),
        ("sum over 4", '"sum over" may be a bound or not: write > or across'),
        ("adds up to 200 M", '"adds up to" may be a bound or not: write = or ≤'),
    ],
)
def test_words_with_two_meanings_are_refused(text: str, why: str) -> None:
    """Parts sharded over 4 devices are no bound, and would hold as one."""
    document = read(f"{text}<!--= g.parameters -->")
    findings = judge(document, SCOPE)

    assert [finding.message for finding in findings] == [f"g.parameters = 124,439,808, but {why}"]
    assert fixed(document, findings) == document.lines[0]
